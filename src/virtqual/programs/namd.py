"""NAMD 2.x and 3.x: the log of a run on CPUs, and a benchmark's own configuration with other values.

The log has energies, timing and the closing wall clock.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from virtqual.programs.edit import replaced
from virtqual.programs.text import (
    OutputError,
    agree,
    aligned,
    every,
    line_of,
    number,
    positive,
    printable,
    resolution,
    single,
)

NAME = "NAMD"
# The columns whose sum is TOTAL.
_TERMS = ("BOND", "ANGLE", "DIHED", "IMPRP", "ELECT", "VDW", "BOUNDARY", "MISC", "KINETIC")
_TIMING = (
    r"^TIMING: (\d+)  CPU: \S+, \S+/step  Wall: (\S+), (\S+)/step, (?:\S+ ns/days?, )?"
    r"\S+ hours remaining, \S+ MB of memory in use\.$"
)
_WALL = r"^WallClock: (\d+\.\d{6})  CPUTime: \d+\.\d{6}  Memory: .*$"
_LAST = r"^WRITING VELOCITIES TO OUTPUT FILE AT STEP (\d+)$"
# A row's time a step is its wall time over its steps; all are printed to 6 digits.
_SAME = 1e-4


@dataclass(frozen=True)
class NamdRun:
    """One run of NAMD.

    Attributes
    ----------
    version
        E.g. ``2.12`` or ``3.0.1``.
    processes
        Processors as NAMD counts them (threads of all processes that compute).
    atoms
        Atoms of the structure.
    timestep
        Femtoseconds.
    first, last
        Steps between which the last part (``run`` of the input) went.
    step_time
        Seconds a step, median of the timing rows of that part, its first left out (load balancing).
    wall_clock
        Seconds from start to end of the program.
    energy
        Total energy in kcal/mol by step, of that part.
    start
        Potential energy in kcal/mol at step 0: of the coordinates as they were given.
    """

    version: str
    processes: int
    atoms: int
    timestep: float
    first: int
    last: int
    step_time: float
    wall_clock: float
    energy: dict[int, float]
    start: float

    @property
    def drift(self) -> float:
        """Relative change of the total energy from the first to the last printed step."""
        first, last = self.energy[self.first], self.energy[self.last]
        return abs(last - first) / abs(first)


def parse(text: str) -> NamdRun:
    """Read the log of exactly one run.

    Raises
    ------
    OutputError
        NAMD stopped with an error, a line or row is missing, split, doubled or out of order, an energy is not
        the sum of its terms, or two statements of one time differ.
    """
    printable(NAME, text)
    if fatal := every(r"^(?:FATAL )?ERROR:.*$", text):
        raise OutputError(NAME, f"line {line_of(text, fatal[0].start())}: {fatal[0][0]}")
    version = single(NAME, r"^Info: NAMD +([23]\.\w[\w.]*) +for \S+$", text, "version line")[1]
    running = single(
        NAME, r"^Info: Running on (\d+) processors, \d+ nodes, \d+ physical nodes\.$", text, "processors"
    )
    atoms = single(NAME, r"^Info: (\d+) ATOMS$", text, "number of atoms")
    timestep = positive(NAME, single(NAME, r"^Info: TIMESTEP +(\S+)$", text, "time step")[1], "time step")
    wall = single(NAME, _WALL, text, "line 'WallClock'")
    single(NAME, r"^(?:\[Partition 0\]\[Node 0\] )?End of program$", text[wall.end() :], "end of program")
    last = int(single(NAME, _LAST, text, "final velocities")[1])
    begin, steps = _last_part(text)
    energy, start = _energy(text, begin, last)
    if min(energy) != last - steps:
        raise OutputError(
            NAME, f"energies from step {min(energy)} to {last}, but {steps} steps were asked for"
        )
    rates, elapsed = _timing(text, min(energy), last)
    _benchmark(text, int(running[1]), timestep)
    wall_clock = positive(NAME, wall[1], "wall clock")
    # All that comes after the last row is writing two files.
    if not elapsed <= wall_clock <= 1.5 * elapsed + 60:
        raise OutputError(NAME, f"WallClock {wall_clock} s after {elapsed} s at step {last}")
    return NamdRun(
        version=version,
        processes=int(running[1]),
        atoms=int(atoms[1]),
        timestep=timestep,
        first=min(energy),
        last=last,
        step_time=statistics.median(rates),
        wall_clock=wall_clock,
        energy=energy,
        start=start,
    )


def _last_part(text: str) -> tuple[int, int]:
    """Return the offset at which the last part of the run begins, and its steps."""
    parts = every(r"^TCL: (Running|Minimizing) for (\d+) steps$", text)
    if not parts:
        steps = single(NAME, r"^Info: NUMBER OF STEPS +(\d+)$", text, "number of steps")
        return steps.end(), int(steps[1])
    if parts[-1][1] != "Running":
        raise OutputError(NAME, f"line {line_of(text, parts[-1].start())}: the last part is no dynamics")
    return parts[-1].end(), int(parts[-1][2])


def _every(text: str, what: str) -> int:
    return int(single(NAME, rf"^Info: {what} OUTPUT STEPS +(\d+)$", text, f"interval of {what}")[1])


def _energy(text: str, begin: int, last: int) -> tuple[dict[int, float], float]:
    """Return the total energies of the last part by step, and the potential energy at step 0."""
    titles = {match[0] for match in every(r"^ETITLE:.*$", text)}
    if len(titles) != 1:
        raise OutputError(NAME, f"{len(titles)} different headers (ETITLE) of the energies")
    names = titles.pop().split()[1:]
    numbered = [(line, row) for line, row in enumerate(text.split("\n"), 1) if row.startswith("ENERGY:")]
    since = line_of(text, begin)
    energy: dict[int, float] = {}
    start: float | None = None
    for (line, _), row in zip(numbered, aligned(NAME, numbered, "energies"), strict=True):
        if len(row) != len(names) + 1:
            raise OutputError(NAME, f"line {line} has {len(row) - 1} energies, the header {len(names)}")
        value = {
            name: number(NAME, word, f"{name} at line {line}")
            for name, word in zip(names, row[1:], strict=True)
        }
        total = sum(value[term] for term in _TERMS)
        if abs(total - value["TOTAL"]) > 1e-4 * len(_TERMS):
            raise OutputError(NAME, f"line {line}: the terms add up to {total:.4f}, not {value['TOTAL']}")
        now = int(value["TS"])
        if start is None:
            if now != 0:
                raise OutputError(NAME, f"line {line}: the first energies are of step {now}, not 0")
            start = value["TOTAL"] - value["KINETIC"]
        if line > since:
            if now in energy:
                raise OutputError(NAME, f"line {line}: the energies of step {now} are there twice")
            energy[now] = value["TOTAL"]
    _regular(list(energy), _every(text, "ENERGY"), last, "energies")
    if start is None:
        raise OutputError(NAME, "no energies")
    return energy, start


def _regular(steps: list[int], interval: int, last: int, what: str) -> None:
    if not steps or steps != list(range(steps[0], last + 1, interval)) or steps[-1] != last:
        raise OutputError(NAME, f"{what} of steps {steps}, not every {interval} steps to {last}")


def _timing(text: str, first: int, last: int) -> tuple[list[float], float]:
    """Return the times a step of the last part, and the wall time at its end."""
    rows = every(_TIMING, text)
    interval = _every(text, "TIMING")
    if not rows or len(every(r"^TIMING:", text)) != len(rows) or int(rows[0][1]) != interval:
        raise OutputError(NAME, f"timing rows are missing or broken, asked for every {interval} steps")
    _regular([int(row[1]) for row in rows], interval, last, "timing")
    rates = []
    for before, row in pairwise(rows):
        what = f"wall time at line {line_of(text, row.start())}"
        spent = positive(NAME, row[2], what) - positive(NAME, before[2], what)
        rate = positive(NAME, row[3], f"time a step at line {line_of(text, row.start())}")
        if spent <= 0:
            raise OutputError(NAME, f"{what} does not rise")
        if int(before[1]) > first:
            # The unit of the sixth digit, also where trailing zeros are not printed.
            if not agree(spent / interval, rate, _SAME, resolution(f"{float(row[2]):.5e}") / spent):
                raise OutputError(NAME, f"{what}: {spent / interval:.6g} s a step, printed {rate}")
            rates.append(rate)
    if not rates:
        raise OutputError(NAME, f"no two timing rows after step {first}: run more steps")
    return rates, float(rows[-1][2])


def _benchmark(text: str, processes: int, timestep: float) -> None:
    """Assert that the benchmark lines say one thing in two units, and that all processors took part."""
    for row in every(r"^Info: (?:Initial|Benchmark) time:.*$", text):
        where = f"line {line_of(text, row.start())}"
        pattern = r"^Info: \w+ time: (\d+) CPUs (\S+) s/step (\S+) (days/ns|ns/day) \S+ MB memory$"
        match = single(NAME, pattern, row[0], f"{where}: benchmark")
        rate, scaled = positive(NAME, match[2], where), positive(NAME, match[3], where)
        days = rate * 1e6 / timestep / 86400
        if not agree(days if match[4] == "days/ns" else 1 / days, scaled, 1e-4):
            raise OutputError(NAME, f"{where}: {rate} s/step is not {scaled} {match[4]}")
        if int(match[1]) != processes:
            raise OutputError(NAME, f"{where}: {match[1]} CPUs, NAMD runs on {processes}")


def configuration(text: str, values: Mapping[str, int | str]) -> str:
    """Return a configuration with some values replaced.

    Parameters
    ----------
    text
        The configuration that the benchmark brings.
    values
        New values by keyword.

    Raises
    ------
    virtqual.errors.InfrastructureError
        A keyword is not set in it, or twice.

    Examples
    --------
    >>> configuration("outputName  /usr/tmp/x\\nnumsteps  500\\n", {"outputName": "out"})
    'outputName  out\\nnumsteps  500\\n'
    """
    return replaced(text, values, file="the configuration", between=r"\s+", value=r"\S+")
