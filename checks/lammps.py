"""LAMMPS: the molecular dynamics benchmarks that it brings along, with the physics checked."""

import math
import shutil
from pathlib import Path
from typing import NamedTuple

from virtqual.programs import lammps as output
from virtqual.programs import sizes
from virtqual.programs.text import OutputError
from virtqual.runs import Result

from . import counts, overhead
from .asked import as_asked
from .base import Measurement
from .scaling import Scaling

ATOMS = 32000
DAY_S = 86400


class LammpsBenchmark(NamedTuple):
    """A benchmark of LAMMPS."""

    #: Total energy before the first step (from its log of 2025).
    energy: float
    #: Whether the energy is an atom's; else it is that of all.
    per_atom: bool
    #: By scale.  At `standard` a box for every two cores takes 40 to 60 s, by the rates of a core in LAMMPS's
    #: own logs of 2025.
    steps: dict[str, int]
    #: Largest change of the total energy, as a share of it: in `standard` steps it moved by 0.0002 (eam) to
    #: 0.0035 (chain), and by 0.007 where a barostat works on a small sum of large terms (rhodo).
    max_drift: float = 0.01


BENCHMARKS = {
    "lj": LammpsBenchmark(-4.6134356, True, {"small": 12, "standard": 10000}),
    "chain": LammpsBenchmark(22.394765, True, {"small": 32, "standard": 20000}),
    "eam": LammpsBenchmark(-106662.09, False, {"small": 20, "standard": 4000}),
    "rhodo": LammpsBenchmark(-25356.2057, False, {"small": 5, "standard": 800}, max_drift=0.03),
}
# The study does not name its problem.  Rhodo has long-range forces, and needs all processes at every step.
SCALING_PROBLEM = {"small": "lj", "standard": "rhodo"}
# At step 0 nothing but summation order can differ; of several boxes the kinetic energy of one atom more in
# 32,000, and the accuracy of forces over a long range (1e-4).
START_TOLERANCE, START_TOLERANCE_OF_COPIES = 1e-6, 2e-4
# Foreign load may take a tenth of the ranks' CPUs (true of 30 of 30 undisturbed runs of a second and of none
# of 30 on a loaded machine, which lost half), or in short runs the seconds that daemons take at times.
MAX_LOST_SHARE, MAX_LOST_S = 0.10, 0.15


class Lammps(Measurement):
    """One of the benchmarks; the step count is fixed in its input, so a copy states ours."""

    feature = "lammps"

    def choose(self, problem, copies=(1, 1, 1)):
        """Run this problem, in so many boxes of its atoms along each side."""
        self.chosen, self.benchmark = problem, BENCHMARKS[problem]
        self.copies, self.boxes = copies, math.prod(copies)
        self.steps = self.benchmark.steps[self.scale]
        self.executable_opts = ["-in", f"in.{problem}", "-log", "none"]

    @run_before("run")
    def bring_inputs(self):
        """Copy the benchmark's input and data, with this run's number of steps."""
        bench, stage = Path(self.program["data"]["bench"]), Path(self.stagedir)
        for name in (f"data.{self.chosen}", "Cu_u3.eam"):
            if (bench / name).is_file():
                shutil.copy(bench / name, stage)
        text = (bench / f"in.{self.chosen}").read_text(encoding="utf-8")
        lines = []
        for line in text.splitlines():
            word = line.split()[:1]
            lines.append(f"run {self.steps}" if word == ["run"] else line)
            # LAMMPS's own scaled inputs do so; lj and eam have none.
            if word in (["create_atoms"], ["read_data"]) and self.boxes > 1:
                lines.append("replicate " + " ".join(map(str, self.copies)))
        (stage / f"in.{self.chosen}").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def parse(self, text, tasks):
        """Return the values that a run printed, after asserting the physics."""
        run, benchmark = output.parse(text), self.benchmark
        atoms = ATOMS * self.boxes
        as_asked("LAMMPS", ranks=(run.tasks, tasks), steps=(run.steps, self.steps), atoms=(run.atoms, atoms))
        energy = benchmark.energy if benchmark.per_atom else benchmark.energy * self.boxes
        tolerance = START_TOLERANCE if self.boxes == 1 else START_TOLERANCE_OF_COPIES
        if abs(run.energy[0] - energy) > tolerance * abs(energy):
            raise OutputError("LAMMPS", f"total energy at step 0 is {run.energy[0]}, not {energy}")
        if run.drift > benchmark.max_drift:
            raise OutputError("LAMMPS", f"total energy drifted by {run.drift:.2%} in {run.steps} steps")
        return run


@overhead.simple_test
class lammps(Lammps):
    """Loop time of one LAMMPS benchmark on all cores of a node."""

    descr = "LAMMPS benchmark: loop time on one node"
    problem = parameter(list(BENCHMARKS), loggable=True)
    tags = {"app", "quick", "full", "sweep"}
    quick = {"problem": ["lj"]}

    def arrange(self):
        """One rank a physical core, and a box for every two of them."""
        self.start_tasks(self.cores)
        boxes = 1 if self.small else max(self.cores // 2, 1)
        self.choose(self.problem, sizes.split_cubically(boxes))

    def read(self):
        """Assert the physics, then take the loop time."""
        run = self.parse(self.output(), self.num_tasks)
        lost, invalid = 1 - run.cpu_use / 100, ()
        if lost > MAX_LOST_SHARE and lost * run.loop_time > MAX_LOST_S:
            invalid = (
                f"LAMMPS's ranks went without a CPU for {lost:.0%} of {run.loop_time:.3g} s (other work, or "
                f"messages that the kernel carries); {MAX_LOST_SHARE:.0%}, or {MAX_LOST_S:g} s, are allowed",
            )
        setting = f"{self.problem}, {self.boxes} boxes" if self.boxes > 1 else self.problem
        return [Result.scalar("lammps_loop_time", setting, run.loop_time, invalid)]


@overhead.simple_test
class lammps_scaling(Scaling, Lammps):
    """Strong scaling over nodes, with the share of communication that LAMMPS itself measures."""

    descr = "LAMMPS strong scaling over up to 8 nodes, runs a day by processes"
    nodes = counts.nodes()
    metric = "lammps_scaling"
    tags = {"app", "fdr", "full"}

    def arrange(self):
        """Start with few processes; the most communicating problem of those that a few cores can run."""
        self.problem = SCALING_PROBLEM[self.scale]
        self.choose(self.problem)
        self.prerun_cmds = self.spread()

    def rating(self, directory, text, processes):
        """Assert the physics; keep the share of communication on all processes."""
        run = self.parse(text, processes)
        if processes == self.num_tasks:
            self.communication = run.comm_percent / 100
        return DAY_S / run.loop_time
