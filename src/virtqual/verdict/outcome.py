"""The answer: what was decided about one metric, from what, and in which words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from virtqual.references.budgets import Budget, Gate
from virtqual.references.metrics import Metric
from virtqual.references.noise import Prior
from virtqual.references.waivers import Waiver
from virtqual.verdict.pairs import Series
from virtqual.verdict.places import Places, everywhere_alike


class Outcome(Enum):
    """What can be said of a metric. Only WITHIN passes."""

    WITHIN = "WITHIN"
    """Budget plus margin is excluded."""
    OVER = "OVER"
    """Being within budget is excluded."""
    UNDECIDED = "UNDECIDED"
    """Neither is; more pairs are asked for, or their maximum is reached."""
    INVALID = "INVALID"
    """Cannot be judged: refused by a gate, or too noisy to resolve the margin."""
    BASELINE = "BASELINE"
    """Measured and recorded; there is no earlier session with which to compare."""


@dataclass(frozen=True)
class Interval:
    """A log difference (positive is worse) with the bounds it was decided by.

    Parameters
    ----------
    log
        The estimate.
    lower
        Lower bound, at the level of OVER.
    upper
        Upper bound, at the level of WITHIN.
    """

    log: float
    lower: float
    upper: float

    def ratio(self, metric: Metric) -> tuple[float, float, float]:
        """Return virtual/native in the metric's own terms: estimate, smaller and larger end."""
        if metric.better == "lower":
            return _exp(self.log), _exp(self.lower), _exp(self.upper)
        return _exp(-self.log), _exp(-self.upper), _exp(-self.lower)

    def text(self, metric: Metric) -> str:
        """Return such as ``1.22x worse (1.17x to 1.27x)``; without bounds where there are none."""
        ratio, low, high = (times(value) for value in self.ratio(metric))
        word = "" if ratio == "1.000x" else " worse" if self.log > 0 else " better"
        bounds = f" ({low} to {high})" if math.isfinite(self.lower) and math.isfinite(self.upper) else ""
        return f"{ratio}{word}{bounds}"


def _exp(log: float) -> float:
    """Return e to the power of `log`; infinity where a float holds no such number."""
    return math.exp(log) if log < 700 else math.inf


def times(ratio: float) -> str:
    """Return a ratio such as ``1.053x``: near 1, where budgets lie, as finely as budgets are stated."""
    if not math.isfinite(ratio):
        return "infinite"
    if ratio >= 100:
        return f"{ratio:.0f}x"
    if ratio >= 10:
        return f"{ratio:.1f}x"
    if 0.8 <= ratio < 1.2:
        return f"{ratio:.3f}x"
    return f"{ratio:.2f}x" if ratio >= 0.1 else f"{ratio:.2g}x"


def short(ratio: float | None) -> str:
    """Return a ratio as it stands in an interval, such as ``1.05``; ``?`` for one that is not known."""
    if ratio is None:
        return "?"
    if ratio < 0.1:
        return f"{ratio:#.2g}"
    digits = 0 if ratio >= 100 else 1 if ratio >= 10 else 2
    return f"{ratio:.{digits}f}"


def span(low: float | None, high: float | None) -> str:
    """Return the ends of an interval of a ratio, such as ``1.03-1.07``."""
    return f"{short(low)}-{short(high)}"


def number(value: float) -> str:
    """Return a value with four significant digits and no exponent for everyday sizes."""
    if abs(value) >= 1e12:
        return f"{value:.3e}"
    # Rounded to four digits it would have an exponent from here on.
    return f"{value:.0f}" if abs(value) >= 9999.5 else f"{value:.4g}"


@dataclass(frozen=True)
class Finding:
    """One contiguous range of sizes that is over budget.

    Parameters
    ----------
    low, high
        Its ends, in the metric's axis unit; None for a scalar.
    judged
        Mean over the range of what was judged.
    limit
        Mean budget of the range, in log units.
    native, virtual
        Geometric means over the range of the medians, in the unit.
    """

    low: float | None
    high: float | None
    judged: Interval
    limit: float
    native: float
    virtual: float

    def text(self, metric: Metric) -> str:
        """Return such as ``1.22x worse (1.17x to 1.27x) from 16 to 128 B``."""
        if self.low is None or self.high is None:
            return self.judged.text(metric)
        sizes = (
            f"at {number(self.low)} {metric.axis_unit}"
            if self.low == self.high
            else f"from {number(self.low)} to {number(self.high)} {metric.axis_unit}"
        )
        return f"{self.judged.text(metric)} {sizes}"


@dataclass(frozen=True)
class Point:
    """One size of a curve, or the one value of a scalar.

    Parameters
    ----------
    size
        None for a scalar.
    native, virtual
        Medians, in the unit.
    overhead
        Its overhead.
    judged
        The overhead again, or its change where the change is judged.
    limit, margin
        In log units.
    """

    size: float | None
    native: float
    virtual: float
    overhead: Interval
    judged: Interval
    limit: float
    margin: float


@dataclass(frozen=True, eq=False)
class Case:
    """One series with all that is needed to judge it.

    Parameters
    ----------
    series
        Its pairs so far; may be empty.
    budget
        What is allowed. Its `gate` says what it limits: under ``change`` and without `baseline` the
        outcome is BASELINE.
    prior
        Noise known beforehand.
    baseline
        The same series in an earlier session (`--against`). Given, the change of the overhead is judged.
    refused
        Reasons for which the whole series cannot be judged, such as native missing its reference.
    bound, earlier_bound
        The most that the hosts of both sides differ by, in log units, here and in the earlier session;
        infinite where nobody measured it. See `virtqual.verdict.places.Places`.
    """

    series: Series
    budget: Budget
    prior: Prior
    baseline: Series | None = None
    refused: tuple[str, ...] = ()
    bound: float = math.inf
    earlier_bound: float = math.inf

    @property
    def gate(self) -> Gate:
        """Whether the overhead is asked about, or its change: one session may ask both of a series."""
        return self.budget.gate if self.baseline is None else "change"


@dataclass(frozen=True, eq=False)
class Verdict:
    """What was decided about one metric in one setting.

    Parameters
    ----------
    outcome
        The answer.
    case
        The series with its budget and noise.
    overhead
        Virtual against native, over the whole curve; None before the first pair.
    change
        Change of the overhead since the earlier session; None where none was given.
    native, virtual
        Medians in the unit (of a curve: geometric means over its sizes); None before the first pair.
    limit, margin
        Budget and margin in log units, the strictest over the sizes.
    points
        One for each size, or one.
    findings
        Ranges over budget, the worst first.
    pairs
        Number of pairs decided on.
    next_pairs
        Number of valid pairs with which to decide again; None if no more are wanted.
    reasons
        Why it is not WITHIN, and what was left out.
    places
        Where the pairs ran, as far as it is known; of a change the earlier session's, where it is those that
        leave it to the hosts.
    hosts
        By how much each host is slower than the mean of its kind, in log units, where the pairs tell.
    waiver
        The waiver that is about an OVER; it may have expired, or accept less.
    waived
        Whether `waiver` accepts it today.
    """

    outcome: Outcome
    case: Case = field(repr=False)
    overhead: Interval | None = None
    change: Interval | None = None
    native: float | None = None
    virtual: float | None = None
    limit: float | None = None
    margin: float | None = None
    points: tuple[Point, ...] = ()
    findings: tuple[Finding, ...] = ()
    pairs: int = 0
    next_pairs: int | None = None
    reasons: tuple[str, ...] = ()
    places: Places = field(default_factory=lambda: everywhere_alike(0), repr=False)
    hosts: Mapping[str, float] = field(default_factory=dict)
    waiver: Waiver | None = None
    waived: bool = False

    @property
    def metric(self) -> Metric:
        """What was measured."""
        return self.case.series.metric

    @property
    def setting(self) -> str:
        """How it was measured."""
        return self.case.series.setting

    @property
    def id(self) -> str:
        """``metric@setting``."""
        return self.case.series.id

    @property
    def budget(self) -> Budget:
        """What was allowed."""
        return self.case.budget

    @property
    def gate(self) -> Gate:
        """Whether the overhead or its change decides."""
        return self.case.gate

    @property
    def judged(self) -> Interval | None:
        """The estimate that was compared with the budget."""
        return self.change if self.gate == "change" else self.overhead

    @property
    def worst(self) -> Interval | None:
        """The worst that was found over budget; without findings, what was judged."""
        return max((one.judged for one in self.findings), key=lambda one: one.log, default=self.judged)

    @property
    def passes(self) -> bool:
        """Whether it is WITHIN, or OVER and accepted by a waiver that holds today."""
        return self.outcome is Outcome.WITHIN or (self.outcome is Outcome.OVER and self.waived)

    @property
    def budget_text(self) -> str:
        """Budget and margin as people read them."""
        metric = self.metric
        texts = [
            term.text(metric)
            + ("" if len(self.budget.terms) == 1 else f" {term.low:g} to {term.high:g} {metric.axis_unit}")
            for term in self.budget.terms
        ]
        return "; ".join(texts)
