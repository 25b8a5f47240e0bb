"""NAMD 2.x and 3.x: the log of a run on CPUs, and a benchmark's own configuration with other values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from virtqual.programs.text import (
    OutputError,
    ProgramName,
    find_all,
    line_of,
    number,
    positive,
    refuse_lines,
    replace_values,
    single,
)

NAME = ProgramName("NAMD", "versions 2.9 to 3.0 and builds of its repository")
_VERSION = r"^Info: NAMD +([23]\.\w[\w.]*|Git-\d{4}-\d\d-\d\d(?:-\w+)?) +for \S+$"
# Charm++ prints either line, or both in any order.
_END = r"^(?:Program finished\.|(?:\[Partition 0\]\[Node 0\] )?End of program)$"
_WALL = r"^WallClock: (\d+\.\d{6})  CPUTime: \d+\.\d{6}  Memory: .*$"


@dataclass(frozen=True)
class NamdRun:
    """One run of NAMD on as many processors, as NAMD counts them; `wall_clock` is in seconds.

    `energy` is the total energy by step in the last part (``run`` of the input), from step `first` to `last`;
    `start` is the potential energy of the coordinates at step 0.  Energies are in kcal/mol.
    """

    version: str
    processes: int
    atoms: int
    first: int
    last: int
    wall_clock: float
    energy: dict[int, float]
    start: float

    @property
    def drift(self) -> float:
        """Relative change of the total energy from the first to the last printed step."""
        first, last = self.energy[self.first], self.energy[self.last]
        return abs(last - first) / abs(first)


def parse(text: str) -> NamdRun:
    """Read the log of exactly one run without errors."""
    refuse_lines(NAME, "^(?:FATAL )?ERROR:", text)
    if "Charm++> Running in SMP mode" in text:
        raise OutputError(
            NAME, "threads of communication (SMP mode) share the cores of its ranks: use a build without SMP"
        )

    def find_value(pattern: str, what: str) -> str:
        return single(NAME, pattern, text, what)[1]

    version = find_value(_VERSION, "version line")
    processes = find_value(
        r"^Info: Running on (\d+) processors, \d+ nodes, \d+ physical nodes\.$", "processors"
    )
    atoms = find_value(r"^Info: (\d+) ATOMS$", "number of atoms")
    what = "interval of energies"
    interval = int(positive(NAME, find_value(r"^Info: ENERGY OUTPUT STEPS +(\d+)$", what), what))
    wall_clock = positive(NAME, find_value(_WALL, "line 'WallClock'"), "wall clock")
    if not find_all(_END, text):
        single(NAME, _END, text, "end of program")
    last = int(find_value(r"^WRITING VELOCITIES TO OUTPUT FILE AT STEP (\d+)$", "final velocities"))
    begin, steps = _last_part(text)
    energy, start = _energy(text, begin)
    if list(energy) != list(range(last - steps, last + 1, interval)):
        raise OutputError(
            NAME, f"energies of steps {list(energy)}, not every {interval} from {last - steps} to {last}"
        )
    return NamdRun(
        version=version,
        processes=int(processes),
        atoms=int(atoms),
        first=last - steps,
        last=last,
        wall_clock=wall_clock,
        energy=energy,
        start=start,
    )


def _last_part(text: str) -> tuple[int, int]:
    """Return the offset at which the last part of the run begins, and its steps."""
    parts = find_all(r"^TCL: (Running|Minimizing) for (\d+) steps$", text)
    if not parts:
        steps = single(NAME, r"^Info: NUMBER OF STEPS +(\d+)$", text, "number of steps")
        return steps.end(), int(steps[1])
    if parts[-1][1] != "Running":
        raise OutputError(NAME, f"line {line_of(text, parts[-1].start())}: the last part is no dynamics")
    return parts[-1].end(), int(parts[-1][2])


def _energy(text: str, begin: int) -> tuple[dict[int, float], float]:
    """Return the total energies of the last part by step, and the potential energy at step 0."""
    # On GPUs, dynamics has TOTALAVG where minimization has TOTAL3; neither is read.
    titles = {match[0].replace("TOTALAVG", "  TOTAL3") for match in find_all(r"^ETITLE:.*$", text)}
    if len(titles) != 1:
        raise OutputError(NAME, f"{len(titles)} different headers (ETITLE) of the energies")
    names = titles.pop().split()[1:]
    energy: dict[int, float] = {}
    start: float | None = None
    for match in find_all(r"^ENERGY:.*$", text):
        line = line_of(text, match.start())
        words = match[0].split()[1:]
        if len(words) != len(names):
            raise OutputError(NAME, f"line {line} has {len(words)} energies, the header {len(names)}")
        values = {
            name: number(NAME, word, f"{name} at line {line}")
            for name, word in zip(names, words, strict=True)
        }
        terms = sum(values[name] for name in names[1 : names.index("TOTAL")])
        # Each is printed with four decimals.
        if abs(terms - values["TOTAL"]) > 1e-3:
            raise OutputError(
                NAME, f"line {line}: TOTAL is {values['TOTAL']}, the sum of its terms {terms:.4f}"
            )
        step = int(values["TS"])
        if start is None:
            if step != 0:
                raise OutputError(NAME, f"line {line}: the first energies are of step {step}, not 0")
            start = values["TOTAL"] - values["KINETIC"]
        elif step == 0:
            raise OutputError(NAME, f"line {line}: the energies of step 0 are there twice")
        if match.start() > begin:
            if step in energy:
                raise OutputError(NAME, f"line {line}: the energies of step {step} are there twice")
            energy[step] = values["TOTAL"]
    if start is None:
        raise OutputError(NAME, "no energies")
    return energy, start


def configuration(text: str, values: Mapping[str, int | str]) -> str:
    """Return a benchmark's own configuration with new values of some keywords (see `replace_values`)."""
    return replace_values(text, values, file="the configuration", separator=r"\s+", value=r"\S+")
