"""MILC 7 (``su3_rmd``, ``su3_rhmd_hisq`` and siblings): one run of molecular dynamics trajectories."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from virtqual.programs.text import (
    NUMBER,
    OutputError,
    every,
    line_of,
    number,
    ordered,
    positive,
    printable,
    resolution,
    single,
    whole_number,
)

NAME = "MILC"
# In double precision, and as older versions print it.
_PLAQUETTE = r"-?\d\.(?:\d{16}|\d{6})"
_DATE = r"\w{3} (\w{3} +\d+ [\d:]{8} \d{4})"
_DIMENSIONS = ("nx", "ny", "nz", "nt")


@dataclass(frozen=True)
class MilcRun:
    """One run.

    Attributes
    ----------
    version
        E.g. ``7.8.1``.
    processes
        MPI processes ("nodes" in MILC's words).
    lattice
        Sites in x, y, z and t.
    warmups, trajectories
        Trajectories before, and with, measurements.
    time
        Wall time of all trajectories in seconds.
    plaquette
        Space-space and space-time plaquette, mean of all measurements (3 for a cold lattice).
    violations
        Change of the action over each trajectory (no unit; the exact dynamics would conserve it);
        empty for programs that do not say (those without rational functions).
    """

    version: str
    processes: int
    lattice: tuple[int, int, int, int]
    warmups: int
    trajectories: int
    time: float
    plaquette: tuple[float, float]
    violations: tuple[float, ...] = ()


def parse(text: str) -> MilcRun:
    """Read the output of a run over one set of parameters.

    Raises
    ------
    OutputError
        A line is missing, split, doubled or out of order, a solve did not converge, a measurement is missing,
        or a plaquette is not one of SU(3).
    """
    printable(NAME, text)
    version = single(NAME, r"^MIMD version (7(?:\.\d+)*)\b.*$", text, "version line")
    nodes = single(NAME, r"^Machine = .*, with (\d+) nodes$", text, "machine line")
    begin = single(NAME, r"^WARMUPS COMPLETED$", text, "end of the warm-up")
    done = single(NAME, r"^RUNNING COMPLETED$", text, "end of the trajectories")
    time = single(NAME, r"^Time = (\d\.\d{6}e[-+]\d\d) seconds\ntotal_iters = \d+$", text, "time of the run")
    exits = every(rf"^exit: {_DATE}$", text)
    if not exits:
        raise OutputError(NAME, "the line 'exit:' is missing: MILC did not end by itself")
    ordered(NAME, (version, nodes, begin, done, time, exits[0]), "report")
    if bad := every(r"^.*(?:NOT converged|not converge|NO CONVERGENCE|terminate).*$", text):
        raise OutputError(NAME, f"line {line_of(text, bad[0].start())}: {bad[0][0].strip()}")
    # Read back by MILC after the prompt's echo; the lattice is said once in each.
    lattice = tuple(_said(text[: begin.start()], name) for name in _DIMENSIONS)
    warmups, trajectories, between = (
        _said(text[: begin.start()], name) for name in ("warms", "trajecs", "traj_between_meas")
    )
    single(NAME, r"^Time = ", text, "line 'Time ='")
    seconds = positive(NAME, time[1], "time")
    _check_time(text[: time.start()], seconds, exits[-1][1])
    rows = every(rf"^PLAQ:\t({_PLAQUETTE})\t({_PLAQUETTE})\nP_LOOP:", text[begin.end() : done.start()])
    action = every(r"^(?:CHECK|ACCEPT|REJECT): delta S = (-?\d\.\d{6}e[-+]\d\d)$", text)
    if len(action) not in (0, warmups + trajectories) or len(every(r"delta S", text)) != len(action):
        raise OutputError(
            NAME, f"{len(action)} whole changes of the action, {warmups + trajectories} trajectories"
        )
    wanted = trajectories // between if between else 0
    if len(rows) != wanted or not wanted or len(every(r"PLAQ:\t", text)) != wanted:
        raise OutputError(NAME, f"{len(rows)} whole measurements (PLAQ), asked for {wanted}")
    return MilcRun(
        version=version[1],
        processes=whole_number(NAME, nodes[1], "nodes"),
        lattice=(lattice[0], lattice[1], lattice[2], lattice[3]),
        warmups=warmups,
        trajectories=trajectories,
        time=seconds,
        plaquette=(_plaquette([row[1] for row in rows]), _plaquette([row[2] for row in rows])),
        violations=tuple(number(NAME, row[1], "change of the action") for row in action),
    )


def _check_time(before: str, seconds: float, end: str) -> None:
    """Refuse a time that is longer than the program ran by its dates, or shorter than a part of it.

    Parameters
    ----------
    before
        The output before the time.
    seconds
        The time.
    end
        The date of the program's end.
    """
    begin = single(NAME, rf"^start: {_DATE}$", before, "line 'start:'")[1]
    try:
        first, last = (datetime.strptime(date, "%b %d %H:%M:%S %Y") for date in (begin, end))
    except ValueError:
        raise OutputError(NAME, f"{begin!r} or {end!r} is no date") from None
    # Each date is cut to a whole second.
    if seconds > (last - first).total_seconds() + 1:
        raise OutputError(NAME, f"Time = {seconds:g} s, but the program ran from {begin} to {end}")
    # Parts of one name follow each other; those of two names may lie in each other.
    parts: dict[str, list[str]] = {}
    for row in every(rf"^(\w+TIME): +time = ({NUMBER})\b", before):
        parts.setdefault(row[1], []).append(row[2])
    for name, printed in parts.items():
        spent = sum(positive(NAME, text, name) - resolution(text) for text in printed)
        if spent > seconds * (1 + 1e-6):
            raise OutputError(NAME, f"Time = {seconds:g} s, but {name} alone took {spent:g} s")


def _said(text: str, name: str) -> int:
    return whole_number(NAME, single(NAME, rf"^{name} (\d+)$", text, f"parameter {name}")[1], name)


def _plaquette(printed: list[str]) -> float:
    for text in printed:
        if not -1.5 <= number(NAME, text, "plaquette") <= 3:
            raise OutputError(NAME, f"plaquette {text} is not in [-1.5, 3], the range of SU(3)")
    return math.fsum(map(float, printed)) / len(printed)
