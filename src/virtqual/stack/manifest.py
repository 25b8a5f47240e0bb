"""The manifest of a stack: its programs with version, origin, checksums and features.

ReFrame's environments are made from manifests: a check asks for a feature (``+lammps``), not for a package.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field
from ruamel.yaml import YAML

from virtqual.errors import InfrastructureError, UsageError
from virtqual.files import execute, records
from virtqual.files.reading import compute_sha256

FILE = "manifest.json"
NO_STACK_MESSAGE = (
    "no stack is set up: ci/build-stack builds one, `virtqual stack register --modules FILE` takes installed "
    "programs, ci/setup --no-cluster takes Debian 12's (docs/stack.md)"
)


class ProcessorTarget(BaseModel, extra="forbid", frozen=True):
    """The processors that a program was compiled for: Spack's name, and instructions that they must have."""

    name: str
    features: tuple[str, ...]  # the kernel's names


class Program(BaseModel, extra="forbid", frozen=True):
    """A program that checks can run: an executable, or a library that is preloaded.

    It is at the same path on every node.  Checks ask for its features, such as ``lammps`` or ``mpi-latency``.
    """

    name: str
    version: str
    origin: str  # the package or person that installed it, for people
    path: Path
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    libraries: dict[str, str] = {}  # checksums by path, also of libraries of its other programs
    features: tuple[str, ...]
    mpi: str | None = None  # name and version of its MPI library
    launch: tuple[str, ...] = ()  # options of srun that its MPI library needs
    env: dict[str, str] = {}  # variables of its runs, equal on both partitions
    modules: tuple[str, ...] = ()  # environment modules that its runs load, in this order
    data: dict[str, Path] = {}  # other programs, input files and directories by name
    sums: dict[str, str] = {}  # checksums of `data` by the same names
    target: ProcessorTarget | None = None  # None if it is not known
    purl: str | None = None  # the package URL of its package

    @classmethod
    def from_files(
        cls,
        path: Path,
        *,
        libraries: Iterable[Path] = (),
        data: Mapping[str, Path] = {},
        **fields: Any,
    ) -> Program:
        """Return a program with the checksums of its files."""
        return cls(
            path=path,
            sha256=compute_sha256(path),
            libraries={str(library): compute_sha256(library) for library in dict.fromkeys(libraries)},
            data=dict(data),
            sums={name: checksum(file) for name, file in data.items()},
            **fields,
        )

    @property
    def checksums_by_path(self) -> dict[Path, str]:
        """The checksums of the program, its libraries and its data."""
        checksums = {self.path: self.sha256}
        checksums |= {Path(path): checksum for path, checksum in self.libraries.items()}
        return checksums | {self.data[name]: checksum for name, checksum in self.sums.items()}


class Manifest(BaseModel, extra="forbid", frozen=True):
    """A stack, as in its ``manifest.json``."""

    schema_: Literal["virtqual-stack/1"] = Field(alias="schema", default="virtqual-stack/1")
    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    pins: str | None = None  # identity of the recipe by which the registry stack was set up
    programs: tuple[Program, ...]

    @property
    def features(self) -> list[str]:
        """The features of all programs, sorted."""
        return sorted({feature for program in self.programs for feature in program.features})

    @property
    def targets(self) -> tuple[ProcessorTarget, ...]:
        """The known targets of its programs, each once."""
        return tuple(dict.fromkeys(program.target for program in self.programs if program.target))

    @property
    def hash(self) -> str:
        """Identity of the stack: equal if programs, libraries and data are, and are started alike.

        It is the same at another place: variables that name files are left out.
        """
        parts = sorted(
            (
                p.name,
                p.version,
                p.sha256,
                sorted(p.libraries.values()),
                sorted(p.sums.items()),
                p.launch,
                sorted(item for item in p.env.items() if "/" not in item[1]),
            )
            for p in self.programs
        )
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def find_changes(self) -> Iterator[str]:
        """Yield a sentence for each file or directory whose checksum is another one or is not known."""
        for program in self.programs:
            for name in program.data.keys() - program.sums.keys():
                yield f"{program.name}: {program.data[name]} has no checksum in the manifest"
            for path, recorded in program.checksums_by_path.items():
                if not path.exists():
                    yield f"{program.name}: {path} is gone"
                elif checksum(path) != recorded:
                    yield f"{program.name}: {path} has changed since the stack was set up"

    def write(self, directory: Path) -> Path:
        """Write ``manifest.json`` into a directory, whole or not at all."""
        return records.write_record(self, directory / FILE, indent=2)


def load(path: Path) -> Manifest:
    """Read a manifest; raise InfrastructureError if it is missing or not one of this version."""
    try:
        return records.load(Manifest, path, "stack manifest")
    except UsageError as error:
        setup = name_setup(path.parent.name)
        raise InfrastructureError(f"{error}; {setup} sets the stack up again") from error


@cache
def load_recipe(file: str) -> dict[str, Any]:
    """Return a file of this package that says which programs a stack has."""
    text = resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
    recipe: dict[str, Any] = YAML(typ="safe").load(text)
    return recipe


def load_all(stacks: Path) -> list[Manifest]:
    """Return the manifests below a directory, in the order of `find_stacks`."""
    manifests = []
    for manifest in find_stacks(stacks).values():
        if isinstance(manifest, InfrastructureError):
            raise manifest
        manifests.append(manifest)
    return manifests


def find_stacks(stacks: Path) -> dict[str, Manifest | InfrastructureError]:
    """Return by name the stacks that are set up, or why a manifest cannot be read; the default is first.

    It is the stack with the most features, for checks without a program are not run; of equal ones
    it is ``spack``.  A manifest that cannot be read has none.
    """
    manifests: dict[str, Manifest | InfrastructureError] = {}
    for path in stacks.glob(f"*/{FILE}"):
        try:
            manifests[path.parent.name] = load(path)
        except InfrastructureError as error:
            manifests[path.parent.name] = error

    def rank(item: tuple[str, Manifest | InfrastructureError]) -> tuple[int, bool, str]:
        name, manifest = item
        count = len(manifest.features) if isinstance(manifest, Manifest) else 0
        return -count, name != "spack", name

    return dict(sorted(manifests.items(), key=rank))


def name_setup(stack: str, *, again: bool = False) -> str:
    """Return the command that sets up a stack, for people; `again` if its files have changed since."""
    if again and stack == "spack":
        return "`virtqual stack register` (ci/build-stack, if files of Spack itself have changed)"
    commands = {"registry": "ci/setup --no-cluster --stack registry", "spack": "ci/build-stack"}
    return commands.get(stack, "`virtqual stack register --modules FILE`")


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and contents of all files below a directory."""
    if not path.is_dir():
        return compute_sha256(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    lines = "".join(f"{compute_sha256(file)}  {file.relative_to(path)}\n" for file in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def find_libraries(files: Iterable[Path], env: Mapping[str, str]) -> list[Path]:
    """Return the real paths of shared libraries of the programs among some files.

    Raises
    ------
    InfrastructureError
        The linker does not find a library.
    """
    libraries = []
    for program in (file for file in files if file.is_file() and os.access(file, os.X_OK)):
        for line in execute.run(["ldd", program], env=env).stdout.splitlines():
            if "not found" in line:
                raise InfrastructureError(f"{program}: the library {line.split()[0]} is not found (ldd)")
            libraries += [Path(word).resolve() for word in line.split() if word.startswith("/")]
    return list(dict.fromkeys(libraries))


def is_same_version(first: str, second: str) -> bool:
    """Return whether two versions agree in the leading numbers that both have.

    Examples
    --------
    >>> is_same_version("7.4", "7.4.2-1"), is_same_version("7.4", "7.5.2"), is_same_version("", "7.5")
    (True, False, False)
    """
    numbers = [re.sub(r"[^0-9.].*", "", version).split(".") for version in (first, second)]
    return all(a == b for a, b in zip(*numbers, strict=False))
