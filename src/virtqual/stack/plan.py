"""The plan of a build: packages, sources and tools that it takes, before anything is done."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from virtqual.errors import UsageError
from virtqual.files import execute
from virtqual.stack import lock, manifest, pins
from virtqual.stack.lock import Lock, Package

SITE = "config/site/packages.yaml"
_NAME_AND_VERSION = re.compile(r"([\w-]+)@=?([\w.-]+)")


@dataclass(frozen=True)
class ByHand:
    """A source that only a person may download.

    Attributes
    ----------
    package
        The package of ``spack.yaml`` that needs it.
    file, sha256
        Name and checksum of the file.
    source
        Where a person gets it.
    place
        Where it is to be put.
    supplied
        Whether it is there, with the right checksum.
    """

    package: str
    file: str
    sha256: str
    source: str
    place: Path
    supplied: bool

    def __str__(self) -> str:
        return (
            f"{self.package} needs {self.file}: get it from {self.source}, "
            f"put it at {self.place}, sha256 {self.sha256}"
        )


class Tried(NamedTuple):
    """The cost of building a package where it was tried: minutes on two cores, and MiB installed."""

    minutes: float
    size: float


@dataclass(frozen=True)
class BuildPlan:
    """The steps of a build, and the things that it lacks.

    Attributes
    ----------
    roots
        The programs' packages.
    build
        Packages still to be built (or only installed from a build cache), leaves first.
    installed
        How many of what is needed are there already.
    machine
        Packages that are taken from the machine.
    missing
        Sentences: what the machine lacks for it.
    by_hand
        Sources that a person must supply.
    free
        Free bytes where packages are installed.
    sizes
        Bytes of sources in a mirror, by package name.
    tried
        Minutes (on two cores) and MiB of the packages to build that were built somewhere before, by name.
    """

    roots: tuple[Package, ...]
    build: tuple[Package, ...]
    installed: int
    machine: tuple[Package, ...]
    missing: tuple[str, ...]
    by_hand: tuple[ByHand, ...]
    free: int
    sizes: dict[str, int]
    tried: dict[str, Tried]

    @property
    def lacking(self) -> list[str]:
        """Everything without which the build cannot begin."""
        return [*self.missing, *(str(entry) for entry in self.by_hand if not entry.supplied)]


def make(
    locked: Lock,
    names: Iterable[str],
    store: Path,
    mirror: Path | None = None,
    *,
    only_install: bool = False,
) -> BuildPlan:
    """Compare a lock with what is installed and with what the machine has.

    Parameters
    ----------
    locked
        The lock.
    names
        Package names of the set.
    store
        Where packages are installed.
    mirror
        A directory of ``virtqual stack mirror``, whose sources then have sizes.
    only_install
        Everything comes from a build cache: neither compilers nor sources are needed.
    """
    roots = locked.of(names)
    there = lock.installed(store)
    every = locked.closure(roots, run=only_install)
    build = [p for p in locked.closure(roots, without=there, run=only_install) if p.external is None]
    took = {} if only_install else pins.programs()["tried"]
    machine = [p for p in every if p.external is not None]
    return BuildPlan(
        roots=tuple(roots),
        build=tuple(build),
        installed=sum(p.hash in there for p in every),
        machine=tuple(machine),
        missing=tuple(_missing(build, [] if only_install else machine)),
        by_hand=()
        if only_install
        else tuple(_by_hand([p.name for p in build], store.parent / "by-hand", mirror)),
        free=shutil.disk_usage(_existing(store)).free,
        sizes=_sizes(every, mirror),
        tried={p.name: Tried(**took[p.name]) for p in build if p.name in took},
    )


def outline(
    names: Iterable[str],
    store: Path,
    mirror: Path | None = None,
    site: Path | None = None,
    *,
    only_install: bool = False,
) -> BuildPlan:
    """Return what can be said before there is a lock: which commands and sources are lacking.

    Parameters are those of :func:`make`, and the directory of the site's configuration, whose own packages
    have to be there; no packages are in what is returned.
    """
    wanted = list(names)
    return BuildPlan(
        roots=(),
        build=(),
        installed=0,
        machine=(),
        missing=(*_commands(wanted), *(() if only_install else _lacking(_of_site(site)))),
        by_hand=() if only_install else tuple(_by_hand(wanted, store.parent / "by-hand", mirror)),
        free=shutil.disk_usage(_existing(store)).free,
        sizes={},
        tried={},
    )


def _commands(build: Iterable[str]) -> Iterator[str]:
    known = pins.programs()
    for who, wanted in {"Spack": known["commands"], **known["own-commands"]}.items():
        lacking = {name: brings for name, brings in wanted.items() if shutil.which(name) is None}
        if lacking and (who == "Spack" or who in build):
            yield f"{who} needs {', '.join(lacking)} (Debian: apt-get install {' '.join(lacking.values())})"


def _missing(build: list[Package], machine: list[Package]) -> Iterator[str]:
    if not build:
        return
    yield from _commands([package.name for package in build])
    yield from _lacking(machine)


def _of_site(site: Path | None) -> Iterator[Package]:
    """Yield what a site says that its machines have, as far as it can be read without Spack."""
    file = (site or Path()) / "packages.yaml"
    if site is None or not file.is_file():
        return
    try:
        stated = YAML(typ="safe").load(file.read_text(encoding="utf-8"))["packages"]
        for entry in stated.values():
            for external in entry.get("externals", ()):
                if (spec := _NAME_AND_VERSION.match(external["spec"])) and "prefix" in external:
                    yield Package(spec[1], spec[2], "", Path(external["prefix"]), {"external": external})
    except (YAMLError, AttributeError, KeyError, TypeError) as error:
        raise UsageError(
            f"{file}: not a Spack configuration of packages (docs/stack.md): {type(error).__name__} {error}"
        ) from error


def _lacking(machine: Iterable[Package]) -> Iterator[str]:
    """Yield what is not there, or of another version, of packages that are taken from the machine."""
    for package in machine:
        wanted, prefix = pins.programs()["externals"].get(package.name, {}), package.external or Path()
        compilers = package.raw["external"].get("extra_attributes") or {}
        for language, path in compilers.get("compilers", {}).items():
            if not Path(path).is_file():
                yield (
                    f"the {language} compiler of {package.name}@{package.version} is not at {path}: install "
                    f"it (Debian: apt-get install gcc g++ gfortran), or name yours in {SITE}"
                )
            elif option := wanted.get("compilers-say"):
                yield from _of_another_version(package, [path, option])
        if (file := wanted.get("file")) and not (prefix / file).is_file():
            yield (
                f"{package.name} is taken from this machine, but {prefix / file} is not there: "
                f"install it (Debian: apt-get install {wanted['debian']}), or say in {SITE} where it is"
            )
        elif not prefix.is_dir():
            yield f"{package.name} is taken from {prefix}, which is not there: say in {SITE} where it is"
        elif says := wanted.get("says"):
            command, *options = says.split()
            yield from _of_another_version(package, [str(prefix / command), *options])


def _of_another_version(package: Package, command: list[str]) -> Iterator[str]:
    """Yield a sentence where a program of the machine, if it is there, says another version than the lock."""
    if not Path(command[0]).is_file():
        return
    done = execute.run(command, seconds=60)
    said = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    if not said or not manifest.of_one_version(said[0], package.version):
        told = f"that it is {said[0]}" if said else "no version"
        locked = ("the lock", ", and lock it anew (`virtqual stack lock`)")
        whose, anew = locked if package.hash else ("the configuration", "")
        yield (
            f"{' '.join(command)} says {told}, {whose} has {package.name}@{package.version}: state yours in "
            f"{SITE}{anew}"
        )


def _by_hand(build: Iterable[str], place: Path, mirror: Path | None) -> Iterator[ByHand]:
    for package in build:
        if entry := pins.programs()["by-hand"].get(package):
            sha256 = entry["sha256"]
            # A mirror may have been made where it was supplied.
            cache = (mirror or place) / f"sources/_source-cache/archive/{sha256[:2]}"
            path = next(cache.glob(f"{sha256}*"), place / entry["file"])
            there = path.is_file() and manifest.sha256(path) == sha256
            yield ByHand(package, entry["file"], sha256, entry["from"], path, there)


def _sizes(packages: Iterable[Package], mirror: Path | None) -> dict[str, int]:
    if mirror is None:
        return {}
    return {
        package.name: sum(file.stat().st_size for file in files)
        for package in packages
        if (files := list((mirror / "sources" / package.name).glob("*")))
    }


def _existing(path: Path) -> Path:
    return next(parent for parent in (path, *path.parents) if parent.exists())
