"""How fast verdicts are.

    python benchmarks/speed/run.py

Judges 200 metrics of 18 pairs one by one (goal: 1 s), and tables of growing size up to a million samples
(goal: 10 s and 1 GiB, growing linearly). Times are CPU seconds of this process; memory is its peak.
The exit code is the number of goals missed.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

from virtqual.references import Budget
from virtqual.references.metrics import Metric
from virtqual.verdict import Case, Prior, judge_session
from virtqual.verdict.pairs import Sample, pair_up
from virtqual.verdict.table import Rules, Samples, judge_table

METRIC = Metric(name="time", unit="s", better="lower", family="application", description="simulated")
PAIRS = 18


def cases(rng: np.random.Generator, count: int) -> list[Case]:
    found = []
    for index in range(count):
        samples, clock = [], 0.0
        for number, value in enumerate(np.exp(rng.normal(0.05, 0.03, PAIRS))):
            for side in ("native", "virtual") if number % 2 == 0 else ("virtual", "native"):
                shown = float(value) if side == "virtual" else 1.0
                samples.append(Sample(side, number, (shown,), clock, clock + 1))
                clock += 2
        series = pair_up(METRIC, str(index), (), samples)
        found.append(Case(series, Budget.of(0.05, margin=0.05), Prior(0.03, 20, "known")))
    return found


def table(rng: np.random.Generator, size: int) -> tuple[Samples, Rules]:
    series = size // (2 * PAIRS)
    rows = np.arange(series * 2 * PAIRS)
    place = rows % (2 * PAIRS)
    number = place // 2
    virtual = (place + number) % 2 == 1
    value = np.exp(rng.normal(0, 0.02, len(rows)) + 0.05 * virtual)
    start = rows * 10.0
    samples = Samples(
        rows // (2 * PAIRS), number, virtual, value, start, start + 5, np.zeros(len(rows), dtype=bool)
    )
    full = np.ones(series)
    return samples, Rules(full > 0, 0.05 * full, 0.05 * full, 0.03 * full, 20.0)


def main() -> int:
    rng = np.random.default_rng(1)
    missed = 0
    session = cases(rng, 200)
    begin = time.process_time()
    verdict = judge_session(session)
    spent = time.process_time() - begin
    missed += spent > 1
    print(f"200 metrics, {PAIRS} pairs each, one by one: {spent:.2f} s (goal 1 s)  {dict(verdict.outcomes)}")
    times = []
    for size in (125_000, 250_000, 500_000, 1_000_000):
        samples, rules = table(rng, size)
        begin = time.process_time()
        outcomes = judge_table(samples, rules).outcomes
        times.append((size, time.process_time() - begin))
        print(f"table of {size:8d} samples: {times[-1][1]:6.2f} s  {dict(outcomes)}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    (small, first), (large, last) = times[0], times[-1]
    growth = (last / large) / (first / small)
    missed += (last > 10) + (peak > 1) + (growth > 1.5)
    print(
        f"a million samples: {last:.2f} s (goal 10 s), peak {peak:.2f} GiB (goal 1 GiB), "
        f"seconds per sample {growth:.2f} times those of the smallest table (goal: linear, 1.5 at most)"
    )
    return missed


if __name__ == "__main__":
    sys.exit(main())
