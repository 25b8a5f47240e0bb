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
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Literal

import numpy as np

from virtqual.verdict.estimate import Floats, Ints
from virtqual.verdict.pairs import SIDES, Pair, Series

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


def _labels(pairs: Sequence[Pair], attribute: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return an attribute of the native and of the virtual samples of pairs."""
    label = attrgetter(attribute)
    return tuple([label(pair.native) for pair in pairs]), tuple([label(pair.virtual) for pair in pairs])


def places_of(series: Series, pairs: Sequence[Pair], bound: float = math.inf) -> Places:
    """Return where pairs ran, as far as their samples say.

    If hosts are unknown, the names of nodes still show an exchange or a rotation; otherwise hosts are taken
    to be alike, and are not `Places.are_known`.
    """
    boots = _labels(pairs, "boot")[1]
    native, virtual = _labels(pairs, "host")
    if all(native) and all(virtual):
        return _recognised(native, virtual, boots, bound)
    native, virtual = _labels(pairs, "place")
    if all(native) and all(virtual):
        places = _recognised(native, virtual, boots, bound)
        if places.kind in ("exchanged", "rotated"):
            return places
    return replace(everywhere_alike(len(boots)), boot=_recognised(boots, boots, boots).boot)


_recognised = lru_cache(maxsize=4096)(recognise)


def choose_pairs(series: Series) -> tuple[Pair, ...]:
    """Return the valid pairs; of a rotation, complete turns of the same hosts.

    If a node was set aside, or a run was refused, some turns lack hosts. The choice of turns and hosts keeps
    as many pairs as possible and does not depend on any value.
    """
    turns = turns_of(series)
    names = [label for turn in turns for label in _labels(turn, "place")]
    if len(turns) == len(series.valid) or any(len(set(label)) < len(label) for label in names):
        return series.valid
    sizes = {len(turn) for turn in turns}
    choices = (_same_hosts([turn for turn in turns if len(turn) >= size]) for size in sizes)
    chosen = max(choices, key=len)
    if not 0 < len(chosen) < len(series.valid):
        return series.valid
    return chosen if recognise(*_labels(chosen, "place")).kind == "rotated" else series.valid


def turns_of(series: Series) -> list[list[Pair]]:
    """Return the valid pairs of each turn; a pair is a turn by itself if the hosts do not rotate."""
    native, virtual = host_names(series.pairs)
    width = 1 if native & virtual else max(len(native), 1)
    turns: dict[int, list[Pair]] = defaultdict(list)
    for pair in series.valid:
        turn = pair.native.turn if pair.native else None
        turns[pair.number // width if turn is None else turn].append(pair)
    return list(turns.values())


def host_names(pairs: Iterable[Pair]) -> tuple[set[str], set[str]]:
    """Return the places of the native and of the virtual samples of pairs."""
    samples = [sample for pair in pairs for sample in pair.samples]
    native, virtual = ({sample.place for sample in samples if sample.side == side} for side in SIDES)
    return native, virtual


def _same_hosts(turns: Sequence[Sequence[Pair]]) -> tuple[Pair, ...]:
    """Return the pairs of hosts that all turns have."""
    sides = zip(*map(host_names, turns), strict=True)
    common = [set.intersection(*names) for names in sides]
    count = min(map(len, common))
    native, virtual = (set(sorted(names)[:count]) for names in common)
    return tuple(pair for turn in turns for pair in split_turn(turn, native, virtual)[0])


def split_turn(turn: Sequence[Pair], native: Set[str], virtual: Set[str]) -> tuple[list[Pair], list[Pair]]:
    """Return the pairs of a turn that some hosts make, and those of its other runs.

    Runs that lost their peers are paired: the hosts of a turn are the sample of a rotation, and it does not
    matter which of them make a pair.
    """
    groups: dict[tuple[bool, bool], list[Pair]] = defaultdict(list)
    for pair, *places in zip(turn, *_labels(turn, "place"), strict=True):
        groups[places[0] in native, places[1] in virtual].append(pair)
    natives, virtuals = groups[True, False], groups[False, True]
    chosen = [Pair(a.number, a.native, b.virtual) for a, b in zip(natives, virtuals, strict=False)]
    others = [Pair(b.number, b.native, a.virtual) for a, b in zip(natives, virtuals, strict=False)]
    unpaired = natives[len(chosen) :] + virtuals[len(chosen) :]
    return groups[True, True] + chosen, groups[False, False] + others + unpaired


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
