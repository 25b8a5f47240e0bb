"""The Spack environment that a stack is built in: the project's files with a site's choices."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import distro
from pydantic import BaseModel, ConfigDict
from ruamel.yaml import YAML

from virtqual.errors import UsageError
from virtqual.files import records
from virtqual.stack import lock, pins

SITE = "VIRTQUAL_SPACK_SITE"
# Spack's `include::`: only what is included and Spack's defaults count, and nothing of an `etc/spack` that a
# site has filled with its packages, mirrors and upstreams.
INCLUDE = "include:"
Side = Literal["native", "virtual"]


@dataclass(frozen=True)
class Choices:
    """The choices of a site.

    Attributes
    ----------
    mpi
        Name of the file in ``config/common/mpi`` that counts; empty for the one that ``spack.yaml`` names.
    site
        Directory with the site's own Spack configuration, or None.
    side
        ``native`` where the stack is built, ``virtual`` where it is only installed from a build cache.
    """

    mpi: str = ""
    site: Path | None = None
    side: Side = "native"


@dataclass(frozen=True)
class Environment:
    """Where an environment and what it builds live.

    Attributes
    ----------
    directory
        Directory of ``spack.yaml``, ``spack.lock`` and ``config/``.  Each content has its own, so that a new
        configuration never spoils the last good one.
    store
        Where packages are installed, all by hash and so never overwritten.
    digest
        Identity of everything that decides the lock.
    plain
        Whether it is exactly what the project ships, so that the shipped lock may be its lock.
    names
        The packages of ``spack.yaml`` that it is restricted to; empty for all.
    """

    directory: Path
    store: Path
    digest: str
    plain: bool
    names: tuple[str, ...] = ()

    def part(self, names: tuple[str, ...]) -> Environment:
        """Return an environment of its own for some packages: what another needs cannot be in their way."""
        digest = f"{self.digest}-{hashlib.sha256(' '.join(sorted(names)).encode()).hexdigest()[:6]}"
        return replace(
            self,
            directory=self.directory.with_name(f"environment-{digest}"),
            digest=digest,
            plain=False,
            names=names,
        )

    @property
    def lock(self) -> Path:
        """The lock file."""
        return self.directory / "spack.lock"


def site_directory(root: Path, given: Path | None) -> Path | None:
    """Return the site's configuration: the one given, ``VIRTQUAL_SPACK_SITE``, or ``config/site``.

    Raises
    ------
    UsageError
        One was named that is not there.
    """
    named = given or (Path(os.environ[SITE]) if os.environ.get(SITE) else None)
    if named is not None and not named.is_dir():
        raise UsageError(
            f"{named}: no such directory; a site's Spack configuration is a directory (docs/stack.md)"
        )
    return named or ((root / "config/site") if (root / "config/site").is_dir() else None)


def prepare(root: Path, state: Path, choices: Choices) -> Environment:
    """Work out an environment; nothing is written.

    Parameters
    ----------
    root
        The checkout with ``spack.yaml`` and ``config/``.
    state
        The stack's directory.

    Raises
    ------
    UsageError
        An MPI library was chosen that has no file.
    """
    known = sorted(path.stem for path in (root / "config/common/mpi").glob("*.yaml"))
    if choices.mpi and choices.mpi not in known:
        raise UsageError(
            f"no MPI library {choices.mpi!r} in config/common/mpi (there are: {', '.join(known)})"
        )
    digest = hashlib.sha256(choices.mpi.encode())
    # Settings of a side alone change no hash, and so have no part in the identity.
    places = [root / "spack.yaml", root / "config/common", root / "config/repo"]
    for place in [*places, *([choices.site] if choices.site else [])]:
        for file in sorted(place.rglob("*") if place.is_dir() else [place]):
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(place)}\0".encode() + _content(file) + b"\0")
    name = digest.hexdigest()[:12]
    return Environment(
        directory=state / f"environment-{name}",
        store=state / "store",
        digest=name,
        plain=choices.site is None and not choices.mpi,
    )


def _content(file: Path) -> bytes:
    """Return what a file says; a comment in a configuration decides nothing."""
    if file.suffix != ".yaml":
        return file.read_bytes()
    return json.dumps(pins.read(file), sort_keys=True, default=str).encode()


def write(
    made: Environment,
    root: Path,
    choices: Choices,
    recipes: Path,
    mirrors: dict[str, dict[str, Any]],
) -> None:
    """Write an environment's directory.

    Parameters
    ----------
    made
        The environment that :func:`prepare` returned.
    root, choices
        The checkout and the choices that :func:`prepare` was given.
    recipes
        Upstream's recipes at the pinned commit.
    mirrors
        Where sources and binaries are taken from, as Spack's ``mirrors.yaml`` has them.

    Raises
    ------
    UsageError
        ``spack.yaml`` lets other configuration than the project's count.
    """
    made.directory.mkdir(parents=True, exist_ok=True)
    shutil.copytree(
        root / "config",
        made.directory / "config",
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("__pycache__", "site*"),
    )
    if choices.site:
        shutil.copytree(choices.site, made.directory / "config/site", dirs_exist_ok=True)
    yaml = YAML()
    yaml.width = 1000
    content = yaml.load((root / "spack.yaml").read_text(encoding="utf-8"))
    said = content["spack"]
    said[INCLUDE] = _included(said, root / "spack.yaml", choices)
    if made.names:
        _restrict(said, made.names)
    said["repos"]["builtin"] = str(recipes)
    said["view"]["default"]["root"] = str(made.directory / "view")
    said["config"] = {
        "install_tree": {"root": str(made.store), "projections": {"all": "{name}-{version}-{hash}"}},
        "source_cache": str(made.store.parent / "sources"),
    }
    if mirrors:
        said["mirrors"] = mirrors
    with (made.directory / "spack.yaml").open("w", encoding="utf-8") as file:
        yaml.dump(content, file)


def _included(said: Any, file: Path, choices: Choices) -> list[str]:
    """Return which configuration counts; earlier entries win."""
    if INCLUDE not in said:
        raise UsageError(
            f"{file}: the key include:: is missing; with one colon the machine's own Spack configuration "
            "would count too"
        )
    # spack.yaml's entry for a site is for Spack alone: here the site is known.
    common = [entry for entry in said[INCLUDE] if isinstance(entry, str)]
    if choices.mpi:
        common = [_chosen(entry, choices.mpi) for entry in common]
    site = ["config/site"] if choices.site else []
    return [*site, f"config/{choices.side}", *common]


def _restrict(said: Any, names: tuple[str, ...]) -> None:
    """Leave only the specs of some packages."""
    specs = [
        spec
        for definition in said["definitions"]
        for entries in definition.values()
        for spec in entries
        if pins.name_of(spec) in names
    ]
    del said["definitions"]
    said["specs"] = specs


def _chosen(entry: str, mpi: str) -> str:
    path = Path(entry)
    return str(path.with_name(f"{mpi}.yaml")) if path.parent.name == "mpi" else entry


class Shipped(BaseModel):
    """What `config/lock.json` says of the project's own lock, and Spack, which may write it again, would not.

    Attributes
    ----------
    inputs
        Identity of the configuration that it was worked out from.
    packages
        Its `Lock.digest`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    inputs: str
    packages: str


def shipped(root: Path) -> Shipped:
    """Read what is said of the project's own lock.

    Raises
    ------
    virtqual.errors.UsageError
        Nobody says it, or not as it has to be said.
    """
    return records.load(Shipped, root / "config/lock.json", "word on spack.lock (git has it)")


def shipped_lock(root: Path, made: Environment) -> Path | None:
    """Return the project's own lock if it is for this environment and this machine.

    Raises
    ------
    UsageError
        It has other packages than the project ships, so that nobody knows what it was worked out from.
    """
    file = root / "spack.lock"
    if not (made.plain and file.is_file()):
        return None
    locked, said = lock.load(file), shipped(root)
    if locked.digest != said.packages:
        raise UsageError(
            f"{file}: has other packages than config/lock.json says, as after `spack -e . concretize`, and "
            "nobody knows from which configuration: `git checkout spack.lock` brings ours back; to make "
            "another ours, remove it and run `virtqual stack lock`"
        )
    fits = said.inputs == made.digest and locked.system.partition("-")[0] == host_system()
    return file if fits else None


def ship(made: Environment, root: Path) -> Path:
    """Make an environment's lock the project's own, with the identity of all that decided it beside it."""
    file = root / "spack.lock"
    lock.copy(made.lock, file, None)
    said = Shipped(inputs=made.digest, packages=lock.load(file).digest)
    (root / "config/lock.json").write_text(said.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return file


def host_system() -> str:
    """Return this machine's distribution as Spack names it, e.g. ``debian12`` or ``sles15``.

    Spack asks the same library, and counts all but Ubuntu by the first number.
    """
    name, version = distro.id(), re.split(r"[^\w-]", distro.version())
    number = ".".join(version[:2]) if "ubuntu" in name else version[0]
    return f"{name}{number}".replace("-", "_")
