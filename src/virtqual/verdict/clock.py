"""Clocks whose steps are too coarse for a margin, and how far a clock may move an overhead."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from virtqual.verdict.budget import Budget
from virtqual.verdict.clock_steps import HONEST_SHARE
from virtqual.verdict.estimate import Floats
from virtqual.verdict.metric import Metric
from virtqual.verdict.notation import format_value
from virtqual.verdict.pairs import Series

MAX_MARGIN_SHARE = 1 / 3
"""Largest share of its margin that a clock's step may be; two thirds are left for the noise."""

MIN_CLOCK_PAIRS = 4
"""Pairs that show a step: four whole numbers are all even in 6 % of cases, eight in 0.4 %."""


@dataclass(frozen=True)
class CoarseClock:
    """A step that is too large a share of the margin, at the worst size.

    Attributes
    ----------
    step, value
        In the metric's unit; the value is native. The step is the value itself if all values are equal.
    margin
        As a fraction.
    size
        None for a scalar.
    """

    metric: Metric
    step: float
    value: float
    margin: float
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
                f"clock too coarse: all values{size} are {value}, and nothing shows the clock's step; print "
                "more digits, or make the runs longer"
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
    sign = 1 if metric.better == "lower" else -1
    limit, margin, _ = budget.limits(metric, points, native)
    margins = sign * (np.exp(sign * (limit + margin)) - np.exp(sign * limit))
    worst = int(np.argmax(steps / native / margins))
    step, value, stated = (float(column[worst]) for column in (steps, native, margins))
    clock = CoarseClock(metric, step, value, stated, points[worst] if points else None)
    return clock if clock.repetitions > 1 else None


def find_clock_of(series: Series, budget: Budget) -> CoarseClock | None:
    """Return the clock of a series if its step is too large."""
    native = series.medians["native"]
    return find_coarse_clock(series.metric, series.points, series.clock_steps, native, budget)


def clock_bias(series: Series) -> Floats:
    """Return how far the clock may have moved the overhead, in log units by size: half a step a side."""
    shares = series.clock_steps * (1 / series.medians["native"] + 1 / series.medians["virtual"]) / 2
    return np.where(shares < HONEST_SHARE, 0.0, shares)
