"""Rules on what cannot be: a run that repeats another to the last digit, or times that contradict each other.

A program that did not run, or a guest whose clock runs wrong, prints numbers that look like any others. They
are found beside other runs, and beside the scheduler's clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal

from virtqual.preflight.rules import RunsOfCheck, rule
from virtqual.runs import Result, Run
from virtqual.verdict.metric import Metrics

#: The first three digits of a value may repeat honestly: they do where runs differ by 0.03 %, less than any
#: family of references/noise/ does.  Further digits differ from run to run.
HONEST_STEPS = 1000
#: Programs print up to nine digits. A value of more was computed, and does not show what was printed.
MAX_PRINTED_DIGITS = 9
#: Values among which chance chooses at each size of a computed curve, as by the coarsest clock.
MIN_CURVE_VALUES = 4
#: A rating in runs a day is computed from the seconds of one run.
DAY_S = 86_400


@rule("run", "copied-run")
def copied_run(run: Run, all_runs: RunsOfCheck, metrics: Metrics, *, chance: float) -> Iterator[str]:
    """The output of an earlier run on this side, in this session or in the one that it is held against."""
    copies = all_runs.copies_of(run)
    first = min(copies, key=lambda copy: copy.start)
    if run.start <= first.start:
        return
    side = [other for other in all_runs.runs if other.side == run.side]
    log_ways = 0.0
    for result in run.results:
        series = result.series, result.points
        rows = [r.values for other in side for r in other.results if (r.series, r.points) == series]
        log_ways += sum(math.log10(_count_values(values, result)) for values in zip(*rows, strict=True))
    log_chance = math.log10(math.comb(len(side), len(copies))) - log_ways * (len(copies) - 1)
    if log_chance < math.log10(chance):
        count = sum(len(result.values) for result in run.results)
        what = f"all {count} values repeat" if count > 1 else "the value repeats"
        yield (
            f"{what} those of pair {first.pair} (job {first.job}) to the last digit, which happens by chance "
            f"once in {10 ** min(-log_chance, 300):.2g} times: what was printed is no measurement of this run"
        )


def _count_values(values: Sequence[float], result: Result) -> float:
    """Return among how many values chance chooses, given those of all runs on a side at one size."""
    if not all(map(math.isfinite, values)):
        return 1  # What is no number is refused elsewhere.
    # The finest of all runs: a last digit that is 0 is not seen in the number.
    numbers = [Decimal(f"{value:.12g}").normalize().as_tuple() for value in values]
    if any(len(number.digits) > MAX_PRINTED_DIGITS for number in numbers):
        return MIN_CURVE_VALUES if result.points else 1
    finest = min(int(number.exponent) for number in numbers)
    # A program may print more digits than its clock has.
    steps = min(abs(values[0]) / 10.0**finest, result.ticks or math.inf)
    return max(1, steps / HONEST_STEPS)


@rule("run", "impossible-time")
def impossible_time(
    run: Run, all_runs: RunsOfCheck, metrics: Metrics, *, seconds: float, share: float
) -> Iterator[str]:
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
    for what, stated in _find_stated_seconds(run, metrics):
        if stated <= 0:
            yield f"{what} is {stated:.3g} s, which is no time"
        elif half * stated > run.seconds * (1 + share) + seconds:
            times = f", {half} times at least" if half > 1 else ""
            program_time = f"{run.seconds:.4g} s on its node"
            yield f"{what} is {stated:.4g} s{times}, but the whole program took {program_time}"


def _find_stated_seconds(run: Run, metrics: Metrics) -> Iterator[tuple[str, float]]:
    """Yield the seconds that the program itself says it took."""
    for result in run.results:
        metric = result.declared or metrics.get(result.metric)
        unit = metric.unit if metric else ""
        if unit == "s":
            yield from ((result.series, value) for value in result.values)
        elif unit == "runs/day" and not result.points and result.values[0] > 0:
            yield f"the time of {result.series}", DAY_S / result.values[0]


@rule("run", "node-clock")
def node_clock(
    run: Run, all_runs: RunsOfCheck, metrics: Metrics, *, seconds: float, share: float, times: float
) -> Iterator[str]:
    """A clock of the node that runs faster or slower than the scheduler's.

    A job takes longer than the node's clock shows from the start of its shell to the end of its program. The
    longer part is what native jobs of the check show in the middle of all, or the job of the other side in
    the same pair: the first pair may do more around its program.
    """
    span, on_node = run.end - run.start, run.shell_seconds + run.seconds
    if span < 0:
        return
    allowed = seconds + share * span
    with_shell = f" with {run.shell_seconds:.2g} s before it" if run.shell_seconds >= 1 else ""
    program = f"its program took {run.seconds:.4g} s{with_shell} by the node's clock"
    if on_node > span + allowed:
        yield f"{program}, but its whole job {span:.4g} s by the scheduler's"
    usual_native = all_runs.usual_native_seconds
    if run.clock == "submission" or usual_native is None:
        return
    other_side = "native" if run.side == "virtual" else "virtual"
    usual = max(usual_native, all_runs.seconds_around.get((other_side, run.pair), 0.0), 0.0)
    if span - on_node > times * usual + allowed:
        where = "natively" if run.side == "virtual" else "in other runs"
        between = f"{usual:.2g} s lie between them {where}"
        yield f"{program}, but its job {span:.4g} s by the scheduler's; {between}"
