"""How much the hosts of both sides differ, estimated from native runs on all of them (A/A)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from virtqual.history.history import NoHistoryError, rounded_up
from virtqual.history.resolution import noise_of_digits
from virtqual.verdict.pairs import Floats, Series

SURVEY_LEVEL = 0.01
"""How often a bound is too small, of a series with all its hosts and sizes. What is too small is so in every
session that uses the file, so it may not happen more often than a false OVER: in 1 %, not 5 %."""

LEAST_DF = 4
"""Fewer degrees of freedom say little of their own noise: a bound would be ten times the noise and more."""


@dataclass(frozen=True)
class _Values:
    """Logarithms of native values, one row a run or one a host and session.

    Parameters
    ----------
    logs
        Shape (n_rows, n_points).
    rounding
        Least standard deviation of a row, by the digits that the values show, shape (n_points,).
    host, session
        Which host and session each row is of, by number, shape (n_rows,).
    """

    logs: Floats
    rounding: Floats
    host: Floats
    session: Floats


def host_entry(series: Sequence[Series], carrying: Collection[str]) -> dict[str, Any]:
    """Return the entry of a file of hosts for one series, from its native runs in several sessions.

    Where sessions have runs on several hosts, hosts are compared within each session. Where each session was
    on one host, nights differ, too: then the mean of a session counts as one value.

    Parameters
    ----------
    series
        The same series, one for each session; native runs count whether or not they have a virtual peer.
    carrying
        Names of the hosts that carry VMs; all others are native ones. Runs on both at once do not count.

    Raises
    ------
    NoHistoryError
        If no run says where it was, a group has none, or there are too few to know their noise.
    """
    names, values = _native_values(series, carrying)
    roles = [_carries(name, carrying) for name in names]
    groups = [[i for i, role in enumerate(roles) if role is group] for group in (False, True)]
    if not all(groups):
        raise NoHistoryError(f"native runs {_where(names)}: it takes some on the hosts of either side")
    effects, spread, df, inverse = _fitted(values, len(names))

    def most(contrasts: Floats) -> float:
        """Return the upper bound of the largest of some differences, at all sizes."""
        level = SURVEY_LEVEL / len(contrasts) / effects.shape[1]
        error = np.sqrt(np.einsum("ci,ij,cj->c", contrasts, inverse, contrasts))[:, None] * spread
        bound = np.abs(contrasts @ effects) - special.stdtrit(df, level) * error
        return rounded_up(float(bound.max()))

    one = np.eye(len(names))
    every = np.array([one[j] - one[i] for i in groups[0] for j in groups[1]])
    return {
        "metric": series[0].metric.name,
        "setting": series[0].setting,
        "native": [names[i] for i in groups[0]],
        "virtual": [names[j] for j in groups[1]],
        "bound": most(every),
        "means": most(one[groups[1]].mean(axis=0, keepdims=True) - one[groups[0]].mean(axis=0)),
        "source": f"{len(values.logs)} native runs, {df} degrees of freedom",
    }


def _native_values(series: Sequence[Series], carrying: Collection[str]) -> tuple[list[str], _Values]:
    found = [
        (sample.host, number, sample.values)
        for number, one in enumerate(series)
        for sample in (pair.native for pair in one.pairs if pair.native)
        if not sample.invalid and all(math.isfinite(value) and value > 0 for value in sample.values)
        if sample.host and _carries(sample.host, carrying) is not None
    ]
    names = sorted({host for host, _, _ in found})
    width = series[0].width
    raw = np.array([values for _, _, values in found], dtype=np.float64).reshape(-1, width)
    # The noise of a pair's difference is that of two runs.
    rounding = noise_of_digits(raw) / math.sqrt(2) if found else np.zeros(width)
    host = np.array([names.index(name) for name, _, _ in found], dtype=np.float64)
    session = np.array([number for _, number, _ in found], dtype=np.float64)
    return names, _Values(np.log(raw), rounding, host, session)


def _carries(name: str, carrying: Collection[str]) -> bool | None:
    """Return whether the hosts of a run carry VMs; None where some do and others do not."""
    every = {host in carrying for host in name.split("+")}
    return every.pop() if len(every) == 1 else None


def _where(names: Sequence[str]) -> str:
    return f"on {', '.join(names)}" if names else "do not say on which hosts they were"


def _fitted(values: _Values, hosts: int) -> tuple[Floats, Floats, int, Floats]:
    """Return each host's effect, the spread of a row, its df, and the effects' covariance in units of it.

    Raises
    ------
    NoHistoryError
        If too few degrees of freedom are left.
    """
    sessions = len(np.unique(values.session))
    rows, design = values, _dummies(values, sessions_too=True)
    connected = int(np.linalg.matrix_rank(design)) == hosts + sessions - 1
    if not connected:
        rows = _means(values)
        design = _dummies(rows, sessions_too=False)
    df = len(design) - int(np.linalg.matrix_rank(design))
    if df < LEAST_DF:
        what = "native runs" if connected else "sessions on a host (none compares hosts of both sides)"
        raise NoHistoryError(f"{len(design)} {what} leave {df} degrees of freedom, {LEAST_DF} are the least")
    fit = np.linalg.pinv(design)
    residual = rows.logs - design @ (fit @ rows.logs)
    spread = np.maximum(np.sqrt(np.sum(residual**2, axis=0) / df), rows.rounding)
    return (fit @ rows.logs)[:hosts], spread, df, (fit @ fit.T)[:hosts, :hosts]


def _dummies(values: _Values, *, sessions_too: bool) -> Floats:
    columns = [values.host == one for one in np.unique(values.host)]
    if sessions_too:
        columns += [values.session == one for one in np.unique(values.session)[1:]]
    return np.stack(columns, axis=1).astype(np.float64)


def _means(values: _Values) -> _Values:
    """Return the mean of each host in each session."""
    cells = np.unique(np.stack([values.host, values.session], axis=1), axis=0)
    logs = [
        values.logs[(values.host == host) & (values.session == session)].mean(axis=0)
        for host, session in cells
    ]
    return _Values(np.array(logs), values.rounding, cells[:, 0], cells[:, 1])
