"""The hosts and boots of the pairs of a session, and the estimates that they allow.

A pair's difference is overhead + v_j - n_i + b + e: the speed of the host j that carries the virtual machine,
that of the native host i, the boot's draw b, and noise e. The names of hosts alone decide what is separated:

together
    Both sides ran on the same host, or the hosts are unknown: hosts cancel in each pair.
exchanged
    Each pair of hosts occurs in both roles: overhead = (mean AB + mean BA) / 2.
rotated
    k native hosts and k others ran complete rounds of k pairs: hosts are the sample (Welch), and not pairs.
fixed
    Different hosts have fixed roles: a bound on their difference is added to the error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from virtqual.verdict.estimate import Floats, Ints
from virtqual.verdict.pairs import Pair, list_labels

Kind = Literal["together", "exchanged", "rotated", "fixed"]


@dataclass(frozen=True)
class Places:
    """The hosts and boots of the pairs of a session."""

    #: See the module's text.
    kind: Kind
    #: Names of the native host, of the virtual machine's host, and of its boot, by pair; empty if unknown.
    native: tuple[str, ...]
    virtual: tuple[str, ...]
    boot: tuple[str, ...]
    #: Largest difference of hosts in fixed roles, or of two groups of hosts, in log units; infinite if
    #: unknown.
    bound: float = math.inf

    @property
    def are_known(self) -> bool:
        """The hosts are known; otherwise they are taken to be alike."""
        return all(self.native)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of all hosts, in their order."""
        return tuple(sorted({*self.native, *self.virtual}))

    @property
    def width(self) -> int:
        """Number of pairs that run at the same time, in a round of a rotation; else 1."""
        return len(set(self.native)) if self.kind == "rotated" else 1

    @property
    def bias(self) -> float:
        """The part of the error that no pair reduces; a rotation covers its hosts, not their groups."""
        has_bound = self.kind == "fixed" or (self.kind == "rotated" and math.isfinite(self.bound))
        return self.bound if has_bound else 0.0

    @property
    def confounded(self) -> bool:
        """A difference of hosts may look like an overhead: such a session never qualifies a build."""
        return not self.are_known or (self.kind in ("fixed", "rotated") and not math.isfinite(self.bound))

    @property
    def roles(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the native hosts, and of those of the virtual machines, in their order."""
        return tuple(sorted(set(self.native))), tuple(sorted(set(self.virtual)))

    def cancels(self, earlier: Places) -> bool:
        """Return whether hosts cancel in a change since `earlier`: they are the same in the same roles."""
        if self.kind != earlier.kind or self.kind not in ("fixed", "rotated"):
            return False
        couples, before = (set(zip(side.native, side.virtual, strict=True)) for side in (self, earlier))
        return self.roles == earlier.roles and (self.kind == "rotated" or couples == before)

    def first(self, pairs: int) -> Places:
        """Return the places of the first `pairs` pairs; the kind stays that of the whole session."""
        native, virtual, boot = (side[:pairs] for side in (self.native, self.virtual, self.boot))
        return replace(self, native=native, virtual=virtual, boot=boot)

    def cells(self) -> Ints:
        """Return numbers that are equal for pairs with one expectation, shape (n_pairs,)."""
        if self.kind == "together":
            return np.zeros(len(self.native), dtype=np.int64)
        return number_labels(list(zip(self.native, self.virtual, strict=True)))

    def host_means(self) -> tuple[Floats, Floats]:
        """Return the columns of native and virtual hosts, and the weights of pairs in a mean over hosts."""
        # Rounds hold every host once; in fixed roles some hosts may have more pairs than others.
        cells = np.zeros(len(self.native), dtype=np.int64) if self.kind == "rotated" else self.cells()
        count = np.bincount(cells)
        dummies = [make_dummies(side)[:, 1:] for side in (self.native, self.virtual)]
        return np.column_stack([np.ones(len(cells)), *dummies]), 1 / (len(count) * count[cells])

    def nuisance(self) -> Floats:
        """Return the columns that an exchange fits beside the overhead, one for each two hosts."""
        couples = list(zip(self.native, self.virtual, strict=True))
        if self.kind != "exchanged":
            return np.zeros((len(couples), 0))
        signs = np.array([[1.0 if native <= virtual else -1.0] for native, virtual in couples])
        return signs * make_dummies([tuple(sorted(couple)) for couple in couples])


def number_labels(labels: Sequence[Any]) -> Ints:
    """Return the number of each label among the different ones in their order, shape (n_labels,)."""
    numbers = {label: number for number, label in enumerate(sorted(set(labels)))}
    return np.array([numbers[label] for label in labels], dtype=np.int64)


def make_dummies(labels: Sequence[Any]) -> Floats:
    """Return a column for each different label, which is 1 where the label stands, and else 0."""
    return np.eye(len(set(labels)))[number_labels(labels)]


def recognise(
    native: Sequence[str],
    virtual: Sequence[str],
    boot: Sequence[str] | None = None,
    bound: float = math.inf,
) -> Places:
    """Recognise how a session used its hosts, by their names in the order of time; all empty if unknown.

    `boot` names the boot of each virtual run; None: one for the whole session.
    """
    names = tuple(native), tuple(virtual)
    return Places(_kind(*names), *names, tuple(boot or [""] * len(native)), bound)


def places_of(pairs: Sequence[Pair], bound: float = math.inf) -> Places:
    """Return where pairs ran; if hosts are unknown, the nodes still show an exchange or a rotation."""
    boots = list_labels(pairs, "boot")[1]
    for label in ("host", "place"):
        native, virtual = list_labels(pairs, label)
        if all(native) and all(virtual):
            places = recognise(native, virtual, boots, bound)
            if label == "host" or places.kind in ("exchanged", "rotated"):
                return places
    unknown = ("",) * len(boots)
    return recognise(unknown, unknown, boots)


def _kind(native: tuple[str, ...], virtual: tuple[str, ...]) -> Kind:
    if native == virtual:
        return "together"
    couples = set(zip(native, virtual, strict=True))
    if all((j, i) in couples for i, j in couples):
        return "exchanged"
    natives, virtuals = set(native), set(virtual)
    k = len(natives)
    if k < 2 or natives & virtuals or len(virtuals) != k:
        return "fixed"
    rounds = [side[i : i + k] for side in (native, virtual) for i in range(0, len(native) - k + 1, k)]
    return "rotated" if all(len(set(hosts)) == k for hosts in rounds) else "fixed"


def host_effects(differences: Floats, places: Places) -> Floats:
    """Return how much slower each host of an exchange is than the mean of all, shape (n_hosts, ...).

    `differences` of the pairs have the shape (n_pairs, ...).
    """
    roles = make_dummies(places.native + places.virtual)
    native, virtual = np.split(roles, 2)
    solve = np.linalg.pinv(np.column_stack([np.ones(len(native)), virtual - native]))[1:]
    return np.asarray(np.tensordot(solve, differences, axes=1))
