"""OpenFOAM: the lid-driven cavity of its tutorials in three dimensions, on the cores of a node."""

import math
from typing import NamedTuple

from virtqual.files.wording import pluralize
from virtqual.job import notes
from virtqual.programs import openfoam as output
from virtqual.programs.text import OutputError
from virtqual.runs import Result

from . import overhead
from .asked import as_asked
from .base import Measurement


class Cavity(NamedTuple):
    """Cells along each edge, and time steps; with steps for 10/32 of the cells the end is at 0.03125 s."""

    cells: int
    steps: int


# By scale.
CAVITIES = {"small": Cavity(32, 10), "standard": Cavity(128, 40)}
# Speed beside the centre in the end, m/s: 32^3 cells on one rank and on two, which differed by 3e-6.
# With 64^3 cells it was 0.204531.
SPEED = 0.202232
SPEED_TOLERANCES = {"small": 1e-4, "standard": 0.05}
ANSWER_TOLERANCE = 1e-4


@overhead.simple_test
class openfoam(Measurement):
    """One run, with a rank a core; on one core it runs without MPI."""

    descr = "OpenFOAM icoFoam, lid-driven cavity (needs no download) on one node, elapsed time"
    feature = "openfoam"
    # On emulated hosts a single start is longer than a run should be.
    run_seconds = {"small": (30, 60)}
    tags = {"app", "full"}

    def arrange(self):
        """Make the mesh and divide it, which is not timed; then start a rank a core."""
        self.cavity = CAVITIES[self.scale]
        self.start_tasks(self.cores)
        self.executable_opts = ["-parallel"] * (self.cores > 1)
        # OpenFOAM's own times are CPU time, and whole seconds: the first task notes begin and end.
        self.env_vars["VIRTQUAL_TIMED"] = "1"
        utilities = ["blockMesh", *["decomposePar"] * (self.cores > 1)]
        self.prerun_cmds = [f"{self.program['data'][name]} > {name}.out" for name in utilities]

    def make_input_files(self):
        """Return the files of the case."""
        return output.write_case(*self.cavity, self.num_tasks)

    def read(self):
        """Assert cells, steps, ranks and convergence (by the parser); keep the speed, take the time."""
        cells, steps = self.cavity
        run = output.parse(self.output(), steps)
        as_asked(
            "OpenFOAM",
            cells=(output.read_cells(self.stage_text("blockMesh.out")), cells**3),
            ranks=(run.processes, self.num_tasks),
            version=(run.version, self.version(run.version)),
        )
        *_, (time, velocity) = output.parse_probe(self.stage_text(output.PROBE), steps).items()
        speed = math.hypot(*velocity)
        if not math.isclose(speed, SPEED, rel_tol=SPEED_TOLERANCES[self.scale]):
            raise OutputError("OpenFOAM", f"the speed beside the centre is {speed:g} m/s, not {SPEED}")
        self.agree_on(f"speed beside the centre at {time:g} s", speed, ANSWER_TOLERANCE)
        seconds = notes.read_program_seconds(self.room)
        if run.clock_time > seconds + 1:
            times = f"{run.clock_time} s by its clock, and {seconds:g} s by the first task's"
            raise OutputError("OpenFOAM", f"it ran for {times}")
        setting = f"cavity {cells}^3, {pluralize(self.num_tasks, 'rank')}"
        return [Result.scalar("openfoam_elapsed", setting, seconds)]
