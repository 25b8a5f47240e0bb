"""perftest: RDMA read, send and write between two nodes, latency and bandwidth over message sizes."""

from virtqual.programs import perftest as output
from virtqual.runs import Result

from . import overhead
from .asked import as_asked
from .base import Measurement

OPERATIONS = ["read", "send", "write"]
# The study's: every power of two from 2 B to 8 MiB in one run of the program.  Emulated nodes send small
# messages so slowly that perftest prints their bandwidth as 0.00 MB/s.
SIZES = {
    "standard": {"latency": "all", "bandwidth": "all"},
    "small": {"latency": "2,64,1024,4096,16384", "bandwidth": "1024,4096,16384"},
}
ROUNDS = {"standard": {"latency": 10000, "bandwidth": 10000}, "small": {"latency": 200, "bandwidth": 100}}
ENDS = (2, 2**23)
COLUMN = {"latency": "typical", "bandwidth": "average"}


class Rdma(Measurement):
    """A server on the first node, a client on the second; reliable connection, polling."""

    feature = "perftest"
    needs = "rdma"
    nodes = 2
    operation = parameter(OPERATIONS, loggable=True)
    kind = "latency"
    tags = {"rdma", "fdr", "full"}

    def arrange(self):
        """One task a node; the partition says which device and port (``extras['rdma_options']``)."""
        self.num_tasks, self.num_tasks_per_node = 2, 1
        self.sizes = SIZES[self.partition_extras["scale"]][self.kind]
        self.rounds = ROUNDS[self.partition_extras["scale"]][self.kind]
        self.run_instead(f"ib_{self.operation}_{'lat' if self.kind == 'latency' else 'bw'}")
        options = [str(option) for option in self.partition_extras.get("rdma_options", ())]
        # -F: a governor that scales the clock is for preflight to say, not for lines within the table.
        self.executable_opts = ["-F", "-c", "RC", "-n", str(self.rounds), *options]

    @run_after("setup")
    def run_as_pair(self):
        """Start the second task when the first one listens."""
        self.executable_opts = [self.sizes, self.executable, *self.executable_opts]
        self.executable = "./pair.sh"

    @run_before("run")
    def bring_pair(self):
        """Put the script beside the job's own."""
        self.bring("pair.sh")

    def read(self):
        """Assert operation, connection and rounds, then take the client's curve."""
        text = self.stage_text("client.out")
        run = (
            output.parse(text, *ENDS)
            if self.sizes == "all"
            else output.parse_each(text, [int(size) for size in self.sizes.split(",")])
        )
        as_asked(
            "perftest",
            operation=(run.operation, self.operation),
            kind=(run.kind, self.kind),
            connection=(run.connection, "RC"),
            rounds=(run.iterations, self.rounds),
        )
        setting = f"two nodes, {run.link}, MTU {run.mtu}"
        metric = f"rdma_{self.operation}_{self.kind}"
        return [Result.curve(metric, setting, run.columns[COLUMN[self.kind]])]


@overhead.simple_test
class rdma_latency(Rdma):
    """Latency: the median."""

    descr = "RDMA latency between two nodes (perftest, RC, polling), 2 B to 8 MiB"


@overhead.simple_test
class rdma_bandwidth(Rdma):
    """Bandwidth."""

    descr = "RDMA bandwidth between two nodes (perftest, RC), 2 B to 8 MiB"
    kind = "bandwidth"
