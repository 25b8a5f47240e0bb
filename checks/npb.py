"""NAS Parallel Benchmarks: memory-bound IS and CG, and the others, each in the class that fits a node."""

import math

from virtqual.programs import npb as output
from virtqual.programs import sizes
from virtqual.runs import Result

from . import overhead
from .asked import as_asked
from .base import Measurement

# IS and CG lost most under KVM in the published study, and are metrics of their own.
METRICS = {"is": "npb_is", "cg": "npb_cg"}
QUICK = ("is", "cg")
KERNELS = [*QUICK, "ep", "ft", "mg", "lu", "bt", "sp"]
# These two take a square number of processes, the others a power of two.
SQUARE = ("bt", "sp")


@overhead.simple_test
class npb(Measurement):
    """One benchmark on the cores of a node."""

    descr = "NAS Parallel Benchmarks on one node (class D where it fits)"
    feature = "npb"
    kernel = parameter(KERNELS, loggable=True)
    tags = {"app", "openstack-kvm", "quick", "full"}
    quick = {"kernel": QUICK}

    def arrange(self):
        """Take as many ranks as the benchmark can use of the cores."""
        self.problem_class = sizes.npb_class(self.kernel, self.node_memory, self.cores, small=self.small)
        self.run_instead(f"{self.kernel}.{self.problem_class}.x")
        largest_square, largest_power = math.isqrt(self.cores) ** 2, 1 << self.cores.bit_length() - 1
        self.start_tasks(largest_square if self.kernel in SQUARE else largest_power)

    def read(self):
        """Assert verification (by the parser), benchmark, class and ranks; then take the rate."""
        run = output.parse(self.output())
        as_asked(
            "NPB",
            benchmark=(run.benchmark, self.kernel.upper()),
            problem_class=(run.problem_class, self.problem_class),
            ranks=(run.tasks, self.num_tasks),
            version=(run.version, self.version(run.version)),
        )
        setting = f"{run.benchmark}.{run.problem_class}, {run.tasks} ranks"
        return [Result.scalar(METRICS.get(self.kernel, "npb_other"), setting, run.rate)]
