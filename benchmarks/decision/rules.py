"""The rules that are compared: virtqual's own code, and two that people use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from noise_models import runs
from scipy import stats
from virtqual.verdict.decision import decide
from virtqual.verdict.design import Design

UNDECIDED, WITHIN, OVER, INVALID = 0, 1, 2, 3


@dataclass(frozen=True)
class Decided:
    """Outcome and pairs used of each decision."""

    outcome: np.ndarray
    pairs: np.ndarray

    def rate(self, outcome: int, most: int | None = None) -> float:
        hit = self.outcome == outcome
        return float(np.mean(hit if most is None else hit & (self.pairs <= most)))


def sequential(
    d: np.ndarray,
    limit: np.ndarray,
    margin: np.ndarray,
    covariance: np.ndarray,
    df: float,
    design: Design,
    batch: int = 4000,
) -> Decided:
    """Run virtqual's sequential decision on differences, shape (decisions, pairs, points)."""
    outcome = np.zeros(len(d), dtype=np.int8)
    used = np.full(len(d), design.max_pairs)
    for start in range(0, len(d), batch):
        live = np.arange(start, min(start + batch, len(d)))
        for look, pairs in enumerate(design.looks):
            if not len(live):
                break
            prior = covariance if covariance.ndim == 2 else covariance[live]
            result = decide(
                d[live][:, :pairs],
                limit=limit,
                margin=margin,
                covariance=prior,
                df=df,
                design=design,
                look=look,
            )
            decided = np.select(
                [np.any(result.over, axis=-1), result.within, result.hopeless],
                [OVER, WITHIN, INVALID],
                UNDECIDED,
            )
            outcome[live] = decided
            used[live] = pairs
            live = live[decided == UNDECIDED]
    return Decided(outcome, used)


def static_reference(
    rng: np.random.Generator, virtual: np.ndarray, cv: float, tolerance: float
) -> np.ndarray:
    """Alarm where one virtual run is worse than a reference by more than `tolerance`.

    The reference is the median of five native runs of another day.
    """
    reference = np.median(runs(rng, len(virtual), 3, cv)[:, :5], axis=1)
    return virtual - reference > np.log1p(tolerance)


def plain_t(d: np.ndarray, level: float = 0.01) -> np.ndarray:
    """Alarm where a one-sided paired t-test rejects at `level`."""
    pairs = d.shape[1]
    t = d.mean(axis=1) / np.sqrt(d.var(axis=1, ddof=1) / pairs)
    return t > stats.t.isf(level, pairs - 1)
