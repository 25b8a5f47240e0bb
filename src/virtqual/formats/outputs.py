"""Outputs of programs: a file, or a directory with a file for each run (`programs.readers`)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from virtqual.errors import UsageError
from virtqual.files.records import read_record_text
from virtqual.files.wording import list_names, suggest
from virtqual.formats.found import Found, FoundRun
from virtqual.programs.readers import READERS, Reading, read_runs, recognise
from virtqual.programs.text import OutputError

#: More files than a person keeps of one program; a directory with more is the wrong one.
MAX_FILES = 10_000
_SHOWN = 3


def read_output(file: str, text: str, reader: str) -> Found:
    """Return the runs in the output of a program.

    Raises
    ------
    UsageError
        The output is wrong, or not of this program.
    """
    check_reader(reader)
    try:
        runs = read_runs(text, reader)
    except OutputError as error:
        raise UsageError(f"{file}: {error}") from error
    found = [run for readings in runs for run in map(_make_run, readings)]
    return Found(
        f"output of {READERS[reader].program}", found, (), "outputs do not say when they were written"
    )


def check_reader(reader: str) -> None:
    """Raise UsageError for a name that is not one of `READERS`."""
    if reader not in READERS:
        raise UsageError(f"unknown reader {reader!r} (--reader): {suggest(reader, READERS)}")


def _make_run(reading: Reading) -> FoundRun:
    labels = {"setting": reading.setting} if reading.setting else {}
    values = dict(reading.values)
    return FoundRun(
        1, reading.metric, reading.unit, values, labels, reading.better, axis_unit=reading.axis_unit
    )


def read_directory(directory: Path, reader: str = "") -> Found:
    """Return the runs of all outputs below a directory, each file at least one run.

    A file that the reader refuses is a lost run of every metric that the other files have. Files of other
    kinds are left out, and named in the notes.
    """
    if reader:
        check_reader(reader)
    runs: list[FoundRun] = []
    unknown: list[str] = []
    refused: list[str] = []
    readers: Counter[str] = Counter()
    for file in _list_files(directory):
        text = _read_text(file)
        name = reader or (recognise(text) or "") if text is not None else ""
        if not name or text is None:
            unknown.append(str(file.relative_to(directory)))
            continue
        readers[name] += 1
        try:
            runs += read_output(str(file), text, name).runs
        except UsageError as error:
            refused.append(str(error))
    if not runs:
        raise UsageError(_describe_none(directory, unknown, refused))
    for _ in refused:
        runs += _lose_run(runs)
    notes = [f"{directory}: {name} is not an output that a reader knows" for name in unknown[:_SHOWN]]
    if len(unknown) > _SHOWN:
        notes.append(f"{directory}: {len(unknown) - _SHOWN} more files that no reader knows")
    notes += [f"lost run: {why}" for why in refused]
    programs = list_names([READERS[name].program for name in readers], _SHOWN)
    why = "files do not say when each run began and ended"
    return Found(f"outputs of {programs}", runs, (), why, notes=tuple(notes))


def _list_files(directory: Path) -> Iterator[Path]:
    files = sorted(path for path in directory.rglob("*") if path.is_file() and not path.name.startswith("."))
    if len(files) > MAX_FILES:
        raise UsageError(
            f"{directory}: has {len(files)} files, more than {MAX_FILES}: name the directory of one side"
        )
    return iter(files)


def _read_text(file: Path) -> str | None:
    """Return the text of a file; None if it is not a text."""
    try:
        text = read_record_text(file, "output")
    except UsageError:
        return None
    return None if "\0" in text else text


def _lose_run(runs: list[FoundRun]) -> list[FoundRun]:
    """Return a lost run for each series of other runs."""
    lost: dict[tuple[str, tuple[tuple[str, str], ...]], FoundRun] = {}
    for run in runs:
        values = dict.fromkeys(run.values, math.nan)
        lost[run.metric, tuple(run.labels.items())] = FoundRun(
            1, run.metric, run.unit, values, dict(run.labels), run.better, axis_unit=run.axis_unit
        )
    return list(lost.values())


def _describe_none(directory: Path, unknown: list[str], refused: list[str]) -> str:
    if refused:
        return f"{directory}: no output could be read; the first: {refused[0]}"
    if unknown:
        return (
            f"{directory}: none of {len(unknown)} files is the output of a program that virtqual knows "
            f"({', '.join(READERS)})"
        )
    return f"{directory}: has no files"
