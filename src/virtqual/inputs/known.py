"""The inputs that virtqual can download: reviewed data, ``references/inputs/*.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from virtqual import paths
from virtqual.errors import UsageError
from virtqual.files.datafile import DataError, DataModel, Problem, find_yaml_files, parse
from virtqual.files.wording import suggest

Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

SCHEMA = "virtqual-inputs/1"
#: Where ``virtqual inputs fetch --record`` writes checksums that nobody knew before.
RECORDED = "recorded.yaml"


class Input(DataModel):
    """A file to download.

    Attributes
    ----------
    name
        The name that checks and people use.
    description
        One line.
    url
        ``https:``, ``http:`` or ``file:``; an archive that Python's ``tarfile`` reads is unpacked.
    sha256
        Checksum of the file as it is downloaded; None where nobody has recorded it.
    checksum_from
        Source of the checksum.
    """

    name: Name
    description: Text
    url: Annotated[str, Field(pattern=r"^(https?|file)://")]
    sha256: Sha256 | None = None
    checksum_from: Text | None = None


class Record(DataModel):
    """The checksum of a first download, recorded because somebody asked for it."""

    name: Name
    url: Text
    sha256: Sha256
    recorded: Text


class InputsFile(DataModel):
    """One file of ``references/inputs/``."""

    schema_: Annotated[Literal["virtqual-inputs/1"], Field(alias="schema")]
    inputs: Annotated[list[Input], Field(default_factory=list)]
    recorded: Annotated[list[Record], Field(default_factory=list)]


def load(directory: Path) -> dict[str, Input]:
    """Read the inputs of a directory; a recorded checksum counts where none was known.

    Raises
    ------
    DataError
        Naming file, line and key: what is no input, a name that stands twice, a record of an input that there
        is not, of another address, or beside another checksum.
    """
    problems: list[Problem] = []
    found: dict[str, Input] = {}
    records = []
    for path in find_yaml_files(directory) if directory.is_dir() else ():
        try:
            document = parse(path)
            content = document.read(InputsFile)
        except DataError as error:
            problems += error.problems
            continue
        for index, entry in enumerate(content.inputs):
            if entry.name in found:
                problems.append(document.problem(("inputs", index, "name"), f"{entry.name!r} stands twice."))
            found[entry.name] = entry
        records += [(document, index, record) for index, record in enumerate(content.recorded)]
    for document, index, record in records:
        named_input = found.get(record.name)
        if named_input is None:
            message = f"no input {record.name!r}: {suggest(record.name, found)}"
        elif named_input.url != record.url:
            message = f"recorded from another address than {named_input.url}: remove it, and fetch again."
        elif named_input.sha256 not in (None, record.sha256):
            message = f"{named_input.name!r} is known with another checksum: remove one of them."
        else:
            update = {"sha256": record.sha256, "checksum_from": f"recorded here on {record.recorded}"}
            found[named_input.name] = named_input.model_copy(update=update)
            continue
        problems.append(document.problem(("recorded", index), message))
    if problems:
        raise DataError(problems)
    return found


@cache
def inputs() -> Mapping[str, Input]:
    """Return what `load` finds beside the other reviewed data, read once a process."""
    return load(paths.references() / "inputs")


def named(name: str) -> Input:
    """Return an input by name.

    Raises
    ------
    UsageError
        No input has this name.
    """
    if name not in inputs():
        raise UsageError(f"no input {name!r}: {suggest(name, inputs())}")
    return inputs()[name]
