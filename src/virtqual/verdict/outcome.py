"""The outcomes of a verdict, and how ratios and values are written."""

from __future__ import annotations

import math
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
    """The series cannot be judged: a gate refused it, or its noise hides the margin."""
    BASELINE = "BASELINE"
    """The overhead is recorded; there is no earlier session to compare it with."""

    @property
    def code(self) -> int:
        """The number that stands for the outcome in arrays."""
        return OUTCOMES.index(self)


#: The outcomes by their codes.
OUTCOMES = tuple(Outcome)
#: The outcome of a set of verdicts is the first of these that occurs.
_PRECEDENCE = (Outcome.INVALID, Outcome.OVER, Outcome.UNDECIDED, Outcome.BASELINE, Outcome.WITHIN)


def first_of(outcomes: Iterable[Outcome]) -> Outcome:
    """Return one outcome for a set of outcomes; INVALID if the set is empty."""
    present = set(outcomes)
    return next((outcome for outcome in _PRECEDENCE if outcome in present), Outcome.INVALID)


def format_ratio(ratio: float | None, *, short: bool = False) -> str:
    """Return a ratio such as ``1.053x``, or in its short form ``1.05``; ``?`` for None."""
    if ratio is None:
        return "?"
    if not math.isfinite(ratio):
        return "infinite"
    if ratio < 0.1:
        digits = f"{ratio:#.2g}" if short else f"{ratio:.2g}"
    elif not short and 0.8 <= ratio < 1.2:
        digits = f"{ratio:.3f}"  # as finely as budgets are stated
    else:
        digits = f"{ratio:.{0 if ratio >= 100 else 1 if ratio >= 10 else 2}f}"
    return digits if short else f"{digits}x"


def format_range(low: float | None, high: float | None) -> str:
    """Return the ends of an interval of ratios in their short form, such as ``1.03-1.07``."""
    return f"{format_ratio(low, short=True)}-{format_ratio(high, short=True)}"


def format_value(value: float) -> str:
    """Return a value with four significant digits and no exponent for everyday sizes."""
    if abs(value) >= 1e12:
        return f"{value:.3e}"
    # Rounded to four digits it would have an exponent from here on.
    return f"{value:.0f}" if abs(value) >= 9999.5 else f"{value:.4g}"
