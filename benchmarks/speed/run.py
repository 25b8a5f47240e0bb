"""Speed of verdicts.

    python benchmarks/speed/run.py

Judges a session of 200 metrics with 18 pairs each (goal: 1 CPU second of this process). The exit code is 1 if
the goal is missed.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from virtqual.references import Budget
from virtqual.references.metrics import Metric
from virtqual.verdict import Case, Prior, judge_session
from virtqual.verdict.pairs import Sample, pair_up

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


def main() -> int:
    session = cases(np.random.default_rng(1), 200)
    begin = time.process_time()
    verdict = judge_session(session)
    spent = time.process_time() - begin
    print(f"200 metrics, {PAIRS} pairs each: {spent:.2f} s (goal 1 s)  {dict(verdict.outcomes)}")
    return int(spent > 1)


if __name__ == "__main__":
    sys.exit(main())
