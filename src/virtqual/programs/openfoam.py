"""OpenFOAM's icoFoam: the lid-driven cavity in three dimensions, and the output of a run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from virtqual.programs import sizes
from virtqual.programs.text import (
    NUMBER,
    OutputError,
    ProgramName,
    find_all,
    number,
    refuse_lines,
    refuse_not_finite,
    single,
)

NAME = ProgramName("OpenFOAM", "versions of OpenCFD and of the Foundation")
#: The edge of the cavity, m, and the speed of its lid, m/s.
EDGE_M, LID_M_PER_S = 0.1, 1.0
#: Residuals below which the solver of a field ends.
TOLERANCES = {"Ux": 1e-6, "Uy": 1e-6, "Uz": 1e-6, "p": 1e-7}
#: It was 4e-10 at most in runs whose solvers converged.
MAX_CONTINUITY_ERROR = 1e-8
#: In the cell beside the centre, for any number of cells up to 500 along an edge.
CENTRE_M = 0.501 * EDGE_M
PROBE = "postProcessing/centre/0/U"
Entries = Mapping[str, object]
_CORNERS = tuple((x, y, z) for z in (0, 1) for x, y in ((0, 0), (1, 0), (1, 1), (0, 1)))

_PRESSURE_SOLVER = {"solver": "PCG", "preconditioner": "DIC", "tolerance": TOLERANCES["p"], "relTol": 0}
_VELOCITY_SOLVER = {
    "solver": "smoothSolver",
    "smoother": "symGaussSeidel",
    "tolerance": TOLERANCES["Ux"],
    "relTol": 0,
}
_SOLUTION: Entries = {
    "solvers": {"p": _PRESSURE_SOLVER, "pFinal": _PRESSURE_SOLVER, "U": _VELOCITY_SOLVER},
    "PISO": {"nCorrectors": 2, "nNonOrthogonalCorrectors": 0, "pRefCell": 0, "pRefValue": 0},
}
_SCHEMES: Entries = {
    "ddtSchemes": {"default": "Euler"},
    "gradSchemes": {"default": "Gauss linear"},
    "divSchemes": {"default": "none", "div(phi,U)": "Gauss linear"},
    "laplacianSchemes": {"default": "Gauss linear orthogonal"},
    "interpolationSchemes": {"default": "linear"},
    "snGradSchemes": {"default": "orthogonal"},
}
_VELOCITY: Entries = {
    "dimensions": "[0 1 -1 0 0 0 0]",
    "internalField": "uniform (0 0 0)",
    "boundaryField": {
        "lid": {"type": "fixedValue", "value": f"uniform ({LID_M_PER_S} 0 0)"},
        "walls": {"type": "noSlip"},
    },
}
_PRESSURE: Entries = {
    "dimensions": "[0 2 -2 0 0 0 0]",
    "internalField": "uniform 0",
    "boundaryField": {"lid": {"type": "zeroGradient"}, "walls": {"type": "zeroGradient"}},
}


def _match_solution(field: str) -> str:
    return (
        rf"\w+:  Solving for {field}, Initial residual = {NUMBER}, Final residual = ({NUMBER}), "
        r"No Iterations \d+"
    )


_CONTINUITY = (
    rf"time step continuity errors : sum local = ({NUMBER}), global = {NUMBER}, cumulative = {NUMBER}"
)
# OpenCFD's builds state "OPENFOAM=2206" since v1812; before, and in the Foundation's, the version is first.
_BUILD = r".*\bOPENFOAM=(\d+)\b.*|v?(\d+(?:\.[\dx]+)*\+?|dev)(?:-\w+)?"
#: The lines of a time step.
_STEP = (
    # The Foundation's versions from 9 on print a unit.
    rf"Time = ({NUMBER})s?",
    rf"Courant Number mean: {NUMBER} max: {NUMBER}",
    *map(_match_solution, ("Ux", "Uy", "Uz")),
    *(_match_solution("p"), _CONTINUITY) * 2,
    rf"ExecutionTime = {NUMBER} s  ClockTime = (\d+) s",
)


@dataclass(frozen=True)
class OpenfoamRun:
    """A run of icoFoam; `clock_time` is the whole seconds since its start."""

    version: str
    processes: int
    clock_time: int


@dataclass(frozen=True)
class SolverTime:
    """A run of any solver: its name, its time steps, and the whole seconds from its start to the last one."""

    solver: str
    processes: int
    steps: int
    clock_time: int


def parse_time(text: str) -> SolverTime:
    """Read the log of exactly one run of any solver that came to its end."""
    refuse_lines(NAME, "--> FOAM FATAL", text)
    solver = single(NAME, r"^Exec +: (\S+)", text, "line 'Exec'")[1].rpartition("/")[2]
    processes = int(single(NAME, r"^nProcs : (\d+)$", text, "number of processes")[1])
    single(NAME, r"^End$", text, "end")
    times = find_all(r"^ExecutionTime = \S+ s  ClockTime = (\d+) s$", text)
    if not times:
        raise OutputError(NAME, "no line 'ExecutionTime = ... ClockTime = ...'")
    clock_time = int(times[-1][1])
    if not clock_time:
        raise OutputError(NAME, "it took less than a second, and its log has whole seconds")
    return SolverTime(solver, processes, len(times), clock_time)


def parse(text: str, steps: int) -> OpenfoamRun:
    """Read the log of exactly one run of so many time steps."""
    # Several processes begin their lines with their number.
    refuse_lines(NAME, "--> FOAM FATAL", text)
    line = single(NAME, r"^Build +: (.*)$", text, "line 'Build'")[1]
    build = re.fullmatch(_BUILD, line, re.ASCII)
    if not build:
        raise OutputError(NAME, f"the line 'Build' has no version as {NAME.versions} print it: {line!r}")
    processes = int(single(NAME, r"^nProcs : (\d+)$", text, "number of processes")[1])
    begin = single(NAME, r"^Starting time loop$", text, "begin of the time loop").end()
    end = single(NAME, r"^End$", text, "end of the time loop")
    if (rest := text[end.end() :].strip()) not in ("", "Finalising parallel run"):
        raise OutputError(NAME, f"{rest[:60]!r} follows the end of the run")
    loop = text[begin : end.start()]
    refuse_not_finite(NAME, "\n" * text.count("\n", 0, begin) + loop)
    lines = [line for line in loop.split("\n") if line]
    if lines and not any("Solving for Uz," in line for line in lines):
        raise OutputError(
            NAME, "no line 'Solving for Uz': the case has two dimensions, the check's has three"
        )
    if not lines or len(lines) != steps * len(_STEP):
        raise OutputError(NAME, f"{len(lines)} lines in the time loop, {steps} steps have {len(_STEP)} each")
    rows = [_read_step(lines[first : first + len(_STEP)]) for first in range(0, len(lines), len(_STEP))]
    _check_times([row[0] for row in rows])
    _check_convergence(rows)
    return OpenfoamRun(build[1] or build[2], processes, clock_time=int(rows[-1][-1]))


def _read_step(lines: Sequence[str]) -> list[float]:
    values: list[float] = []
    for line, pattern in zip(lines, _STEP, strict=True):
        match = re.fullmatch(pattern, line, re.ASCII)
        if not match:
            raise OutputError(NAME, f"a time step has the unexpected line {line[:90]!r}")
        values += (number(NAME, value, f"a line of the step {lines[0]!r}") for value in match.groups())
    return values


def _check_times(times: Sequence[float]) -> None:
    """Refuse times that are not equal steps from 0 on."""
    for step, time in enumerate(times, 1):
        if not math.isclose(time, step * times[0], rel_tol=1e-4):
            raise OutputError(NAME, f"time {time:g} is not step {step} of {times[0]:g} s")


def _check_convergence(rows: Sequence[Sequence[float]]) -> None:
    """Refuse a step that a solver left too early, or after which cells gain or lose fluid."""
    for row in rows:
        for field, residual in zip((*TOLERANCES, "p"), (*row[1:5], row[6]), strict=True):
            if not 0 <= residual <= TOLERANCES[field]:
                raise OutputError(
                    NAME, f"time {row[0]:g}: the residual of {field} is {residual:g} in the end"
                )
        if row[7] > MAX_CONTINUITY_ERROR:
            raise OutputError(NAME, f"time {row[0]:g}: the flow into cells is not that out, by {row[7]:g}")


def read_cells(text: str) -> int:
    """Return the number of cells that blockMesh made."""
    return int(single(NAME, r"^\s*nCells: (\d+)$", text, "number of cells")[1])


def parse_probe(text: str, steps: int) -> dict[float, tuple[float, ...]]:
    """Return the velocity at a probe by time, m/s."""
    velocities: dict[float, tuple[float, ...]] = {}
    rows = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
    for row in rows:
        match = re.fullmatch(rf"\s*({NUMBER})\s+\(({NUMBER}) ({NUMBER}) ({NUMBER})\)\s*", row, re.ASCII)
        if not match:
            raise OutputError(NAME, f"{row[:60]!r} is no velocity of the probe")
        time, *velocity = (number(NAME, value, "velocity of the probe") for value in match.groups())
        velocities[time] = tuple(velocity)
    if not len(velocities) == len(rows) == steps:
        raise OutputError(NAME, f"the probe has {len(rows)} rows, asked for {steps}")
    _check_times(list(velocities))
    return velocities


def write_case(cells: int, steps: int, ranks: int) -> dict[str, str]:
    """Return the files of a cavity of so many cells along each edge; the lid moves by a cell a step."""
    decomposition = {
        "numberOfSubdomains": ranks,
        "method": "simple",
        "simpleCoeffs": {"n": _format_vector(*sizes.split_cubically(ranks)), "delta": 0.001},
    }
    return {
        "system/blockMeshDict": _format_file(_describe_mesh(cells)),
        "system/controlDict": _format_file(_describe_control(cells, steps)),
        "system/fvSolution": _format_file(_SOLUTION),
        "system/fvSchemes": _format_file(_SCHEMES),
        "system/decomposeParDict": _format_file(decomposition),
        # The Foundation's versions from 10 on read the other name.
        **dict.fromkeys(
            ("constant/transportProperties", "constant/physicalProperties"),
            _format_file({"nu": "[0 2 -1 0 0 0 0] 0.01"}),
        ),
        "0/U": _format_file(_VELOCITY, "volVectorField"),
        "0/p": _format_file(_PRESSURE, "volScalarField"),
    }


def _describe_control(cells: int, steps: int) -> Entries:
    """Write the velocity beside the centre at each step, and no field."""
    step_s = EDGE_M / cells / LID_M_PER_S
    probe = {
        "type": "probes",
        "libs": '("libsampling.so")',
        "fields": "(U)",
        "probeLocations": f"({_format_vector(*[CENTRE_M] * 3)})",
        "writeControl": "timeStep",
        "writeInterval": 1,
    }
    return {
        "application": "icoFoam",
        "startFrom": "startTime",
        "startTime": 0,
        "stopAt": "endTime",
        "endTime": steps * step_s,
        "deltaT": step_s,
        "writeControl": "timeStep",
        "writeInterval": 1_000_000,
        "writePrecision": 10,
        "timePrecision": 12,
        "runTimeModifiable": "no",
        "functions": {"centre": probe},
    }


def _describe_mesh(cells: int) -> Entries:
    corners = " ".join(_format_vector(*(EDGE_M * part for part in corner)) for corner in _CORNERS)
    return {
        "vertices": f"({corners})",
        "blocks": f"(hex (0 1 2 3 4 5 6 7) {_format_vector(*[cells] * 3)} simpleGrading (1 1 1))",
        "edges": "()",
        "boundary": "(lid { type wall; faces ((3 7 6 2)); } walls { type wall; "
        "faces ((0 4 7 3) (2 6 5 1) (1 5 4 0) (0 3 2 1) (4 5 6 7)); })",
    }


def _format_vector(*values: float) -> str:
    return f"({' '.join(f'{value:.12g}' for value in values)})"


def _format_file(entries: Entries, kind: str = "dictionary") -> str:
    header = {"version": "2.0", "format": "ascii", "class": kind, "object": "case"}
    return _format_entries({"FoamFile": header, **entries})


def _format_entries(entries: Entries) -> str:
    lines = []
    for name, value in entries.items():
        if isinstance(value, Mapping):
            lines.append(f"{name}\n{{\n{_format_entries(value)}}}\n")
        else:
            lines.append(f"{name} {f'{value:.12g}' if isinstance(value, float) else value};\n")
    return "".join(lines)
