"""The outcomes of a verdict."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Outcome(Enum):
    """The answer on one metric. Only WITHIN passes."""

    WITHIN = "WITHIN"
    """The overhead is surely below budget plus margin."""
    OVER = "OVER"
    """The overhead is surely above the budget."""
    UNDECIDED = "UNDECIDED"
    """Neither is sure: more pairs are needed, or their maximum is reached."""
    INVALID = "INVALID"
    """The series cannot be judged: a gate refused it, or its clock, hosts or values allow no answer."""
    BASELINE = "BASELINE"
    """The overhead is recorded; there is no earlier session to compare it with."""


#: The outcome of a set of verdicts is the first of these that occurs.
_PRECEDENCE = (Outcome.INVALID, Outcome.OVER, Outcome.UNDECIDED, Outcome.BASELINE, Outcome.WITHIN)


def first_of(outcomes: Iterable[Outcome]) -> Outcome:
    """Return one outcome for a set of outcomes; INVALID if the set is empty."""
    present = set(outcomes)
    return next((outcome for outcome in _PRECEDENCE if outcome in present), Outcome.INVALID)
