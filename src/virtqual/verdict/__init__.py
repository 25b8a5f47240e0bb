"""Within, over, undecided, invalid: see ``docs/decision.md``."""

from virtqual.references.noise import Prior
from virtqual.verdict.message import message
from virtqual.verdict.outcome import Case, Finding, Interval, Outcome, Point, Verdict
from virtqual.verdict.record import VerdictRecord, record_of
from virtqual.verdict.session import (
    Need,
    SessionError,
    SessionVerdict,
    first_of,
    judge_session,
    judge_sessions,
    worst_outcome,
)

__all__ = [
    "Case",
    "Finding",
    "Interval",
    "Need",
    "Outcome",
    "Point",
    "Prior",
    "SessionError",
    "SessionVerdict",
    "Verdict",
    "VerdictRecord",
    "first_of",
    "judge_session",
    "judge_sessions",
    "message",
    "record_of",
    "worst_outcome",
]
