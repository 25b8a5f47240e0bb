"""Within, over, undecided, invalid: see ``docs/decision.md``."""

from virtqual.verdict.case import Case
from virtqual.verdict.noise import Prior
from virtqual.verdict.outcome import Outcome, first_of
from virtqual.verdict.session import Need, SessionVerdict, judge_sessions, worst_outcome
from virtqual.verdict.verdict import Interval, OverRange, Point, Verdict

__all__ = [
    "Case",
    "Interval",
    "Need",
    "Outcome",
    "OverRange",
    "Point",
    "Prior",
    "SessionVerdict",
    "Verdict",
    "first_of",
    "judge_sessions",
    "worst_outcome",
]
