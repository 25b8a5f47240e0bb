"""LAMMPS logs of one run (both thermo styles of its benchmarks: ``one`` and ``multi``)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from virtqual.outputs.text import OutputError, one, positive

NAME = "LAMMPS"
_NUMBER = r"-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"


@dataclass(frozen=True)
class Lammps:
    """One run of LAMMPS.

    Attributes
    ----------
    version
        As the first line gives it, e.g. ``22 Jul 2025 - Update 4``.
    loop_time
        Wall time of the time-stepping loop in seconds.
    tasks, threads
        MPI tasks, and OpenMP threads a task.
    steps, atoms
        Of the run.
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


def parse(text: str) -> Lammps:
    """Read the log of exactly one run.

    Raises
    ------
    OutputError
        An error was printed, or a line is missing, split or there more than once.
    """
    if error := re.search(r"^ERROR.*$", text, re.MULTILINE):
        raise OutputError(NAME, error[0].strip())
    version = one(NAME, r"^LAMMPS \(([^)]+)\)$", text, "version line")[1]
    loop = one(
        NAME,
        r"^Loop time of (\S+) on (\d+) procs for (\d+) steps with (\d+) atoms$",
        text,
        "line 'Loop time of ...'",
    )
    use = one(NAME, r"^(\S+)% CPU use with (\d+) MPI tasks x (\d+) OpenMP threads$", text, "line '% CPU use'")
    comm = one(NAME, r"^Comm +\|.*\| *(\S+)$", text, "timing of Comm")
    one(NAME, r"^Total # of neighbors = \d+$", text, "closing neighbour statistics")
    procs, steps, atoms = (int(loop[i]) for i in (2, 3, 4))
    tasks, threads = int(use[2]), int(use[3])
    if procs != tasks * threads:
        raise OutputError(NAME, f"{procs} procs in the loop line, {tasks} x {threads} in the CPU line")
    return Lammps(
        version=version,
        loop_time=positive(NAME, loop[1], "loop time"),
        tasks=tasks,
        threads=threads,
        steps=steps,
        atoms=atoms,
        energy=_energy(text, steps),
        cpu_use=positive(NAME, use[1], "CPU use"),
        comm=float(comm[1]),
    )


def _energy(text: str, steps: int) -> dict[int, float]:
    if "- Step " in text:
        rows = re.findall(rf"^-+ Step +(\d+) -.*\nTotEng +=\s+({_NUMBER}) ", text, re.MULTILINE)
    else:
        head = one(NAME, r"^ *Step .*\bTotEng\b.*$", text, "thermo header")
        names = head[0].split()
        rows = []
        for line in text[head.end() + 1 :].splitlines():
            fields = line.split()
            if line.startswith("Loop time"):
                break
            if len(fields) == len(names) and fields[0].isdigit():
                rows.append((fields[0], fields[names.index("TotEng")]))
            elif not line.startswith("WARNING"):
                raise OutputError(NAME, f"thermo table is broken at {line!r}")
    energy = {int(step): float(value) for step, value in rows}
    if len(energy) != len(rows) or not {0, steps} <= energy.keys():
        raise OutputError(NAME, f"thermo table has steps {[r[0] for r in rows]}, not 0 to {steps} once each")
    return energy
