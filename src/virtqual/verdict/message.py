"""Verdicts in words."""

from __future__ import annotations

import numpy as np

from virtqual.verdict.outcome import Outcome, Point, Verdict, number, times


def message(verdict: Verdict) -> str:
    """Return a verdict in one or two lines: what, how much, how sure, against what, and why."""
    metric = verdict.metric
    head = f"{verdict.outcome.value} {verdict.id}"
    if verdict.native is None or verdict.virtual is None:
        return f"{head}: {'; '.join(verdict.reasons) or 'no pair was measured'}"
    native, virtual = verdict.native, verdict.virtual
    if verdict.findings:
        what = " " + " and ".join(finding.text(metric) for finding in verdict.findings)
        native, virtual = verdict.findings[0].native, verdict.findings[0].virtual
    elif judged := verdict.judged or verdict.overhead:
        what = f" {judged.text(metric)}"
        if metric.kind == "curve":
            what += f" over {len(verdict.points)} sizes, worst {_worst(verdict)}"
    else:
        what = ""
    subject = "overhead"
    if verdict.change is not None:
        subject = "change of the overhead since the earlier session"
    elif verdict.outcome is Outcome.BASELINE:
        subject = "baseline recorded, overhead"
    allowed = "change allowed" if verdict.gate == "change" else "budget"
    # Of a baseline nothing is judged.
    limits = f"{allowed} {verdict.budget_text}{_margin(verdict)}; "
    if verdict.outcome is Outcome.BASELINE:
        limits = ""
    text = (
        f"{head}: {subject}{what}; native {number(native)}, virtual {number(virtual)} {metric.unit}; "
        f"{limits}{verdict.pairs} pair{'' if verdict.pairs == 1 else 's'}"
    )
    tail = list(verdict.reasons)
    if verdict.waiver is not None:
        state = "accepted up to" if verdict.waived else "not accepted: the waiver is for up to"
        tail.append(f"{state} {verdict.waiver.accepted}: {verdict.waiver.reason}")
    if verdict.next_pairs is not None:
        tail.append(f"decides again with {verdict.next_pairs} pairs")
    return text + ("\n" + "; ".join(tail) if tail else "")


def _worst(verdict: Verdict) -> str:
    point: Point = max(verdict.points, key=lambda point: point.judged.log - point.limit)
    ratio = point.judged.ratio(verdict.metric)[0]
    return f"{times(ratio)} at {number(point.size or 0.0)} {verdict.metric.axis_unit}"


def _margin(verdict: Verdict) -> str:
    """Return the margin that held, of sizes the widest, where that is not the stated one."""
    before = verdict.case.baseline
    if before is None or not verdict.points or verdict.margin is None:
        return ""
    native = np.array([point.native for point in verdict.points])
    _, stated, _ = verdict.budget.limits(verdict.metric, verdict.case.series.points, native)
    margins = np.array([point.margin for point in verdict.points])
    if np.all(margins <= stated + 1e-9):
        return ""
    sign = 1 if verdict.metric.better == "lower" else -1
    limits = np.array([point.limit for point in verdict.points])
    widest = np.max(sign * (np.exp(sign * (limits + margins)) - np.exp(sign * limits)))
    return f", here {widest:.2g} against {len(before.valid)} earlier pairs"
