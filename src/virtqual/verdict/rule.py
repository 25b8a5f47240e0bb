"""The decision: when an overhead is over budget, when it is within, and when neither can be said.

One page of words is in ``docs/decision.md``. The functions take many sessions at once, so that
simulations run the very code that judges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from virtqual.references.budgets import MOST_MARGIN
from virtqual.verdict.estimate import (
    Bools,
    Estimate,
    Floats,
    Ints,
    Noise,
    with_whole,
)
from virtqual.verdict.places import Places, change, everywhere_alike, overhead

LOOKS = (4, 8, 12, 18)
"""After how many pairs a decision is tried. Four come first, and a conviction needs four that are fresh:
fewer say little of their own noise, and an odd number favours the side that runs first. Each later look has
half as many again, since the error shrinks with the root; with more than 18 a machine is better made
quieter."""

ALPHA = 0.008
"""Chance that a session calls anything OVER while every true overhead is within its budget. With the
`virtqual.verdict.slow_runs.SLOW_ALPHA` of the slow runs it is the 1 % that is promised."""

BETA = 0.03
"""Chance that a series passes whose true overhead is budget plus margin. 5 % is promised; the rest
is kept for nights on which the noise is half as large again as in the history."""

FLOOR = math.log(0.9)
"""Faster than native by more than a tenth is not a fast guest but a wrong clock, unit, or native run.
Placement and page sizes have been seen to make a guest a few per cent faster."""

WIDEST = math.log1p(MOST_MARGIN)
"""Widest margin of a change where no file states another one, in log units."""

SPREAD_FROM = 6
"""From how many pairs on a session's own spread can refuse it: five degrees of freedom are the least that
tell a spread from its half."""

SHARED_BOOT = 0.5
"""From what spread of boots on, in standard deviations of a pair, pairs of one boot are not fresh: then the
boot is the larger part of the mean of four pairs, and what is flagged would be boots."""

FOUND = 0.95
"""Chance of an answer that is meant where it is said how many pairs one would take."""


class Code(IntEnum):
    """An outcome as arrays hold it."""

    UNDECIDED = 0
    WITHIN = 1
    OVER = 2
    INVALID = 3


class Reason(IntEnum):
    """The reason for which a series is UNDECIDED or INVALID."""

    NONE = 0
    TOO_FEW_PAIRS = 1
    """Fewer than the first look has, or an exchange with one direction only."""
    OPEN = 2
    """Neither answer is sure enough."""
    CENSORED = 3
    """More virtual runs were refused than native ones, two or more: what is left out might decide."""
    TOO_GOOD = 4
    """Surely faster than native by more than `FLOOR`."""
    NOISE = 5
    """The session's own spread is too wide for the margin, however many pairs are run."""
    MARGIN = 6
    """The earlier session has too few pairs for a margin of `MOST_MARGIN`."""
    HOSTS = 7
    """Different hosts in fixed roles, and nobody knows by how much they differ."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Series of one shape: as many pairs, sizes and places each; of one session or of many.

    Parameters
    ----------
    native, virtual
        Logarithms of what each run cost (larger is worse), shape (n_sessions, n_series, n_pairs, n_points).
    limit, margin
        Budget and margin in log units, broadcastable to (n_sessions, n_series, n_points).
    noise
        Known before the first pair, one column for each size and a last one for their mean
        (`virtqual.verdict.estimate.with_whole`); broadcastable to (n_sessions, n_series, n_columns).
    places
        Where the pairs ran; None: all on one host in one boot.
    refused_native, refused_virtual
        How many runs of either side were refused, broadcastable to (n_sessions, n_series).
    earlier
        Native and virtual logarithms of the earlier session's pairs: the change since is judged.
    earlier_places
        Where those ran.
    most_margin
        Widest margin of a change, broadcastable as `margin`; see `WIDEST`.
    """

    native: Floats
    virtual: Floats
    limit: ArrayLike
    margin: ArrayLike
    noise: Noise
    places: Places | None = None
    refused_native: ArrayLike = 0
    refused_virtual: ArrayLike = 0
    earlier: tuple[Floats, Floats] | None = None
    earlier_places: Places | None = None
    most_margin: ArrayLike = WIDEST


@dataclass(frozen=True, eq=False)
class Judgement:
    """What became of the series of a batch.

    Parameters
    ----------
    outcome, reason
        Values of `Code` and `Reason`, shape (n_sessions, n_series).
    pairs
        Pairs at the look that decided (of a rotation: rounds), same shape.
    flagged
        Pairs after which a series was flagged, 0 where it never was, same shape: only later ones convict.
    margin
        What was judged with; wider than asked for only where a change is judged. Shape (..., n_points).
    level
        Error rate that a conviction had at its last look, at one size of one series, shape as `outcome`.
    mean, low, high
        Estimate from all pairs, lower bound at `level` and upper bound at that of an acquittal, in log units,
        shape (n_sessions, n_series, n_columns), NaN where nothing can be estimated. None with `drive`.
    """

    outcome: Ints
    reason: Ints
    pairs: Ints
    flagged: Ints
    margin: Floats
    level: Floats
    mean: Floats | None = None
    low: Floats | None = None
    high: Floats | None = None

    def next_pairs(self, looks: Sequence[int] = LOOKS) -> Ints:
        """Return how many pairs in all the open series need, 0 where no more are wanted."""
        following = np.array([*looks, 0])[np.searchsorted(looks, self.pairs, side="right")]
        wanted = (self.outcome == Code.UNDECIDED) & (self.reason != Reason.CENSORED)
        return np.where(wanted, following, 0)


class _Series:
    """A batch with its series in one row, and what is known of them so far."""

    def __init__(self, batch: Batch, looks: Sequence[int], alpha: float, beta: float) -> None:
        sessions, series, pairs, points = batch.virtual.shape
        self.shape = (sessions, series)
        self.rows = sessions * series
        self.points = points
        self.native = with_whole(batch.native.reshape(self.rows, pairs, points))
        self.virtual = with_whole(batch.virtual.reshape(self.rows, pairs, points))
        self.columns = self.virtual.shape[-1]
        self.limit = with_whole(self._rows(batch.limit, points))
        self.margin = with_whole(self._rows(batch.margin, points))
        noise = batch.noise
        self.noise = Noise(
            self._rows(noise.sigma, self.columns), self._rows(noise.df, 1), self._rows(noise.between, 1),
            noise.between_df,
        )  # fmt: skip
        self.places = batch.places or everywhere_alike(pairs)
        if len(self.places.native) != pairs:
            raise ValueError(f"{pairs} pairs, places of {len(self.places.native)}.")
        if not (np.all(np.isfinite(batch.native)) and np.all(np.isfinite(batch.virtual))):
            raise ValueError("a value is no number: leave its pair out.")
        self.pairs = pairs // self.places.width
        self.floor = FLOOR if batch.earlier is None else -math.inf
        virtual, native = (
            np.broadcast_to(np.asarray(refused), self.shape).reshape(-1)
            for refused in (batch.refused_virtual, batch.refused_native)
        )
        self.censored: Bools = (virtual >= 2) & (virtual > native)
        self.earlier: tuple[Floats, Floats] | None = None
        if batch.earlier is not None:
            count = batch.earlier[0].shape[-2]
            where = batch.earlier_places or everywhere_alike(count)
            whole = count - count % where.width
            self.earlier = (
                with_whole(batch.earlier[0].reshape(self.rows, count, points)[:, :whole]),
                with_whole(batch.earlier[1].reshape(self.rows, count, points)[:, :whole]),
            )
            self.earlier_places = where.first(whole)
        self.unresolved = np.zeros(self.rows, dtype=np.bool_)
        if self.earlier is not None:
            resolved = self._resolved(looks, beta)
            most = np.maximum(with_whole(self._rows(batch.most_margin, points)), self.margin)
            self.unresolved = np.any(resolved > most, axis=-1)
            self.margin = np.maximum(self.margin, np.minimum(resolved, most))
        # With one look no earlier one has picked what is tried, so all pairs count and all series share.
        self.shares = self.earlier is not None or len(looks) == 1 or self._share_what_varies(looks)
        self.outcome = np.zeros(self.rows, dtype=np.int64)
        self.reason = np.full(self.rows, int(Reason.TOO_FEW_PAIRS))
        self.flagged = np.zeros(self.rows, dtype=np.int64)
        self.used = np.zeros(self.rows, dtype=np.int64)
        self.level = np.full(self.rows, alpha / len(looks) / self.columns)
        self.running = np.ones(self.rows, dtype=np.bool_)

    def _rows(self, values: ArrayLike, last: int) -> Floats:
        values = np.asarray(values, dtype=np.float64)
        return np.broadcast_to(values, (*self.shape, last)).reshape(self.rows, last)

    def _share_what_varies(self, looks: Sequence[int]) -> bool:
        """Whether pairs before and after a look share a host or a boot that differs from others."""
        if self.places.kind == "rotated":
            return True
        boot = self.places.boot
        stated = np.asarray(self.noise.between) > SHARED_BOOT * np.asarray(self.noise.sigma)[:, -1:]
        varies = bool(np.any(stated)) or len(np.unique(boot)) > 1
        return varies and any(set(boot[:look]) & set(boot[look:]) for look in looks[:-1])

    def _resolved(self, looks: Sequence[int], beta: float) -> Floats:
        """Return the margin of a change that the last look resolves, from what is known beforehand."""
        assert self.earlier is not None
        last = max(looks[-1], LOOKS[-1]) * self.places.width
        return resolved_margin(self.noise, last, self.earlier[0].shape[-2], beta / len(looks))

    def bounds(self, level: float) -> tuple[Floats, Floats, Floats]:
        """Return mean, lower and upper bound of every series from all of its pairs."""
        mean, low, high = (np.full((self.rows, self.columns), np.nan) for _ in range(3))
        groups = np.unique(np.stack([self.used, self.start()]), axis=1).T
        for pairs, start in groups if self.pairs else ():
            rows = np.flatnonzero((self.used == pairs) & (self.start() == start))
            every = self.estimate(rows, self.pairs, 0, convict=False)
            # Too few pairs for the first look are shown all the same.
            fresh = self.estimate(rows, int(pairs) or self.pairs, int(start), convict=True)
            if every is not None:
                mean[rows] = every.mean
                high[rows] = every.mean + every.reach(level)
                low[rows] = every.mean - every.reach(level)
            if fresh is not None:
                low[rows] = fresh.mean - fresh.reach(self.level[rows, None])
        return mean, np.minimum(low, mean), high

    def start(self) -> Ints:
        """Return the first pair that a conviction counts, shape (n_rows,): 0 where all pairs do."""
        late = (self.flagged > 0) & (self.flagged < self.used) & (not self.shares)
        return np.where(late, self.flagged, 0)

    def estimate(self, rows: NDArray[np.int64], pairs: int, start: int, convict: bool) -> Estimate | None:
        """Return the overhead, or its change, from the first `pairs` pairs: a mean of those after `start`."""
        cut = pairs * self.places.width
        noise = Noise(
            np.asarray(self.noise.sigma)[rows], np.asarray(self.noise.df)[rows],
            np.asarray(self.noise.between)[rows], self.noise.between_df,
        )  # fmt: skip
        now = (self.native[rows, :cut], self.virtual[rows, :cut])
        places = self.places.first(cut)
        if self.earlier is None:
            return overhead(*now, places, noise, convict=convict, start=start)
        before = (self.earlier[0][rows], self.earlier[1][rows])
        return change(now, places, before, self.earlier_places, noise, convict=convict)


def judge(
    batches: Sequence[Batch],
    *,
    alpha: float = ALPHA,
    beta: float = BETA,
    looks: Sequence[int] = LOOKS,
    drive: bool = False,
) -> list[Judgement]:
    """Judge the series of a session together; or those of many sessions, each for itself.

    At every look, in turn:

    1. A series is WITHIN where at every size the upper bound, from all of its pairs, is below budget +
    margin.
       What is not is *flagged*, once.
    2. A flagged series is OVER where at some size, or for the whole curve, the lower bound is above the
    budget.
       The bound is that of the pairs after the flag; where those share what varies with the pairs before it
       (a host, a boot, an earlier session), all pairs count, and every judged series counts as flagged.
       The error rate has an equal share for each look, is divided among the flagged series of the session
       (Holm 1979) and, within a curve, among its sizes and the whole (Bonferroni). OVER stands.
    3. INVALID is what is too good to be true, what hosts or the earlier session forbid to answer, and what
    the
       session's own spread forbids.

    Parameters
    ----------
    batches
        Series of the same sessions: all have the same first axis.
    alpha, beta
        Error rates; see `ALPHA` and `BETA`.
    looks
        Numbers of pairs. A session that stopped between two looks is judged at the later one's share.
    drive
        Stop every series at its first answer, as whoever runs the pairs would. Otherwise all pairs that are
        given are judged, and an early answer other than OVER does not stand.

    Returns
    -------
    list of Judgement
        One for each batch.

    Raises
    ------
    ValueError
        If the batches are of different numbers of sessions, a batch has more or fewer pairs than places, or a
        value is no number.
    """
    state = [_Series(batch, looks, alpha, beta) for batch in batches]
    if len({one.shape[0] for one in state}) > 1:
        raise ValueError("batches of one call hold the same sessions.")
    for index, look in enumerate(looks):
        last = index == len(looks) - 1
        tried, flagged = [], []
        for one in state:
            flagged.append(one.flagged > 0)  # before this look: what it flags itself, later ones try
            # All pairs that were run count: those beyond the last look, and those since the look before.
            reached = one.pairs >= look or (index > 0 and one.pairs > looks[index - 1])
            pairs = one.pairs if last else min(look, one.pairs)
            active = np.flatnonzero(one.running) if reached else np.zeros(0, dtype=np.int64)
            before = one.flagged[active]
            if len(active):
                _acquit(one, active, pairs, beta / len(looks))
            tried.append((_evidence(one, active, before, pairs, look), active))
        _convict(state, [p for p, _ in tried], flagged, alpha, looks)
        for one, (_, active) in zip(state, tried, strict=True):
            if len(active):
                _refuse(one, active, beta / len(looks), looks)
            if drive:
                one.running &= one.outcome == Code.UNDECIDED
    return [_judgement(one, None if drive else beta / len(looks)) for one in state]


def _judgement(one: _Series, level: float | None) -> Judgement:
    answer = Judgement(
        outcome=one.outcome.reshape(one.shape),
        reason=one.reason.reshape(one.shape),
        pairs=one.used.reshape(one.shape),
        flagged=one.flagged.reshape(one.shape),
        margin=one.margin[:, : one.points].reshape(*one.shape, one.points),
        level=one.level.reshape(one.shape),
    )
    if level is None:
        return answer
    mean, low, high = (x.reshape(*one.shape, one.columns) for x in one.bounds(level))
    return replace(answer, mean=mean, low=low, high=high)


def _acquit(one: _Series, rows: NDArray[np.int64], pairs: int, level: float) -> None:
    """Say WITHIN, or flag; and what is too good to be true."""
    estimate = one.estimate(rows, pairs, 0, convict=False)
    open_ = one.outcome[rows] != Code.OVER
    one.used[rows[open_]] = pairs
    if estimate is None:
        one.flagged[rows] = np.where(one.flagged[rows] == 0, pairs, one.flagged[rows])
        return
    within = np.all(estimate.above(one.limit[rows] + one.margin[rows]) < level, axis=-1)
    # Of a curve its mean is asked: one size at which the guest is faster may be another protocol.
    too_good = estimate.above(one.floor)[..., -1] < level
    within &= ~one.unresolved[rows]
    one.flagged[rows] = np.where((one.flagged[rows] == 0) & ~within, pairs, one.flagged[rows])
    outcome = np.where(within, Code.WITHIN, Code.UNDECIDED)
    reason = np.where(within, Reason.NONE, Reason.OPEN)
    hidden = within & one.censored[rows]
    outcome[hidden], reason[hidden] = Code.UNDECIDED, Reason.CENSORED
    outcome[too_good], reason[too_good] = Code.INVALID, Reason.TOO_GOOD
    one.outcome[rows[open_]] = outcome[open_]
    one.reason[rows[open_]] = reason[open_]


def _evidence(
    one: _Series, rows: NDArray[np.int64], flagged: NDArray[np.int64], pairs: int, look: int
) -> Floats:
    """Return each series' p-value of "within budget"; infinite where it cannot be convicted at this look."""
    p = np.full(one.rows, np.inf)
    if one.shares:
        groups = [(rows, 0)] if len(rows) else []
    else:
        # Where a session stopped between two looks, one fresh pair may say nothing of its own noise.
        starts = [int(start) for start in np.unique(flagged[flagged > 0])]
        enough = [start for start in starts if pairs - start >= min(LOOKS[0], look - start)]
        groups = [(rows[flagged == start], start) for start in enough]
    for some, start in groups:
        estimate = one.estimate(some, pairs, start, convict=True)
        if estimate is not None:
            p[some] = np.min(estimate.below(one.limit[some]), axis=-1) * one.columns
    return p.reshape(one.shape)


def _convict(
    state: Sequence[_Series],
    evidence: Sequence[Floats],
    flagged: Sequence[Bools],
    alpha: float,
    looks: Sequence[int],
) -> None:
    """Say OVER, by Holm's procedure over the series of each session that can be convicted."""
    share = [alpha / (len(looks) - (not one.shares)) for one in state]
    # Series whose pairs are all fresh cannot be convicted at the first look, so their looks are one fewer.
    p = np.concatenate([values / level for values, level in zip(evidence, share, strict=True)], axis=1)
    # All that were ever flagged share, also those that have been acquitted since: who is left of them was
    # left by the very pairs that are tried now.
    family = np.concatenate(
        [
            ((before | one.shares) & (one.outcome != Code.OVER)).reshape(one.shape)
            for one, before in zip(state, flagged, strict=True)
        ],
        axis=1,
    )
    p = np.where(family, p, np.inf)
    family_size = family.sum(axis=1, keepdims=True)
    order = np.sort(p, axis=1)
    rank = np.arange(p.shape[1])
    passed = np.logical_and.accumulate(order * np.maximum(family_size - rank, 1) <= 1, axis=1)
    count = passed.sum(axis=1)
    threshold = np.where(
        count > 0, np.take_along_axis(order, np.maximum(count - 1, 0)[:, None], 1)[:, 0], -1.0
    )
    convicted = p <= threshold[:, None]
    each = np.maximum(family_size - count[:, None], 1)
    start = 0
    for one, level in zip(state, share, strict=True):
        columns = slice(start, start + one.shape[1])
        start += one.shape[1]
        tried = np.isfinite(p[:, columns]).reshape(-1)
        shared = np.broadcast_to(level / each / one.columns, one.shape).reshape(-1)
        one.level[tried] = shared[tried]
        mine = convicted[:, columns].reshape(-1)
        one.outcome[mine] = Code.OVER
        one.reason[mine] = Reason.NONE


def _refuse(one: _Series, rows: NDArray[np.int64], level: float, looks: Sequence[int]) -> None:
    """Say INVALID where no number of pairs would give an answer."""
    rows = rows[one.outcome[rows] == Code.UNDECIDED]
    if not len(rows):
        return
    pairs = int(one.used[rows[0]])
    if math.isinf(_bias(one)):
        one.outcome[rows], one.reason[rows] = Code.INVALID, Reason.HOSTS
        return
    unresolved = rows[one.unresolved[rows]]
    estimate = one.estimate(unresolved, pairs, 0, convict=True) if len(unresolved) else None
    if estimate is not None:
        # More pairs are worth their time only where they might convict.
        calm = np.all(estimate.mean <= one.limit[unresolved], axis=-1) | (pairs >= looks[-1])
        one.outcome[unresolved[calm]], one.reason[unresolved[calm]] = Code.INVALID, Reason.MARGIN
    rows = rows[~one.unresolved[rows] & (one.reason[rows] == Reason.OPEN)]
    if pairs < SPREAD_FROM or not len(rows) or one.places.kind == "rotated":
        return
    estimate = one.estimate(rows, pairs, 0, convict=True)
    if estimate is None or estimate.spread_df < 1:
        return
    # At the last look the spread counts as it was seen, before only where even its kind reading is too wide.
    df = estimate.spread_df
    kind = 1.0 if pairs >= looks[-1] else df / float(special.chdtri(df, 1 - FOUND))
    # Fewer pairs may be allowed than the rule asks for: that is no noise.
    most = max(looks[-1], LOOKS[-1])
    reach = -special.stdtrit(most - 1.0, level) * estimate.spread * math.sqrt(kind / most)
    limit, margin = one.limit[rows], one.margin[rows]
    hopeless = np.any(reach > margin, axis=-1)
    near = np.all(estimate.mean + reach < limit + margin, axis=-1) | np.any(
        estimate.mean - reach > limit, axis=-1
    )
    if pairs < looks[-1]:
        hopeless &= ~near
    one.outcome[rows[hopeless]], one.reason[rows[hopeless]] = Code.INVALID, Reason.NOISE


def _bias(one: _Series) -> float:
    """Return how far hosts may have moved the answer."""
    if one.earlier is None:
        return one.places.bias
    return 0.0 if one.places.cancels(one.earlier_places) else one.places.bias + one.earlier_places.bias


@dataclass(frozen=True)
class SizeRange:
    """A contiguous range of sizes that is over budget.

    Parameters
    ----------
    start, stop
        Half-open range of points.
    mean, low
        Mean overhead over the range, and the highest lower bound of its sizes (of the whole curve where none
        is over by itself), in log units.
    """

    start: int
    stop: int
    mean: float
    low: float


def spans(batch: Batch, judged: Judgement, looks: Sequence[int] = LOOKS) -> list[SizeRange]:
    """Name the contiguous ranges in which one series that is OVER is over budget, the worst first.

    That there is something was decided size by size. Where it is, is the range whose sizes stand out most
    together (the sum of their excesses over their errors, by the root of their number); then the next one
    that does not touch it, as long as a size outside the ranges named is over by itself.

    Parameters
    ----------
    batch, judged
        What was judged, and what came out, of one series (`only`); not with `drive`.
    looks
        See `judge`.
    """
    one = _Series(batch, looks, ALPHA, BETA)
    one.used, one.flagged = judged.pairs.reshape(-1), judged.flagged.reshape(-1)
    estimate = one.estimate(np.array([0]), int(one.used[0]), int(one.start()[0]), convict=True)
    assert estimate is not None  # it was convicted by it
    level, points = float(judged.level[0, 0]), one.points
    mean, limit = estimate.mean[0], one.limit[0]
    standing = ((mean - limit) / np.sqrt(estimate.variance[0]))[:points]
    low = mean - estimate.reach(level)[0]
    alone = (estimate.below(limit)[0] <= level * (1 + 1e-9))[:points]
    total = np.append(0.0, np.cumsum(standing))
    free, found = np.ones(points, dtype=np.bool_), list[SizeRange]()
    while not found or np.any(alone & free):
        i, j = max(
            ((i, j) for i in range(points) for j in range(i + 1, points + 1) if np.all(free[i:j])),
            key=lambda ends: (total[ends[1]] - total[ends[0]]) / math.sqrt(ends[1] - ends[0]),
        )
        lower = float(np.max(low[i:j])) if np.any(alone[i:j]) else float(low[-1])
        found.append(SizeRange(i, j, float(np.mean(mean[i:j])), lower))
        free[max(i - 1, 0) : j + 1] = False
        if not np.any(free):
            break
    return found


def only(batch: Batch, judged: Judgement, session: int, series: int) -> tuple[Batch, Judgement]:
    """Return one series of a batch, and what came out of it, as if it had been judged alone."""
    shape = judged.outcome.shape

    def cut(values: Any) -> Any:
        values = np.asarray(values)
        full = np.broadcast_to(values, (*shape, *values.shape[2:])) if values.ndim > 1 else values
        return full[session : session + 1, series : series + 1] if values.ndim > 1 else values

    def cut_all(part: Any) -> dict[str, Any]:
        return {
            name: cut(value)
            for name in part.__dataclass_fields__
            if isinstance(value := getattr(part, name), np.ndarray)
        }

    earlier = None if batch.earlier is None else (cut(batch.earlier[0]), cut(batch.earlier[1]))
    noise = replace(batch.noise, **cut_all(batch.noise))
    return replace(batch, **cut_all(batch), noise=noise, earlier=earlier), replace(judged, **cut_all(judged))


def resolved_margin(noise: Noise, pairs: int, earlier_pairs: int, level: float) -> Floats:
    """Return the smallest margin of a change with which an allowed change is WITHIN in 95 % of cases.

    Parameters
    ----------
    noise
        Known beforehand. What the session itself shows does not count, so that a loud one cannot widen its
        own margin.
    pairs, earlier_pairs
        Of the two sessions.
    level
        Of the upper bound.
    """
    df = np.asarray(noise.df) + pairs - 1
    variance = (
        np.asarray(noise.sigma) ** 2 * (1 / pairs + 1 / earlier_pairs) + 2 * np.asarray(noise.between) ** 2
    )
    resolved: Floats = (special.stdtrit(df, FOUND) - special.stdtrit(df, level)) * np.sqrt(variance)
    return resolved


def earlier_pairs_needed(noise: Noise, margin: float = WIDEST, looks: Sequence[int] = LOOKS) -> float:
    """Return how many pairs an earlier session needs for a margin; infinite where no number would do."""
    df = np.asarray(noise.df) + looks[-1] - 1
    factor = special.stdtrit(df, FOUND) - special.stdtrit(df, BETA / len(looks))
    sigma = np.asarray(noise.sigma)
    left = (margin / factor) ** 2 - 2 * np.asarray(noise.between) ** 2 - sigma**2 / looks[-1]
    with np.errstate(divide="ignore"):
        needed = np.where(left > 0, sigma**2 / np.maximum(left, 1e-300), np.inf)
    worst = float(np.max(needed))
    return worst if math.isinf(worst) else max(math.ceil(worst), looks[0])
