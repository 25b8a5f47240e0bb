"""A measurement: one program of a stack, which virtqual sizes, binds, runs once on one side, and reads.

The verdict is :class:`~checks.overhead.Overhead`.  Reading numbers and deciding are calls into ``virtqual``.
"""

import shlex
from pathlib import Path

import reframe as rfm
from reframe.core.exceptions import SanityError

from virtqual.files import reading
from virtqual.inputs import declarations, fetched
from virtqual.job import notes
from virtqual.programs.text import OutputError
from virtqual.runs import Answer
from virtqual.stack.manifest import is_same_version
from virtqual.verdict.pairs import SIDES

from . import counts
from .repeated import Repeated
from .sampled import Sampled

# Slurm counts hardware threads as CPUs: without this option two ranks may share a core, and N CPUs may be
# N/2 cores.
ONE_THREAD = "--threads-per-core=1"
#: A library may warn at every message; programs print less than 1 MiB.
MAX_OUTPUT_BYTES = 64 * 2**20


class Measurement(rfm.RunOnlyRegressionTest, Repeated, Sampled):
    """One program of a stack, run once on one side.

    A subclass sets ``feature``, ``arrange`` (sizes, tasks and options, from the partition's topology) and
    ``read`` (parse, assert that the result is right, return results).
    """

    #: The feature that the stack must provide.
    feature = variable(str)
    #: Nodes that the tasks are spread over.
    nodes = variable(int, value=1)
    #: A feature that both partitions must have, such as ``rdma``.
    needs = ""
    #: Physical cores that every node must have.
    least_cores = 1
    #: The values of parameters in the quick scope; a case with another value is of the full scope alone.
    quick = {}
    #: By scale the least and the most seconds of a run, for the plan, if repetitions do not decide them.
    run_seconds = {}
    #: Inputs that must have been fetched beforehand, by their names in ``references/inputs/``.
    inputs = ()
    #: The only scale that it is for; empty for all scales.
    only_scale = ""
    #: ``num_cpus_per_task`` counts cores; else hardware threads.
    whole_cores = True
    tags = {"quick", "full"}
    maintainers = ["virtqual"]
    sourcesdir = None

    def arrange(self):
        """Set tasks, CPUs a task, executable options and files, by what the nodes have.

        Commands after the program that belong to every repetition of it go to ``self.following``.
        """
        raise NotImplementedError

    def make_input_files(self):
        """Return the texts of the files that the program reads, by their paths in the stage directory."""
        return {}

    @classmethod
    def environments(cls):
        """Return the stacks that provide the feature."""
        return [f"+{cls.feature}"]

    @classmethod
    def tags_of(cls, case):
        """Return the tags of a case: ``quick`` if its parameters are those of the quick scope."""
        is_quick = all(getattr(case, name) in values for name, values in cls.quick.items())
        return set(cls.tags) if is_quick else set(cls.tags) - {"quick"}

    @classmethod
    def explain_unfit(cls, case):
        """Return why a case cannot run: another scale, too few nodes or cores, no feature, no input."""
        if cls.only_scale and counts.scales() - {cls.only_scale}:
            return f"for partitions of scale {cls.only_scale!r}"
        if cls.nodes > counts.nodes():
            return f"needs {cls.nodes} nodes on each side"
        if cls.least_cores > counts.cores():
            return f"needs nodes of {cls.least_cores} cores"
        for side in SIDES:
            partition = counts.find_partition(side)
            if cls.needs and not (partition and cls.needs in partition.features):
                return f"needs a {side} partition with the feature {cls.needs!r}"
        reasons = (fetched.explain_missing(declarations.find_input(name)) for name in cls.inputs)
        return "; ".join(filter(None, reasons))

    @property
    def program(self):
        """The stack's entry of the program that provides the feature."""
        return self.current_environ.extras["programs"][self.feature]

    def version(self, printed):
        """Return the version that the program printed if the stack's one agrees with it, else the stack's."""
        version = self.program["version"]
        return printed if is_same_version(printed, version) else version

    @property
    def cores(self):
        """Physical cores that a node of either side has: no rank shares one with another."""
        return counts.cores()

    @property
    def small(self):
        """Return whether the partition asks for sizes that fit a few, or emulated, cores."""
        return self.scale == "small"

    @property
    def node_memory(self):
        """Bytes that a check may use on a node of either side: problems of two sizes are no pair."""
        return min(p.extras["memory_mib"] for p in counts.compared_partitions()) * 2**20

    def run_instead(self, name):
        """Run another of the programs that the stack lists under the feature.

        Raises
        ------
        SanityError
            The stack has no program of that name.
        """
        if name not in self.program["data"]:
            raise SanityError(f"stack {self.current_environ.name!r} provides no {name}")
        self.executable = self.program["data"][name]

    def start_tasks(self, tasks_per_node):
        """Start so many tasks on each of the nodes."""
        self.num_tasks, self.num_tasks_per_node = self.nodes * tasks_per_node, tasks_per_node

    def work_below(self, directory):
        """Make a new directory below one, ``$virtqual_scratch`` of the job, which is removed in the end.

        If it cannot be made, the job ends: each has a trap of ERR (`virtqual.site.configuration`).
        """
        self.prerun_cmds += [
            f"virtqual_scratch=$(mktemp -d {directory}/virtqual-XXXXXX)",
            "trap 'rm -rf \"$virtqual_scratch\"' EXIT",
        ]

    def bind_to_threads(self):
        """Bind tasks to one hardware thread of each core; call it in `arrange`.

        Programs that start a thread on each CPU that they may use would share cores if Slurm bound them to
        whole cores, which it does with all threads of them.
        """
        if self.current_partition.processor.num_cpus_per_core > 1:
            options = self.job.launcher.options
            self.job.launcher.options = ["--cpu-bind=threads", *options[1:]]

    def use_hardware_threads(self):
        """Ask for hardware threads instead of cores; call it in `arrange`."""
        options = self.job.launcher.options
        self.job.launcher.options = [option for option in options if option != ONE_THREAD]
        self.whole_cores = False

    def launch_command(self):
        """Return the command that starts the run's tasks.

        ReFrame gives the job its size when the job is submitted; the launcher of steps needs it before.
        """
        self.job.num_tasks, self.job.num_tasks_per_node = self.num_tasks, self.num_tasks_per_node
        self.job.num_cpus_per_task = self.num_cpus_per_task
        return self.job.launcher.run_command(self.job)

    @run_after("init")
    def take_nodes(self):
        """Take the nodes of the case."""
        self.nodes = self.count_nodes()

    @run_after("setup")
    def set_up_run(self):
        """Ask for tasks and CPUs, bind them, and have the job note its nodes and tasks."""
        self.num_tasks, self.num_tasks_per_node, self.num_cpus_per_task = 1, 1, 1
        self.executable = str(self.program["path"])
        # Variables that the partition sets for its hardware stay as they are.
        site = self.current_partition.local_env.env_vars
        self.modules = self.program["modules"]
        self.env_vars = {name: value for name, value in self.program["env"].items() if name not in site}
        # Before every run: an input may have changed since the last one.
        self.fetched = {name: fetched.verify_for_run(declarations.find_input(name)) for name in self.inputs}
        # Before arrange: a check that starts a second step in its job takes the same options.
        launch = (self.program["mpi"] and self.partition_extras.get("mpi_options")) or self.program["launch"]
        self.job.launcher.options = ["--cpu-bind=cores", *launch]
        if self.current_partition.processor.num_cpus_per_core > 1:
            self.job.launcher.options.append(ONE_THREAD)
        self.choose_repetitions()
        self.arrange()
        self.note_around(shlex.quote(self.executable))
        self.repeat()

    @run_before("run")
    def write_input_files(self):
        """Write the files that the program reads."""
        for name, text in self.make_input_files().items():
            file = Path(self.stagedir) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

    @sanity_function
    def prove(self):
        """Read the run, and keep the time of a warm-up."""
        self.measure()
        self.keep_time()
        return True

    def check_binding(self, tasks, nodes):
        """Assert that the tasks of a step had cores, or hardware threads, of their own."""
        own = self.num_cpus_per_task
        notes.check_binding(tasks, own, nodes, self.noted.cores, whole_cores=self.whole_cores)

    def agree_on(self, name, value, tolerance):
        """Have both sides agree on a value of the run, but for this share of it; call it in `read`."""
        self.answers.append(Answer(name=name, value=value, tolerance=tolerance))

    def stage_text(self, name):
        """Return the text of a file that the program left, or raise an error that names it."""
        path = self.room / name
        if not path.is_file():
            raise OutputError(self.program["name"], f"the file {name} was not written")
        try:
            return reading.read_bytes(path, MAX_OUTPUT_BYTES).decode("utf-8", "replace")
        except OSError as error:
            why = f"the file {name} cannot be read: {error.strerror}"
            raise OutputError(self.program["name"], why) from None

    def output(self):
        """Return the program's standard output."""
        return self.stage_text(self.job.stdout)
