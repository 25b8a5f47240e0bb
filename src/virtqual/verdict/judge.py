"""Judge cases by the rule and make the verdicts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from virtqual.verdict import rule, texts
from virtqual.verdict.case import Case
from virtqual.verdict.clock import MIN_CLOCK_PAIRS
from virtqual.verdict.estimate import Noise, append_mean
from virtqual.verdict.notation import Direction, exp_or_inf, sign_of
from virtqual.verdict.outcome import Outcome
from virtqual.verdict.overhead import Runs
from virtqual.verdict.pairs import PairingError, Series
from virtqual.verdict.rule import Batch, RuleAnswer, Ruling
from virtqual.verdict.verdict import Interval, OverRange, Point, Verdict, finite_or_none, rounded


class _Decision(NamedTuple):
    outcome: Outcome
    reasons: tuple[str, ...] = ()
    next_pairs: int | None = None


@dataclass(eq=False)
class _Question:
    """A case for the rule, with the number of its session, and the answer."""

    case: Case
    session: int
    answer: RuleAnswer = field(init=False)


def judge_all(
    sessions: Sequence[Sequence[Case]],
    *,
    looks: Sequence[int],
    alpha: float,
    min_pairs: int,
    min_boots: int,
) -> list[list[Verdict]]:
    """Return the verdicts on the cases of each session: these share the error rate `alpha`."""
    questions: list[_Question] = []
    entries: list[tuple[Case, _Decision | None, _Question | None, _Question | None]] = []
    for session, cases in enumerate(sessions):
        for case in cases:
            decision, judged, shown = _decide_without_rule(case, looks), None, None
            if decision is None:
                judged = _Question(case, session)
                questions.append(judged)
            if case.series.valid and (decision or case.baseline):
                # An overhead that is only shown is judged as a session of its own.
                shown = _Question(replace(case, baseline=None), len(sessions) + len(entries))
                questions.append(shown)
            entries.append((case, decision, judged, shown))
    groups: dict[Hashable, list[_Question]] = defaultdict(list)
    for question in questions:
        groups[question.case.shape].append(question)
    batches = [_make_batch(members) for members in groups.values()]
    rule.judge(batches, looks, alpha, min_pairs=min_pairs, min_boots=min_boots)
    for batch, members in zip(batches, groups.values(), strict=True):
        for question, answer in zip(members, batch.answers(looks), strict=True):
            question.answer = answer
    verdicts = (_build_verdict(*entry) for entry in entries)
    return [list(islice(verdicts, len(cases))) for cases in sessions]


def _decide_without_rule(case: Case, looks: Sequence[int]) -> _Decision | None:
    """Return the decision if the rule is not asked, else None."""
    series, baseline = case.series, case.baseline
    left_out = series.set_aside | series.cut_off
    attempted = [pair for pair in series.pairs if pair.number not in left_out]
    # Lost virtual runs speak against the build, and are judged over the session (`slow_runs`).
    comparable = sum(not pair.lacks_virtual_run for pair in attempted)
    valid, refused = len(series.valid), list(case.refused)
    if (not_alternated := series.not_alternated) and not (balanced := _find_balancing_look(case, looks)):
        refused.append(not_alternated)
    if baseline is not None:
        if (series.id, series.points) != (baseline.id, baseline.points):
            difference = "points" if series.id == baseline.id else "series"
            raise PairingError(f"{series.id}: the earlier session has other {difference} ({baseline.id}).")
        if reason := baseline.not_alternated:
            refused.append(f"earlier session: {reason}")
    has_few = valid == 0 or (comparable >= 4 and 2 * valid <= comparable)
    # Some are lost at random. If all of four are, or half of all that are allowed, more are pointless.
    is_pointless = comparable >= looks[-1] if valid else len(attempted) >= min(looks[-1], 4)
    if refused or (has_few and is_pointless):
        return _Decision(Outcome.INVALID, tuple(refused))
    if not_alternated:
        return _Decision(Outcome.UNDECIDED, (not_alternated,), balanced)
    if has_few:
        needed = next(look for look in looks if look > valid)
        reason = f"{valid} of {comparable} pairs count, and more than half must"
        return _Decision(Outcome.UNDECIDED, (reason if valid else texts.too_few(0, needed),), needed)
    if case.gate == "change" and baseline is None:
        return _Decision(Outcome.BASELINE)
    if baseline is not None and len(baseline.valid) < 2:
        reason = f"the earlier session has {len(baseline.valid)} valid pairs: at least 2 are needed"
        return _Decision(Outcome.INVALID, (reason,))
    return _decide_by_clock(case, looks)


def _find_balancing_look(case: Case, looks: Sequence[int]) -> int | None:
    """Return after how many pairs each side can have run first often enough; None if no look does."""
    series, pairs = case.series, [look * case.runs.places.width for look in looks]
    return next((count for count in pairs if series.can_alternate(count)), None)


def _decide_by_clock(case: Case, looks: Sequence[int]) -> _Decision | None:
    """Return the decision if a clock is too coarse for the margin, else None."""
    pairs = len(case.series.valid)
    if pairs >= MIN_CLOCK_PAIRS and (clock := case.series.check_clock(case.budget)):
        return _Decision(Outcome.INVALID, (clock.describe(),))
    next_pairs = next((look for look in looks if look > pairs), None)
    may_wait = next_pairs is not None or pairs < MIN_CLOCK_PAIRS
    if pairs >= looks[0] and may_wait and (clock := case.series.check_clock(case.budget, suspected=True)):
        reason = f"more pairs may show smaller steps; {clock.describe()}"
        return _Decision(Outcome.UNDECIDED, (reason,), next_pairs)
    baseline = case.baseline
    # The step of fewer earlier pairs may be chance: it only widens the bounds.
    if baseline and len(baseline.valid) >= MIN_CLOCK_PAIRS and (clock := baseline.check_clock(case.budget)):
        return _Decision(Outcome.INVALID, (f"earlier session: {clock.describe()}",))
    return None


def _make_batch(questions: Sequence[_Question]) -> Batch:
    """Return questions of one shape as arrays."""
    cases = [question.case for question in questions]
    limit, margin, max_margin = append_mean(np.array([case.limits for case in cases])).swapaxes(0, 1)
    noise = Noise(
        np.array([case.sigma for case in cases]),
        np.array([[case.prior.df] for case in cases]),
        np.array([[case.between] for case in cases]),
        cases[0].prior.between_df,
    )
    earlier = [case.earlier for case in cases if case.earlier]
    return Batch(
        _stack([case.runs for case in cases]),
        limit,
        margin,
        noise,
        session=np.array([question.session for question in questions]),
        earlier=_stack(earlier) if earlier else None,
        max_margin=max_margin,
        bias=append_mean(np.array([case.clock_bias for case in cases])),
        attempt=np.array([case.attempt for case in cases]),
        floor=np.array([case.floor for case in cases]),
    )


def _stack(runs: Sequence[Runs]) -> Runs:
    return Runs(np.array([part.logs for part in runs]), runs[0].places)


def _build_verdict(
    case: Case, decision: _Decision | None, judged: _Question | None, shown: _Question | None
) -> Verdict:
    """Return the verdict: the decision, and all numbers that are shown with any decision."""
    series, metric = case.series, case.series.metric
    if judged is not None:
        answer = judged.answer
        decision = _Decision(answer.ruling.outcome, texts.reasons_of(case, answer), answer.next_pairs)
    assert decision is not None  # or there is a question
    if shown is not None and shown.answer.ruling is Ruling.TOO_GOOD and not case.refused:
        decision = _Decision(Outcome.INVALID, (*decision.reasons, texts.TOO_GOOD))
    next_order = case.choose_order(decision.next_pairs)
    question, numbers, margin_note = judged or shown, {}, ""
    if question is not None:
        numbers = _list_numbers(question, (shown or question).answer, decision.outcome)
        margin_note = texts.margin_note(question.case, question.answer)
    verdict = Verdict(
        metric=metric.name,
        setting=series.setting,
        gate=case.gate,
        outcome=decision.outcome,
        unit=metric.unit,
        better=metric.better,
        axis_unit=metric.axis_unit,
        budget=texts.budget_text(case.budget, metric),
        labels=series.labels,
        next_pairs=decision.next_pairs,
        next_order=next_order,
        reasons=(*decision.reasons, *texts.next_pairs(series, next_order), *texts.left_out(series)),
        **numbers,
    )
    verdict.message = texts.message(verdict, metric, margin_note)
    return verdict


def _list_numbers(question: _Question, overhead: RuleAnswer, outcome: Outcome) -> dict[str, Any]:
    """Return the fields of a verdict that are numbers: of the judged question, and of the overhead."""
    case, answer, series = question.case, question.answer, question.case.series
    places, limits, margins = case.places, case.limits[0], answer.margin
    values = [_find_values(overhead, column, series) for column in range(len(overhead.native))]
    overheads = _build_intervals(overhead, series.metric.better)
    changes = _build_intervals(answer, series.metric.better) if case.baseline else None
    judged = changes or overheads
    points = tuple(
        Point(
            size=size,
            native=values[i].native,
            virtual=values[i].virtual,
            overhead=overheads[i],
            judged=judged[i],
            limit=finite_or_none(limits[i]),
            margin=finite_or_none(margins[i]),
        )
        for i, size in enumerate(series.points)
    )
    has_budget = not math.isnan(limits[0])
    spread = float(series.differences.mean(axis=1).std(ddof=1)) if len(series.valid) > 1 else None
    native_hosts, virtual_hosts = places.roles if places.are_known else ((), ())
    return {
        "overhead": overheads[-1],
        "change": changes[-1] if changes else None,
        "native": values[-1].native,
        "virtual": values[-1].virtual,
        "limit": float(min(limits)) if has_budget else None,
        "margin": float(min(margins)) if has_budget else None,
        "pairs": answer.used if outcome is Outcome.OVER else len(series.chosen),
        "pairs_run": len(series.pairs) - len(series.cut_off),
        "boots": len({pair.virtual.boot for pair in series.valid if pair.virtual and pair.virtual.boot}),
        "spread": spread,
        "points": points,
        "findings": _list_findings(question, overhead, judged[0]) if outcome is Outcome.OVER else (),
        "native_hosts": native_hosts,
        "virtual_hosts": virtual_hosts,
        "confounded": places.confounded,
    }


class _Values(NamedTuple):
    """Values of both sides in the metric's unit; their quotient is the estimated ratio."""

    native: float
    virtual: float


def _find_values(overhead: RuleAnswer, column: int, series: Series) -> _Values:
    """Return the values of both sides at one size, or of the whole curve in its last column.

    Native is the weighted geometric mean over the pairs of the estimate; virtual is that times the estimated
    ratio: a run that the estimate pulls in is pulled in here, too. Without an estimate (an exchange of hosts
    that lacks a direction) both are geometric means over all pairs.
    """
    native, log = float(overhead.native[column]), float(overhead.bounds[column, 0])
    if math.isnan(log):
        native, virtual = append_mean(series.costs(series.valid)).mean(axis=1)[:, column].tolist()
        log = virtual - native
    return _values_at(native, log, series.metric.better)


def _values_at(native_cost: float, log: float, better: Direction) -> _Values:
    """Return the values of a native cost and an overhead, both in log units."""
    sign = sign_of(better)
    # Nine digits: the quotient is to show the seven of the ratio.
    costs = native_cost, native_cost + log
    return _Values(*(rounded(exp_or_inf(sign * cost), digits=9) for cost in costs))


def _build_intervals(answer: RuleAnswer, better: Direction) -> list[Interval]:
    """Return the interval of each size and of the whole curve."""
    return [Interval.build(log, low, high, better) for log, low, high in answer.bounds.tolist()]


def _list_findings(question: _Question, overhead: RuleAnswer, scalar: Interval) -> tuple[OverRange, ...]:
    """Return the ranges that are over budget, the worst first; of a scalar its interval."""
    series, limits, answer = question.case.series, question.case.limits[0], question.answer
    metric = series.metric

    def build(judged: Interval, values: _Values, sizes: slice) -> OverRange:
        points = series.points[sizes]
        low, high = (points[0], points[-1]) if points else (None, None)
        return OverRange(
            low=low,
            high=high,
            judged=judged,
            limit=float(np.mean(limits[sizes])),
            margin=float(np.mean(answer.margin[sizes])),
            native=values.native,
            virtual=values.virtual,
            text=texts.range_text(judged, points, metric),
        )

    if not series.points:
        return (build(scalar, _find_values(overhead, 0, series), slice(1)),)
    findings = []
    for part in sorted(answer.ranges, key=lambda part: np.mean(limits[part.sizes]) - part.mean):
        lower, upper = (float(np.mean(answer.bounds[part.sizes, end])) for end in (1, 2))
        # One size alone may be surely above the mean of the range.
        lower = part.low if part.low <= part.mean else lower
        judged = Interval.build(part.mean, lower, max(part.mean, upper), metric.better)
        native, log = part.native, part.mean
        if question.case.baseline is not None:
            # The range is of the change, and the values are of the overhead.
            native, log = (float(np.mean(of[part.sizes])) for of in (overhead.native, overhead.bounds[:, 0]))
        findings.append(build(judged, _values_at(native, log, metric.better), part.sizes))
    return tuple(findings)
