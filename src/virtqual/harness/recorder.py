"""Write into the session's log what a ReFrame run does, while it does it.

`Recorder` listens to ReFrame's execution policy: each case is written down when it is submitted, and again
when it has ended.  Nothing depends on the report that ReFrame writes at its own end.
"""

from __future__ import annotations

import re
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any, Literal

from reframe.core.exceptions import FailureLimitError, PerformanceError, SanityError
from reframe.frontend.executors import TaskEventListener

from virtqual.harness.progress import CaseEvent, send
from virtqual.runs import Run
from virtqual.session.log import Failed, Finished, Log, Submitted, WarmedUp
from virtqual.session.session import NODE_STATES, Failure, Kind
from virtqual.verdict.pairs import Side

#: Slurm's states of a job that did not end by itself, with the cause.
ENDED_STATES = {
    "BOOT_FAIL": "by Slurm",
    "CANCELLED": "it was cancelled",
    "DEADLINE": "by Slurm",
    "LAUNCH_FAILED": "Slurm's daemons did not answer when it was to begin",
    "NODE_FAIL": "a node of it died",
    "OUT_OF_MEMORY": "it used more memory than it may",
    "PREEMPTED": "by Slurm",
    "REVOKED": "by Slurm",
    "TIMEOUT": "it reached its time limit",
}
#: States for which the job itself is not the cause: on another node, or later, it may end otherwise.
_INFRASTRUCTURE_STATES = NODE_STATES | {"PREEMPTED", "REVOKED"}
#: ReFrame ends if so many programs fail on a side before any run has ended well there.
MAX_FAILED_PROGRAMS = 3


class Recorder(TaskEventListener):  # type: ignore[misc]  # ReFrame has no types
    """Appends to the log of each measuring case, and reports progress to virtqual.

    `log_of` returns the log that a task belongs to, or None for a task that is no measurement; `total` is the
    number of cases. `working` has the stacks and sides on which runs of the session have ended well, and
    `tasks` those that ReFrame's policy knows, by their cases.
    """

    def __init__(
        self,
        log_of: Callable[[Any], Log | None],
        total: int = 0,
        working: Iterable[tuple[str, Side]] = (),
        tasks: MutableMapping[Any, Any] | None = None,
    ) -> None:
        self._log_of, self._total, self._ended = log_of, total, 0
        #: Cases that left nothing, and whether the log has the reason.
        self._failed: dict[tuple[str, str], bool] = {}
        #: The places on which each program has failed, by the stack and the side.
        self._failures: dict[tuple[str, Side], dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._working = set(working)
        self._tasks = {} if tasks is None else tasks

    def on_task_setup(self, task: Any) -> None:
        """Report that a case begins."""
        self._report("run", task)

    def on_task_run(self, task: Any) -> None:
        """Write down the job that was submitted."""
        check = task.check
        if (log := self._log_of(task)) and check.job is not None:
            submitted = round(check.job.submit_time or time.time(), 3)
            log.append(Submitted(job=str(check.job.jobid), case=check.display_name, submitted=submitted))

    def on_task_success(self, task: Any) -> None:
        """Write down the run; of a warm-up only that its job has ended."""
        check = task.check
        if log := self._log_of(task):
            self._working.add((task.testcase.environ.name, check.slot.side))
            if check.slot.warm_up:
                log.append(WarmedUp(job=str(check.job.jobid), case=check.display_name))
            else:
                log.append(Finished(run=Run.model_validate_json(check.record)))
        self._report("ok", task)

    def on_task_failure(self, task: Any) -> None:
        """Write down why there is no run."""
        log = self._log_of(task)
        self._failed[_key(task.testcase)] = log is not None
        if log is None:
            self._report("fail", task)
            return
        failure = failure_of(task)
        log.append(Failed(failure=failure))
        self._report("fail", task, failure.reason)
        self._give_up_if_nothing_works(task, failure)
        if failure.job and not failure.warm_up and failure.kind in ("failed", "refused"):
            # The runs that wait for this one begin: ReFrame does not ask for tasks that its policy lacks.
            self._tasks.pop(task.testcase, None)
            self._failed.pop(_key(task.testcase))

    def _give_up_if_nothing_works(self, task: Any, failure: Failure) -> None:
        """End ReFrame, as its ``--maxfail`` does, if the first runs of several programs failed on a side.

        A program counts if it failed on two of its places, since a single broken node fails all. A result
        that is refused does not count: its program has run.
        """
        place = task.testcase.environ.name, failure.side
        has_run = failure.kind in ("refused", "reference")
        if has_run or failure.node_lost or place in self._working:
            return
        program = task.check.feature or failure.check.partition(" ")[0]
        rotation = task.check.rotation
        self._failures[place][program].add(rotation.divided(task.check.slot.pair)[1])
        needed = min(rotation.places, 2)
        if sum(len(places) >= needed for places in self._failures[place].values()) >= MAX_FAILED_PROGRAMS:
            raise FailureLimitError(
                f"no run has ended well on {failure.partition}, and {MAX_FAILED_PROGRAMS} programs failed "
                "there"
            )

    def on_task_skip(self, task: Any) -> None:
        """Write down a case that skipped itself, or whose fixture failed.

        A case that waits for a failed run is neither written down nor reported: its cause was.
        """
        log = self._log_of(task)
        causes = [self._failed[key] for case in task.testcase.deps if (key := _key(case)) in self._failed]
        self._failed[_key(task.testcase)] = log is not None
        if any(causes):
            self._ended += 1
            return
        if log:
            log.append(Failed(failure=failure_of(task, "infrastructure" if causes else "refused")))
        self._report("skip", task)

    def _report(self, kind: Literal["run", "ok", "fail", "skip"], task: Any, reason: str = "") -> None:
        self._ended += kind != "run"
        check, slot = task.check, getattr(task.check, "slot", None)
        send(
            CaseEvent(
                kind=kind,
                check=getattr(check, "case", check.display_name),
                partition=task.testcase.partition.name,
                side=slot and slot.side,
                pair=slot and slot.pair,
                warm_up=bool(slot and slot.warm_up),
                nodes=tuple(getattr(check, "named_nodes", ())),
                reason=reason,
                ended=self._ended,
                total=self._total,
            )
        )

    def _ignore(self, task: Any) -> None:
        """Ignore an event that is not the end of a run; what ReFrame is told to end has not failed."""

    on_task_compile = on_task_exit = on_task_compile_exit = on_task_abort = _ignore
    on_task_xfailure = on_task_xsuccess = on_task_failure


def end_by_slurm(job: Any) -> str | None:
    """Return that Slurm ended a job of ReFrame's, with the state; None for a job that ended by itself.

    The output of such a job does not count, even if it looks complete.
    """
    state = str(getattr(job, "state", None) or "")
    if state not in ENDED_STATES:
        return None
    return f"job {job.jobid} ended as {state} ({ENDED_STATES[state]})"


def failure_of(task: Any, kind: Kind | None = None) -> Failure:
    """Return why a task left no run, in Slurm's words if Slurm ended its job."""
    check, job = task.check, task.check.job
    reason = " ".join(str(task.exc_info[1] or task.exc_info[0] or "it failed").split())
    reason = re.sub(r"exit code (\d+)$", _name_signal, reason)
    kind, state = kind or _kind(task), None
    if sentence := end_by_slurm(job):
        kind = "infrastructure" if job.state in _INFRASTRUCTURE_STATES else "failed"
        reason, state = sentence, job.state
    return Failure(
        check=check.case,
        case=check.display_name,
        pair=check.slot.pair,
        side=check.slot.side,
        partition=task.testcase.partition.name,
        job=str(getattr(job, "jobid", None) or ""),
        kind=kind,
        reason=reason,
        state=state,
        warm_up=check.slot.warm_up,
        start=getattr(job, "submit_time", None),
        end=getattr(job, "completion_time", None) or time.time(),
        nodes=tuple(getattr(check, "named_nodes", ()) or getattr(job, "_nodelist", None) or ()),
    )


def _name_signal(code: re.Match[str]) -> str:
    """Return an exit code with the name of the signal that it stands for in a shell."""
    try:
        name = signal.Signals(int(code[1]) - 128).name
    except ValueError:
        return code[0]
    question = ": was its memory used up?" if name == "SIGKILL" else ""
    return f"{code[0]} (killed by {name}{question})"


def _key(case: Any) -> tuple[str, str]:
    return case.check.unique_name, case.environ.name


def _kind(task: Any) -> Kind:
    """Return whether a run does not count, or something is broken."""
    error = task.exc_info[1]
    if isinstance(error, PerformanceError) and task.check.slot.side == "native":
        return "reference"
    if isinstance(error, SanityError):
        return "failed" if getattr(task.check.job, "exitcode", None) else "refused"
    return "infrastructure"
