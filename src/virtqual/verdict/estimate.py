"""The estimate of an overhead from pairs of runs, with its uncertainty, and what it is made of.

All values are natural logarithms, signed so that positive is worse. An array of differences has the shape
(..., n_pairs, n_columns): leading axes are independent series, a scalar has one column, a curve has one for
each size and a last one for its mean over the sizes (`append_mean`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

MAX_HISTORY_DF = 6.0
"""Largest weight of a history of noise, in degrees of freedom: with 6, a session whose noise is half as large
again still refuses budget + margin as often as promised; with 12 not."""

CONTRADICTION_ALPHA = 0.1
"""A history that this session's spread contradicts at this level does not count."""

MIN_PAIR_SIGMA = 1e-4
"""Smallest standard deviation of a pair's log difference, a hundredth of a budget of 1 %: no two runs of a
program are known to be nearer to each other, however many digits they show."""

QUIET_ALPHA = 0.001
"""A history counts with the largest noise that this session's spread does not contradict at this level. It is
low, since a session that takes itself for quieter than it is convicts falsely."""

PULL_SIGMAS = 2.5
"""A difference farther from its median is pulled in; of Gaussian pairs that is one in eighty."""

OUTLIER_SHARE = 1 / 6
"""Largest share of the pairs that may be outliers where a series is to be convicted."""

MAD_TO_SIGMA = 1.4826
"""Gaussian standard deviation of a median absolute deviation of one."""


@dataclass(frozen=True, eq=False)
class Noise:
    """The noise that is known before the first pair."""

    #: Standard deviation of a pair's difference, shape (..., n_columns).
    sigma: Floats
    #: Its weight in degrees of freedom, scalar or shape (..., 1); at most `MAX_HISTORY_DF` count.
    df: Floats | float = MAX_HISTORY_DF
    #: Standard deviation between boots of the virtual machine, shape as `df`.
    between: Floats | float = 0.0
    #: Its degrees of freedom: sessions less one if it was measured, infinite if it is a bound.
    between_df: float = np.inf


@dataclass(eq=False)
class Estimate:
    """An overhead, or the change of one, shape (..., n_columns), with Student's t as its error.

    `weights` are those of the pairs in the mean, shape (n_pairs,); of a change those of the later session.
    `bias` is how far hosts or a clock may have moved the mean, infinite if unknown.
    """

    mean: Floats
    variance: Floats
    df: Floats
    weights: Floats
    bias: Floats | float = 0.0

    def tail(self, distance: Floats) -> Floats:
        """Return the p-value of "the truth lies `distance` or more from the mean", shape (..., n_columns)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.nan_to_num((distance - self.bias) / np.sqrt(self.variance), posinf=1e9, neginf=-1e9)
        tail: Floats = scipy.special.stdtr(self.df, -t)
        return tail

    def reach(self, level: ArrayLike) -> Floats:
        """Return how far a one-sided bound at `level` lies from the mean, shape (..., n_columns)."""
        t = scipy.special.stdtrit(self.df, np.asarray(level, dtype=np.float64))
        return np.asarray(self.bias - t * np.sqrt(self.variance), dtype=np.float64)


def add_variances(parts: Iterable[tuple[Floats, ArrayLike]]) -> tuple[Floats, Floats]:
    """Return the sum of variances and its degrees of freedom (Satterthwaite 1946, doi:10.2307/3002019)."""
    variances, dfs = zip(*parts, strict=True)
    total: Floats = np.add.reduce(variances)
    with np.errstate(divide="ignore", invalid="ignore"):
        uncertain = np.add.reduce([v**2 / np.asarray(df) for v, df in zip(variances, dfs, strict=True)])
        df: Floats = np.where(uncertain > 0, total**2 / uncertain, np.inf)
    return total, np.minimum(df, 1e9)


def append_mean(values: Floats) -> Floats:
    """Append the mean over the sizes, shape (..., n_points), as a last column; a scalar stays as it is."""
    if values.shape[-1] == 1:
        return values
    return np.concatenate([values, values.mean(axis=-1, keepdims=True)], axis=-1)


def median(values: Floats, axis: int) -> Floats:
    """Return the median with the axis kept, several times faster than numpy's if the axis is short."""
    ordered = np.sort(values, axis=axis)
    n = values.shape[axis]
    middle: Floats = np.take(ordered, [(n - 1) // 2, n // 2], axis=axis).mean(axis=axis, keepdims=True)
    return middle


def pulled_in(d: Floats, sigma: Floats, cells: Ints, *, high: bool) -> Floats:
    """Pull in differences that lie farther from the median than noise explains.

    Differences that favour the guest are always pulled in: a disturbed native run must not acquit it.
    Differences against the guest are pulled in only with `high`, which is used to convict; but not if more
    than `OUTLIER_SHARE` of all are so far away, since these show two speeds and not a few disturbed runs.

    Parameters
    ----------
    d
        Shape (..., n_pairs, n_columns).
    sigma
        Known noise, shape (..., n_columns); a wider observed noise counts instead.
    cells
        Equal for pairs of one expectation (the same hosts in the same roles), shape (n_pairs,).
    """
    centre = np.empty_like(d)
    for cell in np.unique(cells):
        chosen = cells == cell
        centre[..., chosen, :] = median(d[..., chosen, :], axis=-2)
    observed = MAD_TO_SIGMA * median(np.abs(d - centre), axis=-2)
    reach = PULL_SIGMAS * np.maximum(observed, sigma[..., None, :])
    pulled: Floats = np.maximum(d, centre - reach)
    if not high:
        return pulled
    are_few = np.sum(np.abs(d - centre) > reach, axis=-2, keepdims=True) <= OUTLIER_SHARE * d.shape[-2]
    return np.where(are_few, np.minimum(pulled, centre + reach), d)


def moderate(squares: Floats, df: int, noise: Noise, *, convict: bool) -> tuple[Floats, Floats]:
    """Return the variance of a pair and its degrees of freedom, by this session and by the known noise.

    It is (d0 s0^2 + v s^2) / (d0 + v) with d0 + v degrees of freedom. The history gives s0 and d0 (Smyth
    2004, doi:10.2202/1544-6115.1027), the session the sum of squares v s^2 with `df` = v. A history that is
    calmer than the session must not help to convict.
    """
    sigma2, least = noise.sigma**2, df * MIN_PAIR_SIGMA**2
    squares = np.maximum(squares, least)
    d0 = np.minimum(noise.df, MAX_HISTORY_DF) + np.zeros_like(squares)
    if df:
        # Values that are all equal show a limit, or the step of a clock, and not how quiet the machine is.
        largest = squares / (df * scipy.special.fdtri(df, d0, QUIET_ALPHA))
        sigma2 = np.where(squares > least, np.minimum(sigma2, largest), sigma2)
        is_noisier = squares > df * sigma2 * scipy.special.fdtri(df, d0, 1 - CONTRADICTION_ALPHA)
        d0 = np.where(is_noisier, 0.0, d0)
    variance = (d0 * sigma2 + squares) / (d0 + df)
    return np.maximum(variance, squares / max(df, 1)) if convict else variance, d0 + df
