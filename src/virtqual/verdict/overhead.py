"""The overhead of a session, and its change since an earlier one, by how the session used its hosts."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from virtqual.verdict.estimate import Estimate, Floats, Noise, VariancePart, moderated, pulled_in
from virtqual.verdict.places import Places


def overhead(
    native: Floats,
    virtual: Floats,
    places: Places,
    noise: Noise,
    *,
    convict: bool,
    start: int = 0,
    by_host: bool = False,
) -> Estimate | None:
    """Return the overhead of a session; None if the pairs lack a direction of an exchange.

    Parameters
    ----------
    native, virtual
        Logarithms of the cost of each run (larger is worse), shape (..., n_pairs, n_columns).
    convict
        Pull in outliers that speak against the guest as well.
    start
        First pair that enters the mean. All pairs enter the spread.
    by_host
        Return the mean over hosts, to be compared with the same hosts in another session.
    """
    if places.kind == "rotated" and not by_host:
        return _estimate_rotation(native, virtual, places, noise)
    cells, count = places.cells(), len(places.native)
    if by_host:
        sides = (places.native, places.virtual)
        fitted = np.column_stack([np.ones(count), *(side[:, None] == np.unique(side)[1:] for side in sides)])
        # Rounds hold every host once; in fixed roles some hosts may have more pairs than others.
        _, group, sizes = np.unique(cells, return_inverse=True, return_counts=True)
        weights = np.full(count, 1 / count) if places.kind == "rotated" else 1 / (len(sizes) * sizes[group])
    else:
        fitted = np.column_stack([np.ones(count), places.nuisance()])
        if np.linalg.matrix_rank(fitted[start:]) < fitted.shape[1]:
            return None
        weights = np.append(np.zeros(start), np.linalg.pinv(fitted[start:])[0])
    x = pulled_in(virtual - native, noise.sigma, cells, high=convict)
    return _weighted(x, fitted, weights, places, noise)


def _weighted(x: Floats, fitted: Floats, weights: Floats, places: Places, noise: Noise) -> Estimate:
    """Return the estimate that is a weighted mean of pairs, with the part of boots if these are shared."""
    by_boot = (places.boot[:, None] == np.unique(places.boot)).astype(np.float64)
    boots = by_boot.shape[1]
    stated = float(np.max(np.asarray(noise.between))) > 0
    # If no pairs share a boot, boots are part of the noise of pairs.
    has_boots = boots < len(places.boot) and (stated or boots > 1)
    design = np.column_stack([fitted, by_boot]) if has_boots else fitted
    # The brackets avoid a matrix of pairs by pairs.
    residual = x - design @ (np.linalg.pinv(design) @ x)
    rank = len(fitted) - int(np.linalg.matrix_rank(design))
    mean = np.einsum("p,...pc->...c", weights, x)
    pairs, spread, spread_df = moderated(residual, rank, weights, noise)
    parts: tuple[VariancePart, ...] = (pairs,)
    if has_boots:
        share = float(np.sum((weights @ by_boot) ** 2))
        variance, df = _boots(x, by_boot, pairs, weights, noise, stated)
        parts = (pairs, VariancePart("boots", share * variance, df))
    return Estimate(mean, parts, places.bias, spread, spread_df)


def _boots(
    x: Floats, by_boot: Floats, pairs: VariancePart, weights: Floats, noise: Noise, stated: bool
) -> tuple[Floats, float]:
    """Return the variance of boots and its df: the mean of stated and observed variance, weighted by df."""
    boots = by_boot.shape[1]
    stated_variance = np.asarray(noise.between, dtype=np.float64) ** 2 + np.zeros_like(x[..., 0, :])
    if stated and math.isinf(noise.between_df):
        return stated_variance, math.inf
    df0 = noise.between_df if stated else 0.0
    if boots == 1:
        return stated_variance, df0
    size = by_boot.sum(axis=0)
    means = np.einsum("pb,...pc->...bc", by_boot / size, x)
    pair = pairs.variance / float(weights @ weights)
    observed = np.maximum(means.var(axis=-2, ddof=1) - pair * float(np.mean(1 / size)), 0)
    df = df0 + boots - 1
    return (df0 * stated_variance + (boots - 1) * observed) / df, df


def _estimate_rotation(native: Floats, virtual: Floats, places: Places, noise: Noise) -> Estimate:
    """Return the estimate of a rotation: the means of hosts are the sample.

    Each round holds every host once, so that a disturbance of a whole round cancels. A disturbance of one
    side of a round has a part of its own. The known noise is a lower bound on the variance of hosts, because
    a coarse timer shows the same number on all.
    """
    parts, means, df = [], [], 0.0
    min_variance = np.asarray(noise.sigma, dtype=np.float64) ** 2 / (2 * native.shape[-2])
    for name, side, host in (
        ("native nodes", native, places.native),
        ("virtual nodes", virtual, places.virtual),
    ):
        hosts = [side[..., host == number, :].mean(axis=-2) for number in np.unique(host)]
        by_host, k = np.stack(hosts, axis=-2), len(hosts)
        means.append(by_host.mean(axis=-2))
        parts.append(VariancePart(name, np.maximum(by_host.var(axis=-2, ddof=1) / k, min_variance), k - 1.0))
        df += k - 1.0
    d = virtual - native
    rounds = d.shape[-2] // places.width
    if rounds > 1:
        by_round = d.reshape(*d.shape[:-2], rounds, places.width, d.shape[-1]).mean(axis=-2)
        parts.append(VariancePart("rounds", by_round.var(axis=-2, ddof=1) / rounds, rounds - 1.0))
    spread = d.std(axis=-2, ddof=1)
    return Estimate(means[1] - means[0], tuple(parts), places.bias, spread, df)


def change(
    now: tuple[Floats, Floats],
    places: Places,
    earlier: tuple[Floats, Floats],
    earlier_places: Places,
    noise: Noise,
    *,
    convict: bool,
) -> Estimate | None:
    """Return the change of the overhead since an earlier session; parameters as of `overhead`.

    If both sessions had the same hosts in the same roles, hosts cancel; otherwise each session's own estimate
    must be free of them.
    """
    cancels = places.cancels(earlier_places)
    first = overhead(*now, places, noise, convict=convict, by_host=cancels)
    # High differences of the earlier session favour the guest of this one: its sides are exchanged.
    exchanged = replace(earlier_places, native=earlier_places.virtual, virtual=earlier_places.native)
    second = overhead(*earlier[::-1], exchanged, noise, convict=convict, by_host=cancels)
    if first is None or second is None:
        return None
    return first.minus(replace(second, mean=-second.mean), 0.0 if cancels else None)
