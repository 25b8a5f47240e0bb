"""The code that all checks share: a program is run once on one side, in turn with the other side.

:class:`Sampled` is any such run; :class:`Measurement` is that of a program of a stack, which virtqual sizes,
binds and reads.  :func:`checks.judged.judge` makes a sampled check of one that others wrote.  The verdict is
said by :class:`~checks.overhead.Overhead`.  Reading numbers and deciding are calls into ``virtqual``.
"""

import math
import shlex
import shutil
import time
from pathlib import Path

import reframe as rfm
import reframe.core.runtime as rt
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from pydantic import ValidationError
from reframe.core.exceptions import SanityError

import virtqual.job
from virtqual import paths
from virtqual.errors import InfrastructureError
from virtqual.files.wording import describe_first_mistake
from virtqual.harness import limits, order
from virtqual.harness.recorder import end_by_slurm
from virtqual.identity import gather
from virtqual.inputs import declarations, fetched
from virtqual.job import notes
from virtqual.programs.text import OutputError
from virtqual.references import project_references
from virtqual.runs import MeasuredValues, Run
from virtqual.site import held, slurm
from virtqual.site.hosts import hosts_of
from virtqual.site.systems import VirtualExtras, host_of
from virtqual.stack.manifest import is_same_version

from . import counts
from .guarded import Guarded
from .repeated import Repeated
from .selection import StackSelection

JOB_FILES = Path(virtqual.job.__file__).parent
# Slurm counts hardware threads as CPUs: without this option two ranks may share a core, and N CPUs may be
# N/2 cores.
ONE_THREAD = "--threads-per-core=1"


def reason_of(error):
    """Return why a run is refused, in one line."""
    return describe_first_mistake(error) if isinstance(error, ValidationError) else str(error)


class Sampled(Guarded):
    """A program, run once on one side, whose job notes what it sees.

    Goes together with a class of ReFrame's and a :class:`~checks.selection.Selection`.  A class of all three
    calls `measure` when the program has ended, and says in `read` what it measured.
    """

    #: The run as ``virtqual.runs.Run`` writes it; it travels in the run report and the database.
    record = variable(str, value="", loggable=True)

    @property
    def warm_up(self):
        """Return whether this run precedes the first pair: it must be right, and its values are not kept."""
        return self.slot.warm_up

    def read(self):
        """Return the results of what the program left in `room`, or say by an error why they do not count."""
        raise NotImplementedError

    @property
    def partition_extras(self):
        """The partition's ``extras`` in the system file."""
        return self.current_partition.extras

    @property
    def host(self):
        """The facts about the host under the virtual partition; None for the native partition."""
        if self.slot.side == "native":
            return None
        return host_of(VirtualExtras.of_reframe(self.partition_extras), "system file")

    @property
    def topology(self):
        """The partition's processor."""
        return self.current_partition.processor

    @run_after("init")
    def hold_native_against_references(self):
        """Native proves the hardware, wherever the system has reviewed references for this check."""
        file = paths.references() / "systems" / rt.runtime().system.name / f"{type(self).__name__}.yaml"
        self.held = self.slot.side == "native" and not self.warm_up and file.is_file()
        if self.held:
            self.reference = {"$ref": str(file)}
            # A key that matches nothing must fail, not check nothing.
            self.require_reference = True

    @run_after("setup")
    def begin_sample(self):
        """Ask for whole nodes, and limit the time if the user does not."""
        if self.time_limit is None:
            stated = self.current_partition.time_limit
            scale = self.partition_extras["scale"]
            most = limits.MAX_TIME_LIMITS_S[scale] if stated is None else float(typ.Duration(stated))
            least = self.partition_extras.get("least_time_limit") or limits.MIN_TIME_LIMIT_S
            names = self.case, self.current_system.name, self.current_environ.name
            self.time_limit = f"{math.ceil(limits.choose_time_limit(*names, least, most))}s"
        self.exclusive_access = True
        self.fetched = {}

    @run_after("setup")
    def take_place(self):
        """Take the nodes of its place if the runs of a session rotate."""
        nodes = held.nodes_of_places(self.current_partition.name, self.nodes)
        self.named_nodes = order.choose_nodes(self.slot, nodes, self.rotation) if nodes else []
        if nodes:
            self.job.options.append(f"--nodelist={','.join(self.named_nodes)}")
            if self.nodes > 1 and not held.steps():
                # They share the network: of jobs with one name Slurm runs one at a time.
                self.job.options += ["--dependency=singleton", "--job-name=virtqual-on-several-nodes"]
        # `StepScheduler` sorts the waiting cases by this tuple.
        self.job.turn = self.case, not self.warm_up, self.slot.pair

    def note_around(self, see):
        """Have the job write down what it sees, and its tasks where they run.

        Parameters
        ----------
        see
            The program in the shell's words.
        """
        self.prerun_cmds = [". ./node.sh", *self.prerun_cmds, "virtqual_note begin", f"virtqual_see {see}"]
        self.executable_opts = [self.executable, *self.executable_opts]
        self.executable = "./task.sh"
        self.postrun_cmds = ["virtqual_note end", *self.postrun_cmds]

    def launch_command(self):
        """Return the command that starts the run's tasks.

        ReFrame gives the job its size when the job is submitted; the launcher of steps needs it before.
        """
        self.job.num_tasks, self.job.num_tasks_per_node = self.num_tasks, self.num_tasks_per_node
        self.job.num_cpus_per_task = self.num_cpus_per_task
        return self.job.launcher.run_command(self.job)

    def bring(self, name):
        """Put a script of ``virtqual.job`` into the stage directory, where it can be run."""
        Path(shutil.copy(JOB_FILES / name, self.stagedir)).chmod(0o755)

    @run_before("run")
    def bring_job_files(self):
        """Put the files that note what the job sees beside the job script."""
        for name in ("task.sh", "node.sh", "see.sh", "seen.sh", "seen_says.py"):
            self.bring(name)
        (Path(self.stagedir) / "gather.sh").write_text(gather.script(), encoding="utf-8")

    @run_before("run")
    def ask_for_whole_nodes(self):
        """Ask for all memory of the nodes, for no more nodes, and for no variable of the user's shell.

        Options that the user or the system file sets are kept.
        """
        job = self.job
        options = [*job.sched_access, *job.options, *job.cli_options]
        names = {word.split("=")[0] for option in options for word in option.split()}
        if not names & {"--mem", "--mem-per-cpu", "--mem-per-gpu"}:
            job.options.append("--mem=0")
        if self.num_tasks_per_node and not names & {"-N", "--nodes"}:
            job.options.append(f"--nodes={math.ceil(self.num_tasks / self.num_tasks_per_node)}")
        # A run that Slurm repeats by itself would be two in one.
        if not names & {"--requeue", "--no-requeue"}:
            job.options.append("--no-requeue")
        if "--export" not in names:
            job.options.append(f"--export={','.join(sorted(slurm.BASE_VARIABLES))}")
            # Else Slurm hands only these variables on to the steps (man sbatch).
            self.prerun_cmds = ["export SLURM_EXPORT_ENV=ALL", *self.prerun_cmds]

    def rooms(self):
        """Return the directories in which the program ran: one, unless it is repeated."""
        return [Path(self.stagedir)]

    def read_all(self):
        """Return the medians over all repetitions; each must be right, and measure the same."""
        measured, rooms = [], self.rooms()
        for number, self.room in enumerate(rooms, 1):
            # `read` adds numbers that both sides must agree on, and the share of communication.
            self.answers, self.communication = [], None
            try:
                self.check_binding(
                    notes.read_tasks(self.room, self.num_tasks, str(self.job.jobid)), self.nodes
                )
                results = self.read()
            except (notes.NotesError, OutputError, ValidationError) as error:
                where = f"repetition {number} of {len(rooms)}: " if len(rooms) > 1 else ""
                raise SanityError(f"{where}{reason_of(error)}") from error
            for result in results:
                sizes = {f"size {size} of {result.metric}": size for size in result.points}
                self.refuse_no_numbers({**result.variables(), **sizes})
            measured.append(MeasuredValues(tuple(results), tuple(self.answers), self.communication))
        try:
            return MeasuredValues.median(measured)
        except ValueError as error:
            raise SanityError(str(error)) from error

    def measure(self):
        """Read the run, or say why its numbers do not count."""
        if reason := end_by_slurm(self.job):
            raise SanityError(reason)
        if self.job.exitcode != 0:
            raise SanityError(f"job exited with exit code {self.job.exitcode}")
        try:
            noted = self.noted = notes.read(Path(self.stagedir), self.num_tasks, str(self.job.jobid))
            identity = notes.identify_nodes(noted, self.host)
            self.check_topology(noted)
        except notes.NotesError as error:
            raise SanityError(str(error)) from error
        measured = self.read_all()
        self.measured = {}
        if not self.warm_up:
            self.record_run(measured, identity)
        return True

    def record_run(self, measured, identity):
        """Keep the values as the record of the run, with the identity of each of its nodes."""
        results, noted = measured.results, self.noted
        # A step has its own times; those of its job are the session's.
        span = getattr(self.job, "span", None)
        span = span or slurm.read_job_span(self.job.jobid, self.job.submit_time, time.time())
        self.measured = {name: value for result in results for name, value in result.variables().items()}
        self.units = {name: self.unit_of(result) for result in results for name in result.variables()}
        nodes = tuple(dict.fromkeys(task.node for task in noted.tasks))
        try:
            self.record = Run(
                check=self.case,
                pair=self.slot.pair,
                turn=self.rotation.divided(self.slot.pair)[0],
                side=self.slot.side,
                start=span.start,
                end=span.end,
                clock=span.clock,
                job=str(self.job.jobid),
                nodes=nodes,
                hosts=hosts_of(self.partition_extras.get("nodes_of_hosts", {}), nodes, self.slot.side),
                results=results,
                answers=measured.answers,
                inputs={name: ready.sha256 for name, ready in self.fetched.items()},
                communication=measured.communication,
                software=noted.software,
                identity=identity,
                load=noted.compute_load(identity),
                seconds=noted.node_seconds,
                repetitions=len(self.rooms()),
                stack=self.current_environ.name,
                stack_hash=self.current_environ.extras["stack_hash"],
                reference="held" if self.held else "none",
            ).dump()
        except ValidationError as error:
            raise SanityError(reason_of(error)) from error

    def check_binding(self, tasks, nodes):
        """Assert that the tasks of a step were bound as asked, where that is asked for."""

    def check_topology(self, noted):
        """Assert that the node is what the system file says."""
        begin = noted.first_node.begin
        online = notes.parse_cpu_list(begin.get("cpus_online", ""))
        if self.slot.side == "virtual" and len(online) != self.topology.num_cpus:
            raise notes.NotesError(
                f"node {begin.get('node')} has {len(online)} CPUs online, the system file says "
                f"processor.num_cpus = {self.topology.num_cpus}"
            )

    @run_before("performance")
    def report_values(self):
        """Hand what was read to ReFrame, in six digits; nothing is parsed a second time."""
        self.perf_variables = {
            name: sn.make_performance_function(sn.defer(float(f"{value:.6g}")), self.units[name])
            for name, value in self.measured.items()
        }

    def expected_values(self):
        """Return the names of the values that were read."""
        return self.measured

    def unit_of(self, result):
        """Return the unit of a result's metric."""
        if result.declared:
            return result.declared.unit
        return project_references().metrics[result.metric].unit

    def stage_text(self, name):
        """Return a file that the program left, or an error that names it."""
        path = self.room / name
        if not path.is_file():
            raise OutputError(self.program["name"], f"the file {name} was not written")
        return path.read_text(errors="replace", encoding="utf-8")

    def output(self):
        """Return the program's standard output."""
        return self.stage_text(self.job.stdout)


class Measurement(rfm.RunOnlyRegressionTest, Repeated, Sampled, StackSelection):
    """One program of a stack, run once on one side.

    A subclass sets ``feature`` (what it asks of the stack), ``arrange`` (sizes, tasks and options, from the
    topology that the partition states) and ``read`` (parse, prove sane, return results).
    """

    #: ``num_cpus_per_task`` counts cores; else hardware threads.
    whole_cores = True
    tags = {"quick", "full"}
    maintainers = ["virtqual"]
    sourcesdir = None

    def arrange(self):
        """Set tasks, CPUs a task, executable options and files, from ``self.topology``.

        Commands after the program that belong to every repetition of it go to ``self.following``.
        """
        raise NotImplementedError

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
        return self.partition_extras["scale"] == "small"

    @property
    def node_memory(self):
        """Bytes that a check may use on a node of either side: problems of two sizes are no pair."""
        return min(p.extras["memory_mib"] for p in counts.compared()) * 2**20

    def run_instead(self, name):
        """Run another of the programs that the stack lists under the feature.

        Raises
        ------
        InfrastructureError
            The stack has no program of that name.
        """
        if name not in self.program["data"]:
            raise InfrastructureError(f"stack {self.current_environ.name!r} provides no {name}")
        self.executable = self.program["data"][name]

    @run_after("setup")
    def set_up_run(self):
        """Ask for tasks and CPUs, bind them, and have the job write down what it sees."""
        self.num_tasks, self.num_tasks_per_node, self.num_cpus_per_task = 1, 1, 1
        self.executable = str(self.program["path"])
        # Variables that the partition sets for its hardware stay as they are.
        site = self.current_partition.local_env.env_vars
        self.env_vars = {name: value for name, value in self.program["env"].items() if name not in site}
        # Before every run: an input may have changed since the last one.
        self.fetched = {name: fetched.verify_for_run(declarations.find_input(name)) for name in self.inputs}
        # Before arrange: a check that starts a second step in its job takes the same options.
        launch = (self.program["mpi"] and self.partition_extras.get("mpi_options")) or self.program["launch"]
        self.job.launcher.options = ["--cpu-bind=cores", *launch]
        if (self.topology.num_cpus_per_core or 1) > 1:
            self.job.launcher.options.append(ONE_THREAD)
        self.choose_repetitions()
        self.arrange()
        self.note_around(shlex.quote(self.executable))
        self.repeat()

    @sanity_function
    def prove(self):
        """Read the run, or say why its numbers do not count."""
        self.measure()
        self.keep_time()
        return True

    def use_hardware_threads(self):
        """Ask for hardware threads instead of cores; call it in `arrange`."""
        options = self.job.launcher.options
        self.job.launcher.options = [option for option in options if option != ONE_THREAD]
        self.whole_cores = False

    def check_binding(self, tasks, nodes):
        """Assert that the tasks of a step had cores, or hardware threads, of their own."""
        own = self.num_cpus_per_task
        notes.check_binding(tasks, own, nodes, self.noted.cores, whole_cores=self.whole_cores)
