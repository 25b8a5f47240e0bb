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


# By feature, scale and number of nodes.  Between emulated nodes a message takes milliseconds: fewer sizes and
# rounds.  Bandwidth begins with 1 KiB: below, it is latency in other words.
ROUND_TRIPS = {
    "mpi-latency": {
        "small": {1: RoundTrips(1, 8192, 100), 2: RoundTrips(1, 1024, 5)},
        "standard": {1: RoundTrips(1, 8192, 10000), 2: RoundTrips(1, 8192, 10000)},
    },
    "mpi-bandwidth": {
        "small": {1: RoundTrips(1024, 2**18, 100), 2: RoundTrips(1024, 2**16, 15)},
        "standard": {1: RoundTrips(1024, 2**22, 1000), 2: RoundTrips(1024, 2**22, 1000)},
    },
}


class NetPipe(Measurement):
    """NetPIPE between two ranks, on two cores of a node or on two nodes."""

    tags = {"mpi", "quick", "full"}

    def arrange(self):
        """Place the ranks, and choose exact sizes without perturbations."""
        self.start_tasks(2 // self.nodes)
        self.sent = sent = ROUND_TRIPS[self.feature][self.scale][self.nodes]
        sizes = ["-l", str(sent.smallest), "-u", str(sent.largest), "-p", "0", "-n", str(sent.rounds)]
        # A stream overruns the network between emulated nodes; back and forth measures bandwidth as well.
        streams = self.feature == "mpi-bandwidth" and not (self.small and self.nodes > 1)
        self.executable_opts = [*sizes, *(["-s"] if streams else []), "-o", "netpipe.out"]

    def read(self):
        """Take the latency or bandwidth of every power of two."""
        if self.program["name"] != "netpipe":
            raise OutputError(self.program["name"], "this check reads NetPIPE only")
        rows = netpipe.parse(self.stage_text("netpipe.out"), self.sent.smallest, self.sent.largest)
        powers = [row for row in rows if row.size & (row.size - 1) == 0]
        setting = "two nodes" if self.nodes == 2 else "same node"
        if self.feature == "mpi-latency":
            return [Result.curve("mpi_latency", setting, {row.size: row.time for row in powers})]
        return [Result.curve("mpi_bandwidth", setting, {row.size: row.bandwidth for row in powers})]


@overhead.simple_test
class mpi_latency_node(NetPipe):
    """Latency inside a node: half of a round trip."""

    descr = "MPI latency between two cores of a node"
    feature = "mpi-latency"
    least_cores = 2


@overhead.simple_test
class mpi_latency_nodes(NetPipe):
    """Latency between two nodes."""

    descr = "MPI latency between two nodes"
    feature = "mpi-latency"
    nodes = 2


@overhead.simple_test
class mpi_bandwidth_node(NetPipe):
    """Bandwidth inside a node: messages streamed in one direction."""

    descr = "MPI bandwidth between two cores of a node"
    feature = "mpi-bandwidth"
    least_cores = 2


@overhead.simple_test
class mpi_bandwidth_nodes(NetPipe):
    """Bandwidth between two nodes."""

    descr = "MPI bandwidth between two nodes"
    feature = "mpi-bandwidth"
    nodes = 2
