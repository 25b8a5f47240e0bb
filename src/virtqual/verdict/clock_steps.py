"""The step of the clock behind a metric, as its values show it.

A clock of steps of 0.01 s shows a run of 0.2 s as 0.19, 0.20 or 0.21 s. More runs do not help if all of them
are rounded in one direction: the step is an error of the value, not noise.
"""

from __future__ import annotations

import math

import numpy as np

from virtqual.verdict.estimate import Floats

DIGITS = 7
"""Significant digits of the smallest value that count: further ones come from arithmetic."""

HONEST_SHARE = 1e-3
"""Share of a value in which it does not repeat unless a clock makes it: runs differ by about as much."""


def find_steps(values: Floats) -> Floats:
    """Return the step of the clock at each size, shape (n_points,), from (n_values, n_points) values.

    The sizes share a clock, whose step divides all values. Many digits of a rate hide the step; values that
    repeat all the same reveal it: their smallest difference is the step.

    Examples
    --------
    >>> find_steps(np.array([[0.39, 2.5], [0.4, 2.5], [0.39, 2.51]])).round(9).tolist()
    [0.01, 0.01]
    >>> find_steps(np.array([[2000 / 3], [2000 / 3], [500.0], [500.0]])).round(1).tolist()
    [166.7]
    """
    unit = 10.0 ** (math.floor(math.log10(values.min())) + 1 - DIGITS)
    counts = [round(value / unit) for value in values.ravel().tolist()]
    divisor, width, last_place = math.gcd(*counts), values.shape[1], 1
    while divisor % (10 * last_place) == 0:
        last_place *= 10
    steps = np.full(width, divisor * unit)
    if last_place >= HONEST_SHARE * min(counts):
        return steps
    for column in range(width):
        distinct = sorted(set(counts[column::width]))
        if len(distinct) < len(values):
            steps[column] = min(np.diff(distinct), default=distinct[0]) * unit
    return steps
