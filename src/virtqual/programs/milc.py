"""MILC 7 (``su3_rhmd_hisq``): one run of molecular dynamics trajectories."""

from __future__ import annotations

import math
from dataclasses import dataclass

from virtqual.programs.text import (
    OutputError,
    ProgramName,
    date,
    find_all,
    positive,
    refuse_lines,
    refuse_not_finite,
    single,
)

NAME = ProgramName("MILC", "builds of version 7")
# In double precision, and as older versions print it.
_PLAQUETTE = r"-?\d\.(?:\d{16}|\d{6})"
_CHANGE = r"^(?:CHECK|ACCEPT|REJECT): delta S = (-?\d\.\d{6}e[-+]\d\d)$"
_DATE = "%a %b %d %H:%M:%S %Y"


@dataclass(frozen=True)
class MilcRun:
    """One run on a lattice of sites in x, y, z and t; `time` is the seconds of all trajectories.

    `trajectories` counts those with measurements, without warm-ups.  `plaquette` has the means of the
    space-space and space-time plaquettes (3 for a cold lattice).  `violations` are the changes of the action
    over each trajectory, which exact dynamics conserves.
    """

    version: str
    processes: int
    lattice: tuple[int, int, int, int]
    trajectories: int
    time: float
    plaquette: tuple[float, float]
    violations: tuple[float, ...]


def parse(text: str) -> MilcRun:
    """Read the output of a run over one set of parameters, in which all solves converged."""
    refuse_lines(NAME, "NOT converged|not converge|NO CONVERGENCE|terminate|[Tt]ermination:", text)
    refuse_not_finite(NAME, text)
    version = single(NAME, r"^MIMD version (7(?:\.\d+)*)\b.*$", text, "version line")[1]
    nodes = single(NAME, r"^Machine = .*, with (\d+) nodes$", text, "machine line")[1]
    begin = single(NAME, r"^WARMUPS COMPLETED$", text, "end of the warm-up")
    done = single(NAME, r"^RUNNING COMPLETED$", text, "end of the trajectories")

    def parameter(name: str) -> int:
        """Return a parameter as MILC has read it; measurements come after them."""
        return int(single(NAME, rf"^{name} (\d+)$", text[: begin.start()], f"parameter {name}")[1])

    warm_ups, trajectories = parameter("warms"), parameter("trajecs")
    changes = find_all(_CHANGE, text)
    if not len(changes) == len(find_all("delta S", text)) == warm_ups + trajectories:
        raise OutputError(
            NAME, f"{len(changes)} complete changes of the action, {warm_ups + trajectories} trajectories"
        )
    rows = find_all(rf"^PLAQ:\t({_PLAQUETTE})\t({_PLAQUETTE})\nP_LOOP:", text[begin.end() : done.start()])
    between = parameter("traj_between_meas")
    expected = trajectories // between if between else 0
    if not expected or len(rows) != expected or len(find_all(r"PLAQ:\t", text)) != expected:
        raise OutputError(NAME, f"{len(rows)} complete measurements (PLAQ), asked for {expected}")
    means = [math.fsum(float(row[group]) for row in rows) / expected for group in (1, 2)]
    return MilcRun(
        version=version,
        processes=int(nodes),
        lattice=(parameter("nx"), parameter("ny"), parameter("nz"), parameter("nt")),
        trajectories=trajectories,
        time=_read_time(text),
        plaquette=(means[0], means[1]),
        violations=tuple(float(row[1]) for row in changes),
    )


def _read_time(text: str) -> float:
    """Return the wall time of all trajectories, which is no longer than the program ran by its dates."""
    time = single(NAME, r"^Time = (\S+) seconds\ntotal_iters = \d+$", text, "time of the run")
    single(NAME, r"^Time = ", text, "line 'Time ='")
    seconds = positive(NAME, time[1], "time")
    start = single(NAME, r"^start: (.*)$", text, "line 'start:'")[1]
    exits = find_all(r"^exit: (.*)$", text)
    if not exits:
        raise OutputError(NAME, "the line 'exit:' is missing: MILC did not end by itself")
    started, ended = (date(NAME, printed, _DATE, "dates") for printed in (start, exits[-1][1]))
    # Both dates are whole seconds.
    if seconds > (ended - started).total_seconds() + 1:
        raise OutputError(NAME, f"{seconds:g} s is longer than from {started} to {ended}")
    return seconds
