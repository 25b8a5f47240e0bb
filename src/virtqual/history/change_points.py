"""Steps and drifts in the history of one metric.

The overhead ln(virtual/native) of a session is relative to the native runs of the same night, so that a
change of both sides is none here. Change points minimise the weighted squares (Killick, Fearnhead and Eckley
2012, doi:10.1080/01621459.2012.737745). Drifts are found by cumulative sums of what each session differs from
those before it (Hawkins 1987, doi:10.2307/2348829).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from scipy import special

from virtqual.history.boots import compare_means
from virtqual.verdict.estimate import MAD_TO_SIGMA, Floats, Ints

#: How often a history without any change shows a step, or a drift, on any of its metrics. Together they are
#: less than the promised 1 %, because the spread of a build's sessions is an estimate, too.
STEP_ALPHA = 0.005
DRIFT_ALPHA = 0.002
#: An explanation other than a new build (a step within a build, a native side that moved, a drift) must be
#: better by so many squares of standard errors: builds change at every such place, and machines seldom.
MACHINE_GAIN = 9.0
#: Places that are worse than the best by less than this are likely, too (a likelihood ratio of 95 %).
LIKELY_GAIN = 3.84
#: Half of the shift, in standard errors of a session, to which cumulative sums are most sensitive.
CUSUM_SLACK_SIGMAS = 0.5
#: Sessions that a history needs, and that come before the first that can differ from them.
MIN_SESSIONS = 3
#: A step that exceeds the detection limit by so many standard errors shows in 90 % of histories.
POWER_SIGMAS = 1.2816
#: Sessions on either side of a step that tell which side moved.
NEAR_SESSIONS = 6
#: Consecutive sessions of a build from which their spread is estimated.
STRETCH_SESSIONS = 5

#: Of a step: the virtual side moved between builds (``build``), the native side alone moved (``native``), or
#: it lies between sessions of one build (``within``).
Cause = Literal["build", "native", "within"]
#: Numbers of sessions.
Places: TypeAlias = int | Ints


@dataclass(frozen=True)
class History:
    """One metric over sessions, in the order of builds, then of time; all arrays have the shape (n,)."""

    #: Number of each session's build, from 0 and rising.
    builds: Ints
    #: ln(virtual/native), positive is worse.
    log: Floats
    #: Variance of `log` by the session's pairs.
    variance: Floats
    #: Logarithms of the cost of a run on either side, positive is worse; NaN if unknown.
    native: Floats
    virtual: Floats
    #: Numbers of the sessions in the order of time.
    in_time: Ints


@dataclass(frozen=True)
class Step:
    """A change from one session to the next in order."""

    #: Number of the first session after it.
    at: int
    #: It surely lies after session `first` - 1 and before session `last`.
    first: int
    last: int
    #: Change of ln(virtual/native), positive is worse, and its standard error.
    size: float
    error: float
    cause: Cause


@dataclass(frozen=True)
class Drift:
    """A change in small steps."""

    #: Numbers, in time, of the session at which it begins, and of that at which it was noticed.
    since: int
    noticed: int
    #: Change of ln(virtual/native) from one session to the next, and its standard error.
    rate: float
    error: float
    #: Weighted squares of all sessions around it.
    squares: float


@dataclass(frozen=True)
class Changes:
    """The changes of one metric."""

    steps: tuple[Step, ...]
    drift: Drift | None
    #: Standard deviation of the sessions of one build beyond their own errors.
    between: float
    #: The step of ln(virtual/native) in the middle that nine of ten such histories show; infinite if the
    #: sessions are too few to show any.
    least: float


def find_changes(history: History, metrics: int) -> Changes:
    """Return the changes of one of so many metrics, which share the error rate."""
    count = len(history.log)
    spread, df = _estimate_spread(history)
    if count < MIN_SESSIONS or df < 1:
        return Changes((), None, spread, math.inf)
    variance = history.variance + spread**2
    # By this penalty a history without any change shows a step in `STEP_ALPHA` of cases, over all metrics.
    penalty = float(special.stdtrit(df, 1 - STEP_ALPHA / (2 * metrics * (count - 1)))) ** 2
    fit = _Fit(history.log, 1 / variance)
    places = np.arange(1, count)
    least = (math.sqrt(penalty) + POWER_SIGMAS) * float(fit.step_error(0, places, count).min())
    limit = _limit_sums(DRIFT_ALPHA / (2 * metrics), count)
    drift = _find_drift(history.log[history.in_time], variance[history.in_time], limit, df)
    machine_gains = MACHINE_GAIN * (np.diff(history.builds, prepend=-1) == 0)
    bounds = _partition(fit, penalty + machine_gains)
    if drift and len(bounds) == 2:
        bounds.insert(1, int(places[np.argmax(fit.gain(0, places, count) - machine_gains[1:])]))
    residuals = history.log - fit.levels(bounds)
    # Steps raise the sums of a drift, and a long drift looks like steps: the better explanation is chosen.
    # Within a build a drift is preferred, between builds a step.
    squares = float((residuals**2 / variance).sum()) + penalty * (len(bounds) - 3)
    is_between_builds = any(machine_gains[at] == 0 for at in bounds[1:-1])
    if drift and drift.squares < squares + (-MACHINE_GAIN if is_between_builds else LIKELY_GAIN):
        return Changes((), drift, spread, least)
    steps = tuple(
        _make_step(history, fit, *place) for place in zip(bounds, bounds[1:], bounds[2:], strict=False)
    )
    drift = _find_drift(residuals[history.in_time], variance[history.in_time], limit, df)
    return Changes(steps, drift, spread, least)


def compare_with_last(log: Floats, variance: Floats, metrics: int, df: float = math.inf) -> Floats:
    """Return by how much each session of one build lies on another level than the last one; 0 if on the same.

    A level may come and go: sessions before and after others may be on one. A history of a single level shows
    two in `STEP_ALPHA` of cases, over so many metrics. All arrays have the shape (n,).

    Parameters
    ----------
    log, variance
        ln(virtual/native) of the sessions in the order of time, and its variance by their pairs and boots. If
        more is left around the levels, that counts.
    df
        Degrees of freedom of `variance`.
    """
    count = len(log)
    level = 1 - STEP_ALPHA / (2 * metrics * max(count - 1, 1))
    penalty = float(special.stdtrit(min(df, 1e9), level)) ** 2
    left_over = math.inf
    while left_over > 1 + 1e-9:
        fit = _Fit(log, 1 / variance)
        bounds = _partition(fit, np.full(count, penalty))
        # The size and the place of each step are chosen by these values.
        df = count - 1 - 2 * (len(bounds) - 2)
        if df < 1:
            return np.zeros(count)
        left_over = float(((log - fit.levels(bounds)) ** 2 / variance).sum()) / df
        variance = variance * max(left_over, 1.0)
    *stretches, (last, end) = itertools.pairwise(bounds)
    differences = np.zeros(count)
    for start, stop in stretches:
        size = float(fit.mean(start, stop) - fit.mean(last, end))
        weights = fit.weights[[stop, end]] - fit.weights[[start, last]]
        differences[start:stop] = size if size**2 > penalty * float((1 / weights).sum()) else 0.0
    return differences


def _estimate_spread(history: History) -> tuple[float, int]:
    """Return the spread of a build's sessions, and its df; of short builds from successive differences."""
    starts = np.flatnonzero(np.diff(history.builds)) + 1
    builds = [build for build in np.split(np.arange(len(history.log)), starts) if len(build) > 1]
    # Years of one build are cut into short stretches, so that their own steps and drifts are no noise.
    stretches = [
        stretch
        for build in builds
        for stretch in np.array_split(build, math.ceil(len(build) / STRETCH_SESSIONS))
    ]
    between = compare_means(
        [history.log[stretch] for stretch in stretches], [history.variance[stretch] for stretch in stretches]
    )
    # Most successive sessions have no step between them, so that the median ignores steps.
    differences = np.diff(history.log)
    if between.df >= len(differences) // 3:
        return between.sigma, between.df
    seen = (MAD_TO_SIGMA * float(np.median(np.abs(differences)))) ** 2 / 2
    return math.sqrt(max(seen - float(history.variance.mean()), 0.0)), len(differences) // 3


class _Fit:
    """Weighted means of stretches of sessions, from cumulative sums; places may be numbers or arrays."""

    def __init__(self, values: Floats, weights: Floats) -> None:
        #: Sums of weights, and of weighted values, before each session, shape (n + 1,).
        self.weights, self.values = np.cumsum([[0.0, *weights], [0.0, *(weights * values)]], axis=1)

    def mean(self, start: Places, end: Places) -> Floats:
        """Return the weighted mean of ``[start, end)``."""
        mean: Floats = (self.values[end] - self.values[start]) / (self.weights[end] - self.weights[start])
        return mean

    def levels(self, bounds: Sequence[int]) -> Floats:
        """Return the mean of each session's stretch."""
        return np.concatenate(
            [np.full(end - at, self.mean(at, end)) for at, end in itertools.pairwise(bounds)]
        )

    def step_error(self, start: int, at: Places, end: int) -> Floats:
        """Return the standard error of the difference of two means."""
        before, after = self.weights[at] - self.weights[start], self.weights[end] - self.weights[at]
        error: Floats = np.sqrt(1 / before + 1 / after)
        return error

    def gain(self, start: int, at: Places, end: int) -> Floats:
        """Return by how much the squares around two means are less than those around a single mean."""
        size = self.mean(at, end) - self.mean(start, at)
        gain: Floats = (size / self.step_error(start, at, end)) ** 2
        return gain


def _partition(fit: _Fit, penalties: Floats) -> list[int]:
    """Return the bounds of stretches of one mean, from 0 to the number of sessions.

    The sum of all squares, with the penalty of each session that begins a stretch, is minimal: optimal
    partitioning (Jackson et al. 2005, "An algorithm for optimal partitioning of data on an interval").
    """
    count = len(penalties)
    # The squares of the values are left out of the sums: they are the same for all partitions.
    best_costs, begins = np.zeros(count + 1), np.zeros(count + 1, dtype=np.int64)
    for end in range(1, count + 1):
        values, weights = fit.values[end] - fit.values[:end], fit.weights[end] - fit.weights[:end]
        costs = best_costs[:end] + penalties[:end] - values * values / weights
        begins[end] = int(costs.argmin())
        best_costs[end] = costs[begins[end]]
    bounds = [count]
    while bounds[-1]:
        bounds.append(int(begins[bounds[-1]]))
    return bounds[::-1]


def _make_step(history: History, fit: _Fit, begin: int, at: int, end: int) -> Step:
    """Return a step with its size, its likely places, and its cause."""
    size, error = float(fit.mean(at, end) - fit.mean(begin, at)), float(fit.step_error(begin, at, end))
    places = np.arange(begin + 1, end)
    is_likely = fit.gain(begin, places, end) > fit.gain(begin, at, end) - LIKELY_GAIN
    is_between_builds = history.builds[places] > history.builds[places - 1]
    cause: Cause = "build"
    if history.builds[at] == history.builds[at - 1]:
        cause = "within"
        is_likely &= ~is_between_builds & (history.builds[places] == history.builds[at])
    else:
        is_likely &= is_between_builds
        native, variance = _compare_sides(history.native, begin, at, end)
        virtual, _ = _compare_sides(history.virtual, begin, at, end)
        # Nights that differ much move both sides by chance: then the step is the build's, as most are.
        if virtual < abs(size) / 2 <= native and native**2 > virtual**2 + MACHINE_GAIN * variance:
            cause = "native"
    likely = places[is_likely]
    return Step(at, int(likely[0]), int(likely[-1]), size, error, cause)


def _compare_sides(side: Floats, begin: int, at: int, end: int) -> tuple[float, float]:
    """Return the absolute change of one side at a step, from the sessions near it, and its variance."""
    before, after = side[max(begin, at - NEAR_SESSIONS) : at], side[at : min(end, at + NEAR_SESSIONS)]
    squares = float(((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum())
    variance = squares / max(len(before) + len(after) - 2, 1)
    return abs(float(after.mean() - before.mean())), variance * (1 / len(before) + 1 / len(after))


def _limit_sums(alpha: float, count: int) -> float:
    """Return the height that a cumulative sum of `count` sessions reaches with a chance of `alpha`.

    It is Siegmund's approximation (1985, "Sequential Analysis").
    """
    # Few commands look for steps, and this import takes 0.1 s.
    from scipy import optimize

    def compare(height: float) -> float:
        reach = 2 * CUSUM_SLACK_SIGMAS * (height + 1.166)
        return math.log(math.expm1(reach) - reach) - math.log(2 * CUSUM_SLACK_SIGMAS**2 * count / alpha)

    return float(optimize.brentq(compare, 0.5, 200))


def _notice_drift(log: Floats, variance: Floats, limit: float, df: int) -> int | None:
    """Return the session, in the order of time, at which a drift shows."""
    weights = 1 / variance
    weights_before, sums_before = np.cumsum(weights)[:-1], np.cumsum(weights * log)[:-1]
    differences = (log[1:] - sums_before / weights_before) / np.sqrt(variance[1:] + 1 / weights_before)
    # Student's t becomes the normal score of the same probability.
    scores = special.ndtri(np.clip(special.stdtr(df, differences), 1e-15, 1 - 1e-15))
    slower = faster = 0.0
    for i, score in enumerate(scores.tolist(), 1):
        if i >= MIN_SESSIONS:
            slower = max(0.0, slower + score - CUSUM_SLACK_SIGMAS)
            faster = max(0.0, faster - score - CUSUM_SLACK_SIGMAS)
            if max(slower, faster) > limit:
                return i
    return None


def _find_drift(log: Floats, variance: Floats, limit: float, df: int) -> Drift | None:
    """Return the drift of sessions in the order of time, or None."""
    noticed = _notice_drift(log, variance, limit, df)
    if noticed is None:
        return None
    weights = 1 / variance

    def fit_line(since: int) -> Drift:
        """Return the best line that begins at a session, after a level."""
        place = np.maximum(np.arange(len(log)) - since, 0)
        offset = place - float((weights * place).sum() / weights.sum())
        width = float((weights * offset**2).sum())
        rate = float((weights * offset * log).sum() / width)
        residuals = log - float((weights * log).sum() / weights.sum()) - rate * offset
        return Drift(since, noticed, rate, 1 / math.sqrt(width), float((weights * residuals**2).sum()))

    return min((fit_line(since) for since in range(noticed)), key=lambda drift: drift.squares)
