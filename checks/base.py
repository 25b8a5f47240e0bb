"""What every check shares: runs in turn on both partitions, guards, and the verdict on their overhead.

:class:`Measurement` runs one program once, on one side.  :class:`Overhead` collects its samples from both
sides and judges them.  Reading numbers and deciding are calls into ``virtqual``.
"""

import math
import shutil
import time
from pathlib import Path

import reframe as rfm
import reframe.core.runtime as rt
import reframe.utility.sanity as sn
from reframe.core.exceptions import DependencyError, SanityError
from reframe.core.logging import getlogger

import virtqual.job
from virtqual import judging, looks, paths
from virtqual.errors import VirtqualError
from virtqual.identity import look
from virtqual.job import notes, times
from virtqual.outputs.text import OutputError
from virtqual.pairs import PairingError
from virtqual.runs import Run
from virtqual.systems import VirtualExtras, host_of

JOB_FILES = Path(virtqual.job.__file__).parent
# A run that is not over after this long is broken: cases are sized for seconds or minutes.
TIME_LIMIT = {"small": "10m", "standard": "2h"}


class Guarded(rfm.RegressionTestPlugin):
    """Closes the ways in which ReFrame lets a broken run pass."""

    def expected_values(self):
        """Return the names of the performance variables that must be there; a subclass says them."""
        raise NotImplementedError

    @run_after("setup")
    def refuse_retries(self):
        """A retried run breaks the order of the pairs, a retried verdict judges the same samples again."""
        # --repeat, --distribute and -P add parameters of their own, and lose the verdicts on the way.
        added = [name for name in type(self).param_space.params if name.startswith(".")]
        if rt.runtime().current_run > 0 or added:
            raise SanityError(
                "--max-retries, --reruns, --duration, --repeat and --distribute cannot be used with paired "
                "samples; VIRTQUAL_PAIRS=0:5 takes six pairs, `virtqual qualify` as many as are needed"
            )

    @run_after("performance")
    def refuse_missing_values(self):
        """ReFrame only warns when a performance function raises, and passes the test."""
        have = {key.rpartition(":")[2]: entry[0] for key, entry in self.perfvalues.items()}
        wanted = set(self.expected_values())
        if not wanted:
            raise SanityError("the check names no value that it measures")
        if missing := sorted(wanted - have.keys()):
            raise SanityError(f"no value for {', '.join(missing)}")
        if broken := sorted(name for name, value in have.items() if not _is_number(value)):
            raise SanityError(f"no finite number for {', '.join(broken)}")


def _is_number(value):
    return isinstance(value, int | float) and math.isfinite(value)


class Measurement(rfm.RunOnlyRegressionTest, Guarded):
    """One program, run once on one side.

    A subclass sets ``feature`` (what it asks of the stack), ``arrange`` (sizes, tasks and options, from the
    topology that the partition states) and ``read`` (parse, prove sane, return results).
    """

    #: The slots of this look, in the order in which they run: every second pair is reversed.
    sample = parameter([str(slot) for slot in looks.order(*looks.pairs())], loggable=True)
    #: What the stack must provide.
    feature = variable(str)
    #: Nodes that the tasks are spread over.
    nodes = variable(int, value=1)
    #: The run as ``virtqual.runs.Run`` writes it; it travels in the run report and the database.
    record = variable(str, value="", loggable=True)
    tags = {"quick", "full"}
    maintainers = ["virtqual"]
    sourcesdir = None

    def arrange(self):
        """Set tasks, CPUs a task, executable options and files, from ``self.topology``."""
        raise NotImplementedError

    def read(self):
        """Return the results of the finished run, or raise an error that says why they do not count."""
        raise NotImplementedError

    @property
    def slot(self):
        """This run's place in the order of runs."""
        return looks.slot(self.sample)

    @property
    def case(self):
        """The check and its parameters without the sample."""
        return _case(type(self), self)

    @property
    def run_group(self):
        """Runs of one group follow each other (see ``virtqual.guards``)."""
        return self.case

    @property
    def program(self):
        """The stack's entry of the program that provides the feature."""
        return self.current_environ.extras["programs"][self.feature]

    @property
    def known(self):
        """What the system file says of this partition besides its processor."""
        return self.current_partition.extras

    @property
    def host(self):
        """What is known of the host under the virtual partition; None for the native one."""
        if self.slot.side == "native":
            return None
        return host_of(VirtualExtras.model_validate(self.known), "system file")

    @property
    def topology(self):
        """The partition's processor."""
        return self.current_partition.processor

    @property
    def cores(self):
        """Physical cores of one node: no rank shares one with another."""
        return self.topology.num_cpus // (self.topology.num_cpus_per_core or 1)

    @property
    def small(self):
        """Whether the partition asks for sizes that fit a few, or emulated, cores."""
        return self.known["scale"] == "small"

    @classmethod
    def _parameters(cls):
        return set(cls.param_space.params)

    @run_after("init")
    def run_on_one_side(self):
        """Even pairs run native first, odd pairs virtual first; a chain of dependencies keeps the order."""
        self.valid_systems = [f"+{self.slot.side}" + (" +multinode" if self.nodes > 1 else "")]
        self.valid_prog_environs = [f"+{self.feature}"]
        slots = _slots()
        if self.sample in slots[1:]:
            self.depends_on(self._variant(slots[slots.index(self.sample) - 1]), _same_environment)

    def _variant(self, sample):
        wanted = {name: getattr(self, name) for name in self._parameters()} | {"sample": sample}
        selectors = {name: lambda value, wanted=want: value == wanted for name, want in wanted.items()}
        (number,) = type(self).get_variant_nums(**selectors)
        return type(self).variant_name(number)

    @run_after("init")
    def hold_native_against_references(self):
        """Native proves the hardware, wherever the system has reviewed references for this check."""
        file = paths.references() / "systems" / rt.runtime().system.name / f"{type(self).__name__}.yaml"
        self.held = self.slot.side == "native" and file.is_file()
        if self.held:
            self.reference = {"$ref": str(file)}
            # A key that matches nothing must fail, not check nothing.
            self.require_reference = True

    @run_after("setup")
    def set_up_run(self):
        """Ask for tasks and CPUs, bind them, and have the job write down what it sees."""
        self.time_limit = TIME_LIMIT[self.known["scale"]]
        self.num_tasks, self.num_tasks_per_node, self.num_cpus_per_task = 1, 1, 1
        self.exclusive_access = True
        self.executable = str(self.program["path"])
        # What the partition sets for its hardware stands.
        site = self.current_partition.local_env.env_vars
        self.env_vars = {name: value for name, value in self.program["env"].items() if name not in site}
        # Before arrange: a check that starts a second step in its job takes the same options.
        self.job.launcher.options = ["--cpu-bind=cores", *self.program["launch"]]
        self.arrange()
        self.executable_opts = [self.executable, *self.executable_opts]
        self.executable = "./task.sh"
        self.prerun_cmds = [". ./node.sh", *self.prerun_cmds, "virtqual_note begin"]
        self.postrun_cmds = ["virtqual_note end", *self.postrun_cmds]

    @run_before("run")
    def bring_job_files(self):
        """Put the files that note what the job sees beside the job script."""
        for name in ("task.sh", "node.sh", "seen.sh", "seen_says.py"):
            shutil.copy(JOB_FILES / name, self.stagedir)
        (Path(self.stagedir) / "task.sh").chmod(0o755)
        (Path(self.stagedir) / "look.sh").write_text(look.script())

    @sanity_function
    def measure(self):
        """Read the run, or say why its numbers do not count."""
        stage = Path(self.stagedir)
        try:
            noted = notes.read(stage, self.num_tasks)
            identity = notes.identities(stage, noted, self.host)
            notes.check_binding(noted, self.num_cpus_per_task, self.nodes)
            self.check_topology(noted)
            results = self.read()
        except (notes.NotesError, OutputError) as error:
            raise SanityError(str(error)) from error
        span = times.of_job(self.job.jobid, self.job.submit_time, time.time())
        self.measured = {name: value for result in results for name, value in result.variables().items()}
        self.units = {name: self.unit_of(result) for result in results for name in result.variables()}
        self.record = Run(
            check=self.case,
            pair=self.slot.pair,
            side=self.slot.side,
            start=span.start,
            end=span.end,
            clock=span.clock,
            job=str(self.job.jobid),
            nodes=tuple(dict.fromkeys(task.node for task in noted.tasks)),
            results=tuple(results),
            saw={key: value for key, value in noted.begin.items() if key not in ("time", "cpu_ticks")},
            software=noted.seen,
            identity=identity,
            load=noted.load(identity),
            steal=noted.steal,
            seconds=noted.node_seconds,
            stack=self.current_environ.name,
            stack_hash=self.current_environ.extras["stack_hash"],
            reference="held" if self.held else "none",
        ).dump()
        return True

    def check_topology(self, noted):
        """Assert that the node is what the system file says."""
        online = notes.cpu_list(noted.begin.get("cpus_online", ""))
        if self.slot.side == "virtual" and len(online) != self.topology.num_cpus:
            raise notes.NotesError(
                f"node {noted.begin.get('node')} has {len(online)} CPUs online, the system file says "
                f"processor.num_cpus = {self.topology.num_cpus}"
            )

    @run_before("performance")
    def report_values(self):
        """Hand what was read to ReFrame; nothing is parsed a second time."""
        self.perf_variables = {
            name: sn.make_performance_function(sn.defer(value), self.units[name])
            for name, value in self.measured.items()
        }

    def expected_values(self):
        """Every value that was read must arrive."""
        return self.measured

    def unit_of(self, result):
        """Return the unit of a result's metric."""
        return judging.references().metrics[result.metric].unit

    def stage_text(self, name):
        """Return a file of the stage directory, or an error that names it."""
        path = Path(self.stagedir) / name
        if not path.is_file():
            raise OutputError(self.program["name"], f"the file {name} was not written")
        return path.read_text(errors="replace")

    def output(self):
        """Return the job's standard output."""
        return self.stage_text(self.job.stdout)


def _slots():
    """Return the slots of this look, in order, of the sides that the selected partitions have."""
    sides = {f for p in rt.runtime().system.partitions for f in p.features} & {"native", "virtual"}
    return [str(slot) for slot in looks.order(*looks.pairs()) if slot.side in sides]


def _case(check, test):
    """Return the name of a measuring check with the parameters that a test has in common with it."""
    names = sorted(set(check.param_space.params) - {"sample"})
    return " ".join([check.__name__, *(f"%{name}={getattr(test, name)}" for name in names)])


def _same_environment(source, target):
    return source[1] == target[1]


class Overhead(rfm.RunOnlyRegressionTest, Guarded):
    """The verdict on one measurement: its samples from both sides, paired and judged.

    A subclass sets ``measured`` and repeats that check's parameters (but ``sample``).
    """

    #: The check whose samples are judged.
    measured = None
    #: An earlier session (id or path) whose overhead this one's is compared with.
    against = variable(str, value="")
    #: Class of budgets; empty for what the system file says.
    hypervisor_class = variable(str, value="")
    #: One line a metric: the verdict as people read it.
    verdict = variable(str, value="", loggable=True)
    valid_systems = ["+virtual"]
    valid_prog_environs = ["*"]
    local = True
    executable = "true"
    sourcesdir = None
    tags = {"quick", "full", "overhead"}
    maintainers = ["virtqual"]

    @run_after("init")
    def collect_from_both_sides(self):
        """Depend on every sample of this look, wherever it runs."""
        self.valid_prog_environs = [f"+{self.measured.feature}"]
        if self.measured.nodes > 1:
            self.valid_systems = ["+virtual +multinode"]
        own = {name: getattr(self, name) for name in type(self).param_space.params}
        selectors = {name: lambda value, wanted=want: value == wanted for name, want in own.items()}
        slots = _slots()
        chosen = self.measured.get_variant_nums(**selectors, sample=lambda sample: sample in slots)
        self.samples = [self.measured.variant_name(number) for number in chosen]
        for name in self.samples:
            self.depends_on(name, _same_environment)

    @property
    def run_group(self):
        """The verdict follows the runs that it judges."""
        return _case(self.measured, self)

    @run_after("setup")
    def fetch_samples(self):
        """Fetch the finished runs here: what is not there must not be noticed too late."""
        found = []
        for name in self.samples:
            try:
                found.append(self.getdep(name, part="*"))
            except DependencyError as error:
                raise SanityError(f"a sample is missing: {error}") from error
        self.runs = [Run.model_validate_json(test.record) for test in found]
        sides = {run.side for run in self.runs}
        if missing := sorted({"native", "virtual"} - sides):
            raise SanityError(
                f"no {' and no '.join(missing)} sample in this run: there is nothing to compare with; "
                "select both partitions (--system NAME, without a partition)"
            )

    @sanity_function
    def judge(self):
        """Judge every metric; only WITHIN passes, and a baseline where there is nothing to judge yet."""
        try:
            self.verdicts = judging.judge_look(
                self.runs,
                self.hypervisor_class or self.current_partition.extras["hypervisor_class"],
                system=rt.runtime().system.name,
                against=self.against,
            )
        except (VirtqualError, PairingError) as error:
            raise SanityError(str(error)) from error
        messages = [verdict.message for verdict in self.verdicts]
        self.verdict = "\n".join(messages)
        for message in messages:
            getlogger().info(f"    {message.splitlines()[0]}")
        refused = [v.message for v in self.verdicts if not (v.passes or v.outcome is judging.BASELINE)]
        if refused or not messages:
            raise SanityError("\n".join(refused) or "nothing was judged")
        return True

    @run_before("performance")
    def report_overheads(self):
        """Report virtual against native by metric: the geometric mean over a curve."""
        self.overheads = {v.id.replace("@", " "): v.overhead for v in self.verdicts}
        self.perf_variables = {
            name: sn.make_performance_function(sn.defer(math.exp(estimate.log)), "x native")
            for name, estimate in self.overheads.items()
        }

    def expected_values(self):
        """Every judged metric has an overhead."""
        return self.overheads
