"""Memory bandwidth: the copy and triad kernels of STREAM, on one core and on all of them."""

from typing import NamedTuple

from virtqual.files.wording import pluralize
from virtqual.programs import likwid, sizes
from virtqual.programs.text import OutputError
from virtqual.runs import Result

from . import counts, overhead
from .asked import as_asked
from .base import Measurement


class StreamKernel(NamedTuple):
    """A kernel of STREAM: its name in likwid-bench, and the number of vectors that it touches."""

    name: str
    vectors: int


# Every x86-64 machine has SSE, some emulated ones no more; and memory is the limit, not the vectors' width.
KERNELS = {"copy": StreamKernel("copy_sse", 2), "triad": StreamKernel("stream_sse", 3)}
ITERATIONS = {"small": 15, "standard": 40}


@overhead.simple_test
class memory_bandwidth(Measurement):
    """Copy and triad over arrays four times the last-level caches, or named otherwise."""

    descr = "memory bandwidth: copy and triad"
    feature = "memory-bandwidth"
    threads = parameter(["one", "all"], loggable=True)
    tags = {"memory", "quick", "full"}

    @classmethod
    def explain_unfit(cls, case):
        """Return why it cannot run: on a single core, ``one`` is ``all``."""
        lacks_cores = case.threads == "all" and counts.cores() == 1
        return super().explain_unfit(case) or ("needs nodes of 2 cores" if lacks_cores else "")

    def arrange(self):
        """One task with one thread, or with one a physical core; both kernels in one job."""
        self.num_cpus_per_task = self.cores
        self.bind_to_threads()
        self.num_threads = 1 if self.threads == "one" else self.cores
        self.arrays = sizes.arrays(self.partition_extras["llc_bytes"], self.node_memory, small=self.small)
        self.executable_opts = self.kernel_options("copy")
        triad = " ".join(["./task.sh", str(self.program["path"]), *self.kernel_options("triad")])
        # ReFrame gives the number of CPUs to the job's first step only, and Slurm does not hand it on.
        launch = f"{self.launch_command()} --cpus-per-task={self.num_cpus_per_task}"
        self.following = [f"{launch} {triad} > triad.out"]

    def kernel_options(self, name):
        """Return likwid-bench's options; ``-W`` has every thread place its own part of the vectors."""
        kernel = KERNELS[name]
        iterations = ITERATIONS[self.scale]
        size = kernel.vectors * self.arrays.bytes_each // 1000
        return ["-t", kernel.name, "-W", f"N:{size}kB:{self.num_threads}", "-i", str(iterations)]

    def read(self):
        """Assert kernel, threads and size of both runs, then take the bandwidths."""
        setting = pluralize(self.num_threads, "thread")
        results = []
        for name, text in (("copy", self.output()), ("triad", self.stage_text("triad.out"))):
            run, kernel = likwid.parse(text), KERNELS[name]
            as_asked(
                "likwid-bench", kernel=(run.kernel, kernel.name), threads=(run.threads, self.num_threads)
            )
            (cores_of_node,) = self.noted.cores.values()
            if len({cores_of_node.get(cpu, cpu) for cpu in run.hwthreads}) != run.threads:
                raise OutputError("likwid-bench", f"threads share cores: hardware threads {run.hwthreads}")
            size = kernel.vectors * self.arrays.bytes_each
            if abs(run.size - size) > 0.02 * size:
                raise OutputError("likwid-bench", f"vectors of {run.size} bytes, asked for {size}")
            results.append(Result.scalar(f"{self.arrays.family}_{name}", setting, run.bandwidth))
        return results
