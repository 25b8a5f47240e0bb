"""perftest: RDMA writes that go through more and more registered buffers in turn, between two nodes."""

from virtqual.programs import perftest as output
from virtqual.runs import Result

from . import overhead
from .asked import as_asked
from .perftest import Rdma

# Each queue pair has a buffer of its own in a memory region of its own, a page apart at least.
BUFFERS = {"small": (1, 2, 4, 8, 16), "standard": (1, 4, 16, 64, 256, 1024)}
# Bytes a message: small, so that what the IOMMU adds to each counts; of smaller ones between emulated nodes
# perftest would print a bandwidth of 0.00 MB/s.
SIZE = 256
# Messages for each number of buffers; perftest wants five of each buffer at least.
MESSAGES = {"small": 96, "standard": 2**18}


@overhead.simple_test
class rdma_buffers(Rdma):
    """With 4 KiB pages the IOMMU forgets one buffer for another.

    perftest measures latency through one queue pair alone, so this is the time of a message at full rate.  As
    many messages are in flight through few buffers as through many: otherwise few would be limited by the
    latency, many by the rate, and what a VM adds to the one could not be told from what it adds to the other.
    """

    descr = "RDMA write of 256 B by number of registered buffers (perftest, RC)"
    operation = parameter(["write"], loggable=True)
    kind = "bandwidth"

    def arrange(self):
        """One step for each number of buffers, in one job."""
        super().arrange()
        self.sizes = str(SIZE)
        scale = self.partition_extras["scale"]
        self.buffers, self.messages = BUFFERS[scale], MESSAGES[scale]
        device = [str(option) for option in self.partition_extras.get("rdma_options", ())]
        steps = [self.options(count, device) for count in self.buffers]
        self.executable_opts = steps[0]
        program = ["./pair.sh", self.sizes, "./task.sh", str(self.executable)]
        for before, step in zip(self.buffers, steps[1:], strict=False):
            launch = self.launch_command()
            self.following += [f"mv client.out client.{before}.out", " ".join([launch, *program, *step])]
        self.following.append(f"mv client.out client.{self.buffers[-1]}.out")

    def options(self, count, device):
        """Return perftest's options for a number of buffers, each with its share of the messages."""
        depth, rounds = self.buffers[-1] // count, self.messages // count
        counted = ["-q", str(count), "--mr_per_qp", "-t", str(depth), "-n", str(rounds)]
        # Every message completes by itself and none is timed, whatever the depth and the rounds are: by
        # default perftest decides by them.
        return [*counted, "-Q", "1", "-N", "-F", "-c", "RC", *device]

    def read(self):
        """Assert what ran for each number, and take the time of a message."""
        curve, links = {}, set()
        for count in self.buffers:
            run = output.parse(self.stage_text(f"client.{count}.out"), SIZE, SIZE)
            as_asked(
                "perftest",
                operation=(run.operation, "write"),
                kind=(run.kind, "bandwidth"),
                connection=(run.connection, "RC"),
                queue_pairs=(run.queue_pairs, count),
                messages=(run.iterations, self.messages),
            )
            curve[count] = 1 / run.columns["messages"][SIZE]
            links.add(f"{run.link}, MTU {run.mtu}")
        setting = f"two nodes, {', '.join(sorted(links))}, {self.buffers[-1]} in flight"
        return [Result.curve("rdma_buffers", setting, curve)]
