"""The hosts and boots of the pairs of a session, and the estimates that they allow.

A pair's difference is overhead + v_j - n_i + b + e: the speed of the host j that carries the virtual machine,
that of the native host i, the boot's draw b, and noise e. The labels alone decide which of these can be
separated:

together
    Both sides ran on the same host, or the hosts are unknown: hosts cancel in each pair.
exchanged
    Each pair of hosts occurs in both roles: overhead = (mean AB + mean BA) / 2, and half of the difference is
    that of the hosts.
rotated
    k native hosts and k others ran complete rounds of k pairs at the same time: hosts are the sample, so the
    error is that of their means (Welch), with degrees of freedom of hosts and not of pairs.
fixed
    Different hosts have fixed roles: no number of pairs separates a slow host from a slow guest. Only a bound
    on their difference helps; it is added to the error.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from virtqual.verdict.estimate import Bools, Estimate, Floats, Ints, Noise, VariancePart, moderated, pulled_in

Kind = Literal["together", "exchanged", "rotated", "fixed"]


@dataclass(frozen=True, eq=False)
class Places:
    """The hosts and boots of the pairs of a session.

    Parameters
    ----------
    kind
        See the module's text.
    native, virtual, boot
        Indices into `hosts` of the native host and the virtual machine's host, and the number of its boot;
        shape (n_pairs,).
    bound
        Largest difference of hosts in fixed roles, or of two groups of hosts, in log units; infinite if
        unknown.
    are_known
        False if the hosts of the pairs are unknown.
    """

    kind: Kind
    native: Ints
    virtual: Ints
    boot: Ints
    hosts: tuple[str, ...]
    bound: float = math.inf
    are_known: bool = True

    @cached_property
    def key(self) -> Hashable:
        """Equal for places that differ only in the names of hosts."""
        sides = (self.native, self.virtual, self.boot)
        return (self.kind, *(side.tobytes() for side in sides), self.bound)

    @cached_property
    def width(self) -> int:
        """Number of pairs that run at the same time, in a round of a rotation; else 1."""
        return len(np.unique(self.native)) if self.kind == "rotated" else 1

    @property
    def bias(self) -> float:
        """The part of the error that no pair reduces; a rotation covers its hosts, not their groups."""
        if self.kind == "fixed":
            return self.bound
        return self.bound if self.kind == "rotated" and math.isfinite(self.bound) else 0.0

    @property
    def confounded(self) -> bool:
        """A difference of hosts may look like an overhead: such a session never qualifies a build."""
        return not self.are_known or (self.kind in ("fixed", "rotated") and not math.isfinite(self.bound))

    @cached_property
    def roles(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the native hosts, and of those of the virtual machines."""
        native, virtual = (
            tuple(self.hosts[host] for host in np.unique(side)) for side in (self.native, self.virtual)
        )
        return native, virtual

    def cancels(self, earlier: Places) -> bool:
        """Return whether hosts cancel in a change since `earlier`: they are the same in the same roles."""
        if self.kind != earlier.kind or self.kind not in ("fixed", "rotated"):
            return False
        now, before = (
            {(at.hosts[i], at.hosts[j]) for i, j in zip(at.native, at.virtual, strict=True)}
            for at in (self, earlier)
        )
        if self.kind == "fixed":
            return now == before
        return all({pair[side] for pair in now} == {pair[side] for pair in before} for side in (0, 1))

    def first(self, pairs: int) -> Places:
        """Return the places of the first `pairs` pairs; the kind stays that of the whole session."""
        native, virtual, boot = (side[:pairs] for side in (self.native, self.virtual, self.boot))
        return replace(self, native=native, virtual=virtual, boot=boot)

    def cells(self) -> Ints:
        """Return numbers that are equal for pairs with one expectation, shape (n_pairs,)."""
        if self.kind == "together":
            return np.zeros_like(self.native)
        return self.native * len(self.hosts) + self.virtual

    def nuisance(self) -> Floats:
        """Return the columns that an exchange fits beside the overhead, one for each two hosts."""
        if self.kind != "exchanged":
            return np.zeros((len(self.native), 0))
        low, high = np.minimum(self.native, self.virtual), np.maximum(self.native, self.virtual)
        couples = low * len(self.hosts) + high
        sign = np.where(self.native == low, 1.0, -1.0)
        return np.stack([np.where(couples == couple, sign, 0.0) for couple in np.unique(couples)], axis=1)


def everywhere_alike(pairs: int) -> Places:
    """Return the places of a session with unknown hosts: one host, one boot."""
    zero = np.zeros(pairs, dtype=np.int64)
    return Places("together", zero, zero, zero, ("",), are_known=False)


def recognise(
    native: Sequence[str],
    virtual: Sequence[str],
    boot: Sequence[str] | None = None,
    bound: float = math.inf,
) -> Places:
    """Recognise how a session used its hosts, by their names in the order of time; all empty if unknown.

    `boot` names the boot of each virtual run; None or empty: one for the whole session.

    Raises
    ------
    ValueError
        If the lists differ in length.
    """
    boot = boot or [""] * len(native)
    if not len(native) == len(virtual) == len(boot):
        raise ValueError(f"{len(native)} native hosts, {len(virtual)} virtual ones, {len(boot)} boots.")
    hosts = tuple(sorted({*native, *virtual}))
    numbers = {host: number for number, host in enumerate(hosts)}
    n, v = (np.array([numbers[name] for name in names], dtype=np.int64) for names in (native, virtual))
    b = np.unique(np.array(boot, dtype=str), return_inverse=True)[1].astype(np.int64).reshape(-1)
    return Places(_kind(n, v), n, v, b, hosts, bound)


def _kind(native: Ints, virtual: Ints) -> Kind:
    if np.array_equal(native, virtual):
        return "together"
    couples = set(zip(native.tolist(), virtual.tolist(), strict=True))
    if all((j, i) in couples for i, j in couples):
        return "exchanged"
    k = len(set(native.tolist()))
    if k < 2 or set(native.tolist()) & set(virtual.tolist()) or len(set(virtual.tolist())) != k:
        return "fixed"
    rounds = [slice(start, start + k) for start in range(0, len(native) - len(native) % k, k)]
    is_complete = all(len(set(side[part].tolist())) == k for side in (native, virtual) for part in rounds)
    return "rotated" if is_complete else "fixed"


def overhead(
    native: Floats, virtual: Floats, places: Places, noise: Noise, *, convict: bool, start: int = 0
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
    """
    if places.kind == "rotated":
        return _estimate_rotation(native, virtual, places, noise)
    fitted = np.column_stack([np.ones(len(places.native)), places.nuisance()])
    fresh = fitted[start:]
    if np.linalg.matrix_rank(fresh) < fitted.shape[1]:
        return None
    weights = np.zeros(len(fitted))
    weights[start:] = np.linalg.pinv(fresh)[0]
    x = pulled_in(virtual - native, noise.sigma, places.cells(), high=convict)
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

    def estimate(native: Floats, virtual: Floats, at: Places) -> Estimate | None:
        if cancels:
            return _matched(native, virtual, at, noise, convict)
        return overhead(native, virtual, at, noise, convict=convict)

    first = estimate(*now, places)
    if earlier_places.kind == "rotated" and not cancels:
        second = estimate(*earlier, earlier_places)
    else:
        # High differences of the earlier session favour the guest of this one: its sides are exchanged.
        second = estimate(*earlier[::-1], earlier_places)
        second = None if second is None else replace(second, mean=-second.mean)
    if first is None or second is None:
        return None
    return first.minus(second, 0.0 if cancels else None)


def _matched(native: Floats, virtual: Floats, places: Places, noise: Noise, convict: bool) -> Estimate:
    """Return the mean over hosts, to be compared with the same hosts in another session."""
    dummies = [
        (hosts[:, None] == np.unique(hosts)[1:]).astype(np.float64)
        for hosts in (places.native, places.virtual)
    ]
    fitted = np.column_stack([np.ones(len(places.native)), *dummies])
    cells = places.cells()
    # Rounds hold every host once; in fixed roles some hosts may have more pairs than others.
    groups = np.ones_like(cells) if places.kind == "rotated" else cells
    weights = np.array([1 / (len(np.unique(groups)) * np.sum(groups == group)) for group in groups])
    x = pulled_in(virtual - native, noise.sigma, cells, high=convict)
    return _weighted(x, fitted, weights, places, noise)


def host_effects(native: Floats, virtual: Floats, places: Places) -> tuple[Floats, Bools]:
    """Return how much slower each host is than the mean of its kind, and which hosts have a known effect.

    The effects are log units of shape (..., n_hosts, n_columns), 0 if unknown: in an exchange from the mean
    of all hosts, in a rotation from that of the host's group.
    """
    effects = np.zeros((*native.shape[:-2], len(places.hosts), native.shape[-1]))
    is_known = np.zeros(len(places.hosts), dtype=np.bool_)
    if places.kind == "rotated":
        for side, host in ((native, places.native), (virtual, places.virtual)):
            average = side.mean(axis=-2)
            for number in np.unique(host):
                effects[..., number, :] = side[..., host == number, :].mean(axis=-2) - average
                is_known[number] = True
    elif places.kind == "exchanged":
        index = np.arange(len(places.hosts))
        design = (places.virtual[:, None] == index).astype(float) - (places.native[:, None] == index)
        solve = np.linalg.pinv(np.column_stack([np.ones(len(design)), design]))[1:]
        effects = np.einsum("hp,...pc->...hc", solve, virtual - native)
        is_known[:] = True
    return effects, is_known
