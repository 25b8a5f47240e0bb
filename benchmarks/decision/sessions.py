"""Sessions of some 200 metrics: screen, flag, confirm.

Millions of screens are decided by virtqual's kernel in one array; which pairs are run next follows
`judge_session`, and `check` compares the two, session by session.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from virtqual.verdict.decision import decide
from virtqual.verdict.design import Design

from virtqual.references import Budget
from virtqual.references.metrics import Metric
from virtqual.verdict import Case, Outcome, Prior, judge_session
from virtqual.verdict.pairs import Sample, Series, pair_up

TESTS, PER_TEST, SIGMA = 12, 17, 0.0188
DF, SCREEN = 20, 2


@dataclass(frozen=True)
class Sessions:
    """What became of each session."""

    alarmed: np.ndarray
    found: np.ndarray
    undecided: np.ndarray
    runs: np.ndarray


def draw(rng: np.random.Generator, sessions: int, worse: float = 0.0, metrics: int = 0) -> np.ndarray:
    """Return differences, shape (sessions, tests, metrics, pairs).

    Metrics of one test share half of their noise.
    The first `metrics` metrics of the first test are worse by `worse`.
    """
    shared = rng.normal(0, SIGMA * np.sqrt(0.5), (sessions, TESTS, 1, 18))
    own = rng.normal(0, SIGMA * np.sqrt(0.5), (sessions, TESTS, PER_TEST, 18))
    d = shared + own
    d[:, 0, :metrics] += np.log1p(worse)
    return d


def run(d: np.ndarray, margin: float, design: Design) -> Sessions:
    """Run the screen and the confirmation of each session."""
    sessions = len(d)
    arguments = {
        "limit": np.zeros(1),
        "margin": np.array([np.log1p(margin)]),
        "covariance": np.array([[SIGMA**2]]),
        "df": DF,
    }
    screened = decide(d[..., :SCREEN, None], design=design.in_session(SCREEN, 1), look=0, **arguments)
    flagged = ~screened.within & ~screened.hopeless
    family = flagged.sum(axis=(1, 2))
    pairs = np.full((sessions, TESTS), SCREEN)
    undecided = flagged.copy()
    over = np.zeros_like(flagged)
    for look in range(1, len(design.looks)):
        count = design.looks[look]
        # A test stops for this look unless what is undecided in it wants a later one (`suspect`).
        mean = d[..., : pairs.max()].mean(axis=-1) if look == 1 else None
        if look == 1 and mean is not None:
            wants = undecided & ~(d[..., :SCREEN].mean(axis=-1) > np.log1p(margin) / 2)
            stops = wants.any(axis=2)
        else:
            stops = undecided.any(axis=2)
        pairs[stops] = count
        where = np.nonzero(undecided & stops[..., None])
        if not len(where[0]):
            continue
        values = d[where][:, :count, None]
        families = family[where[0]]
        for k in np.unique(families):
            chosen = np.nonzero(families == k)[0]
            result = decide(values[chosen], design=design.in_session(SCREEN, int(k)), look=look, **arguments)
            index = tuple(axis[chosen] for axis in where)
            convicted = result.over.any(axis=-1)
            over[index] = convicted
            undecided[index] = ~convicted & ~result.within & ~result.hopeless
    bad = over.copy()
    return Sessions(bad.any(axis=(1, 2)), bad[:, 0], undecided.any(axis=(1, 2)), 2 * pairs.sum(axis=1))


def check(d: np.ndarray, margin: float, design: Design) -> int:
    """Return in how many sessions `judge_session`, driven by its own plan, alarms otherwise than `run`."""
    fast = run(d, margin, design)
    return sum(bool(fast.alarmed[i]) != drive(d[i], margin, design) for i in range(len(d)))


def drive(d: np.ndarray, margin: float, design: Design) -> bool:
    """Drive one session through `judge_session` and its plan; return whether anything is OVER."""
    budget, prior = Budget.of(0.0, margin=margin), Prior(SIGMA, DF, "known")
    pairs = np.full(TESTS, SCREEN)
    while True:
        cases = [
            Case(series(test, metric, d[test, metric, : pairs[test]]), budget, prior)
            for test in range(TESTS)
            for metric in range(PER_TEST)
        ]
        session = judge_session(cases, design=design)
        if session.plan.complete:
            return Outcome.OVER in session.outcomes
        for need in session.plan.needs:
            test = int(need.series.split("@")[1].split()[0])
            pairs[test] = max(pairs[test], need.last + 1)


_METRIC = Metric(name="time", unit="s", better="lower", family="application", description="simulated")


def series(test: int, metric: int, d: np.ndarray) -> Series:
    """Return differences as a series of a metric that is better when lower."""
    samples, clock = [], 0.0
    for number, value in enumerate(d):
        for side in ("native", "virtual") if number % 2 == 0 else ("virtual", "native"):
            shown = float(np.exp(value)) if side == "virtual" else 1.0
            samples.append(Sample(side, number, (shown,), clock, clock + 1))
            clock += 2
    return pair_up(_METRIC, f"{test} {metric}", (), samples)
