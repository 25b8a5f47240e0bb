"""What `virtqual pair` was asked for, and the files that it keeps."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from virtqual.errors import UsageError
from virtqual.files.records import load, write_record
from virtqual.pair.metrics import AskedMetric
from virtqual.pair.notes import Note
from virtqual.verdict.labels import REFERENCE_AND_CANDIDATE
from virtqual.verdict.notation import format_percent

#: How each option of a plan is written on the command line.
OPTIONS = {
    "commands": "the two commands",
    "names": "--names",
    "metrics": "--metric, --unit and --better",
    "readers": "--reader",
    "budget": "--budget",
    "margin": "--margin",
    "prepare": "--prepare",
    "warmup": "--warmup",
    "ignore_failure": "--ignore-failure",
    "note": "--note",
    "directory": "the working directory",
}
#: Ends of names that other files of a measurement have.
NOT_TABLES = (".html", ".md", ".json", ".outputs", "")
_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


class Plan(BaseModel, extra="forbid", frozen=True):
    """What stays the same when the measurement is resumed: the rule is for one question.

    Of all that comes in two, the first is for the reference side.
    """

    schema_: Literal["virtqual-pair/1"] = Field(alias="schema", default="virtqual-pair/1")
    commands: tuple[str, str]
    names: tuple[str, str] = REFERENCE_AND_CANDIDATE
    #: Without any, and without readers, the wall time is measured.
    metrics: tuple[AskedMetric, ...] = ()
    #: Names of `virtqual.programs.readers`.
    readers: tuple[str, ...] = ()
    #: Fractions, such as 0.05.
    budget: float
    margin: float
    #: A command before each run: none, or one for each side.
    prepare: tuple[str, ...] = ()
    warmup: int = 1
    ignore_failure: bool = False
    #: The prefixes with which the note script is run; empty without notes.
    note: tuple[str, ...] = ()
    #: Where the commands are run.
    directory: str
    #: The file of the report; empty without one.  Another one may be named when it is resumed.
    output: str = ""
    #: The notes of each time that the measurement was begun or resumed, and of its end, by side.
    notes: tuple[tuple[Note, Note], ...] = ()

    @property
    def measures_time(self) -> bool:
        """The wall time is what is judged."""
        return not (self.metrics or self.readers)

    def list_differences(self, other: Plan) -> dict[str, tuple[str, str]]:
        """Return the options that another plan states differently, with both values as people read them."""
        return {
            text: (self._describe(key), other._describe(key))
            for key, text in OPTIONS.items()
            if getattr(self, key) != getattr(other, key)
        }

    def _describe(self, key: str) -> str:
        """Return the value of an option as it is written on the command line."""
        value = getattr(self, key)
        if key in ("budget", "margin"):
            return format_percent(value)
        if key == "metrics":
            return ", ".join(f"'{one.write()}' in {one.unit} ({one.better})" for one in value) or "none"
        return (shlex.join(value) or "none") if isinstance(value, tuple) else str(value)

    def list_other_prefixes(self) -> list[str]:
        """Return a warning for each command in which the prefix of its notes does not appear."""
        return [
            f"The notes of {name} were asked for by '{prefix}', which is not in its command: make sure that "
            "they are of the machine on which it runs."
            for name, prefix, command in zip(self.names, self.note, self.commands, strict=False)
            if prefix.strip() and f" {' '.join(prefix.split())} " not in f" {' '.join(command.split())} "
        ]


@dataclass(frozen=True)
class Files:
    """The files of a measurement: the table of pairs, and its plan and outputs next to it."""

    table: Path

    @property
    def plan(self) -> Path:
        """The file of the plan."""
        return self.table.with_suffix(".json")

    @property
    def outputs(self) -> Path:
        """The directory of what the commands printed."""
        return self.table.with_suffix(".outputs")

    def check_new(self) -> None:
        """Raise a `UsageError` if a file of a new measurement exists."""
        if self.table.suffix in NOT_TABLES:
            raise UsageError(f"--csv {self.table}: write a name that ends in .csv")
        for file in (self.table, self.plan, self.outputs):
            if file.exists():
                raise UsageError(
                    f"{file} exists: go on with --resume {self.table}, or name another file by --csv"
                )

    def load_plan(self) -> Plan:
        """Return the plan of a measurement that is resumed."""
        if self.table.suffix in NOT_TABLES:
            raise UsageError(f"--resume {self.table}: name the CSV file that pair wrote")
        if not self.table.exists() and self.plan.exists():
            # It was ended before its first pair.
            return load(Plan, self.plan, "plan of pairs")
        if not self.table.exists():
            raise UsageError(
                f"--resume {self.table}: there is no such file; it is the CSV that pair wrote. If it "
                "was interrupted before anything was measured, start again without --resume"
            )
        if not self.plan.exists():
            raise UsageError(
                f"--resume {self.table}: {self.plan.name}, which has the commands and options, is not next "
                f"to it; virtqual judge {self.table} judges what it holds"
            )
        return load(Plan, self.plan, "plan of pairs")

    def save_plan(self, plan: Plan) -> None:
        """Write the plan."""
        try:
            write_record(plan, self.plan, indent=2)
        except OSError as error:
            raise UsageError(
                f"{self.plan} cannot be written: {error.strerror}; name a file by --csv"
            ) from error

    def remove(self) -> None:
        """Remove the files of a measurement in which no pair was run."""
        self.table.unlink(missing_ok=True)
        self.plan.unlink(missing_ok=True)
        shutil.rmtree(self.outputs, ignore_errors=True)

    def lock(self) -> int:
        """Return a descriptor that keeps others from resuming the same measurement while it is open."""
        # The file of the plan is replaced when notes are written, and this one never.
        try:
            descriptor = os.open(self.table, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise UsageError(f"{self.table} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise UsageError(f"{self.table}: another virtqual pair is writing to it") from None
        return descriptor


def read_seconds(text: str) -> float:
    """Return the seconds that a text such as ``90``, ``90s``, ``5m`` or ``2h`` states.

    Raises
    ------
    UsageError
        It is not a duration.
    """
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+) ?(s|m|min|h|)", text.strip())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if seconds <= 0:
        raise UsageError(f"--timeout {text}: write seconds such as 90, or 90s, 5m, 2h")
    return seconds
