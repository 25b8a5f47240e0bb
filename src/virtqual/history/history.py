"""The noise of a metric, estimated from stored sessions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from virtqual.references.noise import sigma_of_history
from virtqual.verdict.pairs import Floats, Series

LEAST_DF = 6
LEAST_SESSIONS = 3


class NoHistoryError(ValueError):
    """Too few pairs to speak of a history."""


def noise_entry(series: Sequence[Series], source: str) -> dict[str, Any]:
    """Return the entry of a noise file for one series, from its pairs in several sessions.

    Differences of a session's pairs from their own mean are noise, whatever the overhead was. Their
    spread is pooled over the sessions; what the means of sessions vary beyond that is `between`.

    Parameters
    ----------
    series
        The same series, one for each session under one hypervisor build; sessions with fewer than two
        valid pairs are left out.
    source
        Names of the sessions, for the person who reviews the entry.

    Raises
    ------
    NoHistoryError
        If the sessions have fewer than 6 degrees of freedom together.
    """
    usable = [session for session in series if len(session.valid) >= 2]
    df = sum(len(session.valid) - 1 for session in usable)
    if df < LEAST_DF:
        raise NoHistoryError(f"{df} degrees of freedom, {LEAST_DF} are the least that is called a history")
    residuals = np.concatenate([_residuals(session.differences()) for session in usable])
    sigma = sigma_of_history(residuals.T)
    entry: dict[str, Any] = {"metric": usable[0].metric.name, "setting": usable[0].setting}
    if usable[0].points:
        common = _common(residuals)
        own = np.sqrt(np.maximum(sigma**2 - common**2, (0.1 * sigma) ** 2))
        entry["points"] = list(usable[0].points)
        entry["sigma"] = [_round(value) for value in own]
        entry["correlation"] = _neighbours(residuals / sigma, common / float(np.mean(sigma)))
        entry["common"] = _round(common)
    else:
        entry["sigma"] = _round(float(sigma[0]))
    entry["df"] = df
    between = _between(usable)
    if between is not None:
        entry["between"] = _round(between)
    entry["source"] = source
    return entry


def _residuals(d: Floats) -> Floats:
    """Return deviations from the session's mean, scaled so that their variance is that of a pair."""
    scaled: Floats = (d - d.mean(axis=0)) * math.sqrt(len(d) / (len(d) - 1))
    return scaled


def _common(residuals: Floats) -> float:
    """Return the standard deviation that a pair's whole curve shares: of the distant points' covariance."""
    width = residuals.shape[1]
    if width < 4:
        return 0.0
    covariance = residuals.T @ residuals / len(residuals)
    index = np.arange(width)
    far = np.abs(index[:, None] - index[None, :]) >= width // 2
    return math.sqrt(max(float(np.mean(covariance[far])), 0.0))


def _neighbours(standard: Floats, common: float) -> float:
    """Return the correlation of neighbouring points beyond what the whole curve shares."""
    if standard.shape[1] < 2:
        return 0.0
    together = float(np.mean(standard[:, 1:] * standard[:, :-1]))
    rest = max(float(np.mean(standard**2)) - common**2, 1e-12)
    return round(min(max((together - common**2) / rest, 0.0), 0.95), 2)


def _between(series: Sequence[Series]) -> float | None:
    if len(series) < LEAST_SESSIONS:
        return None
    means = np.array([session.differences().mean() for session in series])
    within = np.mean(
        [session.differences().mean(axis=1).var(ddof=1) / len(session.valid) for session in series]
    )
    return math.sqrt(max(float(means.var(ddof=1) - within), 0.0))


def _round(value: float) -> float:
    """Round up to two significant digits: a prior must not claim less noise than was seen."""
    if value <= 0:
        return 0.0
    digit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / digit - 1e-9) * digit:.2g}")
