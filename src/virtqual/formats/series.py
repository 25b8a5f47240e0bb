"""Series of the runs that a file has: what is one metric in one setting, and which runs are pairs."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from virtqual.errors import UsageError
from virtqual.files.wording import list_names, pluralize
from virtqual.formats.found import FoundRun, Wanted, choose_better
from virtqual.formats.turns import Timed, describe_block, find_pairs, make_times, refuse_paired
from virtqual.session.measured import MAX_AMOUNT, MIN_AMOUNT, FileRun, FileSeries, make_stated_metric
from virtqual.verdict.labels import REFERENCE_AND_CANDIDATE, Labels
from virtqual.verdict.metric import Metric
from virtqual.verdict.pairs import SIDES

#: Labels that always are a part of a setting; others are if they vary within a side.
_ALWAYS = ("test", "benchmark", "setting")
#: Labels that say where a run was, and not what it measured.
_NEVER = ("nodelist", "session", "side")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_SHOWN = 5
_Key = tuple[str, str]


def make_series(
    file: str,
    runs: Sequence[FoundRun],
    side_label: str,
    wanted: Wanted,
    why: str,
    labels: Labels,
    *,
    paired: bool,
) -> tuple[list[FileSeries], list[str]]:
    """Return the series that both sides have, and notes on what was left out.

    Parameters
    ----------
    why
        Why the format of the file does not show that runs took turns; empty if runs have times.
    paired
        The rows of both sides are pairs, in turns: as the file or the option says.

    Raises
    ------
    UsageError
        Nothing was measured on both sides, or a unit does not say what is better.
    """
    groups = _group(runs, side_label)
    both, notes = _find_common(file, groups)
    series = []
    for key in both:
        found, lost = _fit_sizes(groups[key])
        notes += lost
        metric = _make_metric(file, key[0], found, wanted)
        one = FileSeries(found[0].line, metric, key[1], labels=labels)
        _fill(one, found, why, paired=paired)
        series.append(one)
        if alone := len(found) - len(one.runs):
            name = " ".join(filter(None, key))
            notes.append(f"{name}: left out, {pluralize(alone, 'run')} without a neighbour of the other side")
    return series, notes


def _group(runs: Iterable[FoundRun], side_label: str) -> dict[_Key, list[FoundRun]]:
    runs = list(runs)
    varying = {*_ALWAYS}
    for side in SIDES:
        values: dict[str, set[str]] = defaultdict(set)
        for run in runs:
            if run.side == side:
                for name, value in run.labels.items():
                    values[name].add(value)
        varying |= {name for name, different in values.items() if len(different) > 1}
    varying -= {side_label, *_NEVER}
    parameters = _find_parameters(runs)
    groups: dict[_Key, list[FoundRun]] = defaultdict(list)
    for run in runs:
        parts = [value for name, value in run.labels.items() if name in varying and value]
        parts += [f"{name} {run.parameters[name]}" for name in parameters]
        setting = ", ".join(parts)
        groups[run.metric.replace("@", " at "), setting].append(run)
    return groups


def _find_parameters(runs: Sequence[FoundRun]) -> list[str]:
    """Return the columns of numbers that say what was measured: both sides have the same few values.

    Runs of other sizes would be one sample without them.
    """
    chosen = []
    for name in runs[0].parameters if runs else ():
        values = [{run.parameters.get(name) for run in runs if run.side == side} for side in SIDES]
        fewest = min(sum(run.side == side for run in runs) for side in SIDES)
        if values[0] == values[1] and 1 < len(values[0]) <= fewest / 2:
            chosen.append(name)
    return chosen


def _find_common(file: str, groups: Mapping[_Key, Sequence[FoundRun]]) -> tuple[list[_Key], list[str]]:
    """Return the series that both sides have, and what only one has."""
    both: list[_Key] = []
    alone: dict[str, list[str]] = {side: [] for side in SIDES}
    for key, runs in groups.items():
        sides = {run.side for run in runs}
        if len(sides) == len(SIDES):
            both.append(key)
        else:
            alone[runs[0].side or "native"].append(" ".join(filter(None, key)))
    notes = [
        f"left out, on the {name} side only: {list_names(alone[side], _SHOWN)}"
        for side, name in zip(SIDES, REFERENCE_AND_CANDIDATE, strict=True)
        if alone[side]
    ]
    if not both:
        what = "\n  ".join(notes) or "there are no runs"
        raise UsageError(f"{file}: nothing was measured on both sides:\n  {what}")
    return both, notes


def _fit_sizes(runs: Sequence[FoundRun]) -> tuple[list[FoundRun], list[str]]:
    """Return runs that all have the sizes that most have; one that lacks a size is a lost run."""
    counts = Counter(frozenset(run.values) for run in runs)
    common = max(counts, key=lambda sizes: (counts[sizes], len(sizes)))
    notes = []
    for run in runs:
        missing = common - run.values.keys()
        if missing:
            sizes = ", ".join(
                f"{size:g}" for size in sorted(size for size in missing if size is not None)[:_SHOWN]
            )
            notes.append(f"{run.metric}: lost run: a {run.side} run lacks {sizes or 'its value'}")
            run.values = dict.fromkeys(common, math.nan)
        elif len(run.values) > len(common):
            notes.append(f"{run.metric}: sizes that only some runs have are left out")
            run.values = {size: value for size, value in run.values.items() if size in common}
    return list(runs), list(dict.fromkeys(notes))


def _make_metric(file: str, name: str, runs: Sequence[FoundRun], wanted: Wanted) -> Metric:
    _convert_times(runs)
    units = {run.unit for run in runs}
    if len(units) > 1:
        raise UsageError(
            f"{file}: {name} is in {' and in '.join(sorted(unit or 'no unit' for unit in units))}: "
            "convert the "
            "values to one unit"
        )
    unit = wanted.unit or units.pop()
    stated = {run.better for run in runs if run.better}
    if len(stated) > 1:
        raise UsageError(
            f"{file}: {name}: better is lower in some rows and higher in others: a metric has one"
        )
    better = stated.pop() if stated and not wanted.better else choose_better(file, name, unit, wanted)
    is_curve = None not in runs[0].values
    _check_amounts(file, name, runs)
    return make_stated_metric(
        name, unit or "(no unit)", better, is_curve=is_curve, axis_unit=runs[0].axis_unit
    )


def _convert_times(runs: Sequence[FoundRun]) -> None:
    """Convert times in different units to that of the first run; other units stay as they are."""
    unit = runs[0].unit
    if any(run.unit not in _SECONDS for run in runs):
        return
    for run in runs:
        factor = _SECONDS[run.unit] / _SECONDS[unit]
        if factor != 1:
            run.values = {size: value * factor for size, value in run.values.items()}
            run.unit = unit


def _check_amounts(file: str, name: str, runs: Sequence[FoundRun]) -> None:
    for run in runs:
        for value in run.values.values():
            if math.isfinite(value) and not MIN_AMOUNT <= value <= MAX_AMOUNT:
                problem = "is not above zero: write nan for a run that gave no value"
                if value > 0:
                    problem = f"is not from {MIN_AMOUNT:g} to {MAX_AMOUNT:g}: use another unit"
                raise UsageError(f"{file}:{run.line}: {name}: {value:g} {problem}")


def _fill(series: FileSeries, found: Sequence[FoundRun], why: str, *, paired: bool) -> None:
    """Number the runs of a series as pairs, or note why none can be made."""
    numbered = all(run.number is not None for run in found)
    timed = [Timed(run.start, run.side or "native") for run in found]
    series.has_made_times = any(run.has_made_times for run in found)
    if series.has_made_times:
        numbers = _use_numbers(found)
    elif any(math.isnan(run.start) for run in found):
        numbers = _use_numbers(found) if paired and numbered else _count(found)
        if paired:
            _make_times(series, found, numbers)
        else:
            series.not_in_turns = why or "not all runs have a time"
    elif (pairs := find_pairs(timed)) is None:
        series.not_in_turns = (
            describe_block(timed, series.labels) or "not in turns: most runs follow a run of their own side"
        )
        if paired:
            raise refuse_paired(f"the times say: {series.not_in_turns}")
        numbers = _count(found)
    elif numbered:
        numbers = _use_numbers(found)
    else:
        numbers = [-1] * len(found)
        for number, indices in enumerate(pairs):
            for index in indices:
                numbers[index] = number
    for run, number in zip(found, numbers, strict=True):
        if number >= 0:
            _add(series, run, number)


def _make_times(series: FileSeries, found: Sequence[FoundRun], numbers: Sequence[int]) -> None:
    """Give runs times that stand for turns in the standard order."""
    series.has_made_times = True
    for run, number in zip(found, numbers, strict=True):
        run.start, run.end = make_times(number, run.side or "native")


def _count(found: Sequence[FoundRun]) -> list[int]:
    """Return the place of each run among those of its side."""
    count: Counter[str | None] = Counter()
    numbers = []
    for run in found:
        numbers.append(count[run.side])
        count[run.side] += 1
    return numbers


def _use_numbers(found: Sequence[FoundRun]) -> list[int]:
    return [run.number or 0 for run in found]


def _add(series: FileSeries, run: FoundRun, number: int) -> None:
    side = run.side or "native"
    host = run.host or (run.node if side == "native" else "")
    boot = run.boot if side == "virtual" else ""
    shared = (run.start, run.end, run.node, host, boot)
    if (number, side) in series.runs:
        name = f"{series.metric.name} {series.setting}".strip()
        raise UsageError(
            f"line {run.line}: {name}: pair {number} has a {side} run already, in line "
            f"{series.runs[number, side].line}: a pair has one run of each side"
        )
    series.runs[number, side] = FileRun(run.line, side, number, shared, run.values)
