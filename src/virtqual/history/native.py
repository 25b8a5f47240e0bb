"""Absolute references of a machine's own speed, with tolerances, from stored sessions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from virtqual.history.resolution import least_noise
from virtqual.verdict.pairs import Series

#: How often a sound machine may miss one of its references, per run of a check.
FALSE_ALARMS = 0.001
LEAST_RUNS = 4


@dataclass(frozen=True)
class Reference:
    """One reference in ReFrame's terms.

    Parameters
    ----------
    variable
        Name of the performance variable.
    value
        Median of the native runs, in `unit`.
    lower, upper
        Tolerances as fractions, lower negative.
    unit
        Unit of the metric.
    runs
        Number of native runs.
    spread
        Standard deviation of ln(value).
    """

    variable: str
    value: float
    lower: float
    upper: float
    unit: str
    runs: int
    spread: float


def reference_entries(series: Sequence[Series], false_alarms: float = FALSE_ALARMS) -> list[Reference]:
    """Return the references that native runs of one series in several sessions support.

    The tolerance is the prediction interval of one more run: a sound machine misses it on either side
    in `false_alarms` of all runs at most (of a curve: of all its sizes together).

    Returns
    -------
    list of Reference
        One for each size; empty if there are fewer than 4 native runs.
    """
    values = np.concatenate([session.values("native") for session in series]) if series else np.empty((0, 1))
    runs, width = values.shape
    if runs < LEAST_RUNS:
        return []
    logs = np.log(values)
    level = false_alarms / 2 / width
    # That of one run; the noise of a pair is that of two.
    rounding = least_noise(series) / math.sqrt(2)
    metric, points = series[0].metric, series[0].points
    entries = []
    for i in range(width):
        # Runs that show the same digits may differ by less than these show.
        spread = max(float(logs[:, i].std(ddof=1)), float(rounding[i]))
        reach = -float(special.stdtrit(runs - 1, level)) * spread * math.sqrt(1 + 1 / runs)
        middle = math.exp(float(np.median(logs[:, i])))
        entries.append(
            Reference(
                variable=f"{metric.name}_{points[i]:g}" if points else metric.name,
                value=float(f"{middle:.5g}"),
                lower=-_up(-math.expm1(-reach)),
                upper=_up(math.expm1(reach)),
                unit=metric.unit,
                runs=runs,
                spread=float(f"{spread:.3g}"),
            )
        )
    return entries


def _up(fraction: float) -> float:
    """Round a tolerance up to a tenth of a per cent."""
    return math.ceil(fraction * 1000 - 1e-9) / 1000
