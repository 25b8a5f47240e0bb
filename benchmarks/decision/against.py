"""Sessions that are judged by the change since an earlier session, whose pairs are few and used throughout.

Series are decided in one array by virtqual's kernel, in the order of looks of `judge_session`; `check`
compares the two, session by session.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from virtqual.verdict.decision import decide, resolved_margin
from virtqual.verdict.design import Design

from sessions import SCREEN, series
from virtqual.references.budgets import Budget, Reason, Term
from virtqual.verdict import Case, Outcome, Prior, judge_session
from virtqual.verdict.judge import HEADROOM

FIRST = 4  # pairs of the first look; see virtqual.qualify.plan
ALLOWED = 0.02
BUDGET = Budget((Term(ALLOWED, None, 0.03, Reason("policy", "simulated"), margin_up_to=0.12),), "", "change")


@dataclass(frozen=True)
class Site:
    """What is measured: so many metrics, their noise as known, and the pairs of the earlier session.

    Parameters
    ----------
    questions
        2 where the overhead is judged, too, which takes half of the error rate.
    """

    metrics: int
    sigma: float
    df: float
    between: float = 0.003
    earlier: int = 4
    questions: int = 1

    def limits(self, design: Design) -> tuple[np.ndarray, np.ndarray]:
        """Return the allowed change and its margin in log units."""
        change = design.in_session(SCREEN, 1, change=True)
        resolved = HEADROOM * resolved_margin(
            np.array([self.sigma**2]),
            change,
            self.df + design.max_pairs - 1,
            1,
            self.earlier,
            self.between,
        )
        return BUDGET.limits(series(0, 0, np.zeros(1)).metric, (), np.ones(1), resolved)


def draw(
    rng: np.random.Generator, site: Site, sessions: int, change: float, noise: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return differences of the earlier session and of this one, shape (sessions, metrics, pairs).

    `change` is the true one of every metric, `noise` how many times the known one the true noise is.
    """
    shape = (sessions, site.metrics)
    before, now = (
        rng.normal(0, noise * site.sigma, (*shape, pairs)) + rng.normal(0, noise * site.between, (*shape, 1))
        for pairs in (site.earlier, 18)
    )
    return before, now + np.log1p(change)


def outcomes(before: np.ndarray, now: np.ndarray, site: Site, design: Design) -> np.ndarray:
    """Return the outcome of every series, shape (sessions, metrics)."""
    limit, margin = site.limits(design)
    found = np.full(now.shape[:2], Outcome.UNDECIDED)
    for pairs in (SCREEN, *(look for look in design.looks if look >= FIRST)):
        open_ = np.nonzero(found == Outcome.UNDECIDED)
        family = 1 if pairs == SCREEN else site.questions * site.metrics
        decided = decide(
            now[open_][:, :pairs, None],
            limit=limit,
            margin=margin,
            covariance=np.array([[site.sigma**2]]),
            df=site.df,
            design=design.in_session(SCREEN, family, change=True),
            look=design.looks.index(pairs),
            earlier=before[open_][..., None],
            between=site.between,
        )
        found[open_] = np.select(
            [decided.over[..., 0], decided.within, decided.hopeless],
            [Outcome.OVER, Outcome.WITHIN, Outcome.INVALID],
            Outcome.UNDECIDED,
        )
    return found


def check(before: np.ndarray, now: np.ndarray, site: Site, design: Design) -> int:
    """Return in how many sessions `judge_session`, driven by its own plan, answers otherwise than `outcomes`.

    Convictions give their share of the error rate back, so only sessions without one must agree in all.
    """
    fast = outcomes(before, now, site, design)
    wrong = 0
    for mine, b, d in zip(fast, before, now, strict=True):
        theirs = drive(b, d, site, design)
        alarmed = (Outcome.OVER in theirs, bool(np.any(mine == Outcome.OVER)))
        wrong += alarmed[0] != alarmed[1] or (not alarmed[0] and theirs != Counter(mine.tolist()))
    return wrong


def drive(before: np.ndarray, now: np.ndarray, site: Site, design: Design) -> Counter[Outcome]:
    """Drive one session through `judge_session` and its plan; return how many series have which outcome."""
    prior = Prior(site.sigma, site.df, "known", between=site.between)
    earlier = [series(0, metric, d) for metric, d in enumerate(before)]
    pairs = np.full(site.metrics, FIRST)
    while True:
        session = judge_session(
            [
                Case(series(0, metric, d[: pairs[metric]]), BUDGET, prior, baseline=earlier[metric])
                for metric, d in enumerate(now)
            ],
            design=design,
        )
        if session.plan.complete:
            return Counter(session.outcomes)
        for need in session.plan.needs:
            pairs[int(need.series.split(" ")[1])] = need.last + 1


def found_at(rng: np.random.Generator, site: Site, design: Design, noise: float = 1.0) -> float:
    """Return the true change of one metric that is found in 80 % of sessions, to a thousandth."""
    low, high = ALLOWED, 0.5
    while high - low > 0.001:
        middle = (low + high) / 2
        # Each column stands for a session of its own, in which the other metrics have not changed.
        d = draw(rng, site, max(4000 // site.metrics, 1), middle, noise)
        found = float(np.mean(outcomes(*d, site, design) == Outcome.OVER))
        low, high = (low, middle) if found >= 0.8 else (middle, high)
    return high
