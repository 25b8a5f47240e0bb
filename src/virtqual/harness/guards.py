"""Guards around ReFrame itself: a run that did nothing must not be called passed.

ReFrame's site configuration installs them (``reframe/settings.py``), so that they also hold for the plain
``reframe`` command.  ReFrame offers no hook for any of them: they wrap six of its functions that are not
public.  The version of ReFrame is pinned, and ``tests/checks/test_guards.py`` starts the real command.

=============================  ===========================================================  ===============
function                       what ReFrame would have to offer instead                     upstream
=============================  ===========================================================  ===============
``Runner.runall``              an error if no case is selected; a hook before a run         reframe#3599
``RegressionCheckLoader``      an error if a file, a test or a dependency cannot be loaded  reframe#3598
``cli.list_checks``            a list with one entry for all samples of a check             reframe#2248
``slurm_state_completed``      an end for preempted jobs that are not requeued              reframe#3608
``_SlurmJob.nodelist``         one question for a job's nodes, not one a line of the log    reframe#3022
``user_deprecation_warning``   no walk over the stack for a warning that is suppressed      reframe#2544
=============================  ===========================================================  ===============

The numbers are of issues and pull requests of https://github.com/reframe-hpc/reframe.  Without the last
two ReFrame takes twice as long to start, and starts ten processes more a run.
"""

from __future__ import annotations

import argparse
import ast
import ctypes
import inspect
import os
import re
import shutil
import signal
import sys
import textwrap
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from reframe.core import runtime
from reframe.core import warnings as deprecations
from reframe.core.exceptions import ReframeFatalError
from reframe.core.logging import getlogger
from reframe.core.schedulers import slurm
from reframe.frontend import cli
from reframe.frontend.executors import Runner
from reframe.frontend.loader import RegressionCheckLoader, RegressionCheckValidator

from virtqual.harness import catalogue
from virtqual.harness.kinds import PIPELINE, Measuring, judges, measures
from virtqual.harness.process import PARENT_VARIABLE
from virtqual.harness.progress import ErrorEvent, send
from virtqual.site.configuration import ABSENT_PARTITION

Wrapped = Callable[..., Any]
RunCases = Callable[[list[Any]], Any]
#: Runs cases: the arguments are ReFrame's runner, its function that runs cases, the cases and restored ones.
RunSession = Callable[[Any, RunCases, list[Any], Sequence[Any]], Any]

#: The checks that this ReFrame has loaded, selected or not.
loaded_entries: list[catalogue.Entry] = []
#: The files and directories from which it has loaded them.
loaded_paths: list[Path] = []

#: Linux: the signal that a process gets when its parent dies (prctl(2)).
_PR_SET_PDEATHSIG = 1


def install(run_session: RunSession) -> None:
    """Put the guards around ReFrame's loader, runner and list, once a process."""
    _end_with_parent()
    if not getattr(Runner, "_virtqual_guarded", False):
        Runner.runall = _guard_run(Runner.runall, run_session)
        RegressionCheckLoader.load_all = _refuse_broken_files(RegressionCheckLoader.load_all)
        cli.list_checks = _list_by_check(cli.list_checks)
        slurm.slurm_state_completed = _complete_preempted(slurm.slurm_state_completed)
        slurm._SlurmJob.nodelist = _ask_once(slurm._SlurmJob.nodelist)
        deprecations.inspect = SimpleNamespace(stack=_find_users, getmodule=inspect.getmodule)
        Runner._virtqual_guarded = True


def _end_with_parent() -> None:
    """Let the death of the virtqual that started this ReFrame be a Ctrl-C: jobs must not go on unseen."""
    parent = os.environ.get(PARENT_VARIABLE)
    if not parent:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    if os.getppid() != int(parent):
        os.kill(os.getpid(), signal.SIGINT)


def _end(message: str) -> NoReturn:
    """End ReFrame with an error; on a terminal in lines of whole words."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - len("ERROR: ")
        message = textwrap.fill(message, width, break_long_words=False, break_on_hyphens=False)
    getlogger().error(message)
    sys.exit(1)


def _guard_run(runall: Wrapped, run_session: RunSession) -> Wrapped:
    def guarded(runner: Any, testcases: list[Any], restored_cases: Sequence[Any] | None = None) -> Any:
        _refuse_absent_system()
        if not testcases:
            reason = f"no test case was selected, so nothing was run and nothing passed; {_explain_no_case()}"
            message = f"{reason.rstrip('.')} (-L lists what there is)"
            send(ErrorEvent(cause="selection", message=message))
            _end(message)
        if option := _find_refused_option(runner, testcases):
            _end(
                f"{option} cannot be used with paired samples, which run once, in turn, and count only if "
                "they are right: VIRTQUAL_PAIRS=6 takes six pairs, `virtqual qualify` as many as are needed"
            )
        restored = restored_cases or []
        # The runs of a pair follow each other, so that they see the same machine.  ReFrame goes through all
        # variants of a check in turn.  The sort keeps the order within a group, and no case depends on
        # another group.
        place: dict[str, int] = {}
        for index, case in enumerate(testcases):
            place.setdefault(_group_of(case), index)
        grouped = sorted(testcases, key=lambda case: place[_group_of(case)])
        try:
            return run_session(runner, lambda cases: runall(runner, cases, restored), grouped, restored)
        except SystemExit:
            raise
        except BaseException as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            send(ErrorEvent(cause="run", message=reason))
            raise

    return guarded


def _explain_no_case() -> str:
    """Return why the command line of this ReFrame selects no test case."""
    parser = argparse.ArgumentParser(add_help=False)
    for option in (("-n", "--name"), ("-t", "--tag")):
        parser.add_argument(*option, action="append", default=[])
    options, _ = parser.parse_known_args(sys.argv[1:])
    context, words = runtime.runtime(), (loaded_entries, options.name, options.tag)
    features, nodes = catalogue.read_capacity(context.system)
    # Without a stack, which -p may have left out, no check can run.
    if features:
        reason = catalogue.explain_empty_selection(*words, features, nodes)
    else:
        reason = catalogue.explain_unknown_words(*words)
    if reason:
        return reason
    has = catalogue.describe_system(context.site_config, context.system.name)
    return f"{has} ({context.system.descr}); look at -n, -t, -p and --system"


def _group_of(case: Any) -> str:
    return str(case.check.case if measures(case) else case.check.unique_name)


def _refuse_absent_system() -> None:
    """End ReFrame if its system is not there at the moment: every check would lack a program."""
    system = runtime.runtime().system
    if any(partition.name == ABSENT_PARTITION for partition in system.partitions):
        _end(f"system {system.name!r} cannot be used: {system.descr}")


def _find_refused_option(runner: Any, testcases: list[Any]) -> str | None:
    """Return the option by which paired tests would run again, on nodes of its choice, or unchecked."""
    checks = [case.check for case in testcases if measures(case)]
    if not checks:
        return None
    options = {
        "--reruns": runner._num_reruns,
        "--max-retries": runner._max_retries,
        "--duration": runner._timeout,
        "--skip-sanity-check": runner.policy.skip_sanity_check,
        "--skip-performance-check": runner.policy.skip_performance_check,
        # These options add parameters of their own, and lose dependencies on the way.
        "--repeat, --distribute or -P": any(
            name.startswith(".") for check in checks for name in type(check).raw_params
        ),
    }
    return next((option for option, value in options.items() if value), None)


def _refuse_broken_files(load_all: Wrapped) -> Wrapped:
    def guarded(loader: Any, force: bool = False) -> Any:
        _refuse_unread_files(loader)
        # While it loads, ReFrame warns of a file that cannot be imported, a test that cannot be made, a path
        # that is not there.  Each is a hole in the qualification.
        logger = getlogger()
        before, logger.warn_as_error = logger.warn_as_error, True
        try:
            checks = load_all(loader, force)
            _refuse_missing_dependencies(checks)
        except BaseException as error:
            send(ErrorEvent(cause="loading", message=" ".join(str(error).split())))
            raise
        finally:
            logger.warn_as_error = before
        skips = loader._skip_system_check or loader._skip_prgenv_check
        if skips and any(isinstance(check, Measuring) for check in checks):
            _end("--skip-system-check and --skip-prgenv-check would run samples of a side on the other")
        loaded_entries[:] = catalogue.make_entries(checks)
        loaded_paths[:] = map(Path, loader.load_path)
        for check in checks:
            # `--restore-session` imports the file of a test under this name, without its package.
            module = sys.modules[type(check).__module__]
            sys.modules.setdefault(module.__name__.rpartition(".")[2], module)
        if file := os.environ.get("VIRTQUAL_CATALOGUE"):
            catalogue.write(loaded_entries, Path(file))
        return checks

    return guarded


def _refuse_missing_dependencies(checks: Sequence[Any]) -> None:
    """Refuse a test that depends on one that no file makes: ReFrame would leave it out."""
    names = {check.unique_name for check in checks}
    for check in checks:
        if missing := [name for name, _ in check.user_deps() if name not in names]:
            raise ReframeFatalError(f"test {check.display_name} depends on {missing[0]}, which is not loaded")


def _refuse_unread_files(loader: Any) -> None:
    """End ReFrame if a file makes tests, and ReFrame would pass over it: it does not import ``reframe``."""
    makes_tests = re.compile(r"^\s*(from|import)\s.*\b(judged|overhead)\b", re.MULTILINE)
    for path in map(Path, loader.load_path):
        files = [path]
        if path.is_dir():
            files = list(path.rglob("*.py") if loader.recurse else path.glob("*.py"))
        for file in filter(Path.is_file, files):
            text = file.read_text(encoding="utf-8", errors="replace")
            if makes_tests.search(text) and not _is_read(text):
                _end(f"{file}: ReFrame reads only files that import it; add `import reframe`")


def _is_read(text: str) -> bool:
    """Return whether ReFrame reads a file of tests; of one with an error it says so itself."""
    validator = RegressionCheckValidator()
    try:
        validator.visit(ast.parse(text))
    except SyntaxError:
        return True
    return bool(validator.valid)


def _list_by_check(list_checks: Wrapped) -> Wrapped:
    def listed(testcases: Any, printer: Any, detailed: bool = False, concretized: bool = False) -> Any:
        _refuse_absent_system()
        if concretized:
            return list_checks(testcases, printer, detailed, concretized)
        _share_error_rate(testcases)
        context = runtime.runtime()
        selected = catalogue.make_entries(case.check for case in testcases)
        reason = "" if selected else _explain_no_case()
        printer.info("[List of matched checks]")
        printer.info(
            catalogue.format_list(selected, loaded_entries, context.system, reason, detailed=detailed)
        )
        return None

    return listed


def _share_error_rate(testcases: Any) -> None:
    """Tell the jobs of a generated pipeline, one case each, how many verdicts share the error rate."""
    count = sum(judges(case) for case in testcases)
    for case in testcases:
        if measures(case) or judges(case):
            gitlab = dict(case.check.ci_extras.get("gitlab", {}))
            gitlab["variables"] = {**gitlab.get("variables", {}), PIPELINE: str(max(count, 1))}
            case.check.ci_extras = {**case.check.ci_extras, "gitlab": gitlab}


def _complete_preempted(is_completed: Callable[[str | None], bool]) -> Callable[[str | None], bool]:
    """Take a preempted or revoked job as ended: ReFrame would wait for ever.

    Slurm begins such a job again only if the job may be requeued, and none of ours may.
    """
    states = re.compile(r"\b(PREEMPTED|REVOKED)\b")
    return lambda state: is_completed(states.sub("CANCELLED", state) if state else state)


def _ask_once(nodelist: Any) -> property:
    """Ask Slurm once for the names of a job's nodes: each line of the log about the job states them."""
    return property(lambda job: job._nodelist or nodelist.fget(job))


def _find_users() -> list[inspect.FrameInfo]:
    """Return the stack, where ReFrame looks for users of what is deprecated; none if it says nothing."""
    action, _, category, *_ = warnings.filters[0]
    is_suppressed = (action, category) == ("ignore", deprecations.ReframeDeprecationWarning)
    return [] if is_suppressed else inspect.stack()[1:]
