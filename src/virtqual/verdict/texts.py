"""Verdicts and their reasons in words."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from statistics import median

import numpy as np
from scipy import special

from virtqual.verdict.batches import Question
from virtqual.verdict.budget import Budget
from virtqual.verdict.metric import Metric
from virtqual.verdict.outcome import Outcome, format_ratio, format_value
from virtqual.verdict.pairs import Pair, Series
from virtqual.verdict.rule import BETA, FLOOR, LOOKS, Cause, earlier_pairs_needed, resolved_margin
from virtqual.verdict.verdict import Interval, Verdict

TOO_GOOD = (
    f"faster than native by more than {-math.expm1(FLOOR):.0%}, which is too good to be true: look for a "
    "guest clock that runs slow, a wrong unit, or a native side that something slows down"
)


def message(verdict: Verdict, metric: Metric, margin_note: str = "") -> str:
    """Return a verdict in one or two lines: the estimate, values, budget and pairs; then the reasons."""
    head = f"{verdict.outcome.value} {verdict.series}"
    if verdict.native is None or verdict.virtual is None:
        return f"{head}: {'; '.join(verdict.reasons) or 'no pair was measured'}"
    native, virtual, estimate = verdict.native, verdict.virtual, ""
    if verdict.findings:
        estimate = " " + " and ".join(finding.text for finding in verdict.findings)
        native, virtual = verdict.findings[0].native, verdict.findings[0].virtual
    elif judged := verdict.estimate:
        estimate = f" {judged.text}"
        if verdict.points:
            worst = max(verdict.points, key=lambda point: point.judged.log - (point.limit or 0.0))
            size = f"{format_value(worst.size)} {metric.axis_unit}"
            ratio = format_ratio(worst.judged.ratio)
            estimate += f" over {len(verdict.points)} sizes, worst {ratio} at {size}"
    is_baseline = verdict.outcome is Outcome.BASELINE
    subject = "baseline recorded, overhead" if is_baseline else "overhead"
    if verdict.change is not None:
        subject = "change of the overhead since the earlier session"
    allowed = "change allowed" if verdict.gate == "change" else "budget"
    budget = "" if is_baseline else f"{allowed} {verdict.budget}{margin_note}; "
    values = f"native {format_value(native)}, virtual {format_value(virtual)} {metric.unit}"
    pairs = f"{verdict.pairs} pair{'' if verdict.pairs == 1 else 's'}"
    text = f"{head}: {subject}{estimate}; {values}; {budget}{pairs}"
    return text + ("\n" + "; ".join(verdict.reasons) if verdict.reasons else "")


def budget_text(budget: Budget, metric: Metric) -> str:
    """Return budget and margin, of several ranges of sizes each with its range."""
    if len(budget.terms) == 1:
        return budget.terms[0].text(metric)
    ranges = [
        f"{low:g} to {high:g} {metric.axis_unit}" for low, high in (term.bounds for term in budget.terms)
    ]
    return "; ".join(f"{term.text(metric)} {sizes}" for term, sizes in zip(budget.terms, ranges, strict=True))


def range_text(judged: Interval, points: Sequence[float], metric: Metric) -> str:
    """Return such as ``1.22x worse (1.17x to 1.27x) from 16 to 128 B``; of a scalar without sizes."""
    if not points:
        return judged.text
    low, high = format_value(points[0]), format_value(points[-1])
    sizes = f"at {low}" if len(points) == 1 else f"from {low} to {high}"
    return f"{judged.text} {sizes} {metric.axis_unit}"


def margin_note(question: Question) -> str:
    """Return the margin that was used, of sizes the widest, if it is wider than the stated one."""
    stated, used, limit = question.margin, question.used_margin, question.limit
    baseline = question.case.baseline
    if baseline is None or not np.any(used > stated + 1e-9):
        return ""
    sign = 1 if question.case.series.metric.better == "lower" else -1
    widest = np.max(sign * (np.exp(sign * (limit + used)) - np.exp(sign * limit)))
    return f", here {widest:.2g} against {len(baseline.valid)} earlier pairs"


def too_few(pairs: int, needed: int) -> str:
    """Return that there are fewer pairs than the first decision needs."""
    return f"{pairs} of the {needed} pairs that the first decision needs"


def left_out(series: Series) -> tuple[str, ...]:
    """Return which pairs do not count, and why; reasons that differ only in numbers stand together.

    If no pair counts, the median ratio of all pairs is added.
    """
    groups: dict[str, list[tuple[int, str]]] = {}
    for pair in series.pairs:
        if pair.invalid:
            reason = "; ".join(pair.invalid)
            groups.setdefault(re.sub(r"\d[\d.]*", "N", reason), []).append((pair.number, reason))
    texts = []
    for pairs in groups.values():
        numbers = ", ".join(str(number) for number, _ in pairs)
        subject = f"pair {numbers} left out"
        if len(pairs) > 1:
            subject = f"pairs {numbers} left out, the first of them"
        texts.append(f"{subject}: {pairs[0][1]}")
    if texts and not series.valid and (ratio := _median_ratio(series.pairs)) is not None:
        texts.append(f"the pairs left out show {format_ratio(ratio)}, whose cause is unknown")
    return tuple(texts)


def _median_ratio(pairs: Sequence[Pair]) -> float | None:
    """Return the median of virtual/native of all pairs with two positive values, valid or not."""
    logs = []
    for pair in pairs:
        if pair.native and pair.virtual and pair.native.has_values and pair.virtual.has_values:
            logs.append(float(np.log(np.divide(pair.virtual.values, pair.native.values)).mean()))
    return math.exp(median(logs)) if logs else None


def reasons_of(question: Question) -> tuple[str, ...]:
    """Return the reasons of one answer of the rule; none for WITHIN and OVER."""
    looks, cause = question.state.looks, question.cause
    series, width = question.case.series, question.places.width
    if cause is Cause.ANSWERED:
        return ()
    if cause is Cause.OPEN:
        if question.next_pairs:
            return (f"the next decision needs {question.next_pairs} pairs",)
        return (f"still undecided at the maximum of {looks[-1] * width} pairs",)
    if cause is Cause.TOO_FEW_PAIRS:
        return (too_few(len(question.pairs), looks[0] * width),)
    if cause is Cause.CENSORED:
        virtual, native = series.refused("virtual"), series.refused("native")
        return (
            f"{virtual} virtual runs were refused or left nothing, and {native} native ones: "
            "what is left out might decide",
        )
    if cause is Cause.TOO_GOOD:
        return (TOO_GOOD,)
    texts = {Cause.NOISE: _noise_text, Cause.MARGIN: _margin_text, Cause.HOSTS: _hosts_text}
    return (texts[cause](question),)


def _noise_text(question: Question) -> str:
    """Return that the session's own spread is too wide, and how many pairs the margin would need."""
    native, virtual = question.costs
    spread, margin = (virtual - native).std(axis=0, ddof=1), question.used_margin
    worst = int(np.argmax(spread / margin))
    t = -float(special.stdtrit(LOOKS[-1] - 1, question.state.pass_level))
    needed = math.ceil((t * spread[worst] / margin[worst]) ** 2)
    series = question.case.series
    size = f" at {format_value(series.points[worst])} {series.metric.axis_unit}" if series.points else ""
    return (
        f"noise too high: a pair varies by {spread[worst]:.1%}{size}; its margin of "
        f"{math.expm1(margin[worst]):.1%} would need {needed} pairs, {LOOKS[-1]} are the maximum"
    )


def _margin_text(question: Question) -> str:
    """Return that the earlier session has too few pairs, and how many it needs."""
    noise, earlier = question.state.noise_of(np.array([question.row])), question.earlier
    assert earlier is not None
    pairs, max_margin = len(earlier[0]), float(np.max(question.max_margin))
    # In a rotation each number of a pair stands for a pair on every node.
    width = question.places.width
    resolved = float(np.max(resolved_margin(noise, LOOKS[-1] * width, pairs, BETA / len(LOOKS))))
    needed = np.ceil(earlier_pairs_needed(noise, max_margin, [look * width for look in LOOKS]) / width)
    enough = (
        f"it takes {needed:.0f} pairs (virtqual qualify --pairs {needed:.0f}), or fewer with a history"
        if needed <= LOOKS[-1]
        else f"{LOOKS[-1]} pairs are not enough either, and it takes a history"
    )
    sign = 1 if question.case.series.metric.better == "lower" else -1
    hidden, allowed = (abs(math.expm1(sign * margin)) for margin in (resolved, max_margin))
    return (
        f"the earlier session has {pairs} pairs: a change could hide up to {hidden:.1%} above what is "
        f"allowed, more than {allowed:.0%}; with the noise that is known, {enough} of the noise "
        "(virtqual record)"
    )


def _hosts_text(question: Question) -> str:
    """Return that hosts in fixed roles forbid an answer, and what helps."""
    places, earlier, session = question.places, question.earlier, ""
    if not math.isinf(places.bias) and earlier is not None:
        places, session = earlier[2], "in the earlier session "
    native, virtual = (", ".join(names) for names in places.roles)
    return (
        f"{session}native ran on {native} and virtual machines on {virtual}: a slow host looks like a slow "
        "guest, and no number of pairs tells them apart; exchange the hosts' roles, or survey them "
        "(virtqual record --hosts)"
    )
