"""High Performance Linpack by itself (``xhpl``), where the stack has it apart from HPC Challenge."""

from pathlib import Path

import reframe as rfm

from virtqual.programs import hpl as output
from virtqual.programs import sizes
from virtqual.programs.text import OutputError
from virtqual.runs import Result

from .base import Measurement
from .overhead import Overhead


@rfm.simple_test
class hpl(Measurement):
    """HPL on all cores of a node."""

    descr = "HPL (xhpl) on one node"
    feature = "xhpl"
    tags = {"linpack", "openstack-kvm", "quick", "full"}

    def arrange(self):
        """One rank a physical core, in the most square grid; four fifths of the memory."""
        self.num_tasks = self.num_tasks_per_node = self.cores
        stated = self.known.get("hpl")
        self.order, self.block = sizes.hpl_size(self.node_memory, self.cores, small=self.small, stated=stated)
        self.size = f"N={self.order}, NB={self.block}" if stated else f"N={self.order}"

    @run_before("run")
    def write_input(self):
        """Write ``HPL.dat``."""
        p, q = sizes.process_grid(self.num_tasks)
        (Path(self.stagedir) / "HPL.dat").write_text(
            output.configuration(self.order, self.block, p, q), encoding="utf-8"
        )

    def read(self):
        """Assert one system of the size asked for, whose residual passed; then take the rate."""
        (run, *more) = output.parse(self.output())
        if more or (run.n, run.block, run.p * run.q) != (self.order, self.block, self.num_tasks):
            raise OutputError("HPL", f"solved {[run, *more]}, asked for N = {self.order} on {self.num_tasks}")
        return [Result.scalar("hpl", f"xhpl, {self.num_tasks} ranks, {self.size}", run.rate)]


@rfm.simple_test
class hpl_overhead(Overhead):
    """Verdict on HPL."""

    descr = "HPL (xhpl): virtual against native"
    measured = hpl
