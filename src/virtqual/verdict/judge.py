"""Judge cases by the rule and make the verdicts: sessions of one shape at once, each for itself."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from virtqual.verdict import rule, texts
from virtqual.verdict.batches import Case, Question, batch_of
from virtqual.verdict.budget import BudgetError
from virtqual.verdict.clock import MIN_CLOCK_PAIRS, find_clock_of
from virtqual.verdict.estimate import Floats
from virtqual.verdict.outcome import Outcome
from virtqual.verdict.pairs import PairingError
from virtqual.verdict.rule import ALPHA, LOOKS, Batch, Cause
from virtqual.verdict.verdict import Interval, OverRange, Point, Verdict, finite_or_none, rounded


@dataclass(frozen=True)
class _Answer:
    """The answer of a verdict, by the rule or without it."""

    outcome: Outcome
    reasons: tuple[str, ...] = ()
    next_pairs: int | None = None


@dataclass(frozen=True)
class _Entry:
    """A case of one session with its answer, or the question to the rule.

    `overhead` is the question to the rule for an overhead that is only shown.
    """

    case: Case
    answer: _Answer | None
    question: Question | None
    overhead: Question | None

    @classmethod
    def build(cls, case: Case, looks: Sequence[int]) -> _Entry:
        """Return the entry of a case; a case can belong to several sessions."""
        answer, is_change = _answer_without_rule(case, looks), case.gate == "change"
        question = None if answer else _build_question(case, is_change)
        is_shown = bool(case.series.valid) and (answer is not None or is_change)
        return cls(case, answer, question, _build_question(case, False) if is_shown else None)


def judge_all(
    sessions: Sequence[Sequence[Case]],
    *,
    looks: Sequence[int] = LOOKS,
    alpha: float = ALPHA,
    min_pairs: int = 0,
    min_boots: int = 1,
) -> list[list[Verdict]]:
    """Return the verdicts on the cases of each session: these share the error rate `alpha`.

    Raises
    ------
    PairingError
        If a baseline is another metric, setting or set of points.
    BudgetError
        If a budget cannot be applied to its metric and values.
    """
    entries = [[_Entry.build(case, looks) for case in cases] for cases in sessions]
    questions = [[entry.question for entry in row if entry.question] for row in entries]
    # Overheads that are only shown are judged each as a session of its own.
    questions += [[entry.overhead] for row in entries for entry in row if entry.overhead]
    for batches in _make_batches(questions, min_boots):
        rule.judge(batches, looks, alpha, min_pairs=min_pairs)
    return [[_build_verdict(entry) for entry in row] for row in entries]


def _answer_without_rule(case: Case, looks: Sequence[int]) -> _Answer | None:
    """Return the answer if the rule is not asked, else None."""
    series, baseline = case.series, case.baseline
    left_out = series.set_aside | series.cut_off
    attempted = sum(pair.number not in left_out for pair in series.pairs)
    valid, refused = len(series.valid), list(case.refused)
    if reason := series.not_alternated:
        refused.append(reason)
    if baseline is not None:
        if (series.id, series.points) != (baseline.id, baseline.points):
            difference = "points" if series.id == baseline.id else "series"
            raise PairingError(f"{series.id}: the earlier session has other {difference} ({baseline.id}).")
        if reason := baseline.not_alternated:
            refused.append(f"earlier session: {reason}")
    # More pairs are pointless if half of them are refused.
    is_mostly_invalid = (attempted >= 2 and valid == 0) or (attempted >= 4 and 2 * valid <= attempted)
    if refused or is_mostly_invalid:
        return _Answer(Outcome.INVALID, tuple(refused))
    if valid == 0:
        return _Answer(Outcome.UNDECIDED, (texts.too_few(valid, looks[0]),), looks[0])
    if case.gate == "change" and baseline is None:
        return _Answer(Outcome.BASELINE)
    if baseline is not None and len(baseline.valid) < 2:
        reason = f"the earlier session has {len(baseline.valid)} valid pairs: at least 2 are needed"
        return _Answer(Outcome.INVALID, (reason,))
    return _answer_by_clock(case, looks)


def _answer_by_clock(case: Case, looks: Sequence[int]) -> _Answer | None:
    """Return the answer if a clock is too coarse for the margin, else None."""
    pairs = len(case.series.valid)
    if pairs >= looks[0] and (clock := find_clock_of(case.series, case.budget)):
        if pairs >= MIN_CLOCK_PAIRS:
            return _Answer(Outcome.INVALID, (clock.describe(),))
        next_pairs = next((look for look in looks if look > pairs), None)
        reason = f"more pairs may show smaller steps; {clock.describe()}"
        return _Answer(Outcome.UNDECIDED, (reason,), next_pairs)
    if case.baseline is not None and (clock := find_clock_of(case.baseline, case.budget)):
        return _Answer(Outcome.INVALID, (f"earlier session: {clock.describe()}",))
    return None


def _build_question(case: Case, is_change: bool) -> Question:
    series = case.series
    try:
        limits = case.budget.limits(series.metric, series.points, series.medians["native"])
    except BudgetError:
        # A refused series is shown without its budget.
        if not case.refused:
            raise
        limits = (np.full(series.width, np.nan),) * 3
    return Question(case, *limits, is_change)


def _make_batches(sessions: Sequence[Sequence[Question]], min_boots: int) -> Iterator[list[Batch]]:
    """Yield the batches that are judged together: of one session, or of sessions of one shape."""
    shapes: dict[Hashable, list[dict[Hashable, list[Question]]]] = defaultdict(list)
    for questions in sessions:
        groups = defaultdict(list)
        for question in questions:
            groups[question.key].append(question)
        if groups:
            shapes[frozenset((key, len(members)) for key, members in groups.items())].append(groups)
    for shape in shapes.values():
        yield [batch_of([groups[key] for groups in shape], min_boots) for key in shape[0]]


def _build_verdict(entry: _Entry) -> Verdict:
    """Return the verdict: the answer, and all numbers that are shown with any answer."""
    case, answer, question = entry.case, entry.answer, entry.question
    series, metric = case.series, case.series.metric
    if question is not None:
        answer = _Answer(question.outcome, texts.reasons_of(question), question.next_pairs)
    assert answer is not None  # an entry without an answer has a question
    if entry.overhead is not None and entry.overhead.cause is Cause.TOO_GOOD and not case.refused:
        answer = _Answer(Outcome.INVALID, (*answer.reasons, texts.TOO_GOOD))
    overhead = entry.overhead or question
    judged = question or overhead
    verdict = Verdict(
        metric=metric.name,
        setting=series.setting,
        gate=case.gate,
        outcome=answer.outcome,
        unit=metric.unit,
        better=metric.better,
        budget=texts.budget_text(case.budget, metric),
        next_pairs=answer.next_pairs,
        reasons=(*answer.reasons, *texts.left_out(series)),
        **(_list_numbers(judged, overhead, answer.outcome) if judged and overhead else {}),
    )
    verdict.message = texts.message(verdict, metric, texts.margin_note(judged) if judged else "")
    return verdict


def _list_numbers(question: Question, overhead: Question, outcome: Outcome) -> dict[str, Any]:
    """Return the fields of a verdict that are numbers: of the judged question, and of the overhead."""
    series, places, limits = question.case.series, question.deciding_places, question.limit
    native, virtual = series.medians["native"], series.medians["virtual"]
    overheads = _build_intervals(overhead)
    changes = _build_intervals(question) if question.is_change else None
    judged = changes or overheads
    points = tuple(
        Point(
            size=size,
            native=rounded(native[i]),
            virtual=rounded(virtual[i]),
            overhead=overheads[i],
            judged=judged[i],
            limit=finite_or_none(limits[i]),
            margin=finite_or_none(question.used_margin[i]),
        )
        for i, size in enumerate(series.points)
    )
    has_budget = not math.isnan(limits[0])
    spread = float(series.differences.mean(axis=1).std(ddof=1)) if len(series.valid) > 1 else None
    native_hosts, virtual_hosts = places.roles if places.are_known else ((), ())
    return {
        "overhead": overheads[-1],
        "change": changes[-1] if changes else None,
        "native": _geometric_mean(native),
        "virtual": _geometric_mean(virtual),
        "limit": float(min(limits)) if has_budget else None,
        "margin": float(min(question.used_margin)) if has_budget else None,
        "pairs": question.used_pairs if outcome is Outcome.OVER else question.pairs,
        "boots": len({pair.virtual.boot for pair in series.valid if pair.virtual and pair.virtual.boot}),
        "spread": spread,
        "points": points,
        "findings": _list_findings(question, judged[0]) if outcome is Outcome.OVER else (),
        "native_hosts": native_hosts,
        "virtual_hosts": virtual_hosts,
        "confounded": places.confounded,
    }


def _geometric_mean(values: Floats) -> float:
    return float(values[0]) if len(values) == 1 else float(np.exp(np.mean(np.log(values))))


def _build_intervals(question: Question) -> list[Interval]:
    """Return the interval of each size and of the whole curve."""
    better = question.case.series.metric.better
    return [Interval.build(*bounds, better) for bounds in question.bounds]


def _list_findings(question: Question, scalar: Interval) -> tuple[OverRange, ...]:
    """Return the ranges that are over budget, the worst first; of a scalar its interval."""
    series, limits = question.case.series, question.limit
    metric, native, virtual = series.metric, series.medians["native"], series.medians["virtual"]

    def build(judged: Interval, sizes: slice) -> OverRange:
        points = series.points[sizes]
        low, high = (points[0], points[-1]) if points else (None, None)
        return OverRange(
            low=low,
            high=high,
            judged=judged,
            limit=float(np.mean(limits[sizes])),
            native=_geometric_mean(native[sizes]),
            virtual=_geometric_mean(virtual[sizes]),
            text=texts.range_text(judged, points, metric),
        )

    if not series.points:
        return (build(scalar, slice(1)),)
    ranges = rule.find_ranges(question.batch, question.row)
    findings = []
    for part in sorted(ranges, key=lambda part: np.mean(limits[part.sizes]) - part.mean):
        upper = float(np.mean([bounds[2] for bounds in question.bounds[part.sizes]]))
        judged = Interval.build(part.mean, part.low, max(part.mean, upper), metric.better)
        findings.append(build(judged, part.sizes))
    return tuple(findings)
