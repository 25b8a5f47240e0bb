"""Where the pairs of a session ran, and what that allows to be said.

A pair's difference is overhead + v_j - n_i + b + e: the speed of the host j that carries the virtual machine,
that of the native host i, the boot's draw b, and noise e. Which of them can be told apart follows from the
labels alone:

together
    Both sides on the same host (or nobody says where): hosts cancel in every pair.
exchanged
    Every pair of hosts occurs in both roles: overhead = (mean AB + mean BA) / 2, and half of the difference
    is what the hosts differ by.
rotated
    k native hosts and k others, in complete rounds of k pairs at the same time: hosts are the sample, so the
    error is that of their means (Welch), with degrees of freedom of hosts and not of pairs.
fixed
    Different hosts in fixed roles: no number of pairs tells a slow host from a slow guest. Only a bound on
    what the hosts differ by helps; it is added to the error.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from virtqual.verdict.estimate import Bools, Estimate, Floats, Ints, Noise, Part, moderated, pulled_in

Kind = Literal["together", "exchanged", "rotated", "fixed"]


@dataclass(frozen=True, eq=False)
class Places:
    """Where each pair of a session ran.

    Parameters
    ----------
    kind
        See the module's text.
    native, virtual, boot
        Numbers of the native host, the host of the virtual machine and its boot, shape (n_pairs,).
    hosts
        Names; `native` and `virtual` count in them.
    bound
        The most that hosts in fixed roles, or two groups of hosts, differ by, in log units; infinite if
        nobody measured it.
    told
        Whether somebody says on which hosts the pairs ran.
    """

    kind: Kind
    native: Ints
    virtual: Ints
    boot: Ints
    hosts: tuple[str, ...]
    bound: float = math.inf
    told: bool = True

    @cached_property
    def key(self) -> Hashable:
        """What places have in common that are the same but for the names of hosts."""
        sides = (self.native, self.virtual, self.boot)
        return (self.kind, *(side.tobytes() for side in sides), self.bound)

    @cached_property
    def width(self) -> int:
        """How many pairs make one: those of a round run at the same time."""
        return len(np.unique(self.native)) if self.kind == "rotated" else 1

    @property
    def bias(self) -> float:
        """What is added to the error. A rotation's own error holds the hosts, if not their groups."""
        if self.kind == "fixed":
            return self.bound
        return self.bound if self.kind == "rotated" and math.isfinite(self.bound) else 0.0

    @property
    def confounded(self) -> bool:
        """Whether what is called overhead may be one of hosts: such a session never qualifies a build."""
        return not self.told or (self.kind in ("fixed", "rotated") and not math.isfinite(self.bound))

    @property
    def roles(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the native hosts, and of those of the virtual machines."""
        native, virtual = (
            tuple(self.hosts[host] for host in np.unique(side)) for side in (self.native, self.virtual)
        )
        return native, virtual

    def cancels(self, earlier: Places) -> bool:
        """Whether hosts cancel in a change since a session at `earlier`: the same ones in the same roles."""
        if self.kind != earlier.kind or self.kind not in ("fixed", "rotated"):
            return False
        mine, before = (
            {(one.hosts[i], one.hosts[j]) for i, j in zip(one.native, one.virtual, strict=True)}
            for one in (self, earlier)
        )
        if self.kind == "fixed":
            return mine == before
        return all({pair[side] for pair in mine} == {pair[side] for pair in before} for side in (0, 1))

    def first(self, pairs: int) -> Places:
        """Return the places of the first `pairs` pairs; the kind stays that of the whole session."""
        return Places(
            self.kind,
            self.native[:pairs],
            self.virtual[:pairs],
            self.boot[:pairs],
            self.hosts,
            self.bound,
            self.told,
        )

    def cells(self) -> Ints:
        """Return which pairs have one expectation, shape (n_pairs,)."""
        if self.kind == "together":
            return np.zeros_like(self.native)
        return self.native * len(self.hosts) + self.virtual

    def nuisance(self) -> Floats:
        """Return what an exchange fits beside the overhead: a direction for each two hosts, (n_pairs, p)."""
        if self.kind != "exchanged":
            return np.zeros((len(self.native), 0))
        low, high = np.minimum(self.native, self.virtual), np.maximum(self.native, self.virtual)
        couples = low * len(self.hosts) + high
        sign = np.where(self.native == low, 1.0, -1.0)
        return np.stack([np.where(couples == couple, sign, 0.0) for couple in np.unique(couples)], axis=1)

    def boots_shared(self) -> bool:
        """Whether some pairs have a boot in common; where each has its own, boots are part of its noise."""
        return len(np.unique(self.boot)) < len(self.boot)


def everywhere_alike(pairs: int) -> Places:
    """Return the places of a session that does not say where it ran: one host, one boot."""
    zero = np.zeros(pairs, dtype=np.int64)
    return Places("together", zero, zero, zero, ("",), told=False)


def recognise(
    native: Sequence[str],
    virtual: Sequence[str],
    boot: Sequence[str] | None = None,
    bound: float = math.inf,
) -> Places:
    """Recognise from the labels of its pairs how a session used its hosts.

    Parameters
    ----------
    native, virtual
        Name of the host of each pair's native run, and of the host below its virtual machine, in the order of
        time; all empty where nobody says.
    boot
        Name of each virtual run's boot; None or empty: one for the whole session.
    bound
        See `Places`.

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
    complete = all(len(set(side[one].tolist())) == k for side in (native, virtual) for one in rounds)
    return "rotated" if complete else "fixed"


def overhead(
    native: Floats, virtual: Floats, places: Places, noise: Noise, *, convict: bool, start: int = 0
) -> Estimate | None:
    """Estimate the overhead of a session.

    Parameters
    ----------
    native, virtual
        Logarithms of what each run cost (larger is worse), shape (..., n_pairs, n_columns).
    places
        Of these pairs.
    noise
        Known before.
    convict
        Whether outliers that speak against the guest are pulled in, too.
    start
        First pair that enters the mean. All enter the spread, which says nothing of the mean.

    Returns
    -------
    Estimate or None
        None where the pairs from `start` do not hold both directions of an exchange.
    """
    if places.kind == "rotated":
        return _of_nodes(native, virtual, places, noise)
    fitted = np.column_stack([np.ones(len(places.native)), places.nuisance()])
    fresh = fitted[start:]
    if np.linalg.matrix_rank(fresh) < fitted.shape[1]:
        return None
    weights = np.zeros(len(fitted))
    weights[start:] = np.linalg.pinv(fresh)[0]
    x = pulled_in(virtual - native, noise.sigma, places.cells(), high=convict)
    return _weighted(x, fitted, weights, places, noise)


def _weighted(x: Floats, fitted: Floats, weights: Floats, places: Places, noise: Noise) -> Estimate:
    """Return the estimate that is a weighted mean of pairs, with the boots' part where boots are shared."""
    by_boot = (places.boot[:, None] == np.unique(places.boot)).astype(np.float64)
    boots = by_boot.shape[1]
    stated = float(np.max(np.asarray(noise.between))) > 0
    counted = places.boots_shared() and (stated or boots > 1)
    everything = np.column_stack([fitted, by_boot]) if counted else fitted
    # From left to right it would be a matrix of pairs by pairs.
    residual = x - everything @ (np.linalg.pinv(everything) @ x)
    rank = len(fitted) - int(np.linalg.matrix_rank(everything))
    mean = np.einsum("p,...pc->...c", weights, x)
    pairs, spread, spread_df = moderated(residual, rank, weights, noise)
    parts: tuple[Part, ...] = (pairs,)
    if counted:
        share = float(np.sum((weights @ by_boot) ** 2))
        variance, df = _boots(x, by_boot, pairs, weights, noise, stated)
        parts = (pairs, Part("boots", share * variance, df))
    return Estimate(mean, parts, places.bias, spread, spread_df)


def _boots(
    x: Floats, by_boot: Floats, pairs: Part, weights: Floats, noise: Noise, stated: bool
) -> tuple[Floats, float]:
    """Return the variance of boots and its degrees of freedom: what is stated and seen, by their df."""
    boots = by_boot.shape[1]
    known = np.asarray(noise.between, dtype=np.float64) ** 2 + np.zeros_like(x[..., 0, :])
    if stated and math.isinf(noise.between_df):
        return known, math.inf
    df0 = noise.between_df if stated else 0.0
    if boots == 1:
        return known, df0
    size = by_boot.sum(axis=0)
    means = np.einsum("pb,...pc->...bc", by_boot / size, x)
    pair = pairs.variance / float(weights @ weights)
    seen = np.maximum(means.var(axis=-2, ddof=1) - pair * float(np.mean(1 / size)), 0)
    return (df0 * known + (boots - 1) * seen) / (df0 + boots - 1), df0 + boots - 1


def _of_nodes(native: Floats, virtual: Floats, places: Places, noise: Noise) -> Estimate:
    """Return the estimate of a rotation: the means of hosts are the sample.

    Each round holds every host once, so what all of a round shares falls out of the difference; what one side
    of it shares does not, and is a part of its own. Hosts never look more alike than the known noise lets
    them: a coarse timer shows the same number on all.
    """
    parts, means, df = [], [], 0.0
    least = np.asarray(noise.sigma, dtype=np.float64) ** 2 / (2 * native.shape[-2])
    for name, side, host in (
        ("native nodes", native, places.native),
        ("virtual nodes", virtual, places.virtual),
    ):
        by_host = np.stack([side[..., host == one, :].mean(axis=-2) for one in np.unique(host)], axis=-2)
        k = by_host.shape[-2]
        means.append(by_host.mean(axis=-2))
        parts.append(Part(name, np.maximum(by_host.var(axis=-2, ddof=1) / k, least), k - 1.0))
        df += k - 1.0
    d = virtual - native
    rounds = d.shape[-2] // places.width
    if rounds > 1:
        by_round = d.reshape(*d.shape[:-2], rounds, places.width, d.shape[-1]).mean(axis=-2)
        parts.append(Part("rounds", by_round.var(axis=-2, ddof=1) / rounds, rounds - 1.0))
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
    """Estimate by how much the overhead has changed since an earlier session.

    Where both sessions had the same hosts in the same roles, hosts cancel, whatever they differ by; where
    they had others, each session's own estimate must be free of them.

    Parameters
    ----------
    now, earlier
        Native and virtual logarithms of either session, each of shape (..., n_pairs, n_columns).
    places, earlier_places
        Where their pairs ran.
    noise, convict
        See `overhead`.
    """
    same = places.cancels(earlier_places)

    def estimate(native: Floats, virtual: Floats, where: Places) -> Estimate | None:
        if same:
            return _matched(native, virtual, where, noise, convict)
        return overhead(native, virtual, where, noise, convict=convict)

    first = estimate(*now, places)
    if earlier_places.kind == "rotated" and not same:
        second = estimate(*earlier, earlier_places)
    else:
        # Of an earlier session it is the high differences that speak for the guest now: sides are exchanged.
        second = estimate(*earlier[::-1], earlier_places)
        second = None if second is None else replace(second, mean=-second.mean)
    if first is None or second is None:
        return None
    return first.minus(second, 0.0 if same else None)


def _matched(native: Floats, virtual: Floats, places: Places, noise: Noise, convict: bool) -> Estimate:
    """Return the mean over hosts of what is to be held against the same hosts' in another session."""
    dummies = [
        (hosts[:, None] == np.unique(hosts)[1:]).astype(np.float64)
        for hosts in (places.native, places.virtual)
    ]
    fitted = np.column_stack([np.ones(len(places.native)), *dummies])
    cells = places.cells()
    # Rounds hold every host once; of hosts in fixed roles some may have more pairs than others.
    each = np.ones_like(cells) if places.kind == "rotated" else cells
    weights = np.array([1 / (len(np.unique(each)) * np.sum(each == cell)) for cell in each])
    x = pulled_in(virtual - native, noise.sigma, cells, high=convict)
    return _weighted(x, fitted, weights, places, noise)


def host_effects(native: Floats, virtual: Floats, places: Places) -> tuple[Floats, Bools]:
    """Return how much slower each host is than the mean of its kind, whatever runs on it.

    Parameters
    ----------
    native, virtual, places
        See `overhead`.

    Returns
    -------
    effects
        Log units by host, shape (..., n_hosts, n_columns): in an exchange from the mean of all hosts; in a
        rotation from that of its group. 0 where the data cannot tell.
    told
        Which hosts the data tell of, shape (n_hosts,).
    """
    effects = np.zeros((*native.shape[:-2], len(places.hosts), native.shape[-1]))
    told = np.zeros(len(places.hosts), dtype=np.bool_)
    if places.kind == "rotated":
        for side, host in ((native, places.native), (virtual, places.virtual)):
            average = side.mean(axis=-2)
            for one in np.unique(host):
                effects[..., one, :] = side[..., host == one, :].mean(axis=-2) - average
                told[one] = True
    elif places.kind == "exchanged":
        index = np.arange(len(places.hosts))
        design = (places.virtual[:, None] == index).astype(float) - (places.native[:, None] == index)
        solve = np.linalg.pinv(np.column_stack([np.ones(len(design)), design]))[1:]
        effects = np.einsum("hp,...pc->...hc", solve, virtual - native)
        told[:] = True
    return effects, told
