"""HPL and its companions of HPC Challenge: DGEMM, FFT, RandomAccess and PTRANS."""

from pathlib import Path

import reframe as rfm

from virtqual.programs import hpcc, sizes
from virtqual.programs.text import OutputError
from virtqual.runs import Result

from .base import Measurement
from .overhead import Overhead

# RandomAccess may lose this share of its updates (its own rule); its FFT must be this exact.
RANDOM_ACCESS_ERRORS = 0.01
FFT_ERROR = 1e-10
METRICS = ("hpl", "dgemm", "fft", "random_access", "ptrans")


@rfm.simple_test
class linpack(Measurement):
    """HPC Challenge on all cores of a node."""

    descr = "HPL, DGEMM, FFT, RandomAccess, PTRANS on one node"
    feature = "hpcc"
    tags = {"linpack", "quick", "full"}

    def arrange(self):
        """One rank a physical core, in the most square grid."""
        self.num_tasks = self.num_tasks_per_node = self.cores
        stated = self.known.get("hpl")
        self.order, self.block = sizes.hpl_size(self.node_memory, self.cores, small=self.small, stated=stated)
        self.size = f"N={self.order}, NB={self.block}" if stated else f"N={self.order}"

    @run_before("run")
    def write_input(self):
        """Write ``hpccinf.txt``."""
        p, q = sizes.process_grid(self.num_tasks)
        text = hpcc.configuration(self.order, self.block, p, q)
        (Path(self.stagedir) / "hpccinf.txt").write_text(text, encoding="utf-8")

    def read(self):
        """Assert residual, error bounds and that all ranks took part; then take the rates."""
        run = hpcc.parse(self.stage_text("hpccoutf.txt"))
        if (run.processes, run.n) != (self.num_tasks, self.order):
            raise OutputError(
                "hpcc",
                f"{run.processes} processes and N = {run.n}, asked for {self.num_tasks} and {self.order}",
            )
        if run.residual >= run.threshold:
            raise OutputError("hpcc", f"HPL's residual {run.residual} is not below {run.threshold}")
        if run.fft_error > FFT_ERROR:
            raise OutputError("hpcc", f"FFT error {run.fft_error} is above {FFT_ERROR}")
        if run.random_access_errors > RANDOM_ACCESS_ERRORS:
            raise OutputError("hpcc", f"RandomAccess lost {run.random_access_errors:.2%} of its updates")
        setting = f"{self.num_tasks} ranks, {self.size}"
        return [Result.scalar(name, setting, getattr(run, name)) for name in METRICS]


@rfm.simple_test
class linpack_overhead(Overhead):
    """Verdict on HPC Challenge."""

    descr = "HPC Challenge: virtual against native"
    measured = linpack
