"""STREAM: copy, scale, add, triad over threads of a node, on nodes at once, from local and remote memory."""

from virtqual.files.wording import pluralize
from virtqual.programs import sizes
from virtqual.programs import stream as output
from virtqual.runs import Result

from . import counts, overhead
from .asked import as_asked
from .base import Measurement
from .together import Together, find_gaps
from .vms import VmsOfOneHost

KERNELS = ("copy", "scale", "add", "triad")
THREADS = counts.threads()


class Stream(Measurement):
    """STREAM with the arrays of its binary; if they fit into the caches, the metrics are those of caches."""

    feature = "stream"

    def run_threads(self, threads, cores):
        """Give STREAM's threads places of their own on so many cores, spread over memory controllers."""
        self.threads_per_task = threads
        self.num_cpus_per_task = max(cores, threads)
        if threads > cores:
            self.use_hardware_threads()
        self.env_vars |= {
            "OMP_NUM_THREADS": str(threads),
            "OMP_DYNAMIC": "false",
            "OMP_PROC_BIND": "spread",
            "OMP_PLACES": "cores" if threads <= cores else "threads",
        }

    def parse(self, text):
        """Assert that all threads ran, and return the family of the metrics and the run."""
        run = output.parse(text)
        version = self.version(run.version)
        as_asked("STREAM", threads=(run.threads, self.threads_per_task), version=(run.version, version))
        return sizes.family(run.bytes_each, self.partition_extras["llc_bytes"]), run

    def read_one(self, setting):
        """Take the four best rates of a single STREAM."""
        family, run = self.parse(self.output())
        return [
            Result.scalar(f"{family}_{kernel}", setting, run.best[kernel], ticks=run.ticks(kernel))
            for kernel in KERNELS
        ]


@overhead.simple_test
class stream(Stream):
    """STREAM on one node, over threads."""

    descr = "STREAM copy, scale, add, triad by number of threads on one node"
    threads = parameter(THREADS, loggable=True)
    tags = {"memory", "esx41", "openstack-kvm", "quick", "full", "sweep"}
    # The curve between is for the full scope.
    quick = {"threads": (THREADS[0], THREADS[-1])}

    def arrange(self):
        """One task with as many threads as asked for."""
        self.run_threads(self.threads, self.cores)

    def read(self):
        """Take the four rates."""
        return self.read_one(f"STREAM, {pluralize(self.threads, 'thread')}")


class StreamTogether(Together, Stream):
    """STREAM on each of several nodes at the same time, as one task a node."""

    def add_rates(self, setting):
        """Add the nodes' rates over their average times; their best ones need not have been at once."""
        runs = [self.parse(text) for text in self.outputs()]
        family, gaps = runs[0][0], find_gaps(self.room, self.num_tasks)
        return [
            Result.scalar(f"{family}_{kernel}", setting, sum(run.mean[kernel] for _, run in runs), gaps)
            for kernel in KERNELS
        ]


@overhead.simple_test
class stream_nodes(StreamTogether):
    """STREAM on several nodes at the same time: the sum shows how they slow each other."""

    descr = "STREAM on several nodes at the same time, bandwidths added"
    nodes = 2
    count = parameter(counts.several_nodes(), loggable=True)
    tags = {"memory", "esx41", "full"}

    def count_nodes(self):
        """Return the parameter."""
        return self.count

    def arrange(self):
        """All cores of every node."""
        self.start_tasks(1)
        self.run_threads(self.cores, self.cores)

    def read(self):
        """Add the four rates."""
        return self.add_rates(f"STREAM, {self.nodes} nodes, {pluralize(self.cores, 'thread')} each")


@overhead.simple_test
class stream_vms(VmsOfOneHost, StreamTogether):
    """STREAM in VMs of one host at the same time, against one STREAM of as many threads on that host."""

    descr = "STREAM in several VMs of one host at the same time, added, against one native node"
    layout = parameter(counts.vm_layouts(THREADS), loggable=True)
    tags = {"memory", "esx41", "full"}

    def arrange(self):
        """All threads on the native node's one task, or their share in each VM."""
        self.start_tasks(1)
        self.run_threads(self.ranks_per_node, self.vms // self.nodes * self.cores)

    def read(self):
        """Add the four rates; those of the native node are over its average times, too."""
        return self.add_rates(f"STREAM{self.where}, {pluralize(self.per_vm, 'thread')} each")


@overhead.simple_test
class stream_numa(Stream):
    """STREAM on the cores of one NUMA node, with its memory there or on the farthest node.

    The bandwidths of local and remote memory show whether the NUMA nodes that a VM sees are the hardware's.
    The result names the node of the memory: sides that see other distances are not compared.
    """

    descr = "STREAM on one NUMA node, from local and from remote memory"
    needs = "numa"
    scripts = ("memory.sh",)
    # Memory of the CPUs' own NUMA node, and of the node that is farthest from it (``memory.sh``).
    memory = parameter(["local", "remote"], loggable=True)
    tags = {"memory", "esx41", "openstack-kvm", "full"}

    def arrange(self):
        """All cores for the task; ``memory.sh`` then takes those of one NUMA node, by ``numactl``."""
        self.run_threads(max(1, self.cores // self.partition_extras["numa_nodes"]), self.cores)
        # ReFrame writes values into the job script as they are.
        self.env_vars["VIRTQUAL_WITHIN"] = f"'./memory.sh {self.memory}'"

    def read(self):
        """Take the four rates."""
        memory = f"{self.memory} memory (node {self.stage_text('virtqual.memory').strip()})"
        return self.read_one(f"STREAM, {pluralize(self.threads_per_task, 'thread')}, {memory}")
