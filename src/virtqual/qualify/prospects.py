"""Whether more pairs are expected to decide a metric."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import special

from virtqual.verdict import Verdict
from virtqual.verdict.rule import BETA

#: Chance of an answer below which a metric gets no more pairs: nine of ten such sessions would run in vain.
MIN_CHANCE = 0.1


def can_decide(verdict: Verdict, looks: Sequence[int]) -> bool:
    """Return whether the last look decides an undecided metric with a chance of `MIN_CHANCE` or more.

    The error shrinks with the root of the number of pairs.  Student's factor is that of the pairs alone: a
    wide interval of few pairs may narrow by more than that.
    """
    pairs, last_pairs, judged = verdict.pairs, looks[-1], verdict.judged
    if judged is None or not 1 < pairs < last_pairs:
        return True
    factor, last_factor = -special.stdtrit([pairs - 1, last_pairs - 1], BETA / len(looks))
    points = [(point.judged, point.limit, point.margin) for point in verdict.points]
    within, over = [], []
    for interval, limit, margin in points or [(judged, verdict.limit, verdict.margin)]:
        if interval.upper is None or limit is None or margin is None:
            return True
        last_error = (interval.upper - interval.log) / factor * math.sqrt(pairs / last_pairs)
        reach, shift = last_error * last_factor, last_error * math.sqrt(last_pairs / pairs - 1)
        within.append(special.ndtr((limit + margin - reach - interval.log) / shift))
        over.append(special.ndtr((interval.log - reach - limit) / shift))
    # Each size must be within; a single one that is over suffices.
    return bool(min(within) + max(over) >= MIN_CHANCE)


def explain_hopeless(verdict: Verdict, looks: Sequence[int]) -> str:
    """Return why a metric gets no more pairs, and what helps."""
    return (
        f"{looks[-1]} pairs are not expected to decide it: pairs vary by {verdict.spread or 0:.0%}, and the "
        f"margin is {math.expm1(verdict.margin or 0):.0%}; a quieter machine, longer runs or a wider margin "
        "would help"
    )
