"""The manifest of a stack: which program, of which version, from where, with which checksum.

ReFrame's environments are made from manifests, so a check asks for a feature (``+lammps``) and never
for a package manager.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from virtqual.errors import InfrastructureError, UsageError
from virtqual.files import records

_FILE = "manifest.json"
NONE = "no stack is set up: ci/setup sets up the registry stack, ci/build-stack Spack's"


class Program(BaseModel):
    """One program that checks can run.

    Attributes
    ----------
    features
        Names that a check asks for, e.g. ``lammps`` or ``mpi-latency``.
    path
        The executable, or a library that is preloaded, at the same path on every node.
    sha256
        Checksum of the executable.
    libraries
        Checksums of the shared libraries that decide its speed (path to sha256).
    mpi
        The MPI library it is linked with (name and version), or None.
    launch
        Options of ``srun`` that this MPI library needs.
    env
        Environment variables that a run of it needs, the same on both partitions.
    data
        Other programs, input files and directories by name.
    sums
        Checksums of ``data``, by the same names.
    purl
        The package URL of the package that it comes from.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    version: str
    origin: str
    path: Path
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    libraries: dict[str, str] = {}
    features: tuple[str, ...]
    mpi: str | None = None
    launch: tuple[str, ...] = ()
    env: dict[str, str] = {}
    data: dict[str, Path] = {}
    sums: dict[str, str] = {}
    purl: str | None = None

    def changed(self) -> Iterator[str]:
        """Yield one sentence a file or directory that is not what its checksum says."""
        for name, path in self.data.items():
            if name not in self.sums:
                yield f"{self.name}: {path} has no checksum: an older virtqual set it up"
                return
        yield from self.changed_below(Path("/"))

    def changed_below(self, directory: Path) -> Iterator[str]:
        """Yield the same of what lies below a directory and has a checksum."""
        known = {self.path: self.sha256, **{Path(path): sum_ for path, sum_ in self.libraries.items()}}
        known |= {self.data[name]: sum_ for name, sum_ in self.sums.items()}
        for path, sum_ in known.items():
            if not path.is_relative_to(directory):
                continue
            if not path.exists():
                yield f"{self.name}: {path} is gone"
            elif checksum(path) != sum_:
                yield f"{self.name}: {path} has changed since the stack was set up"


class Manifest(BaseModel):
    """A whole stack, as ``manifest.json`` in its directory says it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_: Literal["virtqual-stack/1"] = Field(alias="schema", default="virtqual-stack/1")
    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    pins: str
    programs: tuple[Program, ...]

    @property
    def features(self) -> list[str]:
        """Everything the stack can do, sorted."""
        return sorted({f for p in self.programs for f in p.features})

    @property
    def hash(self) -> str:
        """Identity of the stack: equal exactly when every program, library and data file is the same."""
        parts = sorted(
            (p.name, p.version, p.sha256, sorted(p.libraries.values()), sorted(p.sums.items()))
            for p in self.programs
        )
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def changed(self) -> Iterator[str]:
        """Yield one sentence a file or directory whose checksum is not what the manifest says."""
        for program in self.programs:
            yield from program.changed()

    def write(self, directory: Path) -> Path:
        """Write ``manifest.json`` into a directory, whole or not at all."""
        return records.write_whole(self, directory / _FILE, indent=2)


def load(path: Path) -> Manifest:
    """Read a manifest.

    Raises
    ------
    InfrastructureError
        The file is missing or is not a manifest of this version.
    """
    try:
        return records.load(Manifest, path, "stack manifest")
    except UsageError as error:
        again = set_up_by(path.parent.name)
        raise InfrastructureError(f"{error}; {again} sets the stack up again") from error


def earlier(directory: Path) -> Manifest | None:
    """Return the manifest of a stack's directory; None if there is none, or one that cannot be read any more.

    Commands that set a stack up call this: the stack of another virtqual must not stand in their way.
    """
    try:
        return load(directory / _FILE)
    except InfrastructureError:
        return None


def installed(stacks: Path) -> list[Manifest]:
    """Return every stack that is set up below a directory, in the order of :func:`names`."""
    return [load(stacks / name / _FILE) for name in names(stacks)]


def names(stacks: Path) -> list[str]:
    """Return the names of the stacks that are set up; ``spack`` first, because it is the exact stack."""
    found = (path.parent.name for path in stacks.glob(f"*/{_FILE}"))
    return sorted(found, key=lambda name: (name != "spack", name))


def set_up_by(name: str) -> str:
    """Return what sets up the stack of a name, for people."""
    known = {"registry": "ci/setup --stack registry", "spack": "ci/build-stack"}
    return known.get(name, "what registered it (docs/licensed-application.md)")


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and contents of all files below a directory."""
    if not path.is_dir():
        return sha256(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    listed = "".join(f"{sha256(file)}  {file.relative_to(path)}\n" for file in files)
    return hashlib.sha256(listed.encode()).hexdigest()


def checksums(data: Mapping[str, Path]) -> dict[str, str]:
    """Return the checksums of files and directories by the same names."""
    return {name: checksum(path) for name, path in data.items()}


def of_one_version(one: str, other: str) -> bool:
    """Return whether two versions agree, in as many of their leading numbers as both have.

    Examples
    --------
    >>> of_one_version("7.4", "7.4.2-1"), of_one_version("7.4", "7.5.2"), of_one_version("", "7.5")
    (True, False, False)
    """
    first, second = (re.sub(r"[^0-9.].*", "", text).split(".") for text in (one, other))
    return all(a == b for a, b in zip(first, second, strict=False))
