"""HPL by itself (``xhpl``), and HPC Challenge: HPL, DGEMM, FFT, RandomAccess and PTRANS."""

from virtqual.programs import hpcc, sizes
from virtqual.programs import hpl as hpl_output
from virtqual.programs.text import OutputError
from virtqual.runs import Result

from . import overhead
from .asked import as_asked
from .base import Measurement

# RandomAccess may lose this share of its updates (its own rule); its FFT must be this exact.
MAX_RANDOM_ACCESS_ERRORS = 0.01
MAX_FFT_ERROR = 1e-10
METRICS = ("hpl", "dgemm", "fft", "random_access", "ptrans")


class Hpl(Measurement):
    """HPL on all cores of a node: one rank a core in the most square grid, four fifths of the memory."""

    def arrange(self):
        """Choose the size by the memory, or take that of the system file."""
        self.start_tasks(self.cores)
        stated = self.partition_extras.get("hpl")
        self.order, self.block = sizes.hpl_size(self.node_memory, self.cores, small=self.small, stated=stated)
        self.grid = sizes.process_grid(self.num_tasks)
        self.size = f"N={self.order}, NB={self.block}" if stated else f"N={self.order}"


@overhead.simple_test
class hpl(Hpl):
    """HPL by itself, where the stack has it apart from HPC Challenge."""

    descr = "HPL (xhpl) on one node"
    feature = "xhpl"
    tags = {"linpack", "openstack-kvm", "quick", "full"}

    def make_input_files(self):
        """Return the program's input."""
        return {"HPL.dat": hpl_output.configuration(self.order, self.block, *self.grid)}

    def read(self):
        """Assert the size of the system that was solved (the parser verifies its residual)."""
        run = hpl_output.parse(self.output())
        as_asked(
            "HPL",
            order=(run.n, self.order),
            block=(run.block, self.block),
            ranks=(run.p * run.q, self.num_tasks),
        )
        return [Result.scalar("hpl", f"xhpl, {self.num_tasks} ranks, {self.size}", run.rate)]


@overhead.simple_test
class linpack(Hpl):
    """HPC Challenge on all cores of a node."""

    descr = "HPL, DGEMM, FFT, RandomAccess, PTRANS on one node"
    feature = "hpcc"
    tags = {"linpack", "quick", "full"}

    def make_input_files(self):
        """Return the program's input."""
        return {"hpccinf.txt": hpcc.configuration(self.order, self.block, *self.grid)}

    def read(self):
        """Assert residual, error bounds and that all ranks took part; then take the rates."""
        run = hpcc.parse(self.stage_text("hpccoutf.txt"))
        as_asked(
            "hpcc",
            ranks=(run.processes, self.num_tasks),
            order=(run.n, self.order),
            version=(run.version, self.version(run.version)),
        )
        if run.fft_error > MAX_FFT_ERROR:
            raise OutputError("hpcc", f"FFT error {run.fft_error} is above {MAX_FFT_ERROR}")
        if run.random_access_errors > MAX_RANDOM_ACCESS_ERRORS:
            raise OutputError("hpcc", f"RandomAccess lost {run.random_access_errors:.2%} of its updates")
        setting, tries = f"{self.num_tasks} ranks, {self.size}", hpcc.count_tries(self.order)
        settings = {"ptrans": f"{setting}, best of {tries}"} if tries > 1 else {}
        return [Result.scalar(name, settings.get(name, setting), getattr(run, name)) for name in METRICS]
