"""Rules on what cannot be: a run that repeats another to the last digit, or times that contradict each other.

Each refuses its run.  A program that did not run at all, or a guest whose clock runs wrong, prints numbers
that look like any others: only beside other runs, and beside the scheduler's clock, are they seen to be none.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal

from virtqual.preflight.rules import FoundRuns, Limits, rule
from virtqual.runs import Run
from virtqual.verdict.metric import Metrics

#: The first three digits of a value may repeat honestly: they do where runs differ by 0.03 %, less than any
#: family of references/noise/ does.  Further digits differ from run to run.
_HONEST = 1000
#: Programs print up to nine digits.  A value of more was computed, and does not show what was printed: of a
#: curve each size then counts as one of four, as by the coarsest clock, and a single value proves nothing.
_PRINTED, _COMPUTED = 9, 4
#: A rating in runs a day is computed from the seconds of one run.
_DAY_S = 86_400


@rule("among", "copied-run", "chance")
def copied_run(runs: Sequence[Run], limits: Limits) -> FoundRuns:
    """The output of an earlier run on this side, in this session or in the one that it is held against."""
    sides = defaultdict(list)
    for run in runs:
        sides[run.side].append(run)
    for side in sides.values():
        copies = defaultdict(list)
        for run in side:
            # No reason of a refusal: the first of two copies may have been refused.
            numbers = tuple((result.series, result.points, result.values) for result in run.results)
            copies[numbers].append(run)
        if len(copies) < len(side):
            yield from _improbable(side, list(copies.values()), limits)


def _improbable(side: Sequence[Run], copies: Sequence[Sequence[Run]], limits: Limits) -> FoundRuns:
    """Yield the runs of a side that repeat an earlier run, where chance does not explain the copies."""
    steps = _steps(side)
    for group in copies:
        first = min(group, key=lambda run: run.start)
        choices = math.log10(math.comb(len(side), len(group)))
        for run in group:
            if run.start <= first.start:
                continue
            ways = sum(
                # A program may print more digits than its clock has.
                math.log10(max(least, min(printed, result.ticks or math.inf) / _HONEST))
                for result in run.results
                for least, printed in steps[result.series, result.points]
            )
            chance = choices - ways * (len(group) - 1)
            if chance < math.log10(limits["chance"]):
                count = sum(len(result.values) for result in run.results)
                what = f"all {count} values repeat" if count > 1 else "the value repeats"
                yield (
                    run,
                    f"{what} those of pair {first.pair} (job {first.job}) to the last digit, which happens "
                    f"by chance once in {10 ** min(-chance, 300):.2g} times: what was printed is no "
                    "measurement of this run",
                )


def _steps(side: Sequence[Run]) -> dict[tuple[str, tuple[float, ...]], list[tuple[float, float]]]:
    """Return the answers of `_steps_of`, one for each size, by series and sizes."""
    results = defaultdict(list)
    for run in side:
        for result in run.results:
            results[result.series, result.points].append(result.values)
    return {
        (series, points): [_steps_of(values, bool(points)) for values in zip(*rows, strict=True)]
        for (series, points), rows in results.items()
    }


def _steps_of(values: Sequence[float], curve: bool) -> tuple[float, float]:
    """Return the fewest values among which chance chooses, and how many printed steps the first value has."""
    if not all(map(math.isfinite, values)):
        return 1, 0  # What is no number is refused elsewhere.
    # The finest of all runs: a last digit that is 0 is not seen in the number.
    shown = [Decimal(f"{value:.12g}").normalize().as_tuple() for value in values]
    if any(len(number.digits) > _PRINTED for number in shown):
        return _COMPUTED if curve else 1, 0
    finest = min(int(number.exponent) for number in shown)
    return 1, abs(values[0]) / 10.0**finest


@rule("metrics", "impossible-time", "seconds", "share")
def impossible_time(run: Run, metrics: Metrics, limits: Limits) -> Iterator[str]:
    """A run that ended before it began, or that took less time than its own program says.

    The program's times are compared with the clock of the same node; `node_clock` compares that with the
    scheduler's.
    """
    if run.end < run.start:
        yield f"it ended {run.start - run.end:.3g} s before it started, by the clock of {run.clock}"
    if run.seconds <= 0:
        yield f"its program took {run.seconds:.3g} s by its node's clock"
    # A value is the mean of half of the repetitions at least; see `typical_value`.
    half = max(run.repetitions // 2, 1)
    for what, seconds in _stated(run, metrics):
        if seconds <= 0:
            yield f"{what} is {seconds:.3g} s, which is no time"
        elif half * seconds > run.seconds * (1 + limits["share"]) + limits["seconds"]:
            times = f", {half} times at least" if half > 1 else ""
            program_time = f"{run.seconds:.4g} s on its node"
            yield f"{what} is {seconds:.4g} s{times}, but the whole program took {program_time}"


def _stated(run: Run, metrics: Metrics) -> Iterator[tuple[str, float]]:
    """Yield the seconds that the program itself says it took."""
    for result in run.results:
        metric = metrics.get(result.metric)
        unit = result.declared.unit if result.declared else metric.unit if metric else ""
        if unit == "s":
            yield from ((result.series, value) for value in result.values)
        elif unit == "runs/day" and not result.points:
            yield from (
                (f"the time of {result.series}", _DAY_S / value) for value in result.values if value > 0
            )


@rule("among", "node-clock", "seconds", "share", "times")
def node_clock(runs: Sequence[Run], limits: Limits) -> FoundRuns:
    """A clock of the node that runs faster or slower than the scheduler's.

    A job takes longer than the node's clock shows from the start of its shell to the end of its program. The
    longer part is what native jobs of the check show: of the same pair, since the first one may do more
    around its program, or in the middle of all.
    """
    # A span from submission on holds the time in the queue.
    timed = [run for run in runs if run.side == "native" and run.clock != "submission"]
    timed.sort(key=lambda run: run.start)
    around = {run.pair: run.end - run.start - run.shell_seconds - run.seconds for run in timed}
    middle = statistics.median(around.values()) if around else 0.0
    for run in runs:
        span, on_node = run.end - run.start, run.shell_seconds + run.seconds
        with_shell = f" with {run.shell_seconds:.2g} s before it" if run.shell_seconds >= 1 else ""
        program = f"its program took {run.seconds:.4g} s{with_shell} by the node's clock"
        allowed = limits["seconds"] + limits["share"] * span
        if span < 0:
            continue
        if on_node > span + allowed:
            yield run, f"{program}, but its whole job {span:.4g} s by the scheduler's"
        if run.side == "native" or run.clock == "submission" or not timed:
            continue
        usual = max(middle, around.get(run.pair, 0.0), 0.0)
        if span - on_node > limits["times"] * usual + allowed:
            yield (
                run,
                f"{program}, but its job {span:.4g} s by the scheduler's; "
                f"{usual:.2g} s lie between them natively",
            )
