"""The decision: when an overhead is over budget, when it is within, and when neither is sure.

Many sessions are judged at once, so that simulations run the very code that judges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import EllipsisType

import numpy as np
import scipy
from numpy.typing import ArrayLike

from virtqual.verdict.estimate import Bools, Estimate, Floats, Ints, Noise
from virtqual.verdict.outcome import Outcome
from virtqual.verdict.overhead import Runs, estimate_change, estimate_overhead

LOOKS = (2, 4, 8, 12, 18)
"""After how many pairs a decision is tried; 18 that do not suffice mean that a quieter machine is needed."""

MIN_PAIRS_TO_QUALIFY = 4
"""Pairs of each metric in a session that qualifies a build. If a tenth of the virtual runs take twice as
long, four pairs of nine checks lack them in 2 % of sessions, two pairs in 15 %."""

MIN_FRESH_PAIRS = 2
"""Pairs after the flag that a conviction needs: one pair says nothing of its own noise."""

MIN_BOOTS = 3
"""Boots that a conviction needs where VMs can be created anew: fewer do not show how boots differ."""

ALPHA = 0.008
"""Chance that a session calls anything OVER although every true overhead is within its budget. Together with
`virtqual.verdict.slow_runs.SLOW_ALPHA` it makes the 1 % that is promised."""

BETA = 0.03
"""Chance that a series passes although its true overhead is budget plus margin. 5 % is promised; the rest
is kept for nights with noise that is half as large again as in the history. The n-th session in a row that
tries to pass a series of a build has `BETA` / n^2, 4.9 % for all of them together: an overhead of budget plus
margin hardly passes, however often it is measured again."""

FLOOR = math.log(0.9)
"""A guest that is faster than native by more than a tenth has a wrong clock or unit, or a disturbed native
run. Placement and page sizes have been seen to make a guest a few per cent faster."""

ANSWER_RATE = 0.95
"""Chance of WITHIN for a change that is allowed, with the margin that is used."""

PLAUSIBLE = 0.05
"""A true overhead is plausible as long as a one-sided test at this level does not refuse it."""


class Ruling(IntEnum):
    """The outcome of a series, with the cause if it is UNDECIDED or INVALID."""

    WITHIN = 0
    OVER = 1
    TOO_FEW_PAIRS = 2
    """Fewer than the first look has, or an exchange with one direction only."""
    OPEN = 3
    """Neither answer is sure enough."""
    NOISE = 4
    """No plausible overhead would be answered at the last look."""
    BOOTS = 5
    """It would be OVER, but by fewer boots than `MIN_BOOTS`."""
    TOO_GOOD = 6
    """Surely faster than native by more than `FLOOR`."""
    HOSTS = 7
    """Different hosts have fixed roles, and their difference is unknown."""

    @property
    def outcome(self) -> Outcome:
        """The outcome alone."""
        if self in (Ruling.TOO_GOOD, Ruling.HOSTS):
            return Outcome.INVALID
        return Outcome[self.name] if self in (Ruling.WITHIN, Ruling.OVER) else Outcome.UNDECIDED


#: Those of a series that more pairs may decide.
_OPEN_RULINGS = (Ruling.TOO_FEW_PAIRS, Ruling.OPEN, Ruling.BOOTS)


@dataclass(frozen=True)
class SizeRange:
    """A contiguous range of sizes that is over budget, with its mean overhead in log units.

    `low` is the highest lower bound of its sizes, or that of the whole curve if no size is over by itself;
    `native` the mean logarithm of the native costs in the same pairs, see `RuleAnswer.native`.
    """

    sizes: slice
    mean: float
    low: float
    native: float


@dataclass(frozen=True, eq=False)
class RuleAnswer:
    """The answer on one series."""

    ruling: Ruling
    #: Pairs at the look that decided.
    used: int
    #: Pairs that the next look needs; None if none follows.
    next_pairs: int | None
    #: The margin and the reach of `Batch`, shape (n_points,).
    margin: Floats
    reach: Floats
    #: Estimate from all pairs with the bounds that WITHIN is decided by, log units, shape (n_columns, 3); of
    #: a series that is OVER the lower bound is that of the conviction. Infinite before the first look, NaN if
    #: there is no estimate.
    bounds: Floats
    #: The mean logarithm of the native costs, shape (n_columns,): of the same pairs with the same weights as
    #: the estimate in `bounds`. NaN if there is no estimate.
    native: Floats
    #: Those of `Batch.find_ranges` if the series is OVER.
    ranges: list[SizeRange]


@dataclass(eq=False)
class Batch:
    """Series of one shape (as many pairs, sizes and places each), and the rulings on them.

    Shapes are stated without the axes of the series, which lead; n_columns are the sizes of a curve and their
    mean. All parameters but the runs may be broadcast.

    Parameters
    ----------
    runs, earlier
        Shape (2, n_pairs, n_columns), in whole rounds; the change since an earlier session is judged.
    limit, margin, max_margin, bias
        Budget, margin, widest margin of a change, and how far a clock may have moved the mean, log units,
        shape (n_columns,) as of `noise`.
    session
        Number of the session of each series: a session has one error rate.
    attempt
        n if this is the n-th session in a row that tries to pass each series: one more than those before.
    floor
        Overhead below which each series is too good to be true, log units; minus infinity if none is.

    Attributes
    ----------
    ruling
        Values of `Ruling`.
    used, flagged
        Pairs (of a rotation: rounds) at the looks that decided and that flagged the series, 0 if none did.
    start, level
        First pair that the last try of a conviction counted, and its error rate at each size.
    beta
        Error rate of WITHIN over all looks, with a last axis of one column.
    reach
        How far the bound of an acquittal would lie from the mean at the last look, shape (n_columns,).
    """

    runs: Runs
    limit: Floats
    margin: Floats
    noise: Noise
    session: Ints | int = 0
    earlier: Runs | None = None
    max_margin: ArrayLike = 0.0
    bias: ArrayLike = 0.0
    attempt: Ints | int = 1
    floor: Floats | float = FLOOR
    ruling: Ints = field(init=False)

    def __post_init__(self) -> None:
        *series, _, pairs, columns = self.runs.logs.shape
        self.shape, self.width = tuple(series), self.runs.places.width
        self.pairs, self.points, self.columns = pairs // self.width, max(columns - 1, 1), columns
        full = (*series, columns)
        self.limit, self.margin = np.broadcast_to(self.limit, full), np.broadcast_to(self.margin, full)
        self.session = np.broadcast_to(self.session, self.shape)
        self._floor = np.broadcast_to(np.asarray(self.floor)[..., None], (*series, 1))
        self.beta = np.broadcast_to(BETA / np.asarray(self.attempt)[..., None] ** 2, (*series, 1))
        if self.earlier is not None:
            self._widen_margin(len(self.earlier.places.native))
        self.ruling = np.full(series, int(Ruling.TOO_FEW_PAIRS))
        self.used, self.flagged, self.start = np.zeros((3, *series), dtype=np.int64)
        self.running = np.ones(series, dtype=np.bool_)
        self.level = np.full(series, ALPHA / len(LOOKS) / columns)
        self.reach = np.full(full, np.nan)

    def _widen_margin(self, earlier_pairs: int) -> None:
        """Widen the margin of a change to what both sessions resolve, up to the widest one.

        Only known noise counts: a loud session must not widen its own margin.
        """
        pairs = LOOKS[-1] * self.width
        df = self.noise.df + pairs - 1
        variance = self.noise.sigma**2 * (1 / pairs + 1 / earlier_pairs) + 2 * self.noise.between**2
        t = scipy.special.stdtrit(df, ANSWER_RATE) - scipy.special.stdtrit(df, BETA / len(LOOKS))
        self.margin = np.clip(t * np.sqrt(variance), self.margin, np.maximum(self.max_margin, self.margin))

    @property
    def shares(self) -> bool:
        """The pairs before and after a look share hosts or an earlier session: no pair is ever fresh."""
        return self.earlier is not None or self.runs.places.kind == "rotated"

    def estimate(
        self, rows: Bools | EllipsisType, pairs: int, *, convict: bool, start: int = 0
    ) -> Estimate | None:
        """Return the overhead of some series, or its change, from the first pairs."""
        noise, full, single = self.noise, self.limit.shape, (*self.shape, 1)
        noise = Noise(
            np.broadcast_to(noise.sigma, full)[rows],
            np.broadcast_to(noise.df, single)[rows],
            np.broadcast_to(noise.between, single)[rows],
            noise.between_df,
        )
        runs = Runs(self.runs.logs[rows], self.runs.places).first(pairs * self.width)
        if self.earlier is None:
            estimate = estimate_overhead(runs, noise, convict=convict, start=start)
        else:
            earlier = Runs(self.earlier.logs[rows], self.earlier.places)
            estimate = estimate_change(runs, earlier, noise, convict=convict)
        if estimate is not None:
            estimate.bias = estimate.bias + np.broadcast_to(self.bias, full)[rows]
        return estimate

    def convict(self, pairs: int, level: Floats, *, all_pairs: bool, min_boots: int) -> None:
        """Call series OVER whose lower bound at `level` is above the budget, unless their boots are few."""
        tried = self.running & (self.ruling != Ruling.OVER)
        has_boots = len(set(self.runs.places.boot[: pairs * self.width])) >= min_boots
        for start in [0] if all_pairs else np.unique(self.flagged[tried & (self.flagged > 0)]).tolist():
            rows = tried if all_pairs else tried & (self.flagged == start)
            if pairs - start < MIN_FRESH_PAIRS or not np.any(rows):
                continue
            estimate = self.estimate(rows, pairs, convict=True, start=start)
            if estimate is None:
                continue
            self.start[rows], self.used[rows] = start, pairs
            self.level[rows] = level[rows] / self.columns
            p = np.min(estimate.tail(estimate.mean - self.limit[rows]), axis=-1)
            is_over = p <= self.level[rows]
            self.ruling[rows] = np.where(is_over, Ruling.OVER if has_boots else Ruling.BOOTS, Ruling.OPEN)

    def acquit(self, pairs: int, looks: int, *, may_acquit: bool, is_last: bool) -> None:
        """Call series that are not OVER WITHIN, UNDECIDED or INVALID; flag those that look over budget.

        `looks` is the number of looks that share the error rate.
        """
        rows = self.running & (self.ruling != Ruling.OVER)
        if not np.any(rows):
            return
        self.used[rows] = pairs
        is_high = np.zeros(np.count_nonzero(rows), dtype=np.bool_)
        ruling = np.full(is_high.shape, int(Ruling.TOO_FEW_PAIRS))
        if (estimate := self.estimate(rows, pairs, convict=False)) is not None:
            limit, margin, level = self.limit[rows], self.margin[rows], self.beta[rows] / looks
            is_high = np.any(estimate.mean > limit, axis=-1)
            is_below = np.all(estimate.tail(limit + margin - estimate.mean) < level, axis=-1)
            is_above = np.any(estimate.tail(estimate.mean - limit) < level, axis=-1)
            within = is_below & ~is_above
            # The mean of a curve decides: at one size the guest may be faster by another protocol.
            is_faster = (estimate.tail(self._floor[rows] - estimate.mean) < level)[..., -1]
            is_unbound = np.any(np.isinf(estimate.bias), axis=-1)
            conditions = {
                Ruling.TOO_GOOD: is_faster & (self.earlier is None),
                Ruling.WITHIN: within & may_acquit,
                # Two pairs may be the first half of an exchange of roles.
                Ruling.HOSTS: is_unbound & (is_last or pairs > LOOKS[0]),
                Ruling.BOOTS: self.ruling[rows] == Ruling.BOOTS,
                Ruling.NOISE: self._is_hopeless(rows, estimate, pairs, level, is_last)
                & ~(within | is_unbound),
            }
            ruling = np.select([*conditions.values()], [*map(int, conditions)], int(Ruling.OPEN))
        # A metric that may not pass yet is flagged, too: fresh pairs may convict it at the next look.
        is_new = (self.flagged[rows] == 0) & is_high & (ruling != Ruling.WITHIN)
        self.flagged[rows] = np.where(is_new, pairs, self.flagged[rows])
        self.ruling[rows] = ruling

    def _is_hopeless(
        self, rows: Bools, estimate: Estimate, pairs: int, level: Floats, is_last: bool
    ) -> Bools:
        """Return which series the last look would not answer, for no overhead that is plausible now."""
        limit, margin = self.limit[rows], self.margin[rows]
        # Mean and spread are taken to stay the same.
        last = max(LOOKS[-1], pairs)
        before = 0.0 if self.earlier is None else self.width / len(self.earlier.places.native)
        shrunk = (1 / last + before) / (1 / pairs + before)
        at_last = replace(estimate, variance=estimate.variance * shrunk, df=estimate.df + last - pairs)
        self.reach[rows] = reach = at_last.reach(level)
        plausible = estimate.reach(PLAUSIBLE)
        with np.errstate(invalid="ignore"):  # if nothing bounds a difference of hosts
            can_pass = np.all(estimate.mean - plausible + reach < limit + margin, axis=-1)
            can_fail = np.any(estimate.mean + plausible - reach > limit, axis=-1)
        # Hosts are the sample of a rotation: how their spread will shrink is unknown.
        is_wide = np.any(reach > margin, axis=-1) & (self.runs.places.kind != "rotated")
        return np.asarray(is_wide & (is_last | ~(can_pass | can_fail)))

    def answers(self, looks: Sequence[int]) -> list[RuleAnswer]:
        """Return the answers on series with one leading axis, with their bounds from all pairs."""
        mean, low, high, native = np.full((4, len(self.used), self.columns), np.nan)
        if self.pairs and (estimate := self.estimate(..., self.pairs, convict=False)) is not None:
            mean, reach = estimate.mean, estimate.reach(self.beta / len(looks))
            low, high = mean - reach, mean + reach
            native = self._find_native(..., estimate.weights)
        is_over = self.ruling == Ruling.OVER
        for used, start in {*zip(self.used[is_over].tolist(), self.start[is_over].tolist(), strict=True)}:
            rows = is_over & (self.used == used) & (self.start == start)
            if (fresh := self.estimate(rows, used, convict=True, start=start)) is not None:
                low[rows] = np.minimum(fresh.mean - fresh.reach(self.level[rows][:, None]), mean[rows])
        low[self.used == 0], high[self.used == 0] = -np.inf, np.inf
        bounds = np.stack([mean, low, high], axis=-1)
        following = np.array([*looks, 0])[np.searchsorted(looks, self.used, side="right")]
        next_pairs = np.where(np.isin(self.ruling, _OPEN_RULINGS), following * self.width, 0).tolist()
        return [
            RuleAnswer(
                Ruling(ruling),
                int(self.used[i]) * self.width,
                next_pairs[i] or None,
                self.margin[i, : self.points],
                self.reach[i, : self.points],
                bounds[i],
                native[i],
                self.find_ranges(i, low[i]) if ruling == Ruling.OVER else [],
            )
            for i, ruling in enumerate(self.ruling)
        ]

    def _find_native(self, rows: Bools | EllipsisType, weights: Floats) -> Floats:
        """Return the mean logarithm of the native costs of series by the weights of the first pairs."""
        native: Floats = np.einsum("p,...pc->...c", weights, self.runs.logs[rows][..., 0, : len(weights), :])
        return native

    def find_ranges(self, index: int, low: Floats) -> list[SizeRange]:
        """Return the contiguous ranges in which a series that is OVER is over budget, the worst first.

        The first range is the one whose sizes stand out most together (the sum of their excesses over their
        errors, by the root of their number). Further ranges that touch no earlier one follow, as long as a
        size outside the ranges is over by itself: its bound in `low` is above the budget.
        """
        rows = np.arange(len(self.used)) == index
        estimate = self.estimate(rows, int(self.used[index]), convict=True, start=int(self.start[index]))
        assert estimate is not None  # the series was convicted by it
        points, limit, mean = self.points, self.limit[index], estimate.mean[0]
        native = self._find_native(rows, estimate.weights)[0, :points]
        standing = ((mean - limit) / np.sqrt(estimate.variance[0]))[:points]
        is_over = low[:points] >= limit[:points] - 1e-9
        total = np.append(0.0, np.cumsum(standing))
        free, ranges = np.ones(points, dtype=np.bool_), list[SizeRange]()
        while np.any(free) and (not ranges or np.any(is_over & free)):
            i, j = max(
                ((i, j) for i in range(points) for j in range(i + 1, points + 1) if np.all(free[i:j])),
                key=lambda ends: (total[ends[1]] - total[ends[0]]) / math.sqrt(ends[1] - ends[0]),
            )
            lower = float(np.max(low[i:j])) if np.any(is_over[i:j]) else float(low[-1])
            ranges.append(
                SizeRange(slice(i, j), float(np.mean(mean[i:j])), lower, float(np.mean(native[i:j])))
            )
            free[max(i - 1, 0) : j + 1] = False
        return ranges


def judge(
    batches: Sequence[Batch],
    looks: Sequence[int] = LOOKS,
    alpha: float = ALPHA,
    *,
    min_pairs: int = 0,
    min_boots: int = 1,
    stop: bool = False,
) -> None:
    """Judge the series of each session together, by the rule of ``docs/decision-statistics.md``.

    All pairs that are given are judged, and an early answer other than OVER does not stand.

    Parameters
    ----------
    looks
        After how many pairs a decision is tried.
    alpha
        Error rate of OVER in a session; see `ALPHA`.
    min_pairs
        Pairs before which no series is WITHIN, unless their number was fixed (one look).
    min_boots
        Boots that a conviction needs.
    stop
        Let each series end at its first answer, as a session does: for simulations.
    """
    is_single = len(looks) == 1
    sessions = max((int(np.max(batch.session)) + 1 for batch in batches), default=0)
    for index, look in enumerate(looks):
        is_last = index == len(looks) - 1
        family = np.zeros(sessions)
        for batch in batches:
            is_tried = (batch.flagged > 0) | batch.shares | is_single
            tried = np.asarray(batch.session)[is_tried & (batch.ruling != Ruling.OVER)]
            family += np.bincount(tried, minlength=sessions)
        for batch in batches:
            # All pairs that were run count: those beyond the last look, and those since the look before.
            if batch.pairs < look and (index == 0 or batch.pairs <= looks[index - 1]):
                continue
            pairs = batch.pairs if is_last else min(look, batch.pairs)
            all_pairs = batch.shares or is_single
            if batch.pairs >= look or is_last:
                # Fresh pairs cannot convict at the first look, which flags them: they have one look fewer.
                share = alpha / (len(looks) - (not all_pairs))
                level = share / np.maximum(family, 1)[batch.session]
                batch.convict(pairs, level, all_pairs=all_pairs, min_boots=min_boots)
            may_acquit = pairs >= min_pairs or is_single
            batch.acquit(pairs, len(looks), may_acquit=may_acquit, is_last=is_last)
            if stop:
                batch.running &= np.isin(batch.ruling, _OPEN_RULINGS)
