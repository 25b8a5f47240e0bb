"""The noise that values have because of the digits that they show."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from virtqual.verdict.estimate import timer_noise
from virtqual.verdict.pairs import SIDES, Floats, Series

LEAST_NOISE = 1e-4
"""Standard deviation of a pair's log difference that is always assumed: a hundredth of a budget of one per
cent. No two runs of a program are known to be nearer to each other, however many digits they show."""


def step_of(values: Floats) -> float:
    """Return the smallest difference that values show, in their unit: one of the last decimal place in use.

    The smallest difference between two values would be too large where there are few, and there is none
    where all are the same; a decimal place is seen in a single value. Whole numbers count by one: what ends
    with zeros need not be rounded.

    Examples
    --------
    >>> step_of(np.array([0.39, 0.4, 12.0])), step_of(np.array([8000.0]))
    (0.01, 1.0)
    """
    places = [Decimal(repr(float(value))).normalize().as_tuple().exponent for value in np.unique(values)]
    return float(10.0 ** min(0, *(int(place) for place in places)))


def least_noise(series: Sequence[Series]) -> Floats:
    """Return the standard deviation of a pair's log difference that rounding makes, shape (n_points,).

    Parameters
    ----------
    series
        One series in several sessions, with at least one valid pair together.
    """
    values = np.concatenate([session.values(side) for session in series for side in SIDES])
    return noise_of_digits(values)


def noise_of_digits(values: Floats) -> Floats:
    """Return the same for values of runs, shape (n_runs, n_points)."""
    step = step_of(values)
    noise = [timer_noise(step, value) for value in np.median(values, axis=0)]
    return np.maximum(noise, LEAST_NOISE)
