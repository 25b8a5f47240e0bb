"""Notes of people about the days of a system, such as a new BIOS: ``marks.yaml``."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from virtqual.files.datafile import DataModel, Text, parse


class Mark(DataModel):
    """An event on a day, of one system or of all."""

    date: date
    what: Text
    system: str = ""


class _MarksFile(DataModel):
    schema_: Annotated[Literal["virtqual-marks/1"], Field(alias="schema")]
    marks: list[Mark]


def load_marks(references: Path) -> tuple[Mark, ...]:
    """Return the marks of a directory of references, which may have none.

    Raises
    ------
    DataError
        With file, line and key of every mistake.
    """
    file = references / "marks.yaml"
    return tuple(parse(file).read(_MarksFile).marks) if file.exists() else ()
