"""Judge cases by the rule and make the verdicts: sessions of one shape at once, each for itself."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from virtqual.verdict import rule, texts
from virtqual.verdict.batches import Case, Question, Ruling, batch_of
from virtqual.verdict.budget import BudgetError
from virtqual.verdict.estimate import Floats, append_mean
from virtqual.verdict.outcome import Outcome
from virtqual.verdict.pairs import PairingError
from virtqual.verdict.places import host_effects
from virtqual.verdict.rule import ALPHA, LOOKS, Cause
from virtqual.verdict.verdict import Interval, OverRange, Point, Verdict, finite_or_none, rounded


@dataclass(frozen=True)
class _Settled:
    """The answer on a case that the rule is not asked about."""

    outcome: Outcome
    reasons: tuple[str, ...] = ()
    next_pairs: int | None = None


def judge_all(
    sessions: Sequence[Sequence[Case]], *, looks: Sequence[int] = LOOKS, alpha: float = ALPHA
) -> list[list[Verdict]]:
    """Return the verdicts on the cases of sessions: those of a session share an error rate.

    Parameters
    ----------
    sessions
        Cases of each session.
    looks
        After how many pairs a decision is tried; see `virtqual.verdict.rule.judge`.
    alpha
        Chance that a session calls anything OVER although every true overhead is within its budget.

    Raises
    ------
    PairingError
        If a baseline is another metric, setting or set of points.
    BudgetError
        If a budget cannot be applied to its metric and values.
    """
    entries: list[list[tuple[Case, _Settled | None, Question | None]]] = []
    for cases in sessions:
        entries.append([])
        for case in cases:
            settled = _settle(case, looks[0])
            # A case can belong to several sessions; each session builds its own Question.
            question = None if settled else _question(case, case.gate == "change")
            entries[-1].append((case, settled, question))
    judged = [[question for _, _, question in row if question is not None] for row in entries]
    rulings = {ruling.question: ruling for ruling in _rule(judged, looks, alpha)}
    # Overheads that are only shown are judged each as a session of its own.
    shown = [
        [_question(case, False)]
        for row in entries
        for case, settled, _ in row
        if case.series.valid and (settled is not None or case.gate == "change")
    ]
    overheads = {ruling.question.case: ruling for ruling in _rule(shown, looks, alpha)}
    return [
        [
            _verdict(case, settled, rulings[question] if question else None, overheads.get(case), looks)
            for case, settled, question in row
        ]
        for row in entries
    ]


def _settle(case: Case, first_look: int) -> _Settled | None:
    """Return the answer if the rule is not asked, else None."""
    series, baseline = case.series, case.baseline
    attempted, valid = len(series.pairs), len(series.valid)
    order = [series.not_alternated]
    if baseline is not None:
        if (series.id, series.points) != (baseline.id, baseline.points):
            what = "points" if series.id == baseline.id else "series"
            raise PairingError(f"{series.id}: the earlier session has other {what} ({baseline.id}).")
        if baseline.not_alternated:
            order.append(f"earlier session: {baseline.not_alternated}")
    refused = (*case.refused, *filter(None, order))
    if refused or mostly_invalid(attempted, valid):
        return _Settled(Outcome.INVALID, refused)
    if valid == 0:
        return _Settled(Outcome.UNDECIDED, (texts.too_few(valid, first_look),), first_look)
    if case.gate == "change" and baseline is None:
        return _Settled(Outcome.BASELINE)
    if baseline is not None and len(baseline.valid) < 2:
        return _Settled(Outcome.INVALID, (texts.too_few_earlier(len(baseline.valid)),))
    return None


def mostly_invalid(attempted: int, valid: int) -> bool:
    """Return whether half of the pairs or more are refused, so that more pairs are pointless."""
    return (attempted >= 2 and valid == 0) or (attempted >= 4 and 2 * valid <= attempted)


def _question(case: Case, is_change: bool) -> Question:
    series = case.series
    try:
        limits = case.budget.limits(series.metric, series.points, series.medians("native"))
    except BudgetError:
        # A refused series is shown without its budget.
        if not case.refused:
            raise
        limits = (np.full(series.width, np.nan),) * 3
    return Question(case, *limits, is_change)


def _rule(sessions: Sequence[Sequence[Question]], looks: Sequence[int], alpha: float) -> Iterable[Ruling]:
    """Judge the questions of each session together, sessions of one shape at once."""
    shapes: dict[Hashable, list[dict[Hashable, list[Question]]]] = defaultdict(list)
    for questions in sessions:
        groups = defaultdict(list)
        for question in questions:
            groups[question.key].append(question)
        if groups:
            shapes[frozenset((key, len(members)) for key, members in groups.items())].append(groups)
    for shape in shapes.values():
        grids = [[groups[key] for groups in shape] for key in shape[0]]
        batches = [batch_of(grid) for grid in grids]
        for grid, state in zip(grids, rule.judge(batches, looks=looks, alpha=alpha), strict=True):
            questions = [question for questions in grid for question in questions]
            for row, (question, pairs) in enumerate(zip(questions, state.next_pairs(looks), strict=True)):
                yield Ruling(question, state, row, int(pairs))


def _verdict(
    case: Case, settled: _Settled | None, ruling: Ruling | None, beside: Ruling | None, looks: Sequence[int]
) -> Verdict:
    """Return the verdict: the answer, and all numbers that are shown with any answer."""
    series, metric = case.series, case.series.metric
    answer = settled or _Settled(Outcome.INVALID)
    if ruling is not None:
        # In a rotation the next look needs complete rounds.
        next_pairs = ruling.next_pairs * ruling.question.places.width or None
        answer = _Settled(ruling.outcome, texts.reasons_of(ruling, looks), next_pairs)
    overhead = beside or ruling
    if beside is not None and beside.cause is Cause.TOO_GOOD and not case.refused:
        answer = _Settled(Outcome.INVALID, (*answer.reasons, texts.TOO_GOOD))
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
    )
    note = ""
    if overhead is not None:
        judged = ruling or overhead
        verdict = verdict.model_copy(update=_numbers(judged, overhead, answer.outcome))
        note = texts.margin_note(judged)
    return verdict.model_copy(update={"message": texts.message(verdict, metric, note)})


def _numbers(ruling: Ruling, overhead: Ruling, outcome: Outcome) -> dict[str, object]:
    """Return the fields of a verdict that are numbers: of the judged question, and of the overhead."""
    question = ruling.question
    series, places = question.case.series, question.deciding_places
    native, virtual = series.medians("native"), series.medians("virtual")
    overheads = _intervals(overhead)
    changes = _intervals(ruling) if question.is_change else None
    judged = changes or overheads
    points = tuple(
        Point(
            size=size,
            native=rounded(native[i]),
            virtual=rounded(virtual[i]),
            overhead=overheads[i],
            judged=judged[i],
            limit=finite_or_none(question.limit[i]),
            margin=finite_or_none(ruling.margin[i]),
        )
        for i, size in enumerate(series.points)
    )
    has_budget = not math.isnan(question.limit[0])
    spread = series.differences.mean(axis=1).std(ddof=1) if len(series.valid) > 1 else None
    native_hosts, virtual_hosts = places.roles if places.are_known else ((), ())
    return {
        "overhead": overheads[-1],
        "change": changes[-1] if changes else None,
        "native": _geometric_mean(native),
        "virtual": _geometric_mean(virtual),
        "limit": float(min(question.limit)) if has_budget else None,
        "margin": float(min(ruling.margin)) if has_budget else None,
        "pairs": ruling.pairs * question.places.width or len(question.pairs),
        "spread": None if spread is None else float(spread),
        "points": points,
        "findings": _findings(ruling, judged[0]) if outcome is Outcome.OVER else (),
        "hosts": _host_factors(overhead.question),
        "native_hosts": native_hosts,
        "virtual_hosts": virtual_hosts,
        "confounded": places.confounded,
    }


def _geometric_mean(values: Floats) -> float:
    return float(values[0]) if len(values) == 1 else float(np.exp(np.mean(np.log(values))))


def _intervals(ruling: Ruling) -> list[Interval]:
    """Return the interval of each size and of the whole curve."""
    better = ruling.question.case.series.metric.better
    return [Interval.build(*bounds, better) for bounds in ruling.bounds]


def _findings(ruling: Ruling, scalar: Interval) -> tuple[OverRange, ...]:
    """Return the ranges that are over budget, the worst first; of a scalar its interval."""
    series, limit = ruling.question.case.series, ruling.question.limit
    metric, native, virtual = series.metric, series.medians("native"), series.medians("virtual")

    def build(judged: Interval, sizes: slice, low: float | None, high: float | None, text: str) -> OverRange:
        return OverRange(
            low=low,
            high=high,
            judged=judged,
            limit=float(np.mean(limit[sizes])),
            native=_geometric_mean(native[sizes]),
            virtual=_geometric_mean(virtual[sizes]),
            text=text,
        )

    if not series.points:
        return (build(scalar, slice(1), None, None, scalar.text),)
    ranges = rule.find_ranges(ruling.state, ruling.row)
    findings = []
    for size_range in sorted(ranges, key=lambda part: np.mean(limit[part.sizes]) - part.mean):
        sizes = size_range.sizes
        upper = float(np.mean([bounds[2] for bounds in ruling.bounds[sizes]]))
        bounds = (size_range.mean, size_range.low, max(size_range.mean, upper))
        judged = Interval.build(*bounds, metric.better)
        low, high = series.points[sizes][0], series.points[sizes][-1]
        findings.append(build(judged, sizes, low, high, texts.range_text(judged, low, high, metric)))
    return tuple(findings)


def _host_factors(question: Question) -> dict[str, float]:
    """Return how much slower each host is than the mean of its kind, over a whole curve."""
    places = question.places
    if places.kind not in ("exchanged", "rotated"):
        return {}
    native, virtual = map(append_mean, question.costs)
    effects, is_known = host_effects(native, virtual, places)
    return {places.hosts[host]: math.exp(effects[host, -1]) for host in np.flatnonzero(is_known)}
