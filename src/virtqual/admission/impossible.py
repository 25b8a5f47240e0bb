"""Rules on what cannot be: a run that repeats another to the last digit, or times that contradict each other.

Each refuses its run.  A program that did not run at all, or a guest whose clock runs wrong, prints numbers
that look like any others: only beside other runs, and beside the scheduler's clock, are they seen to be none.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from decimal import Decimal

from virtqual.admission.rules import Limits, rule
from virtqual.references.load import known
from virtqual.runs import Result, Run

#: The first three digits of a value may repeat honestly: they do where runs differ by 0.03 %, less than any
#: family of references/noise/ does.  What is printed more finely than that differs from run to run.
_HONEST = 1000
#: Programs print up to nine digits.  A value of more was computed, and does not show what was printed: of a
#: curve each size then counts as one of four, as by the coarsest clock, and a single value proves nothing.
_PRINTED, _COMPUTED = 9, 4
#: A rating in runs a day is computed from the seconds of one run.
_DAY_S = 86_400


@rule("among", "copied-run", "chance")
def copied_run(run: Run, others: Sequence[Run], limits: Limits) -> Iterator[str]:
    """The output of an earlier run on this side, in this session or in the one that it is held against."""
    own = [one for one in others if one.side == run.side and one.instead == run.instead]
    twins = [one for one in own if one is not run and _numbers(one) == _numbers(run)]
    before = [one for one in twins if one.start < run.start]
    if not before:
        return
    ways = sum(math.log10(count) for count in _ways(run, own))
    chance = math.log10(math.comb(len(own), len(twins) + 1)) - ways * len(twins)
    if chance < math.log10(limits["chance"]):
        first = min(before, key=lambda one: one.start)
        count = sum(len(result.values) for result in run.results)
        what = f"all {count} values repeat" if count > 1 else "the value repeats"
        yield (
            f"{what} those of pair {first.pair} (job {first.job}) to the last digit, which happens by chance "
            f"once in {10 ** min(-chance, 300):.2g} times: what was printed is no measurement of this run"
        )


def _numbers(run: Run) -> list[tuple[object, ...]]:
    # No reason of a refusal: the first of two copies may have been refused.
    return [(result.series, result.points, result.values) for result in run.results]


def _ways(run: Run, own: Sequence[Run]) -> Iterator[float]:
    """Yield for each value of a run among how many values chance would have had to choose it."""
    for result in run.results:
        same = [one for other in own for one in other.results if _alike(one, result)]
        for values in zip(*(one.values for one in same), strict=True):
            if not all(map(math.isfinite, values)):
                yield 1  # What is no number is refused elsewhere.
                continue
            # The finest of all runs: a last digit that is 0 is not seen in the number.
            shown = [Decimal(f"{value:.12g}").normalize().as_tuple() for value in values]
            if any(len(number.digits) > _PRINTED for number in shown):
                yield _COMPUTED if result.points else 1
                continue
            finest = min(int(number.exponent) for number in shown)
            # What a program prints may be finer than its clock.
            steps = min(abs(values[0]) / 10.0**finest, result.ticks or math.inf)
            yield max(1.0, steps / _HONEST)


def _alike(one: Result, other: Result) -> bool:
    return (one.series, one.points) == (other.series, other.points)


@rule("run", "impossible-time", "seconds", "share")
def impossible_time(run: Run, limits: Limits) -> Iterator[str]:
    """A run that ended before it began, or that took less time than its own program says.

    What the program says is held against the clock of the same node; `node_clock` holds that against the
    scheduler's.
    """
    if run.end < run.start:
        yield f"it ended {run.start - run.end:.3g} s before it started, by the clock of {run.clock}"
    if run.seconds <= 0:
        yield f"its program took {run.seconds:.3g} s by its node's clock"
    # Half of the repetitions took as long as their median, or longer.
    half = (run.repetitions + 1) // 2
    for what, seconds in _stated(run):
        if seconds <= 0:
            yield f"{what} is {seconds:.3g} s, which is no time"
        elif half * seconds > run.seconds * (1 + limits["share"]) + limits["seconds"]:
            times = f", {half} times at least" if half > 1 else ""
            whole = f"{run.seconds:.4g} s on its node"
            yield f"{what} is {seconds:.4g} s{times}, but the whole program took {whole}"


def _stated(run: Run) -> Iterator[tuple[str, float]]:
    """Yield the seconds that the program itself says it took."""
    for result in run.results:
        metric = known().metrics.get(result.metric)
        unit = result.declared.unit if result.declared else metric.unit if metric else ""
        if unit == "s":
            yield from ((result.series, value) for value in result.values)
        elif unit == "runs/day" and not result.points:
            yield from (
                (f"the time of {result.series}", _DAY_S / value) for value in result.values if value > 0
            )


@rule("among", "node-clock", "seconds", "share", "times")
def node_clock(run: Run, others: Sequence[Run], limits: Limits) -> Iterator[str]:
    """A clock of the node that runs faster or slower than the scheduler's.

    A job takes longer than its program, and the longer part is what native jobs of the check show: of the
    same pair, since the first one may do more around its program, or in the middle of all.
    """
    span = run.end - run.start
    allowed = limits["seconds"] + limits["share"] * span
    if span < 0:
        return
    if run.seconds > span + allowed:
        yield (
            f"its program took {run.seconds:.4g} s by the node's clock, but its whole job {span:.4g} s by "
            f"the scheduler's"
        )
    # A span from submission on holds the time in the queue.
    timed = [one for one in others if one.side == "native" and one.clock != "submission"]
    if run.side == "native" or run.clock == "submission" or not timed:
        return
    around = {one.pair: one.end - one.start - one.seconds for one in sorted(timed, key=lambda one: one.start)}
    usual = max(statistics.median(around.values()), around.get(run.pair, 0.0), 0.0)
    if span - run.seconds > limits["times"] * usual + allowed:
        yield (
            f"its job took {span:.4g} s by the scheduler's clock, but its program {run.seconds:.4g} s by the "
            f"node's; {usual:.2g} s lie between them natively"
        )
