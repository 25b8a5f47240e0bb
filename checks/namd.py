"""NAMD: a generated box of water with its energy conserved, and the study's virus; on a node and several."""

from pathlib import Path

from virtqual.programs import namd as output
from virtqual.programs import sizes, water
from virtqual.programs.text import OutputError
from virtqual.runs import Result

from . import counts, overhead
from .asked import as_asked
from .base import Measurement
from .vms import VmsOfOneHost

# Molecules along each side of the box, and time steps, at scale `small`: 10 thousand atoms.
SMALL_BOX = 15, 100
# 400 steps without a thermostat moved the total energy by 0.02 %.
MAX_DRIFT = 1e-3
# The study's benchmark: atoms, steps, and numbers of processes.  Its thermostat and barostat draw random
# numbers and move the total energy, by less than this.
STMV = "namd-stmv"
STMV_ATOMS, STMV_STEPS, STMV_RANKS, MAX_STMV_DRIFT = 1066628, 500, (4, 8, 16), 0.02
STMV_FILES = ("stmv.psf", "stmv.pdb", "par_all27_prot_na.inp")
# The study's numbers of VMs, whose traffic went over one virtual switch or one each (claims N05 to N16).
STMV_NODES = (2, 4)
STMV_LAYOUTS = counts.layouts(STMV_RANKS, STMV_NODES, counts.nodes())
STMV_VMS = counts.layouts(STMV_RANKS, STMV_NODES, max(counts.vms()))
# Tolerances of the energies, which must be the same on both sides.  Before the first step only the order of
# sums can differ, some of them in single precision (PME's FFT): runs on one and two ranks agreed in all 9
# digits.  100 steps of minimization amplify that: to 1e-7 between runs on two ranks, to 3e-5 between one rank
# and two.
START_TOLERANCE, MINIMIZED_TOLERANCE = 1e-5, 3e-4


class Namd(Measurement):
    """A run whose atoms, steps, ranks and energy are as they must be, with a rank a core."""

    feature = "namd"
    #: The file that NAMD reads first.
    configuration = ""

    @property
    def ranks_per_node(self):
        """The ranks of a node; the parameter ``ranks``, if the check has it."""
        return self.ranks

    @property
    def where(self):
        """The words about the nodes in the setting."""
        return f", {self.nodes} nodes" if self.nodes > 1 else ""

    def arrange(self):
        """Start the ranks."""
        self.start_tasks(self.ranks_per_node)
        self.executable_opts = [self.configuration]

    def parse(self, atoms, steps, max_drift):
        """Return the run, after asserting atoms, steps, ranks and how far the total energy moved.

        The energy of the coordinates that it began with is the same on both sides, also if the velocities
        are drawn anew in every run.
        """
        run = output.parse(self.output())
        as_asked(
            "NAMD",
            atoms=(run.atoms, atoms),
            steps=(run.last - run.first, steps),
            ranks=(run.processes, self.num_tasks),
            version=(run.version, self.version(run.version)),
        )
        if run.drift > max_drift:
            raise OutputError("NAMD", f"total energy drifted by {run.drift:.2%} in {steps} steps")
        self.agree_on("potential energy at step 0", run.start, START_TOLERANCE)
        return run

    def take_elapsed(self, problem, run):
        """Return the elapsed time as the result."""
        setting = f"{problem}, {run.processes} ranks{self.where}"
        return [Result.scalar("namd_elapsed", setting, run.wall_clock)]


class Water(Namd):
    """The generated box."""

    configuration = "water.namd"

    @property
    def box(self):
        """Molecules along each side, and time steps."""
        return SMALL_BOX if self.small else sizes.box_of_water(self.num_tasks)

    def make_input_files(self):
        """Return structure, coordinates, parameters and configuration."""
        edge, steps = self.box
        return {
            "water.psf": water.structure(edge),
            "water.pdb": water.coordinates(edge),
            "water.prm": water.PARAMETERS,
            self.configuration: water.configuration(edge, steps),
        }

    def read(self):
        """Assert that the energy was conserved; keep it where dynamics begin: its velocities have a seed."""
        edge, steps = self.box
        atoms = water.atoms(edge)
        run = self.parse(atoms, steps, MAX_DRIFT)
        self.agree_on(f"total energy at step {run.first}", run.energy[run.first], MINIMIZED_TOLERANCE)
        return self.take_elapsed(f"water {atoms} atoms", run)


@overhead.simple_test
class namd_water(Water):
    """Water on a node, over numbers of ranks."""

    descr = "NAMD, generated water box (needs no download) on one node by ranks, elapsed time"
    ranks = parameter(counts.ranks(), loggable=True)
    tags = {"app", "esx41", "full"}


@overhead.simple_test
class namd_water_nodes(Water):
    """Water over nodes: the cost of their messages shows beside one node."""

    descr = "NAMD, generated water box (needs no download) over 2, 4, ... nodes, elapsed time"
    nodes = 2
    count = parameter(counts.several_nodes(), loggable=True)
    tags = {"app", "mpi", "esx41", "full"}

    def count_nodes(self):
        """Return the parameter."""
        return self.count

    @property
    def ranks_per_node(self):
        """A rank a core; on small systems a rank a node, for nodes may share a few cores."""
        return 1 if self.small else self.cores


@overhead.simple_test
class namd_water_vms(VmsOfOneHost, Water):
    """Water over VMs of one host, a rank a core, against as many ranks on the host alone."""

    descr = "NAMD, generated water box (needs no download) over VMs of one host, against one native node"
    layout = parameter(counts.vm_layouts([counts.cores()]), loggable=True)
    tags = {"app", "mpi", "esx41", "full"}


class Stmv(Namd):
    """The virus."""

    inputs = (STMV,)
    only_scale = "standard"
    configuration = "stmv.namd"

    @run_before("run")
    def bring_input(self):
        """Link the virus; a copy of its configuration writes into the stage directory."""
        stage, fetched = Path(self.stagedir), self.fetched[STMV]
        for name in STMV_FILES:
            (stage / name).symlink_to(fetched.file(name))
        text = fetched.file(self.configuration).read_text(encoding="utf-8")
        text = output.configuration(text, {"outputName": "out", "numsteps": STMV_STEPS})
        (stage / self.configuration).write_text(text, encoding="utf-8")

    def read(self):
        """Assert that the energy stayed about the same."""
        run = self.parse(STMV_ATOMS, STMV_STEPS, MAX_STMV_DRIFT)
        return self.take_elapsed(f"STMV {STMV_STEPS} steps", run)


@overhead.simple_test
class namd_stmv(Stmv):
    """The virus on a node, over the study's numbers of processes as far as there are cores."""

    descr = "NAMD STMV, 500 steps on one node with 4, 8 and 16 ranks, elapsed time"
    least_cores = min(STMV_RANKS)
    ranks = parameter(counts.up_to_cores(STMV_RANKS), loggable=True)
    tags = {"app", "esx41", "full"}


@overhead.simple_test
class namd_stmv_nodes(Stmv):
    """The virus over the study's numbers of VMs and processes, as far as there are nodes and cores."""

    descr = "NAMD STMV, 500 steps over 2 and 4 nodes with 4, 8 and 16 ranks, elapsed time"
    nodes = 2
    least_cores = counts.parse_layout(STMV_LAYOUTS[0])[1]
    layout = parameter(STMV_LAYOUTS, loggable=True)
    tags = {"app", "mpi", "esx41", "full"}

    def count_nodes(self):
        """Return the nodes of the layout."""
        return counts.parse_layout(self.layout)[0]

    @property
    def ranks_per_node(self):
        """The ranks of a node, by the parameter."""
        return counts.parse_layout(self.layout)[1]


@overhead.simple_test
class namd_stmv_vms(VmsOfOneHost, Stmv):
    """The virus over the study's numbers of VMs of one host and processes, against the host alone."""

    descr = (
        "NAMD STMV, 500 steps over 2 and 4 VMs of one host with 4, 8 and 16 ranks, against one native node"
    )
    least_cores = counts.parse_layout(STMV_VMS[0])[1]
    layout = parameter(STMV_VMS, loggable=True)
    tags = {"app", "mpi", "esx41", "full"}
