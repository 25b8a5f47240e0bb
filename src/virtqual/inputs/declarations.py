"""The inputs that virtqual can download: reviewed data, ``inputs/*.yaml`` of project and site."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from virtqual import paths
from virtqual.errors import UsageError
from virtqual.files.datafile import DataError, DataModel, PlacedModel, Problem, find_yaml_files, parse
from virtqual.files.wording import suggest

Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

SCHEMA = "virtqual-inputs/1"


class Input(PlacedModel):
    """A file to download, which may be a tar archive; its checksum and the checksum's source."""

    name: Name
    description: Text
    url: Annotated[str, Field(pattern=r"^(https?|file)://")]
    sha256: Sha256 | None = None
    checksum_from: Text = "as declared"


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
    problems: list[Problem] = []
    inputs: dict[str, Input] = {}
    directories_by_name: dict[str, Path] = {}
    files = (file for path in directories if path.is_dir() for file in find_yaml_files(path))
    for path in files:
        try:
            document = parse(path)
            content = document.read(InputsFile)
        except DataError as error:
            problems += error.problems
            continue
        for index, entry in enumerate(content.inputs):
            if directories_by_name.get(entry.name) == path.parent:
                problems.append(document.problem(("inputs", index, "name"), f"{entry.name!r} stands twice."))
            inputs[entry.name] = entry.read_from(str(path), document.line(("inputs", index)))
            directories_by_name[entry.name] = path.parent
    if problems:
        raise DataError(problems)
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
