"""Guards around ReFrame itself: a run that did nothing must not be called passed.

ReFrame ends with ``PASSED`` and exit code 0 when no test case was selected, when every case was dropped
because a dependency could not be resolved (``--repeat`` and ``--distribute`` do that), and when a check
file could not be imported.  Its site configuration runs in its own process, so the configuration installs
these guards, and they hold for the plain ``reframe`` command too.

They wrap functions that are not public; the version of ReFrame is pinned, and tests start the real
command and fail when a guard no longer bites.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from reframe.core import fields, runtime, variables
from reframe.core.exceptions import ReframeFatalError
from reframe.core.logging import getlogger
from reframe.core.pipeline import CompileOnlyRegressionTest
from reframe.core.schedulers import slurm
from reframe.frontend import cli, dependencies
from reframe.frontend.executors import RegressionTask, Runner
from reframe.frontend.loader import RegressionCheckLoader, RegressionCheckValidator
from reframe.utility import import_module_from_file, jsonext

from virtqual.harness import catalogue
from virtqual.harness.kinds import PIPELINE, judges, measures
from virtqual.harness.process import NOTHING_SELECTED, PARENT
from virtqual.site.configuration import ABSENT

#: What the loader found, before anything was selected.
_loaded: list[catalogue.Entry] = []


#: Linux: the signal that a process gets when the one that started it dies (prctl(2)).
_PR_SET_PDEATHSIG = 1


def install() -> None:
    """Put the guards around ReFrame's loader and runner, once."""
    _end_with_parent()
    if not getattr(Runner, "_virtqual_guarded", False):
        Runner.runall = _refuse_nothing(Runner.runall)
        RegressionCheckLoader.load_all = _refuse_broken_files(RegressionCheckLoader.load_all)
        RegressionCheckValidator.visit_ImportFrom = _see_our_tests(RegressionCheckValidator.visit_ImportFrom)
        CompileOnlyRegressionTest.check_sanity = _with_build_job(CompileOnlyRegressionTest.check_sanity)
        RegressionTask.log_result = _without_warm_ups(RegressionTask.log_result)
        variables.VarSpace.inject = _without_callers(variables.VarSpace.inject)
        jsonext.util = _ImportsOfPackages
        dependencies.build_deps = _refuse_dropped_cases(dependencies.build_deps)
        cli.list_checks = _catalogue(cli.list_checks)
        for name in ("slurm_state_completed", "slurm_state_pending"):
            setattr(slurm, name, _with_preempted(getattr(slurm, name)))
        Runner._virtqual_guarded = True


def _with_preempted(of_state: Callable[[str | None], bool]) -> Callable[[str | None], bool]:
    """Take a job for ended that was preempted, or revoked by a federation: ReFrame would wait for ever.

    Slurm would begin it again only where it may be requeued, and none of ours may.
    """
    return lambda state: of_state(re.sub(r"\b(PREEMPTED|REVOKED)\b", "CANCELLED", state) if state else state)


def _end_with_parent() -> None:
    """Where virtqual started this ReFrame, let its death be a Ctrl-C here: jobs must not go on unseen."""
    parent = os.environ.get(PARENT)
    if not parent:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    if os.getppid() != int(parent):
        os.kill(os.getpid(), signal.SIGINT)


def _end(message: str) -> NoReturn:
    """End ReFrame with an error, in lines of whole words where a person sees it."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - len("ERROR: ")
        message = textwrap.fill(message, width, break_long_words=False, break_on_hyphens=False)
    getlogger().error(message)
    sys.exit(1)


def _refuse_nothing(runall: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(self: Any, testcases: Any, restored_cases: Any = None) -> Any:
        _refuse_absent()
        if not testcases:
            system = runtime.runtime().system
            _end(
                f"{NOTHING_SELECTED}, so nothing was run and nothing passed; "
                f"{catalogue.there_is(runtime.runtime().site_config, system.name)} ({system.descr}); "
                "look at -n, -t, -p and --system, and list what there is with -L"
            )
        if option := _breaks_pairs(self, testcases):
            _end(
                f"{option} cannot be used with paired samples, which run once, in turn: "
                "VIRTQUAL_PAIRS=0:5 takes six pairs, `virtqual qualify` as many as are needed"
            )
        return runall(self, _adjacent(testcases), restored_cases)

    return guarded


def _refuse_absent() -> None:
    """End ReFrame where its system is not there at the moment: every check would lack a program."""
    system = runtime.runtime().system
    if any(partition.name == ABSENT for partition in system.partitions):
        _end(f"system {system.name!r} cannot be used: {system.descr}")


def _breaks_pairs(runner: Any, testcases: list[Any]) -> str:
    """Return the option by which paired tests would run again, or on nodes of its choice; empty for none."""
    checks = [case.check for case in testcases if hasattr(case.check, "run_group")]
    again = {
        "--reruns": runner._num_reruns,
        "--max-retries": runner._max_retries,
        "--duration": runner._timeout,
    }
    # These options add parameters of their own, and lose dependencies on the way.
    added = any(name.startswith(".") for check in checks for name in type(check).raw_params)
    given = [option for option, value in again.items() if value]
    given += ["--repeat, --distribute or -P"] if added else []
    return given[0] if checks and given else ""


def _adjacent(testcases: list[Any]) -> list[Any]:
    """Bring the runs of one pair next to each other, so that they see the same machine.

    ReFrame's own order is topological but goes through all variants of a check in turn.  Cases of the same
    ``run_group`` are moved together, in their order; no case depends on one of another group.
    """
    place: dict[str, int] = {}
    for index, case in enumerate(testcases):
        place.setdefault(_group(case), index)
    return sorted(testcases, key=lambda case: place[_group(case)])


def _group(case: Any) -> str:
    return str(getattr(case.check, "run_group", case.check.unique_name))


def _refuse_dropped_cases(build_deps: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(*args: Any, **kwargs: Any) -> Any:
        graph, dropped = build_deps(*args, **kwargs)
        if dropped:
            names = ", ".join(sorted({case.check.display_name for case in dropped})[:3])
            raise ReframeFatalError(
                f"{len(dropped)} test cases would be dropped because what they depend on is not there "
                f"({names} ...); --repeat, --distribute and -P cannot be used with paired samples: "
                "VIRTQUAL_PAIRS=0:5 takes more pairs"
            )
        return graph, dropped

    return guarded


def loaded() -> tuple[catalogue.Entry, ...]:
    """Return every check that this ReFrame has loaded, whatever was selected."""
    return tuple(_loaded)


def _catalogue(list_checks: Callable[..., Any]) -> Callable[..., Any]:
    def listed(testcases: Any, printer: Any, detailed: bool = False, concretized: bool = False) -> Any:
        _refuse_absent()
        if concretized:
            return list_checks(testcases, printer, detailed, concretized)
        _share_in_pipelines(testcases)
        here, now = catalogue.of_checks(case.check for case in testcases), runtime.runtime()
        printer.info("[List of matched checks]")
        printer.info(catalogue.listing(here, _loaded, now.system, now.site_config, detailed=detailed))
        return None

    return listed


def _share_in_pipelines(testcases: Any) -> None:
    """Tell the jobs of a generated pipeline, one case each, how many verdicts share the error rate."""
    verdicts = sum(judges(case) for case in testcases)
    for case in testcases:
        if measures(case) or judges(case):
            gitlab = dict(case.check.ci_extras.get("gitlab", {}))
            gitlab["variables"] = {**gitlab.get("variables", {}), PIPELINE: str(max(verdicts, 1))}
            case.check.ci_extras = {**case.check.ci_extras, "gitlab": gitlab}


def _with_build_job(check_sanity: Callable[..., None]) -> Callable[..., None]:
    """Have a test that only compiles, such as a fixture, end with the exit code of its build.

    Where errors of jobs are trapped, as we configure it, ReFrame looks for that of a run that is not there.
    """

    def checked(self: Any) -> None:
        self._job = self._build_job
        try:
            check_sanity(self)
        finally:
            self._job = None

    return checked


def _without_warm_ups(log_result: Callable[..., None]) -> Callable[..., None]:
    """Leave runs before the first pair out of the perf log, whose columns the first entry decides."""

    def logged(self: Any) -> None:
        if not getattr(self.check, "warm_up", False):
            log_result(self)

    return logged


class _ImportsOfPackages:
    """How ``--restore-session`` imports a test's file: as the loader does, with the package that it is in."""

    import_module_from_file = staticmethod(partial(import_module_from_file, load_parents=True))


def _see_our_tests(visit: Callable[..., None]) -> Callable[..., None]:
    """Have ReFrame load the files that make tests by ``checks.overhead`` or ``checks.judged``.

    It leaves out, without a word, every file that neither imports ``reframe`` nor has its decorator.
    """

    def seen(self: Any, node: Any) -> None:
        visit(self, node)
        if {"with_verdict", "judge"} & {name.name for name in node.names}:
            self._has_regression_test = True

    return seen


def _without_callers(inject: Callable[..., None]) -> Callable[..., None]:
    """While a test gets its variables, do not look for the callers of what is deprecated.

    ReFrame suppresses these warnings there, but has walked the stack and all modules for each of them before,
    which is half of the time that it takes to start.
    """
    modules = (fields, variables)
    warn = variables.user_deprecation_warning

    def injected(self: Any, obj: Any, cls: Any) -> None:
        for module in modules:
            module.user_deprecation_warning = lambda *_: None
        try:
            inject(self, obj, cls)
        finally:
            for module in modules:
                module.user_deprecation_warning = warn

    return injected


def _refuse_broken_files(load_all: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(self: Any, force: bool = False) -> Any:
        # While it loads, ReFrame warns of what it leaves out: a file that cannot be imported, a test that
        # cannot be made, a path that is not there.  Each is a hole in the qualification.
        logger = getlogger()
        before, logger.warn_as_error = logger.warn_as_error, True
        try:
            checks = load_all(self, force)
        finally:
            logger.warn_as_error = before
        _loaded[:] = catalogue.of_checks(checks)
        if file := os.environ.get("VIRTQUAL_CATALOGUE"):
            catalogue.write(_loaded, Path(file))
        return checks

    return guarded
