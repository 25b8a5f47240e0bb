"""Run the experiments of experiments.yaml that are not done; see ci/evidence.

Each experiment plants something and states what must come out.  It is a session on the one-machine cluster,
tests of pytest, or a command.  A finished one is a line of JSON in results.jsonl, so that the next call goes
on where the last one stopped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import logs
import planted
import tables
from experiments import Experiment, load_experiments

from virtqual import paths
from virtqual.errors import INTERRUPTED, InfrastructureError, UsageError, VirtqualError
from virtqual.files import execute
from virtqual.files.records import write_file
from virtqual.references import project_references
from virtqual.session.log import Log
from virtqual.session.pairing import series_of
from virtqual.session.session import Session
from virtqual.verdict import Verdict
from virtqual.verdict.pairs import SIDES, Side

RESULTS = Path(__file__).with_name("results.jsonl")
# A guest's kernel may panic on an emulated host, which ends the session.
MAX_ATTEMPTS = 3
PAGES = ("docs/evidence.md", "docs/faults.md")


def read_lines(file: Path) -> list[dict[str, Any]]:
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def describe_machine() -> dict[str, object]:
    """Return the processor, its cores and the kernel of this machine, without its name."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"^model name\s*: (.*)", text, re.MULTILINE)
    return {
        "cpu": model[1] if model else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
    }


def measure_noise() -> Callable[[], dict[str, float]]:
    """Return a function that says which share of the CPU time others took since now, and the load."""

    def read_ticks() -> list[int]:
        return [int(ticks) for ticks in Path("/proc/stat").read_text(encoding="utf-8").split()[1:9]]

    before = read_ticks()

    def end() -> dict[str, float]:
        ticks = [b - a for a, b in zip(before, read_ticks(), strict=True)]
        return {"steal": round(ticks[7] / max(sum(ticks), 1), 4), "load": round(os.getloadavg()[1], 2)}

    return end


@cache
def describe_commit() -> str:
    """Return the commit of the checkout, with a ``+`` if more than results and their tables has changed."""

    def ask_git(*arguments: str) -> str:
        return execute.run(["git", "-C", str(paths.root()), *arguments]).stdout.strip()

    made_files = [f":!{name}" for name in (*PAGES, RESULTS.relative_to(paths.root()))]
    return ask_git("rev-parse", "HEAD") + "+" * bool(
        ask_git("status", "--porcelain", "--untracked-files=no", "--", ".", *made_files)
    )


def begin_line(experiment: Experiment, number: int) -> dict[str, object]:
    """Return the fields that each result has."""
    return {
        "experiment": experiment.name,
        "number": number,
        "definition": experiment.digest(),
        **({"test": experiment.digest_of_test()} if experiment.test else {}),
        "commit": describe_commit(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": describe_machine(),
    }


def expand_options(experiment: Experiment) -> list[list[str]]:
    """Return the options of ``vcluster up`` and ``virtqual qualify`` with their variables."""
    return [[os.path.expandvars(option) for option in part] for part in (experiment.up, experiment.qualify)]


def choose_state(experiment: Experiment) -> Path:
    """Return a state directory without faults of other experiments: slow runs add up over sessions."""
    is_history = experiment.group == "history of builds"
    return paths.state() / "lab" / re.sub(r"\W+", "-", experiment.group if is_history else experiment.name)


def find_running() -> Path:
    """Return the file with the line of the session that is running, or was stopped."""
    return paths.state() / "lab" / "running.json"


@contextmanager
def noting_a_stop(line: dict[str, object]) -> Iterator[None]:
    """Leave the line of a session that is stopped to the next call, which adds it to the results."""
    paths.make(find_running().parent)
    write_file(json.dumps(line | {"is_stopped": True}), find_running())
    yield
    find_running().unlink()


def run_session(experiment: Experiment, number: int) -> dict[str, object]:
    """Run one session on a cluster of its own; return its line."""
    line, noise = begin_line(experiment, number), measure_noise()
    subprocess.run(["vcluster", "down"], check=True, capture_output=True)
    began = time.monotonic()
    up, qualify = expand_options(experiment)
    subprocess.run(["vcluster", "up", *up], check=True)
    booted = time.monotonic() - began
    state = choose_state(experiment)
    sessions = paths.make(state / "sessions")
    before = set(sessions.iterdir())
    label = f"{experiment.name} {number}"
    fault, *arguments = experiment.fault or [None]
    with noting_a_stop(line):
        with planted.run_fault(getattr(planted, fault)(*arguments)) if fault else nullcontext():
            done = subprocess.run(
                ["virtqual", "qualify", "--system", "vcluster", "--label", label, *qualify],
                check=False,
                env={**os.environ, "VIRTQUAL_STATE": str(state)},
            )
        subprocess.run(["vcluster", "down"], check=True, capture_output=True)
        if done.returncode == INTERRUPTED:
            raise KeyboardInterrupt
    if done.returncode == UsageError.exit_code and UsageError.exit_code not in experiment.exit_code:
        raise UsageError(f"{experiment.name}: its options are refused, or its checks are not in the stack")
    line |= {
        "noise": noise(),
        "exit_code": done.returncode,
        "seconds": round(time.monotonic() - began - booted, 1),
        "boot_seconds": round(booted, 1),
    }
    new_sessions = [path for path in set(sessions.iterdir()) - before if path.name[0] != "."]
    if not new_sessions:
        return line | {"outcome": "none", "runs": 0, "why": "nothing was run", "metrics": {}}
    return line | summarise_session(new_sessions[0])


def summarise_session(directory: Path) -> dict[str, object]:
    """Return the fields of a line that follow from a session's log."""
    session = Log(directory).session()
    slow = session.slow_runs
    return {
        "session": session.session,
        "log": session.log_digest,
        "hypervisor": session.hypervisor,
        "outcome": session.outcome,
        "runs": len(session.runs),
        "slow_runs": [slow.virtual, slow.virtual_runs, slow.native, slow.native_runs] if slow else None,
        **({"why": session.conclusion} if session.exit_code else {}),
        "metrics": summarise_metrics(session),
    }


def summarise_metrics(session: Session) -> dict[str, dict[str, object]]:
    """Return the figures of each metric; a pair is ln(virtual/native), of curves the mean over sizes."""
    series = series_of(session.runs, project_references())
    metrics = {}
    for verdict in session.verdicts:
        pairs = series[verdict.series].differences.mean(axis=1) if verdict.series in series else ()
        spread = statistics.stdev(map(float, pairs)) if len(pairs) > 1 else None
        metrics[verdict.series] = {
            "outcome": verdict.outcome.value,
            "log": verdict.estimate and round(verdict.estimate.log, 5),
            "sd_of_a_pair": spread and round(spread, 5),
            "within_below": None if verdict.within_below is None else round(verdict.within_below, 5),
            "over_from": verdict.smallest_over and round(verdict.smallest_over, 5),
            "pairs": verdict.pairs,
            "native": verdict.native,
            "virtual": verdict.virtual,
            "unit": verdict.unit,
            "seconds_a_run": [find_typical_seconds(session, verdict, side) for side in SIDES],
        }
    return metrics


def find_typical_seconds(session: Session, verdict: Verdict, side: Side) -> float | None:
    """Return the median duration of all runs of one side that measured a metric; None if there is none."""
    seconds = [
        run.seconds
        for run in session.runs
        if run.side == side and any(result.series == verdict.series for result in run.results)
    ]
    return round(statistics.median(seconds), 1) if seconds else None


def run_until_it_counts(experiment: Experiment, number: int) -> dict[str, object]:
    """Run a session again that the cluster has ended, and not what was planted."""
    ended_by_cluster: list[object] = []
    while True:
        line = run_session(experiment, number)
        is_by_cluster = line["exit_code"] == 5 and 5 not in experiment.exit_code
        if not is_by_cluster or len(ended_by_cluster) == MAX_ATTEMPTS - 1:
            return line | ({"ended_by_the_cluster": ended_by_cluster} if ended_by_cluster else {})
        ended_by_cluster.append(line["why"])
        print(f"== {experiment.name} {number}: {line['why']}", flush=True)


def run_command(experiment: Experiment, number: int) -> dict[str, object]:
    """Run a command of the project; return its line."""
    line, noise, began = begin_line(experiment, number), measure_noise(), time.monotonic()
    done = subprocess.run([sys.executable, *experiment.command], cwd=paths.root(), check=False)
    seconds = round(time.monotonic() - began, 1)
    return line | {"noise": noise(), "exit_code": done.returncode, "seconds": seconds}


def run_tests(experiments: Sequence[Experiment]) -> Iterator[dict[str, object]]:
    """Run the tests of experiments, one pytest for each file; yield a line for each experiment."""
    by_file = itertools.groupby(
        sorted(experiments, key=lambda experiment: str(experiment.test)),
        key=lambda experiment: str(experiment.test).split("::")[0],
    )
    for file, group in by_file:
        experiments = list(group)
        noise = measure_noise()
        # A parametrised case is chosen by its name below: pytest's own choice takes no test twice.
        tests = dict.fromkeys(str(experiment.test).split("[")[0] for experiment in experiments)
        print(f"== {len(experiments)} experiments of {file}", flush=True)
        with tempfile.NamedTemporaryFile(suffix=".xml") as report:
            line = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={report.name}", *tests]
            done = subprocess.run([sys.executable, *line], cwd=paths.root(), check=False)
            if done.returncode not in (0, 1):
                raise InfrastructureError(f"{file}: pytest ended with {done.returncode}: it ran nothing")
            cases = list(ElementTree.parse(report.name).iter("testcase"))
        for experiment in experiments:
            name = str(experiment.test).split("::")[1]
            own_cases = [
                case for case in cases if name in (case.get("name"), case.get("name", "").split("[")[0])
            ]
            finished = [case for case in own_cases if case.find("skipped") is None]
            if not finished:
                print(f"== {experiment.name}: its test was skipped, and it is not done", flush=True)
                continue
            failed = [case for case in finished if {"failure", "error"} & {part.tag for part in case}]
            yield begin_line(experiment, 1) | {
                "noise": noise(),
                "cases": len(finished),
                "failed": len(failed),
                "seconds": max(round(float(case.get("time", 0)), 1) for case in finished),
            }


def run_experiments(experiments: Sequence[Experiment], out: Path) -> None:
    """Run what the file does not have: first tests, then sessions in turns, so that a drift meets all."""

    names = ("experiment", "number", "definition", "test")
    # A test that failed, and a session that was stopped, are run again; their lines stay.
    done = {
        tuple(line.get(name) for name in names)
        for line in read_lines(out)
        if not line.get("failed") and not line.get("is_stopped")
    }

    def is_done(experiment: Experiment, number: int) -> bool:
        return (experiment.name, number, experiment.digest(), experiment.digest_of_test()) in done

    def append(line: dict[str, object]) -> None:
        text = out.read_text(encoding="utf-8") if out.exists() else ""
        # Whole or not at all: a stop leaves no half line.
        write_file(text + json.dumps(line, ensure_ascii=False) + "\n", out)

    for line in read_lines(find_running()):
        append(line)
        find_running().unlink()
    for line in run_tests([e for e in experiments if e.test and not is_done(e, 1)]):
        append(line)
    # An experiment is left out if a variable of its options is not set.
    runnable = [e for e in experiments if not e.test and "$" not in str(expand_options(e))]
    for number in range(1, max((experiment.sessions for experiment in runnable), default=0) + 1):
        for experiment in runnable:
            if number <= experiment.sessions and not is_done(experiment, number):
                print(f"== {experiment.name} {number} of {experiment.sessions}", flush=True)
                run = run_until_it_counts if experiment.kind == "session" else run_command
                line = run(experiment, number)
                if line.get("session") and out == RESULTS:
                    logs.keep(choose_state(experiment) / "sessions" / str(line["session"]))
                append(line)


def fill_pages(made_tables: dict[str, tables.Table], *, is_check: bool) -> list[str]:
    """Write the tables into the pages unless `is_check`; return the pages that have others."""
    changed = []
    for name in PAGES:
        file = paths.root() / name
        text = file.read_text(encoding="utf-8")
        filled = tables.fill_page(text, made_tables, name)
        if filled != text:
            changed.append(name)
        if filled != text and not is_check:
            write_file(filled, file)
    return changed


def main() -> None:
    parser = argparse.ArgumentParser(prog="ci/evidence", description="Run the experiments that are not done.")
    parser.add_argument("names", nargs="*", help="experiments or classes; all if none is named")
    parser.add_argument("--list", action="store_true", help="only list them, with how many are done")
    parser.add_argument("--page", action="store_true", help="only write the tables of the pages")
    parser.add_argument("--check", action="store_true", help="only compare the pages with the results")
    parser.add_argument(
        "--out",
        type=Path,
        default=RESULTS,
        help="file of results for a trial, which changes no page [results.jsonl]",
    )
    options = parser.parse_args()
    experiments = load_experiments()
    names = {name for experiment in experiments for name in (experiment.name, experiment.group)}
    if unknown := set(options.names) - names:
        parser.error(f"no experiment or class {', '.join(sorted(unknown))}; see --list")
    chosen = [e for e in experiments if not options.names or {e.name, e.group} & set(options.names)]
    if not (options.list or options.page or options.check):
        run_experiments(chosen, options.out)
    results = tables.match_results(experiments, read_lines(options.out))
    if options.list or options.out != RESULTS:
        print(tables.list_experiments([result for result in results if result.experiment in chosen]))
        return
    lines = read_lines(RESULTS)
    if problems := list(logs.find_problems(lines)):
        sys.exit("\n".join(problems))
    made_tables = tables.make_tables(results, logs.judge_all(lines))
    changed = fill_pages(made_tables, is_check=options.check)
    if options.check and changed:
        sys.exit(f"{', '.join(changed)}: not what the results give; run `ci/evidence --page`")
    if not options.check:
        page = paths.make(paths.state()) / "evidence.html"
        write_file(tables.render_html(made_tables), page)
        print(page)
    print(f"{', '.join(changed)} changed" if changed else f"{', '.join(PAGES)}: as the results give them")
    if changed_tests := sum(result.has_changed_test for result in results):
        print(f"{changed_tests} tests have changed since their results; `ci/evidence --list` names them")


if __name__ == "__main__":
    try:
        main()
    except VirtqualError as error:
        print(f"ci/evidence: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
