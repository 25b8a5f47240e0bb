"""What pairs of runs say of an overhead, and how surely.

Everything is in natural logarithms, signed so that positive is worse. An array of differences has the shape
(..., n_pairs, n_columns): leading axes are independent series, a scalar has one column, a curve has one for
each size and a last one for its mean over the sizes (`with_whole`).

An estimate is a mean with the *parts* of its variance, each with its own degrees of freedom. The bound that
it is compared by is Student's t with the degrees of freedom of the sum (Satterthwaite 1946,
doi:10.2307/3002019), so that a part which is little known makes the whole little known.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

MOST_DF = 6.0
"""The most that a history of noise counts for, in degrees of freedom of the session's own noise.

However often a machine was seen, tonight may be another night: with a weight of 6 a session whose noise is
half as large again as its history's still refuses budget + margin as often as promised; with 12 it would not
(the table "weight of history" in docs/decision.md).
"""

CONTRADICTED = 0.025
"""A history that this session's spread contradicts does not count: of nights that it is true of, one in forty
loses it. On a bad night, when the noise is many times the usual, the session is judged by itself."""

PULL = 2.5
"""How far from its median a difference may lie, in standard deviations, before it is pulled in.

One Gaussian pair in eighty is touched, so that the rule costs next to nothing where nothing is wrong.
"""

MAD_TO_SIGMA = 1.4826
"""What a median absolute deviation is multiplied by to be a Gaussian standard deviation."""


@dataclass(frozen=True, eq=False)
class Noise:
    """What is known of the noise before the first pair.

    Parameters
    ----------
    sigma
        Standard deviation of a pair's difference, shape (..., n_columns); see `history`.
    df
        What it counts for, in degrees of freedom: scalar or shape (..., 1). More than `MOST_DF` is `MOST_DF`.
    between
        Standard deviation of what a new boot of the virtual machine changes by itself, shape as `df`;
        0 where nothing is stated.
    between_df
        Degrees of freedom of `between`: sessions less one where it was measured, infinite where it is stated
        as a bound.
    """

    sigma: ArrayLike
    df: ArrayLike = MOST_DF
    between: ArrayLike = 0.0
    between_df: float = np.inf


@dataclass(frozen=True, eq=False)
class Part:
    """One part of an estimate's variance.

    Parameters
    ----------
    name
        Of what it is: ``pairs``, ``boots``, ``native nodes``, ``virtual nodes``.
    variance
        Shape (..., n_columns).
    df
        Its degrees of freedom, scalar or broadcastable to `variance`.
    history, history_df
        How much of `variance`, and of `df`, is that of the history: one number for every session of a metric.
    """

    name: str
    variance: Floats
    df: ArrayLike
    history: Floats | None = None
    history_df: ArrayLike = 0.0


@dataclass(frozen=True, eq=False)
class Estimate:
    """An overhead, or the change of one.

    Parameters
    ----------
    mean
        Shape (..., n_columns).
    parts
        Of its variance; they add.
    bias
        How far hosts alone may have moved it: added to both ends of every bound. Infinite where nobody knows.
    spread
        Standard deviation of one pair in this session alone, of `spread_df` degrees of freedom.
    """

    mean: Floats
    parts: tuple[Part, ...]
    bias: float
    spread: Floats
    spread_df: float

    @property
    def variance(self) -> Floats:
        """The sum of the parts, shape (..., n_columns)."""
        total: Floats = np.add.reduce([part.variance for part in self.parts])
        return total

    @property
    def df(self) -> Floats:
        """Degrees of freedom of the sum, same shape."""
        total = self.variance
        with np.errstate(divide="ignore", invalid="ignore"):
            uncertain = np.add.reduce([part.variance**2 / np.asarray(part.df) for part in self.parts])
            df: Floats = np.where(uncertain > 0, total**2 / uncertain, np.inf)
        return np.minimum(df, 1e9)

    def below(self, value: ArrayLike) -> Floats:
        """Return the p-value of "the truth is `value` or less", shape (..., n_columns)."""
        return self._tail(self.mean - self.bias - np.asarray(value))

    def above(self, value: ArrayLike) -> Floats:
        """Return the p-value of "the truth is `value` or more", shape (..., n_columns)."""
        return self._tail(np.asarray(value) - self.mean - self.bias)

    def _tail(self, distance: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.nan_to_num(distance / np.sqrt(self.variance), posinf=1e9, neginf=-1e9)
        tail: Floats = special.stdtr(self.df, -t)
        return tail

    def reach(self, level: ArrayLike) -> Floats:
        """Return how far a one-sided bound at `level` lies from the mean, shape (..., n_columns)."""
        t = special.stdtrit(self.df, np.asarray(level, dtype=np.float64))
        return np.asarray(self.bias - t * np.sqrt(self.variance), dtype=np.float64)

    def minus(self, earlier: Estimate, bias: float | None = None) -> Estimate:
        """Return the change since `earlier`.

        The sessions share no run, so their variances add. What both take from one number (the history, the
        spread of boots) is not known any better for being used twice, and its degrees of freedom count once.

        Parameters
        ----------
        earlier
            An estimate of the same columns.
        bias
            Of the change: 0 where the hosts are the same ones and cancel; the sum of both if not given.
        """
        own, common = [], dict[str, Part]()

        def together(name: str, variance: Floats, df: ArrayLike) -> None:
            before = common.get(name, Part(name, np.zeros_like(variance), np.inf))
            common[name] = Part(name, before.variance + variance, np.minimum(before.df, df))

        for part in (*self.parts, *earlier.parts):
            if part.history is not None:
                together("history", part.history, part.history_df)
                rest = np.subtract(part.df, part.history_df)
                own.append(Part(part.name, part.variance - part.history, np.maximum(rest, 1e-9)))
            elif part.name == "boots":
                together("boots", part.variance, part.df)
            else:
                own.append(part)
        return Estimate(
            self.mean - earlier.mean,
            (*common.values(), *own),
            self.bias + earlier.bias if bias is None else bias,
            self.spread,
            self.spread_df,
        )


def with_whole(values: Floats) -> Floats:
    """Append the mean over the sizes as a last column; a scalar stays as it is.

    Parameters
    ----------
    values
        Shape (..., n_points).

    Returns
    -------
    ndarray
        Shape (..., n_points + 1), or (..., 1) for a scalar.
    """
    if values.shape[-1] == 1:
        return values
    return np.concatenate([values, values.mean(axis=-1, keepdims=True)], axis=-1)


def median(values: Floats, axis: int) -> Floats:
    """Return the median with the axis kept: several times faster than numpy's where the axis is short."""
    ordered = np.sort(values, axis=axis)
    n = values.shape[axis]
    middle: Floats = np.take(ordered, [(n - 1) // 2, n // 2], axis=axis).mean(axis=axis, keepdims=True)
    return middle


def pulled_in(d: Floats, sigma: ArrayLike, cells: Ints, *, high: bool) -> Floats:
    """Pull in differences that lie farther from the median than noise explains.

    Differences that speak for the guest are always pulled in, towards worse: a native run that was disturbed
    says nothing in the guest's favour. Those that speak against it are pulled in only with `high`: to
    convict it, and never to acquit it.

    Parameters
    ----------
    d
        Shape (..., n_pairs, n_columns).
    sigma
        Noise known before, shape (..., n_columns). The wider of it and of what is seen counts.
    cells
        Which pairs have one expectation (the same hosts in the same roles), shape (n_pairs,).
    high
        Whether differences that speak against the guest are pulled in, too.
    """
    centre = np.empty_like(d)
    for cell in np.unique(cells):
        chosen = cells == cell
        centre[..., chosen, :] = median(d[..., chosen, :], axis=-2)
    seen = MAD_TO_SIGMA * median(np.abs(d - centre), axis=-2)
    reach = PULL * np.maximum(seen, np.asarray(sigma)[..., None, :])
    pulled: Floats = np.maximum(d, centre - reach)
    return np.minimum(pulled, centre + reach) if high else pulled


def moderated(residual: Floats, rank: int, weights: Floats, noise: Noise) -> tuple[Part, Floats, int]:
    """Return the variance of a weighted mean of pairs, the session's own spread of a pair, and the spread's
    df.

    The variance of a pair is (d0 s0^2 + v s^2) / (d0 + v), of d0 + v degrees of freedom, with the history's
    s0 and d0 (Smyth 2004, doi:10.2202/1544-6115.1027) and the session's s of v degrees of freedom.

    Parameters
    ----------
    residual
        Differences without all that is fitted, shape (..., n_pairs, n_columns).
    rank
        The degrees of freedom that are left.
    weights
        Of the pairs in the mean, shape (n_pairs,).
    noise
        The history.
    """
    squares: Floats = np.sum(residual**2, axis=-2) if rank else np.zeros_like(residual[..., 0, :])
    sigma2 = np.asarray(noise.sigma, dtype=np.float64) ** 2
    d0 = np.minimum(np.asarray(noise.df, dtype=np.float64), MOST_DF) + np.zeros_like(squares)
    if rank:
        d0 = np.where(squares > rank * sigma2 * special.fdtri(rank, d0, 1 - CONTRADICTED), 0.0, d0)
    size = float(weights @ weights) / (d0 + rank)
    known: Floats = d0 * sigma2 * size
    part = Part("pairs", known + squares * size, d0 + rank, known, d0)
    return part, np.sqrt(squares / max(rank, 1)), rank


WILD = 0.05
"""Share of a history's pairs that may be wild: one disturbed run in fifty makes four pairs in a hundred.

The farthest twentieth is pulled in to where it begins, and what that takes from a Gaussian spread is given
back. One bad night must not blunt the test for months, and a machine of two speeds must not look calm.
"""

LEAST_BLOCKS = 6
"""Degrees of freedom from which on neighbouring pairs' means tell a spread; with fewer, single pairs do."""

_KEPT = 0.9130  # mean square of a Gaussian whose farthest twentieth is pulled in
_LEAST = 0.01  # a session's variance over the pooled one, below which it is taken for that: its log is needed


def history(d: ArrayLike, floor: ArrayLike = 0.0) -> tuple[Floats, Floats]:
    """Return what earlier sessions of a metric say of its noise: how much, and how far that can be trusted.

    The noise is read off neighbouring pairs' means (N V V N), and stated for one pair: what neighbours share
    does not average out, as load that lasts for some runs, and a spread of single pairs would not hold it.

    The weight is Smyth's d0 (2004, section 6.2): how much the variances of sessions differ beyond what so few
    pairs make them differ. A machine with the same noise every night has a large one, a moody one a small
    one.

    Parameters
    ----------
    d
        Differences of the pairs of each session, shape (..., n_sessions, n_pairs), NaN where a session has
        fewer; sessions with fewer than two pairs are left out.
    floor
        The least standard deviation, shape (...): what the timer alone makes; see `timer_noise`.

    Returns
    -------
    sigma, df
        Standard deviation of a pair and its weight, shape (...): at most `MOST_DF`, and never more than the
        degrees of freedom that it was estimated from.

    Raises
    ------
    ValueError
        If a series has no session of two pairs, or does not vary at all and has no floor.
    """
    d = np.asarray(d, dtype=np.float64)
    squares, df = _squares(d)
    total = df.sum(axis=-1)
    if not np.all(total > 0):
        raise ValueError("no session has two pairs: they say nothing of the noise.")
    pairs = squares.sum(axis=-1) / total
    even = d.shape[-1] // 2 * 2
    in_blocks, blocks = (part.sum(axis=-1) for part in _squares((d[..., :even:2] + d[..., 1:even:2]) / 2))
    enough = blocks >= LEAST_BLOCKS
    pooled = np.where(enough, 2 * in_blocks / np.maximum(blocks, 1), pairs)
    pooled = np.maximum(pooled, np.asarray(floor) ** 2)
    if not np.all(pooled > 0):
        raise ValueError("the history does not vary at all: state the timer's resolution.")
    scale = np.maximum(pairs, np.asarray(floor) ** 2)[..., None]
    ratio = squares / np.maximum(df, 1) / np.where(scale > 0, scale, 1)
    half = np.maximum(df, 1) / 2
    logs = np.log(np.maximum(ratio, _LEAST)) - special.digamma(half) + np.log(half)
    weight = np.where(df > 0, 1.0, 0.0)
    sessions = weight.sum(axis=-1)
    centre = (weight * logs).sum(axis=-1) / sessions
    excess = (weight * ((logs - centre[..., None]) ** 2)).sum(axis=-1) / np.maximum(sessions - 1, 1)
    excess = excess - (weight * special.polygamma(1, half)).sum(axis=-1) / sessions
    # One session says nothing of how sessions differ: it counts for what it is.
    d0 = np.where((excess > 0) & (sessions > 1), 2 * _trigamma_inverse(np.maximum(excess, 1e-6)), np.inf)
    return np.sqrt(pooled), np.minimum(np.minimum(d0, MOST_DF), np.where(enough, blocks, total))


def _squares(d: Floats) -> tuple[Floats, Floats]:
    """Return the sum of squares of each session about its median, wild pairs pulled in, and its df."""
    counts = np.sum(np.isfinite(d), axis=-1)
    d = np.where((counts >= 2)[..., None], d, np.nan)
    df = np.where(counts >= 2, counts - 1.0, 0.0)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of sessions that are left out
        away = np.abs(d - np.nanmedian(d, axis=-1, keepdims=True))
        far = np.nanquantile(away, 1 - WILD, axis=(-2, -1), keepdims=True)
    return np.asarray(np.nansum(np.minimum(away, far) ** 2, axis=-1) / _KEPT), df


def _trigamma_inverse(y: Floats) -> Floats:
    """Return x with trigamma(x) = y (Newton's method, Smyth 2004, appendix)."""
    x = 0.5 + 1 / y
    for _ in range(20):
        value = special.polygamma(1, x)
        x = x + value * (1 - value / y) / special.polygamma(2, x)
    return np.asarray(x, dtype=np.float64)


def timer_noise(step: float, value: float) -> float:
    """Return the standard deviation that a timer's resolution alone gives to a pair's log difference.

    Parameters
    ----------
    step
        Smallest difference that is shown, in the metric's unit.
    value
        A typical value, same unit.

    Returns
    -------
    float
        step / value / sqrt(6): either side is rounded by up to half a step.
    """
    return step / value / math.sqrt(6)
