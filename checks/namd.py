"""NAMD: a generated box of water, with its energy conserved."""

from pathlib import Path

import reframe as rfm

from virtqual.inputs import water
from virtqual.outputs import namd as output
from virtqual.outputs.text import OutputError
from virtqual.runs import Result

from . import counts
from .base import Measurement
from .overhead import Overhead

# Molecules along each side, and steps, by scale: 10 thousand atoms, and a million as STMV has.
BOX = {"small": (15, 400), "standard": (70, 500)}
# 400 steps without a thermostat moved the total energy by 0.02 %.
DRIFT = 1e-3


@rfm.simple_test
class namd_water(Measurement):
    """Water on a node, over numbers of ranks."""

    descr = "NAMD, generated water box (needs no download) on one node by ranks, elapsed time"
    feature = "namd"
    ranks = parameter(counts.ranks(), loggable=True)
    tags = {"app", "esx41", "full"}

    def arrange(self):
        """As many ranks as asked for, each on a core of its own."""
        self.num_tasks = self.num_tasks_per_node = self.ranks
        self.edge, self.steps = BOX[self.known["scale"]]
        self.executable_opts = ["water.namd"]

    @run_before("run")
    def write_input(self):
        """Write structure, coordinates, parameters and configuration."""
        texts = {
            "water.psf": water.structure(self.edge),
            "water.pdb": water.coordinates(self.edge),
            "water.prm": water.PARAMETERS,
            "water.namd": water.configuration(self.edge, self.steps),
        }
        for name, text in texts.items():
            (Path(self.stagedir) / name).write_text(text)

    def read(self):
        """Assert atoms, steps, ranks and conserved energy; then take the elapsed time."""
        run = output.parse(self.output())
        asked = (water.atoms(self.edge), self.steps, self.num_tasks)
        if (run.atoms, run.last - run.first, run.processes) != asked:
            raise OutputError(
                "NAMD",
                f"{run.atoms} atoms, steps {run.first} to {run.last}, {run.processes} ranks: not {asked}",
            )
        if run.drift > DRIFT:
            raise OutputError("NAMD", f"total energy drifted by {run.drift:.2%} in {self.steps} steps")
        setting = f"water {run.atoms} atoms, {run.processes} ranks"
        return [Result.scalar("namd_elapsed", setting, run.wall_clock)]


@rfm.simple_test
class namd_water_overhead(Overhead):
    """Verdict on NAMD."""

    descr = "NAMD, generated water box: virtual against native"
    measured = namd_water
    ranks = parameter(counts.ranks(), loggable=True)
