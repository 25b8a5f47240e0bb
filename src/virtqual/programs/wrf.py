"""WRF 3.5 to 4.x: ``rsl.error.0000`` (or ``rsl.out.0000``), one timing line a step, and the namelist."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from virtqual.errors import InfrastructureError
from virtqual.programs.text import (
    OutputError,
    Program,
    date,
    find_all,
    line_of,
    positive,
    refuse_lines,
    replace_values,
    single,
)

NAME = Program("WRF", "versions 3.5 to 4.x")
_STEP = r"^Timing for main: time (\S{19}) on domain +(\d+): +(\d+\.\d{5}) elapsed seconds\.?$"
_DATE = "%Y-%m-%d_%H:%M:%S"


@dataclass(frozen=True)
class WrfRun:
    """One run of ``wrf.exe`` on MPI tasks in x and in y, whose simulated time completed at `end`.

    `interval` is the simulated seconds of a step of the outermost domain, `seconds` the wall time of every
    such step, nested domains included; the first holds the start-up.
    """

    tasks: tuple[int, int]
    interval: float
    seconds: tuple[float, ...]
    end: str

    @property
    def total(self) -> float:
        """Wall time of all steps in seconds."""
        return sum(self.seconds)


def parse(text: str) -> WrfRun:
    """Read the messages of task 0 of exactly one run that completed, with a line for every step."""
    refuse_lines(NAME, r"FATAL CALLED|CFL errors? =|\bNaN\b", text)
    single(NAME, r"^ *WRF V[34][\d.]+ MODEL$", text, "version line")
    tasks = single(NAME, r"^ *Ntasks in X +(\d+) ?, +ntasks in Y +(\d+)$", text, "decomposition")
    start = single(NAME, r"^ *SIMULATION START DATE = (\S{19})$", text, "start date")[1]
    end = single(NAME, r"^d01 (\S{19}) wrf: SUCCESS COMPLETE WRF$", text, "line 'SUCCESS COMPLETE WRF'")[1]
    rows, timings = find_all(_STEP, text), len(find_all(r"Timing for main", text))
    if len(rows) != timings:
        raise OutputError(NAME, f"broken lines 'Timing for main': {timings - len(rows)}")
    rows = [row for row in rows if int(row[2]) == 1]
    dates = [date(NAME, row[1], _DATE, f"line {line_of(text, row.start())}") for row in rows]
    if len(rows) < 2 or rows[-1][1] != end:
        last = rows[-1][1] if rows else "no time"
        raise OutputError(NAME, f"{len(rows)} steps, the last at {last}, completed at {end}")
    begin = date(NAME, start, _DATE, "start date")
    gaps = {(after - before).total_seconds() for before, after in pairwise([begin, *dates])}
    if len(gaps) != 1 or min(gaps) <= 0:
        raise OutputError(
            NAME, f"steps are missing (or adaptive): {sorted(gaps)} s apart from {start} to {end}"
        )
    return WrfRun(
        tasks=(int(tasks[1]), int(tasks[2])),
        interval=gaps.pop(),
        seconds=tuple(positive(NAME, row[3], f"step at {row[1]}") for row in rows),
        end=end,
    )


def hours(number: int, step: int) -> dict[str, int | str]:
    """Return the entries of a namelist that run some hours from the start, in steps of some seconds.

    The history is written at the start and at the end: norms of its fields prove that the run was right.
    """
    period = {"run_days": 0, "run_hours": number, "run_minutes": 0, "run_seconds": 0}
    return {**period, "time_step": step, "history_interval": 60 * number, "restart": ".false."}


def steps(number: int, step: int) -> dict[str, int | str]:
    """Return the entries of a namelist that run some steps of some seconds from the start.

    The history is written at the start and never again: runs of other lengths write as much.
    """
    return {**hours(0, step), "run_seconds": number * step, "history_interval": number * step // 60 + 60}


def namelist(text: str, values: Mapping[str, int | str]) -> str:
    r"""Return a case's ``namelist.input`` with new values of some entries, those of the outermost domain.

    WRF then writes its history as classic netCDF, also where it was built with netCDF-4: `wrf_fields` reads
    that with what SciPy has.

    Examples
    --------
    >>> print(namelist(" &time_control\n run_days = 5,\n run_hours = 0,\n", {"run_days": 0, "run_hours": 2}))
     &time_control
     use_netcdf_classic = .true.,
     run_days = 0,
     run_hours = 2,
    <BLANKLINE>
    """
    text = re.sub(r"(?im)^\s*use_netcdf_classic\s*=.*\n", "", text)
    text, count = re.subn(r"(?im)^ *&time_control *\n", r"\g<0> use_netcdf_classic = .true.,\n", text)
    if count != 1:
        raise InfrastructureError(f"namelist.input has {count} groups &time_control: expected one")
    return replace_values(text, values, file="namelist.input", separator=r"\s*=\s*", value=r"[^,\s]+")
