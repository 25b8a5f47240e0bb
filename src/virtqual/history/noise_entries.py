"""The noise of a metric, estimated from stored sessions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np

from virtqual.history.boots import measure_boots, moderate
from virtqual.history.pair_noise import estimate_noise, find_stalls, usual_noise
from virtqual.verdict.estimate import MIN_PAIR_SIGMA, Floats, append_mean
from virtqual.verdict.pairs import SIDES, Series

MIN_NOISE_DF = 6


class NoHistoryError(Exception):
    """There are too few runs to estimate their noise."""


def noise_entry(series: Sequence[Series], source: str, pooled: float | None = None) -> dict[str, Any]:
    """Return the entry of a noise file for one series, from its sessions under one hypervisor build.

    The noise is that of a session's pairs around their mean, so that the overhead does not matter. Pairs with
    a stalled run, and sessions with fewer than two other pairs, are left out. `source` tells the reviewer
    which sessions these are. `pooled` is how much boots differ over all metrics (`pool_metrics`); None if
    only this series says it.

    Raises
    ------
    NoHistoryError
        The sessions have fewer than 6 degrees of freedom together.
    """
    calm = leave_out_stalls(series)
    usable = [session for session in calm if len(session.valid) >= 2]
    df = sum(len(session.valid) - 1 for session in usable)
    if df < MIN_NOISE_DF:
        raise NoHistoryError(
            f"{df} degrees of freedom, {MIN_NOISE_DF} are the least that is called a history"
        )
    entry: dict[str, Any] = {"metric": usable[0].metric.name, "setting": usable[0].setting}
    sigma, weight = estimate_noise(_stack_differences(usable), _estimate_roundings(usable))
    rounded = [round_up(value) for value in sigma.tolist()]
    if points := usable[0].points:
        entry |= {"points": list(points), "sigma": rounded[: len(points)]}
        # One size is its own mean.
        entry |= {"mean": rounded[-1]} if len(points) > 1 else {}
    else:
        entry["sigma"] = rounded[0]
    # How much nights differ is one property of a machine, of which each size gives a rough estimate.
    entry["df"] = float(f"{np.median(weight):.2g}")
    if boots := measure_boots(usable):
        between = boots.sigma if pooled is None else moderate(boots, pooled)
        entry |= {"between": round_up(between), "between_df": boots.df}
    pairs = sum(len(session.valid) for session in series)
    stalled = pairs - sum(len(session.valid) for session in calm)
    entry["source"] = source + (f"; {stalled} of {pairs} pairs had stalled runs, left out" if stalled else "")
    return entry


def leave_out_stalls(series: Sequence[Series]) -> list[Series]:
    """Return sessions whose pairs with a stalled run do not count; see `find_stalls`.

    The mean of a curve over its sizes decides: a run stalls, not a size.
    """
    usable = [session for session in series if len(session.valid) >= 2]
    if not usable:
        return list(series)
    sigma = usual_noise(_stack_differences(usable)[-1], _estimate_roundings(usable)[-1])
    calm = []
    for session in series:
        native, virtual = (append_mean(side)[:, -1] for side in session.costs(session.valid))
        stalls = find_stalls(native, virtual, sigma) if len(native) else ()
        stalled = {pair.number for pair, is_stalled in zip(session.valid, stalls, strict=True) if is_stalled}
        pairs = (
            replace(pair, invalid=("a run stalled",)) if pair.number in stalled else pair
            for pair in session.pairs
        )
        calm.append(replace(session, pairs=tuple(pairs)))
    return calm


def _stack_differences(series: Sequence[Series]) -> Floats:
    """Return differences of pairs, shape (n_columns, n_sessions, n_pairs), NaN if a session has fewer."""
    d = [append_mean(session.differences).T for session in series]
    stacked = np.full((len(d[0]), len(d), max(columns.shape[-1] for columns in d)), np.nan)
    for index, columns in enumerate(d):
        stacked[:, index, : columns.shape[-1]] = columns
    return stacked


def _estimate_roundings(series: Sequence[Series]) -> Floats:
    """Return the `estimate_rounding` of each column: that of many sizes averages out in their mean."""
    rounding = estimate_rounding(np.concatenate([s.values[side] for s in series for side in SIDES]))
    if len(rounding) == 1:
        return rounding
    return np.append(rounding, math.sqrt(float(np.mean(rounding**2)) / len(rounding)))


def estimate_rounding(values: Floats) -> Floats:
    """Return the standard deviation of a pair's log difference by the digits that values show.

    Both sides are rounded by up to half a unit of the last place. `values` has the shape (n_runs, n_points),
    the result the shape (n_points,).
    """
    noise = last_place(values) / np.median(values, axis=0) / math.sqrt(6)
    return np.maximum(noise, MIN_PAIR_SIGMA)


def last_place(values: Floats) -> float:
    """Return one unit of the last decimal place that values show, 1 at most.

    The smallest difference of two values would be too large if there are few, and a single value has none.

    Examples
    --------
    >>> last_place(np.array([0.39, 0.4, 12.0])), last_place(np.array([8000.0]))
    (0.01, 1.0)
    """
    places = [Decimal(repr(float(value))).normalize().as_tuple().exponent for value in np.unique(values)]
    return float(10.0 ** min(0, *(int(place) for place in places)))


def round_up(value: float) -> float:
    """Round up to two significant digits: a prior must not claim less noise than was seen."""
    if value <= 0:
        return 0.0
    digit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / digit - 1e-9) * digit:.2g}")
