"""How much the hosts of both sides differ, estimated from native runs on all of them (A/A)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

import numpy as np
from scipy import special

from virtqual.history.noise_entries import NoHistoryError, estimate_rounding, round_up
from virtqual.verdict.estimate import Floats
from virtqual.verdict.pairs import Series

SURVEY_ALPHA = 0.01
"""How often a bound is too small, over all hosts and sizes of a series. Every session that uses the file
would then be wrong, so this is the rate of a false OVER."""

MIN_SURVEY_DF = 4
"""With fewer degrees of freedom a bound would be ten times the noise and more."""

#: A native run: its host, the number of its session, and its values.
HostRun: TypeAlias = tuple[str, int, Sequence[float]]


def host_entry(series: Sequence[Series], carrying: Collection[str]) -> dict[str, Any]:
    """Return the entry of a file of hosts for one series, from its native runs in several sessions.

    Hosts are compared within each session if sessions have runs on several hosts. If each session was on one
    host, nights differ, too: then the mean of a session counts as one value. `carrying` names the hosts that
    carry VMs; all others are native. Runs on both kinds at once do not count.

    Raises
    ------
    NoHistoryError
        No run names its host, a kind of host has no run, or there are too few runs to know their noise.
    """
    runs = _list_runs(series, carrying)
    names = sorted({host for host, _, _ in runs})
    native, virtual = (
        [index for index, name in enumerate(names) if _carries_vms(name, carrying) is role]
        for role in (False, True)
    )
    if not native or not virtual:
        place = f"on {', '.join(names)}" if names else "do not say on which hosts they were"
        raise NoHistoryError(f"native runs {place}: it takes some on the hosts of either side")
    effects, spread, df, inverse = _fit(runs, names)

    def bound(contrasts: Floats) -> float:
        """Return the upper bound of the largest of some differences, at all sizes."""
        quantile = -special.stdtrit(df, SURVEY_ALPHA / len(contrasts) / effects.shape[1])
        error = np.sqrt(np.einsum("ci,ij,cj->c", contrasts, inverse, contrasts))[:, None] * spread
        return round_up(float((np.abs(contrasts @ effects) + quantile * error).max()))

    unit = np.eye(len(names))
    return {
        "metric": series[0].metric.name,
        "setting": series[0].setting,
        "native": [names[i] for i in native],
        "virtual": [names[j] for j in virtual],
        "bound": bound(np.array([unit[j] - unit[i] for i in native for j in virtual])),
        "means": bound(unit[virtual].mean(axis=0, keepdims=True) - unit[native].mean(axis=0)),
        "source": f"{len(runs)} native runs, {df} degrees of freedom",
    }


def _list_runs(series: Sequence[Series], carrying: Collection[str]) -> list[HostRun]:
    """Return all runs that count."""
    return [
        (sample.host, number, sample.values)
        for number, session in enumerate(series)
        for sample in (pair.native for pair in session.pairs if pair.native)
        if not sample.refused and sample.host and _carries_vms(sample.host, carrying) is not None
    ]


def _carries_vms(name: str, carrying: Collection[str]) -> bool | None:
    """Return whether the hosts of a run carry VMs; None if some do and others do not."""
    roles = {host in carrying for host in name.split("+")}
    return roles.pop() if len(roles) == 1 else None


def _fit(runs: Sequence[HostRun], hosts: Sequence[str]) -> tuple[Floats, Floats, int, Floats]:
    """Return each host's effect, the spread of a run, its df, and the effects' covariance in units of it.

    Raises
    ------
    NoHistoryError
        Too few degrees of freedom are left.
    """
    host = np.array([hosts.index(name) for name, _, _ in runs])
    session = np.array([number for _, number, _ in runs])
    values = np.array([values for _, _, values in runs], dtype=np.float64)
    by_host = host[:, None] == np.arange(len(hosts))
    by_session = session[:, None] == np.unique(session)[1:]
    design = np.concatenate([by_host, by_session], axis=1).astype(np.float64)
    logs: Floats = np.log(values)
    rows = "native runs"
    if int(np.linalg.matrix_rank(design)) < design.shape[1]:
        cells = np.unique(np.stack([host, session], axis=1), axis=0)
        logs = np.array([logs[(host == i) & (session == k)].mean(axis=0) for i, k in cells])
        design = (cells[:, :1] == np.arange(len(hosts))).astype(np.float64)
        rows = "sessions on a host (none compares hosts of both sides)"
    df = len(design) - int(np.linalg.matrix_rank(design))
    if df < MIN_SURVEY_DF:
        raise NoHistoryError(
            f"{len(design)} {rows} leave {df} degrees of freedom, {MIN_SURVEY_DF} are the least"
        )
    inverse = np.linalg.pinv(design)
    residuals = logs - design @ (inverse @ logs)
    # The noise of a pair's difference is that of two runs.
    rounding = estimate_rounding(values) / math.sqrt(2)
    spread = np.maximum(np.sqrt(np.sum(residuals**2, axis=0) / df), rounding)
    count = len(hosts)
    return (inverse @ logs)[:count], spread, df, (inverse @ inverse.T)[:count, :count]
