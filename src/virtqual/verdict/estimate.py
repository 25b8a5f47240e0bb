"""The estimate of an overhead from pairs of runs, with its uncertainty.

All values are natural logarithms, signed so that positive is worse. An array of differences has the shape
(..., n_pairs, n_columns): leading axes are independent series, a scalar has one column, a curve has one for
each size and a last one for its mean over the sizes (`append_mean`).

The variance of an estimate has several *parts*, each with its own degrees of freedom. Bounds are Student's t
with the degrees of freedom of the sum (Satterthwaite 1946, doi:10.2307/3002019).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

MAX_HISTORY_DF = 6.0
"""Largest weight of a history of noise, in degrees of freedom of the session's own noise.

Tonight may be another night: with a weight of 6 a session whose noise is half as large again as its history's
still refuses budget + margin as often as promised; with 12 it would not.
"""

CONTRADICTION_ALPHA = 0.025
"""A history that this session's spread contradicts at this level does not count. On a bad night, when the
noise is many times the usual, the session is judged by itself."""

PULL_SIGMAS = 2.5
"""A difference farther from its median is pulled in; of Gaussian pairs that is one in eighty."""

MAD_TO_SIGMA = 1.4826
"""Gaussian standard deviation of a median absolute deviation of one."""


@dataclass(frozen=True, eq=False)
class Noise:
    """The noise that is known before the first pair.

    Parameters
    ----------
    sigma, df
        Standard deviation of a pair's difference, shape (..., n_columns), and its weight in degrees of
        freedom, `MAX_HISTORY_DF` at most, scalar or shape (..., 1).
    between, between_df
        Standard deviation between boots of the virtual machine, shape as `df`, and its degrees of freedom:
        sessions less one if it was measured, infinite if it is a bound.
    """

    sigma: ArrayLike
    df: ArrayLike = MAX_HISTORY_DF
    between: ArrayLike = 0.0
    between_df: float = np.inf


@dataclass(frozen=True, eq=False)
class VariancePart:
    """One part of the variance of an estimate, shape (..., n_columns): of pairs, boots, nodes or rounds.

    `history` and `history_df` are the shares of variance and df from the history, which other sessions share.
    """

    name: str
    variance: Floats
    df: ArrayLike
    history: Floats | None = None
    history_df: ArrayLike = 0.0


@dataclass(frozen=True, eq=False)
class Estimate:
    """An overhead, or the change of one, shape (..., n_columns); the variances of its parts add.

    Parameters
    ----------
    bias
        How far hosts may have moved the mean: added to both ends of every bound. Infinite if unknown.
    spread
        Standard deviation of one pair in this session alone, with `spread_df` degrees of freedom.
    """

    mean: Floats
    parts: tuple[VariancePart, ...]
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
        """Return the change since `earlier`, an estimate of the same columns.

        The sessions share no run, so that their variances add. Both use the history and the spread of boots,
        so that the degrees of freedom of these count once. The biases add unless `bias` is stated.
        """
        own, common = [], dict[str, VariancePart]()

        def add_common(name: str, variance: Floats, df: ArrayLike) -> None:
            before = common.get(name, VariancePart(name, np.zeros_like(variance), np.inf))
            common[name] = VariancePart(name, before.variance + variance, np.minimum(before.df, df))

        for part in (*self.parts, *earlier.parts):
            if part.history is not None:
                add_common("history", part.history, part.history_df)
                rest = np.subtract(part.df, part.history_df)
                own.append(VariancePart(part.name, part.variance - part.history, np.maximum(rest, 1e-9)))
            elif part.name == "boots":
                add_common("boots", part.variance, part.df)
            else:
                own.append(part)
        return Estimate(
            self.mean - earlier.mean,
            (*common.values(), *own),
            self.bias + earlier.bias if bias is None else bias,
            self.spread,
            self.spread_df,
        )


def append_mean(values: Floats) -> Floats:
    """Append the mean over the sizes as a last column; a scalar stays as it is.

    The shape (..., n_points) becomes (..., n_points + 1), or stays (..., 1).
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

    Differences that favour the guest are always pulled in: a disturbed native run must not acquit it.
    Differences against the guest are pulled in only with `high`, which is used to convict.

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
    reach = PULL_SIGMAS * np.maximum(observed, np.asarray(sigma)[..., None, :])
    pulled: Floats = np.maximum(d, centre - reach)
    return np.minimum(pulled, centre + reach) if high else pulled


def moderated(residual: Floats, rank: int, weights: Floats, noise: Noise) -> tuple[VariancePart, Floats, int]:
    """Return the variance of a weighted mean of pairs, and the session's own spread of a pair with its df.

    The variance of a pair is (d0 s0^2 + v s^2) / (d0 + v) with d0 + v degrees of freedom. The history gives
    s0 and d0 (Smyth 2004, doi:10.2202/1544-6115.1027), the session s and v. The residual has the shape
    (..., n_pairs, n_columns) and `rank` degrees of freedom.
    """
    squares: Floats = np.sum(residual**2, axis=-2) if rank else np.zeros_like(residual[..., 0, :])
    sigma2 = np.asarray(noise.sigma, dtype=np.float64) ** 2
    d0 = np.minimum(np.asarray(noise.df, dtype=np.float64), MAX_HISTORY_DF) + np.zeros_like(squares)
    if rank:
        d0 = np.where(squares > rank * sigma2 * special.fdtri(rank, d0, 1 - CONTRADICTION_ALPHA), 0.0, d0)
    size = float(weights @ weights) / (d0 + rank)
    history: Floats = d0 * sigma2 * size
    part = VariancePart("pairs", history + squares * size, d0 + rank, history, d0)
    return part, np.sqrt(squares / max(rank, 1)), rank
