"""Judge cases by the rule, and say what came out: sessions of one shape at once, each for itself."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from virtqual.references.budgets import BudgetError
from virtqual.verdict import reasons, rule
from virtqual.verdict.batches import Question, Ruling, batch_of
from virtqual.verdict.estimate import Floats, with_whole
from virtqual.verdict.outcome import Case, Finding, Interval, Outcome, Point, Verdict
from virtqual.verdict.pairs import PairingError
from virtqual.verdict.places import Places, host_effects
from virtqual.verdict.rule import ALPHA, LOOKS, Code, Reason

OUTCOMES = {
    Code.UNDECIDED: Outcome.UNDECIDED,
    Code.WITHIN: Outcome.WITHIN,
    Code.OVER: Outcome.OVER,
    Code.INVALID: Outcome.INVALID,
}


def judge_all(
    sessions: Sequence[Sequence[Case]], *, looks: Sequence[int] = LOOKS, alpha: float = ALPHA
) -> list[list[Verdict]]:
    """Judge the cases of sessions: those of a session together, every session for itself.

    Parameters
    ----------
    sessions
        Cases of each session.
    looks
        After how many pairs a decision is tried; see `virtqual.verdict.rule.judge`.
    alpha
        Chance that a session calls anything OVER while every true overhead is within its budget.

    Returns
    -------
    list of list of Verdict
        In the order of the cases.

    Raises
    ------
    PairingError
        If a baseline is another metric, setting or set of points.
    BudgetError
        If a budget cannot be applied to its metric and values.
    """
    settled = [[_settled(case, looks[0]) for case in cases] for cases in sessions]
    # One case may stand in several sessions, in other company in each: its question is the session's own.
    asked = [
        [
            None if why is not None else _question(case, case.gate == "change")
            for case, why in zip(cases, whys, strict=True)
        ]
        for cases, whys in zip(sessions, settled, strict=True)
    ]
    rows = {row.question: row for row in _rows([list(filter(None, one)) for one in asked], looks, alpha)}
    # Overheads that are not what is asked about are shown beside it, each as a session of its own.
    beside = [
        [_question(case, False)]
        for cases, whys in zip(sessions, settled, strict=True)
        for case, why in zip(cases, whys, strict=True)
        if case.series.valid and (why is not None or case.gate == "change")
    ]
    shown = {row.question.case: row for row in _rows(beside, looks, alpha)}
    return [
        [
            _verdict(case, why, None if question is None else rows[question], shown.get(case), looks)
            for case, why, question in zip(cases, whys, questions, strict=True)
        ]
        for cases, whys, questions in zip(sessions, settled, asked, strict=True)
    ]


def _settled(case: Case, least: int) -> tuple[Outcome, tuple[str, ...], int | None] | None:
    """Return outcome, reasons and pairs to decide with, where the rule is not asked; None where it is."""
    series, baseline = case.series, case.baseline
    attempted, valid = len(series.pairs), len(series.valid)
    if baseline is not None and (series.id, series.points) != (baseline.id, baseline.points):
        what = "points" if series.id == baseline.id else "series"
        raise PairingError(f"{series.id}: the earlier session has other {what} ({baseline.id}).")
    earlier = baseline.not_alternated if baseline is not None else ""
    order = [series.not_alternated, earlier and f"earlier session: {earlier}"]
    refused = (*case.refused, *filter(None, order))
    if refused or mostly_invalid(attempted, valid):
        return Outcome.INVALID, refused, None
    if valid == 0:
        return Outcome.UNDECIDED, (reasons.too_few(valid, least),), least
    if case.gate == "change" and baseline is None:
        return Outcome.BASELINE, (), None
    if baseline is not None and len(baseline.valid) < 2:
        return Outcome.INVALID, (reasons.too_few_earlier(len(baseline.valid)),), None
    return None


def mostly_invalid(attempted: int, valid: int) -> bool:
    """Return whether asking for more pairs is pointless: refusals are the rule and not the exception."""
    return (attempted >= 2 and valid == 0) or (attempted >= 4 and 2 * valid <= attempted)


def _question(case: Case, change: bool) -> Question:
    series = case.series
    try:
        limits = case.budget.limits(series.metric, series.points, series.medians("native"))
    except BudgetError:
        # A refused series is shown without its budget.
        if not case.refused:
            raise
        limits = (np.full(series.width, np.nan),) * 3
    return Question(case, *limits, change)


def _rows(sessions: Sequence[Sequence[Question]], looks: Sequence[int], alpha: float) -> Iterable[Ruling]:
    """Judge the questions of each session together, sessions of one shape at once."""
    alike: dict[Hashable, list[dict[Hashable, list[Question]]]] = defaultdict(list)
    for questions in sessions:
        groups = defaultdict(list)
        for question in questions:
            groups[question.key].append(question)
        if groups:
            alike[frozenset((key, len(members)) for key, members in groups.items())].append(groups)
    for members in alike.values():
        grids = [[groups[key] for groups in members] for key in members[0]]
        batches = [batch_of(grid) for grid in grids]
        for grid, batch, judged in zip(
            grids, batches, rule.judge(batches, looks=looks, alpha=alpha), strict=True
        ):
            following = judged.next_pairs(looks).tolist()
            for session, row in enumerate(grid):
                for series, question in enumerate(row):
                    yield Ruling(question, batch, judged, session, series, following[session][series])


def _verdict(
    case: Case,
    settled: tuple[Outcome, tuple[str, ...], int | None] | None,
    row: Ruling | None,
    beside: Ruling | None,
    looks: Sequence[int],
) -> Verdict:
    """Return the verdict with all that is to be shown, whatever the outcome is."""
    series, overhead = case.series, beside or row
    outcome, why, following = settled or (Outcome.INVALID, (), None)
    if row is not None:
        outcome = OUTCOMES[Code(int(row.outcome))]
        why = reasons.of(row, looks)
        following = row.following * row.question.places.width or None  # of a rotation whole rounds
    if overhead is None:
        return Verdict(outcome, case, next_pairs=following, reasons=(*why, *reasons.left_out(series)))
    if _too_good(beside) and not case.refused:
        outcome, why, following = Outcome.INVALID, (*why, reasons.TOO_GOOD), None
    asked = row or overhead
    seen = _intervals(overhead)
    change = _intervals(row) if row is not None and case.gate == "change" else None
    points = _points(asked, seen, change)
    known = not math.isnan(points[0].limit)
    return Verdict(
        outcome,
        case,
        overhead=seen[-1],
        change=None if change is None else change[-1],
        native=_middle(series.medians("native")),
        virtual=_middle(series.medians("virtual")),
        limit=min(point.limit for point in points) if known else None,
        margin=min(point.margin for point in points) if known else None,
        points=points,
        findings=_findings(row, points, looks) if row is not None and outcome is Outcome.OVER else (),
        pairs=int(asked.pairs) * asked.question.places.width or len(asked.question.pairs),
        next_pairs=following,
        reasons=(*why, *reasons.left_out(series)),
        places=_places(asked.question),
        hosts=_hosts(overhead.question),
    )


def _points(asked: Ruling, seen: list[Interval], change: list[Interval] | None) -> tuple[Point, ...]:
    """Return each size with its medians, its overhead, and what was judged."""
    series = asked.question.case.series
    native, virtual, margin = series.medians("native"), series.medians("virtual"), asked.margin
    judged = change or seen
    return tuple(
        Point(
            size=series.points[i] if series.points else None,
            native=float(native[i]),
            virtual=float(virtual[i]),
            overhead=seen[i],
            judged=judged[i],
            limit=float(asked.question.limit[i]),
            margin=float(margin[i]),
        )
        for i in range(series.width)
    )


def _too_good(beside: Ruling | None) -> bool:
    """Return whether the overhead is too good to be true, where that is not what is asked about."""
    return beside is not None and beside.reason == Reason.TOO_GOOD


def _middle(values: Floats) -> float:
    return float(values[0]) if len(values) == 1 else float(np.exp(np.mean(np.log(values))))


def _intervals(row: Ruling) -> list[Interval]:
    """Return mean and bounds of each size and of the whole curve; no bounds before the first look."""
    mean = row.mean.tolist()
    if not row.pairs:
        return [Interval(one, -math.inf, math.inf) for one in mean]
    return list(map(Interval, mean, row.low.tolist(), row.high.tolist()))


def _findings(row: Ruling, points: Sequence[Point], looks: Sequence[int]) -> tuple[Finding, ...]:
    """Name the ranges that are over budget, the worst first."""
    if len(points) == 1:
        (point,) = points
        return (Finding(None, None, point.judged, point.limit, point.native, point.virtual),)
    found = []
    for span in rule.spans(*row.alone, looks):
        part = points[span.start : span.stop]
        upper = float(np.mean([point.judged.upper for point in part]))
        found.append(
            Finding(
                low=part[0].size,
                high=part[-1].size,
                judged=Interval(span.mean, span.low, max(span.mean, upper)),
                limit=float(np.mean([point.limit for point in part])),
                native=_middle(np.array([point.native for point in part])),
                virtual=_middle(np.array([point.virtual for point in part])),
            )
        )
    return tuple(sorted(found, key=lambda finding: finding.limit - finding.judged.log))


def _places(question: Question) -> Places:
    """Return where the pairs ran; the earlier session's, where it is those that leave a change to hosts."""
    places = question.places
    earlier = places if question.earlier is None else question.earlier[2]
    if places.confounded or not earlier.confounded or places.cancels(earlier):
        return places
    return earlier


def _hosts(question: Question) -> dict[str, float]:
    """Return by how much each host is slower than the mean of its kind, over a whole curve."""
    places = question.places
    if places.kind not in ("exchanged", "rotated"):
        return {}
    native, virtual = map(with_whole, question.costs)
    effects, told = host_effects(native, virtual, places)
    return {places.hosts[host]: float(effects[host, -1]) for host in np.flatnonzero(told)}
