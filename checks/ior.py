"""File systems that nodes share (IOR, mdtest): data and files of tasks on two nodes."""

import itertools

from virtqual.programs import ior as output
from virtqual.runs import Result

from . import counts, overhead
from .asked import as_asked
from .base import Measurement

MIB = 2**20
# The transfers of the IO500: 1 MiB to a file of each task, or 47,008 bytes to one file of all tasks.
TRANSFER_BYTES = {"easy": MIB, "hard": 47_008}
TASK_MIB = {"small": 16, "standard": 256}
FILE_BYTES = 3901
TASK_FILES = {"small": 100, "standard": 500}
SIGNATURE = 7


class SharedStorage(Measurement):
    """Tasks on two nodes, in a new directory below `extras.shared_scratch`, which is removed in the end.

    Each task reads what a task of the other node wrote, which its own node has not in memory.
    """

    feature = "ior"
    nodes = 2
    repeats = False
    access = parameter(["easy", "hard"], loggable=True)
    run_seconds = {"small": (3, 30), "standard": (20, 120)}
    tags = {"storage", "full"}

    @classmethod
    def explain_unfit(cls, case):
        """Return why it cannot run: too few nodes, or no directory is stated."""
        return super().explain_unfit(case) or counts.explain_not_stated("shared_scratch")

    def arrange(self):
        """Start a task on each core, or on each node of a small system, in the directory."""
        self.start_tasks(1 if self.small else self.cores)
        self.work_below(self.partition_extras["shared_scratch"])

    @property
    def setting(self):
        """The setting of its results."""
        return f"{self.access}, {self.num_tasks} tasks"


@overhead.simple_test
class ior(SharedStorage):
    """Data: write, sync, read, and read again to verify."""

    descr = "IOR: bandwidth of a shared file system, two nodes"

    def arrange(self):
        """Write as many bytes from each task with either access."""
        super().arrange()
        transfer = TRANSFER_BYTES[self.access]
        size = TASK_MIB[self.partition_extras["scale"]] * MIB
        block, segments = (size, 1) if self.access == "easy" else (transfer, size // transfer)
        self.asked = {
            "api": "POSIX",
            "filePerProc": int(self.access == "easy"),
            "transferSize": transfer,
            "blockSize": block,
            "segmentCount": segments,
            "writeFile": 1,
            "readFile": 1,
            "checkWrite": 1,
            "fsync": 1,
            "reorderTasks": 1,
            "setTimeStampSignature/incompressibleSeed": SIGNATURE,
        }
        shift = ["-C", "-Q", str(self.num_tasks_per_node)]
        sizes = ["-t", str(transfer), "-b", str(block), "-s", str(segments)]
        json = ["-O", "summaryFormat=JSON", "-O", "summaryFile=ior.json"]
        access = ["-F"] if self.access == "easy" else []
        self.executable_opts = ["-a", "POSIX", "-w", "-r", "-W", "-e", "-G", str(SIGNATURE)]
        self.executable_opts += [*access, *shift, *sizes, *json, "-o", '"$virtqual_scratch/ior"']

    def read(self):
        """Assert parameters and tasks; then take the rates.  IOR fails if its data are not as written."""
        run = output.parse(self.stage_text("ior.json"))
        as_asked(
            "IOR",
            version=(run.version, self.version(run.version)),
            tasks=(run.tasks, self.num_tasks),
            parameters=(
                {name: run.parameters.get(name) for name in self.asked},
                {name: str(value) for name, value in self.asked.items()},
            ),
        )
        rates = {"ior_write": run.write, "ior_read": run.read}
        return [Result.scalar(metric, self.setting, rate) for metric, rate in rates.items()]


@overhead.simple_test
class mdtest(SharedStorage):
    """Files: create with some bytes, stat, read, and remove."""

    descr = "mdtest: operations on files of a shared file system, two nodes"

    def arrange(self):
        """Give each task a directory of its own, or all tasks one."""
        super().arrange()
        self.run_instead("mdtest")
        self.files = TASK_FILES[self.partition_extras["scale"]]
        values = {"-n": self.files, "-w": FILE_BYTES, "-e": FILE_BYTES, "-N": self.num_tasks_per_node}
        self.asked = ["-F", "-P", "-X", *(["-u", "-L"] if self.access == "easy" else [])]
        self.asked += itertools.chain.from_iterable((name, str(value)) for name, value in values.items())
        self.executable_opts = [*self.asked, "-d", '"$virtqual_scratch"']

    def read(self):
        """Assert options, tasks and files; then take the rates."""
        run = output.parse_mdtest(self.output())
        as_asked(
            "mdtest",
            version=(run.version, self.version(run.version)),
            tasks=(run.tasks, self.num_tasks),
            files=(run.files, self.files * self.num_tasks),
            options=(run.options[:-2], tuple(self.asked)),
        )
        return [Result.scalar(f"mdtest_{name}", self.setting, rate) for name, rate in run.rates.items()]
