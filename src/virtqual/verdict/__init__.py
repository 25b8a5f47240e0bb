"""Within, over, undecided, invalid: see ``docs/decision.md``."""

from virtqual.references.noise import Prior
from virtqual.verdict.design import Design
from virtqual.verdict.judge import judge
from virtqual.verdict.message import message
from virtqual.verdict.outcome import Estimate, Evidence, Finding, Outcome, Point, Verdict
from virtqual.verdict.record import VerdictRecord, record_of
from virtqual.verdict.session import Case, Need, Plan, SessionError, SessionVerdict, judge_session

__all__ = [
    "Case",
    "Design",
    "Estimate",
    "Evidence",
    "Finding",
    "Need",
    "Outcome",
    "Plan",
    "Point",
    "Prior",
    "SessionError",
    "SessionVerdict",
    "Verdict",
    "VerdictRecord",
    "judge",
    "judge_session",
    "message",
    "record_of",
]
