"""The difference of two samples of runs that did not take turns: an estimate, and never a verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy

from virtqual.files.wording import pluralize
from virtqual.verdict import texts
from virtqual.verdict.budget import Budget
from virtqual.verdict.estimate import MIN_PAIR_SIGMA, Floats, append_mean
from virtqual.verdict.labels import NATIVE_AND_VIRTUAL, Labels
from virtqual.verdict.metric import Metric
from virtqual.verdict.notation import sign_of
from virtqual.verdict.outcome import Outcome
from virtqual.verdict.verdict import Interval, Point, Verdict, finite_or_none, rounded

#: Two-sided level of the interval.
LEVEL = 0.95
NOT_STATED = "none stated"


def estimate_unpaired(
    metric: Metric,
    setting: str,
    points: Sequence[float],
    native: Floats,
    virtual: Floats,
    *,
    budget: Budget | None,
    reason: str,
    advice: str,
    labels: Labels = NATIVE_AND_VIRTUAL,
) -> Verdict:
    """Return UNDECIDED with the difference of the means of logarithms, and its interval by Welch's t.

    Parameters
    ----------
    native, virtual
        Values in the metric's unit, shape (n_runs, n_points); runs without finite positive values are lost.
    reason, advice
        Why there is no verdict, and what would be needed for one.

    The interval is that of the scatter of runs (Welch 1947, doi:10.1093/biomet/34.1-2.28). A machine that
    drifts from one side's runs to the other's is not in it.
    """
    sides = [_keep(values) for values in (native, virtual)]
    lost = [len(all_runs) - len(kept) for all_runs, kept in zip((native, virtual), sides, strict=True)]
    reasons = [reason, *_describe_lost(lost, (native, virtual), labels), advice]
    verdict = Verdict(
        metric=metric.name,
        setting=setting,
        gate="overhead",
        outcome=Outcome.UNDECIDED,
        unit=metric.unit,
        better=metric.better,
        budget=texts.budget_text(budget, metric) if budget else NOT_STATED,
        reasons=tuple(reasons),
        labels=labels,
        axis_unit=metric.axis_unit,
    )
    if all(len(kept) for kept in sides):
        _add_numbers(verdict, metric, points, sides, budget)
        counts = [pluralize(len(kept), f"{label} run") for label, kept in zip(labels, sides, strict=True)]
        verdict.reasons = (" and ".join(counts), *verdict.reasons)
    verdict.message = texts.message(verdict, metric)
    return verdict


def _add_numbers(
    verdict: Verdict, metric: Metric, points: Sequence[float], sides: Sequence[Floats], budget: Budget | None
) -> None:
    """Add the estimate, the geometric means of both sides, and the limits."""
    means = [np.exp(np.mean(np.log(kept), axis=0)) for kept in sides]
    intervals = _estimate(metric, sides)
    verdict.overhead = intervals[-1]
    verdict.native, verdict.virtual = (float(np.exp(np.mean(np.log(values)))) for values in means)
    limits = budget.limits(metric, tuple(points), means[0]) if budget else None
    if limits:
        verdict.limit, verdict.margin = float(min(limits[0])), float(min(limits[1]))
    verdict.points = tuple(
        Point(
            size=size,
            native=rounded(means[0][i]),
            virtual=rounded(means[1][i]),
            overhead=intervals[i],
            judged=intervals[i],
            limit=finite_or_none(limits[0][i]) if limits else None,
            margin=finite_or_none(limits[1][i]) if limits else None,
        )
        for i, size in enumerate(points)
    )


def _keep(values: Floats) -> Floats:
    """Return the runs whose values are all finite and positive."""
    return values[np.all(np.isfinite(values) & (values > 0), axis=1)]


def _describe_lost(lost: Sequence[int], all_runs: Sequence[Floats], labels: Labels) -> list[str]:
    named = zip(labels, lost, all_runs, strict=True)
    return [
        f"{count} of {pluralize(len(runs), f'{side} run')} gave no value"
        for side, count, runs in named
        if count
    ]


def _estimate(metric: Metric, sides: Sequence[Floats]) -> list[Interval]:
    """Return the interval of each size and of their mean."""
    logs = [append_mean(sign_of(metric.better) * np.log(kept)) for kept in sides]
    difference = logs[1].mean(axis=0) - logs[0].mean(axis=0)
    counts = [len(kept) for kept in sides]
    if min(counts) < 2:
        reach = np.full(len(difference), math.inf)
    else:
        parts = [np.maximum(log.var(axis=0, ddof=1), MIN_PAIR_SIGMA**2) / len(log) for log in logs]
        total = parts[0] + parts[1]
        df = total**2 / sum(part**2 / (count - 1) for part, count in zip(parts, counts, strict=True))
        reach = scipy.special.stdtrit(df, (1 + LEVEL) / 2) * np.sqrt(total)
    return [
        Interval.build(float(mean), float(mean - far), float(mean + far), metric.better)
        for mean, far in zip(difference, reach, strict=True)
    ]
