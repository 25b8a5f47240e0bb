"""A sample: a program is run once on one side, in turn with the other side, and recorded.

:class:`~checks.base.Measurement` is the sample of a program of a stack, :func:`checks.judged.judge` makes one
of a check that others wrote.
"""

import math
import os
import shlex
import shutil
import signal
import time
from pathlib import Path

import reframe.core.runtime as rt
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from pydantic import ValidationError
from reframe.core.exceptions import SanityError

import virtqual.job
from virtqual import paths
from virtqual.files.wording import describe_first_mistake, pluralize
from virtqual.harness import limits, order
from virtqual.harness.recorder import end_by_slurm
from virtqual.identity import gather
from virtqual.job import notes
from virtqual.programs.text import OutputError
from virtqual.references import project_metrics
from virtqual.runs import MeasuredValues, Run
from virtqual.site import held, slurm
from virtqual.site.extras import Timeouts, VirtualExtras
from virtqual.site.hosts import count_max_nodes, find_hosts, select_nodes_of_hosts
from virtqual.site.options import list_added_options, parse_options

from .selection import Selection

# The shell's exit code for a program with an instruction that the processor lacks.
SIGILL_CODE = 128 + signal.SIGILL
JOB_FILES = Path(virtqual.job.__file__).parent
#: The sentence of a script of ours that gave up.
WHY_FILE = "virtqual.why"
MAX_ERROR_BYTES = 2000
#: How many of the last lines of a job's standard error are shown: srun's own words may stand before others.
MAX_ERROR_LINES = 8


class Sampled(Selection):
    """A program, run once on one side, whose job notes its nodes and tasks.

    Goes together with a class of ReFrame's.  The class of both calls `measure` when the program has ended,
    and returns in `read` what it measured.
    """

    #: The run as ``virtqual.runs.Run`` writes it; it travels in the run report and the database.
    record = variable(str, value="", loggable=True)
    #: Scripts of ``virtqual.job`` that it runs besides those that make the notes.
    scripts = ()

    @property
    def warm_up(self):
        """Return whether this run precedes the first pair: it must be right, and its values are not kept."""
        return self.slot.warm_up

    def read(self):
        """Return the results of the program's output in `room`, or raise an error if they do not count."""
        raise NotImplementedError

    @property
    def scale(self):
        """The scale of the partition: ``small`` or ``standard``."""
        return self.partition_extras["scale"]

    @property
    def partition_extras(self):
        """The partition's ``extras`` in the system file."""
        return self.current_partition.extras

    @property
    def timeouts(self):
        """The partition's ``extras.timeouts``."""
        return Timeouts.model_validate(self.partition_extras.get("timeouts", {}))

    @run_after("init")
    def hold_native_against_references(self):
        """Native proves the hardware, wherever the system has reviewed references for this check."""
        name = f"systems/{rt.runtime().system.name}/{type(self).__name__}.yaml"
        files = [place / name for place in (paths.site_references(), paths.references())]
        files = [file for file in files if file.is_file()]
        self.has_reference = self.slot.side == "native" and not self.warm_up and bool(files)
        if self.has_reference:
            self.reference = {"$ref": str(files[0])}
            # A key that matches nothing must fail, not check nothing.
            self.require_reference = True

    @run_after("setup")
    def begin_sample(self):
        """Ask for whole nodes, and limit the time if the user does not."""
        if self.time_limit is None:
            stated = self.current_partition.time_limit
            longest = limits.MAX_TIME_LIMITS_S[self.scale] if stated is None else float(typ.Duration(stated))
            names = self.case, self.current_system.name, self.current_environ.name
            limit = limits.choose_time_limit(*names, longest) + self.timeouts.prolog
            self.time_limit = f"{math.ceil(min(limit, longest))}s"
        self.exclusive_access = True
        self.fetched = {}

    @run_after("setup")
    def take_place(self):
        """Take the nodes of its place if the runs of a session rotate, else the VMs that it chooses."""
        session = held.read()
        if nodes := session.list_places(self.current_partition.name, self.nodes):
            self.named_nodes = order.choose_nodes(self.slot, nodes, self.rotation)
            if self.nodes > 1 and not session.jobs:
                # They share the network: of jobs with one name Slurm runs one at a time.
                self.job.options += ["--dependency=singleton", "--job-name=virtqual-on-several-nodes"]
        else:
            self.named_nodes = list(self.choose_vms()) if self.slot.side == "virtual" else []
        if self.named_nodes:
            # It follows any nodes in `access`, and replaces them.
            self.job.options.append(f"--nodelist={','.join(self.named_nodes)}")
        # `StepScheduler` sorts the waiting cases by this tuple.
        self.job.turn = self.case, not self.warm_up, self.slot.pair

    def choose_vms(self):
        """Return VMs of as many hosts as it takes nodes, if hosts have several VMs; none if any will do."""
        hosts = self.partition_extras.get("nodes_of_hosts", {})
        # Of more VMs than a session holds, it is not known here which it holds.
        holds_all = sum(map(len, hosts.values())) == self.partition_extras["nodes"]
        if self.nodes > 1 and holds_all and count_max_nodes(hosts) > 1:
            return select_nodes_of_hosts(hosts, self.nodes)
        return ()

    def note_around(self, program):
        """Have the job note its nodes and tasks around `program`, which is quoted for the shell."""
        notes_before = ["virtqual_note begin", f"virtqual_see {program}"]
        self.prerun_cmds = [". ./node.sh", *self.prerun_cmds, *notes_before]
        self.executable_opts = [self.executable, *self.executable_opts]
        self.executable = "./task.sh"
        self.postrun_cmds = ["virtqual_note end", *self.postrun_cmds]

    @run_before("run")
    def bring_job_files(self):
        """Put the scripts that make the notes, and those of the check, beside the job script."""
        for name in ("task.sh", "node.sh", "see.sh", "seen.sh", "seen_says.py", *self.scripts):
            Path(shutil.copy(JOB_FILES / name, self.stagedir)).chmod(0o755)
        (Path(self.stagedir) / "gather.sh").write_text(gather.script(), encoding="utf-8")

    def settle_tasks(self):
        """Settle how many tasks there are on each node, which hooks of a check may have left open."""

    @run_before("run")
    def ask_for_whole_nodes(self):
        """Ask for all memory of the nodes, for no more nodes, and for no variable of the user's shell.

        Options that the user or the system file states are kept, and those that it omits are not added.
        """
        self.settle_tasks()
        job = self.job
        options = [*job.sched_access, *job.options, *job.cli_options]
        stated = parse_options(" ".join(options).split())
        names = stated.keys()
        job.options += list_added_options(names, self.partition_extras.get("omitted_options", ()))
        if self.num_tasks_per_node and "--nodes" not in names:
            needed = math.ceil(self.num_tasks / self.num_tasks_per_node)
            job.options.append(f"--nodes={needed}")
            if "--nodelist" in stated and not self.named_nodes:
                self.shorten_node_list(stated, needed)
        # Else Slurm hands on to the steps only what --export names: nothing for NONE (man sbatch).
        self.prerun_cmds = ["export SLURM_EXPORT_ENV=ALL", *self.prerun_cmds]
        # The profile of a login shell may have gone elsewhere.
        self.prerun_cmds = [f"cd {shlex.quote(self.stagedir)}", *self.prerun_cmds]

    def shorten_node_list(self, stated, needed):
        """Name the first nodes of a list: Slurm refuses more than it is asked for. A user's list stays."""
        job, excluded = self.job, stated.get("--exclude")
        left_out = slurm.expand_nodes(excluded) if excluded else []
        named = [node for node in slurm.expand_nodes(stated["--nodelist"]) if node not in left_out]
        if len(named) != needed and "--nodelist" in parse_options(" ".join(job.cli_options).split()):
            self.skip(f"-J names {pluralize(len(named), 'node')}, and this case takes {needed}")
        job.options.append(f"--nodelist={','.join(named[:needed])}")

    def rooms(self):
        """Return the directories in which the program ran: one, unless it is repeated."""
        return [Path(self.stagedir)]

    def measure(self):
        """Read and record the run; raise an error if its numbers do not count."""
        if reason := end_by_slurm(self.job):
            raise SanityError(reason)
        if self.job.exitcode != 0:
            hint = " (SIGILL: docs/preflight.md, stack-target)" if self.job.exitcode == SIGILL_CODE else ""
            reason = Path(self.stagedir) / WHY_FILE
            text = notes.read_note_text(reason, "") if reason.is_file() else self._read_last_errors()
            why = f": {text.strip()}" if text else ""
            raise SanityError(f"job exited with exit code {self.job.exitcode}{hint}{why}")
        host = None
        if self.slot.side == "virtual":
            host = VirtualExtras.from_reframe(self.partition_extras).read_host()
        try:
            self.noted = notes.read(Path(self.stagedir), self.num_tasks, str(self.job.jobid))
            rdma_options = self.partition_extras.get("rdma_options", ())
            identity = notes.identify_nodes(self.noted, host, rdma_options)
            self.check_topology(self.noted)
            measured = self.read_repetitions()
            self.results = () if self.warm_up else measured.results
            if not self.warm_up:
                self.record = self.make_run(measured, identity).dump()
        except (notes.NotesError, ValidationError) as error:
            raise SanityError(_describe(error)) from error

    def _read_last_errors(self):
        """Return the last lines of the job's standard error; none if it could not be written."""
        path = Path(self.stagedir) / self.job.stderr
        if not path.is_file():
            return ""
        with path.open("rb") as errors:
            errors.seek(-min(errors.seek(0, os.SEEK_END), MAX_ERROR_BYTES), os.SEEK_END)
            lines = errors.read().decode("utf-8", "replace").splitlines()
        return "; ".join([line.strip() for line in lines if line.strip()][-MAX_ERROR_LINES:])

    def read_repetitions(self):
        """Return the typical values of all repetitions; each must be right, and measure the same."""
        measured, rooms = [], self.rooms()
        for number, self.room in enumerate(rooms, 1):
            # `read` adds numbers that both sides must agree on, and the share of communication.
            self.answers, self.communication = [], None
            try:
                tasks = notes.read_tasks(self.room, self.num_tasks, str(self.job.jobid))
                self.check_binding(tasks, self.nodes)
                results = self.read()
            except (notes.NotesError, OutputError, ValidationError) as error:
                repetition = f"repetition {number} of {len(rooms)}: " if len(rooms) > 1 else ""
                raise SanityError(f"{repetition}{_describe(error)}") from error
            for result in results:
                sizes = {f"size {size} of {result.metric}": size for size in result.points}
                self.refuse_no_numbers({**result.variables(), **sizes})
            measured.append(MeasuredValues(tuple(results), tuple(self.answers), self.communication))
        self.results_by_start = [values.results for values in measured]
        try:
            return MeasuredValues.average(measured)
        except ValueError as error:
            raise SanityError(str(error)) from error

    def make_run(self, measured, identity):
        """Return the record of the run: its values, and the identity of each of its nodes."""
        # A step has its own times; the times of its job are the session's.
        span = getattr(self.job, "span", None)
        span = span or slurm.read_job_span(self.job.jobid, self.job.submit_time, time.time())
        nodes = tuple(dict.fromkeys(task.node for task in self.noted.tasks))
        return Run(
            check=self.case,
            pair=self.slot.pair,
            turn=self.rotation.divided(self.slot.pair)[0],
            side=self.slot.side,
            start=span.start,
            end=span.end,
            clock=span.clock,
            job=str(self.job.jobid),
            nodes=nodes,
            hosts=find_hosts(
                self.partition_extras.get("nodes_of_hosts", {}),
                nodes,
                self.slot.side,
                {name: str(node.node) for name, node in identity.items()},
            ),
            results=measured.results,
            answers=measured.answers,
            inputs={name: ready.sha256 for name, ready in self.fetched.items()},
            communication=measured.communication,
            software=self.noted.software,
            identity=identity,
            load=self.noted.compute_load(identity),
            seconds=self.noted.node_seconds,
            shell_seconds=self.noted.shell_seconds,
            repetitions=len(self.rooms()),
            stack=self.current_environ.name,
            stack_hash=self.current_environ.extras["stack_hash"],
            reference="held" if self.has_reference else "none",
        )

    def check_binding(self, tasks, nodes):
        """Assert that the tasks of a step were bound as asked, if the check asks for that."""

    def check_topology(self, noted):
        """Assert that each VM has the CPUs of the system file, or as many cores if it states no threads."""
        if self.slot.side == "native":
            return
        processor = self.current_partition.processor
        stated = processor.num_cpus
        for name, node in noted.nodes.items():
            online = notes.parse_cpu_list(node.begin.get("cpus_online", ""))
            cores = len(set(noted.cores.get(name, {}).values()))
            if stated not in ({len(online), cores} if processor.num_cpus_per_core == 1 else {len(online)}):
                raise notes.NotesError(
                    f"node {name} has {len(online)} CPUs online, the system file says "
                    f"processor.num_cpus = {stated}"
                )

    @run_before("performance")
    def report_values(self):
        """Hand the values to ReFrame, in six digits; nothing is parsed a second time."""
        metrics = project_metrics()
        self.perf_variables = {
            name: sn.make_performance_function(
                sn.defer(float(f"{value:.6g}")), (result.declared or metrics[result.metric]).unit
            )
            for result in self.results
            for name, value in result.variables().items()
        }


def _describe(error):
    return describe_first_mistake(error) if isinstance(error, ValidationError) else str(error)
