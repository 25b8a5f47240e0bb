"""A plain ``reframe`` run is a session of one round: recorded as any other, and judged once.

All measuring cases come first, under either execution policy of ReFrame.  The verdict tests
(``checks/overhead.py``) come after them, and say what the one judgement of the whole run says of their check.
One error rate holds for all checks of the run.

``VIRTQUAL_SESSION``
    Directory of the session that virtqual runs this ReFrame for: then nothing is judged here.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from reframe.core import runtime
from reframe.core.exceptions import ForceExitError
from reframe.core.logging import getlogger

from virtqual import paths
from virtqual.errors import UsageError, VirtqualError
from virtqual.harness import catalogue, repetitions
from virtqual.harness.guards import RunCases, loaded_entries, loaded_paths
from virtqual.harness.kinds import PIPELINE, judges, measures
from virtqual.harness.order import parse_pairs
from virtqual.harness.recorder import Recorder
from virtqual.qualify import opening, requested
from virtqual.qualify.asking import ask_hosts
from virtqual.qualify.concluding import conclude_session, remove_if_empty
from virtqual.qualify.leftovers import end_leftovers
from virtqual.report.console import verbatim
from virtqual.report.terminal import Terminal
from virtqual.runs import Run
from virtqual.session.lock import measuring
from virtqual.session.log import Finished, Log
from virtqual.session.session import Session, StackFacts
from virtqual.site.configuration import load_system
from virtqual.stack import manifest
from virtqual.verdict.pairs import SIDES

SESSION_VARIABLE = "VIRTQUAL_SESSION"


class PlainRun:
    """The sessions of this ReFrame run by stack; `share` sessions or pipeline jobs share the error rate."""

    #: The run of this process: the verdict tests ask it.
    current: PlainRun | None = None

    def __init__(self, logs: dict[str, Log], earlier: Session | None, share: int) -> None:
        self.logs, self._earlier, self._share = logs, earlier, share
        self.interrupted, self.broken = False, list[str]()
        self._sessions: dict[str, Session] = {}

    def log_of(self, task: Any) -> Log | None:
        """Return the log that a task's run belongs to; None for a task that is no measurement."""
        return self.logs[task.testcase.environ.name] if measures(task.testcase) else None

    def session(self, stack: str) -> Session:
        """Return the session of a stack as it was judged: the first call judges it, when all has run."""
        if stack not in self._sessions:
            first, last, _ = parse_pairs()
            self._sessions[stack] = conclude_session(
                self.logs[stack],
                self._earlier,
                interrupted=self.interrupted,
                broken=self.broken,
                share=self._share,
                # The number of pairs is fixed before the first one, so that a single look decides.
                looks=[last - first + 1],
            )
        return self._sessions[stack]


def find_session(stack: str) -> Session:
    """Return the session of a stack in this process's run, judged."""
    if PlainRun.current is None:
        raise VirtqualError("nothing was recorded: is ReFrame's configuration reframe/settings.py?")
    return PlainRun.current.session(stack)


def run_session(runner: Any, run_cases: RunCases, testcases: list[Any], restored: Sequence[Any]) -> Any:
    """Run cases as a session, or as a part of the session that virtqual runs this ReFrame for."""
    has_verdicts = any(map(judges, testcases))
    if runner.policy.dry_run_mode or not (has_verdicts or any(map(measures, testcases))):
        return run_cases(testcases)
    if directory := os.environ.get(SESSION_VARIABLE):
        log = Log(Path(directory))
        _stage_in(log.directory.name)
        session = log.session()
        repetitions.take_over(session)
        working = {(run.stack, run.side) for run in session.runs}
        tasks = runner.policy._task_index
        recorder = Recorder(
            lambda task: log if measures(task.testcase) else None, len(testcases), working, tasks
        )
        runner.policy.task_listeners.insert(0, recorder)
        return run_cases(testcases)
    try:
        _check_schedulers(testcases)
        if os.environ.get(PIPELINE) and not has_verdicts:
            return run_cases(testcases)
        return _run_plainly(runner, run_cases, testcases, restored)
    except VirtqualError as error:
        getlogger().error(f"virtqual: {error}")
        sys.exit(1)


def _check_schedulers(cases: Iterable[Any]) -> None:
    """Refuse a scheduler that serves sessions alone, whose runs are steps of a job that is held."""
    for case in cases:
        if measures(case) and case.partition.scheduler.registered_name == "squeue":
            raise UsageError(
                f"partition {case.partition.fullname!r}: 'squeue' learns no exit code of a job, and no run "
                "counts without one. Run `virtqual qualify`, or put src/vcluster/shim/sacct on PATH and "
                "state 'slurm' (docs/system-file.md, Without sacct)"
            )


def _run_plainly(runner: Any, run_cases: RunCases, testcases: list[Any], restored: Sequence[Any]) -> Any:
    """Run cases as a session of one round, and judge it."""
    measuring = [case for case in testcases if measures(case)]
    verdicts = [case for case in testcases if judges(case)]
    with ExitStack() as locks:
        run = _open_run([*measuring, *verdicts], restored, locks)
        recorder = Recorder(run.log_of, tasks=runner.policy._task_index)
        runner.policy.task_listeners.insert(0, recorder)
        _run_in_turn(runner.policy, verdicts)
        try:
            # Fixtures come first, since a run waits for nothing that begins after it.
            result = run_cases(sorted(testcases, key=lambda case: (judges(case), measures(case))))
        except (KeyboardInterrupt, ForceExitError):
            run.interrupted = True
            raise
        except BaseException as error:
            run.broken.append(f"ReFrame gave up: {' '.join(str(error).split())}")
            raise
        finally:
            sessions = [run.session(stack) for stack in run.logs]
            _show(sessions, run.logs)
            for log in run.logs.values():
                remove_if_empty(log)
            count = sum(len(session.verdicts) for session in sessions)
            getlogger().info(f"One error rate holds for all {count} verdicts of this run.")
    sides = {case.check.slot.side for case in (*measuring, *restored) if _is_sample(case)}
    if (missing := sorted(set(SIDES) - sides)) and not os.environ.get(PIPELINE):
        getlogger().error(
            f"virtqual: nothing was judged: this run has no {' and no '.join(missing)} sample to compare "
            "with; select both partitions (--system NAME, without a partition)"
        )
    failed = [session for session in sessions if session.exit_code]
    if failed and not runner.stats.failed():
        # ReFrame has no failed test if the verdict tests were not selected.
        raise VirtqualError(failed[0].conclusion)
    return result


def _run_in_turn(policy: Any, verdicts: Sequence[Any]) -> None:
    """Let one run be at a time, and verdicts begin when all have ended, also under the async policy.

    ReFrame would skip the verdict on a measurement that fails: the verdict says itself what failed.
    """
    for verdict in verdicts:
        for dependency in verdict.deps:
            dependency.in_degree -= 1
        verdict.deps.clear()
    run_case = policy.runcase

    def run_in_turn(case: Any) -> None:
        if judges(case) or measures(case):
            # Waits until what was submitted has ended.
            policy.exit()
        run_case(case)

    policy.runcase = run_in_turn


def _open_run(cases: Sequence[Any], restored: Sequence[Any], locks: ExitStack) -> PlainRun:
    """Open a session for each stack of the cases, with the runs that were restored."""
    check, say, is_pipeline_job = cases[0].check, getlogger().info, bool(os.environ.get(PIPELINE))
    system = load_system(runtime.runtime().system.name)
    if not is_pipeline_job:
        # The list of the class names checks of the project, which may not be loaded.
        are_all = (paths.root() / "checks").resolve() in map(Path.resolve, loaded_paths)
        chosen = opening.choose_class(check.hypervisor_class, system)
        requested.check_files(loaded_entries if are_all else None, chosen)
        locks.enter_context(measuring(paths.make(paths.state()), system.name, "a plain ReFrame run", say))
        system = ask_hosts(system)
    chosen = opening.choose_class(check.hypervisor_class, system)
    earlier = opening.find_earlier(check.against, system)
    if not is_pipeline_job:
        for note in end_leftovers(system.name):
            say(note)
    installed = {stack.name for stack in manifest.load_all(paths.stacks())}
    logs = {}
    for name in dict.fromkeys(case.environ.name for case in cases):
        # The environment of a site's own check may be none of our stacks.
        stack: StackFacts = {"name": name, "hash": "none", "programs": []}
        if name in installed:
            stack = opening.describe_stack(opening.find_stack(name, system))
        logs[name] = log = opening.begin_log(system, chosen, stack, earlier, None)[1]
        catalogue.write(loaded_entries, log.directory / catalogue.FILE)
        repetitions.take_over(log.session())
    run = PlainRun.current = PlainRun(logs, earlier, int(os.environ.get(PIPELINE) or 1) * len(logs))
    for case in filter(_is_sample, restored):
        logs[case.environ.name].append(Finished(run=Run.model_validate_json(case.check.record)))
    _stage_in(next(iter(logs.values())).directory.name)
    return run


def _is_sample(case: Any) -> bool:
    return measures(case) and not case.check.slot.warm_up


def _stage_in(session: str) -> None:
    """Give the session stage and output directories of its own: another session's output is not there."""
    context = runtime.runtime()
    for option, prefix in (
        ("systems/stagedir", context.stage_prefix),
        ("systems/outputdir", context.output_prefix),
    ):
        context.site_config.add_sticky_option(option, str(Path(prefix) / session))


def _show(sessions: Iterable[Session], logs: Mapping[str, Log]) -> None:
    """Print the conclusions of a run, as `virtqual qualify` does."""
    for session in sessions:
        stack, text = session.stack["name"], io.StringIO()
        Terminal(verbatim(file=text, width=80)).end(session, str(logs[stack].directory))
        getlogger().info(f"\nvirtqual session {session.session}, stack {stack}")
        getlogger().info(text.getvalue())
