"""Fresh pages and forks (stress-ng): the cost of a guest's page tables and of its exits to the hypervisor."""

from typing import NamedTuple

from virtqual.programs import stress_ng
from virtqual.programs.text import OutputError
from virtqual.runs import Result

from . import overhead
from .asked import as_asked
from .base import Measurement

# Mapped, written from end to end and unmapped, again and again: all the memory that it takes beside the
# program's own.
BUFFER_BYTES = 8 * 2**20
# Huge pages would be 512 times fewer, and each side's kernel sets whether there are any.
FRESH_PAGES = f"--vm-method write64 --vm-bytes {BUFFER_BYTES} --vm-madvise nohugepage --no-madvise"


class Stressor(NamedTuple):
    """A stressor: its name in stress-ng, its metric, its options, and its operations by scale."""

    name: str
    metric: str
    options: str
    operations: dict[str, int]


# An operation of `vm` is a MiB written; one of `fork` is a child that has ended.
STRESSORS = {
    "pages": Stressor("vm", "page_touch_time", FRESH_PAGES, {"small": 320, "standard": 16384}),
    "forks": Stressor("fork", "fork_time", "", {"small": 320, "standard": 20000}),
}
BYTES_PER_VM_OPERATION = 2**20


@overhead.simple_test
class paging(Measurement):
    """A process on one core that asks its kernel for nothing but fresh pages, or for nothing but children."""

    descr = "time of a fresh page, and of a fork"
    feature = "stress-ng"
    work = parameter(list(STRESSORS), loggable=True)
    tags = {"memory", "quick", "full", "sweep"}

    def arrange(self):
        """One instance on one core: with more than one, forks would measure how the kernel chooses cores."""
        self.stressor = STRESSORS[self.work]
        self.operations = self.stressor.operations[self.scale]
        name = self.stressor.name
        # Without a fixed seed it draws the options of its system calls at random, and others in each run.
        report = "--no-rand-seed --metrics --yaml stress-ng.yaml"
        options = f"--{name} 1 --{name}-ops {self.operations} {self.stressor.options} {report}"
        self.executable_opts = options.split()

    def read(self):
        """Assert operations, version and memory in use; then take the time of one operation."""
        run = stress_ng.parse(self.stage_text("stress-ng.yaml"))
        as_asked(
            "stress-ng",
            stressor=(run.stressor, self.stressor.name),
            operations=(run.operations, self.operations),
            version=(run.version, self.version(run.version)),
        )
        if self.work == "forks":
            return [Result.scalar(self.stressor.metric, "one core", run.time / run.operations * 1e6)]
        if run.resident < BUFFER_BYTES:
            raise OutputError(
                "stress-ng",
                f"no more than {run.resident} bytes were in memory, {BUFFER_BYTES} were to be written",
            )
        pages = run.operations * BYTES_PER_VM_OPERATION / run.page
        return [Result.scalar(self.stressor.metric, f"{run.page // 1024} KiB pages", run.time / pages * 1e6)]
