"""OSU micro-benchmarks: point to point and collectives over message sizes, in a node and between two."""

from typing import NamedTuple

from virtqual.programs import osu as output
from virtqual.runs import Result

from . import overhead
from .asked import as_asked
from .base import Measurement


class Benchmark(NamedTuple):
    """One of the programs: its title in the output, its metric, kind of messages, and ranks.

    Kinds are ``latency``, ``bandwidth`` and ``collective``; ranks ``two``, ``pairs`` and ``all``.
    """

    title: str
    metric: str
    kind: str
    ranks: str
    # 7.4 announces percentiles in osu_multi_lat's header and prints none.
    percentiles: bool = True


BENCHMARKS = {
    "latency": Benchmark("Latency Test", "osu_latency", "latency", "two"),
    "bw": Benchmark("Bandwidth Test", "osu_bandwidth", "bandwidth", "two"),
    "bibw": Benchmark("Bi-Directional Bandwidth Test", "osu_bibandwidth", "bandwidth", "two"),
    "mbw_mr": Benchmark(
        "Multiple Bandwidth / Message Rate Test", "osu_multi_bandwidth", "bandwidth", "pairs"
    ),
    "multi_lat": Benchmark("Multi Latency Test", "osu_multi_latency", "latency", "pairs", percentiles=False),
    "allreduce": Benchmark("Allreduce Latency Test", "osu_allreduce", "collective", "all"),
    "allgather": Benchmark("Allgather Latency Test", "osu_allgather", "collective", "all"),
    "alltoall": Benchmark(
        "All-to-All Personalized Exchange Latency Test", "osu_alltoall", "collective", "all"
    ),
    "bcast": Benchmark("Broadcast Latency Test", "osu_bcast", "collective", "all"),
}
QUICK = ("latency", "bw")


class Messages(NamedTuple):
    """First and last size in bytes, rounds and warm-up rounds a size, and messages in flight (0: its own)."""

    first: int
    last: int
    rounds: int
    warm_up: int
    window: int = 0


STANDARD_MESSAGES = {
    "latency": Messages(1, 2**22, 1000, 100),
    "bandwidth": Messages(1, 2**22, 100, 10, 64),
    # 200 rounds, of 1 MiB too: among 256 ranks an alltoall of that size sends 17 GB from each node.
    "collective": Messages(4, 2**20, 200, 20),
}
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
    "standard": {1: STANDARD_MESSAGES, 2: STANDARD_MESSAGES},
}
# OSU leaves sizes out silently for which a process would need more than 512 MiB (its own default).
MAX_BUFFER_BYTES = 2**28


class Osu(Measurement):
    """One benchmark; the placement decides the setting."""

    feature = "osu"
    benchmark = parameter(list(BENCHMARKS), loggable=True)
    tags = {"mpi", "fdr", "quick", "full"}
    quick = {"benchmark": QUICK}

    def arrange(self):
        """Place the ranks, choose sizes and rounds."""
        self.run_instead(f"osu_{self.benchmark}")
        self.chosen = BENCHMARKS[self.benchmark]
        # The nodes of a small system may be one machine's: a rank that waits busily for a message would keep
        # its sender from running.
        total = self.nodes * (1 if self.small and self.nodes > 1 else self.cores)
        ranks = {"two": 2, "pairs": total // 2 * 2, "all": total}[self.chosen.ranks]
        self.start_tasks(max(2, ranks) // self.nodes)
        sent = MESSAGES[self.scale][self.nodes][self.chosen.kind]
        self.first = sent.first
        self.last = min(sent.last, 1 << (MAX_BUFFER_BYTES // self.num_tasks).bit_length() - 1)
        rounds = ["-i", str(sent.rounds), "-x", str(sent.warm_up)]
        window = ["-W", str(sent.window)] if sent.window else []
        sizes = ["-m", f"{self.first}:{self.last}"]
        self.executable_opts = [*sizes, *rounds, *window, *self.percentile_options()]

    def percentile_options(self):
        """Return the option for the median, which stays where it is when a round is interrupted."""
        version = tuple(int(part) for part in self.program["version"].split(".")[:2])
        if version < (7, 3) or not self.chosen.percentiles:
            return []
        return ["-z50"] if version >= (7, 4) else ["-z"]

    def read(self):
        """Assert which benchmark ran with how many pairs, then take its curve."""
        run = output.parse(self.output(), self.first, self.last)
        pairs = self.num_tasks // 2
        # Some benchmarks do not print how many pairs they have.
        as_asked(
            "OSU",
            benchmark=(run.benchmark, self.chosen.title),
            pairs=(run.pairs or pairs, pairs),
            version=(run.version, self.version(run.version)),
        )
        column, statistic = "bandwidth" if self.chosen.kind == "bandwidth" else "latency", "mean"
        if "p50" in run.columns:
            column, statistic = "p50", "median"
        setting = "two nodes" if self.nodes == 2 else "same node"
        ranks = "" if self.num_tasks == 2 else f"{self.num_tasks} ranks, "
        return [Result.curve(self.chosen.metric, f"{setting}, {ranks}{statistic}", run.columns[column])]


@overhead.simple_test
class osu_node(Osu):
    """Inside a node."""

    descr = "OSU micro-benchmark inside a node"
    least_cores = 2
    tags = {"mpi", "fdr", "quick", "full", "sweep"}


@overhead.simple_test
class osu_nodes(Osu):
    """Between two nodes."""

    descr = "OSU micro-benchmark between two nodes"
    nodes = 2
