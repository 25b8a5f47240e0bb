"""mpiP 3.4 and 3.5: the time of each task of a program in MPI, by the report that is written at its end."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from virtqual.programs.text import OutputError, ProgramName, find_all, line_of, number, positive, single

NAME = ProgramName("mpiP", "versions 3.4 and 3.5")
# Start-ups of two runs differ a little: their difference is that of their steps within this share.
STEPS_TOLERANCE = 0.2
# Times have three digits.
_ROUNDING = 0.0101
_LINE = "-{75}"
_HEADER = rf"^{_LINE}\n@--- MPI Time \(seconds\) -+\n{_LINE}\nTask    AppTime    MPITime     MPI%\n"


@dataclass(frozen=True)
class Profile:
    """The seconds of each task from ``MPI_Init`` to ``MPI_Finalize``, and those of them that were in MPI."""

    seconds: tuple[float, ...]
    mpi: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Wall time of the average task in seconds."""
        return sum(self.seconds) / len(self.seconds)

    @property
    def share(self) -> float:
        """Share of its time that the average task was in MPI, 0 to 1."""
        return sum(self.mpi) / sum(self.seconds)

    def beyond(self, shorter: Profile, steps: float) -> Profile:
        """Return the part of this run that a shorter run, which begins and ends alike, does not have.

        `steps` are the seconds by which this run's time steps took longer, as the program itself prints them.
        """
        if len(self.seconds) != len(shorter.seconds):
            raise OutputError(
                NAME, f"{len(self.seconds)} and {len(shorter.seconds)} tasks cannot be compared"
            )
        more = Profile(
            tuple(long - short for long, short in zip(self.seconds, shorter.seconds, strict=True)),
            tuple(long - short for long, short in zip(self.mpi, shorter.mpi, strict=True)),
        )
        seconds, mpi = sum(more.seconds), sum(more.mpi)
        if not (seconds > 0 and 0 <= mpi <= seconds):
            raise OutputError(
                NAME, f"the longer run took {seconds:.3f} s more, {mpi:.3f} s more of them in MPI"
            )
        if abs(more.mean - steps) > STEPS_TOLERANCE * steps:
            raise OutputError(NAME, f"the longer run took {more.mean:.3g} s more, its steps {steps:.3g} s")
        return more


def parse(text: str) -> Profile:
    """Read the report of exactly one run, with mpiP's default columns or those of its option ``-e``."""
    single(NAME, r"^@ Version +: 3\.[45]\.\d+$", text, "version 3.4 or 3.5")
    tasks = len(find_all(r"^@ MPI Task Assignment +: \d+ \S+$", text))
    head = single(NAME, _HEADER, text, "table 'MPI Time'")
    single(NAME, r"^@--- MPI Time", text, "section 'MPI Time'")
    single(NAME, rf"^{_LINE}\n@--- End of Report -+\n{_LINE}\n", text, "end of the report")
    first = line_of(text, head.end())
    rows = [row.split() for row in re.split(rf"{_LINE}\n", text[head.end() :])[0].splitlines()]
    names = [row[0] for row in rows if len(row) == 4]
    if not tasks or len(names) != len(rows) or names != [*map(str, range(tasks)), "*"]:
        raise OutputError(
            NAME, f"the table at line {first} is not a row for each of {tasks} tasks and their sum"
        )
    seconds, mpi = [], []
    for line, row in enumerate(rows, first):
        seconds.append(positive(NAME, row[1], f"AppTime at line {line}"))
        mpi.append(number(NAME, row[2], f"MPITime at line {line}"))
        if not 0 <= mpi[-1] <= seconds[-1]:
            raise OutputError(NAME, f"line {line}: {mpi[-1]} s of {seconds[-1]} s in MPI")
        share = 100 * mpi[-1] / seconds[-1]
        if abs(number(NAME, row[3], f"MPI% at line {line}") - share) > _ROUNDING * share + 0.0051:
            raise OutputError(NAME, f"line {line}: {mpi[-1]} s of {seconds[-1]} s are not {row[3]} %")
    for what, (*tasks_own, total) in (("AppTime", seconds), ("MPITime", mpi)):
        if abs(math.fsum(tasks_own) - total) > _ROUNDING * total:
            raise OutputError(
                NAME, f"{what} of the tasks adds up to {math.fsum(tasks_own):g} s, not {total:g} s"
            )
    return Profile(tuple(seconds[:-1]), tuple(mpi[:-1]))
