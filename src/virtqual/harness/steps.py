"""Runs as steps of allocations that a session holds: no run waits in a queue.

`StepScheduler` and `StepLauncher` are ReFrame's scheduler and launcher for the partitions whose allocations
`virtqual qualify` holds.  The job script runs as a step on the first node, and starts the program by another
step.  Cases that are submitted at once wait here until their nodes are free.
"""

from __future__ import annotations

import math
import re
import signal
import subprocess
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import reframe.core.schedulers as sched
from reframe.core.backends import register_launcher, register_scheduler
from reframe.core.launchers import JobLauncher

from virtqual.site import held, slurm
from virtqual.site.slurm import Span

# The outer step only selects the node.  Its SLURM_* variables are unset, or the inner srun would inherit its
# size.
_RUN_SCRIPT = (
    "job=$SLURM_JOB_ID conf=$SLURM_CONF; unset ${!SLURM_*}; "
    'export SLURM_JOB_ID=$job ${conf:+SLURM_CONF=$conf}; exec "$0"'
)
#: Time for a step to end after it was asked to: longer than Slurm takes to kill one (KillWait).
END_TIMEOUT_S = 60
# Words of srun about a step that did not end by itself, by Slurm's name of the state; the first match wins.
_STATE_PATTERNS = {
    "OUT_OF_MEMORY": r"oom[-_ ]kill",
    # srun writes the last one if Slurm has removed the node from the allocation.
    "NODE_FAIL": r"NODE FAILURE|Node failure|Requested node configuration is not available",
    "PREEMPTED": r"DUE TO (PREEMPTION|JOB REQUEUE)",
    "TIMEOUT": r"DUE TO TIME LIMIT",
    "CANCELLED": r"CANCELLED AT|already completing or completed|Invalid job id|has been revoked|has expired",
    # The step has not begun.  A restarted controller speaks of memory while it does not know its nodes.
    "LAUNCH_FAILED": r"Unable to contact slurm|Socket timed out|Zero Bytes were transmitted|"
    r"Communication connection failure|Transport endpoint is not connected|"
    r"Memory required by task is not available",
}
#: Time in which a job script that Slurm does not begin is tried again, and the time between two attempts.
LAUNCH_TIMEOUT_S, RETRY_INTERVAL_S = 120, 5


def install() -> None:
    """Make the scheduler and the launcher known to ReFrame, once."""
    if not hasattr(StepScheduler, "registered_name"):
        register_launcher(held.STEP)(StepLauncher)
        register_scheduler(held.STEP)(StepScheduler)


def _nodelist(job: Any) -> list[str]:
    return [option for option in job.options if option.startswith("--nodelist=")][:1]


#: The case of a job, whether it is of a pair, and the number of the pair.
Turn = tuple[str, bool, int]


class NodeQueue:
    """The cases that wait for their nodes, and those that run.

    A case that names its only node runs beside cases on other nodes.  A case that takes several nodes, or
    any, shares a network with all others, and runs alone.
    """

    def __init__(self) -> None:
        self._waiting: list[StepJob] = []
        self._running: list[StepJob] = []
        self._cases: dict[str, int] = {}
        self._begun: set[Turn] = set()

    def add(self, job: StepJob) -> None:
        """Let a case wait for its nodes."""
        self._cases.setdefault(job.turn[0], len(self._cases))
        self._waiting.append(job)

    def remove(self, job: StepJob) -> None:
        """Free the nodes of a case that has ended, or was cancelled."""
        for jobs in (self._waiting, self._running):
            if job in jobs:
                jobs.remove(job)

    def begin_next(self) -> StepJob | None:
        """Return a case whose nodes are free, and take the nodes for it; None if there is no such case."""

        def rank(job: StepJob) -> tuple[bool, int, bool, int]:
            """Sort the second run of a pair first, then the cases in their order."""
            case, paired, number = job.turn
            return (not (paired and job.turn in self._begun), self._cases[case], paired, number)

        busy_nodes = {job.node for job in self._running}
        for job in sorted(self._waiting, key=rank):
            is_free = not busy_nodes if job.node is None else not busy_nodes & {None, job.node}
            if is_free and time.time() >= job.not_before:
                self._waiting.remove(job)
                self._running.append(job)
                self._begun.add(job.turn)
                return job
        return None


class StepLauncher(JobLauncher):  # type: ignore[misc]  # ReFrame has no types
    """Starts the program within the allocation, with the nodes, tasks and CPUs that the job states."""

    def command(self, job: Any) -> list[str]:
        """Return the command; `--overlap`, since the job script's own step has its node, too."""
        tasks_per_node = job.num_tasks_per_node or job.num_tasks
        nodes = math.ceil(job.num_tasks / tasks_per_node)
        # A step without a number of CPUs has all of its nodes.
        cpus = [f"--cpus-per-task={job.num_cpus_per_task}"] if job.num_cpus_per_task else []
        # A run on one node stays on that of the job script.
        nodelist = _nodelist(job) or (['--nodelist="$SLURMD_NODENAME"'] if nodes == 1 else [])
        return [
            "srun",
            *job.sched_access,
            "--overlap",
            # The step is found by this name if the job script's step has ended before it.
            '--job-name="$VIRTQUAL_JOB"',
            f"--nodes={nodes}",
            f"--ntasks={job.num_tasks}",
            f"--ntasks-per-node={tasks_per_node}",
            *cpus,
            *nodelist,
        ]


class StepJob(sched.Job):  # type: ignore[misc]
    """A case that runs as a step; its times are by the clock of this machine."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.process: subprocess.Popen[bytes] | None = None
        self.error_file = Path(self.stderr)
        self.asked_to_end: float | None = None
        self.timed_out = False
        self.not_before = self.tried_since = 0.0
        self.turn: Turn = ("", True, 0)

    @property
    def span(self) -> Span:
        """Begin and end."""
        return Span(self.submit_time, self.completion_time or time.time(), "harness")

    @property
    def node(self) -> str | None:
        """The only node that it takes; None if it takes several, or any."""
        names = "".join(_nodelist(self)).partition("=")[2]
        return names if names and "," not in names else None


class StepScheduler(sched.JobScheduler):  # type: ignore[misc]
    """Runs job scripts as steps of the allocation that their partitions' `access` names."""

    #: One for both partitions: a case of several nodes on one side runs while nothing runs on the other.
    _queue = NodeQueue()
    _submitted = count(1)

    def make_job(self, *args: Any, **kwargs: Any) -> StepJob:
        """Return a new job."""
        return StepJob(*args, **kwargs)

    def emit_preamble(self, job: Any) -> list[str]:
        """Return no options: the allocation is there."""
        return []

    def allnodes(self) -> Any:
        """Return no nodes: a case chooses its nodes itself."""
        return []

    def filternodes(self, job: Any, nodes: Any) -> Any:
        """Return all nodes."""
        return nodes

    def submit(self, job: Any) -> None:
        """Start the job script as a step, now or when its nodes are free."""
        nodes = held.read()
        allocation = nodes.find_component(job.sched_access)
        job._jobid = f"{allocation}.{nodes.round}-{next(self._submitted)}"
        # The files are read and written later, in another working directory.
        job.error_file, job.output = Path(job.stderr).resolve(), Path(job.stdout).resolve()
        job.script = Path(job.script_filename).resolve()
        job._submit_time, job._state = time.time(), "PENDING"
        self._queue.add(job)
        self._start_free()

    def _start_free(self) -> None:
        """Start the cases whose nodes are free."""
        while job := self._queue.begin_next():
            first_node = [option.partition(",")[0] for option in _nodelist(job)]
            size = ["--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none"]
            with job.output.open("wb") as out, job.error_file.open("wb") as err:
                job.process = subprocess.Popen(
                    [
                        *["srun", *job.sched_access, *size, *first_node, f"--job-name={job.name}"],
                        *["bash", "-c", _RUN_SCRIPT, str(job.script)],
                    ],
                    env={**slurm.environment(bare=True), "VIRTQUAL_JOB": job._jobid},
                    cwd=job.script.parent,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
            job._submit_time, job._state = time.time(), "RUNNING"

    def poll(self, *jobs: Any) -> None:
        """Note which steps have ended, end those at their limit, and start those whose nodes are free."""
        for job in jobs:
            if job is not None:
                self._poll(job)
        self._start_free()

    def _poll(self, job: Any) -> None:
        if job.process is None or job.exitcode is not None:
            return
        now = time.time()
        if (code := job.process.poll()) is not None:
            self._end(job, code, now)
        elif job.asked_to_end is not None:
            if now - job.asked_to_end > END_TIMEOUT_S:
                job.process.kill()
        elif job.time_limit and now - job.submit_time > job.time_limit:
            job.timed_out = True
            self.cancel(job)

    def _end(self, job: Any, code: int, now: float) -> None:
        """Note the end of a job script; put it back into the queue if Slurm has not begun it."""
        state = self._state(job, code)
        if state != "COMPLETED":
            self._end_program(job, now + END_TIMEOUT_S)
        self._queue.remove(job)
        job.tried_since = job.tried_since or job.submit_time
        has_begun = (job.script.parent / "virtqual.begin").exists()
        if state == "LAUNCH_FAILED" and not has_begun and now - job.tried_since < LAUNCH_TIMEOUT_S:
            job.process, job._state, job.not_before = None, "PENDING", now + RETRY_INTERVAL_S
            self._queue.add(job)
        else:
            job._exitcode, job._completion_time, job._state = abs(code), now, state

    @staticmethod
    def _end_program(job: Any, until: float) -> None:
        """End the steps that a job script has started: they do not end with the script's own step."""
        allocation = job.jobid.partition(".")[0]
        while time.time() < until:
            with suppress(slurm.SilentError):
                if not slurm.end_steps(allocation, job.jobid):
                    return
            time.sleep(RETRY_INTERVAL_S / 10)

    @staticmethod
    def _state(job: Any, code: int) -> str:
        """Return Slurm's name of the state in which a step ended."""
        if job.timed_out:
            return "TIMEOUT"
        if job.asked_to_end is not None:
            return "CANCELLED"
        errors = job.error_file.read_text(encoding="utf-8", errors="replace")
        states = [
            state
            for state, pattern in _STATE_PATTERNS.items()
            # A slurmd that was started with the name of its node adds it.
            if re.search(rf"(srun|slurmstepd)(-\S+)?: .*({pattern})", errors)
        ]
        # A step whose node dies may end with 0.
        if code == 0 and "NODE_FAIL" not in states:
            return "COMPLETED"
        return states[0] if states else "FAILED"

    def cancel(self, job: Any) -> None:
        """Ask a step to end: `srun` hands it on to the tasks."""
        if job.process is None:
            self._queue.remove(job)
            job._exitcode, job._state = 1, "CANCELLED"
        elif job.exitcode is None and job.asked_to_end is None:
            job.asked_to_end = time.time()
            job.process.send_signal(signal.SIGTERM)

    def wait(self, job: Any) -> None:
        """Wait until a step has ended; no other is begun, since ReFrame may be giving up."""
        while not self.finished(job):
            self._poll(job)
            time.sleep(0.05)

    def finished(self, job: Any) -> bool:
        """Return whether a step has ended."""
        return job.exitcode is not None
