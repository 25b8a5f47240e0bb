"""The step of the clock behind a metric, as its values show it, and steps that are too coarse for a margin.

A clock of steps of 0.01 s shows a run of 0.2 s as 0.19, 0.20 or 0.21 s. More runs do not help if all of them
are rounded in one direction: the step is an error of the value, not noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from virtqual.verdict.budget import Budget
from virtqual.verdict.estimate import Floats
from virtqual.verdict.metric import Metric
from virtqual.verdict.notation import format_size, format_value

DIGITS = 7
"""Significant digits of the smallest value that count: further ones come from arithmetic."""

MAX_MARGIN_SHARE = 1 / 3
"""Largest share of its margin that a clock's step may be; two thirds are left for the noise."""

MIN_CLOCK_PAIRS = 4
"""Pairs that show a step: four whole numbers are all even in 6 % of cases, eight in 0.4 %."""

MAX_REMAINDER = 0.1
"""Share of a step that a multiple of it may be off, by the digits that were printed."""

MIN_REPEATS = 2
"""Values that must occur twice or more to show a step: a limit repeats one value, a coarse clock several."""

MAX_CHANCE = 3e-4
"""Chance that one side shows only multiples of a step although its clock is as fine as the other one."""


def find_steps(*sides: Floats, repeats: int = MIN_REPEATS) -> Floats:
    """Return the step of the clock at each size, shape (n_points,), from (n_values, n_points) values a side.

    It is one unit of the last printed digit, or the difference that divides all values if `repeats` of them
    occur twice or more. If one side shows a larger step by itself, and hardly by chance, it has a clock of
    its own.

    Examples
    --------
    >>> find_steps(np.array([[0.39, 2.5], [0.4, 2.5], [0.39, 2.51]])).round(9).tolist()
    [0.01, 0.01]
    >>> find_steps(np.array([[2000 / 3], [2000 / 3], [500.0], [500.0]])).round(1).tolist()
    [166.7]
    >>> find_steps(np.array([[3000.0]] * 4), np.array([[3000.0]] * 4)).tolist()
    [1.0]
    """
    values = np.concatenate(sides)
    place = find_last_place(values)
    steps = _widen(place, values, repeats)
    for side in sides:
        own = _widen(find_last_place(side), side, repeats)
        # The first value is a multiple of its own divisors.
        others = [max(len(np.unique(column)) - 1, 1) for column in side.T]
        steps = np.where((place / own) ** others < MAX_CHANCE, np.maximum(steps, own), steps)
    return steps


def find_last_place(values: Floats) -> float:
    """Return one unit of the last decimal place that values show, 1 at most for everyday sizes.

    A zero at the end is not seen, and a whole number may be exact: 3000 shows a step of 1.

    Examples
    --------
    >>> find_last_place(np.array([0.39, 0.4, 12.0])), find_last_place(np.array([8000.0]))
    (0.01, 1.0)
    """
    finest = math.floor(math.log10(values.min())) + 1 - DIGITS
    counts = np.unique(np.round(values / 10.0**finest))
    place = finest
    while place < 0 and np.all(counts % 10 ** (place + 1 - finest) == 0):
        place += 1
    return float(10.0**place)


def _widen(place: float, values: Floats, repeats: int) -> Floats:
    """Return the step at each size: the last place, or the difference that divides all values.

    A rate or a conversion has more digits than the clock behind it: its times are multiples of a step.
    """
    counts = np.round(values / place).T
    return np.array([place * _find_common_step(column, repeats) for column in counts])


def _find_common_step(counts: Floats, repeats: int) -> float:
    """Return the step that divides all values, in units of their last place; 1 if they show none."""
    distinct, times_seen = np.unique(counts, return_counts=True)
    if len(distinct) > 1 and np.count_nonzero(times_seen > 1) >= repeats:
        times = 1 / distinct[::-1]
        # Two sides may show every other step.
        for parts in (1, 2):
            if _has_step(distinct, 1.0, parts) or _has_step(times, times[-1] ** 2, parts):
                return max(1.0, float(np.min(np.diff(distinct))) / parts)
    return 1.0


def _has_step(values: Floats, error: float, parts: int) -> bool:
    """Return whether all of the rising values are multiples of a part of their smallest difference.

    Levels of a disk that is throttled now and then repeat, too, but are multiples of nothing. `error` is that
    of a value.
    """
    step = np.min(np.diff(values)) / parts
    ratios = values / step
    allowed = np.minimum((1 + ratios) * error / step, MAX_REMAINDER)
    return bool(np.all(np.abs(ratios - np.round(ratios)) <= allowed))


@dataclass(frozen=True)
class CoarseClock:
    """A step that is too large a share of the margin, at the worst size."""

    metric: Metric
    #: In the metric's unit.
    step: float
    #: The native value, in the metric's unit.
    value: float
    #: As a fraction.
    margin: float
    #: None for a scalar.
    size: float | None

    @property
    def repetitions(self) -> int:
        """How many times a run must be repeated for its mean to have steps of a third of the margin."""
        # A step of exactly a third is a fraction that floats do not have.
        return math.ceil(self.step / self.value / self.margin / MAX_MARGIN_SHARE * (1 - 1e-6))

    def describe(self) -> str:
        """Return the step with its shares of value and margin, and what helps."""
        metric = self.metric
        size = "" if self.size is None else f" at {format_size(self.size, metric.axis_unit)}"
        return (
            f"clock too coarse: it shows steps of {format_value(self.step)} {metric.unit}{size}, "
            f"{self.step / self.value:.1%} of {format_value(self.value)} {metric.unit}, more than a third of "
            f"the margin of {self.margin:.1%}; print more digits, make the runs longer, or take "
            f"{self.repetitions} times as many repetitions in a run"
        )


def find_coarse_clock(
    metric: Metric, points: tuple[float, ...], steps: Floats, native: Floats, budget: Budget
) -> CoarseClock | None:
    """Return the clock of a metric if its step is larger than a third of the margin at some size.

    `steps` are those of `find_steps`, and `native` the typical values of a native run.
    """
    margins = np.array([budget.term(point).margin for point in points or (None,)])
    worst = int(np.argmax(steps / native / margins))
    step, value, margin = (float(column[worst]) for column in (steps, native, margins))
    clock = CoarseClock(metric, step, value, margin, points[worst] if points else None)
    return clock if clock.repetitions > 1 else None
