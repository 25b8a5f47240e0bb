"""LAMMPS logs of one run (both thermo styles of its benchmarks: ``one`` and ``multi``)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from virtqual.programs.text import (
    NUMBER,
    OutputError,
    agree,
    every,
    line_of,
    number,
    positive,
    printable,
    resolution,
    single,
    whole_number,
)

NAME = "LAMMPS"


@dataclass(frozen=True)
class LammpsRun:
    """One run of LAMMPS.

    Attributes
    ----------
    version
        The version in the first line, e.g. ``22 Jul 2025 - Update 4``.
    loop_time
        Wall time of the time-stepping loop in seconds.
    tasks, threads
        MPI tasks, and OpenMP threads a task.
    steps, atoms
        Steps of the run, and atoms.
    energy
        Total energy by step in the input's units, first and last step at least.
    cpu_use
        CPU time over wall time of the loop, in percent of one CPU a task.
    comm
        Share of the loop that the average task spent in communication, in percent.
    """

    version: str
    loop_time: float
    tasks: int
    threads: int
    steps: int
    atoms: int
    energy: dict[int, float]
    cpu_use: float
    comm: float

    @property
    def drift(self) -> float:
        """Relative change of the total energy from the first to the last printed step."""
        first, last = self.energy[min(self.energy)], self.energy[max(self.energy)]
        return abs(last - first) / abs(first)


def parse(text: str) -> LammpsRun:
    """Read the log of exactly one run.

    Raises
    ------
    OutputError
        An error was printed, a line is missing, split or there more than once, or two lines disagree.
    """
    printable(NAME, text)
    if error := re.search(r"^ERROR.*$", text, re.MULTILINE):
        raise OutputError(NAME, f"line {line_of(text, error.start())}: {error[0].strip()}")
    version = single(NAME, r"^LAMMPS \(([^)]+)\)$", text, "version line")[1]
    loop = single(
        NAME,
        r"^Loop time of (\S+) on (\d+) procs for (\d+) steps with (\d+) atoms$",
        text,
        "line 'Loop time of ...'",
    )
    # "no" where it was built without OpenMP.
    use = single(
        NAME, r"^(\d+\.\d)% CPU use with (\d+) MPI tasks x (\d+|no) OpenMP threads$", text, "line '% CPU use'"
    )
    comm = single(NAME, r"^Comm +(?:\| *\S+ *){4}\| *(\d+\.\d\d)$", text, "timing of Comm")
    # Of more than eight digits it is printed as such as 7.8015293e+08.
    single(NAME, r"^Total # of neighbors = \d+(\.\d+)?(e\+\d\d)?$", text, "closing neighbour statistics")
    procs, steps, atoms = (int(loop[i]) for i in (2, 3, 4))
    tasks, threads = int(use[2]), 1 if use[3] == "no" else int(use[3])
    if procs != tasks * threads:
        raise OutputError(NAME, f"{procs} procs in the loop line, {tasks} x {threads} in the CPU line")
    time = positive(NAME, loop[1], "loop time")
    _performance(text, time, steps, atoms)
    share = single(NAME, r"^Comm +\|[^|]*\| *(\S+) *\|", text, "average time of Comm")[1]
    if abs(100 * number(NAME, share, "time of Comm") / time - float(comm[1])) > 0.011:
        raise OutputError(NAME, f"Comm took {share} s of {time} s, which is not {comm[1]} %")
    return LammpsRun(
        version=version,
        loop_time=time,
        tasks=tasks,
        threads=threads,
        steps=steps,
        atoms=atoms,
        energy=_energy(text, steps),
        cpu_use=positive(NAME, use[1], "CPU use"),
        comm=float(comm[1]),
    )


def _performance(text: str, time: float, steps: int, atoms: int) -> None:
    """Assert that the rates, which LAMMPS prints besides, are those of the loop line."""
    line = single(
        NAME,
        r"^Performance: .* ([\d.]+) timesteps/s(?:, ([\d.]+) ([kMGT]?)atom-step/s)?$",
        text,
        "performance",
    )
    rates = [(float(steps), line[1])]
    if line[2]:
        rates.append((steps * atoms / 1e3 ** " kMGT".index(line[3] or " "), line[2]))
    for done, printed in rates:
        rate = positive(NAME, printed, "performance")
        if not agree(done / time, rate, resolution(printed) / rate, resolution(f"{time:.6g}") / time):
            raise OutputError(NAME, f"{steps} steps of {atoms} atoms in {time} s are not {line[0]!r}")


def _energy(text: str, steps: int) -> dict[int, float]:
    rows = _blocks(text) if "- Step " in text else _table(text)
    energy = dict(rows)
    if [row[0] for row in rows] != sorted(energy) or not {0, steps} <= energy.keys():
        raise OutputError(
            NAME, f"thermo table has steps {[row[0] for row in rows]}, not 0 to {steps} once each"
        )
    return energy


def _blocks(text: str) -> list[tuple[int, float]]:
    """Read the style ``multi``: total, kinetic and potential energy are in every block."""
    heads = every(r"^-+ Step +(\d+) -.*$", text)
    rows = every(
        rf"^-+ Step +(\d+) -.*\nTotEng +=\s+({NUMBER}) KinEng +=\s+({NUMBER}) Temp.*\n"
        rf"PotEng +=\s+({NUMBER}) ",
        text,
    )
    if len(heads) != len(rows):
        raise OutputError(NAME, f"{len(heads) - len(rows)} blocks of the thermo output are broken")
    for row in rows:
        if abs(float(row[2]) - float(row[3]) - float(row[4])) > 2.1e-4:
            where = f"line {line_of(text, row.start())}"
            raise OutputError(NAME, f"{where}: {row[2]} is not {row[3]} kinetic and {row[4]} potential")
    return [(int(row[1]), float(row[2])) for row in rows]


def _table(text: str) -> list[tuple[int, float]]:
    """Read the style ``one``: a header and a row a step."""
    head = single(NAME, r"^ *Step .*\bTotEng\b.*$", text, "thermo header")
    names = head[0].split()
    column = names.index("TotEng")
    rows: list[tuple[int, float]] = []
    places: list[list[int]] = []
    for line, row in enumerate(text[head.end() + 1 :].split("\n"), line_of(text, head.end()) + 1):
        if row.startswith("Loop time"):
            return rows
        if row.startswith("WARNING"):
            continue
        fields = list(re.finditer(rf"-?({NUMBER})(?= |$)", row))
        if len(fields) != len(names) or len(row.split()) != len(names):
            raise OutputError(NAME, f"line {line} is no row of the thermo table: {row!r}")
        # Columns are left-aligned (a blank for the sign), before 2022 right-aligned.
        places.append([field.start(1) for field in fields[1:]] + [len(row)])
        places[-1] += [field.end() for field in fields]
        half = len(names)
        if places[-1][:half] != places[0][:half] and places[-1][half:] != places[0][half:]:
            raise OutputError(NAME, f"line {line} of the thermo table is not in its columns: {row!r}")
        step_number = whole_number(NAME, fields[0][0], f"step at line {line}")
        rows.append((step_number, number(NAME, fields[column][0], f"TotEng at line {line}")))
    raise OutputError(NAME, "the thermo table does not end")
