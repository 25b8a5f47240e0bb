"""mpiP 3.4 and 3.5: how long each task of a program was in MPI, by the report that is written at its end."""

from __future__ import annotations

import re
from dataclasses import dataclass

from virtqual.programs.text import (
    OutputError,
    aligned,
    every,
    line_of,
    number,
    positive,
    printable,
    resolution,
    single,
)

NAME = "mpiP"
# Two runs differ in their steps only, if these took as long within a fifth: start-ups differ a little.
SAME = 0.2
_LINE = "-{75}"
_HEADER = rf"^{_LINE}\n@--- MPI Time \(seconds\) -+\n{_LINE}\nTask    AppTime    MPITime     MPI%\n"


@dataclass(frozen=True)
class Profile:
    """One run of a program under mpiP.

    Attributes
    ----------
    version
        mpiP's version, e.g. ``3.5.0``.
    seconds
        Wall time of each task from the end of ``MPI_Init`` to ``MPI_Finalize``, s.
    mpi
        The part of that time that each task spent in MPI, s.
    """

    version: str
    seconds: tuple[float, ...]
    mpi: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Wall time of the average task, s."""
        return sum(self.seconds) / len(self.seconds)

    @property
    def share(self) -> float:
        """Share of its time that the average task was in MPI, 0 to 1."""
        return sum(self.mpi) / sum(self.seconds)

    def beyond(self, shorter: Profile, steps: float) -> Profile:
        """Return the part of this run that a shorter run, which begins and ends alike, does not have.

        Parameters
        ----------
        shorter
            A run of the same program on as many tasks.
        steps
            By how much this run's steps took longer, as the program itself says, s.

        Raises
        ------
        OutputError
            The shorter run had another number of tasks, took longer or spent more time in MPI, or the runs
            differ by another time than their steps.
        """
        if len(self.seconds) != len(shorter.seconds):
            raise OutputError(
                NAME, f"{len(self.seconds)} and {len(shorter.seconds)} tasks cannot be compared"
            )
        more = [
            tuple(long - short for long, short in zip(*both, strict=True))
            for both in ((self.seconds, shorter.seconds), (self.mpi, shorter.mpi))
        ]
        seconds, mpi = map(sum, more)
        if not (seconds > 0 and 0 <= mpi <= seconds):
            raise OutputError(
                NAME, f"the longer run took {seconds:.3f} s more, {mpi:.3f} s more of them in MPI"
            )
        found = Profile(self.version, *more)
        if abs(found.mean - steps) > SAME * steps:
            raise OutputError(NAME, f"the longer run took {found.mean:.3g} s more, its steps {steps:.3g} s")
        return found


def parse(text: str) -> Profile:
    """Read the report of exactly one run, with mpiP's default columns or those of its option ``-e``.

    Raises
    ------
    OutputError
        The report or its table is short, split or doubled, a percentage is not that of its times, or the
        last row is not the sum of the others.
    """
    printable(NAME, text)
    version = single(NAME, r"^@ Version +: (3\.[45]\.\d+)$", text, "version 3.4 or 3.5")[1]
    tasks = len(every(r"^@ MPI Task Assignment +: \d+ \S+$", text))
    head = single(NAME, _HEADER, text, "table 'MPI Time'")
    single(NAME, r"^@--- MPI Time", text, "section 'MPI Time'")
    single(NAME, rf"^{_LINE}\n@--- End of Report -+\n{_LINE}\n", text, "end of the report")
    first = line_of(text, head.end())
    lines = text[head.end() :].split("\n")[: tasks + 2]
    if tasks == 0 or len(lines) < tasks + 2 or not re.fullmatch(_LINE, lines.pop()):
        raise OutputError(
            NAME, f"the table at line {first} is not a row for each of {tasks} tasks and their sum"
        )
    rows = aligned(NAME, list(enumerate(lines, first)), "table")
    names = [row[0] for row in rows]
    if names != [*map(str, range(tasks)), "*"]:
        raise OutputError(
            NAME, f"the rows from line {first} are of {', '.join(names)}, not of {tasks} tasks and *"
        )
    values = [_row(row, line) for line, row in enumerate(rows, first)]
    for what, column in (("AppTime", 0), ("MPITime", 1)):
        *parts, whole = (value[column] for value in values)
        off = sum(resolution(row[column + 1]) for row in rows) / 2
        if abs(sum(parts) - whole) > 1.01 * off:
            raise OutputError(NAME, f"{what}: the tasks' {sum(parts):.6g} s are not the sum {whole:.6g} s")
    del values[-1]
    return Profile(version, tuple(app for app, _ in values), tuple(mpi for _, mpi in values))


def _row(words: list[str], line: int) -> tuple[float, float]:
    """Return the times of a row, whose percentage says them again."""
    if len(words) != 4:
        raise OutputError(NAME, f"line {line} is no row of the table: {' '.join(words)!r}")
    app = positive(NAME, words[1], f"AppTime at line {line}")
    mpi = number(NAME, words[2], f"MPITime at line {line}")
    percent = number(NAME, words[3], f"MPI% at line {line}")
    # Each is rounded: by half of its last digit at most.
    off = (resolution(words[3]) + 100 * (resolution(words[2]) + mpi / app * resolution(words[1])) / app) / 2
    if not 0 <= percent <= 100 or abs(100 * mpi / app - percent) > 1.01 * off:
        raise OutputError(NAME, f"line {line}: {mpi} s of {app} s are not {percent} %")
    return app, mpi
