"""The registry stack: programs from PyPI wheels and the distribution's packages.

It serves machines that cannot reach the sources of Spack's packages.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from virtqual import paths
from virtqual.errors import InfrastructureError, UsageError
from virtqual.files import execute
from virtqual.files.wording import suggest
from virtqual.stack import manifest, sbom
from virtqual.stack.manifest import Manifest, Program, load_recipe

NAME, FILE = "registry", "registry.yaml"
#: The directory of packages that are unpacked, each with a file of its version.
UNPACKED, VERSION_FILE = "unpacked", "version"
_NO_REGISTRY_STACK = (
    "\nso the registry stack cannot be set up here: ci/build-stack builds one, also without a network, and "
    "`virtqual stack register --modules FILE` takes installed programs (docs/stack.md)"
)


@dataclass(frozen=True)
class InstallPlan:
    """The missing packages."""

    wheels: tuple[str, ...]  # pinned requirements for pip
    packages: tuple[str, ...]  # packages of the distribution
    unpacked: tuple[str, ...]  # packages of the distribution that are unpacked, and not installed
    stack: bool  # False if they are only for other uses


def choose_recipe(stacks: Path, extras: Iterable[str] = ()) -> dict[str, Any]:
    """Return the recipe with these extras, and with those whose programs the stack has already.

    Raises UsageError if there is no such extra.
    """
    recipe = load_recipe(FILE)
    offered = recipe.get("extras", {})
    if unknown := sorted(set(extras) - offered.keys()):
        raise UsageError(f"the registry stack has no extra {unknown[0]!r}: {suggest(unknown[0], offered)}")
    try:
        installed = {program.name for program in manifest.load(stacks / NAME / manifest.FILE).programs}
    except InfrastructureError:
        installed = set()
    chosen = [
        extra for name, extra in offered.items() if name in extras or extra["programs"].keys() <= installed
    ]
    parts = [recipe, *chosen]
    lists = {
        key: [line for part in parts for line in part.get(key, ())]
        for key in ("wheels", "packages", "unpacked")
    }
    programs = {name: entry for part in parts for name, entry in part["programs"].items()}
    return {**lists, "programs": programs}


def compute_pins(recipe: dict[str, Any]) -> str:
    """Return the identity of a recipe: a stack of another recipe is set up again."""
    sources = [paths.root() / entry["source"] for entry in recipe["programs"].values() if "source" in entry]
    # A source may need all files beside it, but for Spack's recipe.
    beside = {file for source in sources for file in source.parent.rglob("*")}
    files = sorted(file for file in beside if file.is_file() and file.suffix not in (".py", ".pyc"))
    texts = [file.read_text(encoding="utf-8") for file in files]
    return hashlib.sha256(repr((recipe, texts)).encode()).hexdigest()[:16]


def plan(stacks: Path, recipe: dict[str, Any] | None, extra_packages: tuple[str, ...] = ()) -> InstallPlan:
    """Return the missing packages of the stack's recipe, if the stack will be used, and for other uses.

    Raises InfrastructureError if packages are needed and this machine is no Debian.
    """
    stack = recipe is not None
    recipe = recipe or {"wheels": (), "packages": (), "unpacked": ()}
    site_packages = str(_find_site_packages(stacks / NAME / "prefix"))
    installed = {f"{wheel.name}=={wheel.version}" for wheel in metadata.distributions(path=[site_packages])}
    wheels = tuple(wheel for wheel in recipe["wheels"] if wheel not in installed)
    packages = tuple(dict.fromkeys((*recipe["packages"], *extra_packages)))
    if packages and shutil.which("dpkg-query") is None:
        raise InfrastructureError(
            f"this machine is no Debian (it has no dpkg-query), and these packages are needed: "
            f"{' '.join(packages)}{_NO_REGISTRY_STACK if stack else ''}"
        )
    missing = tuple(package for package in packages if not _read_version(package))
    directory = stacks / NAME / UNPACKED
    unpacked = tuple(name for name in recipe["unpacked"] if not (directory / name / VERSION_FILE).is_file())
    return InstallPlan(wheels, missing, unpacked, stack)


def install(stacks: Path, todo: InstallPlan) -> None:
    """Install missing packages; raise InfrastructureError if that fails or this user may not."""
    try:
        if todo.packages:
            _install_packages(todo.packages)
        for package in todo.unpacked:
            _unpack(package, stacks / NAME / UNPACKED / package)
        if todo.wheels:
            _install_wheels(stacks / NAME / "prefix", todo.wheels)
    except InfrastructureError as error:
        raise InfrastructureError(f"{error}{_NO_REGISTRY_STACK if todo.stack else ''}") from error


def _install_packages(packages: tuple[str, ...]) -> None:
    names = " ".join(packages)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise InfrastructureError(
            f"these packages are missing and this user may not install them: {names}\n"
            f"ask an administrator to run: apt-get install {names}"
        )
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    execute.run_checked(["apt-get", "update", "-q"], "apt-get update failed", env=env)
    command = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages]
    execute.run_checked(command, f"apt-get could not install {names}", env=env)


def _unpack(package: str, directory: Path) -> None:
    """Unpack a package whose installation would do more, such as start a server."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    fetch = ["env", "-C", str(directory), "apt-get", "download", "-q", package]
    execute.run_checked(fetch, f"apt-get could not fetch {package}")
    (file,) = directory.glob("*.deb")
    execute.run_checked(["dpkg-deb", "-x", file, directory], f"{file} could not be unpacked")
    version = execute.run_checked(["dpkg-deb", "-f", file, "Version"], f"{file} has no version")
    file.unlink()
    (directory / VERSION_FILE).write_text(version, encoding="utf-8")


def _install_wheels(prefix: Path, wheels: tuple[str, ...]) -> None:
    python = prefix / "bin/python"
    # pip is missing if the command that made the environment was killed.
    if not (prefix / "bin/pip").exists():
        command = [sys.executable, "-m", "venv", "--clear", str(prefix)]
        execute.run_checked(command, "could not make a Python environment")
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    execute.run_checked([*pip, "install", "--no-deps", *wheels], "pip could not install the wheels")


def _find_site_packages(prefix: Path) -> Path:
    """Return the directory of the wheels of a Python environment."""
    return prefix / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"


def write_manifest(stacks: Path, recipe: dict[str, Any]) -> Manifest:
    """Write the manifest of the stack that was installed by a recipe, and its bill of materials."""
    target = stacks / NAME
    prefix = target / "prefix"
    places = {
        "prefix": str(prefix),
        "site": str(_find_site_packages(prefix)),
        "unpacked": str(target / UNPACKED),
        "lib": f"/usr/lib/{sysconfig.get_config_var('MULTIARCH') or 'x86_64-linux-gnu'}",
    }
    # Programs of the distribution ask for the library by Debian's name.
    alias = prefix / "lib/libmpich.so.12"
    if not alias.exists():
        alias.symlink_to("libmpi.so.12")
    for entry in recipe["programs"].values():
        if "source" in entry:
            source, path = str(paths.root() / entry["source"]), entry["path"].format(**places)
            # A script makes the program itself, C is compiled.
            command = ["bash", source, path]
            if source.endswith(".c"):
                command = ["tcc", "-pthread", "-o", path, source]
            execute.run_checked(command, f"could not build {source}")
    versions = dict(wheel.split("==") for wheel in recipe["wheels"])
    stack = Manifest(
        name=NAME,
        pins=compute_pins(recipe),
        programs=tuple(
            _describe_program(name, entry, places, versions) for name, entry in recipe["programs"].items()
        ),
    )
    sbom.write(stack, target)
    stack.write(target)
    return stack


def load_current(stacks: Path, recipe: dict[str, Any]) -> Manifest | None:
    """Return the manifest if the stack is set up by this recipe and no file has changed."""
    try:
        stack = manifest.load(stacks / NAME / manifest.FILE)
    except InfrastructureError:
        return None
    return stack if stack.pins == compute_pins(recipe) and not list(stack.find_changes()) else None


def _describe_program(
    name: str, entry: dict[str, Any], places: dict[str, str], versions: dict[str, str]
) -> Program:
    path, *libraries = (Path(text.format(**places)) for text in (entry["path"], *entry.get("libraries", ())))
    for file in (path, *libraries):
        if not file.is_file():
            source = next(entry[key] for key in ("package", "unpacked", "wheel", "source") if key in entry)
            raise InfrastructureError(f"{file} is missing: the stack's {name} comes from {source!r}")
    version, origin, purl = _find_origin(entry, places, versions)
    mpi = entry.get("mpi")
    data = {key: Path(text.format(**places)) for key, text in entry.get("data", {}).items()}
    return Program.from_files(
        path,
        libraries=libraries,
        data=data,
        name=name,
        version=version,
        origin=origin,
        features=tuple(entry["features"]),
        mpi=f"{mpi} {versions[mpi]}" if mpi in versions else mpi,
        launch=tuple(entry.get("launch", ())),
        env={key: str(text).format(**places) for key, text in entry.get("env", {}).items()},
        purl=purl,
    )


def _find_origin(
    entry: dict[str, Any], places: dict[str, str], versions: dict[str, str]
) -> tuple[str, str, str | None]:
    """Return a program's version, where it comes from, and the name of its package in a bill of materials."""
    if "source" in entry:
        return entry["version"], f"compiled from {entry['source']}", None
    if wheel := entry.get("wheel"):
        return versions[wheel], f"PyPI wheel {wheel}", sbom.purl("pypi", wheel, versions[wheel])
    if package := entry.get("unpacked"):
        file = Path(places["unpacked"]) / package / VERSION_FILE
        version: str | None = file.read_text(encoding="utf-8").strip()
    else:
        package = entry["package"]
        version = _read_version(package)
    if version is None:
        setup = manifest.name_setup(NAME)
        raise InfrastructureError(f"the package {package!r} is not installed; {setup} installs it")
    purl = sbom.purl(f"deb/{platform.freedesktop_os_release()['ID']}", package, version)
    return version, f"distribution package {package}", purl


def _read_version(package: str) -> str | None:
    """Return the version of an installed package of the distribution."""
    command = ["dpkg-query", "-W", "-f=${db:Status-Status} ${Version}", package]
    status, _, version = execute.run(command).stdout.partition(" ")
    return version if status == "installed" else None
