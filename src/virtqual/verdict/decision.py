"""The decision at one look, for one series or for many alike at once.

Everything is log differences (positive is worse) of shape (..., n_pairs, n_points); a scalar has one
point. Leading axes are independent series, so that simulations run the very code that judges.

At a point, differences far from their median are pulled in. Over a window of neighbouring points the
differences of a pair are averaged. The mean over pairs has a moderated variance,

    v = (df0 * v0 + (n - 1) * s^2) / (df0 + n - 1),

with v0 and df0 from the metric's A/A history (Smyth 2004, doi:10.2202/1544-6115.1027), and is compared
with Student's t with df0 + n - 1 degrees of freedom.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from virtqual.verdict.design import Design
from virtqual.verdict.pairs import Floats

Bools = NDArray[np.bool_]

MAD_TO_SIGMA = 1.4826
FOUND = 0.95  # "would be found" in what is said of pairs needed
OVERWHELMING = 10.0  # noise that cannot resolve the margin is no normal noise: its level is cut by this
HOPELESS = 0.05  # a session is called too noisy early only if even this quantile of its noise is


@dataclass(frozen=True, eq=False)
class Windows:
    """Contiguous ranges of points.

    Parameters
    ----------
    start, stop
        Half-open ranges, shape (n_windows,).
    weights
        Averages over them, shape (n_windows, n_points).
    """

    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    weights: Floats

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length(self) -> NDArray[np.int64]:
        """Number of points of each."""
        return self.stop - self.start


def _windows(ranges: list[tuple[int, int]], width: int) -> Windows:
    start, stop = (np.array(edge, dtype=np.int64) for edge in zip(*ranges, strict=True))
    index = np.arange(width)
    inside = (index >= start[:, None]) & (index < stop[:, None])
    return Windows(start, stop, inside / (stop - start)[:, None])


@cache
def scanned(width: int) -> Windows:
    """Return the windows that share the error rate of a curve.

    Every start with lengths 1, 2, 4, 8 ... and the whole curve: every range of sizes is covered to
    three quarters or better by one of them, and there are few enough (90 for 23 points) that dividing
    the error rate among them costs little. The single points come first.
    """
    lengths = [1]
    while lengths[-1] * 2 < width:
        lengths.append(lengths[-1] * 2)
    if width > 1:
        lengths.append(width)
    return _windows([(i, i + n) for n in lengths for i in range(width - n + 1)], width)


@cache
def contiguous(width: int) -> Windows:
    """Return all contiguous windows, from which the one that names a finding is taken."""
    return _windows([(i, j) for i in range(width) for j in range(i + 1, width + 1)], width)


@dataclass(frozen=True, eq=False)
class Summary:
    """Mean difference over windows with its uncertainty.

    Parameters
    ----------
    mean
        Mean over pairs, shape (..., n_windows).
    variance
        Moderated variance of one pair, shape (..., n_windows).
    pairs
        Their number.
    df
        Degrees of freedom of `variance`.
    """

    mean: Floats
    variance: Floats
    pairs: int
    df: float


def summarise(d: Floats, windows: Windows, covariance: Floats, df: float, clip: float) -> Summary:
    """Summarise differences over windows.

    Parameters
    ----------
    d
        Shape (..., n_pairs, n_points), at least one pair.
    windows
        Of n_points.
    covariance
        Prior covariance of one pair, shape (..., n_points, n_points).
    df
        Weight of the prior.
    clip
        In standard deviations; see `Design`.
    """
    pairs = d.shape[-2]
    x = _clipped(d, covariance, clip) @ windows.weights.T
    squares = pairs * x.var(axis=-2)
    prior = window_variance(windows, covariance)
    return Summary(x.mean(axis=-2), (df * prior + squares) / (df + pairs - 1), pairs, df + pairs - 1)


def window_variance(windows: Windows, covariance: Floats) -> Floats:
    """Return the prior variance of a window's average in one pair, shape (..., n_windows)."""
    variance: Floats = np.sum((windows.weights @ covariance) * windows.weights, axis=-1)
    return variance


def _clipped(d: Floats, covariance: Floats, clip: float) -> Floats:
    centre = np.median(d, axis=-2, keepdims=True)
    spread = MAD_TO_SIGMA * np.median(np.abs(d - centre), axis=-2, keepdims=True)
    prior = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))[..., None, :]
    # A session noisier than its history must not be made to look calm: the wider of the two counts.
    reach = clip * np.maximum(spread, prior)
    clipped: Floats = np.clip(d, centre - reach, centre + reach)
    return clipped


def agreeing(d: Floats, windows: Windows, covariance: Floats, contradiction: float) -> Bools:
    """Return in which windows two pairs do not contradict each other, shape (..., n_windows).

    Of two values nobody can say which one is the outlier, so two that lie farther apart than noise
    explains decide nothing and a third pair is asked for. With more pairs `_clipped` takes over.
    """
    if d.shape[-2] != 2:
        return np.ones((*d.shape[:-2], len(windows)), dtype=np.bool_)
    x = d @ windows.weights.T
    reach = -special.ndtri(special.ndtr(-contradiction) / d.shape[-1]) * np.sqrt(2)
    agree: Bools = np.abs(x[..., 0, :] - x[..., 1, :]) <= reach * np.sqrt(
        window_variance(windows, covariance)
    )
    return agree


@dataclass(frozen=True, eq=False)
class Contrast:
    """What is compared with the budget: an overhead, or the change between two sessions' overheads.

    Parameters
    ----------
    mean, error
        Estimate and its standard error, shape (..., n_windows).
    df
        Degrees of freedom of `error`, same shape or scalar.
    """

    mean: Floats
    error: Floats
    df: Floats

    def bound(self, level: float | Floats, sign: int) -> Floats:
        """Return the one-sided confidence bound at `level` below (-1) or above (+1) the mean."""
        bound: Floats = self.mean - sign * special.stdtrit(self.df, level) * self.error
        return bound


def contrast(now: Summary, earlier: Summary | None = None, between: float = 0.0) -> Contrast:
    """Return the overhead of `now`, or its change since `earlier`.

    The two sessions share no run, so their errors add; `between` is what a new boot or another day
    changes on its own (once per session). Degrees of freedom after Welch and Satterthwaite.
    """
    error = now.variance / now.pairs
    if earlier is None:
        return Contrast(now.mean, np.sqrt(error), np.asarray(now.df, dtype=np.float64))
    error0 = earlier.variance / earlier.pairs
    df = (error + error0) ** 2 / (error**2 / now.df + error0**2 / earlier.df)
    total = np.sqrt(error + error0 + 2 * between**2)
    return Contrast(now.mean - earlier.mean, total, df)


@dataclass(frozen=True, eq=False)
class Decision:
    """The decision at one look.

    Parameters
    ----------
    over
        Which windows are over budget, shape (..., n_windows).
    within
        Whether everything is within budget plus margin, shape (...).
    hopeless
        Whether the noise cannot resolve the margin within the maximum of pairs, shape (...).
    """

    over: Bools
    within: Bools
    hopeless: Bools


def decide(
    d: Floats,
    *,
    limit: Floats,
    margin: Floats,
    covariance: Floats,
    df: float,
    design: Design,
    look: int,
    earlier: Floats | None = None,
    between: float = 0.0,
) -> Decision:
    """Decide at look number `look` of `design`.

    OVER: in some window the lower bound of the mean excess over the budget is above 0. All windows
    share the level (Bonferroni), so the error rate is one for the whole curve. A single point needs
    three pairs.

    WITHIN: at every point the upper bound of the excess is below the margin. No correction is due,
    because passing needs all points: a curve with one bad point passes with probability beta at most.

    Parameters
    ----------
    d
        Differences, shape (..., n_pairs, n_points), at least as many pairs as the look has.
    limit, margin
        Budget and margin in log units, shape (n_points,) or (..., n_points).
    covariance, df
        Prior; see `summarise`.
    design
        Error rates and looks.
    look
        Index of the look; only its pairs are used.
    earlier
        Differences of the earlier session where the change is judged, same points.
    between
        See `contrast`.
    """
    points = d.shape[-1]
    windows = scanned(points)
    limits = limit @ windows.weights.T
    d = d[..., : design.looks[look], :]
    before = None if earlier is None else summarise(earlier, windows, covariance, df, design.clip)

    now = summarise(d, windows, covariance, df, design.clip)
    full = contrast(now, before, between)
    upper = full.bound(design.within_level(look), +1)[..., :points]
    calm = agreeing(d, windows, covariance, design.contradiction)[..., :points]
    within: Bools = np.all((upper < limit + margin) & calm, axis=-1)

    over: Bools = np.zeros_like(full.mean, dtype=np.bool_)
    if design.confirms(look):
        fresh = d[..., design.screen :, :]
        part = full
        if design.screen:
            part = contrast(summarise(fresh, windows, covariance, df, design.clip), before, between)
        level = design.over_level(look, len(windows))
        lower = np.where(
            _unresolved(now, margin, design, len(windows))[..., None],
            part.bound(level / OVERWHELMING, -1),
            part.bound(level, -1),
        )
        over = (lower > limits) & agreeing(fresh, windows, covariance, design.contradiction)
        # A pair of this session says something of a change only beside the overhead there was before.
        over &= _most(fresh, windows, limits if before is None else limits + before.mean, design.majority)
        if d.shape[-2] < 3:
            over &= windows.length > 1
    convicted = np.any(over, axis=-1)
    within &= ~convicted
    hopeless = _hopeless(now, before, between, limits, margin, design, look) & ~within & ~convicted
    return Decision(over, within, hopeless)


def _unresolved(now: Summary, margin: Floats, design: Design, windows: int) -> Bools:
    """Return whether the noise seen is too high for the margin, whatever the earlier session was like."""
    needed = pairs_needed(now.variance[..., : margin.shape[-1]], margin, design, now.df, windows)
    unresolved: Bools = np.max(needed, axis=-1) > design.max_pairs
    return unresolved


def _most(d: Floats, windows: Windows, limits: Floats, majority: float) -> Bools:
    """Return in which windows at least `majority` of the pairs are over budget on their own.

    Load comes in bursts that hit a few neighbouring runs hard; an overhead is there in every pair.
    """
    over = d @ windows.weights.T > limits[..., None, :]
    most: Bools = np.mean(over, axis=-2) >= majority
    return most


def _hopeless(
    now: Summary,
    earlier: Summary | None,
    between: float,
    limits: Floats,
    margin: Floats,
    design: Design,
    look: int,
) -> Bools:
    """Return whether the noise cannot resolve the margin within the maximum of pairs.

    At the last look the noise counts as it was seen. Before, its kind reading does (the 5 % quantile),
    and only if neither answer would be in reach at the last look should the estimate stay where it is.
    How many series share the error rate says nothing of the noise.
    """
    points = margin.shape[-1]
    last = len(design.looks) - 1
    kind = 1.0 if look == last else now.df / float(special.chdtri(now.df, HOPELESS))
    variance = kind * now.variance
    needed = pairs_needed(
        variance[..., :points],
        margin,
        design.alone(),
        now.df,
        limits.shape[-1],
        None if earlier is None else earlier.pairs,
        0.0 if earlier is None else between,
    )
    unresolved: Bools = np.max(needed, axis=-1) > design.max_pairs
    if look == last:
        return unresolved
    then = contrast(Summary(now.mean, variance, design.max_pairs, now.df), earlier, between)
    lower = then.bound(design.over_level(last, limits.shape[-1]), -1)
    upper = then.bound(design.within_level(last), +1)[..., :points]
    in_reach = np.any(lower > limits, axis=-1) | np.all(upper < limits[..., :points] + margin, axis=-1)
    hopeless: Bools = unresolved & ~in_reach
    return hopeless


def pairs_needed(
    variance: Floats,
    margin: Floats,
    design: Design,
    df: float,
    windows: int = 1,
    earlier_pairs: int | None = None,
    between: float = 0.0,
) -> Floats:
    """Return how many pairs would find an overhead of budget plus margin in 95 % of cases.

    Parameters
    ----------
    variance
        Of one pair, shape (..., n_points).
    margin
        In log units, same shape.
    design
        Its last look sets the level.
    df
        Degrees of freedom of `variance`.
    windows
        Among how many windows the level is divided.
    earlier_pairs
        Pairs of the earlier session, where the change is judged.
    between
        See `contrast`.

    Returns
    -------
    ndarray
        Not rounded; infinite where no number of pairs in this session would do.
    """
    information = (margin / _reach(design, df, windows)) ** 2 - (2 * between**2)
    if earlier_pairs is not None:
        information = information - variance / earlier_pairs
    with np.errstate(divide="ignore"):
        needed: Floats = np.where(information > 0, variance / np.maximum(information, 0), np.inf)
    return needed


def resolved_margin(
    variance: Floats, design: Design, df: float, windows: int, earlier_pairs: int, between: float
) -> Floats:
    """Return the margin of a change for which `pairs_needed` is the maximum of pairs.

    Parameters are those of `pairs_needed`; the result is in log units and has the shape of `variance`.
    """
    error = np.sqrt(variance / design.max_pairs + variance / earlier_pairs + 2 * between**2)
    margin: Floats = _reach(design, df, windows) * error
    return margin


def _reach(design: Design, df: float, windows: int) -> float:
    """Return how many standard errors a margin must be wide to be found in 95 % of cases at the last look."""
    level = design.over_level(len(design.looks) - 1, windows)
    return float(special.ndtri(FOUND) - special.stdtrit(df, level))
