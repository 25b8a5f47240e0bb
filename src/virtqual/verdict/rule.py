"""The decision: when an overhead is over budget, when it is within, and when neither is sure.

``docs/decision.md`` explains it. The functions take many sessions at once, so that simulations run the very
code that judges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from virtqual.verdict.budget import MAX_CHANGE_MARGIN
from virtqual.verdict.estimate import Bools, Estimate, Floats, Ints, Noise, append_mean
from virtqual.verdict.outcome import Outcome
from virtqual.verdict.overhead import change, overhead
from virtqual.verdict.places import Places, everywhere_alike

LOOKS = (4, 8, 12, 18)
"""After how many pairs a decision is tried. Four come first, and a conviction needs four that are fresh:
fewer say little of their own noise, and an odd number favours the side that runs first. Each later look has
half as many again, since the error shrinks with the root. If 18 pairs do not suffice, a quieter machine is
needed."""

ALPHA = 0.008
"""Chance that a session calls anything OVER although every true overhead is within its budget. Together with
`virtqual.verdict.slow_runs.SLOW_ALPHA` it makes the 1 % that is promised."""

BETA = 0.03
"""Chance that a series passes although its true overhead is budget plus margin. 5 % is promised; the rest
is kept for nights with noise that is half as large again as in the history."""

FLOOR = math.log(0.9)
"""A guest that is faster than native by more than a tenth has a wrong clock or unit, or a disturbed native
run. Placement and page sizes have been seen to make a guest a few per cent faster."""

WIDEST_MARGIN = math.log1p(MAX_CHANGE_MARGIN)
"""Widest margin of a change in log units, if no file states another one."""

SPREAD_MIN_PAIRS = 6
"""Pairs from which a session's own spread can refuse it: with fewer than five degrees of freedom a spread
cannot be told from its half."""

SHARED_BOOT = 0.5
"""If boots vary by more than this many standard deviations of a pair, pairs of one boot are not treated as
independent: the boot would dominate the mean of four pairs."""

ANSWER_RATE = 0.95
"""Chance of the intended answer with the number of pairs that a message recommends."""


class Cause(IntEnum):
    """The cause for which a series is UNDECIDED or INVALID."""

    ANSWERED = 0
    TOO_FEW_PAIRS = 1
    """Fewer than the first look has, or an exchange with one direction only."""
    OPEN = 2
    """Neither answer is sure enough."""
    CENSORED = 3
    """More virtual runs were refused than native ones, two or more: the missing runs might decide."""
    TOO_GOOD = 4
    """Surely faster than native by more than `FLOOR`."""
    NOISE = 5
    """The session's own spread is too wide for the margin, however many pairs are run."""
    MARGIN = 6
    """The earlier session has too few pairs for the widest margin."""
    HOSTS = 7
    """Different hosts have fixed roles, and their difference is unknown."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Series of one shape: as many pairs, sizes and places each; of one session or of many.

    A ValueError is raised if a batch has more or fewer pairs than places, or if a value is no number.

    Parameters
    ----------
    native, virtual
        Logarithms of the cost of each run (larger is worse), shape (n_sessions, n_series, n_pairs, n_points).
    limit, margin, max_margin
        Budget, margin and widest margin of a change, log units, broadcastable to (n_sessions, n_series,
        n_points).
    noise
        A column for each size and a last one for their mean (`virtqual.verdict.estimate.append_mean`),
        broadcastable to (n_sessions, n_series, n_columns).
    places, earlier_places
        Where the pairs ran; None: all on one host in one boot.
    refused_native, refused_virtual
        Number of refused runs of each side, broadcastable to (n_sessions, n_series).
    earlier
        Native and virtual logarithms of the earlier session; if given, the change since is judged.
    looks
        After how many pairs a decision is tried, in all batches of a call. A session that stopped between two
        looks is judged at the later one's share.
    alpha
        Error rate of OVER in a session; see `ALPHA`.
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
    max_margin: ArrayLike = WIDEST_MARGIN
    looks: Sequence[int] = LOOKS
    alpha: float = ALPHA

    def __post_init__(self) -> None:
        pairs = self.virtual.shape[-2]
        if self.places is not None and len(self.places.native) != pairs:
            raise ValueError(f"{pairs} pairs, places of {len(self.places.native)}.")
        if not (np.all(np.isfinite(self.native)) and np.all(np.isfinite(self.virtual))):
            raise ValueError("a value is no number: leave its pair out.")


class BatchState:
    """A batch with its series in rows, those of a session after each other, and the answers so far.

    Attributes
    ----------
    outcome, cause
        Values of `Outcome.code` and `Cause`, shape (n_rows,) as of all that follow.
    used
        Pairs at the look that decided (of a rotation: rounds).
    flagged
        Pairs after which a series was flagged, 0 if it never was: only later pairs convict.
    level
        Error rate that a conviction had at its last look, at one size of one series.
    running
        Rows that are still looked at: all of them, unless a simulation stops a series at its first answer.
    margin
        The margin that is used, wider than stated only if a change is judged, shape (n_rows, n_columns).
    mean, low, high
        Estimate from all pairs, lower bound at `level` and upper bound at the level of an acquittal, in log
        units, shape as `margin`; NaN if there is no estimate.
    next_pairs
        Pairs that the next look of an open series needs, 0 if there is none, shape (n_rows,).
    """

    def __init__(self, batch: Batch) -> None:
        sessions, series, pairs, points = batch.virtual.shape
        self.places = batch.places or everywhere_alike(pairs)
        self.looks = batch.looks
        self.pass_level = BETA / len(self.looks)
        self.shape = (sessions, series)
        self.rows = sessions * series
        self.pairs = pairs // self.places.width
        self.points = points
        self.native = append_mean(batch.native.reshape(self.rows, pairs, points))
        self.virtual = append_mean(batch.virtual.reshape(self.rows, pairs, points))
        self.columns = self.virtual.shape[-1]
        self.limit = append_mean(self._rows(batch.limit, points))
        self.margin = append_mean(self._rows(batch.margin, points))
        sigma, df, between = batch.noise.sigma, batch.noise.df, batch.noise.between
        self.noise = Noise(
            self._rows(sigma, self.columns), self._rows(df, 1), self._rows(between, 1), batch.noise.between_df
        )
        refused = (batch.refused_virtual, batch.refused_native)
        virtual, native = (self._rows(np.asarray(count)[..., None], 1)[:, 0] for count in refused)
        self.censored: Bools = (virtual >= 2) & (virtual > native)
        self.floor = FLOOR if batch.earlier is None else -math.inf
        self.earlier: tuple[Floats, Floats] | None = None
        self.unresolved = np.zeros(self.rows, dtype=np.bool_)
        if batch.earlier is not None:
            self._set_earlier(batch, batch.earlier)
        # With one look no earlier one has picked what is tried, so all pairs count and all series share.
        self.shares = self.earlier is not None or len(self.looks) == 1 or self._shares_hosts_or_boots()
        # Series whose pairs are all fresh cannot be convicted at the first look: they have one look fewer.
        self.look_alpha = batch.alpha / (len(self.looks) - (not self.shares))
        self.outcome = np.full(self.rows, Outcome.UNDECIDED.code)
        self.cause = np.full(self.rows, int(Cause.TOO_FEW_PAIRS))
        self.flagged = np.zeros(self.rows, dtype=np.int64)
        self.used = np.zeros(self.rows, dtype=np.int64)
        self.level = np.full(self.rows, batch.alpha / len(self.looks) / self.columns)
        self.running = np.ones(self.rows, dtype=np.bool_)
        self.next_pairs = np.zeros(self.rows, dtype=np.int64)
        self.mean, self.low, self.high = (np.full((self.rows, self.columns), np.nan) for _ in range(3))

    def _set_earlier(self, batch: Batch, earlier: tuple[Floats, Floats]) -> None:
        """Set the earlier session in whole rounds, and the margin that both sessions resolve."""
        count = earlier[0].shape[-2]
        places = batch.earlier_places or everywhere_alike(count)
        pairs = count - count % places.width
        native, virtual = (
            append_mean(values.reshape(self.rows, count, self.points)[:, :pairs]) for values in earlier
        )
        self.earlier = (native, virtual)
        self.earlier_places = places.first(pairs)
        last = max(self.looks[-1], LOOKS[-1]) * self.places.width
        resolved = resolved_margin(self.noise, last, pairs, self.pass_level)
        widest = np.maximum(append_mean(self._rows(batch.max_margin, self.points)), self.margin)
        self.unresolved = np.any(resolved > widest, axis=-1)
        self.margin = np.maximum(self.margin, np.minimum(resolved, widest))

    def _rows(self, values: ArrayLike, last: int) -> Floats:
        values = np.asarray(values, dtype=np.float64)
        return np.broadcast_to(values, (*self.shape, last)).reshape(self.rows, last)

    def _shares_hosts_or_boots(self) -> bool:
        """Return whether pairs before and after a look share a host or a boot that differs from others."""
        if self.places.kind == "rotated":
            return True
        boot = self.places.boot
        stated = np.asarray(self.noise.between) > SHARED_BOOT * np.asarray(self.noise.sigma)[:, -1:]
        varies = bool(np.any(stated)) or len(np.unique(boot)) > 1
        return varies and any(set(boot[:look]) & set(boot[look:]) for look in self.looks[:-1])

    @property
    def host_bias(self) -> float:
        """How far a difference of hosts may have moved the answer, in log units."""
        if self.earlier is None:
            return self.places.bias
        if self.places.cancels(self.earlier_places):
            return 0.0
        return self.places.bias + self.earlier_places.bias

    @property
    def start(self) -> Ints:
        """The first pair that a conviction counts, shape (n_rows,): 0 if all pairs count."""
        late = (self.flagged > 0) & (self.flagged < self.used) & (not self.shares)
        return np.where(late, self.flagged, 0)

    def estimate(self, rows: NDArray[np.int64], pairs: int, start: int, convict: bool) -> Estimate | None:
        """Return the overhead, or its change, from the first `pairs` pairs: a mean of those after `start`."""
        cut = pairs * self.places.width
        noise = self.noise_of(rows)
        now = (self.native[rows, :cut], self.virtual[rows, :cut])
        places = self.places.first(cut)
        if self.earlier is None:
            return overhead(*now, places, noise, convict=convict, start=start)
        before = (self.earlier[0][rows], self.earlier[1][rows])
        return change(now, places, before, self.earlier_places, noise, convict=convict)

    def noise_of(self, rows: Ints) -> Noise:
        """Return the known noise of some rows."""
        sigma, df, between = (
            np.asarray(values)[rows] for values in (self.noise.sigma, self.noise.df, self.noise.between)
        )
        return Noise(sigma, df, between, self.noise.between_df)

    def conclude(self) -> None:
        """Set mean and bounds of every series from all of its pairs, and the pairs of its next look."""
        groups = np.unique(np.stack([self.used, self.start]), axis=1).T
        for pairs, start in groups if self.pairs else ():
            rows = np.flatnonzero((self.used == pairs) & (self.start == start))
            estimate = self.estimate(rows, self.pairs, 0, convict=False)
            # A series with too few pairs for the first look is shown as well.
            fresh = self.estimate(rows, int(pairs) or self.pairs, int(start), convict=True)
            if estimate is not None:
                self.mean[rows] = estimate.mean
                self.high[rows] = estimate.mean + estimate.reach(self.pass_level)
                self.low[rows] = estimate.mean - estimate.reach(self.pass_level)
            if fresh is not None:
                self.low[rows] = fresh.mean - fresh.reach(self.level[rows, None])
        self.low = np.minimum(self.low, self.mean)
        following = np.array([*self.looks, 0])[np.searchsorted(self.looks, self.used, side="right")]
        is_open = (self.outcome == Outcome.UNDECIDED.code) & (self.cause != Cause.CENSORED)
        self.next_pairs = np.where(is_open, following, 0)


def judge(batches: Sequence[Batch]) -> list[BatchState]:
    """Judge the series of a session together; or those of many sessions, each for itself.

    All pairs that are given are judged, and an early answer other than OVER does not stand. At every look:

    1. A series is WITHIN if at every size the upper bound, from all of its pairs, is below budget + margin.
       A series that is not WITHIN is *flagged*, once.
    2. A flagged series is OVER if at some size, or for the whole curve, the lower bound is above the budget.
       The bound comes from the pairs after the flag. If those share a host, a boot or an earlier session
       with the pairs before the flag, all pairs count, and every judged series counts as flagged.
       The error rate has an equal share for each look, is divided among the flagged series of the session
       (Holm 1979) and, within a curve, among its sizes and the whole (Bonferroni). OVER stands.
    3. A series is INVALID if it is too good to be true, or if hosts, the earlier session or the session's own
       spread forbid an answer.

    Raises
    ------
    ValueError
        If the batches are of different numbers of sessions.
    """
    states = [BatchState(batch) for batch in batches]
    if len({state.shape[0] for state in states}) > 1:
        raise ValueError("batches of one call hold the same sessions.")
    for index in range(len(states[0].looks)):
        decide(states, index)
    for state in states:
        state.conclude()
    return states


def decide(states: Sequence[BatchState], index: int) -> None:
    """Take the look of this index: write the answers into the states; see `judge`."""
    looks = states[0].looks
    look, is_last = looks[index], index == len(looks) - 1
    evidence, flagged, looked = [], [], []
    for state in states:
        flagged.append(state.flagged > 0)  # series that this look flags are tried by later looks
        # All pairs that were run count: those beyond the last look, and those since the look before.
        is_reached = state.pairs >= look or (index > 0 and state.pairs > looks[index - 1])
        pairs = state.pairs if is_last else min(look, state.pairs)
        rows = np.flatnonzero(state.running) if is_reached else np.zeros(0, dtype=np.int64)
        before = state.flagged[rows]
        if len(rows):
            _acquit(state, rows, pairs)
        evidence.append(_evidence(state, rows, before, pairs, look))
        looked.append(rows)
    _convict(states, evidence, flagged)
    for state, rows in zip(states, looked, strict=True):
        if len(rows):
            _refuse(state, rows)


def _acquit(state: BatchState, rows: NDArray[np.int64], pairs: int) -> None:
    """Call series WITHIN or too good to be true; flag the others."""
    estimate = state.estimate(rows, pairs, 0, convict=False)
    is_open = state.outcome[rows] != Outcome.OVER.code
    state.used[rows[is_open]] = pairs
    if estimate is None:
        state.flagged[rows] = np.where(state.flagged[rows] == 0, pairs, state.flagged[rows])
        return
    within = np.all(estimate.above(state.limit[rows] + state.margin[rows]) < state.pass_level, axis=-1)
    # The mean of a curve decides: at one size the guest may be faster by another protocol.
    too_good = estimate.above(state.floor)[..., -1] < state.pass_level
    within &= ~state.unresolved[rows]
    state.flagged[rows] = np.where((state.flagged[rows] == 0) & ~within, pairs, state.flagged[rows])
    outcome = np.where(within, Outcome.WITHIN.code, Outcome.UNDECIDED.code)
    cause = np.where(within, Cause.ANSWERED, Cause.OPEN)
    censored = within & state.censored[rows]
    outcome[censored], cause[censored] = Outcome.UNDECIDED.code, Cause.CENSORED
    outcome[too_good], cause[too_good] = Outcome.INVALID.code, Cause.TOO_GOOD
    state.outcome[rows[is_open]] = outcome[is_open]
    state.cause[rows[is_open]] = cause[is_open]


def _evidence(
    state: BatchState, rows: NDArray[np.int64], flagged: NDArray[np.int64], pairs: int, look: int
) -> Floats:
    """Return each series' p-value of "within budget"; infinite if it cannot be convicted at this look."""
    p = np.full(state.rows, np.inf)
    if state.shares:
        groups = [(rows, 0)] if len(rows) else []
    else:
        # If a session stopped between two looks, one fresh pair may say nothing of its own noise.
        starts = [int(start) for start in np.unique(flagged[flagged > 0])]
        enough = [start for start in starts if pairs - start >= min(LOOKS[0], look - start)]
        groups = [(rows[flagged == start], start) for start in enough]
    for members, start in groups:
        estimate = state.estimate(members, pairs, start, convict=True)
        if estimate is not None:
            p[members] = np.min(estimate.below(state.limit[members]), axis=-1) * state.columns
    return p.reshape(state.shape)


def _convict(states: Sequence[BatchState], evidence: Sequence[Floats], flagged: Sequence[Bools]) -> None:
    """Call series OVER, by Holm's procedure over the series of each session that can be convicted."""
    p = np.concatenate(
        [values / state.look_alpha for values, state in zip(evidence, states, strict=True)], axis=1
    )
    # All series that were ever flagged share, also those acquitted since: the pairs that are tried now are
    # the ones that acquitted them.
    family = np.concatenate(
        [
            ((before | state.shares) & (state.outcome != Outcome.OVER.code)).reshape(state.shape)
            for state, before in zip(states, flagged, strict=True)
        ],
        axis=1,
    )
    p = np.where(family, p, np.inf)
    family_size = family.sum(axis=1, keepdims=True)
    order = np.sort(p, axis=1)
    rank = np.arange(p.shape[1])
    passed = np.logical_and.accumulate(order * np.maximum(family_size - rank, 1) <= 1, axis=1)
    count = passed.sum(axis=1)
    largest = np.take_along_axis(order, np.maximum(count - 1, 0)[:, None], 1)[:, 0]
    convicted = p <= np.where(count > 0, largest, -1.0)[:, None]
    remaining = np.maximum(family_size - count[:, None], 1)
    start = 0
    for state in states:
        columns = slice(start, start + state.shape[1])
        start += state.shape[1]
        tried = np.isfinite(p[:, columns]).reshape(-1)
        level = np.broadcast_to(state.look_alpha / remaining / state.columns, state.shape).reshape(-1)
        state.level[tried] = level[tried]
        rows = convicted[:, columns].reshape(-1)
        state.outcome[rows] = Outcome.OVER.code
        state.cause[rows] = Cause.ANSWERED


def _refuse(state: BatchState, rows: NDArray[np.int64]) -> None:
    """Call series INVALID if no number of pairs would give an answer."""
    rows = rows[state.outcome[rows] == Outcome.UNDECIDED.code]
    if not len(rows):
        return
    pairs, last_look = int(state.used[rows[0]]), state.looks[-1]
    if math.isinf(state.host_bias):
        state.outcome[rows], state.cause[rows] = Outcome.INVALID.code, Cause.HOSTS
        return
    unresolved = rows[state.unresolved[rows]]
    estimate = state.estimate(unresolved, pairs, 0, convict=True) if len(unresolved) else None
    if estimate is not None:
        # More pairs are worth their time only if they might convict.
        calm = np.all(estimate.mean <= state.limit[unresolved], axis=-1) | (pairs >= last_look)
        state.outcome[unresolved[calm]] = Outcome.INVALID.code
        state.cause[unresolved[calm]] = Cause.MARGIN
    rows = rows[~state.unresolved[rows] & (state.cause[rows] == Cause.OPEN)]
    if pairs < SPREAD_MIN_PAIRS or not len(rows) or state.places.kind == "rotated":
        return
    estimate = state.estimate(rows, pairs, 0, convict=True)
    if estimate is None or estimate.spread_df < 1:
        return
    # The last look takes the spread as it was seen; earlier ones refuse only if its kind reading is too wide.
    df = estimate.spread_df
    kindness = 1.0 if pairs >= last_look else df / float(special.chdtri(df, 1 - ANSWER_RATE))
    # Fewer pairs may be allowed than the rule asks for: that is no noise.
    max_pairs = max(last_look, LOOKS[-1])
    reach = (
        -special.stdtrit(max_pairs - 1.0, state.pass_level)
        * estimate.spread
        * math.sqrt(kindness / max_pairs)
    )
    limit, margin = state.limit[rows], state.margin[rows]
    hopeless = np.any(reach > margin, axis=-1)
    if pairs < last_look:
        nearly_within = np.all(estimate.mean + reach < limit + margin, axis=-1)
        nearly_over = np.any(estimate.mean - reach > limit, axis=-1)
        hopeless &= ~(nearly_within | nearly_over)
    state.outcome[rows[hopeless]], state.cause[rows[hopeless]] = Outcome.INVALID.code, Cause.NOISE


@dataclass(frozen=True)
class SizeRange:
    """A contiguous range of sizes that is over budget, with its mean overhead in log units.

    `low` is the highest lower bound of its sizes, or that of the whole curve if no size is over by itself.
    """

    sizes: slice
    mean: float
    low: float


def find_ranges(state: BatchState, row: int) -> list[SizeRange]:
    """Return the contiguous ranges in which one series that is OVER is over budget, the worst first.

    The conviction was decided size by size. The first range is the one whose sizes stand out most together
    (the sum of their excesses over their errors, by the root of their number). Further ranges that touch no
    earlier one follow, as long as a size outside the ranges is over by itself.
    """
    estimate = state.estimate(np.array([row]), int(state.used[row]), int(state.start[row]), convict=True)
    assert estimate is not None  # the series was convicted by it
    level, points = float(state.level[row]), state.points
    mean, limit = estimate.mean[0], state.limit[row]
    standing = ((mean - limit) / np.sqrt(estimate.variance[0]))[:points]
    low = mean - estimate.reach(level)[0]
    alone = (estimate.below(limit)[0] <= level * (1 + 1e-9))[:points]
    total = np.append(0.0, np.cumsum(standing))
    free, ranges = np.ones(points, dtype=np.bool_), list[SizeRange]()
    while not ranges or np.any(alone & free):
        i, j = max(
            ((i, j) for i in range(points) for j in range(i + 1, points + 1) if np.all(free[i:j])),
            key=lambda ends: (total[ends[1]] - total[ends[0]]) / math.sqrt(ends[1] - ends[0]),
        )
        lower = float(np.max(low[i:j])) if np.any(alone[i:j]) else float(low[-1])
        ranges.append(SizeRange(slice(i, j), float(np.mean(mean[i:j])), lower))
        free[max(i - 1, 0) : j + 1] = False
        if not np.any(free):
            break
    return ranges


def resolved_margin(noise: Noise, pairs: int, earlier_pairs: int, level: float) -> Floats:
    """Return the smallest margin of a change with which an allowed change is WITHIN in 95 % of cases.

    The upper bound has the error rate `level`. Only known noise counts: a loud session must not widen its own
    margin.
    """
    df = np.asarray(noise.df) + pairs - 1
    variance = (
        np.asarray(noise.sigma) ** 2 * (1 / pairs + 1 / earlier_pairs) + 2 * np.asarray(noise.between) ** 2
    )
    resolved: Floats = (special.stdtrit(df, ANSWER_RATE) - special.stdtrit(df, level)) * np.sqrt(variance)
    return resolved


def earlier_pairs_needed(noise: Noise, margin: float = WIDEST_MARGIN, looks: Sequence[int] = LOOKS) -> float:
    """Return the number of pairs that an earlier session needs for a margin; infinite if none would do."""
    df = np.asarray(noise.df) + looks[-1] - 1
    factor = special.stdtrit(df, ANSWER_RATE) - special.stdtrit(df, BETA / len(looks))
    sigma = np.asarray(noise.sigma)
    rest = (margin / factor) ** 2 - 2 * np.asarray(noise.between) ** 2 - sigma**2 / looks[-1]
    with np.errstate(divide="ignore"):
        needed = np.where(rest > 0, sigma**2 / np.maximum(rest, 1e-300), np.inf)
    worst = float(np.max(needed))
    return worst if math.isinf(worst) else max(math.ceil(worst), looks[0])
