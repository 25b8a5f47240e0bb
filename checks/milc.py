"""MILC: lattice quantum chromodynamics, a trajectory of molecular dynamics on a generated lattice."""

import math
from typing import NamedTuple

from virtqual.programs import lattice
from virtqual.programs import milc as output
from virtqual.programs.text import OutputError
from virtqual.runs import Result

from . import overhead
from .asked import as_asked
from .base import Measurement


class Simulation(NamedTuple):
    """Sites in x, y, z and t, trajectories, and time steps of each (an even number)."""

    lattice: tuple[int, int, int, int]
    trajectories: int
    steps: int


# By scale.  The study does not print its lattice: a million sites take about ten gigabytes, and fill a node.
SIMULATIONS = {
    "small": Simulation((4, 4, 4, 8), 1, 4),
    "standard": Simulation((32, 32, 32, 32), 1, 10),
}
# The exact dynamics conserves the action, 1.3 a site.  On 512 sites it changed by 2e-5 a site in 4 steps, by
# 9e-5 in 10.
MAX_VIOLATION = 1e-3
# Both sides start from the same lattice and random numbers; only the order of sums may differ.
TOLERANCE = 1e-6
DAY_S = 86400


@overhead.simple_test
class milc(Measurement):
    """One run on the cores of a node."""

    descr = "MILC su3_rhmd_hisq, generated lattice (needs no download) on one node, runs a day"
    feature = "milc"
    tags = {"app", "openstack-kvm", "full"}

    def arrange(self):
        """Take as many ranks as a lattice of powers of two can be divided among."""
        self.start_tasks(1 << self.cores.bit_length() - 1)
        self.simulation = SIMULATIONS[self.scale]
        self.executable_opts = ["milc.in"]

    def make_input_files(self):
        """Return parameters and rational functions."""
        return {"milc.in": lattice.parameters(*self.simulation), "rationals": lattice.rationals()}

    def read(self):
        """Assert that all solves converged (by the parser) and the action was conserved; then rate it."""
        run = output.parse(self.output())
        as_asked(
            "MILC",
            lattice=(run.lattice, self.simulation.lattice),
            trajectories=(run.trajectories, self.simulation.trajectories),
            ranks=(run.processes, self.num_tasks),
            version=(run.version, self.version(run.version)),
        )
        worst = max(map(abs, run.violations)) / math.prod(self.simulation.lattice)
        if worst > MAX_VIOLATION:
            raise OutputError("MILC", f"the action changed by {worst:g} a site, {MAX_VIOLATION:g} is allowed")
        for name, value in zip(("space-space", "space-time"), run.plaquette, strict=True):
            self.agree_on(f"{name} plaquette", value, TOLERANCE)
        size = "x".join(map(str, self.simulation.lattice))
        return [Result.scalar("milc_rating", f"{size}, {self.num_tasks} ranks", DAY_S / run.time)]
