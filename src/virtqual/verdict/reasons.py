"""Reasons for which a series is not WITHIN, in words."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from statistics import fmean, median

import numpy as np
from scipy import special

from virtqual.verdict.batches import Ruling
from virtqual.verdict.outcome import number, times
from virtqual.verdict.pairs import Pair, Series
from virtqual.verdict.rule import (
    BETA,
    FLOOR,
    LOOKS,
    Reason,
    earlier_pairs_needed,
    resolved_margin,
)

TOO_GOOD = (
    f"faster than native by more than {-math.expm1(FLOOR):.0%}, which is too good to be true: look for a "
    "guest clock that runs slow, a wrong unit, or a native side that something slows down"
)


def too_few(pairs: int, wanted: int) -> str:
    """Return that there are fewer pairs than the first decision needs."""
    return f"{pairs} of the {wanted} pairs that the first decision needs"


def too_few_earlier(pairs: int) -> str:
    """Return that the earlier session has too few pairs."""
    return f"the earlier session has {pairs} valid pairs: at least 2 are needed"


def left_out(series: Series) -> tuple[str, ...]:
    """Return which pairs do not count, and why; reasons that differ in numbers alone stand together.

    Where none counts, what they show all the same is said, too.
    """
    alike: dict[str, list[tuple[int, str]]] = {}
    for pair in series.pairs:
        if pair.invalid:
            why = "; ".join(pair.invalid)
            alike.setdefault(re.sub(r"\d[\d.]*", "N", why), []).append((pair.number, why))
    told = [_left_out(pairs) for pairs in alike.values()]
    if told and not series.valid and (ratio := _shown(series.pairs)):
        told.append(f"what was left out shows {ratio}, and not whose it is")
    return tuple(told)


def _shown(pairs: Sequence[Pair]) -> str:
    """Return virtual/native in the middle of all pairs that have both, whether they count or not."""
    both = [(pair.native.values, pair.virtual.values) for pair in pairs if pair.native and pair.virtual]
    logs = [
        fmean(math.log(b / a) for a, b in zip(native, virtual, strict=True))
        for native, virtual in both
        if len(native) == len(virtual) and all(math.isfinite(v) and v > 0 for v in (*native, *virtual))
    ]
    return times(math.exp(median(logs))) if logs else ""


def _left_out(pairs: Sequence[tuple[int, str]]) -> str:
    numbers = ", ".join(str(number) for number, _ in pairs)
    if len(pairs) == 1:
        return f"pair {numbers} left out: {pairs[0][1]}"
    return f"pairs {numbers} left out, the first of them: {pairs[0][1]}"


def of(row: Ruling, looks: Sequence[int]) -> tuple[str, ...]:
    """Return the reasons of one answer of the rule; none for WITHIN and OVER."""
    reason, series = Reason(int(row.reason)), row.question.case.series
    if reason is Reason.OPEN:
        if row.pairs < looks[-1]:
            return ()
        return (f"still undecided at the maximum of {looks[-1] * row.question.places.width} pairs",)
    if reason is Reason.TOO_FEW_PAIRS:
        return (too_few(len(row.question.pairs), looks[0] * row.question.places.width),)
    if reason is Reason.CENSORED:
        virtual, native = series.refused("virtual"), series.refused("native")
        return (
            f"{virtual} virtual runs were refused or left nothing, and {native} native ones: "
            "what is left out might decide",
        )
    if reason is Reason.TOO_GOOD:
        return (TOO_GOOD,)
    if reason is Reason.NOISE:
        return (_noise(row, looks),)
    if reason is Reason.MARGIN:
        return (_margin(row),)
    if reason is Reason.HOSTS:
        return (_hosts(row),)
    return ()


def _noise(row: Ruling, looks: Sequence[int]) -> str:
    """Return that the session's own spread is too wide, and how many pairs it would take."""
    native, virtual = row.question.costs
    spread, margin = (virtual - native).std(axis=0, ddof=1), np.asarray(row.margin)
    worst = int(np.argmax(spread / margin))
    t = -float(special.stdtrit(LOOKS[-1] - 1, BETA / len(looks)))
    needed = math.ceil((t * spread[worst] / margin[worst]) ** 2)
    series = row.question.case.series
    at = f" at {number(series.points[worst])} {series.metric.axis_unit}" if series.points else ""
    return (
        f"noise too high: a pair varies by {spread[worst]:.1%}{at}; its margin of "
        f"{math.expm1(margin[worst]):.1%} would need {needed} pairs, {LOOKS[-1]} are the maximum"
    )


def _margin(row: Ruling) -> str:
    """Return that the earlier session has too few pairs, and how many it would take."""
    noise = row.alone[0].noise
    earlier = row.question.earlier
    assert earlier is not None
    pairs, most = len(earlier[0]), float(np.max(row.question.most_margin))
    # Of a rotation each number of a pair stands for one on every node.
    width = row.question.places.width
    resolved = float(np.max(resolved_margin(noise, LOOKS[-1] * width, pairs, BETA / len(LOOKS))))
    needed = np.ceil(earlier_pairs_needed(noise, most, [look * width for look in LOOKS]) / width)
    enough = (
        f"it takes {needed:.0f} pairs (virtqual qualify --pairs {needed:.0f}), or fewer with a history"
        if needed <= LOOKS[-1]
        else f"{LOOKS[-1]} pairs are not enough either, and it takes a history"
    )
    sign = 1 if row.question.case.series.metric.better == "lower" else -1
    hidden, allowed = (abs(math.expm1(sign * margin)) for margin in (resolved, most))
    return (
        f"the earlier session has {pairs} pairs: a change could hide up to {hidden:.1%} above what is "
        f"allowed, more than {allowed:.0%}; with the noise that is known, {enough} of the noise "
        "(virtqual record)"
    )


def _hosts(row: Ruling) -> str:
    """Return that hosts in fixed roles forbid an answer, and what helps."""
    places, earlier = row.question.places, row.question.earlier
    where = ""
    if not math.isinf(places.bias) and earlier is not None:
        places, where = earlier[2], "in the earlier session "
    native, virtual = (", ".join(names) for names in places.roles)
    return (
        f"{where}native ran on {native} and virtual machines on {virtual}: a slow host looks like a slow "
        "guest, and no number of pairs tells them apart; exchange the hosts' roles, or survey them "
        "(virtqual record --hosts)"
    )
