"""perftest: RDMA read, send and write between two nodes, latency and bandwidth over message sizes."""

import shutil
from pathlib import Path

import reframe as rfm
import reframe.core.runtime as rt

from virtqual.outputs import perftest as output
from virtqual.outputs.text import OutputError
from virtqual.runs import Result

from .base import JOB_FILES, Measurement
from .overhead import Overhead

OPERATIONS = ["read", "send", "write"]
# What `-a` asks for: every power of two from 2 B to 8 MiB.
SIZES = (2, 2**23)
# The study's number of rounds; emulated nodes take milliseconds for each.
ROUNDS = {"small": 20, "standard": 10000}
COLUMN = {"latency": "typical", "bandwidth": "average"}


def systems(wanted):
    """Add that RDMA is needed, on both sides."""
    partitions = rt.runtime().system.partitions
    with_rdma = {f for p in partitions if "rdma" in p.features for f in p.features}
    return [f"{one} +rdma" for one in wanted] if {"native", "virtual"} <= with_rdma else []


class Rdma(Measurement):
    """A server on the first node, a client on the second; reliable connection, polling."""

    feature = "perftest"
    #: What both partitions must have: where only one has it, there is nothing to compare.
    needs = "rdma"
    nodes = 2
    operation = parameter(OPERATIONS, loggable=True)
    kind = "latency"
    tags = {"rdma", "fdr", "full"}

    @run_after("init")
    def need_rdma(self):
        """Ask for partitions that have it."""
        self.valid_systems = systems(self.valid_systems)

    def arrange(self):
        """One task a node; the partition says which device and port (``extras['rdma_options']``)."""
        self.run_instead(f"ib_{self.operation}_{'lat' if self.kind == 'latency' else 'bw'}")
        self.num_tasks, self.num_tasks_per_node = 2, 1
        self.rounds = ROUNDS[self.known["scale"]]
        options = [str(option) for option in self.known.get("rdma_options", ())]
        # -F: a governor that scales the clock is for preflight to say, not for lines within the table.
        self.executable_opts = ["-a", "-F", "-c", "RC", "-n", str(self.rounds), *options]

    @run_after("setup")
    def run_as_pair(self):
        """Start the second task when the first one listens."""
        self.executable_opts = [self.executable, *self.executable_opts]
        self.executable = "./pair.sh"

    @run_before("run")
    def bring_pair(self):
        """Put the script beside the job's own."""
        shutil.copy(JOB_FILES / "pair.sh", self.stagedir)
        (Path(self.stagedir) / "pair.sh").chmod(0o755)

    def read(self):
        """Assert operation, connection and rounds, then take the client's curve."""
        run = output.parse(self.stage_text("client.out"), *SIZES)
        asked = (self.operation, self.kind, "RC", self.rounds)
        if (run.operation, run.kind, run.connection, run.iterations) != asked:
            raise OutputError(
                "perftest",
                f"{run.operation} {run.kind}, {run.connection}, {run.iterations} rounds: not {asked}",
            )
        setting = f"two nodes, {run.link}, MTU {run.mtu}"
        metric = f"rdma_{self.operation}_{self.kind}"
        return [Result.curve(metric, setting, run.columns[COLUMN[self.kind]])]


@rfm.simple_test
class rdma_latency(Rdma):
    """Latency: the median."""

    descr = "RDMA latency between two nodes (perftest, RC, polling), 2 B to 8 MiB"


@rfm.simple_test
class rdma_bandwidth(Rdma):
    """Bandwidth."""

    descr = "RDMA bandwidth between two nodes (perftest, RC), 2 B to 8 MiB"
    kind = "bandwidth"


class RdmaOverhead(Overhead):
    """Needs RDMA on both sides too."""

    operation = parameter(OPERATIONS, loggable=True)

    @run_after("init")
    def need_rdma(self):
        """Ask for partitions that have it."""
        self.valid_systems = systems(self.valid_systems)


@rfm.simple_test
class rdma_latency_overhead(RdmaOverhead):
    """Verdict on latency."""

    descr = "RDMA latency: virtual against native"
    measured = rdma_latency


@rfm.simple_test
class rdma_bandwidth_overhead(RdmaOverhead):
    """Verdict on bandwidth."""

    descr = "RDMA bandwidth: virtual against native"
    measured = rdma_bandwidth
