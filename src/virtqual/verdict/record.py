"""Verdicts as plain data: what a session file keeps of them, and all that reports are made from.

A record refers to its series by metric and setting; the samples stand once, in the session's runs, and
whoever wants to judge again does so from those.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict

from virtqual.references.budgets import Gate
from virtqual.references.metrics import Metric
from virtqual.verdict.message import message
from virtqual.verdict.outcome import Finding, Interval, Outcome, Point, Verdict, times


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="null")


class EstimateRecord(_Record):
    """An overhead or its change.

    Attributes
    ----------
    log, lower, upper
        ln(virtual/native), signed so that positive is worse, with the bounds it was decided by.
    ratio, low, high
        The same in the metric's own terms: virtual/native, and the ends of its interval.
    """

    log: float
    lower: float | None
    upper: float | None
    ratio: float
    low: float | None
    high: float | None

    @property
    def bounds(self) -> str:
        """The ends of its interval as people read them; empty where it has none."""
        return "" if self.low is None or self.high is None else f"{times(self.low)} to {times(self.high)}"


class PointRecord(_Record):
    """One size of a curve; see `virtqual.verdict.outcome.Point`."""

    size: float
    native: float
    virtual: float
    overhead: EstimateRecord
    judged: EstimateRecord
    limit: float | None
    margin: float | None


class FindingRecord(_Record):
    """A contiguous range of sizes that is over budget; see `virtqual.verdict.outcome.Finding`."""

    low: float | None
    high: float | None
    judged: EstimateRecord
    limit: float
    native: float
    virtual: float
    text: str


class VerdictRecord(_Record):
    """What was decided about one metric in one setting.

    Attributes
    ----------
    metric, setting
        The series. Its samples are those of the session's runs.
    gate
        Whether the overhead was judged, or its change since the earlier session.
    outcome
        ``WITHIN``, ``OVER``, ``UNDECIDED``, ``INVALID`` or ``BASELINE``.
    unit, better
        Of the metric; ``lower`` or ``higher`` is better.
    native, virtual
        Medians in the unit, of a curve the geometric means over its sizes; None without a valid pair.
    overhead, change
        Estimates; None where there is none.
    budget
        Budget and margin as people read them.
    limit, margin
        The same in log units, the strictest over the sizes.
    pairs
        Number of pairs that the verdict rests on.
    next_pairs
        Number of pairs with which to decide again; None if no more are wanted.
    points
        One for each size of a curve; empty for a scalar.
    findings
        Ranges over budget, the worst first.
    reasons
        Why it is not WITHIN, and what was left out.
    waiver
        The waiver that is about an OVER, as people read it; empty if none is.
    waived
        Whether the waiver accepts it.
    hosts
        By what factor each host is slower than the mean of its kind, where the pairs tell.
    confounded
        Whether an overhead may be one of hosts.
    message
        All of it in one or two lines.
    """

    metric: str
    setting: str
    gate: Gate
    outcome: Outcome
    unit: str
    better: Literal["lower", "higher"]
    native: float | None
    virtual: float | None
    overhead: EstimateRecord | None
    change: EstimateRecord | None
    budget: str
    limit: float | None
    margin: float | None
    pairs: int
    next_pairs: int | None
    points: tuple[PointRecord, ...] = ()
    findings: tuple[FindingRecord, ...] = ()
    reasons: tuple[str, ...] = ()
    waiver: str = ""
    waived: bool = False
    hosts: dict[str, float] = {}
    confounded: bool = False
    message: str

    @property
    def series(self) -> str:
        """The id of the series: ``metric@setting``."""
        return f"{self.metric}@{self.setting}"

    @property
    def name(self) -> str:
        """Metric and setting, for people."""
        return f"{self.metric} {self.setting}"

    @property
    def estimate(self) -> EstimateRecord | None:
        """What was judged, or the overhead that was recorded where nothing is judged."""
        return self.judged or self.overhead

    @property
    def judged(self) -> EstimateRecord | None:
        """The estimate that was compared with the budget."""
        return self.change if self.gate == "change" else self.overhead

    @property
    def passes(self) -> bool:
        """Whether it is WITHIN, or OVER and accepted by a waiver."""
        return self.outcome is Outcome.WITHIN or (self.outcome is Outcome.OVER and self.waived)


def record_of(verdict: Verdict) -> VerdictRecord:
    """Return a verdict as plain data."""
    metric = verdict.metric
    return VerdictRecord(
        metric=metric.name,
        setting=verdict.setting,
        gate=verdict.gate,
        outcome=verdict.outcome,
        unit=metric.unit,
        better=metric.better,
        native=verdict.native,
        virtual=verdict.virtual,
        overhead=_estimate(verdict.overhead, metric),
        change=_estimate(verdict.change, metric),
        budget=verdict.budget_text,
        limit=verdict.limit,
        margin=verdict.margin,
        pairs=verdict.pairs,
        next_pairs=verdict.next_pairs,
        points=tuple(_point(point, point.size, metric) for point in verdict.points if point.size is not None),
        findings=tuple(finding_record(finding, metric) for finding in verdict.findings),
        reasons=verdict.reasons,
        waiver="" if verdict.waiver is None else f"{verdict.waiver.accepted}: {verdict.waiver.reason}",
        waived=verdict.waived,
        hosts={host: math.exp(log) for host, log in verdict.hosts.items()},
        confounded=verdict.places.confounded,
        message=message(verdict),
    )


def _rounded(value: float) -> float:
    """Return a number with as many digits as a measurement can have."""
    return float(f"{value:.7g}")


def _finite(value: float) -> float | None:
    return _rounded(value) if math.isfinite(value) else None


def _estimate(estimate: Interval | None, metric: Metric) -> EstimateRecord | None:
    return None if estimate is None else _known(estimate, metric)


def _known(estimate: Interval, metric: Metric) -> EstimateRecord:
    ratio, low, high = estimate.ratio(metric)
    lower, upper = _finite(estimate.lower), _finite(estimate.upper)
    return EstimateRecord(
        log=_rounded(estimate.log),
        lower=lower,
        upper=upper,
        ratio=_rounded(ratio),
        low=_finite(low),
        high=_finite(high),
    )


def _point(point: Point, size: float, metric: Metric) -> PointRecord:
    return PointRecord(
        size=size,
        native=_rounded(point.native),
        virtual=_rounded(point.virtual),
        overhead=_known(point.overhead, metric),
        judged=_known(point.judged, metric),
        limit=_finite(point.limit),
        margin=_finite(point.margin),
    )


def finding_record(finding: Finding, metric: Metric) -> FindingRecord:
    """Return a range over budget as plain data."""
    return FindingRecord(
        low=finding.low,
        high=finding.high,
        judged=_known(finding.judged, metric),
        limit=finding.limit,
        native=finding.native,
        virtual=finding.virtual,
        text=finding.text(metric),
    )
