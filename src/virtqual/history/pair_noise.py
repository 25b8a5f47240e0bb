"""The noise of pairs in stored sessions of one build: stalled runs are left out, all other runs count."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from virtqual.verdict.estimate import MAX_HISTORY_DF, Bools, Floats
from virtqual.verdict.slow_runs import slowness

MIN_BLOCK_DF = 6
"""Degrees of freedom from which the means of neighbouring pairs give the spread; below, single pairs do."""

CALM_SHARE = 0.75
"""Share of the pairs that show what is usual: one run in eight may stall. Where three runs in ten are slower
they belong to what is usual, so that a machine of two speeds does not look calm."""

_MIN_VARIANCE_RATIO = 0.01  # of a session's variance to the pooled one: its logarithm is taken
_CALM_SIGMAS = float(special.ndtri((1 + CALM_SHARE) / 2))


def usual_noise(d: Floats, floor: ArrayLike = 0.0) -> Floats:
    """Return the standard deviation of a pair by the calm pairs of all sessions, shape (...).

    It only tells which runs stall; `estimate_noise` describes the arguments.
    """
    away = np.abs(d - np.nanmedian(d, axis=-1, keepdims=True))
    sigma: Floats = np.nanquantile(away, CALM_SHARE, axis=(-2, -1)) / _CALM_SIGMAS
    return np.maximum(sigma, floor)


def find_stalls(native: Floats, virtual: Floats, sigma: ArrayLike) -> Bools:
    """Return which pairs have a stalled run, by `virtqual.verdict.slow_runs.slowness`.

    The judge counts such runs. A few of them, counted as noise, would hide overheads for months. `native` and
    `virtual` are logarithms of costs, shape (..., n_pairs); `sigma` is the `usual_noise` of the sessions.
    """
    return (slowness(native, sigma) > 0) | (slowness(virtual, sigma) > 0)


def estimate_noise(d: ArrayLike, floor: ArrayLike = 0.0) -> tuple[Floats, Floats]:
    """Return the noise of a metric in earlier sessions, and its weight.

    The noise is the spread of means of neighbouring pairs, stated for one pair: load that lasts for some
    runs does not average out, and a spread of single pairs would miss it.

    The weight is Smyth's d0 (2004, section 6.2): a machine with the same noise every night has a large
    weight, a moody machine a small one.

    Parameters
    ----------
    d
        Differences of the pairs of each session, shape (..., n_sessions, n_pairs), NaN if a session has
        fewer or a run stalled; sessions with fewer than two pairs are left out.
    floor
        The smallest standard deviation, shape (...): that of the timer alone.

    Returns
    -------
    sigma, df
        Standard deviation of a pair and its weight, shape (...).
    """
    d = np.asarray(d, dtype=np.float64)
    squares, df = _sum_squares(d)
    total = df.sum(axis=-1)
    pairs = squares.sum(axis=-1) / total
    even = d.shape[-1] // 2 * 2
    in_blocks, blocks = (part.sum(axis=-1) for part in _sum_squares((d[..., :even:2] + d[..., 1:even:2]) / 2))
    enough = blocks >= MIN_BLOCK_DF
    pooled = np.where(enough, 2 * in_blocks / np.maximum(blocks, 1), pairs)
    pooled = np.maximum(pooled, np.asarray(floor) ** 2)
    scale = np.maximum(pairs, np.asarray(floor) ** 2)[..., None]
    ratio = squares / np.maximum(df, 1) / np.where(scale > 0, scale, 1)
    half = np.maximum(df, 1) / 2
    logs = np.log(np.maximum(ratio, _MIN_VARIANCE_RATIO)) - special.digamma(half) + np.log(half)
    weight = np.where(df > 0, 1.0, 0.0)
    sessions = weight.sum(axis=-1)
    centre = (weight * logs).sum(axis=-1) / sessions
    excess = (weight * ((logs - centre[..., None]) ** 2)).sum(axis=-1) / np.maximum(sessions - 1, 1)
    excess = excess - (weight * special.polygamma(1, half)).sum(axis=-1) / sessions
    # One session does not show how sessions differ: its own degrees of freedom count.
    d0 = np.where((excess > 0) & (sessions > 1), 2 * _trigamma_inverse(np.maximum(excess, 1e-6)), np.inf)
    return np.sqrt(pooled), np.minimum(np.minimum(d0, MAX_HISTORY_DF), np.where(enough, blocks, total))


def _sum_squares(d: Floats) -> tuple[Floats, Floats]:
    """Return the sum of squares of each session about its mean, and its df."""
    is_there = np.isfinite(d)
    counts = is_there.sum(axis=-1)
    centre = np.where(is_there, d, 0).sum(axis=-1) / np.maximum(counts, 1)
    squares = np.where(is_there, (d - centre[..., None]) ** 2, 0).sum(axis=-1)
    return squares, np.maximum(counts - 1.0, 0)


def _trigamma_inverse(y: Floats) -> Floats:
    """Return x with trigamma(x) = y (Newton's method, Smyth 2004, appendix)."""
    x = 0.5 + 1 / y
    for _ in range(20):
        value = special.polygamma(1, x)
        x = x + value * (1 - value / y) / special.polygamma(2, x)
    return np.asarray(x, dtype=np.float64)
