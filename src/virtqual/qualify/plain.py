"""A plain ``reframe`` run is a session of one round: recorded as any other, and judged once.

ReFrame's site configuration installs this.  All measuring cases come first, under either execution policy;
the verdict tests (``checks/overhead.py``) come after them, and say what the one judgement of the whole run
says of their check.  So the error rate is one for the run, however many checks it has.

``VIRTQUAL_SESSION``
    Directory of the session that virtqual runs this ReFrame for: then nothing is judged here.
``VIRTQUAL_PIPELINE``
    Set in the jobs of ``--ci-generate``, which run one case each: how many verdicts share the error rate.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from reframe.core import runtime
from reframe.core.exceptions import ForceExitError
from reframe.core.logging import getlogger
from reframe.frontend.executors import Runner
from reframe.frontend.executors.policies import AsynchronousExecutionPolicy

from virtqual.errors import VirtqualError
from virtqual.harness import catalogue, guards, repetitions
from virtqual.harness.kinds import PIPELINE, judges, measures
from virtqual.harness.order import pairs
from virtqual.harness.recorder import Recorder
from virtqual.runs import Run
from virtqual.session.log import Finished, Log
from virtqual.session.session import Session

SESSION = "VIRTQUAL_SESSION"


class PlainRun:
    """The sessions of this ReFrame run, one for each software stack.

    Parameters
    ----------
    logs
        Of the sessions, by name of the stack.
    against
        The earlier session that they are compared with, or None.
    share
        How many sessions or pipeline jobs share the error rate.
    """

    def __init__(self, logs: dict[str, Log], against: Session | None, share: int) -> None:
        self.logs, self._against, self._share = logs, against, share
        self.interrupted, self.broken = False, ""
        self._sessions: dict[str, Session] = {}

    def log_of(self, task: Any) -> Log | None:
        """Return the log that a task's run belongs to; None for what is no measurement."""
        return self.logs[task.testcase.environ.name] if measures(task.testcase) else None

    @property
    def sessions(self) -> list[Session]:
        """The sessions of all stacks, as they were judged."""
        return [self.session(stack) for stack in self.logs]

    def session(self, stack: str) -> Session:
        """Return the session of a stack as it was judged: when it is first asked for, nothing more is run."""
        if stack not in self._sessions:
            from virtqual.qualify.concluding import concluded

            log = self.logs[stack]
            first, last, _ = pairs()
            self._sessions[stack] = concluded(
                log,
                self._against,
                interrupted=self.interrupted,
                broken=[self.broken] if self.broken else [],
                share=self._share,
                # The number of pairs is fixed before the first one, so that a single look decides.
                looks=[last - first + 1],
            )
        return self._sessions[stack]


_running: list[PlainRun] = []


def current() -> PlainRun:
    """Return this process's run.

    Raises
    ------
    VirtqualError
        ReFrame does not run with the project's configuration.
    """
    if not _running:
        raise VirtqualError("nothing was recorded: is ReFrame's configuration reframe/settings.py?")
    return _running[-1]


def install() -> None:
    """Make every ReFrame run a session, or a part of the session that virtqual runs it for."""
    if not getattr(Runner, "_virtqual_records", False):
        Runner.runall = _recorded(Runner.runall)
        AsynchronousExecutionPolicy.deps_succeeded = _after_measurements(
            AsynchronousExecutionPolicy.deps_succeeded
        )
        Runner._virtqual_records = True


def _after_measurements(deps_succeeded: Callable[..., bool]) -> Callable[..., bool]:
    def held(self: Any, task: Any) -> bool:
        if judges(task.testcase) and any(measures(other.testcase) for other in self._current_tasks):
            return False
        return deps_succeeded(self, task)

    return held


def _recorded(runall: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(self: Any, testcases: list[Any], restored_cases: Sequence[Any] | None = None) -> Any:
        measuring = [case for case in testcases if measures(case)]
        verdicts = [case for case in testcases if judges(case)]
        if self._policy.dry_run_mode or not (measuring or verdicts):
            return runall(self, testcases, restored_cases)
        if directory := os.environ.get(SESSION):
            log = Log(Path(directory))
            _stage_in(log.directory.name)
            repetitions.take_over(log.session())
            listener = Recorder(lambda task: log if measures(task.testcase) else None)
            self._policy.task_listeners.insert(0, listener)
            return runall(self, testcases, restored_cases)
        if os.environ.get(PIPELINE) and not verdicts:
            return runall(self, testcases, restored_cases)
        try:
            return _session(self, runall, testcases, restored_cases or [])
        except VirtqualError as error:
            getlogger().error(f"virtqual: {error}")
            sys.exit(1)

    return guarded


def _session(runner: Any, runall: Callable[..., Any], testcases: list[Any], restored: Sequence[Any]) -> Any:
    """Run the cases as a session of one round."""
    from virtqual.qualify import opening

    verdicts = [case for case in testcases if judges(case)]
    measuring = [case for case in testcases if measures(case)]
    # What a verdict depends on failed, perhaps: it says so itself, and is not skipped for it.
    for case in verdicts:
        for dependency in case.deps:
            dependency.in_degree -= 1
        case.deps.clear()
    with ExitStack() as held:
        name = runtime.runtime().system.name
        stacks = list(dict.fromkeys(case.environ.name for case in [*measuring, *verdicts]))
        opened = opening.plain(
            name,
            stacks,
            against=next(case.check.against for case in [*measuring, *verdicts]),
            hypervisor_class=next(case.check.hypervisor_class for case in [*measuring, *verdicts]),
            held=None if os.environ.get(PIPELINE) else held,
            say=getlogger().info,
        )
        for log in opened.logs.values():
            catalogue.write(guards.loaded(), log.directory / catalogue.FILE)
            repetitions.take_over(log.session())
        share = int(os.environ.get(PIPELINE) or 1) * len(stacks)
        run = PlainRun(opened.logs, opened.earlier, share)
        for case in restored:
            if _samples(case):
                run.logs[case.environ.name].append(Finished(run=Run.model_validate_json(case.check.record)))
        _stage_in(next(iter(opened.logs.values())).directory.name)
        runner._policy.task_listeners.insert(0, Recorder(run.log_of))
        _running.append(run)
        others = [case for case in testcases if not judges(case)]
        try:
            result = runall(runner, [*others, *verdicts], restored)
        except (KeyboardInterrupt, ForceExitError):
            run.interrupted = True
            raise
        except BaseException as error:
            run.broken = f"ReFrame gave up: {' '.join(str(error).split())}"
            raise
        finally:
            for stack in stacks:
                _show(run.session(stack), run.logs[stack].directory)
            count = sum(len(session.verdicts) for session in run.sessions)
            getlogger().info(f"One error rate holds for all {count} verdicts of this run.")
    taken = [case for case in (*measuring, *restored) if _samples(case)]
    if (half := _half(taken)) and not os.environ.get(PIPELINE):
        getlogger().error(f"virtqual: {half}")
    bad = [session for session in run.sessions if session.exit_code]
    if bad and not runner.stats.failed():
        # ReFrame has no failed test where the verdict tests are not among those that were selected.
        raise VirtqualError(bad[0].conclusion)
    return result


def _samples(case: Any) -> bool:
    return measures(case) and not case.check.slot.warm_up


def _half(measuring: Iterable[Any]) -> str:
    """Return that a run measured one side only; empty for one that has samples of both."""
    missing = {"native", "virtual"} - {case.check.slot.side for case in measuring}
    if not missing:
        return ""
    return (
        f"nothing was judged: this run has no {' and no '.join(sorted(missing))} sample to compare "
        "with; select both partitions (--system NAME, without a partition)"
    )


def _stage_in(session: str) -> None:
    """Give the session stage and output directories of its own: another session's output is not there."""
    known = runtime.runtime()
    for option, prefix in (
        ("systems/stagedir", known.stage_prefix),
        ("systems/outputdir", known.output_prefix),
    ):
        known.site_config.add_sticky_option(option, str(Path(prefix) / session))


def _show(session: Session, directory: Path) -> None:
    """Say what the run comes to, as `virtqual qualify` does."""
    from virtqual.report.console import verbatim
    from virtqual.report.terminal import Terminal

    text = io.StringIO()
    Terminal(verbatim(file=text, width=80)).end(session, str(directory))
    say = getlogger().info
    say(f"\nvirtqual session {session.session}, stack {session.stack['name']}")
    say(text.getvalue())
