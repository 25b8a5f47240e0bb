"""The overhead of a session, and its change since an earlier one, by how the session used its hosts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from virtqual.verdict.estimate import (
    MAX_HISTORY_DF,
    Estimate,
    Floats,
    Noise,
    add_variances,
    moderate,
    pulled_in,
)
from virtqual.verdict.places import Places, make_dummies


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of series, in pairs."""

    #: Logarithms of the cost of each native and each virtual run (larger is worse), shape (..., 2, n_pairs,
    #: n_columns).
    logs: Floats
    #: The hosts and boots of the pairs.
    places: Places

    @property
    def differences(self) -> Floats:
        """Virtual less native, shape (..., n_pairs, n_columns)."""
        return self.logs[..., 1, :, :] - self.logs[..., 0, :, :]

    def first(self, pairs: int) -> Runs:
        """Return the first pairs."""
        return Runs(self.logs[..., :pairs, :], self.places.first(pairs))


def estimate_overhead(
    runs: Runs, noise: Noise, *, convict: bool, start: int = 0, matched: bool = False
) -> Estimate | None:
    """Return the overhead of a session; None if the pairs lack a direction of an exchange.

    Parameters
    ----------
    convict
        Pull in outliers that speak against the guest as well.
    start
        First pair that enters the mean. All pairs enter the spread.
    matched
        Return the mean over hosts, to be compared with the same hosts in another session.
    """
    places = runs.places
    if matched:
        fitted, weights = places.host_means()
    elif places.kind == "rotated":
        return _estimate_rotation(runs, noise)
    else:
        fitted = np.column_stack([np.ones(len(places.native)), places.nuisance()])
        fresh = fitted[start:]
        if np.linalg.matrix_rank(fresh) < fitted.shape[1]:
            return None
        weights = np.append(np.zeros(start), np.linalg.pinv(fresh)[0])
    x = pulled_in(runs.differences, noise.sigma, places.cells(), high=convict)
    by_boot = make_dummies(places.boot)
    # If no pairs share a boot, boots are part of the noise of pairs.
    has_boots = by_boot.shape[1] < len(by_boot) and (by_boot.shape[1] > 1 or np.any(noise.between))
    design = np.column_stack([fitted, by_boot]) if has_boots else fitted
    # The brackets avoid a matrix of pairs by pairs.
    residual = x - design @ (np.linalg.pinv(design) @ x)
    rank = len(fitted) - int(np.linalg.matrix_rank(design))
    variance, df = moderate(np.sum(residual**2, axis=-2), rank, noise, convict=convict)
    parts: list[tuple[Floats, ArrayLike]] = [(variance * float(weights @ weights), df)]
    if has_boots:
        boots, boots_df = _boots_variance(x, by_boot, variance, noise)
        parts.append((boots * float(np.sum((weights @ by_boot) ** 2)), boots_df))
    mean = np.einsum("p,...pc->...c", weights, x)
    return Estimate(mean, *add_variances(parts), weights, 0.0 if matched else places.bias)


def _boots_variance(x: Floats, by_boot: Floats, pair: Floats, noise: Noise) -> tuple[Floats, float]:
    """Return the variance between boots and its df: of the known and of this session's, weighted by df.

    `by_boot` is 1 where a pair is of a boot, shape (n_pairs, n_boots); `pair` is the variance of a pair.
    """
    known_variance = noise.between**2 + np.zeros_like(pair)
    known_df = noise.between_df if np.any(known_variance) else 0.0
    observed_df = by_boot.shape[1] - 1
    if observed_df == 0 or math.isinf(known_df):
        return known_variance, known_df
    size = by_boot.sum(axis=0)
    means = np.einsum("pb,...pc->...bc", by_boot / size, x)
    observed = np.maximum(means.var(axis=-2, ddof=1) - pair * float(np.mean(1 / size)), 0)
    df = known_df + observed_df
    return (known_df * known_variance + observed_df * observed) / df, df


def _estimate_rotation(runs: Runs, noise: Noise) -> Estimate:
    """Return the estimate of a rotation: the means of hosts are the sample.

    A disturbance of one side of a round has a part of its own. The known noise is the least variance of
    hosts, because a coarse timer shows the same number on all.
    """
    places, d = runs.places, runs.differences
    pairs, columns = d.shape[-2:]
    parts: list[tuple[Floats, ArrayLike]] = []
    means = []
    min_variance = noise.sigma**2 / (2 * pairs)
    for side, labels in enumerate((places.native, places.virtual)):
        is_on_host = make_dummies(labels).T > 0
        hosts = [runs.logs[..., side, chosen, :].mean(axis=-2) for chosen in is_on_host]
        by_host, count = np.stack(hosts, axis=-2), len(hosts)
        means.append(by_host.mean(axis=-2))
        parts.append((np.maximum(by_host.var(axis=-2, ddof=1) / count, min_variance), count - 1.0))
    rounds = pairs // places.width
    if rounds > 1:
        by_round = d.reshape(*d.shape[:-2], rounds, places.width, columns).mean(axis=-2)
        parts.append((by_round.var(axis=-2, ddof=1) / rounds, rounds - 1.0))
    # Whole rounds: each host of a side has as many pairs as the others.
    return Estimate(means[1] - means[0], *add_variances(parts), np.full(pairs, 1 / pairs), places.bias)


def estimate_change(runs: Runs, earlier: Runs, noise: Noise, *, convict: bool) -> Estimate | None:
    """Return the change of the overhead since an earlier session.

    If both sessions had the same hosts in the same roles, hosts cancel; otherwise each session's own estimate
    must be free of them.
    """
    matched = runs.places.cancels(earlier.places)
    # Both sessions use what is known of the noise: half of its weight for each counts it once.
    half = replace(noise, df=np.minimum(noise.df, MAX_HISTORY_DF) / 2, between_df=noise.between_df / 2)
    # High differences of the earlier session favour the guest of this one: its sides are exchanged.
    places = replace(earlier.places, native=earlier.places.virtual, virtual=earlier.places.native)
    swapped = Runs(earlier.logs[..., ::-1, :, :], places)
    now, before = (
        estimate_overhead(session, half, convict=convict, matched=matched) for session in (runs, swapped)
    )
    if now is None or before is None:
        return None
    parts = ((now.variance, now.df), (before.variance, before.df))
    return Estimate(now.mean + before.mean, *add_variances(parts), now.weights, now.bias + before.bias)
