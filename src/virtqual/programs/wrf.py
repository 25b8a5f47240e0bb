"""WRF 3.x and 4.x: ``rsl.error.0000`` (or ``rsl.out.0000``), one timing line a step, and the namelist."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from virtqual.programs.edit import replaced
from virtqual.programs.text import OutputError, every, line_of, positive, printable, single

NAME = "WRF"
_DATE = r"(\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d)"
_STEP = rf"^Timing for main: time {_DATE} on domain( +\d+):( +\d+\.\d{{5}}) elapsed seconds\.?$"
# Widths of the domain and of the seconds, as WRF formats them (i3, f10.5).
_WIDTHS = (4, 11)


@dataclass(frozen=True)
class WrfRun:
    """One run of ``wrf.exe``.

    Attributes
    ----------
    version
        E.g. ``4.6.1``.
    tasks
        MPI tasks of the domain decomposition, in x and in y.
    interval
        Simulated seconds a step of the outermost domain.
    seconds
        Wall time of every step of the outermost domain, nested domains included; the first holds start-up.
    end
        The simulated time at which it completed, as WRF writes it.
    """

    version: str
    tasks: tuple[int, int]
    interval: float
    seconds: tuple[float, ...]
    end: str

    @property
    def total(self) -> float:
        """Wall time of all steps in seconds."""
        return sum(self.seconds)


def parse(text: str) -> WrfRun:
    """Read the messages of task 0 of exactly one run.

    Raises
    ------
    OutputError
        WRF did not complete, a step is missing, doubled, split or out of order, or the run's ends disagree.
    """
    printable(NAME, text)
    if fatal := re.search(r"^.*(?:FATAL CALLED|CFL errors? =|\bNaN\b).*$", text, re.MULTILINE):
        raise OutputError(NAME, f"line {line_of(text, fatal.start())}: {fatal[0].strip()}")
    version = single(NAME, r"^ *WRF V([34][\d.]+) MODEL$", text, "version line")[1]
    tasks = single(NAME, r"^ *Ntasks in X( +\d+) ?, +ntasks in Y( +\d+)$", text, "decomposition")
    if len(tasks[1]) != len(tasks[2]):
        raise OutputError(NAME, f"line {line_of(text, tasks.start())} is not in its columns: {tasks[0]!r}")
    start = single(NAME, r"^ *SIMULATION START DATE = (\S{19})$", text, "start date")
    end = single(NAME, r"^d01 (\S{19}) wrf: SUCCESS COMPLETE WRF$", text, "line 'SUCCESS COMPLETE WRF'")
    rows = every(_STEP, text)
    if len(rows) != len(every(r"Timing for main", text)):
        raise OutputError(NAME, f"{len(every(r'Timing for main', text)) - len(rows)} timing lines are split")
    seconds: dict[datetime, float] = {}
    for row in rows:
        where = f"line {line_of(text, row.start())}"
        if (len(row[2]), len(row[3])) != _WIDTHS:
            raise OutputError(NAME, f"{where} is not in its columns: {row[0]!r}")
        if int(row[2]) != 1:
            continue
        now = _date(row[1], where)
        if seconds and now <= max(seconds):
            raise OutputError(NAME, f"{where}: {row[1]} comes after {max(seconds)}")
        seconds[now] = positive(NAME, row[3].strip(), where)
    interval = _interval(_date(start[1], "start date"), list(seconds), _date(end[1], "last line"))
    return WrfRun(version, (int(tasks[1]), int(tasks[2])), interval, tuple(seconds.values()), end[1])


def _date(text: str, where: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y-%m-%d_%H:%M:%S")
    except ValueError:
        raise OutputError(NAME, f"{where}: {text!r} is no date") from None


def _interval(start: datetime, steps: list[datetime], end: datetime) -> float:
    if len(steps) < 2 or steps[-1] != end:
        raise OutputError(NAME, f"{len(steps)} steps, the last at {steps[-1:]}, completed at {end}")
    gaps = {after - before for before, after in pairwise([start, *steps])}
    if len(gaps) != 1:
        found = ", ".join(sorted(str(gap) for gap in gaps))
        raise OutputError(NAME, f"steps are missing (or adaptive): {found} apart between {start} and {end}")
    return gaps.pop() / timedelta(seconds=1)


def hours(number: int, step: int) -> dict[str, int | str]:
    """Return the entries of a namelist that run some hours from the start, in steps of some seconds.

    The history is written at the start and at the end: norms of its fields say whether the run was right.
    """
    period = {"run_days": 0, "run_hours": number, "run_minutes": 0, "run_seconds": 0}
    return {**period, "time_step": step, "history_interval": 60 * number, "restart": ".false."}


def steps(number: int, step: int) -> dict[str, int | str]:
    """Return the entries of a namelist that run some steps of some seconds from the start.

    The history is written at the start and never again: runs of other lengths write as much.
    """
    return {**hours(0, step), "run_seconds": number * step, "history_interval": number * step // 60 + 60}


def namelist(text: str, values: Mapping[str, int | str]) -> str:
    """Return a namelist with the first value of some entries replaced (that of the outermost domain).

    Parameters
    ----------
    text
        ``namelist.input`` as the case brings it.
    values
        New values by name of entry.

    Raises
    ------
    InfrastructureError
        The case's namelist does not have an entry, or has it twice.

    Examples
    --------
    >>> namelist(" run_days = 5,\\n run_hours = 0,\\n", {"run_days": 0, "run_hours": 2})
    ' run_days = 0,\\n run_hours = 2,\\n'
    """
    return replaced(text, values, file="namelist.input", between=r"\s*=\s*", value=r"[^,\s]+")
