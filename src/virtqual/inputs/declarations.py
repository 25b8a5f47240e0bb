"""The inputs that virtqual can download: reviewed data, ``inputs/*.yaml`` of project and site."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from virtqual import paths
from virtqual.errors import UsageError
from virtqual.files.datafile import DataModel, PlacedModel, Text
from virtqual.files.datareader import DataReader
from virtqual.files.wording import suggest

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Input(PlacedModel):
    """A file to download, which may be a tar archive; its checksum and the checksum's source."""

    name: Name
    description: Text
    url: Annotated[str, Field(pattern=r"^(https?|file)://")]
    sha256: Sha256 | None = None
    checksum_from: Text = "as declared"
    #: Largest size of the download.
    max_gib: Annotated[float, Field(gt=0, le=1024)] = 8


class InputsFile(DataModel):
    """A file of ``references/inputs/``."""

    schema_: Annotated[Literal["virtqual-inputs/1"], Field(alias="schema")]
    inputs: Annotated[list[Input], Field(default_factory=list)]


def load(*directories: Path) -> dict[str, Input]:
    """Read the inputs of directories by name; an input replaces one of its name of an earlier directory.

    Raises
    ------
    DataError
        A file is wrong, or a name is used twice; the message has file, line and key.
    """
    reader = DataReader()
    inputs: dict[str, Input] = {}
    for directory in directories:
        reader.places.clear()
        for file in reader.read(reader.find_files(directory, optional=True), InputsFile):
            for index, entry in enumerate(file.content.inputs):
                key = ("inputs", index)
                file.is_first((*key, "name"), entry.name, f"{entry.name!r} stands already at")
                inputs[entry.name] = entry.read_from(str(file.document.path), file.document.line(key))
    reader.raise_problems()
    return inputs


@cache
def load_all() -> Mapping[str, Input]:
    """Return the inputs of the reviewed data by name, read once per process."""
    return load(paths.references() / "inputs", paths.site_references() / "inputs")


def find_input(name: str) -> Input:
    """Return an input by name; UsageError if no input has it."""
    if name not in load_all():
        raise UsageError(f"no input {name!r}: {suggest(name, load_all())}")
    return load_all()[name]
