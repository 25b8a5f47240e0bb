"""WRF 3.5 to 4.x: ``rsl.error.0000`` (or ``rsl.out.0000``), one timing line a step, and the namelist."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from virtqual.errors import InfrastructureError
from virtqual.programs.text import (
    OutputError,
    ProgramName,
    date,
    find_all,
    line_of,
    positive,
    refuse_lines,
    refuse_not_finite,
    replace_values,
    single,
)

NAME = ProgramName("WRF", "versions 3.5 to 4.x")
_STEP = r"^Timing for main: time (\S{19}) on domain +(\d+): +(\d+\.\d+) elapsed seconds\.?$"
# wrf_debug prints domain and date before a message, but not where WRF was built with OpenMP.
_COMPLETE = r"^ *(?:d01 (\S{19}) )?wrf: SUCCESS COMPLETE WRF$"
# w_damp of dyn_em/module_big_step_utilities_em.F: cfl (2.x), cfl=2 (to 4.2), w_critical_cfl and w_flag_cfl
# (4.3), v_cfl = 2 (4.3.1 and later), each with a line on the worst point.
_INSTABILITY = r"^.*(?:points exceeded \w*cfl|MAX AT i,j,k:|max_vert_cfl=|\bw-cfl:|CFL errors? =).*$"
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


def parse(text: str, period: float | None = None) -> WrfRun:
    """Read the messages of task 0 of exactly one run that completed, with a line for every step.

    `period` is the simulated time in seconds that was asked for.  Builds with OpenMP do not print at which
    time they completed, so that nothing else shows whether their last steps are missing.
    """
    refuse_lines(NAME, "FATAL CALLED", text)
    _refuse_instability(text)
    refuse_not_finite(NAME, text)
    single(NAME, r"^ *WRF V[34][\d.]+ MODEL$", text, "version line")
    tasks = single(NAME, r"^ *Ntasks in X +(\d+) ?, +ntasks in Y +(\d+)$", text, "decomposition")
    completed = single(NAME, _COMPLETE, text, "line 'SUCCESS COMPLETE WRF'")[1]
    rows = _read_steps(text)
    end = rows[-1][1] if rows else "no time"
    if len(rows) < 2 or completed not in {None, end}:
        raise OutputError(NAME, f"{len(rows)} steps, the last at {end}, completed at {completed or end}")
    start = _find_start(text[: rows[0].start()])
    begin = date(NAME, start, _DATE, "start date")
    dates = [date(NAME, row[1], _DATE, f"line {line_of(text, row.start())}") for row in rows]
    gaps = {(after - before).total_seconds() for before, after in pairwise([begin, *dates])}
    if len(gaps) != 1 or min(gaps) <= 0:
        raise OutputError(NAME, f"steps are missing: they are {sorted(gaps)} s apart from {start} to {end}")
    simulated = (dates[-1] - begin).total_seconds()
    if period is not None and simulated != period:
        hours, asked = simulated / 3600, period / 3600
        raise OutputError(NAME, f"{hours:g} h were simulated, to {end}; asked for {asked:g} h")
    return WrfRun(
        tasks=(int(tasks[1]), int(tasks[2])),
        interval=gaps.pop(),
        seconds=tuple(positive(NAME, row[3], f"step at {row[1]}") for row in rows),
        end=end,
    )


def _find_start(head: str) -> str:
    """Return the simulated time at which a run starts, from what precedes its first step.

    A restart begins where its file was written.  Versions before 4.2 do not print the start date, but write
    their first history at that time.
    """
    restarts = find_all(r"^ *RESTART run: opening wrfrst_d01_(\S{19}) for reading", head)
    if len(restarts) == 1:
        return _read_date(restarts[0][1])
    if "SIMULATION START DATE" in head:
        return single(NAME, r"^ *SIMULATION START DATE = (\S{19})$", head, "start date")[1]
    histories = find_all(r"^Timing for Writing wrfout_d01_(\S{19}) for domain +1:", head)
    if len(histories) != 1:
        raise OutputError(
            NAME, "no start date as versions from 4.2 on print it, nor a history file before the first step"
        )
    return _read_date(histories[0][1])


def _read_date(name: str) -> str:
    """Return the date in a file's name as WRF prints it: some file systems do not have colons."""
    return re.sub(r"_(\d\d)_(\d\d)_(\d\d)$", r"_\1:\2:\3", name)


def _read_steps(text: str) -> list[re.Match[str]]:
    """Return the lines of the steps of the outermost domain."""
    rows = find_all(_STEP, text)
    whole = {row.start() for row in rows}
    for line in find_all(r"^.*Timing for main.*$", text):
        if line.start() not in whole:
            place = f"line {line_of(text, line.start())}"
            if "(dt=" in line[0]:
                raise OutputError(
                    NAME, f"{place}: the time steps are adaptive: set use_adaptive_time_step to .false."
                )
            raise OutputError(NAME, f"{place} is a broken or merged line of a step: {line[0]!r}")
    return [row for row in rows if int(row[2]) == 1]


def _refuse_instability(text: str) -> None:
    """Raise OutputError with the first line that says where the wind is too fast for the time step.

    WRF goes on, damped or unstable, and may succeed.  A benchmark's case has no such line with its own step.
    """
    if match := re.search(_INSTABILITY, text, re.MULTILINE | re.IGNORECASE):
        raise OutputError(
            NAME,
            f"line {line_of(text, match.start())}: the CFL criterion is violated, the run is not stable: "
            f"{match[0].strip()!r}",
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
