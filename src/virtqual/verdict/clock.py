"""The step of the clock behind a metric, as its values show it.

A clock of steps of 0.01 s shows a run of 0.2 s as 0.19, 0.20 or 0.21 s. More runs do not help if all of them
are rounded in one direction: the step is an error of the value, not noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from virtqual.verdict.estimate import Floats
from virtqual.verdict.outcome import format_value
from virtqual.verdict.pairs import SIDES, Series

MAX_MARGIN_SHARE = 1 / 3
"""Largest share of its margin that a clock's step may be; two thirds are left for the noise."""

MIN_CLOCK_PAIRS = 4
"""Eight values show the step; of four even ones in 100 to 200, one set in sixteen has no odd one by chance."""

DIGITS = 7
"""Significant digits of the smallest value; further ones come from arithmetic, not from a clock."""

HONEST_SHARE = 1e-4
"""Values never repeat in this share of themselves, unless the clock makes them: runs differ by 0.03 % and more."""


@dataclass(frozen=True)
class CoarseClock:
    """A step that is too large a share of the margin, at the worst size.

    Attributes
    ----------
    step, value
        In the metric's unit; the step is the value itself if all values are equal.
    margin
        In log units.
    """

    series: Series
    column: int
    step: float
    value: float
    margin: float

    @property
    def longer(self) -> int:
        """How many times as long a run must be."""
        return math.ceil(self.step / self.value / (MAX_MARGIN_SHARE * self.margin))

    def describe(self) -> str:
        """Return the step with its share of the value and of the margin, and what helps."""
        metric, points, unit = self.series.metric, self.series.points, self.series.metric.unit
        size = f" at {format_value(points[self.column])} {metric.axis_unit}" if points else ""
        if self.step == self.value:
            count = 2 * len(self.series.valid)
            return (
                f"clock too coarse: all {count} values are {format_value(self.value)} {unit}{size}, and nothing "
                "shows its step; print more digits, or run longer"
            )
        return (
            f"clock too coarse: values{size} differ by {format_value(self.step)} {unit} or not at all, which is "
            f"{self.step / self.value:.1%} of {format_value(self.value)} {unit} and more than a third of the "
            f"margin of {math.expm1(self.margin):.1%}; {self.longer} times as many repetitions a run would do"
        )


def find_steps(values: Floats) -> Floats:
    """Return the step of the clock at each size, shape (n_points,), from values of shape (n_values, n_points).

    The sizes share a clock, whose step divides all values. The divisor is finer than the step if a rate or a
    conversion hides it; values that repeat give it away, and their smallest difference is the step.

    Examples
    --------
    >>> find_steps(np.array([[0.39, 2.5], [0.4, 2.5], [0.39, 2.51]])).tolist()
    [0.01, 0.01]
    >>> find_steps(np.array([[2000 / 3], [2000 / 3], [500.0], [500.0]])).round(1).tolist()
    [166.7]
    """
    unit = 10.0 ** (math.floor(math.log10(values.min())) + 1 - DIGITS)
    counts = [round(value / unit) for value in values.ravel().tolist()]
    divisor = math.gcd(*counts)
    steps = np.full(values.shape[1], divisor * unit)
    for column in range(len(steps)):
        column_counts = counts[column :: len(steps)]
        distinct = sorted(set(column_counts))
        if divisor < HONEST_SHARE * distinct[0] and len(distinct) < len(column_counts):
            gaps = np.diff([0, distinct[0]] if len(distinct) == 1 else distinct)
            steps[column] = gaps.min() * unit
    return steps


def clock_bias(series: Series) -> Floats:
    """Return how far the clock may have moved the overhead, in log units by size.

    A mean is off by half a step at most: of a pair these are halves of one step.
    """
    values = np.concatenate([series.values(side) for side in SIDES])
    bias: Floats = np.log1p(find_steps(values) / np.minimum(*map(series.medians, SIDES)))
    return bias


def find_coarse_clock(series: Series, margin: Floats) -> CoarseClock | None:
    """Return the clock of a series if its step is too large for the margin, in log units by size."""
    values = np.concatenate([series.values(side) for side in SIDES])
    steps, typical = find_steps(values), np.minimum(*map(series.medians, SIDES))
    shares = steps / typical / margin
    column = int(np.argmax(shares))
    # A step of exactly a third is a fraction that floats do not have.
    if shares[column] <= MAX_MARGIN_SHARE * (1 + 1e-6):
        return None
    return CoarseClock(series, column, float(steps[column]), float(typical[column]), float(margin[column]))
