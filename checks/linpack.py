"""HPL and its companions of HPC Challenge: DGEMM, FFT, RandomAccess and PTRANS."""

from virtqual.programs import hpcc
from virtqual.programs.text import OutputError
from virtqual.runs import Result

from . import overhead
from .asked import as_asked
from .hpl import OnAllCores

# RandomAccess may lose this share of its updates (its own rule); its FFT must be this exact.
RANDOM_ACCESS_ERRORS = 0.01
FFT_ERROR = 1e-10
METRICS = ("hpl", "dgemm", "fft", "random_access", "ptrans")


@overhead.simple_test
class linpack(OnAllCores):
    """HPC Challenge on all cores of a node."""

    descr = "HPL, DGEMM, FFT, RandomAccess, PTRANS on one node"
    feature = "hpcc"
    tags = {"linpack", "quick", "full"}
    input_file = "hpccinf.txt"
    configuration = staticmethod(hpcc.configuration)

    def read(self):
        """Assert residual, error bounds and that all ranks took part; then take the rates."""
        run = hpcc.parse(self.stage_text("hpccoutf.txt"))
        as_asked(
            "hpcc",
            ranks=(run.processes, self.num_tasks),
            order=(run.n, self.order),
            version=(run.version, self.version(run.version)),
        )
        if run.fft_error > FFT_ERROR:
            raise OutputError("hpcc", f"FFT error {run.fft_error} is above {FFT_ERROR}")
        if run.random_access_errors > RANDOM_ACCESS_ERRORS:
            raise OutputError("hpcc", f"RandomAccess lost {run.random_access_errors:.2%} of its updates")
        setting = f"{self.num_tasks} ranks, {self.size}"
        return [Result.scalar(name, setting, getattr(run, name)) for name in METRICS]
