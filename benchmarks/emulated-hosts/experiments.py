"""Sessions on emulated hosts with a known fault, or none: is each judged as it must be?

    . ci/activate && python benchmarks/emulated-hosts/experiments.py [NAME...] [--out FILE] [--list]
        [--newer-qemu BINARY]

Each experiment brings the one-machine cluster up with its options, runs `virtqual qualify` while its fault is
at work, and appends a line of JSON to the file.  Sessions that the file has are not run again, so that the
script goes on where it was stopped.  Without names all are run, in the order of the list, once each before
any is run again; at the end, and with `--list`, all that the file has is printed as two tables: by session,
and by metric over the sessions of the same build.  A newer QEMU is one of another distribution, such as
Debian's backports, unpacked with `dpkg-deb -x`.
"""

from __future__ import annotations

import argparse
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

# The rhythm of a guest that is stopped, s.
RHYTHM = 0.05
# How often Slurm is asked which jobs run, s.
GLANCE = 0.3
# The experiments that say what sessions of one build have in common.
FOR_BUDGETS, BEFORE = "same build, for budgets", "same build, emulated processors"
# Programs whose runs differ little, so that a session ends in 25 minutes or less.
SOME = ("-n", "^linpack", "-n", "^paging", "-n", "^lammps", "-n", "^memory_bandwidth")
# How often a session is begun that its cluster ends: a guest's kernel may panic where the host is emulated.
ATTEMPTS = 3
Fault = Callable[[threading.Event], None]


def _hosts() -> list[str]:
    return [host.name for host in cluster.load_running(StateDirectory.default()).hosts]


def _on_all_hosts(line: str) -> None:
    for host in _hosts():
        emulated.run_on_host(StateDirectory.default().logs, host, line)


def _virtual_runs() -> list[str]:
    """Return the ids of the steps in VMs that are runs: the session's job holds its nodes all the time."""
    line = ["squeue", "--steps", "--noheader", "--partition=virtual", "--format=%i %j"]
    said = subprocess.run(line, capture_output=True, text=True, check=False).stdout
    rows = (row.split() for row in said.splitlines())
    return [step for step, name in (row for row in rows if len(row) == 2) if name.startswith("rfm_")]


def stopped(share: float) -> Fault:
    """Stop the guests for a share of their time, in a rhythm of 50 ms, on the hosts themselves."""

    def fault(ended: threading.Event) -> None:
        # Without a process for each step: those would take from native runs what they take from the host.
        halt, go = share * RHYTHM, (1 - share) * RHYTHM
        loop = (
            'while (-e "stopping") { open F, "vm.pid"; $p = <F> || 0; close F; '
            f"kill STOP, $p if $p > 1; select undef, undef, undef, {halt}; "
            f"kill CONT, $p if $p > 1; select undef, undef, undef, {go} }}"
        )
        _on_all_hosts(f"cd /run/vcluster; touch stopping; perl -e '{loop}' > /dev/null 2>&1 &")
        ended.wait()
        _on_all_hosts("rm -f /run/vcluster/stopping")

    return fault


@contextmanager
def _at_work(fault: Fault) -> Iterator[None]:
    ended = threading.Event()
    thread = threading.Thread(target=fault, args=(ended,))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def some_runs_stopped(every: int, share: float) -> Fault:
    """Stop the guests for a share of their time during one run in so many."""

    def fault(ended: threading.Event) -> None:
        seen: list[str] = []
        while not ended.wait(GLANCE):
            new = [run for run in _virtual_runs() if run not in seen]
            seen += new
            if new and len(seen) % every == 0:
                with _at_work(stopped(share)):
                    while seen[-1] in _virtual_runs() and not ended.wait(GLANCE):
                        pass

    return fault


def beside_another(ended: threading.Event) -> None:
    """Compute on the CPUs of the guests while they run jobs, as another guest pinned there does."""
    busy = "taskset -c $cpu sh -c 'while [ -e /run/vcluster/busy ]; do :; done'"
    start = (
        f"touch /run/vcluster/busy; for cpu in $(seq 0 $(($(nproc) - 1))); do {busy} > /dev/null 2>&1 & done"
    )
    end = "rm -f /run/vcluster/busy"
    acting = False
    while not ended.wait(GLANCE):
        if bool(_virtual_runs()) != acting:
            acting = not acting
            _on_all_hosts(start if acting else end)
    _on_all_hosts(end)


@dataclass(frozen=True)
class Experiment:
    """Sessions of one kind.

    Attributes
    ----------
    name
        For people.
    times
        How many sessions.
    up
        Options of ``vcluster up`` beside `hosts`.
    fault
        What goes on meanwhile; it ends when it is told to.
    qualify
        Options of ``virtqual qualify``.
    """

    name: str
    times: int
    up: tuple[str, ...] = ()
    hosts: str = "emulated"
    fault: Fault | None = None
    qualify: tuple[str, ...] = ()


def experiments(newer_qemu: Path | None) -> list[Experiment]:
    """Return all experiments, the same build first: the budgets come from its sessions."""
    newer = [Experiment("newer QEMU for the guests", 1, ("--qemu", str(newer_qemu)))] if newer_qemu else []
    return [
        # What counts is how sessions differ: each ends after its first four pairs.
        Experiment(FOR_BUDGETS, 10, qualify=("--max-pairs", "4")),
        Experiment("same build", 5),
        Experiment(BEFORE, 2, hosts="here"),
        Experiment("nested paging off", 1, ("--kvm", "npt=0")),
        Experiment("e1000", 1, ("--nic", "e1000")),
        Experiment(
            "stopped for 25 % of the time", 3, fault=stopped(0.25), qualify=(*SOME, "--max-pairs", "12")
        ),
        Experiment(
            "one run in five stopped for half",
            3,
            fault=some_runs_stopped(5, 0.5),
            qualify=(*SOME, "--pairs", "12", "--max-pairs", "12"),
        ),
        Experiment("beside another guest that computes", 1, fault=beside_another),
        Experiment("another MAC address", 1, ("--mac", "02:00:0a:4e")),
        *newer,
        *_builds(newer_qemu),
    ]


def _builds(newer_qemu: Path | None) -> list[Experiment]:
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


def run(one: Experiment, number: int) -> dict[str, object]:
    """Run one session; return what is kept of it."""
    subprocess.run(["vcluster", "down"], check=True, capture_output=True)
    began = time.monotonic()
    subprocess.run(["vcluster", "up", "--hosts", one.hosts, *one.up], check=True)
    booted = time.monotonic() - began
    label = f"{one.name} {number}"
    before = set(paths.sessions().iterdir()) if paths.sessions().exists() else set()
    with _at_work(one.fault) if one.fault else nullcontext():
        done = subprocess.run(
            ["virtqual", "qualify", "--system", "vcluster", "--label", label, *one.qualify], check=False
        )
    subprocess.run(["vcluster", "down"], check=True, capture_output=True)
    if done.returncode == INTERRUPTED:
        raise KeyboardInterrupt
    took = time.monotonic() - began - booted
    (directory,) = set(paths.sessions().iterdir()) - before
    session = load(directory)
    assert isinstance(session, Session)
    return {
        "experiment": one.name,
        "number": number,
        "session": session.session,
        "exit_code": done.returncode,
        "seconds": round(took, 1),
        "boot_seconds": round(booted, 1),
        "runs": len(session.runs),
        "conclusion": session.conclusion,
        "slow_runs": session.slow_runs and session.slow_runs.model_dump(mode="json"),
        "metrics": _metrics(session),
    }


def _metrics(session: Session) -> dict[str, dict[str, object]]:
    """Return what is kept of each metric; a pair is ln(virtual/native), of curves the mean over sizes."""
    series = series_of(session.runs, project_references())
    found = {}
    for verdict in session.verdicts:
        pairs = series[verdict.series].differences.mean(axis=1) if verdict.series in series else ()
        found[verdict.series] = {
            "outcome": verdict.outcome.value,
            "ratio": verdict.overhead and verdict.overhead.ratio,
            "log": verdict.overhead and verdict.overhead.log,
            "sd_of_a_pair": statistics.stdev(map(float, pairs)) if len(pairs) > 1 else None,
            "pairs": verdict.pairs,
            "reasons": list(verdict.reasons)[:2],
        }
    return found


def table(lines: list[dict]) -> str:
    """Return what is known as a table of Markdown: one row a session."""
    rows = [
        "| experiment | exit | WITHIN | OVER | other | minutes | worst metrics |",
        "|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        outcomes = {name: metric["outcome"] for name, metric in line["metrics"].items()}
        over = [name for name, outcome in outcomes.items() if outcome == "OVER"]
        within = sum(outcome == "WITHIN" for outcome in outcomes.values())
        named = sorted(over, key=lambda name: -abs(line["metrics"][name]["log"] or 0))[:3]
        shown = ", ".join(f"{name} {line['metrics'][name]['ratio']:.2f}x" for name in named)
        other = len(outcomes) - within - len(over)
        rows.append(
            f"| {line['experiment']} {line['number']} | {line['exit_code']} | {within} | {len(over)} "
            f"| {other} | {line['seconds'] / 60:.1f} | {shown} |"
        )
    return "\n".join(rows)


def by_metric(lines: list[dict]) -> str:
    """Return a table of Markdown: what sessions of one build say of each metric, on either kind of hosts."""
    found: dict[tuple[str, str], list[dict]] = {}
    for line in lines:
        for name, metric in line["metrics"].items() if line["experiment"] in (BEFORE, FOR_BUDGETS) else ():
            found.setdefault((line["experiment"], name), []).append(metric)
    rows = [
        "| experiment | metric | sessions | ratio: median, range | SD of a pair | SD between sessions |",
        "|---|---|---|---|---|---|",
    ]
    for (experiment, name), metrics in found.items():
        logs = [metric["log"] for metric in metrics if metric["log"] is not None]
        pairs = [metric["sd_of_a_pair"] for metric in metrics if metric["sd_of_a_pair"] is not None]
        if len(logs) > 1 and pairs:
            middle, low, high = (math.exp(f(logs)) for f in (statistics.median, min, max))
            rows.append(
                f"| {experiment} | {name} | {len(logs)} | {middle:.2f}, {low:.2f} to {high:.2f} "
                f"| {statistics.median(pairs):.1%} | {statistics.stdev(logs):.1%} |"
            )
    return "\n".join(rows)


def main() -> None:
    """Run what is asked for and was not run yet."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("names", nargs="*", help="experiments; all if none is named")
    parser.add_argument("--out", type=Path, default=paths.state() / "emulated-hosts.jsonl")
    parser.add_argument("--newer-qemu", type=Path, help="QEMU for the guests of the last experiment")
    parser.add_argument("--list", action="store_true", help="only print what the file has")
    asked = parser.parse_args()
    known = experiments(asked.newer_qemu)
    if unknown := set(asked.names) - {one.name for one in known}:
        parser.error(
            f"no experiment {', '.join(sorted(unknown))}; there are: {', '.join(o.name for o in known)}"
        )
    wanted = [] if asked.list else [one for one in known if not asked.names or one.name in asked.names]
    # All of them once before any a second time, so that a drift of the machine falls on all.
    turns = range(1, max((one.times for one in wanted), default=0) + 1)
    for one, number in [(each, k) for k in turns for each in wanted if k <= each.times]:
        if any((line["experiment"], line["number"]) == (one.name, number) for line in lines_of(asked.out)):
            continue
        print(f"== {one.name} {number} of {one.times}", flush=True)
        ended: list[object] = []
        # What the cluster itself has ended says nothing of the fault.
        while (done := run(one, number))["exit_code"] == InfrastructureError.exit_code:
            ended.append(done["conclusion"])
            print(f"== {one.name} {number}: {ended[-1]}", flush=True)
            if len(ended) == ATTEMPTS:
                break
        line = json.dumps(done | {"ended_by_the_cluster": ended})
        with asked.out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    print(table(lines_of(asked.out)), by_metric(lines_of(asked.out)), sep="\n\n")


def lines_of(path: Path) -> list[dict]:
    """Return what the file has."""
    return (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    )


if __name__ == "__main__":
    main()
