"""How much the boots, or the sessions, of one build differ beyond the errors of their pairs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from virtqual.verdict.estimate import CONTRADICTION_ALPHA, MAX_HISTORY_DF, Floats, Ints
from virtqual.verdict.pairs import Series

MIN_RECORDED_BOOTS = 3

UNLIKE_METRIC_ALPHA = 0.1
"""The level at which a metric's own boots contradict those of all metrics. It takes little doubt, since a
spread that is far too small convicts falsely, and one that is far too large hides overheads."""


@dataclass(frozen=True)
class Spread:
    """The spread of the means of boots, or of sessions."""

    #: Mean square of the means over the one that their errors explain; 1 if there is no spread beyond these.
    ratio: float
    #: Degrees of freedom of the mean square of the means.
    df: int
    #: Variance beyond the errors that adds 1 to the ratio.
    scale: float
    #: Degrees of freedom of the mean square of the errors; 0 if unknown.
    error_df: int = 0
    #: Pairs of a mean; 0 if unknown.
    pairs: float = 0.0

    @property
    def sigma(self) -> float:
        """Standard deviation beyond the errors."""
        return math.sqrt(max(self.ratio - 1, 0.0) * self.scale)


def compare_means(means: Sequence[Floats], variances: Sequence[Floats]) -> Spread:
    """Return how much the means of each build differ: one that is uncertain weighs little.

    The weights are those of DerSimonian and Laird (1986). `means` has an array for each build, which is
    ln(virtual/native) of each of its boots or sessions. `variances` are those of the means by their pairs.
    """
    df = sum(len(boots) - 1 for boots in means)
    if df < 1:
        return Spread(1.0, 0, 0.0)
    squares = weight = 0.0
    for boots, errors in zip(means, variances, strict=True):
        weights = 1 / errors
        centre = float((weights * boots).sum() / weights.sum())
        squares += float((weights * (boots - centre) ** 2).sum())
        weight += float(weights.sum() - (weights**2).sum() / weights.sum())
    return Spread(squares / df, df, df / weight)


def shrink_variances(variances: Floats, pairs: Ints) -> Floats:
    """Return the variances of pairs of a metric's sessions, shrunk towards their common variance.

    The variance of four pairs is uncertain: without this a session could weigh many times as much as another
    by chance. Nights do differ, so the common variance counts for `MAX_HISTORY_DF` degrees of freedom. It is
    a median, since a night with stalled runs says nothing of the others.
    """
    df = pairs - 1
    common = float(np.median(variances * df / special.chdtri(df, 0.5)))
    shrunk: Floats = (MAX_HISTORY_DF * common + df * variances) / (MAX_HISTORY_DF + df)
    return np.maximum(shrunk, 1e-12)


def measure_boots(series: Iterable[Series]) -> Spread | None:
    """Return how much boots differ in the sessions of a series; None if there are too few boots.

    A session counts as one boot if its boots were not recorded. A boot of a single pair does not count: it
    cannot be told from the noise of the pair.
    """
    pairs_by_boot: dict[str, list[float]] = defaultdict(list)
    for number, session in enumerate(series):
        for pair, d in zip(session.valid, session.differences.mean(axis=1), strict=True):
            boot = pair.virtual.boot if pair.virtual else ""
            pairs_by_boot[boot or f"session {number}"].append(float(d))
    return compare_boots([np.array(d) for d in pairs_by_boot.values()])


def compare_boots(boots: Sequence[Floats]) -> Spread | None:
    """Return how much boots differ, by the differences of the pairs of each; see `measure_boots`."""
    boots = [d for d in boots if len(d) >= 2]
    if len(boots) < MIN_RECORDED_BOOTS:
        return None
    pairs = np.array([len(d) for d in boots])
    variances = shrink_variances(np.array([d.var(ddof=1) for d in boots]), pairs)
    spread = compare_means([np.array([d.mean() for d in boots])], [variances / pairs])
    return replace(spread, error_df=int((pairs - 1).sum()), pairs=float(pairs.mean()))


def pool_metrics(spreads: Sequence[Spread]) -> float:
    """Return by how much the boots of a machine differ, over all metrics, in variances of a pair.

    Five boots of one metric say little, and in half of the cases nothing. A metric whose boots differ far
    more than those of the others is pulled in.
    """
    if not spreads:
        return 0.0
    ratio, df, error_df, pairs = np.array([(s.ratio, s.df, s.error_df, s.pairs) for s in spreads]).T
    limit = max(float(np.median(ratio)), 1.0) * special.fdtri(df, error_df, 1 - CONTRADICTION_ALPHA)
    return max(float(((np.minimum(ratio, limit) - 1) / pairs).mean()), 0.0)


def moderate(spread: Spread, pooled: float) -> float:
    """Return the standard deviation of boots of one metric: by `pool_metrics`, as far as its own allow that.

    It is at most the upper end of what the metric's own boots show, and their own where that is surely more.
    """
    levels = np.array([UNLIKE_METRIC_ALPHA, 1 - UNLIKE_METRIC_ALPHA])
    low, high = special.fdtri(spread.df, spread.error_df, levels)
    ratio = min(1 + pooled * spread.pairs, spread.ratio / low)
    return spread.sigma if spread.ratio > ratio * high else replace(spread, ratio=float(ratio)).sigma
