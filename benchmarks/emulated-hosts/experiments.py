"""Run sessions on emulated hosts, with a known fault or without, to see that each is judged as it must be.

    . ci/activate && python benchmarks/emulated-hosts/experiments.py [NAME...] [--out FILE] [--list]
        [--newer-qemu BINARY]

Each experiment brings the one-machine cluster up with its options, runs `virtqual qualify` while its fault
acts, and appends a line of JSON to the file.  Sessions of the file are not run again, so that the script
continues after an interrupt.  Without names all experiments run once before any runs again.  At the end, and
with `--list`, two tables are printed: by session, and by metric over the sessions of the same build.  A newer
QEMU is that of another distribution, such as Debian's backports, unpacked with `dpkg-deb -x`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from vcluster import cluster, emulated
from vcluster.directory import StateDirectory
from virtqual import paths
from virtqual.errors import INTERRUPTED, InfrastructureError
from virtqual.references import project_references
from virtqual.session.pairing import series_of
from virtqual.session.session import Session
from virtqual.session.store import load

# A guest is stopped and continued once in this time.
STOP_PERIOD_S = 0.05
SQUEUE_INTERVAL_S = 0.3
# The experiments whose sessions have the same build.
SAME_BUILD, SAME_BUILD_TCG = "same build, for budgets", "same build, emulated processors"
# Programs whose runs differ little, so that a session ends in 25 minutes or less.
STEADY_CHECKS = ("-n", "^linpack", "-n", "^paging", "-n", "^lammps", "-n", "^memory_bandwidth")
# A guest's kernel may panic on an emulated host, which ends the session.
MAX_ATTEMPTS = 3
Fault = Callable[[threading.Event], None]


def run_on_all_hosts(line: str) -> None:
    directory = StateDirectory.default()
    for host in cluster.load_running(directory).hosts:
        emulated.run_on_host(directory.logs, host.name, line)


def list_virtual_runs() -> list[str]:
    """Return the ids of the steps in VMs that are runs: the session's job holds its nodes all the time."""
    return list_runs("--partition=virtual")


def list_runs(*options: str) -> list[str]:
    """Return the ids of the steps that are runs of any side."""
    line = ["squeue", "--steps", "--noheader", *options, "--format=%i %j"]
    output = subprocess.run(line, capture_output=True, text=True, check=False).stdout
    rows = (row.split() for row in output.splitlines())
    return [row[0] for row in rows if len(row) == 2 and row[1].startswith("rfm_")]


def stop_guests(share: float) -> Fault:
    """Stop the guests for a share of their time, on the hosts themselves."""

    def fault(ended: threading.Event) -> None:
        # One process for all steps: a process for each would take CPU time from native runs.
        halt, go = share * STOP_PERIOD_S, (1 - share) * STOP_PERIOD_S
        loop = (
            'while (-e "stopping") { open F, "vm.pid"; $p = <F> || 0; close F; '
            f"kill STOP, $p if $p > 1; select undef, undef, undef, {halt}; "
            f"kill CONT, $p if $p > 1; select undef, undef, undef, {go} }}"
        )
        run_on_all_hosts(f"cd /run/vcluster; touch stopping; perl -e '{loop}' > /dev/null 2>&1 &")
        ended.wait()
        run_on_all_hosts("rm -f /run/vcluster/stopping")

    return fault


@contextmanager
def run_fault(fault: Fault) -> Iterator[None]:
    ended = threading.Event()
    thread = threading.Thread(target=fault, args=(ended,))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def stop_guests_in_some_runs(period: int, share: float) -> Fault:
    """Stop the guests for a share of their time during one of `period` runs."""

    def fault(ended: threading.Event) -> None:
        runs: list[str] = []
        while not ended.wait(SQUEUE_INTERVAL_S):
            new_runs = [run for run in list_virtual_runs() if run not in runs]
            runs += new_runs
            if new_runs and len(runs) % period == 0:
                with run_fault(stop_guests(share)):
                    while runs[-1] in list_virtual_runs() and not ended.wait(SQUEUE_INTERVAL_S):
                        pass

    return fault


def load_half_of_the_runs(period: int) -> Fault:
    """Compute on one CPU of this machine during the first half of each `period` runs, of whichever side."""

    def fault(ended: threading.Event) -> None:
        runs: list[str] = []
        load: subprocess.Popen[bytes] | None = None
        while not ended.wait(SQUEUE_INTERVAL_S):
            runs += [run for run in list_runs() if run not in runs]
            is_loaded = len(runs) > 0 and (len(runs) - 1) % period < period // 2
            if is_loaded and load is None:
                load = subprocess.Popen(["sh", "-c", "while :; do :; done"])
            elif load is not None and not is_loaded:
                load = _end(load)
        if load is not None:
            _end(load)

    return fault


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def load_guest_cpus(ended: threading.Event) -> None:
    """Compute on the CPUs of the guests while they run jobs, as another guest pinned there does."""
    busy = "taskset -c $cpu sh -c 'while [ -e /run/vcluster/busy ]; do :; done'"
    start = (
        f"touch /run/vcluster/busy; for cpu in $(seq 0 $(($(nproc) - 1))); do {busy} > /dev/null 2>&1 & done"
    )
    end = "rm -f /run/vcluster/busy"
    is_loaded = False
    while not ended.wait(SQUEUE_INTERVAL_S):
        if bool(list_virtual_runs()) != is_loaded:
            is_loaded = not is_loaded
            run_on_all_hosts(start if is_loaded else end)
    run_on_all_hosts(end)


@dataclass(frozen=True)
class Experiment:
    """Sessions of one kind, with options of ``vcluster up`` and ``virtqual qualify``."""

    name: str
    sessions: int
    up: tuple[str, ...] = ()
    hosts: str = "emulated"
    # It acts until its event is set.
    fault: Fault | None = None
    qualify: tuple[str, ...] = ()


def list_experiments(newer_qemu: Path | None) -> list[Experiment]:
    """Return all experiments, the same build first: the budgets come from its sessions."""
    newer = [Experiment("newer QEMU for the guests", 1, ("--qemu", str(newer_qemu)))] if newer_qemu else []
    return [
        # Each ends after its first four pairs: only the differences between sessions count.
        Experiment(SAME_BUILD, 10, qualify=("--pairs", "4", "--max-pairs", "4")),
        Experiment("same build", 5),
        Experiment("same build, loaded in two of four runs", 5, fault=load_half_of_the_runs(4)),
        Experiment(SAME_BUILD_TCG, 2, hosts="here"),
        Experiment("nested paging off", 1, ("--kvm", "npt=0")),
        Experiment("e1000", 1, ("--nic", "e1000")),
        Experiment(
            "stopped for 25 % of the time",
            3,
            fault=stop_guests(0.25),
            qualify=(*STEADY_CHECKS, "--max-pairs", "12"),
        ),
        Experiment(
            "one run in five stopped for half",
            3,
            fault=stop_guests_in_some_runs(5, 0.5),
            qualify=(*STEADY_CHECKS, "--pairs", "12", "--max-pairs", "12"),
        ),
        Experiment("beside another guest that computes", 1, fault=load_guest_cpus),
        Experiment("another MAC address", 1, ("--mac", "02:00:0a:4e")),
        *newer,
        *list_builds(newer_qemu),
    ]


def list_builds(newer_qemu: Path | None) -> list[Experiment]:
    """Return eight builds for a history, three short sessions each; pages cost more under the fifth."""
    if newer_qemu is None:
        return []
    newer = ("--qemu", str(newer_qemu))
    # A guest of a newer QEMU boots on no emulated host without nested paging.
    ups = [
        (),
        ("--kvm", "halt_poll_ns=0"),
        newer,
        (*newer, "--kvm", "halt_poll_ns=0"),
        ("--kvm", "npt=0"),
        (*newer, "--kvm", "halt_poll_ns=400000"),
        ("--kvm", "halt_poll_ns=400000"),
        ("--kvm", "halt_poll_ns=50000"),
    ]
    return [Experiment(f"build {k}", 3, up, qualify=("-n", "^paging")) for k, up in enumerate(ups, 1)]


def run_session(experiment: Experiment, number: int) -> dict[str, object]:
    """Run one session; return its line of the file."""
    subprocess.run(["vcluster", "down"], check=True, capture_output=True)
    began = time.monotonic()
    subprocess.run(["vcluster", "up", "--hosts", experiment.hosts, *experiment.up], check=True)
    booted = time.monotonic() - began
    label = f"{experiment.name} {number}"
    before = set(paths.sessions().iterdir()) if paths.sessions().exists() else set()
    with run_fault(experiment.fault) if experiment.fault else nullcontext():
        done = subprocess.run(
            ["virtqual", "qualify", "--system", "vcluster", "--label", label, *experiment.qualify],
            check=False,
        )
    subprocess.run(["vcluster", "down"], check=True, capture_output=True)
    if done.returncode == INTERRUPTED:
        raise KeyboardInterrupt
    took = time.monotonic() - began - booted
    (directory,) = set(paths.sessions().iterdir()) - before
    session = load(directory)
    assert isinstance(session, Session)
    return {
        "experiment": experiment.name,
        "number": number,
        "session": session.session,
        "exit_code": done.returncode,
        "seconds": round(took, 1),
        "boot_seconds": round(booted, 1),
        "runs": len(session.runs),
        "conclusion": session.conclusion,
        "slow_runs": session.slow_runs and session.slow_runs.model_dump(mode="json"),
        "metrics": summarise_metrics(session),
    }


def summarise_metrics(session: Session) -> dict[str, dict[str, object]]:
    """Return the figures of each metric; a pair is ln(virtual/native), of curves the mean over sizes."""
    series = series_of(session.runs, project_references())
    metrics = {}
    for verdict in session.verdicts:
        pairs = series[verdict.series].differences.mean(axis=1) if verdict.series in series else ()
        metrics[verdict.series] = {
            "outcome": verdict.outcome.value,
            "ratio": verdict.overhead and verdict.overhead.ratio,
            "log": verdict.overhead and verdict.overhead.log,
            "sd_of_a_pair": statistics.stdev(map(float, pairs)) if len(pairs) > 1 else None,
            "pairs": verdict.pairs,
            "reasons": list(verdict.reasons)[:2],
        }
    return metrics


def render_sessions(lines: list[dict]) -> str:
    """Return a table in Markdown with one row a session."""
    rows = [
        "| experiment | exit | WITHIN | OVER | other | minutes | worst metrics |",
        "|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        outcomes = {name: metric["outcome"] for name, metric in line["metrics"].items()}
        over = [name for name, outcome in outcomes.items() if outcome == "OVER"]
        within = sum(outcome == "WITHIN" for outcome in outcomes.values())
        worst_names = sorted(over, key=lambda name: -abs(line["metrics"][name]["log"] or 0))[:3]
        worst = ", ".join(f"{name} {line['metrics'][name]['ratio']:.2f}x" for name in worst_names)
        other = len(outcomes) - within - len(over)
        rows.append(
            f"| {line['experiment']} {line['number']} | {line['exit_code']} | {within} | {len(over)} "
            f"| {other} | {line['seconds'] / 60:.1f} | {worst} |"
        )
    return "\n".join(rows)


def render_metrics(lines: list[dict]) -> str:
    """Return a table in Markdown with one row a metric, from the sessions of the same build."""
    by_name: dict[tuple[str, str], list[dict]] = {}
    for line in lines:
        if line["experiment"] in (SAME_BUILD_TCG, SAME_BUILD):
            for name, metric in line["metrics"].items():
                by_name.setdefault((line["experiment"], name), []).append(metric)
    rows = [
        "| experiment | metric | sessions | ratio: median, range | SD of a pair | SD between sessions |",
        "|---|---|---|---|---|---|",
    ]
    for (experiment, name), metrics in by_name.items():
        logs = [metric["log"] for metric in metrics if metric["log"] is not None]
        pairs = [metric["sd_of_a_pair"] for metric in metrics if metric["sd_of_a_pair"] is not None]
        if len(logs) > 1 and pairs:
            median, lowest, highest = (math.exp(f(logs)) for f in (statistics.median, min, max))
            rows.append(
                f"| {experiment} | {name} | {len(logs)} | {median:.2f}, {lowest:.2f} to {highest:.2f} "
                f"| {statistics.median(pairs):.1%} | {statistics.stdev(logs):.1%} |"
            )
    return "\n".join(rows)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("names", nargs="*", help="experiments; all if none is named")
    parser.add_argument("--out", type=Path, default=paths.state() / "emulated-hosts.jsonl")
    parser.add_argument("--newer-qemu", type=Path, help="QEMU for the guests of the last experiment")
    parser.add_argument("--list", action="store_true", help="only print the sessions of the file")
    options = parser.parse_args()
    experiments = list_experiments(options.newer_qemu)
    names = [experiment.name for experiment in experiments]
    if unknown := set(options.names) - set(names):
        parser.error(f"no experiment {', '.join(sorted(unknown))}; there are: {', '.join(names)}")
    if not options.list:
        run_experiments([e for e in experiments if not options.names or e.name in options.names], options.out)
    lines = read_lines(options.out)
    print(render_sessions(lines), render_metrics(lines), sep="\n\n")


def run_experiments(experiments: list[Experiment], out: Path) -> None:
    """Run the sessions that the file does not have, in turns, so that a drift of the machine meets all."""
    turns = range(1, max(experiment.sessions for experiment in experiments) + 1)
    for number, experiment in itertools.product(turns, experiments):
        present = {(line["experiment"], line["number"]) for line in read_lines(out)}
        if number > experiment.sessions or (experiment.name, number) in present:
            continue
        print(f"== {experiment.name} {number} of {experiment.sessions}", flush=True)
        # A session that the cluster has ended does not count.
        ended_by_cluster: list[object] = []
        while (line := run_session(experiment, number))["exit_code"] == InfrastructureError.exit_code:
            ended_by_cluster.append(line["conclusion"])
            print(f"== {experiment.name} {number}: {line['conclusion']}", flush=True)
            if len(ended_by_cluster) == MAX_ATTEMPTS:
                break
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line | {"ended_by_the_cluster": ended_by_cluster}) + "\n")


def read_lines(path: Path) -> list[dict]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


if __name__ == "__main__":
    main()
