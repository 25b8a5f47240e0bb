"""Speed of verdicts.

    python benchmarks/speed/run.py

Judges a session of 200 metrics with 18 pairs each (goal: 1 CPU second of this process), a million samples by
the rule alone (10 CPU seconds and 1 GiB), and files of 100,000 series of four pairs by `virtqual judge`, with
reading and `--json` (60 s and 2 GiB): as one session, and as 9,000 sessions of 11 series. The exit code is 1
if a goal is missed.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from virtqual.session.measured import COLUMNS
from virtqual.verdict import Case, Prior, judge_sessions
from virtqual.verdict.budget import Budget
from virtqual.verdict.estimate import Noise
from virtqual.verdict.metric import Metric
from virtqual.verdict.overhead import Runs
from virtqual.verdict.pairs import Sample, pair_up
from virtqual.verdict.places import recognise
from virtqual.verdict.rule import Batch, judge

METRIC = Metric(name="time", unit="s", better="lower", family="application", description="simulated")
PAIRS = 18
GIB = 2**20  # in KiB, as the kernel counts


def make_cases(rng: np.random.Generator, count: int) -> list[Case]:
    cases = []
    for index in range(count):
        samples, clock = [], 0.0
        for number, value in enumerate(np.exp(rng.normal(0.05, 0.03, PAIRS))):
            for side in ("native", "virtual") if number % 2 == 0 else ("virtual", "native"):
                shown = float(value) if side == "virtual" else 1.0
                samples.append(Sample(side, number, (shown,), clock, clock + 1))
                clock += 2
        series = pair_up(METRIC, str(index), (), samples)
        cases.append(Case(series, Budget.build(0.05, margin=0.05), Prior(sigma=0.03, df=20, source="known")))
    return cases


def report(name: str, seconds: float, goal_s: float, kib: int = 0, goal_gib: float = 0) -> bool:
    """Print a line, and return whether its goals are met."""
    memory = f", {kib / GIB:.2f} GiB (goal {goal_gib:g} GiB)" if goal_gib else ""
    print(f"{name}: {seconds:.2f} s (goal {goal_s:g} s){memory}", flush=True)
    return seconds <= goal_s and kib <= goal_gib * GIB


def judge_session(rng: np.random.Generator) -> bool:
    cases = make_cases(rng, 200)
    begin = time.process_time()
    judge_sessions([cases])
    return report(f"200 metrics, {PAIRS} pairs each", time.process_time() - begin, 1)


def judge_samples(rng: np.random.Generator) -> bool:
    logs, host = rng.normal(0, 0.014, (27_778, 2, PAIRS, 1)), ["host"] * PAIRS
    batch = Batch(
        Runs(logs, recognise(host, host)), np.log(1.05), np.log(1.08 / 1.05), Noise(np.array([0.02]))
    )
    begin = time.process_time()
    judge([batch])
    spent = time.process_time() - begin
    kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return report("a million samples by the rule alone", spent, 10, kib, 1)


def judge_file(rng: np.random.Generator, sessions: int, series: int, pairs: int = 4) -> bool:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "pairs.csv"
        write(rng, path, sessions, series, pairs)
        command = [Path(sys.executable).with_name("virtqual"), "judge", str(path), "--json"]
        with (Path(directory) / "verdicts.jsonl").open("wb") as out:
            begin = time.perf_counter()
            child = subprocess.Popen([*command, "--budget", "1.05", "--margin", "0.03"], stdout=out)
            _, status, used = os.wait4(child.pid, 0)
            spent = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        lines = (Path(directory) / "verdicts.jsonl").read_bytes().count(b"\n")
    cpu = used.ru_utime + used.ru_stime
    name = f"a file of {series:,} series in each of {sessions:,} sessions, {cpu:.1f} CPU seconds"
    return report(name, spent, 60, used.ru_maxrss, 2) and lines == sessions * (series + 1)


def write(rng: np.random.Generator, path: Path, sessions: int, series: int, pairs: int) -> None:
    with path.open("w", encoding="utf-8") as out:
        out.write(",".join(COLUMNS) + "\n")
        for number in range(sessions):
            values, clock = np.exp(rng.normal(0, 0.01, (pairs, 2, series))), 1e9
            for pair in range(pairs):
                for side in (0, 1) if pair % 2 == 0 else (1, 0):
                    name, place = (("native", "n1,h1,"), ("virtual", "vm1,h1,boot1"))[side]
                    end = f"{clock:.1f},{clock + 5:.1f},{place}\n"
                    for index, value in enumerate(values[pair, side]):
                        out.write(f"s{number},time,{index},,s,lower,{pair},{name},{value:.6f},{end}")
                    clock += 10


def main() -> int:
    rng = np.random.default_rng(1)
    is_met = [judge_samples(rng), judge_session(rng), judge_file(rng, 1, 100_000), judge_file(rng, 9_000, 11)]
    return int(not all(is_met))


if __name__ == "__main__":
    sys.exit(main())
