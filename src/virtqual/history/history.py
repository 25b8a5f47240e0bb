"""The noise of a metric, estimated from stored sessions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from virtqual.history.resolution import least_noise
from virtqual.verdict.estimate import history
from virtqual.verdict.noise import Prior
from virtqual.verdict.pairs import Floats, Series

LEAST_DF = 6
LEAST_BOOTS = 3


class NoHistoryError(ValueError):
    """Too few pairs to speak of a history."""


def noise_entry(series: Sequence[Series], source: str) -> dict[str, Any]:
    """Return the entry of a noise file for one series, from its pairs in several sessions.

    Differences of a session's pairs from each other are noise, whatever the overhead was. How much of it
    there is, and how far that can be trusted, is `virtqual.verdict.estimate.history`; it is never less than
    the values' own digits make. What the means of boots vary beyond that is `between`.

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
    entry: dict[str, Any] = {"metric": usable[0].metric.name, "setting": usable[0].setting}
    floor = least_noise(usable)
    d = _by_session(usable)
    if usable[0].points:
        # The whole curve is judged beside its sizes: the rounding of many sizes averages out in it.
        whole = math.sqrt(float(np.mean(floor**2)) / len(floor))
        sigma, weight = history(np.concatenate([d, d.mean(axis=0, keepdims=True)]), np.append(floor, whole))
        entry |= _curve(usable, sigma[:-1], float(sigma[-1]))
    else:
        sigma, weight = history(d, floor)
        entry["sigma"] = rounded_up(float(sigma[0]))
    # How much nights differ is one property of a machine, and what each size says of it is a rough estimate.
    entry["df"] = float(f"{np.median(weight):.2g}")
    entry |= _of_boots(usable)
    entry["source"] = source
    return entry


def _by_session(series: Sequence[Series]) -> Floats:
    """Return differences, shape (n_points, n_sessions, n_pairs), NaN where a session has fewer pairs."""
    most = max(len(session.valid) for session in series)
    d = np.full((series[0].width, len(series), most), np.nan)
    for index, session in enumerate(series):
        d[:, index, : len(session.valid)] = session.differences.T
    return d


def _curve(series: Sequence[Series], sigma: Floats, whole: float) -> dict[str, Any]:
    """Return the noise of a curve's sizes such that its mean over the sizes has the noise `whole`."""
    residuals = np.concatenate([_residuals(session.differences) for session in series])
    correlation = _neighbours(residuals / sigma, _distant(residuals) / float(np.mean(sigma)))

    def prior(common: float, correlation: float) -> Prior:
        own = np.sqrt(np.maximum(sigma**2 - common**2, (0.1 * sigma) ** 2))
        return Prior(
            sigma=tuple(own.tolist()), df=1, source="estimated", correlation=correlation, common=common
        )

    def of_mean(common: float, correlation: float) -> float:
        return float(np.mean(prior(common, correlation).covariance(len(sigma))))

    common = 0.0
    if len(sigma) > 1:
        shared = np.linspace(0, float(np.min(sigma)), 101)
        common = float(np.interp(whole**2, [of_mean(c, correlation) for c in shared], shared))
        if of_mean(common, correlation) < whole**2:
            # A single quiet size must not make the mean of the loud ones seem quiet.
            closer = np.linspace(correlation, 0.99, 101)
            correlation = float(np.interp(whole**2, [of_mean(common, c) for c in closer], closer))
    own = prior(common, correlation).sigma
    assert isinstance(own, tuple)
    return {
        "points": list(series[0].points),
        "sigma": [rounded_up(value) for value in own],
        "correlation": round(correlation, 2),
        "common": rounded_up(common),
    }


def _residuals(d: Floats) -> Floats:
    """Return deviations from the session's mean, scaled so that their variance is that of a pair."""
    scaled: Floats = (d - d.mean(axis=0)) * math.sqrt(len(d) / (len(d) - 1))
    return scaled


def _distant(residuals: Floats) -> float:
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


def _of_boots(series: Sequence[Series]) -> dict[str, Any]:
    """Return what a new boot changes, with its degrees of freedom; nothing where too few boots were seen.

    Sessions in one boot say nothing of it. Where nobody noted the boots, a session counts as one. A boot of
    a single pair cannot be told from its noise: where each pair has its own, boots are part of `sigma`.
    """
    found: dict[str, list[float]] = {}
    for number, session in enumerate(series):
        for pair, d in zip(session.valid, session.differences.mean(axis=1), strict=True):
            boot = pair.virtual.boot if pair.virtual else ""
            found.setdefault(boot or f"session {number}", []).append(float(d))
    boots = [np.array(d) for d in found.values() if len(d) >= 2]
    if len(boots) < LEAST_BOOTS:
        return {}
    means = np.array([d.mean() for d in boots])
    spread, df = between([means], [np.array([d.var(ddof=1) / len(d) for d in boots])])
    return {"between": rounded_up(spread), "between_df": df}


def between(means: Sequence[Floats], variances: Sequence[Floats]) -> tuple[float, int]:
    """Return what boots of one build vary by, beyond their own errors, with its degrees of freedom.

    Parameters
    ----------
    means
        An array for each build: ln(virtual/native) of each of its boots, or of its sessions.
    variances
        Of these means, as the pairs show them; in the same shapes.

    Returns
    -------
    float
        Standard deviation; 0 where the means vary no more than their errors let expect, or nothing is known.
    int
        Boots less builds; 0 where no build has two.
    """
    df = sum(len(one) - 1 for one in means)
    if df < 1:
        return 0.0, 0
    seen = sum(float(((one - one.mean()) ** 2).sum()) for one in means) / df
    expected = sum((len(one) - 1) * float(own.mean()) for one, own in zip(means, variances, strict=True)) / df
    return math.sqrt(max(seen - expected, 0.0)), df


def rounded_up(value: float) -> float:
    """Round up to two significant digits: a prior must not claim less noise than was seen."""
    if value <= 0:
        return 0.0
    digit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / digit - 1e-9) * digit:.2g}")
