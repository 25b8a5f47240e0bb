"""fixed_work: the times of equal pieces of work on all CPUs of a node (source: config/repo)."""

from __future__ import annotations

from dataclasses import dataclass

from virtqual.programs.text import OutputError, ProgramName, check_lines, find_all, positive, single

NAME = ProgramName("fixed_work", "builds of version 1.0")


@dataclass(frozen=True)
class FixedWorkRun:
    """One run: `pieces` pieces of `steps` steps on each of the CPUs; times in us.

    Attributes
    ----------
    means
        Mean time of a piece by CPU.
    exceeded
        By N the time that one piece in N exceeds or equals: of N = 1 the least time, of 2 the median.
    """

    steps: int
    pieces: int
    means: dict[int, float]
    exceeded: dict[int, float]


def parse(text: str) -> FixedWorkRun:
    """Read the output of one run."""
    check_lines(NAME, text)
    pattern = r"\A^fixed_work \S+ steps (\d+) pieces (\d+) cpus (\d+)$"
    steps, pieces, cpus = single(NAME, pattern, text, "first line").groups()
    cpu_rows = find_all(r"^cpu (\d+) \S+ (\S+) \S+$", text)
    means = {int(row[1]): positive(NAME, row[2], "mean") for row in cpu_rows}
    rows = find_all(r"^one in (\d+) (\S+)$", text)
    if len(means) != int(cpus) or not rows:
        raise OutputError(NAME, f"{len(means)} CPUs of {cpus}, {len(rows)} times")
    exceeded = {int(row[1]): positive(NAME, row[2], "time") for row in rows}
    return FixedWorkRun(int(steps), int(pieces), means, exceeded)
