"""MPI between two ranks over message sizes: latency and bandwidth, inside a node and between two."""

from typing import NamedTuple

from virtqual.programs import netpipe
from virtqual.programs.text import OutputError
from virtqual.runs import Result

from . import overhead
from .base import Measurement


class RoundTrips(NamedTuple):
    """Smallest and largest size in bytes, and round trips a size, of which NetPIPE takes the best."""

    smallest: int
    largest: int
    rounds: int


# By scale and number of nodes.  Between emulated nodes a message takes milliseconds: fewer sizes and rounds.
LATENCY = {
    "small": {1: RoundTrips(1, 8192, 100), 2: RoundTrips(1, 1024, 5)},
    "standard": {1: RoundTrips(1, 8192, 10000), 2: RoundTrips(1, 8192, 10000)},
}
# From 1 KiB on; below, bandwidth is latency in other words.
BANDWIDTH = {
    "small": {1: RoundTrips(1024, 2**18, 100), 2: RoundTrips(1024, 2**16, 15)},
    "standard": {1: RoundTrips(1024, 2**22, 1000), 2: RoundTrips(1024, 2**22, 1000)},
}


class MpiPair(Measurement):
    """Two ranks; the placement decides the setting."""

    setting = "same node"

    def place(self):
        """One rank on each of the nodes, or both on cores of one node."""
        self.num_tasks = 2
        self.num_tasks_per_node = 2 // self.nodes

    def run_netpipe(self, messages, *options):
        """Set NetPIPE's options: exact sizes without perturbations."""
        self.sent = sent = messages[self.partition_extras["scale"]][self.nodes]
        sizes = ["-l", str(sent.smallest), "-u", str(sent.largest), "-p", "0", "-n", str(sent.rounds)]
        self.executable_opts = [*sizes, *options, "-o", "netpipe.out"]

    def rows(self):
        """Return the result rows at powers of two."""
        if self.program["name"] != "netpipe":
            raise OutputError(self.program["name"], "this check reads NetPIPE only")
        rows = netpipe.parse(self.stage_text("netpipe.out"), self.sent.smallest, self.sent.largest)
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


@overhead.simple_test
class mpi_latency_node(MpiLatency):
    """Latency inside a node."""

    descr = "MPI latency between two cores of a node"
    least_cores = 2


@overhead.simple_test
class mpi_latency_nodes(MpiLatency):
    """Latency between two nodes."""

    descr = "MPI latency between two nodes"
    nodes = 2
    setting = "two nodes"


@overhead.simple_test
class mpi_bandwidth_node(MpiBandwidth):
    """Bandwidth inside a node."""

    descr = "MPI bandwidth between two cores of a node"
    least_cores = 2


@overhead.simple_test
class mpi_bandwidth_nodes(MpiBandwidth):
    """Bandwidth between two nodes."""

    descr = "MPI bandwidth between two nodes"
    nodes = 2
    setting = "two nodes"
