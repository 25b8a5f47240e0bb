"""Verdicts and their reasons in words."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from virtqual.files.wording import list_names, mask_numbers, pluralize
from virtqual.verdict.alternation import describe_order
from virtqual.verdict.budget import Budget
from virtqual.verdict.case import Case
from virtqual.verdict.estimate import Floats
from virtqual.verdict.labels import NATIVE_AND_VIRTUAL, Labels
from virtqual.verdict.metric import Metric
from virtqual.verdict.notation import (
    describe_sizes,
    describe_slowdown,
    format_percent,
    format_size,
    format_value,
    scale_unit,
    sign_of,
)
from virtqual.verdict.outcome import Outcome
from virtqual.verdict.pairs import SIDES, Series
from virtqual.verdict.rule import FLOOR, LOOKS, MIN_BOOTS, RuleAnswer, Ruling
from virtqual.verdict.slow_runs import LostRun
from virtqual.verdict.verdict import Interval, Verdict

#: A line names so many lost runs.
MAX_LOST_SHOWN = 3

_FLOOR_TEXT = f"{-math.expm1(FLOOR):.0%}"
#: Part of the reason for which hosts in fixed roles get no answer.
HOSTS_CONFOUNDED = "no number of pairs tells them apart"

TOO_GOOD = (
    f"faster than native by more than {_FLOOR_TEXT}, which is too good to be true: look for a "
    "guest clock that runs slow, a wrong unit, or a native side that something slows down"
)


def message(verdict: Verdict, metric: Metric, margin_note: str = "") -> str:
    """Return a verdict in one or two lines: the estimate, values, budget and pairs; then the reasons."""
    head = f"{verdict.outcome.value} {verdict.series.removesuffix('@')}"
    if verdict.native is None or verdict.virtual is None:
        return f"{head}: {'; '.join(verdict.reasons) or 'no pair was measured'}"
    estimate = ""
    if verdict.findings:
        estimate = " " + " and ".join(finding.text for finding in verdict.findings)
    elif verdict.estimate:
        estimate = f" {_estimate_text(verdict, metric)}"
    is_baseline = verdict.outcome is Outcome.BASELINE
    labels = verdict.labels
    subject = f"{'baseline recorded, ' * is_baseline}{labels.candidate} is"
    if verdict.change is not None:
        subject = "change of the overhead since the earlier session:"
    allowed = "change allowed" if verdict.gate == "change" else "budget"
    budget = "" if is_baseline else f"{allowed} {verdict.budget}{margin_note}; "
    deciding = verdict.deciding
    unit, (native, virtual) = scale_unit(metric.unit, deciding.native, deciding.virtual)
    values = f"{labels.reference} {format_value(native)}, {labels.candidate} {format_value(virtual)} {unit}"
    text = f"{head}: {subject}{estimate}; {values}; {budget}{_describe_pairs(verdict)}".rstrip("; ")
    return text + ("\n" + "; ".join(verdict.reasons) if verdict.reasons else "")


def _describe_pairs(verdict: Verdict) -> str:
    """Return how many pairs the verdict rests on; nothing if the runs made no pairs."""
    if not (verdict.pairs or verdict.pairs_run):
        return ""
    plural = "" if max(verdict.pairs, verdict.pairs_run) == 1 else "s"
    return f"{verdict.pairs_text} pair{plural}" + " of one boot" * (verdict.boots == 1)


def _estimate_text(verdict: Verdict, metric: Metric) -> str:
    """Return the estimate; of a curve that of the size that decides, the largest one, and the mean."""
    deciding, mean = verdict.deciding, verdict.estimate
    if mean is None or deciding.low is None:
        return verdict.text
    worst = max(verdict.points, key=lambda point: point.judged.log)
    count = f"{len(verdict.points)} sizes"
    if worst.size == deciding.low:
        of_all = f"the largest of {count}"
    else:
        largest = describe_slowdown(worst.judged.log, metric.better)
        size = format_size(worst.size, metric.axis_unit)
        of_all = f"the nearest to its limit of {count}, the largest is {largest} at {size}"
    return f"{verdict.text}, {of_all}, the mean {describe_slowdown(mean.log, metric.better)}"


def budget_text(budget: Budget, metric: Metric) -> str:
    """Return budget and margin, of several ranges of sizes each with its range."""
    if len(budget.terms) == 1:
        return budget.terms[0].text(metric)
    return "; ".join(f"{term.text(metric)} {term.describe_sizes(metric.axis_unit)}" for term in budget.terms)


def range_text(judged: Interval, points: Sequence[float], metric: Metric) -> str:
    """Return such as ``22.0% slower (17.0% to 27.0%) from 16 to 128 B``; of a scalar without sizes."""
    if not points:
        return judged.text(metric.better)
    return f"{judged.text(metric.better)} {describe_sizes(points[0], points[-1], metric.axis_unit)}"


def margin_note(case: Case, answer: RuleAnswer) -> str:
    """Return the margin that was used, of sizes the widest, if it is wider than the stated one."""
    if case.baseline is None or not np.any(answer.margin > case.limits[1] + 1e-9):
        return ""
    widest = np.max(_share_of_native(case, answer.margin))
    return f", here {format_percent(round(widest, 3))} against {len(case.baseline.valid)} earlier pairs"


def _share_of_native(case: Case, distance: Floats) -> Floats:
    """Return distances above the budget, in log units, as fractions of the native value, for each size."""
    sign, limit = sign_of(case.series.metric.better), case.limits[0]
    share: Floats = sign * (np.exp(sign * (limit + distance)) - np.exp(sign * limit))
    return share


def describe_lost(lost: Sequence[LostRun], labels: Labels = NATIVE_AND_VIRTUAL) -> list[str]:
    """Return how many runs of each side were lost, and lines that say which, when and why.

    Runs that were lost for the same reason, but for its numbers, share a line.
    """
    if not lost:
        return []
    counted = [run.side for run in lost if run.counts]
    sides = (f"{pluralize(counted.count(side), f'{labels.of(side)} run')}" for side in SIDES[::-1])
    others = len(lost) - len(counted)
    lines = [f"Lost runs: {', '.join(sides)}{f'; {others} that do not count' if others else ''}"]
    groups: dict[Hashable, list[LostRun]] = {}
    for run in lost:
        groups.setdefault((run.side, run.counts, mask_numbers(run.reason)), []).append(run)
    for runs in groups.values():
        verdict = "" if runs[0].counts else " (does not count)"
        names = list_names([_name_lost(run, labels) for run in runs], MAX_LOST_SHOWN)
        lines.append(f"{names}: {runs[0].reason}{verdict}")
    return lines


def _name_lost(run: LostRun, labels: Labels) -> str:
    """Return such as ``virtual run of pair 3 of lammps (14:02 UTC)``."""
    place = f" of pair {run.pair}" if run.pair is not None else ", before the first pair" if run.of else ""
    time = "" if run.start is None else f" ({datetime.fromtimestamp(run.start, UTC):%Y-%m-%d %H:%M} UTC)"
    what = f"run{place} of {run.of}" if run.of else f"node {run.node}"
    return f"{labels.of(run.side)} {what}{time}"


def too_few(pairs: int, needed: int) -> str:
    """Return that there are fewer pairs than the first decision needs."""
    return f"{pairs} of the {needed} pairs that the first decision needs"


def next_pairs(series: Series, order: str) -> tuple[str, ...]:
    """Return which pairs come next, and the side that runs first in each; nothing without an order."""
    return (f"next: {describe_order(series.next_number, order, series.labels)}",) if order else ()


def left_out(series: Series) -> tuple[str, ...]:
    """Return which pairs do not count, and why; reasons that differ only in numbers stand together.

    If no pair counts, the median overhead of all pairs is added.
    """
    groups: dict[str, list[tuple[int, str]]] = {}
    for pair in series.pairs:
        if pair.invalid:
            reason = "; ".join(pair.invalid)
            groups.setdefault(mask_numbers(reason), []).append((pair.number, reason))
    texts = []
    for pairs in groups.values():
        first, reason = pairs[0]
        if len(pairs) == 1:
            texts.append(f"pair {first} left out: {reason}")
        else:
            numbers = ", ".join(str(number) for number, _ in pairs)
            texts.append(f"pairs {numbers} left out: {reason} (of pair {first}; the others alike)")
    complete = [
        replace(pair, invalid=())
        for pair in series.pairs
        if len(pair.samples) == 2 and all(sample.has_values for sample in pair.samples)
    ]
    if complete and not series.valid:
        costs = replace(series, pairs=tuple(complete)).differences.mean(axis=1)
        slowdown = describe_slowdown(float(np.median(costs)), series.metric.better)
        texts.append(
            f"{series.labels.candidate} is {slowdown} in the pairs left out, and the cause is unknown"
        )
    return tuple(texts)


def reasons_of(case: Case, answer: RuleAnswer) -> tuple[str, ...]:
    """Return the reasons of one answer of the rule; none for OVER, and for WITHIN what was measured."""
    if answer.ruling is Ruling.OVER:
        return ()
    if answer.ruling is Ruling.WITHIN:
        return (*limit_note(case.series), *_faster_note(case, answer))
    if answer.ruling is Ruling.OPEN:
        if answer.next_pairs:
            return (f"the next decision needs {answer.next_pairs} pairs", *_list_boot_advice(case))
        return (f"still undecided at the maximum of {answer.used} pairs", *_list_boot_advice(case))
    if answer.ruling is Ruling.TOO_FEW_PAIRS:
        return (too_few(len(case.series.chosen), answer.next_pairs or 0),)
    if answer.ruling is Ruling.BOOTS:
        return (
            f"over budget in fewer than {MIN_BOOTS} boots of {case.series.labels.machines}, which may be "
            "theirs alone",
        )
    if answer.ruling is Ruling.NOISE:
        return (_noise_text(case, answer), *_list_boot_advice(case))
    return (TOO_GOOD,) if answer.ruling is Ruling.TOO_GOOD else (_hosts_text(case),)


def _list_boot_advice(case: Case) -> tuple[str, ...]:
    """Return what helps if few boots on unknown hosts keep an answer back; nothing in other cases."""
    boots = len(set(case.runs.places.boot))
    if case.between <= case.prior.between or boots >= MIN_BOOTS:
        return ()
    return (
        f"the hosts of the {case.series.labels.machines} are unknown, so another boot may differ by "
        f"{case.between:.1%}: name the hosts (extras.nodes_of_hosts; `host` in a file of pairs), create the "
        "VMs again (extras.recreate_vms), or record the noise (virtqual propose)",
    )


def _faster_note(case: Case, answer: RuleAnswer) -> tuple[str, ...]:
    """Return a warning if a candidate is much faster, where that may be true."""
    if case.floor == FLOOR or answer.bounds[-1, 2] > FLOOR:
        return ()
    candidate = case.series.labels.candidate
    return (f"{candidate} is faster by more than {_FLOOR_TEXT}: make sure that both did the same work",)


def limit_note(series: Series) -> tuple[str, ...]:
    """Return that a limit was measured, if most pairs show one value on both sides (a curve: one a size)."""
    pairs = np.stack([series.values[side] for side in SIDES], axis=1)
    rows, counts = np.unique(pairs, axis=0, return_counts=True)
    (native, virtual), count = rows[np.argmax(counts)], int(np.max(counts))
    if count < 2 or 2 * count <= len(pairs) or np.any(native != virtual):
        return ()
    value = "the same values" if series.points else f"{format_value(native[0])} {series.metric.unit}"
    share = f"all {count}" if count == len(pairs) else f"{count} of {len(pairs)}"
    limit = "a limit (a rate cap, or the step of a clock) holds both sides"
    labels = series.labels
    shown = f"{labels.reference} and {labels.candidate} both show {value} in {share} pairs"
    return (f"{shown}: {limit}; this measures the limit, not the hypervisor",)


def _noise_text(case: Case, answer: RuleAnswer) -> str:
    """Return that the noise hides the margin, and how many pairs it would need."""
    series, reach, margin = case.series, answer.reach, answer.margin
    worst = int(np.argmax(reach / margin))
    size = f" at {format_size(series.points[worst], series.metric.axis_unit)}" if series.points else ""
    reached, allowed = (_share_of_native(case, distance)[worst] for distance in (reach, margin))
    wide = f"{reached:.1%}{size}, the margin is {allowed:.1%}"
    if case.baseline is not None:
        earlier, more = len(case.baseline.chosen), ""
        if earlier < LOOKS[-1]:
            more = f"record it with more (virtqual qualify --pairs {LOOKS[-1]}), or "
        return (
            f"noise too high: with {LOOKS[-1]} pairs the change would be known to {wide}; the earlier "
            f"session has {earlier} pairs: {more}record the noise (virtqual propose)"
        )
    pairs = LOOKS[-1] * case.runs.places.width
    return (
        f"noise too high: with {pairs} pairs the overhead would be known to {wide}; it would take up to "
        f"{math.ceil(pairs * (reach[worst] / margin[worst]) ** 2)} pairs, "
        f"{series.labels.less_noise}"
    )


def _hosts_text(case: Case) -> str:
    """Return that hosts in fixed roles forbid an answer, and what helps."""
    places, session = case.runs.places, ""
    if not math.isinf(places.bias) and case.earlier is not None:
        places, session = case.earlier.places, "in the earlier session "
    native, virtual = (", ".join(names) for names in places.roles)
    labels = case.series.labels
    candidate = "virtual machines" if labels.are_native_and_virtual else labels.candidate
    return (
        f"{session}{labels.reference} ran on {native} and {candidate} on {virtual}: a slow host looks like a "
        f"slow {labels.guest}, and {HOSTS_CONFOUNDED}; exchange the hosts' roles, or survey "
        "them (virtqual propose --hosts)"
    )
