"""OSU micro-benchmarks: point to point and collectives over message sizes, in a node and between two."""

from dataclasses import dataclass
from typing import NamedTuple

from virtqual.programs import osu as output
from virtqual.runs import Result

from . import overhead
from .asked import as_asked
from .base import Measurement


@dataclass(frozen=True)
class Benchmark:
    """One of the programs.

    Attributes
    ----------
    title
        Title in the program's output.
    metric, column
        Metric that is read, and the column of the output that holds it.
    kind
        Kind of messages: ``latency``, ``bandwidth`` or ``collective``.
    ranks
        ``two`` ranks, ``pairs`` of ranks, or ``all``.
    percentiles
        Whether it can print them.
    """

    title: str
    metric: str
    column: str
    kind: str
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
QUICK = ("latency", "bw")


class Messages(NamedTuple):
    """First and last size in bytes, rounds and warm-up rounds a size, and messages in flight (0: its own)."""

    first: int
    last: int
    rounds: int
    warm_up: int
    window: int = 0


# By scale, nodes and kind.  Between emulated nodes a message takes milliseconds: fewer sizes and rounds, and
# no window that overruns the wire.
MESSAGES = {
    "small": {
        1: {
            "latency": Messages(1, 8192, 500, 50),
            "bandwidth": Messages(1024, 2**18, 20, 5, 64),
            "collective": Messages(4, 8192, 200, 20),
        },
        2: {
            "latency": Messages(1, 1024, 20, 2),
            "bandwidth": Messages(1024, 2**16, 5, 1, 4),
            "collective": Messages(4, 1024, 10, 2),
        },
    },
    "standard": {
        nodes: {
            "latency": Messages(1, 2**22, 1000, 100),
            "bandwidth": Messages(1, 2**22, 100, 10, 64),
            # As many of 1 MiB, too: among 256 ranks an alltoall of it sends 17 GB from each node.
            "collective": Messages(4, 2**20, 200, 20),
        }
        for nodes in (1, 2)
    },
}
# OSU leaves sizes out silently for which a process would need more than 512 MiB (its own default).
LARGEST_BUFFER = 2**28


class Osu(Measurement):
    """One benchmark; the placement decides the setting."""

    feature = "osu"
    benchmark = parameter(list(BENCHMARKS), loggable=True)
    setting = "same node"
    tags = {"mpi", "fdr", "quick", "full", "sweep"}
    quick = {"benchmark": QUICK}

    @property
    def known_as(self):
        """The benchmark."""
        return BENCHMARKS[self.benchmark]

    def arrange(self):
        """Place the ranks, choose sizes and rounds."""
        self.run_instead(f"osu_{self.benchmark}")
        # The nodes of a small system may be one machine's, and ranks that wait busily for a message then keep
        # the one that is to send it from running.
        a_node = 1 if self.small and self.nodes > 1 else self.cores
        ranks = {"two": 2, "pairs": self.nodes * a_node // 2 * 2, "all": self.nodes * a_node}
        self.num_tasks = max(2, ranks[self.known_as.ranks])
        self.num_tasks_per_node = self.num_tasks // self.nodes
        sent = MESSAGES[self.partition_extras["scale"]][self.nodes][self.known_as.kind]
        self.first = sent.first
        self.last = min(sent.last, 1 << (LARGEST_BUFFER // self.num_tasks).bit_length() - 1)
        rounds = ["-i", str(sent.rounds), "-x", str(sent.warm_up)]
        self.executable_opts = ["-m", f"{self.first}:{self.last}", *rounds]
        if sent.window:
            self.executable_opts += ["-W", str(sent.window)]
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
        pairs = self.num_tasks // 2
        # Only some of them say how many pairs they have.
        as_asked(
            "OSU",
            benchmark=(run.benchmark, self.known_as.title),
            pairs=(run.pairs or pairs, pairs),
            version=(run.version, self.version(run.version)),
        )
        column = "p50" if "p50" in run.columns else self.known_as.column
        statistic = "median" if column == "p50" else "mean"
        ranks = "" if self.num_tasks == 2 else f"{self.num_tasks} ranks, "
        setting = f"{self.setting}, {ranks}{statistic}"
        return [Result.curve(self.known_as.metric, setting, run.columns[column])]


@overhead.simple_test
class osu_node(Osu):
    """Inside a node."""

    descr = "OSU micro-benchmark inside a node"
    least_cores = 2


@overhead.simple_test
class osu_nodes(Osu):
    """Between two nodes."""

    descr = "OSU micro-benchmark between two nodes"
    nodes = 2
    setting = "two nodes"
    tags = {"mpi", "fdr", "quick", "full"}
