"""NAMD: a generated box of water with its energy conserved, and the study's virus; on a node and several."""

from pathlib import Path

from virtqual.programs import namd as output
from virtqual.programs import sizes, water
from virtqual.programs.text import OutputError
from virtqual.runs import Answer, Result

from . import counts, overhead
from .asked import as_asked
from .base import Measurement
from .vms import VmsOfOneHost

# Molecules along each side of the box, and time steps, at scale `small`: 10 thousand atoms.
SMALL_BOX = 15, 100
# 400 steps without a thermostat moved the total energy by 0.02 %.
DRIFT = 1e-3
# The study's benchmark: atoms, steps, and numbers of processes.  Its thermostat and barostat draw random
# numbers and move the total energy, by less than this.
STMV = "namd-stmv"
STMV_ATOMS, STMV_STEPS, STMV_RANKS, STMV_DRIFT = 1066628, 500, (4, 8, 16), 0.02
# And over how many VMs, whose traffic went over one virtual switch or one each (claims N05 to N16).
STMV_NODES = (2, 4)
STMV_LAYOUTS = counts.layouts(STMV_RANKS, STMV_NODES, counts.nodes())
STMV_VMS = counts.layouts(STMV_RANKS, STMV_NODES, max(counts.vms()))
WATER_VMS = counts.vms_each([counts.cores()])
# Tolerances of the energies, which must be the same on both sides.  Before the first step only the order of
# sums can differ, some of them in single precision (PME's FFT): runs on one and two ranks agreed in all 9
# digits.  100 steps of minimization amplify that: to 1e-7 between runs on two ranks, to 3e-5 between one rank
# and two.
SAME_START, SAME_AFTER = 1e-5, 3e-4
STMV_FILES = ("stmv.psf", "stmv.pdb", "par_all27_prot_na.inp")


class Namd(Measurement):
    """A run whose atoms, steps, ranks and energy are as they must be."""

    feature = "namd"

    def checked(self, atoms, steps, drift):
        """Return the run, after asserting atoms, steps, ranks and how far the total energy moved.

        The energy of the coordinates that it began with is the same on both sides, also where the velocities
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
        if run.drift > drift:
            raise OutputError("NAMD", f"total energy drifted by {run.drift:.2%} in {steps} steps")
        self.answers.append(Answer(name="potential energy at step 0", value=run.start, tolerance=SAME_START))
        return run

    @property
    def where(self):
        """The words about the nodes in the setting."""
        return f", {self.nodes} nodes" if self.nodes > 1 else ""

    def elapsed(self, what, run):
        """Take the elapsed time."""
        return [Result.scalar("namd_elapsed", f"{what}, {run.processes} ranks{self.where}", run.wall_clock)]


class Water(Namd):
    """The generated box."""

    @property
    def box(self):
        """Molecules along each side, and time steps."""
        return SMALL_BOX if self.small else sizes.box_of_water(self.num_tasks)

    @run_before("run")
    def write_input(self):
        """Write structure, coordinates, parameters and configuration."""
        edge, steps = self.box
        texts = {
            "water.psf": water.structure(edge),
            "water.pdb": water.coordinates(edge),
            "water.prm": water.PARAMETERS,
            "water.namd": water.configuration(edge, steps),
        }
        for name, text in texts.items():
            (Path(self.stagedir) / name).write_text(text, encoding="utf-8")

    def read(self):
        """Assert that the energy was conserved; keep it where dynamics begin: its velocities have a seed."""
        edge, steps = self.box
        atoms = water.atoms(edge)
        run = self.checked(atoms, steps, DRIFT)
        begin = Answer(
            name=f"total energy at step {run.first}", value=run.energy[run.first], tolerance=SAME_AFTER
        )
        self.answers.append(begin)
        return self.elapsed(f"water {atoms} atoms", run)


@overhead.simple_test
class namd_water(Water):
    """Water on a node, over numbers of ranks."""

    descr = "NAMD, generated water box (needs no download) on one node by ranks, elapsed time"
    ranks = parameter(counts.ranks(), loggable=True)
    tags = {"app", "esx41", "full"}

    def arrange(self):
        """Take as many ranks as the parameter says, each on a core of its own."""
        self.num_tasks = self.num_tasks_per_node = self.ranks
        self.executable_opts = ["water.namd"]


@overhead.simple_test
class namd_water_nodes(Water):
    """Water over nodes: what their messages cost shows beside one node."""

    descr = "NAMD, generated water box (needs no download) over 2, 4, ... nodes, elapsed time"
    nodes = 2
    count = parameter(counts.at_once(), loggable=True)
    tags = {"app", "mpi", "esx41", "full"}

    @classmethod
    def nodes_of(cls, case):
        """Return as many nodes as the parameter says."""
        return case.count

    def arrange(self):
        """A rank a core; on small systems a rank a node, for nodes may share a few cores."""
        self.num_tasks_per_node = 1 if self.small else self.cores
        self.num_tasks = self.nodes * self.num_tasks_per_node
        self.executable_opts = ["water.namd"]


@overhead.simple_test
class namd_water_vms(VmsOfOneHost, Water):
    """Water over VMs of one host, against the host alone."""

    descr = "NAMD, generated water box (needs no download) over VMs of one host, against one native node"
    layout = parameter(WATER_VMS, loggable=True)
    tags = {"app", "mpi", "esx41", "full"}

    def arrange(self):
        """A rank a core of the VMs, and as many on the native node."""
        self.place_ranks()
        self.executable_opts = ["water.namd"]


class Stmv(Namd):
    """The virus."""

    inputs = (STMV,)
    scale = "standard"

    @run_before("run")
    def bring_input(self):
        """Link the virus; a copy of its configuration writes into the stage directory."""
        stage, fetched = Path(self.stagedir), self.fetched[STMV]
        for name in STMV_FILES:
            (stage / name).symlink_to(fetched.file(name))
        text = fetched.file("stmv.namd").read_text(encoding="utf-8")
        text = output.configuration(text, {"outputName": "out", "numsteps": STMV_STEPS})
        (stage / "stmv.namd").write_text(text, encoding="utf-8")

    def read(self):
        """Assert that the energy stayed where it was."""
        run = self.checked(STMV_ATOMS, STMV_STEPS, STMV_DRIFT)
        return self.elapsed(f"STMV {STMV_STEPS} steps", run)


@overhead.simple_test
class namd_stmv(Stmv):
    """The virus on a node, over the study's numbers of processes as far as there are cores."""

    descr = "NAMD STMV, 500 steps on one node with 4, 8 and 16 ranks, elapsed time"
    least_cores = min(STMV_RANKS)
    ranks = parameter(counts.up_to_cores(STMV_RANKS), loggable=True)
    tags = {"app", "esx41", "full"}

    def arrange(self):
        """Take as many ranks as the parameter says, each on a core of its own."""
        self.num_tasks = self.num_tasks_per_node = self.ranks
        self.executable_opts = ["stmv.namd"]


@overhead.simple_test
class namd_stmv_nodes(Stmv):
    """The virus over the study's numbers of VMs and processes, as far as there are nodes and cores."""

    descr = "NAMD STMV, 500 steps over 2 and 4 nodes with 4, 8 and 16 ranks, elapsed time"
    nodes = 2
    least_cores = counts.of_layout(STMV_LAYOUTS[0])[1]
    layout = parameter(STMV_LAYOUTS, loggable=True)
    tags = {"app", "mpi", "esx41", "full"}

    @classmethod
    def nodes_of(cls, case):
        """Return as many nodes as the parameter says."""
        return counts.of_layout(case.layout)[0]

    def arrange(self):
        """Take as many ranks on each node as the parameter says, each on a core of its own."""
        each = counts.of_layout(self.layout)[1]
        self.num_tasks, self.num_tasks_per_node = self.nodes * each, each
        self.executable_opts = ["stmv.namd"]


@overhead.simple_test
class namd_stmv_vms(VmsOfOneHost, Stmv):
    """The virus over the study's numbers of VMs of one host and processes, against the host alone."""

    descr = (
        "NAMD STMV, 500 steps over 2 and 4 VMs of one host with 4, 8 and 16 ranks, against one native node"
    )
    least_cores = counts.of_layout(STMV_VMS[0])[1]
    layout = parameter(STMV_VMS, loggable=True)
    tags = {"app", "mpi", "esx41", "full"}

    def arrange(self):
        """Take as many ranks in each VM as the parameter says, and all of them on the native node."""
        self.place_ranks()
        self.executable_opts = ["stmv.namd"]
