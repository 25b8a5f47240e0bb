"""MPI between two ranks over message sizes: latency and bandwidth, inside a node and between two."""

import reframe as rfm

from virtqual.programs import netpipe
from virtqual.programs.text import OutputError
from virtqual.runs import Result

from .base import Measurement
from .overhead import Overhead

# First and last message size in bytes and round trips a size, by scale and number of nodes.  Between emulated
# nodes a message takes milliseconds: fewer sizes, fewer round trips.  NetPIPE takes the best of its trials.
LATENCY = {
    "small": {1: (1, 8192, 100), 2: (1, 1024, 5)},
    "standard": {1: (1, 8192, 10000), 2: (1, 8192, 10000)},
}
# From 1 KiB on; below, bandwidth is latency in other words.
BANDWIDTH = {
    "small": {1: (1024, 2**18, 100), 2: (1024, 2**16, 5)},
    "standard": {1: (1024, 2**22, 1000), 2: (1024, 2**22, 1000)},
}


class MpiPair(Measurement):
    """Two ranks; the placement decides the setting."""

    setting = "same node"

    def place(self):
        """One rank on each of the nodes, or both on cores of one node."""
        self.num_tasks = 2
        self.num_tasks_per_node = 2 // self.nodes

    def run_netpipe(self, plan, *options):
        """Set NetPIPE's options: exact sizes without perturbations."""
        self.smallest, self.largest, repeats = plan[self.known["scale"]][self.nodes]
        sizes = ["-l", str(self.smallest), "-u", str(self.largest), "-p", "0", "-n", str(repeats)]
        self.executable_opts = [*sizes, *options, "-o", "netpipe.out"]

    def rows(self):
        """Return the result rows at powers of two."""
        if self.program["name"] != "netpipe":
            raise OutputError(self.program["name"], "this check reads NetPIPE only")
        rows = netpipe.parse(self.stage_text("netpipe.out"), self.smallest, self.largest)
        return [row for row in rows if row.size & (row.size - 1) == 0]


class MpiLatency(MpiPair):
    """Ping-pong: half of the round trip."""

    feature = "mpi-latency"
    tags = {"mpi", "quick", "full"}

    def arrange(self):
        """Small messages back and forth."""
        self.place()
        self.run_netpipe(LATENCY)

    def read(self):
        """Take the latency of every size."""
        curve = {row.size: row.time for row in self.rows()}
        return [Result.curve("mpi_latency", self.setting, curve)]


class MpiBandwidth(MpiPair):
    """Messages streamed in one direction."""

    feature = "mpi-bandwidth"
    tags = {"mpi", "quick", "full"}

    def arrange(self):
        """Stream up to large messages."""
        self.place()
        # A stream overruns the network between emulated nodes; back and forth measures it as well.
        stream = [] if self.small and self.nodes > 1 else ["-s"]
        self.run_netpipe(BANDWIDTH, *stream)

    def read(self):
        """Take the bandwidth of every size."""
        curve = {row.size: row.bandwidth for row in self.rows()}
        return [Result.curve("mpi_bandwidth", self.setting, curve)]


@rfm.simple_test
class mpi_latency_node(MpiLatency):
    """Latency inside a node."""

    descr = "MPI latency between two cores of a node"


@rfm.simple_test
class mpi_latency_nodes(MpiLatency):
    """Latency between two nodes."""

    descr = "MPI latency between two nodes"
    nodes = 2
    setting = "two nodes"


@rfm.simple_test
class mpi_bandwidth_node(MpiBandwidth):
    """Bandwidth inside a node."""

    descr = "MPI bandwidth between two cores of a node"


@rfm.simple_test
class mpi_bandwidth_nodes(MpiBandwidth):
    """Bandwidth between two nodes."""

    descr = "MPI bandwidth between two nodes"
    nodes = 2
    setting = "two nodes"


@rfm.simple_test
class mpi_latency_node_overhead(Overhead):
    """Verdict on latency inside a node."""

    descr = "MPI latency inside a node: virtual against native"
    measured = mpi_latency_node


@rfm.simple_test
class mpi_latency_nodes_overhead(Overhead):
    """Verdict on latency between nodes."""

    descr = "MPI latency between nodes: virtual against native"
    measured = mpi_latency_nodes


@rfm.simple_test
class mpi_bandwidth_node_overhead(Overhead):
    """Verdict on bandwidth inside a node."""

    descr = "MPI bandwidth inside a node: virtual against native"
    measured = mpi_bandwidth_node


@rfm.simple_test
class mpi_bandwidth_nodes_overhead(Overhead):
    """Verdict on bandwidth between nodes."""

    descr = "MPI bandwidth between nodes: virtual against native"
    measured = mpi_bandwidth_nodes
