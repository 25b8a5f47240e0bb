"""Verdicts as JSON lines: one for each series and one for each session, for whoever reads them by program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from virtqual.verdict import Outcome, SessionVerdict, Verdict
from virtqual.verdict.record import finding_record

SCHEMA = "virtqual-verdict/2"


def series_line(session: str, verdict: Verdict) -> dict[str, Any]:
    """Return one verdict as JSON-able data; a number that does not exist is None."""
    # A baseline has no change: its overhead is what was recorded.
    judged = verdict.overhead if verdict.outcome is Outcome.BASELINE else verdict.judged
    ratio, low, high = (None, None, None) if judged is None else judged.ratio(verdict.metric)
    return {
        "schema": SCHEMA,
        "kind": "series",
        "session": session,
        "metric": verdict.metric.name,
        "setting": verdict.setting,
        "outcome": verdict.outcome.value,
        "gate": verdict.gate,
        "ratio": _number(ratio),
        "low": _bound(low),
        "high": _bound(high),
        "pairs": verdict.pairs,
        "next_pairs": verdict.next_pairs,
        "reasons": list(verdict.reasons),
        "findings": [finding_record(one, verdict.metric).model_dump(mode="json") for one in verdict.findings],
        "nodes": {host: _number(math.exp(log)) for host, log in verdict.hosts.items()},
    }


def session_line(
    session: str, verdict: SessionVerdict, slow_runs: dict[str, Any], reasons: Sequence[str]
) -> dict[str, Any]:
    """Return what a session comes to; of pairs in a file none is ever qualified."""
    return {
        "schema": SCHEMA,
        "kind": "session",
        "session": session,
        "outcome": verdict.outcome.value,
        "qualified": False,
        "slow_runs": slow_runs,
        "reasons": list(reasons),
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _bound(value: float | None) -> float | None:
    """Return an end of an interval; None where it has none: a ratio of 0 is none either."""
    return _number(value) or None
