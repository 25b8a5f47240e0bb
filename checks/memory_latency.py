"""Memory latency (pointer_chase): a dependent load, from the caches to many times the reach of the TLB."""

from virtqual.programs import pointer_chase
from virtqual.programs.text import OutputError
from virtqual.runs import Result

from . import counts, overhead
from .asked import as_asked
from .base import Measurement

KIB, MIB, GIB = 2**10, 2**20, 2**30
#: Bytes of a page by the program's option; a kernel gives THP, transparent huge pages, if it can.
PAGES = {"4K": 4 * KIB, "THP": 2 * MIB, "2M": 2 * MIB, "1G": GIB}
# The second-level TLB of current cores holds 1024 to 3072 pages: 4 to 12 MiB of small ones, 6 GiB of 2 MiB.
LARGEST = {
    "small": dict.fromkeys(PAGES, 64 * MIB),
    "standard": {"4K": GIB, "THP": 16 * GIB, "2M": 16 * GIB, "1G": 64 * GIB},
}
#: Nine times each, of which the median counts: a millisecond would be lost to any other process.
LOADS = {"small": 2**17, "standard": 2**21}
SMALLEST = 16 * KIB
# An emulator holds 4 to 32 MiB in its own TLB, or does not: there a load takes one of two times, by chance.
FACTOR = {"small": 64, "standard": 4}


@overhead.simple_test
class memory_latency(Measurement):
    """One task on one core; the largest working set takes a quarter of the node's memory at most."""

    descr = "memory latency by working set"
    feature = "pointer-chase"
    pages = parameter(list(PAGES), loggable=True)
    tags = {"memory", "quick", "full"}
    # Every kernel gives these pages, and walks of two page tables cost most with them.
    quick = {"pages": ("4K",)}

    @classmethod
    def explain_unfit(cls, case):
        """Return why it cannot run: pages that the nodes of a side do not reserve."""
        reserved = [partition.extras.get("hugetlb", ()) for partition in counts.compared_partitions()]
        if case.pages in ("2M", "1G") and not all(case.pages in sizes for sizes in reserved):
            return super().explain_unfit(case) or f"needs reserved pages (extras.hugetlb: {case.pages})"
        return super().explain_unfit(case)

    def arrange(self):
        """Working sets from 16 KiB on, each a fixed number of times the one before."""
        largest = min(LARGEST[self.scale][self.pages], self.node_memory // 4)
        self.sizes = [SMALLEST]
        while self.sizes[-1] * FACTOR[self.scale] <= largest:
            self.sizes.append(self.sizes[-1] * FACTOR[self.scale])
        self.loads = LOADS[self.scale]
        self.executable_opts = [self.pages, str(self.loads), *map(str, self.sizes)]

    def read(self):
        """Assert pages, loads and sizes; then take the latencies. Both sides must have got the same pages."""
        run = pointer_chase.parse(self.output())
        as_asked(
            "pointer_chase",
            pages=(run.pages, self.pages),
            sizes=([part.size for part in run.sets], self.sizes),
            loads=({part.loads for part in run.sets}, {self.loads}),
        )
        largest = run.sets[-1]
        if self.pages == "4K" and (largest.huge or largest.page != PAGES["4K"]):
            raise OutputError("pointer_chase", f"{largest.huge} bytes are in huge pages, asked for none")
        share = min(largest.huge / largest.size, 1)
        self.agree_on("share in huge pages", round(share, 2), 0.1)
        # The share itself differs a little from run to run.
        shortfall = "" if self.pages == "4K" or share > 0.9 else ", not all given"
        latencies = {part.size: part.time for part in run.sets}
        return [Result.curve("memory_latency", f"{self.pages} pages{shortfall}", latencies)]
