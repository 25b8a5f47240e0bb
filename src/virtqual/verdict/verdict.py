"""The verdict on one series, with its numbers, as it is stored and shown."""

from __future__ import annotations

import math
from typing import NamedTuple

from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema

from virtqual.verdict.budget import Gate
from virtqual.verdict.labels import NATIVE_AND_VIRTUAL, Labels
from virtqual.verdict.notation import (
    Bounds,
    Direction,
    describe_limit,
    describe_sizes,
    describe_slowdown,
    describe_slowdown_briefly,
    exp_or_inf,
    has_factor,
)
from virtqual.verdict.outcome import Outcome


class _Stored(BaseModel, extra="forbid", frozen=True, ser_json_inf_nan="null"):
    """A part of a session's document."""


class Interval(_Stored):
    """An overhead, or the change of one."""

    #: ln(virtual/native), positive is worse.
    log: float
    #: Bounds at the levels of OVER and of WITHIN; None if unknown.
    lower: float | None
    upper: float | None
    #: virtual/native, with its smaller and its larger bound.
    ratio: float
    low: float | None
    high: float | None

    @classmethod
    def build(cls, log: float, lower: float, upper: float, better: Direction) -> Interval:
        """Return an interval in log units; infinite bounds are unknown."""
        ends = (lower, upper) if better == "lower" else (-upper, -lower)
        low, high = (finite_or_none(exp_or_inf(end)) for end in ends)
        return cls(
            log=rounded(log),
            lower=finite_or_none(lower),
            upper=finite_or_none(upper),
            ratio=rounded(exp_or_inf(log if better == "lower" else -log)),
            low=low,
            high=high,
        )

    @property
    def bounds(self) -> Bounds | None:
        """Lower and upper bound; None if they are unknown."""
        return None if self.lower is None or self.upper is None else (self.lower, self.upper)

    def text(self, better: Direction) -> str:
        """Return the estimate such as ``22.0% slower (17.0% to 27.0%)``."""
        return describe_slowdown(self.log, better, self.bounds)

    def brief_text(self, better: Direction) -> str:
        """Return by how much virtual is slower, such as ``22% (17 to 27%)``."""
        return describe_slowdown_briefly(self.log, better, self.bounds)

    def is_factor(self, better: Direction) -> bool:
        """Return whether it is shown as a factor."""
        return has_factor(better, self.log, *(self.bounds or ()))


class Point(_Stored):
    """One size of a curve: values as those of `Verdict`; limit and margin in log units, None if unknown."""

    size: float
    native: float
    virtual: float
    overhead: Interval
    judged: Interval
    limit: float | None
    margin: float | None


class OverRange(_Stored):
    """A range of sizes that is over budget, with its means; `low` and `high` are None for a scalar.

    The values are those of the pairs that convicted it.
    """

    low: float | None
    high: float | None
    judged: Interval
    limit: float
    margin: float | None = None
    native: float
    virtual: float
    text: str


class Deciding(NamedTuple):
    """The numbers that decide a verdict: of a scalar, of a size, or of a range of sizes from `low` to `high`.

    Limit and margin are in log units, and values in the metric's unit.
    """

    judged: Interval | None
    limit: float | None
    margin: float | None
    native: float | None
    virtual: float | None
    low: float | None = None
    high: float | None = None

    def at_most(self, better: Direction) -> str:
        """Return budget and margin in the form of the estimate: ``60+10%``; ``-`` without one."""
        if self.limit is None:
            return "-"
        as_factor = self.judged is not None and self.judged.is_factor(better)
        return describe_limit(self.limit, self.margin, better, as_factor=as_factor)


class Verdict(_Stored, frozen=False):
    """The verdict on one metric in one setting."""

    metric: str
    setting: str
    gate: Gate
    outcome: Outcome
    unit: str
    better: Direction
    #: Unit of a curve's sizes; empty for a scalar.
    axis_unit: str = ""
    #: In the unit; None without a valid pair. Native is the geometric mean over the pairs of the estimate,
    #: with their weights, and of a curve over its sizes. Virtual is that times `overhead.ratio`.
    native: float | None = None
    virtual: float | None = None
    #: Over the whole curve.
    overhead: Interval | None = None
    #: Since the earlier session; judged if `gate` is ``change``.
    change: Interval | None = None
    budget: str
    #: The smallest over the sizes, in log units; `budget` has them in words.
    limit: float | None = None
    margin: float | None = None
    #: Pairs that the verdict rests on.
    pairs: int = 0
    #: All pairs that were run, also those that do not count; 0 if unknown.
    pairs_run: int = 0
    #: Pairs that the next decision needs; None if no decision follows.
    next_pairs: int | None = None
    #: The side that runs first in each pair that is lacking, N or V; empty if hosts take turns by themselves.
    next_order: str = ""
    #: Number of boots of the virtual machines; 0 if unknown.
    boots: int = 0
    #: Standard deviation of the overhead of a pair, of a curve of its mean over the sizes; log units.
    spread: float | None = None
    points: tuple[Point, ...] = ()
    #: Ranges over budget, the worst first.
    findings: tuple[OverRange, ...] = ()
    reasons: tuple[str, ...] = ()
    waiver: str | None = None
    waived: bool = False
    #: How much slower each host is than the mean of its kind, as a factor; empty if the pairs cannot tell.
    hosts: dict[str, float] = {}
    native_hosts: tuple[str, ...] = ()
    virtual_hosts: tuple[str, ...] = ()
    #: A difference of hosts may look like this overhead.
    confounded: bool = False
    message: str = ""
    #: The words for the two sides; records do not have them.
    labels: SkipJsonSchema[Labels] = Field(default=NATIVE_AND_VIRTUAL, exclude=True)

    @property
    def series(self) -> str:
        """The id of the series: ``metric@setting``."""
        return f"{self.metric}@{self.setting}"

    @property
    def name(self) -> str:
        """Metric and setting in words."""
        return f"{self.metric} {self.setting}".rstrip()

    @property
    def outcome_text(self) -> str:
        """The outcome, and whether it is waived."""
        return f"{self.outcome.value} waived" if self.waived else self.outcome.value

    @property
    def title(self) -> str:
        """The name, with a note if the change was judged."""
        return f"{self.name} (change)" if self.gate == "change" else self.name

    @property
    def has_change(self) -> bool:
        """The estimate is one of the change, and not of the overhead."""
        return self.gate == "change" and self.change is not None

    @property
    def judged(self) -> Interval | None:
        """The interval that was compared with the budget."""
        return self.change if self.gate == "change" else self.overhead

    @property
    def estimate(self) -> Interval | None:
        """The judged interval, or the overhead that was recorded."""
        return self.judged or self.overhead

    @property
    def text(self) -> str:
        """The estimate that decides, in words, of a curve with its size or range; ``-`` without one."""
        judged = self.deciding.judged
        return f"{judged.text(self.better)} {self.where}".rstrip() if judged else "-"

    @property
    def mean(self) -> Deciding:
        """The mean over the sizes of a curve, which has a limit of its own; of a scalar its estimate."""
        limit, margin = (self.limit, self.margin) if self.judged else (None, None)
        if limit is not None and self.points:
            limit = math.fsum(point.limit or 0.0 for point in self.points) / len(self.points)
            margin = math.fsum(point.margin or 0.0 for point in self.points) / len(self.points)
        return Deciding(self.estimate, limit, margin, self.native, self.virtual)

    @property
    def at_most(self) -> str:
        """Budget and margin of what decides, such as ``60+10%``; ``-`` without one."""
        return self.deciding.at_most(self.better)

    @property
    def pairs_text(self) -> str:
        """The number of pairs that count, such as ``4``, or ``4 of 6`` if others were run."""
        return f"{self.pairs} of {self.pairs_run}" if self.pairs_run > self.pairs else str(self.pairs)

    @property
    def where(self) -> str:
        """The size or range of a curve that decides, such as ``at 8 B``; empty of a scalar."""
        deciding = self.deciding
        if deciding.low is None or deciding.high is None:
            return ""
        return describe_sizes(deciding.low, deciding.high, self.axis_unit)

    @property
    def deciding(self) -> Deciding:
        """What decides: the worst range that is OVER, else the size of a curve that is nearest to its limit.

        That is the size farthest above its limit if one is above it; of a scalar, or of a curve whose details
        are not there (`without_details`), it is the estimate.
        """
        if self.findings:
            worst = self.findings[0]
            margin = self._find_margin(worst)
            return Deciding(
                worst.judged, worst.limit, margin, worst.native, worst.virtual, worst.low, worst.high
            )
        # A limit of the change is none of the overhead that is shown without a change.
        has_limit = self.judged is not None
        if self.points:
            nearest = max(
                self.points, key=lambda point: point.judged.log - (point.limit or 0.0 if has_limit else 0.0)
            )
            limits = (nearest.limit, nearest.margin) if has_limit else (None, None)
            values = nearest.native, nearest.virtual, nearest.size, nearest.size
            return Deciding(nearest.judged, *limits, *values)
        limits = (self.limit, self.margin) if has_limit else (None, None)
        return Deciding(self.estimate, *limits, self.native, self.virtual)

    def _find_margin(self, found: OverRange) -> float | None:
        """Return the margin of a range: older records have that of its sizes alone, or of the scalar."""
        if found.margin is not None or found.low is None or found.high is None:
            return self.margin if found.margin is None else found.margin
        margins = [point.margin for point in self.points if found.low <= point.size <= found.high]
        known = [margin for margin in margins if margin is not None]
        return math.fsum(known) / len(known) if known else None

    @property
    def worst(self) -> Interval | None:
        """The largest overhead among the findings; without findings, the judged interval."""
        return max((f.judged for f in self.findings), key=lambda judged: judged.log, default=self.judged)

    @property
    def within_below(self) -> float | None:
        """The overhead from which on no estimate is WITHIN, in log units: budget and margin."""
        return None if self.limit is None or self.margin is None else self.limit + self.margin

    @property
    def smallest_over(self) -> float | None:
        """The smallest estimate that would have been OVER with this interval, in log units."""
        if self.estimate is None or self.estimate.lower is None or self.limit is None:
            return None
        return self.limit + (self.estimate.log - self.estimate.lower)

    @property
    def passes(self) -> bool:
        """The verdict is WITHIN, or OVER and accepted by a waiver."""
        return self.outcome is Outcome.WITHIN or (self.outcome is Outcome.OVER and self.waived)

    def without_details(self) -> Verdict:
        """Return the verdict without points, findings and texts, as summaries keep it."""
        details = {"points": (), "findings": (), "reasons": (), "hosts": {}, "message": ""}
        return self.model_copy(update=details)


def finite_or_none(value: float) -> float | None:
    """Return a rounded number; None if it is infinite or no number."""
    return rounded(value) if math.isfinite(value) else None


def rounded(value: float, digits: int = 7) -> float:
    """Return a number with the digits that are stored."""
    return float(f"{value:.{digits}g}")
