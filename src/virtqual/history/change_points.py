"""Steps and drifts in a history: where sessions say that something became slower, or faster.

One metric at a time.  A session's overhead ln(virtual/native) is relative to the native runs of the same
night, so that what moves both sides moves nothing here.  Change points are those that minimise the
weighted squares (Killick, Fearnhead and Eckley 2012, doi:10.1080/01621459.2012.737745), with a penalty by
which a history in which nothing changed shows a step in `ALPHA` of cases at most, over all its metrics.  A
drift that no session shows is found by cumulative sums of what each session differs from those before it
(Hawkins 1987, doi:10.2307/2348829).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from virtqual.history.history import between
from virtqual.verdict.estimate import MAD_TO_SIGMA, Floats, Ints

#: How often a history in which nothing changed shows a step, or a drift, on any of its metrics.  Together
#: less than the promised 1 %: how sessions of a build vary is an estimate, too.
ALPHA = 0.005
ALPHA_DRIFT = 0.002
#: What explains sessions otherwise than by a new build (a step within one, a native side that moved, a drift)
#: must be better by, in squares of standard errors: builds change at every such place, machines seldom.
UNLIKELY = 9.0
#: Places that are no worse than the best by so much may be the true ones, too (a likelihood ratio of 95 %).
LIKELY = 3.84
#: The shift, in standard errors of a session, that cumulative sums are most sensitive to is twice this.
SLACK = 0.5
#: So many sessions say what is usual before one can differ from it.
USUAL = 3
#: In standard errors: a step larger than what shows by so much shows in 90 %.
NINE_OF_TEN = 1.2816
#: How many sessions on either side of a step say which side moved.
NEAR = 6
#: So many sessions of a build in a row say how much they vary.
STRETCH = 5

Cause = Literal["build", "native", "within"]


@dataclass(frozen=True)
class History:
    """One metric over sessions, in the order of builds, then of time; all arrays have the shape (n,).

    Attributes
    ----------
    builds
        Number of each session's build, from 0 and rising.
    log, variance
        ln(virtual/native), positive is worse, and the variance that its session's pairs show.
    native, virtual
        Logarithms of what a run cost on either side, positive is worse; NaN where nobody knows.
    order
        Place of each session in time, from 0.
    """

    builds: Ints
    log: Floats
    variance: Floats
    native: Floats
    virtual: Floats
    order: Ints


@dataclass(frozen=True)
class Step:
    """A change from one session to the next in order.

    Attributes
    ----------
    at
        Number of the first session after it.
    first, last
        It lies after session `first` - 1 and before session `last`, as far as sessions can tell.
    size, error
        Change of ln(virtual/native), positive is worse, and its standard error.
    cause
        ``build``: between builds, on the virtual side; ``native``: the native side alone moved; ``within``:
        between sessions of one build.
    """

    at: int
    first: int
    last: int
    size: float
    error: float
    cause: Cause


@dataclass(frozen=True)
class Drift:
    """A change in small steps.

    Attributes
    ----------
    since, noticed
        Numbers, in time, of the session from which on it shows, and of that at which it was noticed.
    rate, error
        Change of ln(virtual/native) from one session to the next, and its standard error.
    """

    since: int
    noticed: int
    rate: float
    error: float


@dataclass(frozen=True)
class Changes:
    """What a history shows.

    Attributes
    ----------
    steps
        In order.
    drift
        None where there is none.
    between, df
        What sessions of one build vary by beyond their own errors, and how well that is known.
    least
        The step of ln(virtual/native) in the middle that nine of ten such histories show; infinite where
        there are too few sessions to show any.
    """

    steps: tuple[Step, ...]
    drift: Drift | None
    between: float
    df: int
    least: float


def changes(history: History, metrics: int) -> Changes:
    """Return what one of so many metrics shows.

    Parameters
    ----------
    history
        Of three sessions or more; of fewer nothing is said.
    metrics
        How many metrics share the error rate.
    """
    count = len(history.log)
    spread, df = _spread(history)
    if count < USUAL or df < 1:
        return Changes((), None, spread, df, math.inf)
    variance = history.variance + spread**2
    penalty = float(special.stdtrit(df, 1 - ALPHA / (2 * metrics * (count - 1)))) ** 2
    fit = _Fit(history.log, 1 / variance)
    least = (math.sqrt(penalty) + NINE_OF_TEN) * min(fit.difference(0, at, count) for at in range(1, count))
    in_time = np.argsort(history.order)
    limit = _limit(ALPHA_DRIFT / (2 * metrics), count)
    drift = _drift(history.log[in_time], variance[in_time], limit, df)
    places = _places(history, fit, penalty)
    if drift is not None and not places:
        # Something changed; was it at one place?
        places = [(0, _likeliest(history.builds, fit), count)]
    bounds = [0, *(at for _, at, _ in places), count]
    level = np.concatenate([np.full(b - a, fit.mean(a, b)) for a, b in itertools.pairwise(bounds)])
    # Steps alarm as drifts do, and a long drift looks like steps: which of them explains more?
    # Within a build, where neither is likelier, it is a drift unless the steps are clearly better.
    rest = float(((history.log - level) ** 2 / variance).sum()) + penalty * (len(places) - 1)
    by_builds = any(history.builds[at] > history.builds[at - 1] for _, at, _ in places)
    if drift is not None and drift[1] < rest + (-UNLIKELY if by_builds else LIKELY):
        return Changes((), drift[0], spread, df, least)
    drift = _drift((history.log - level)[in_time], variance[in_time], limit, df)
    steps = tuple(_moved(history, fit, *one) for one in places)
    return Changes(steps, drift and drift[0], spread, df, least)


def _spread(history: History) -> tuple[float, int]:
    """Return what sessions of a build vary by; where these are few, from what each differs from the next."""
    starts = np.flatnonzero(np.diff(history.builds)) + 1
    builds = [build for build in np.split(np.arange(len(history.log)), starts) if len(build) > 1]
    # Of years in short stretches: their own steps and drifts are no noise.
    parts = [part for build in builds for part in np.array_split(build, math.ceil(len(build) / STRETCH))]
    spread, df = between([history.log[one] for one in parts], [history.variance[one] for one in parts])
    # Whatever steps there are: most sessions have none before them.
    next_to = np.diff(history.log)
    if df >= len(next_to) // 3:
        return spread, df
    seen = (MAD_TO_SIGMA * float(np.median(np.abs(next_to)))) ** 2 / 2
    return math.sqrt(max(seen - float(history.variance.mean()), 0.0)), len(next_to) // 3


class _Fit:
    """Weighted squares around the mean of a stretch of sessions, from sums."""

    def __init__(self, values: Floats, weights: Floats) -> None:
        sums = np.cumsum([[0.0, *(weights * values**power)] for power in range(3)], axis=1)
        self._sums: Floats = sums
        # As lists, too: it is asked for single numbers, many times.
        lists: list[list[float]] = sums.tolist()
        self._weight, self._first, self._second = lists

    def error(self, start: int, end: int) -> float:
        """Return the squares of ``[start, end)``."""
        first = self._first[end] - self._first[start]
        return self._second[end] - self._second[start] - first * first * self.variance(start, end)

    def sums(self, places: Ints) -> Floats:
        """Return the sums of weights, values and squares before each of some places; shape (3, n)."""
        sums: Floats = self._sums[:, places]
        return sums

    def mean(self, start: int, end: int) -> float:
        """Return the weighted mean of ``[start, end)``."""
        return (self._first[end] - self._first[start]) * self.variance(start, end)

    def variance(self, start: int, end: int) -> float:
        """Return the variance of this mean."""
        return 1 / (self._weight[end] - self._weight[start])

    def difference(self, start: int, at: int, end: int) -> float:
        """Return the standard error of the difference of two means."""
        return math.sqrt(self.variance(start, at) + self.variance(at, end))

    def gain(self, start: int, at: int, end: int) -> float:
        """Return by how much two means are better than one."""
        return self.error(start, end) - self.error(start, at) - self.error(at, end)


def _points(fit: _Fit, bounds: Sequence[int], penalty: float) -> list[int]:
    """Return those of some places between the first and the last at which stretches of one mean meet.

    They make the sum of all squares, with a penalty for each, the least that there is: optimal partitioning
    (Jackson et al. 2005, "An algorithm for optimal partitioning of data on an interval").
    """
    weight, first, _ = fit.sums(np.array(bounds))
    # Least sums up to each place, less the squares before it: these are the same wherever a stretch begins.
    least, before = np.zeros(len(bounds)), np.zeros(len(bounds), dtype=np.int64)
    for number in range(1, len(bounds)):
        values = first[number] - first[:number]
        costs = least[:number] - values * values / (weight[number] - weight[:number])
        before[number] = int(costs.argmin())
        least[number] = costs[before[number]] + penalty
    found, number = [], int(before[-1])
    while number:
        found.append(bounds[number])
        number = int(before[number])
    return found[::-1]


def _places(history: History, fit: _Fit, penalty: float) -> list[tuple[int, int, int]]:
    """Return the steps with the ends of the stretch around each: between builds, or within one."""
    count = len(history.log)
    starts = [0, *(int(i) for i in np.flatnonzero(np.diff(history.builds)) + 1), count]
    found = _points(fit, starts, penalty)
    for begin, end in itertools.pairwise(starts):
        # A build of years has steps of its own; they cannot explain more than all there is.
        if fit.error(begin, end) > penalty:
            found += _points(fit, range(begin, end + 1), penalty)
    found = sorted({0, count, *found})
    while len(found) > 2:
        gains = [fit.gain(*found[k - 1 : k + 2]) for k in range(1, len(found) - 1)]
        if min(gains) >= penalty:
            break
        # One that another one has explained.
        del found[1 + int(np.argmin(gains))]
    placed = []
    for k in range(1, len(found) - 1):
        found[k] = _best(history.builds, fit, *found[k - 1 : k + 2])
        placed.append((found[k - 1], found[k], found[k + 1]))
    return placed


def _likeliest(builds: Ints, fit: _Fit) -> int:
    """Return the best place of a single step: between builds, unless one within a build is far better."""
    within = UNLIKELY * (np.diff(builds) == 0)
    gains = [fit.gain(0, at, len(builds)) for at in range(1, len(builds))]
    return 1 + int(np.argmax(np.array(gains) - within))


def _best(builds: Ints, fit: _Fit, begin: int, at: int, end: int) -> int:
    """Return the best place of a step near one: between builds, unless one within a build is far better."""
    near = range(begin + 1, end)
    within = [i for i in near if builds[i] == builds[i - 1] and builds[i] in (builds[at - 1], builds[at])]
    if not within:
        return at
    best = max(within, key=lambda i: fit.gain(begin, i, end))
    return best if fit.gain(begin, best, end) > fit.gain(begin, at, end) + UNLIKELY else at


def _moved(history: History, fit: _Fit, begin: int, at: int, end: int) -> Step:
    """Return a step with its size, its place as far as it is known, and its cause."""
    size = fit.mean(at, end) - fit.mean(begin, at)
    gain, between_builds = fit.gain(begin, at, end), np.diff(history.builds, prepend=-1) > 0
    likely = [i for i in range(begin + 1, end) if fit.gain(begin, i, end) > gain - LIKELY]
    cause: Cause = "build"
    if not between_builds[at]:
        cause = "within"
        likely = [i for i in likely if history.builds[i - 1] == history.builds[i] == history.builds[at]]
    else:
        likely = [i for i in likely if between_builds[i]]
        native, night = _move(history.native, begin, at, end)
        virtual, _ = _move(history.virtual, begin, at, end)
        # Nights that differ much move both sides by chance: then it is the build's, as most changes are.
        if virtual < abs(size) / 2 <= native and native**2 > virtual**2 + UNLIKELY * night:
            cause = "native"
    return Step(at, min(likely), max(likely), size, fit.difference(begin, at, end), cause)


def _move(side: Floats, begin: int, at: int, end: int) -> tuple[float, float]:
    """Return by how much the sessions near a step differ before and after it, and the variance of that."""
    parts = side[max(begin, at - NEAR) : at], side[at : min(end, at + NEAR)]
    squares = sum(float(((part - part.mean()) ** 2).sum()) for part in parts)
    variance = squares / max(sum(map(len, parts)) - 2, 1)
    return abs(float(parts[1].mean() - parts[0].mean())), variance * sum(1 / len(part) for part in parts)


def _limit(alpha: float, count: int) -> float:
    """Return the height that a cumulative sum of `count` sessions reaches with a chance of `alpha`.

    By Siegmund's approximation of the mean number of sessions until it does (1985, "Sequential Analysis").
    """

    # Here, because few commands look for steps and the import takes 0.1 s.
    from scipy import optimize

    def missing(height: float) -> float:
        reach = 2 * SLACK * (height + 1.166)
        return math.log(math.expm1(reach) - reach) - math.log(2 * SLACK**2 * count / alpha)

    return float(optimize.brentq(missing, 0.5, 200))


def _alarm(log: Floats, variance: Floats, limit: float, df: int) -> int | None:
    """Return the session, in the order of time, at which a drift shows; None where none does."""
    weights = 1 / variance
    known, usual = np.cumsum(weights)[:-1], np.cumsum(weights * log)[:-1]
    differs = (log[1:] - usual / known) / np.sqrt(variance[1:] + 1 / known)
    # As normal as it would be if the variance were known.
    scores = special.ndtri(np.clip(special.stdtr(df, differs), 1e-15, 1 - 1e-15))
    slower = faster = 0.0
    for i, score in enumerate(scores.tolist(), 1):
        if i >= USUAL:
            slower, faster = max(0.0, slower + score - SLACK), max(0.0, faster - score - SLACK)
            if max(slower, faster) > limit:
                return i
    return None


def _drift(log: Floats, variance: Floats, limit: float, df: int) -> tuple[Drift, float] | None:
    """Return the drift of sessions in the order of time, and the squares around it; None where none shows."""
    noticed = _alarm(log, variance, limit, df)
    if noticed is None:
        return None
    weights = 1 / variance

    def line(since: int) -> tuple[float, float, float]:
        """Return the squares around a level and then a line, its rate, and the weight of that."""
        place = np.maximum(np.arange(len(log)) - since, 0)
        middle = float((weights * place).sum() / weights.sum())
        width = float((weights * (place - middle) ** 2).sum())
        rate = float((weights * (place - middle) * log).sum() / width)
        rest = log - float((weights * log).sum() / weights.sum()) - rate * (place - middle)
        return float((weights * rest**2).sum()), rate, width

    lines = [line(since) for since in range(noticed)]
    since = min(range(noticed), key=lambda one: lines[one][0])
    rest, rate, width = lines[since]
    return Drift(since, noticed, rate, 1 / math.sqrt(width)), rest
