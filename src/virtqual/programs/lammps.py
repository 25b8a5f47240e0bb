"""LAMMPS logs of one run (both thermo styles of its benchmarks: ``one`` and ``multi``)."""

from __future__ import annotations

from dataclasses import dataclass

from virtqual.programs.text import (
    NUMBER,
    OutputError,
    ProgramName,
    check_product,
    find_all,
    line_of,
    number,
    positive,
    refuse_lines,
    refuse_not_finite,
    single,
    whole_number,
)

NAME = ProgramName("LAMMPS", "versions of 2016 and later")
_LOOP = r"^Loop time of (\S+) on (\d+) procs for (\d+) steps with (\d+) atoms$"
# "no" if it was built without OpenMP.
_CPU = r"^(\d+\.\d)% CPU use with (\d+) MPI tasks x (\d+|no) OpenMP threads$"


@dataclass(frozen=True)
class LammpsRun:
    """One run of LAMMPS.

    `loop_time` is the wall time of the time steps in seconds, `energy` the total energy by step in units of
    the input.  `cpu_use` is the CPU time over the wall time of the loop, and `comm_percent` the share of the
    loop in communication, both in percent and for the average task.
    """

    loop_time: float
    tasks: int
    steps: int
    atoms: int
    energy: dict[int, float]
    cpu_use: float
    comm_percent: float

    @property
    def drift(self) -> float:
        """Relative change of the total energy from the first to the last printed step."""
        first, last = self.energy[min(self.energy)], self.energy[max(self.energy)]
        return abs(last - first) / abs(first)


def parse(text: str) -> LammpsRun:
    """Read the log of exactly one run without errors."""
    refuse_lines(NAME, "^ERROR", text)
    single(NAME, r"^LAMMPS \([^)]+\)$", text, "version line")
    loop = single(NAME, _LOOP, text, "line 'Loop time of ...'")
    cpu = single(NAME, _CPU, text, "line '% CPU use'")
    comm = single(NAME, r"^Comm +(?:\| *\S+ *){4}\| *(\d+\.\d\d)$", text, "timing of Comm")
    # More than eight digits are printed as 7.8015293e+08.
    single(NAME, r"^Total # of neighbors = \d+(\.\d+)?(e\+\d\d)?$", text, "closing neighbour statistics")
    processes, steps, atoms = (int(loop[group]) for group in (2, 3, 4))
    tasks, threads = int(cpu[2]), 1 if cpu[3] == "no" else int(cpu[3])
    if processes != tasks * threads:
        raise OutputError(NAME, f"{processes} procs in the loop line, {tasks} x {threads} in the CPU line")
    rate = single(NAME, r"^Performance: .* (\S+) timesteps/s", text, "performance")[1]
    # Six digits are printed, without zeros at the end.
    loop_time = loop[1] if "." in loop[1] else f"{loop[1]}.000"
    check_product(NAME, "loop time x timesteps/s", loop[3], loop_time, rate)
    rows = _blocks(text[: loop.start()]) if "- Step " in text else _table(text)
    printed = [step for step, _ in rows]
    if printed != sorted(set(printed)) or not {0, steps} <= set(printed):
        raise OutputError(NAME, f"thermo table has steps {printed}, not 0 to {steps} once each")
    return LammpsRun(
        loop_time=float(loop[1]),
        tasks=tasks,
        steps=steps,
        atoms=atoms,
        energy=dict(rows),
        cpu_use=positive(NAME, cpu[1], "CPU use"),
        comm_percent=float(comm[1]),
    )


def _blocks(text: str) -> list[tuple[int, float]]:
    """Return step and total energy of each block of the style ``multi``."""
    heads = find_all(r"^-+ Step +\d+ -.*$", text)
    if heads:
        begin = heads[0].start()
        refuse_not_finite(NAME, "\n" * text.count("\n", 0, begin) + text[begin:])
    rows = find_all(rf"^-+ Step +(\d+) -.*\nTotEng +=\s+({NUMBER}) KinEng ", text)
    if len(heads) != len(rows):
        raise OutputError(NAME, f"broken blocks of the thermo output: {len(heads) - len(rows)}")
    return [(int(row[1]), number(NAME, row[2], f"TotEng at step {row[1]}")) for row in rows]


def _table(text: str) -> list[tuple[int, float]]:
    """Return step and total energy of each row of the style ``one``, which has a header and a row a step."""
    head = single(NAME, r"^ *Step .*\bTotEng\b.*$", text, "thermo header")
    names = head[0].split()
    rows: list[tuple[int, float]] = []
    for line, row in enumerate(text[head.end() + 1 :].split("\n"), line_of(text, head.end()) + 1):
        if row.startswith("Loop time"):
            break
        if row.startswith("WARNING"):
            continue
        words = row.split()
        if len(words) != len(names) or not words[0].isdigit():
            raise OutputError(NAME, f"line {line} is not a row of the thermo table: {row!r}")
        values = {
            name: number(NAME, word, f"{name} at line {line}")
            for name, word in zip(names, words, strict=True)
        }
        step = whole_number(NAME, words[names.index("Step")], f"step at line {line}")
        rows.append((step, values["TotEng"]))
    return rows
