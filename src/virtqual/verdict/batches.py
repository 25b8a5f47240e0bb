"""Cases as the arrays that the rule judges: series of one shape stand in one batch."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from operator import attrgetter

import numpy as np

from virtqual.references.noise import Prior
from virtqual.verdict.estimate import Floats, Noise
from virtqual.verdict.outcome import Case
from virtqual.verdict.pairs import Pair, Series
from virtqual.verdict.places import Places, everywhere_alike, recognise
from virtqual.verdict.rule import SHARED_BOOT, Batch, Judgement, only


@dataclass(frozen=True, eq=False)
class Question:
    """One series as the rule takes it: its overhead, or the change of that.

    Parameters
    ----------
    case
        The series with its budget and noise; at least one of its pairs is valid.
    limit, margin, most_margin
        In log units, shape (n_points,).
    change
        Whether the change since ``case.baseline`` is asked about.
    """

    case: Case
    limit: Floats
    margin: Floats
    most_margin: Floats
    change: bool = False

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs that count."""
        return counted(self.case.series)

    @cached_property
    def places(self) -> Places:
        """Where they ran."""
        return places_of(self.case.series, self.pairs, self.case.bound)

    @cached_property
    def costs(self) -> tuple[Floats, Floats]:
        """Logarithms of native and virtual values, larger is worse, each of shape (n_pairs, n_points)."""
        return costs(self.case.series, self.pairs)

    @cached_property
    def earlier(self) -> tuple[Floats, Floats, Places] | None:
        """The same of the earlier session, and where its pairs ran; None where no change is asked about."""
        series = self.case.baseline
        if series is None or not self.change:
            return None
        pairs = counted(series)
        return *costs(series, pairs), places_of(series, pairs, self.case.earlier_bound)

    @cached_property
    def sigma(self) -> Floats:
        """Known standard deviation of a pair, one for each size and one for their mean."""
        return known_sigma(self.case.prior, self.case.series.width)

    @property
    def key(self) -> Hashable:
        """Questions that have it in common can stand in one batch."""
        earlier = None
        if self.earlier is not None:
            # Hosts cancel where they have the same names.
            earlier = (len(self.earlier[0]), self.earlier[2].key, self.earlier[2].hosts, self.places.hosts)
        prior = self.case.prior
        # Whether boots are stated to vary, and by much, is one answer for a batch; see `rule.SHARED_BOOT`.
        boots = (prior.between > 0, prior.between > SHARED_BOOT * self.sigma[-1], prior.between_df)
        return (self.costs[0].shape, self.places.key, earlier, boots)


@lru_cache(maxsize=4096)
def known_sigma(prior: Prior, width: int) -> Floats:
    """Return the known standard deviation of a pair, one for each size and one for their mean."""
    covariance = prior.covariance(width)
    sigma = np.sqrt(np.diagonal(covariance))
    return sigma if width == 1 else np.append(sigma, math.sqrt(float(covariance.mean())))


def costs(series: Series, pairs: Sequence[Pair]) -> tuple[Floats, Floats]:
    """Return the logarithms of native and virtual values, larger is worse; see `Batch`."""
    sign = 1.0 if series.metric.better == "lower" else -1.0
    if pairs is series.valid:
        native, virtual = series.values("native"), series.values("virtual")
    else:
        native, virtual = (
            np.array([getattr(pair, side).values for pair in pairs]) for side in ("native", "virtual")
        )
    return sign * np.log(native), sign * np.log(virtual)


def _labels(pairs: Sequence[Pair], what: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    of = attrgetter(what)
    return tuple([of(pair.native) for pair in pairs]), tuple([of(pair.virtual) for pair in pairs])


def places_of(series: Series, pairs: Sequence[Pair], bound: float = math.inf) -> Places:
    """Return where pairs ran, as far as their samples say.

    A host that nobody names may be any. The nodes' own names tell roles that were exchanged or rotated all
    the same; if they do not, hosts are taken to be alike, and are not `Places.told`.
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
    return _untold(boots)


@lru_cache(maxsize=4096)
def _untold(boots: tuple[str, ...]) -> Places:
    return replace(everywhere_alike(len(boots)), boot=recognise(boots, boots, boots).boot)


_recognised = lru_cache(maxsize=4096)(recognise)


def counted(series: Series) -> tuple[Pair, ...]:
    """Return the valid pairs; of a rotation, whole turns of the same hosts.

    Where a node was set aside, or a run was refused, some turns lack hosts. Those turns and hosts count of
    which most runs do; no value has a part in that choice.
    """
    valid = series.valid
    if len(valid) < 4:
        return valid
    turns: dict[int, list[Pair]] = defaultdict(list)
    native, virtual = _labels(valid, "place")
    width = len(set(native)) if not set(native) & set(virtual) else 1
    for pair in valid:
        turn = pair.native.turn if pair.native else None
        turns[pair.number // width if turn is None else turn].append(pair)
    places = [_labels(turn, "place") for turn in turns.values()]
    if len(turns) == len(valid) or any(len(set(names)) < len(names) for turn in places for names in turn):
        return valid
    sizes = {len(turn) for turn in turns.values()}
    most = max((_same_hosts([t for t in turns.values() if len(t) >= size]) for size in sizes), key=len)
    left_out = 0 < len(most) < len(valid)
    return most if left_out and recognise(*_labels(most, "place")).kind == "rotated" else valid


def _same_hosts(turns: Sequence[Sequence[Pair]]) -> tuple[Pair, ...]:
    """Return the pairs of hosts that all turns have; runs of a turn whose peers are none of them are paired.

    The hosts of a turn are the sample of a rotation: which of them make a pair says nothing.
    """
    sides = zip(*(_labels(turn, "place") for turn in turns), strict=True)
    everywhere = [set.intersection(*map(set, labels)) for labels in sides]
    kept = [set(sorted(names)[: min(map(len, everywhere))]) for names in everywhere]
    found = []
    for turn in turns:
        native, virtual = (
            [*map(names.__contains__, labels)]
            for names, labels in zip(kept, _labels(turn, "place"), strict=True)
        )
        found += [pair for pair, *both in zip(turn, native, virtual, strict=True) if all(both)]
        alone = [pair for pair, one, other in zip(turn, native, virtual, strict=True) if one and not other]
        peers = [pair for pair, one, other in zip(turn, native, virtual, strict=True) if other and not one]
        found += [Pair(a.number, a.native, b.virtual) for a, b in zip(alone, peers, strict=True)]
    return tuple(found)


def batch_of(sessions: Sequence[Sequence[Question]]) -> Batch:
    """Return questions of one key as a batch: a row for each session, with as many questions each."""
    first = sessions[0][0]

    def stack(what: str) -> Floats:
        return np.array([[getattr(question, what) for question in row] for row in sessions])

    def refused(side: str) -> Floats:
        return np.array([[q.case.series.refused(side) for q in row] for row in sessions])  # type: ignore[arg-type]

    both = np.array([[question.costs for question in row] for row in sessions])
    earlier = None
    if first.earlier is not None:
        before = np.array([[question.earlier[:2] for question in row] for row in sessions])  # type: ignore[index]
        earlier = (before[:, :, 0], before[:, :, 1])
    df, between = (
        np.array([[[getattr(question.case.prior, what)] for question in row] for row in sessions])
        for what in ("df", "between")
    )
    return Batch(
        native=both[:, :, 0],
        virtual=both[:, :, 1],
        limit=stack("limit"),
        margin=stack("margin"),
        noise=Noise(stack("sigma"), df, between, first.case.prior.between_df),
        places=first.places,
        refused_native=refused("native"),
        refused_virtual=refused("virtual"),
        earlier=earlier,
        earlier_places=None if first.earlier is None else first.earlier[2],
        most_margin=stack("most_margin"),
    )


@dataclass(frozen=True, eq=False)
class Ruling:
    """What the rule says of one question: a row of a batch."""

    question: Question
    batch: Batch
    judged: Judgement
    session: int
    series: int
    following: int = 0

    def __getattr__(self, name: str) -> Floats:
        values: Floats = getattr(self.judged, name)[self.session, self.series]
        return values

    @cached_property
    def alone(self) -> tuple[Batch, Judgement]:
        """The row as a batch of its own."""
        return only(self.batch, self.judged, self.session, self.series)
