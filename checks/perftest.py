"""perftest: RDMA between two nodes, over message sizes and over numbers of registered buffers."""

from virtqual.programs import perftest as output
from virtqual.runs import Result

from . import overhead
from .asked import as_asked
from .base import Measurement

# The study's: every power of two from 2 B to 8 MiB in one run of the program.  Emulated nodes send small
# messages so slowly that perftest prints their bandwidth as 0.00 MB/s.
SIZES = {
    "standard": {"latency": "all", "bandwidth": "all"},
    "small": {"latency": "2,64,1024,4096,16384", "bandwidth": "1024,4096,16384"},
}
ROUNDS = {"standard": {"latency": 10000, "bandwidth": 10000}, "small": {"latency": 200, "bandwidth": 100}}
ALL_SIZES = [2**power for power in range(1, 24)]
COLUMN = {"latency": "typical", "bandwidth": "average"}

# Each queue pair has a buffer of its own in a memory region of its own, a page apart at least.
BUFFERS = {"small": (1, 2, 4, 8, 16), "standard": (1, 4, 16, 64, 256, 1024)}
# Bytes a message: small, so that the work of the IOMMU for each message counts; of smaller messages between
# emulated nodes perftest would print a bandwidth of 0.00 MB/s.
MESSAGE_BYTES = 256
# Messages for each number of buffers; perftest wants five of each buffer at least.
MESSAGES = {"small": 96, "standard": 2**18}


class Rdma(Measurement):
    """A server on the first node, a client on the second; reliable connection, polling."""

    feature = "perftest"
    needs = "rdma"
    nodes = 2
    scripts = ("pair.sh",)
    operation = parameter(["read", "send", "write"], loggable=True)
    kind = "latency"
    tags = {"rdma", "fdr", "full"}

    def arrange(self):
        """One task a node; the partition names device and port (``extras['rdma_options']``)."""
        self.start_tasks(1)
        self.run_instead(f"ib_{self.operation}_{'lat' if self.kind == 'latency' else 'bw'}")
        device = [str(option) for option in self.partition_extras.get("rdma_options", ())]
        # -F: preflight judges a governor that scales the clock; perftest would print it within the table.
        self.common_options = ["-F", "-c", "RC", *device]
        self.sizes, self.rounds = SIZES[self.scale][self.kind], ROUNDS[self.scale][self.kind]
        self.executable_opts = [*self.common_options, "-n", str(self.rounds)]

    @run_after("setup")
    def run_as_pair(self):
        """Start the second task when the first one listens."""
        self.executable_opts = [self.sizes, self.executable, *self.executable_opts]
        self.executable = "./pair.sh"

    def read(self):
        """Assert operation, connection and rounds, then take the client's curve."""
        text = self.stage_text("client.out")
        if self.sizes == "all":
            run = output.parse(text, ALL_SIZES)
        else:
            run = output.parse_each(text, [int(size) for size in self.sizes.split(",")])
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


@overhead.simple_test
class rdma_buffers(Rdma):
    """RDMA writes that go through more and more registered buffers in turn: the IOMMU caches few 4 KiB pages.

    perftest measures latency through one queue pair alone, so this is the time of a message at full rate.
    As many messages are in flight for few buffers as for many: else latency would limit few, the rate would
    limit many, and the two overheads of a VM could not be told apart.
    """

    descr = "RDMA write of 256 B by number of registered buffers (perftest, RC)"
    operation = parameter(["write"], loggable=True)
    kind = "bandwidth"

    def arrange(self):
        """One step for each number of buffers, in one job."""
        super().arrange()
        self.sizes = str(MESSAGE_BYTES)
        self.buffers, self.messages = BUFFERS[self.scale], MESSAGES[self.scale]
        first, *more = self.buffers
        self.executable_opts = self.options(first)
        program = ["./pair.sh", self.sizes, "./task.sh", str(self.executable)]
        self.following.append(f"mv client.out client.{first}.out")
        for count in more:
            step = " ".join([self.launch_command(), *program, *self.options(count)])
            self.following += [step, f"mv client.out client.{count}.out"]

    def options(self, count):
        """Return perftest's options for a number of buffers, each with its share of the messages."""
        depth, rounds = self.buffers[-1] // count, self.messages // count
        shares = ["-q", str(count), "--mr_per_qp", "-t", str(depth), "-n", str(rounds)]
        # Every message completes by itself and none is timed; by default perftest decides that by depth and
        # rounds.
        return [*shares, "-Q", "1", "-N", *self.common_options]

    def read(self):
        """Assert operation, buffers and messages of each step, and take the time of a message."""
        curve, links = {}, set()
        for count in self.buffers:
            run = output.parse(self.stage_text(f"client.{count}.out"), [MESSAGE_BYTES])
            as_asked(
                "perftest",
                operation=(run.operation, "write"),
                kind=(run.kind, "bandwidth"),
                connection=(run.connection, "RC"),
                queue_pairs=(run.queue_pairs, count),
                messages=(run.iterations, self.messages),
            )
            curve[count] = 1 / run.columns["messages"][MESSAGE_BYTES]
            links.add(f"{run.link}, MTU {run.mtu}")
        setting = f"two nodes, {', '.join(sorted(links))}, {self.buffers[-1]} in flight"
        return [Result.curve("rdma_buffers", setting, curve)]
