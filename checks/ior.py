"""File systems that nodes share (IOR, mdtest): data and files of tasks on two nodes."""

from virtqual.programs import ior as output
from virtqual.programs.text import refuse_lines
from virtqual.runs import Result

from . import counts, overhead
from .asked import as_asked
from .base import Measurement

MIB = 2**20
# The transfers of the IO500: 1 MiB to a file of each task, or 47,008 bytes to one file of all tasks.
TRANSFER_BYTES = {"easy": MIB, "hard": 47_008}
FILE_BYTES = 3901
NODE_MIB = {"small": 16, "standard": 16_384}
NODE_FILES = {"small": 100, "standard": 20_000}
SIGNATURE = 7


class SharedStorage(Measurement):
    """Tasks on two nodes, in a new directory below `extras.shared_scratch`, which is removed in the end.

    Each task reads what a task of the other node wrote, so that it is not in the cache of its own node.
    """

    feature = "ior"
    nodes = 2
    repeats = False
    tags = {"storage", "full"}

    @classmethod
    def explain_unfit(cls, case):
        """Return why it cannot run: too few nodes, or no directory is stated."""
        return super().explain_unfit(case) or counts.explain_not_stated("shared_scratch")

    def arrange(self):
        """Start a task on each core, or on each node of a small system, in the directory."""
        self.start_tasks(1 if self.small else self.cores)
        self.work_below(self.partition_extras["shared_scratch"])

    def agree_on_capacity(self, capacity):
        """Have both sides agree on the size of the file system: two file systems are no pair."""
        self.agree_on("capacity of the file system, GiB", capacity / 2**30, 0.01)


@overhead.simple_test
class ior(SharedStorage):
    """Data: write and sync, then read and compare."""

    descr = "IOR: bandwidth of a shared file system, two nodes"
    access = parameter(["easy", "hard"], loggable=True)
    run_seconds = {"small": (3, 15), "standard": (20, 120)}

    def arrange(self):
        """Divide as many bytes among the tasks with either access."""
        super().arrange()
        is_easy = self.access == "easy"
        transfer = TRANSFER_BYTES[self.access]
        size = NODE_MIB[self.scale] * MIB // self.num_tasks_per_node
        transfers = max(1, size // transfer)
        block, segments = (transfers * transfer, 1) if is_easy else (transfer, transfers)
        self.asked = {
            "api": "POSIX",
            "tasksPerNode": self.num_tasks_per_node,
            "filePerProc": int(is_easy),
            "transferSize": transfer,
            "blockSize": block,
            "segmentCount": segments,
            "fsync": 1,
            "reorderTasks": 1,
            "checkRead": 1,
            "dataPacketType": 1,
            "setTimeStampSignature/incompressibleSeed": SIGNATURE,
        }
        data = ["-w", "-r", "-R", "-e", "-l", "offset", "-G", str(SIGNATURE), *(["-F"] if is_easy else [])]
        # Reads are shifted by the tasks of one node.
        self.executable_opts = ["-a", "POSIX", *data, "-C", "-Q", "1"]
        self.executable_opts += ["-t", str(transfer), "-b", str(block), "-s", str(segments)]
        self.executable_opts += ["-O", "summaryFormat=JSON", "-O", "summaryFile=ior.json"]
        self.executable_opts += ["-o", '"$virtqual_scratch/ior"']

    def read(self):
        """Assert parameters, tasks and data; then take the rates."""
        # Its exit code is the number of errors, of which 256 look like none.
        refuse_lines("IOR", r"ERROR|Incorrect data|fsync\(", self.output())
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
        self.agree_on_capacity(run.capacity)
        setting = f"{self.access}, {run.tasks} tasks"
        return [
            Result.scalar("ior_write", setting, run.write),
            Result.scalar("ior_read", setting, run.read),
        ]


@overhead.simple_test
class mdtest(SharedStorage):
    """Files of one directory: create with some bytes, stat, and remove."""

    descr = "mdtest: operations on files of a shared file system, two nodes"
    run_seconds = {"small": (3, 30), "standard": (10, 120)}

    def arrange(self):
        """Divide the files among the tasks; each asks for, and removes, files of the other node."""
        super().arrange()
        self.run_instead("mdtest")
        self.files = NODE_FILES[self.scale] // self.num_tasks_per_node
        self.asked = ["-F", "-P", "-C", "-T", "-r", "-n", str(self.files), "-w", str(FILE_BYTES), "-N", "1"]
        self.executable_opts = [*self.asked, "-d", '"$virtqual_scratch"']

    def read(self):
        """Assert options, tasks, files and the shift by the tasks of one node; then take the rates."""
        run = output.parse_mdtest(self.output())
        as_asked(
            "mdtest",
            version=(run.version, self.version(run.version)),
            tasks=(run.tasks, self.num_tasks),
            files=(run.files, self.files * self.num_tasks),
            shift=(run.shift, self.num_tasks_per_node),
            options=(run.options[:-2], tuple(self.asked)),
        )
        self.agree_on_capacity(run.capacity)
        return [
            Result.scalar(f"mdtest_{name}", f"{run.tasks} tasks", rate) for name, rate in run.rates.items()
        ]
