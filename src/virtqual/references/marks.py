"""Notes of people about the days of a system, such as a new BIOS: ``marks.yaml``."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from virtqual.files.datafile import DataModel, parse
from virtqual.verdict.metric import Text


class Mark(DataModel):
    """An event on a day, of one system or of all."""

    date: date
    what: Text
    system: str = ""


class _MarksFile(DataModel):
    schema_: Annotated[Literal["virtqual-marks/1"], Field(alias="schema")]
    marks: list[Mark]


def load_marks(directories: Iterable[Path]) -> tuple[Mark, ...]:
    """Return the marks of the first directory of references that has a file of marks; else none.

    Raises
    ------
    DataError
        With file, line and key of every mistake.
    """
    for directory in directories:
        if (file := directory / "marks.yaml").exists():
            return tuple(parse(file).read(_MarksFile).marks)
    return ()
