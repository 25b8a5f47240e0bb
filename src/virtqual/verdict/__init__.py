"""Within, over, undecided, invalid: see ``docs/decision.md``."""

from virtqual.references.noise import Prior
from virtqual.verdict.design import Design
from virtqual.verdict.judge import judge
from virtqual.verdict.outcome import Estimate, Evidence, Finding, Outcome, Point, Verdict
from virtqual.verdict.record import (
    RecordError,
    rejudge,
    rejudge_session,
    sample_from_record,
    sample_to_record,
)
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
    "RecordError",
    "SessionError",
    "SessionVerdict",
    "Verdict",
    "judge",
    "judge_session",
    "rejudge",
    "rejudge_session",
    "sample_from_record",
    "sample_to_record",
]
