"""Absolute references of a machine's own speed, with tolerances, from stored sessions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from virtqual.history.noise_entries import NoHistoryError, estimate_rounding
from virtqual.verdict.pairs import SIDES, Series

#: How often a sound machine may miss one of its references, per run of a check.
FALSE_ALARMS = 0.001
MIN_REFERENCE_RUNS = 4


@dataclass(frozen=True)
class Reference:
    """One reference in ReFrame's terms."""

    #: Name of the performance variable.
    variable: str
    value: float
    #: Tolerances as fractions, lower negative.
    lower: float
    upper: float
    unit: str
    runs: int
    #: Standard deviation of ln(value) over the runs.
    spread: float


def reference_entries(series: Sequence[Series], false_alarms: float = FALSE_ALARMS) -> list[Reference]:
    """Return a reference for each size of one series, from its native runs in several sessions.

    The tolerance is the prediction interval of one more run: a sound machine misses it on either side
    in `false_alarms` of all runs at most (of a curve: of all its sizes together).

    Raises
    ------
    NoHistoryError
        There are fewer than 4 native runs.
    """
    values = np.concatenate([session.values["native"] for session in series])
    runs, width = values.shape
    if runs < MIN_REFERENCE_RUNS:
        raise NoHistoryError(f"{runs} native runs, {MIN_REFERENCE_RUNS} are the least for a reference")
    logs = np.log(values)
    quantile = -float(special.stdtrit(runs - 1, false_alarms / 2 / width))
    # Runs that show the same digits may differ by less than these show; a pair's noise is that of two runs.
    all_values = np.concatenate([session.values[side] for session in series for side in SIDES])
    spreads = np.maximum(logs.std(axis=0, ddof=1), estimate_rounding(all_values) / math.sqrt(2))
    metric, points = series[0].metric, series[0].points
    entries = []
    for index, (middle, spread) in enumerate(zip(np.median(logs, axis=0), spreads.tolist(), strict=True)):
        reach = quantile * spread * math.sqrt(1 + 1 / runs)
        entries.append(
            Reference(
                variable=f"{metric.name}_{points[index]:g}" if points else metric.name,
                value=float(f"{math.exp(float(middle)):.5g}"),
                lower=-_round_up(-math.expm1(-reach)),
                upper=_round_up(math.expm1(reach)),
                unit=metric.unit,
                runs=runs,
                spread=float(f"{spread:.3g}"),
            )
        )
    return entries


def _round_up(fraction: float) -> float:
    """Round a tolerance up to a tenth of a per cent."""
    return math.ceil(fraction * 1000 - 1e-9) / 1000
