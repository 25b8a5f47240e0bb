"""Verdicts as JSON lines: one for each series and one for each session, for whoever reads them by program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from virtqual.references.budgets import Gate
from virtqual.session.session import SlowRunsRecord
from virtqual.verdict import Outcome, SessionVerdict, Verdict
from virtqual.verdict.record import FindingRecord, finding_record


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_: Literal["virtqual-verdict/2"] = Field(alias="schema", default="virtqual-verdict/2")


class SeriesLine(_Line):
    """What was decided about one series; docs/judge-your-own.md explains the keys."""

    kind: Literal["series"] = "series"
    session: str
    metric: str
    setting: str
    outcome: Outcome
    gate: Gate
    ratio: float | None
    low: float | None
    high: float | None
    pairs: int
    next_pairs: int | None
    reasons: list[str]
    findings: list[FindingRecord]
    nodes: dict[str, float | None]


class SessionLine(_Line):
    """What a session comes to."""

    kind: Literal["session"] = "session"
    session: str
    outcome: Outcome
    qualified: bool
    slow_runs: SlowRunsRecord
    reasons: list[str]


def series_line(session: str, verdict: Verdict) -> SeriesLine:
    """Return one verdict as JSON-able data; a number that does not exist is None."""
    # A baseline has no change: its overhead is what was recorded.
    judged = verdict.overhead if verdict.outcome is Outcome.BASELINE else verdict.judged
    ratio, low, high = (None, None, None) if judged is None else judged.ratio(verdict.metric)
    return SeriesLine(
        session=session,
        metric=verdict.metric.name,
        setting=verdict.setting,
        outcome=verdict.outcome,
        gate=verdict.gate,
        ratio=_number(ratio),
        low=_bound(low),
        high=_bound(high),
        pairs=verdict.pairs,
        next_pairs=verdict.next_pairs,
        reasons=list(verdict.reasons),
        findings=[finding_record(one, verdict.metric) for one in verdict.findings],
        nodes={host: _number(math.exp(log)) for host, log in verdict.hosts.items()},
    )


def session_line(
    session: str, verdict: SessionVerdict, slow_runs: SlowRunsRecord, reasons: Sequence[str]
) -> SessionLine:
    """Return what a session comes to; of pairs in a file none is ever qualified."""
    return SessionLine(
        session=session,
        outcome=verdict.outcome,
        qualified=False,
        slow_runs=slow_runs,
        reasons=list(reasons),
    )


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _bound(value: float | None) -> float | None:
    """Return an end of an interval; None where it has none: a ratio of 0 is none either."""
    return _number(value) or None
