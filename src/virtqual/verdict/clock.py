"""The step of the clock behind a metric, as its values show it, and steps that are too coarse for a margin.

A clock of steps of 0.01 s shows a run of 0.2 s as 0.19, 0.20 or 0.21 s. More runs do not help if all of them
are rounded in one direction: the step is an error of the value, not noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from virtqual.verdict.budget import Budget
from virtqual.verdict.estimate import Floats
from virtqual.verdict.metric import Metric
from virtqual.verdict.notation import format_value

DIGITS = 7
"""Significant digits of the smallest value that count: further ones come from arithmetic."""

HONEST_SHARE = 1e-3
"""Share of a value in which it does not repeat unless a clock makes it: runs differ by about as much."""

MAX_MARGIN_SHARE = 1 / 3
"""Largest share of its margin that a clock's step may be; two thirds are left for the noise."""

MIN_CLOCK_PAIRS = 4
"""Pairs that show a step: four whole numbers are all even in 6 % of cases, eight in 0.4 %."""

MAX_REMAINDER = 0.1
"""Share of a step that a multiple of it may be off, by the digits that were printed."""

MIN_REPEATS = 2
"""Repeated values that show a step: one alone is often chance, since a curve has many sizes."""

MAX_CHANCE = 3e-4
"""Chance that a fine clock shows only multiples of a step that one side alone shows."""

FINE_SHARE = 1e-5
"""Share of a value below which digits are so fine that repeated values of one side alone show a step."""


def find_steps(values: Floats) -> Floats:
    """Return the step of the clock at each size, shape (n_points,), from (n_values, n_points) values.

    The sizes share a clock, whose step divides all values. Many digits of a rate hide the step; values that
    repeat all the same reveal it: their smallest difference is the step, if it divides the others. Of a rate
    the times are multiples of a step.

    Examples
    --------
    >>> find_steps(np.array([[0.39, 2.5], [0.4, 2.5], [0.39, 2.51]])).round(9).tolist()
    [0.01, 0.01]
    >>> find_steps(np.array([[2000 / 3], [2000 / 3], [500.0], [500.0]])).round(1).tolist()
    [166.7]
    >>> find_steps(np.array([[1.23], [1.23], [1.23], [17.648], [17.804], [18.982]])).round(3).tolist()
    [0.002]
    """
    unit, columns = _count_units(values)
    counts = list(chain(*columns))
    divisor = math.gcd(*counts)
    steps = np.full(len(columns), divisor * unit)
    if _find_last_place(divisor) >= HONEST_SHARE * min(counts):
        return steps
    return _widen(steps, columns, unit)


def find_side_steps(values: Floats, common: Floats) -> Floats:
    """Return the steps of the clock by the values of one side, where they are larger than the `common` ones.

    Finer values of the other side hide the step of a clock that only this side has.  Values that a clock of
    the common steps would hardly show reveal it, and so do fine values that repeat.

    Examples
    --------
    >>> find_side_steps(np.array([[0.21], [0.21], [0.22], [0.21]]), np.array([1e-6])).tolist()
    [0.01]
    >>> find_side_steps(np.array([[1.2], [1.2], [1.2], [1.2]]), np.array([0.01])).tolist()
    [0.01]
    """
    unit, columns = _count_units(values)
    counts = list(chain(*columns))
    divisor, distinct = math.gcd(*counts), len(set(counts))
    last_place = _find_last_place(divisor)
    # A single value has no smaller divisor than itself: its last digit shows the step at least.
    step = (divisor if distinct > 1 else last_place) * unit
    # The first value is a multiple of its own divisors.
    if (common.min() / step) ** max(distinct - 1, 1) < MAX_CHANCE:
        return np.maximum(common, step)
    return _widen(common, columns, unit) if last_place < FINE_SHARE * min(counts) else common


def _count_units(values: Floats) -> tuple[float, list[list[int]]]:
    """Return the last of the digits that count, and for each size the values as multiples of it."""
    unit = 10.0 ** (math.floor(math.log10(values.min())) + 1 - DIGITS)
    return unit, [[round(value / unit) for value in column] for column in values.T.tolist()]


def _find_last_place(divisor: int) -> int:
    """Return the largest power of ten that divides a number."""
    place = 1
    while divisor % (10 * place) == 0:
        place *= 10
    return place


def _widen(steps: Floats, columns: Sequence[Sequence[int]], unit: float) -> Floats:
    """Return the steps with those that repeated values reveal, at each size where they do."""
    steps = steps.copy()
    for column, counts in enumerate(columns):
        distinct = sorted(set(counts))
        if len(counts) - len(distinct) >= MIN_REPEATS and _are_multiples(distinct):
            steps[column] = min(np.diff(distinct), default=distinct[0]) * unit
    return steps


def _are_multiples(counts: Sequence[int]) -> bool:
    """Return whether the smallest difference of rising numbers, or of their inverses, divides the others.

    Where one side repeats and the other does not, the smallest difference is noise of the other side.
    """
    values = np.array(counts, dtype=np.float64)
    for rising in (values, 1 / values[::-1]):
        ratios = (rising - rising[0]) / np.min(np.diff(rising), initial=np.inf)
        if np.all(np.abs(ratios - np.round(ratios)) < MAX_REMAINDER):
            return True
    return False


@dataclass(frozen=True)
class CoarseClock:
    """A step that is too large a share of the margin, at the worst size."""

    metric: Metric
    #: The unit is the metric's; the step is the value itself if all values are equal.
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
        value = f"{format_value(self.value)} {metric.unit}"
        size = "" if self.size is None else f" at {format_value(self.size)} {metric.axis_unit}"
        if math.isclose(self.step, self.value):
            return (
                f"clock too coarse: values{size} are {value} or a multiple, and nothing shows the clock's "
                "step; print more digits, or make the runs longer"
            )
        return (
            f"clock too coarse: it shows steps of {format_value(self.step)} {metric.unit}{size}, "
            f"{self.step / self.value:.1%} of {value}, more than a third of the margin of {self.margin:.1%}; "
            f"{self.repetitions} times as many repetitions in a run would do"
        )


def find_coarse_clock(
    metric: Metric, points: tuple[float, ...], steps: Floats, native: Floats, budget: Budget
) -> CoarseClock | None:
    """Return the clock of a metric if its step is larger than a third of the margin at some size.

    `steps` are those of `find_steps`, and `native` the typical values of a native run.
    """
    if np.all(steps < HONEST_SHARE * native):
        return None
    margins = np.array([budget.term(point).margin for point in points or (None,)])
    worst = int(np.argmax(steps / native / margins))
    step, value, margin = (float(column[worst]) for column in (steps, native, margins))
    clock = CoarseClock(metric, step, value, margin, points[worst] if points else None)
    return clock if clock.repetitions > 1 else None
