"""Runs as steps of allocations that a session holds: none waits in a queue, and one costs what `srun` costs.

A scheduler and a launcher of ReFrame's, for the partitions whose allocations `virtqual qualify` holds; checks
see no difference.  The job script runs as a step on the first node, and starts the program by another step.
Cases that are given to it at once wait here until their nodes are free.
"""

from __future__ import annotations

import math
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import reframe.core.schedulers as sched
from reframe.core.backends import register_launcher, register_scheduler
from reframe.core.launchers import JobLauncher

from virtqual.site import held, slurm
from virtqual.site.times import Span

# The job script's own step only takes it to its node: what Slurm says there of that step is not meant for
# those that the script starts.
_TAKEN_THERE = (
    "job=$SLURM_JOB_ID conf=$SLURM_CONF; unset ${!SLURM_*}; "
    'export SLURM_JOB_ID=$job ${conf:+SLURM_CONF=$conf}; exec "$0"'
)
#: Seconds that a step may take to end after it was asked to: longer than Slurm takes to kill one (KillWait).
ENDING = 60
# What srun says of a step that did not end by itself, by Slurm's word for such a state; the first that fits.
_ENDS = {
    "OUT_OF_MEMORY": r"oom[-_ ]kill",
    # The last words are those of a node that Slurm has taken out of the allocation.
    "NODE_FAIL": r"NODE FAILURE|Node failure|Requested node configuration is not available",
    "PREEMPTED": r"DUE TO (PREEMPTION|JOB REQUEUE)",
    "TIMEOUT": r"DUE TO TIME LIMIT",
    "CANCELLED": r"CANCELLED AT|already completing or completed|Invalid job id|has been revoked",
    # The step has not begun.  None asks for memory: a controller that was restarted says so for some seconds,
    # in which it does not know its nodes.
    "LAUNCH_FAILED": r"Unable to contact slurm|Socket timed out|Zero Bytes were transmitted|"
    r"Communication connection failure|Transport endpoint is not connected|"
    r"Memory required by task is not available",
}
#: Seconds for which a job script that Slurm does not begin is tried again, and between two attempts.
LAUNCHING, PAUSE = 120, 5


def install() -> None:
    """Make the scheduler and the launcher known to ReFrame, once."""
    if not hasattr(StepScheduler, "registered_name"):
        register_launcher(held.STEP)(StepLauncher)
        register_scheduler(held.STEP)(StepScheduler)


def _nodelist(job: Any) -> list[str]:
    return [option for option in job.options if option.startswith("--nodelist=")][:1]


Turn = tuple[str, bool, int]


class Line:
    """The cases that wait for their nodes, and those that run.

    A case that takes one node that it names runs beside others that do so on other nodes.  One that takes
    several, or any, shares a network with all others, and runs when nothing else does.
    """

    def __init__(self) -> None:
        self._waiting: list[StepJob] = []
        self._running: list[StepJob] = []
        self._cases: dict[str, int] = {}
        self._begun: set[Turn] = set()

    def join(self, job: StepJob) -> None:
        """Have a case wait."""
        self._cases.setdefault(job.turn[0], len(self._cases))
        self._waiting.append(job)

    def leave(self, job: StepJob) -> None:
        """Let a case that has ended, or is not wanted any more, make room."""
        for line in (self._waiting, self._running):
            if job in line:
                line.remove(job)

    def next(self) -> StepJob | None:
        """Return a case whose nodes are free, and hold them for it; None where there is none."""
        now = time.time()
        for job in sorted(self._waiting, key=self._place):
            if now >= job.not_before and self._free(job):
                self._waiting.remove(job)
                self._running.append(job)
                self._begun.add(job.turn)
                return job
        return None

    def _place(self, job: StepJob) -> tuple[bool, int, bool, int]:
        """Return what is first: the second run of a pair, then what belongs to the first case."""
        case, paired, number = job.turn
        return (not (paired and job.turn in self._begun), self._cases[case], paired, number)

    def _free(self, job: StepJob) -> bool:
        if job.node is None:
            return not self._running
        return all(other.node not in (None, job.node) for other in self._running)


class StepLauncher(JobLauncher):  # type: ignore[misc]  # ReFrame has no types
    """Starts the program within the allocation, with the nodes, tasks and CPUs that the job states."""

    def command(self, job: Any) -> list[str]:
        """Return the command; `--overlap`, since the job script's own step has its node, too."""
        each = job.num_tasks_per_node or job.num_tasks
        nodes = math.ceil(job.num_tasks / each)
        # Of several nodes any will do, but the job script's own comes first.
        where = _nodelist(job) or (['--nodelist="$SLURMD_NODENAME"'] if nodes == 1 else [])
        size = [f"--nodes={nodes}", f"--ntasks={job.num_tasks}", f"--ntasks-per-node={each}"]
        # By this name it is found where the job script's step has ended before it.
        return [
            "srun",
            "--overlap",
            '--job-name="$VIRTQUAL_JOB"',
            *size,
            f"--cpus-per-task={job.num_cpus_per_task or 1}",
            *where,
        ]


class StepJob(sched.Job):  # type: ignore[misc]
    """A case that runs as a step; its times are by the clock of this machine."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.process: subprocess.Popen[bytes] | None = None
        self.said = Path(self.stderr)
        self.asked_to_end: float | None = None
        self.timed_out = False
        self.not_before = self.tried_since = 0.0
        #: The case, whether it is of a pair, and the number of that: what it stands in line by.
        self.turn: Turn = ("", True, 0)

    @property
    def span(self) -> Span:
        """When it ran."""
        return Span(self.submit_time, self.completion_time or time.time(), "harness")

    @property
    def node(self) -> str | None:
        """The only node that it takes; None where it takes several, or any."""
        named = "".join(_nodelist(self)).partition("=")[2]
        return named if named and "," not in named else None


class StepScheduler(sched.JobScheduler):  # type: ignore[misc]
    """Runs job scripts as steps of the allocations that their partitions' `access` names."""

    _count = 0
    #: Of both partitions: a case of several nodes on one side runs while nothing does on the other.
    _line = Line()

    def make_job(self, *args: Any, **kwargs: Any) -> StepJob:
        """Return a new job."""
        return StepJob(*args, **kwargs)

    def emit_preamble(self, job: Any) -> list[str]:
        """Return nothing to ask for: the allocation is there."""
        return []

    def allnodes(self) -> Any:
        """Return no nodes: which ones a case runs on is its own to say."""
        return []

    def filternodes(self, job: Any, nodes: Any) -> Any:
        """Return all nodes."""
        return nodes

    def submit(self, job: Any) -> None:
        """Start the job script as a step, now or when its nodes are free."""
        StepScheduler._count += 1
        (allocation,) = (option.partition("=")[2] for option in job.sched_access)
        job._jobid = f"{allocation}.{held.number()}-{StepScheduler._count}"
        # They are read and written later, in another working directory.
        job.said, job.output = Path(job.stderr).resolve(), Path(job.stdout).resolve()
        job.script = Path(job.script_filename).resolve()
        job._submit_time, job._state = time.time(), "PENDING"
        self._line.join(job)
        self._start()

    def _start(self) -> None:
        while job := self._line.next():
            first = [option.partition(",")[0] for option in _nodelist(job)]
            line = [
                *["srun", *job.sched_access, "--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none"],
                *first,
            ]
            with job.output.open("wb") as out, job.said.open("wb") as err:
                job.process = subprocess.Popen(
                    [*line, f"--job-name={job.name}", "bash", "-c", _TAKEN_THERE, str(job.script)],
                    env={**slurm.environment(bare=True), "VIRTQUAL_JOB": job._jobid},
                    cwd=job.script.parent,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
            job._submit_time, job._state = time.time(), "RUNNING"

    def poll(self, *jobs: Any) -> None:
        """See which steps have ended, end those whose time is over, and start those whose nodes are free."""
        for job in jobs:
            if job is not None:
                self._poll(job)
        self._start()

    def _poll(self, job: Any) -> None:
        if job.process is None or job.exitcode is not None:
            return
        now = time.time()
        if (code := job.process.poll()) is not None:
            state = self._state(job, code)
            if state != "COMPLETED":
                self._end_program(job, now + ENDING)
            self._line.leave(job)
            if state == "LAUNCH_FAILED" and self._may_try_again(job, now):
                job.process, job._state, job.not_before = None, "PENDING", now + PAUSE
                self._line.join(job)
                return
            job._exitcode, job._completion_time, job._state = abs(code), now, state
        elif job.asked_to_end is not None:
            if now - job.asked_to_end > ENDING:
                job.process.kill()
        elif job.time_limit and now - job.submit_time > job.time_limit:
            job.timed_out = True
            self.cancel(job)

    @staticmethod
    def _end_program(job: Any, until: float) -> None:
        """End what the job script has started: a step does not end with the one that started it.

        No other case gets its nodes before.
        """
        allocation = job.jobid.partition(".")[0]
        left = True
        while left and time.time() < until:
            with suppress(slurm.SilentError):
                left = bool(slurm.end_steps(allocation, job.jobid))
            time.sleep(PAUSE / 10 * left)

    @staticmethod
    def _may_try_again(job: Any, now: float) -> bool:
        """Return whether nothing of a job script has run yet, and it has not been tried for too long."""
        job.tried_since = job.tried_since or job.submit_time
        begun = (job.script.parent / "virtqual.begin").exists()
        return not begun and now - job.tried_since < LAUNCHING

    @staticmethod
    def _state(job: Any, code: int) -> str:
        if job.timed_out:
            return "TIMEOUT"
        if job.asked_to_end is not None:
            return "CANCELLED"
        said = job.said.read_text(encoding="utf-8", errors="replace")
        ends = [
            state for state, words in _ENDS.items() if re.search(rf"(srun|slurmstepd): .*({words})", said)
        ]
        # A step whose node dies may end with 0 all the same.
        if code == 0 and "NODE_FAIL" not in ends:
            return "COMPLETED"
        return next(iter(ends), "FAILED")

    def cancel(self, job: Any) -> None:
        """Ask a step to end: `srun` hands it on to the tasks."""
        if job.process is None:
            self._line.leave(job)
            job._exitcode, job._state = 1, "CANCELLED"
        elif job.exitcode is None and job.asked_to_end is None:
            job.asked_to_end = time.time()
            job.process.send_signal(signal.SIGTERM)

    def wait(self, job: Any) -> None:
        """Wait until a step has ended; whoever does so as all is given up must not begin another."""
        while not self.finished(job):
            self._poll(job)
            time.sleep(0.05)

    def finished(self, job: Any) -> bool:
        """Return whether a step has ended."""
        return job.exitcode is not None
