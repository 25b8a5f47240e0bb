"""Throughput of a full node: as many copies of LAMMPS at once as there are cores."""

from virtqual.runs import Result

from . import counts, overhead
from .lammps import DAY_S, Lammps
from .together import Together, find_gaps
from .vms import VmsOfOneHost

PROBLEM = "lj"
# On one core so many steps take the time of a run on all cores.
STEPS = {"small": 12, "standard": 5000}
# A job script that is a step itself may have a PMI, and Open MPI 4 looks for one in each step.
STEP_VARIABLES = ("SLURM_STEP_ID", "PMI_FD", "PMI_RANK", "PMI_SIZE", "PMIX_NAMESPACE", "PMIX_RANK")


class Throughput(Together, Lammps):
    """A copy on each core: copies share caches, memory and host, and send no messages."""

    #: The words about the nodes in the setting.
    where = ""

    @property
    def ranks_per_node(self):
        """The copies of a node."""
        return self.cores

    def arrange(self):
        """Start each task as an MPI program by itself."""
        self.start_tasks(self.ranks_per_node)
        self.choose(PROBLEM)
        self.steps = STEPS[self.scale]
        self.job.launcher.options.append("--mpi=none")
        self.env_vars["VIRTQUAL_WITHIN"] = f"env {' '.join(f'-u {name}' for name in STEP_VARIABLES)}"

    def read(self):
        """Assert the physics of each copy; then add the runs a day of all."""
        runs = [self.parse(text, 1) for text in self.outputs()]
        rating = sum(DAY_S / run.loop_time for run in runs)
        setting = f"LAMMPS {PROBLEM}{self.where}, {len(runs)} cop{'ies' if len(runs) > 1 else 'y'}"
        gaps = find_gaps(self.room, self.num_tasks)
        return [Result.scalar("throughput_rating", setting, rating, gaps)]


@overhead.simple_test
class throughput(Throughput):
    """One VM of all cores against one native node."""

    descr = "throughput: copies of LAMMPS on all cores of a node, runs a day added"
    tags = {"app", "full"}


@overhead.simple_test
class throughput_vms(VmsOfOneHost, Throughput):
    """Smaller VMs that fill a host together, against that host."""

    descr = "throughput: copies of LAMMPS on all cores of VMs of one host, against one native node"
    layout = parameter(counts.vm_layouts([counts.cores()]), loggable=True)
    tags = {"app", "full"}
