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
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from virtqual.verdict.estimate import Floats, Ints
from virtqual.verdict.pairs import Pair, list_labels

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
        has_bound = self.kind == "fixed" or (self.kind == "rotated" and math.isfinite(self.bound))
        return self.bound if has_bound else 0.0

    @property
    def confounded(self) -> bool:
        """A difference of hosts may look like an overhead: such a session never qualifies a build."""
        return not self.are_known or (self.kind in ("fixed", "rotated") and not math.isfinite(self.bound))

    @cached_property
    def couples(self) -> set[tuple[str, str]]:
        """Names of the native host and of the virtual machine's host of each pair."""
        return {(self.hosts[i], self.hosts[j]) for i, j in zip(self.native, self.virtual, strict=True)}

    @cached_property
    def roles(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the native hosts, and of those of the virtual machines, in their order."""
        native, virtual = (tuple(sorted({couple[side] for couple in self.couples})) for side in (0, 1))
        return native, virtual

    def cancels(self, earlier: Places) -> bool:
        """Return whether hosts cancel in a change since `earlier`: they are the same in the same roles."""
        if self.kind != earlier.kind or self.kind not in ("fixed", "rotated"):
            return False
        return self.roles == earlier.roles and (self.kind == "rotated" or self.couples == earlier.couples)

    def first(self, pairs: int) -> Places:
        """Return the places of the first `pairs` pairs; the kind stays that of the whole session."""
        native, virtual, boot = (side[:pairs] for side in (self.native, self.virtual, self.boot))
        return replace(self, native=native, virtual=virtual, boot=boot)

    def cells(self) -> Ints:
        """Return numbers that are equal for pairs with one expectation, shape (n_pairs,)."""
        if self.kind == "together":
            return np.zeros_like(self.native)
        return self.native * len(self.hosts) + self.virtual

    def host_means(self) -> tuple[Floats, Floats]:
        """Return the columns of native and virtual hosts, and the weights of pairs in a mean over hosts."""
        dummies = [
            (hosts[:, None] == np.unique(hosts)[1:]).astype(np.float64)
            for hosts in (self.native, self.virtual)
        ]
        # Rounds hold every host once; in fixed roles some hosts may have more pairs than others.
        cells = np.zeros_like(self.native) if self.kind == "rotated" else self.cells()
        _, index, count = np.unique(cells, return_inverse=True, return_counts=True)
        return np.column_stack([np.ones(len(cells)), *dummies]), 1 / (len(count) * count[index])

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
    """
    boot = boot or [""] * len(native)
    hosts = tuple(sorted({*native, *virtual}))
    numbers = {host: number for number, host in enumerate(hosts)}
    n, v = (np.array([numbers[name] for name in names], dtype=np.int64) for names in (native, virtual))
    b = np.unique(np.array(boot, dtype=str), return_inverse=True)[1].astype(np.int64).reshape(-1)
    return Places(_kind(n, v), n, v, b, hosts, bound)


def places_of(pairs: Sequence[Pair], bound: float = math.inf) -> Places:
    """Return where pairs ran, as far as their samples say.

    If hosts are unknown, the names of nodes still show an exchange or a rotation; otherwise hosts are taken
    to be alike, and are not `Places.are_known`.
    """
    boots = list_labels(pairs, "boot")[1]
    for label in ("host", "place"):
        native, virtual = list_labels(pairs, label)
        if all(native) and all(virtual):
            places = _recognised(native, virtual, boots, bound)
            if label == "host" or places.kind in ("exchanged", "rotated"):
                return places
    return replace(everywhere_alike(len(boots)), boot=_recognised(boots, boots, boots).boot)


_recognised = lru_cache(maxsize=4096)(recognise)


def _kind(native: Ints, virtual: Ints) -> Kind:
    if np.array_equal(native, virtual):
        return "together"
    couples = set(zip(native.tolist(), virtual.tolist(), strict=True))
    if all((j, i) in couples for i, j in couples):
        return "exchanged"
    natives, virtuals = (set(hosts) for hosts in zip(*couples, strict=True))
    k = len(natives)
    if k < 2 or natives & virtuals or len(virtuals) != k:
        return "fixed"
    rounds = np.stack([native, virtual])[:, : len(native) - len(native) % k].reshape(2, -1, k)
    is_complete = bool(np.all(np.diff(np.sort(rounds, axis=-1), axis=-1)))
    return "rotated" if is_complete else "fixed"


def host_effects(differences: Floats, places: Places) -> Floats:
    """Return how much slower each host of an exchange is than the mean of all, shape (n_hosts, ...).

    `differences` of the pairs have the shape (n_pairs, ...).
    """
    hosts = np.arange(len(places.hosts))
    design = (places.virtual[:, None] == hosts).astype(float) - (places.native[:, None] == hosts)
    solve = np.linalg.pinv(np.column_stack([np.ones(len(design)), design]))[1:]
    return np.asarray(np.tensordot(solve, differences, axes=1))
