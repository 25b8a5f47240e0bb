"""High Performance Linpack by itself (``xhpl``), where the stack has it apart from HPC Challenge."""

from pathlib import Path

from virtqual.programs import hpl as output
from virtqual.programs import sizes
from virtqual.runs import Result

from . import overhead
from .asked import as_asked
from .base import Measurement


class OnAllCores(Measurement):
    """HPL on all cores of a node: one rank a core in the most square grid, four fifths of the memory."""

    #: The file that the program reads, and the function that returns its text.
    input_file = ""
    configuration = None

    def arrange(self):
        """Choose the size by the memory, or take that of the system file."""
        self.num_tasks = self.num_tasks_per_node = self.cores
        stated = self.partition_extras.get("hpl")
        self.order, self.block = sizes.hpl_size(self.node_memory, self.cores, small=self.small, stated=stated)
        self.size = f"N={self.order}, NB={self.block}" if stated else f"N={self.order}"

    @run_before("run")
    def write_input(self):
        """Write the program's input."""
        text = self.configuration(self.order, self.block, *sizes.process_grid(self.num_tasks))
        (Path(self.stagedir) / self.input_file).write_text(text, encoding="utf-8")


@overhead.simple_test
class hpl(OnAllCores):
    """HPL on all cores of a node."""

    descr = "HPL (xhpl) on one node"
    feature = "xhpl"
    tags = {"linpack", "openstack-kvm", "quick", "full"}
    input_file = "HPL.dat"
    configuration = staticmethod(output.configuration)

    def read(self):
        """Assert that a system of the size asked for was solved (its residual: by the parser)."""
        run = output.parse(self.output())
        as_asked(
            "HPL",
            order=(run.n, self.order),
            block=(run.block, self.block),
            ranks=(run.p * run.q, self.num_tasks),
        )
        return [Result.scalar("hpl", f"xhpl, {self.num_tasks} ranks, {self.size}", run.rate)]
