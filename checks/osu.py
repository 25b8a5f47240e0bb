"""OSU micro-benchmarks: point to point and collectives over message sizes, in a node and between two."""

from dataclasses import dataclass

import reframe as rfm

from virtqual.harness import order as looks
from virtqual.programs import osu as output
from virtqual.programs.text import OutputError
from virtqual.runs import Result

from .base import Measurement
from .overhead import Overhead


@dataclass(frozen=True)
class Benchmark:
    """One of the programs: title in its output, metric and column, which ranks it takes."""

    title: str
    metric: str
    column: str
    plan: str
    # Two ranks, pairs of ranks, or all.
    ranks: str
    # 7.4 announces percentiles in osu_multi_lat's header and prints none.
    percentiles: bool = True


def _collective(title, metric):
    return Benchmark(f"{title} Latency Test", metric, "latency", "collective", "all")


BENCHMARKS = {
    "latency": Benchmark("Latency Test", "osu_latency", "latency", "latency", "two"),
    "bw": Benchmark("Bandwidth Test", "osu_bandwidth", "bandwidth", "bandwidth", "two"),
    "bibw": Benchmark("Bi-Directional Bandwidth Test", "osu_bibandwidth", "bandwidth", "bandwidth", "two"),
    "mbw_mr": Benchmark(
        "Multiple Bandwidth / Message Rate Test", "osu_multi_bandwidth", "bandwidth", "bandwidth", "pairs"
    ),
    "multi_lat": Benchmark(
        "Multi Latency Test", "osu_multi_latency", "latency", "latency", "pairs", percentiles=False
    ),
    "allreduce": _collective("Allreduce", "osu_allreduce"),
    "allgather": _collective("Allgather", "osu_allgather"),
    "alltoall": _collective("All-to-All Personalized Exchange", "osu_alltoall"),
    "bcast": _collective("Broadcast", "osu_bcast"),
}
QUICK = ["latency", "bw"]
CHOSEN = QUICK if looks.scope() == "quick" else list(BENCHMARKS)

# First and last size in bytes, iterations, warm-up rounds, messages in flight; by scale and nodes.  Between
# emulated nodes a message takes milliseconds: fewer sizes and rounds, and no window that overruns the wire.
PLANS = {
    "small": {
        1: {
            "latency": (1, 8192, 500, 50, 0),
            "bandwidth": (1024, 2**18, 20, 5, 64),
            "collective": (4, 8192, 200, 20, 0),
        },
        2: {
            "latency": (1, 1024, 20, 2, 0),
            "bandwidth": (1024, 2**16, 5, 1, 4),
            "collective": (4, 1024, 10, 2, 0),
        },
    },
    "standard": {
        nodes: {
            "latency": (1, 2**22, 1000, 100, 0),
            "bandwidth": (1, 2**22, 100, 10, 64),
            "collective": (4, 2**20, 1000, 100, 0),
        }
        for nodes in (1, 2)
    },
}
# OSU leaves sizes out silently for which a process would need more than 512 MiB (its own default).
LARGEST_BUFFER = 2**28


class Osu(Measurement):
    """One benchmark; the placement decides the setting."""

    feature = "osu"
    benchmark = parameter(CHOSEN, loggable=True)
    setting = "same node"
    tags = {"mpi", "fdr", "quick", "full"}
    quick = {"benchmark": QUICK}

    @run_after("init")
    def describe(self):
        """Say which benchmark."""
        self.descr = f"osu_{self.benchmark}, {self.setting}"
        self.known_as = BENCHMARKS[self.benchmark]

    def arrange(self):
        """Place the ranks, choose sizes and rounds."""
        self.run_instead(f"osu_{self.benchmark}")
        # The nodes of a small system may be one machine's, and ranks that wait busily for a message then keep
        # the one that is to send it from running.
        a_node = 1 if self.small and self.nodes > 1 else self.cores
        ranks = {"two": 2, "pairs": self.nodes * a_node // 2 * 2, "all": self.nodes * a_node}
        self.num_tasks = max(2, ranks[self.known_as.ranks])
        self.num_tasks_per_node = self.num_tasks // self.nodes
        plan = PLANS[self.known["scale"]][self.nodes][self.known_as.plan]
        self.first, last, rounds, warm_up, window = plan
        self.last = min(last, 1 << (LARGEST_BUFFER // self.num_tasks).bit_length() - 1)
        self.executable_opts = ["-m", f"{self.first}:{self.last}", "-i", str(rounds), "-x", str(warm_up)]
        if window:
            self.executable_opts += ["-W", str(window)]
        self.executable_opts += self.percentiles()

    def percentiles(self):
        """Return the option for the median, which stays where it is when a round is interrupted."""
        version = tuple(int(part) for part in self.program["version"].split(".")[:2])
        if version < (7, 3) or not self.known_as.percentiles:
            return []
        return ["-z50"] if version >= (7, 4) else ["-z"]

    def read(self):
        """Assert which benchmark ran with how many pairs, then take its curve."""
        run = output.parse(self.output(), self.first, self.last)
        if run.benchmark != self.known_as.title:
            raise OutputError("OSU", f"ran {run.benchmark!r}, asked for {self.known_as.title!r}")
        if run.pairs and run.pairs != self.num_tasks // 2:
            raise OutputError("OSU", f"{run.pairs} pairs, asked for {self.num_tasks // 2}")
        column = "p50" if "p50" in run.columns else self.known_as.column
        statistic = "median" if column == "p50" else "mean"
        ranks = "" if self.num_tasks == 2 else f"{self.num_tasks} ranks, "
        setting = f"{self.setting}, {ranks}{statistic}"
        return [Result.curve(self.known_as.metric, setting, run.columns[column])]


@rfm.simple_test
class osu_node(Osu):
    """Inside a node."""


@rfm.simple_test
class osu_nodes(Osu):
    """Between two nodes."""

    nodes = 2
    setting = "two nodes"


@rfm.simple_test
class osu_node_overhead(Overhead):
    """Verdict inside a node."""

    descr = "OSU inside a node: virtual against native"
    measured = osu_node
    benchmark = parameter(CHOSEN, loggable=True)


@rfm.simple_test
class osu_nodes_overhead(Overhead):
    """Verdict between nodes."""

    descr = "OSU between two nodes: virtual against native"
    measured = osu_nodes
    benchmark = parameter(CHOSEN, loggable=True)
