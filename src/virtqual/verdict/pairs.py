"""Samples, pairs of samples, and series of pairs.

A *sample* is one run's value (scalar) or values (curve). A *pair* is a native and a virtual sample that
ran one after the other. Sides take turns in running first, so that a drift of the machine affects both alike;
the recorded start times are checked here.

Two kinds of trouble are kept apart:

`PairingError` - a bug of the harness
    Two samples of one side and number, or other points. No verdict can mean anything.
invalid - a fact of the session
    A pair lacks a run, a gate refused a run, or runs overlapped or lie hours apart. The pair stays in the
    series with its reasons, is left out of the numbers, and is asked for again.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from virtqual.verdict.metric import Metric

Side = Literal["native", "virtual"]
Floats = NDArray[np.float64]

SIDES: tuple[Side, Side] = ("native", "virtual")

MAX_GAP_S = 6 * 3600.0
"""Seconds that may pass between the runs of a pair: by day and by night a machine has other temperatures and
other neighbours."""

MIN_FIRST_RUNS = 4
"""At least one pair in so many must run each side first: a first run is colder, and a machine drifts."""


class PairingError(ValueError):
    """Samples that no working harness produces; see the module's text."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run on one side.

    Parameters
    ----------
    number
        Number of the pair it belongs to, from 0.
    values, points
        One value for each size, in the metric's unit; the sizes, if the program's output names them.
    start, end
        Seconds since the epoch; NaN if unknown.
    invalid
        Why a validity gate refused the run; empty if none did.
    node, host, boot
        Names of the node, of the machine below it, and of the boot of its virtual machine; several names are
        joined by ``+``. Empty if unknown.
    turn
        Pairs of one turn ran on several places at about one time. None: the pair is a turn by itself.
    """

    side: Side
    number: int
    values: tuple[float, ...]
    start: float
    end: float
    invalid: tuple[str, ...] = ()
    points: tuple[float, ...] = ()
    node: str = ""
    host: str = ""
    boot: str = ""
    turn: int | None = None

    @property
    def place(self) -> str:
        """The host, or the node if the host is unknown; empty if both are."""
        return self.host or self.node

    @property
    def run(self) -> tuple[Hashable, ...]:
        """Identity of the run: samples of several metrics with equal identities are of one run."""
        return self.side, self.number, self.start, self.end, self.node

    @property
    def has_values(self) -> bool:
        """All values are positive numbers."""
        return all(math.isfinite(value) and value > 0 for value in self.values)

    @property
    def refused(self) -> bool:
        """The run does not count, even if its peer does."""
        return bool(self.invalid) or not self.has_values

    @property
    def untimed(self) -> bool:
        """Its start or end is unknown."""
        return math.isnan(self.start) or math.isnan(self.end)

    def overlaps(self, other: Sample) -> bool:
        """Return whether both ran at one time."""
        return self.start < other.end and other.start < self.end

    def can_disturb(self, other: Sample) -> bool:
        """Return whether both may have run on one machine.

        Nodes of one side are different machines; a node of the other side may be a guest of this one. A run
        without a name may be anywhere.
        """
        labels = (self.host, other.host) if self.side != other.side else (self.place, other.place)
        names, other_names = (set(label.split("+")) for label in labels)
        return "" in names or "" in other_names or not names.isdisjoint(other_names)


@dataclass(frozen=True, slots=True)
class Pair:
    """A native and a virtual sample of one number; a sample is None if its run left nothing.

    `invalid` says why the pair does not count; it is empty if the pair does.
    """

    number: int
    native: Sample | None
    virtual: Sample | None
    invalid: tuple[str, ...] = ()

    @property
    def samples(self) -> list[Sample]:
        """The samples that it has."""
        return [sample for sample in (self.native, self.virtual) if sample is not None]

    @property
    def untimed(self) -> bool:
        """The times of a run are unknown."""
        native, virtual = self.native, self.virtual
        return (native is not None and native.untimed) or (virtual is not None and virtual.untimed)

    @property
    def first(self) -> Side | None:
        """Side that ran first; None if that is unknown, both ran at one time, or they were no neighbours."""
        if self.native is None or self.virtual is None or self.untimed:
            return None
        if self.native.number != self.virtual.number:
            return None
        if self.native.overlaps(self.virtual):
            return None
        return "native" if self.native.start < self.virtual.start else "virtual"


@dataclass(frozen=True)
class Series:
    """All pairs of one metric in one setting (``1 thread``, ``lj``), by rising number, invalid ones included.

    Parameters
    ----------
    points
        Sizes of a curve in the metric's axis unit, rising; empty for a scalar.
    cut_off
        Pair numbers with one run because of an interruption; they do not count as refused.
    set_aside
        Numbers of the pairs that do not count because an outlying host takes part; see
        `virtqual.verdict.outliers`.
    """

    metric: Metric
    setting: str
    points: tuple[float, ...] = ()
    pairs: tuple[Pair, ...] = ()
    cut_off: frozenset[int] = frozenset()
    set_aside: frozenset[int] = frozenset()

    @property
    def id(self) -> str:
        """``metric@setting``."""
        return f"{self.metric.name}@{self.setting}"

    @cached_property
    def valid(self) -> tuple[Pair, ...]:
        """The pairs that count."""
        return tuple(pair for pair in self.pairs if not pair.invalid)

    @property
    def width(self) -> int:
        """Number of values per run: the points of a curve, 1 for a scalar."""
        return max(len(self.points), 1)

    def values(self, side: Side) -> Floats:
        """Return the values of one side in the valid pairs, shape (n_pairs, n_points), in the unit."""
        return self._values[side]

    @cached_property
    def _values(self) -> dict[str, Floats]:
        values: dict[str, Floats] = {}
        for side in SIDES:
            rows = [getattr(pair, side).values for pair in self.valid]
            values[side] = np.array(rows, dtype=np.float64).reshape(len(rows), self.width)
            values[side].flags.writeable = False
        return values

    def medians(self, side: Side) -> Floats:
        """Return the median of one side over the valid pairs, shape (n_points,), in the unit."""
        return self._medians[side]

    @cached_property
    def _medians(self) -> dict[Side, Floats]:
        medians = {}
        for side in SIDES:
            # For so few values this is several times as fast as numpy's median.
            ordered = np.sort(self.values(side), axis=0)
            medians[side] = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
        return medians

    @cached_property
    def differences(self) -> Floats:
        """ln(virtual/native) of the valid pairs, positive if virtual is worse; shape (n_pairs, n_points)."""
        log_ratio = np.log(self.values("virtual")) - np.log(self.values("native"))
        d: Floats = log_ratio if self.metric.better == "lower" else -log_ratio
        d.flags.writeable = False
        return d

    def refused(self, side: Side) -> int:
        """Return how many runs of a side do not count, or are missing although their peers are there."""
        if len(self.valid) == len(self.pairs):
            return 0  # a refused run leaves no valid pair
        samples = (getattr(pair, side) for pair in self.pairs if pair.number not in self.cut_off)
        return sum(sample is None or sample.refused for sample in samples)

    @property
    def not_alternated(self) -> str:
        """Why the order of the runs favours one side; empty if both took turns in running first."""
        if any(pair.untimed for pair in self.valid):
            return "not alternated: the runs have no start and end times"
        first = [pair.first for pair in self.valid]
        counts = {side: first.count(side) for side in SIDES}
        total = sum(counts.values())
        for side, other in (SIDES, SIDES[::-1]):
            if len(first) >= MIN_FIRST_RUNS and counts[side] < total // MIN_FIRST_RUNS:
                share = f"{counts[other]} of {total} pairs"
                return f"not alternated: {other} ran first in {share}, which favours one side"
        return ""

    @property
    def next_number(self) -> int:
        """The first pair number that has not been run."""
        return self.pairs[-1].number + 1 if self.pairs else 0


def pair_up(metric: Metric, setting: str, points: Sequence[float], samples: Iterable[Sample]) -> Series:
    """Return a series of the samples of one metric in one setting, with each pair number that a sample has.

    The points of a curve rise. The module's text says which pairs are invalid.

    Raises
    ------
    PairingError
        For samples that no working harness produces.
    """
    points = tuple(float(point) for point in points)
    name = f"{metric.name}@{setting}"
    _check_points(name, metric, points)
    runs: dict[tuple[int, Side], Sample] = {}
    for sample in samples:
        _check_sample(name, points, sample)
        if (sample.number, sample.side) in runs:
            raise PairingError(f"{name}: pair {sample.number} has more than one {sample.side} sample.")
        runs[sample.number, sample.side] = sample
    numbers = sorted({number for number, _ in runs})
    pairs = [Pair(number, runs.get((number, "native")), runs.get((number, "virtual"))) for number in numbers]
    disturbances = _find_disturbances(pairs)
    for index, pair in enumerate(pairs):
        if invalid := (*_list_faults(pair), *disturbances.get(pair.number, ())):
            pairs[index] = replace(pair, invalid=invalid)
    return Series(metric, setting, points, tuple(pairs))


def _check_points(name: str, metric: Metric, points: tuple[float, ...]) -> None:
    if metric.kind == "scalar" and points:
        raise PairingError(f"{name}: {metric.name} is a scalar and has no points; {len(points)} were given.")
    if metric.kind == "curve" and not points:
        raise PairingError(f"{name}: {metric.name} is a curve and needs the {metric.axis}s of its values.")
    if not all(math.isfinite(point) and point >= 0 for point in points):
        raise PairingError(f"{name}: points must be finite and not negative: {points}.")
    if any(after <= before for before, after in pairwise(points)):
        raise PairingError(f"{name}: points must rise: {points}.")


def _check_sample(name: str, points: tuple[float, ...], sample: Sample) -> None:
    problem = ""
    if len(sample.values) != max(len(points), 1):
        problem = f"{len(sample.values)} values for {f'{len(points)} points' if points else 'a scalar'}"
    elif sample.points and sample.points != points:
        problem = f"its points {sample.points} are not the series' {points}"
    if problem:
        raise PairingError(f"{name}: {sample.side} sample of pair {sample.number}: {problem}.")


def _list_faults(pair: Pair) -> list[str]:
    """Return the reasons in the pair itself for which it does not count."""
    reasons: list[str] = []
    for side in SIDES:
        sample: Sample | None = getattr(pair, side)
        if sample is None:
            reasons.append(f"no {side} run")
            continue
        reasons += [f"{side} run refused: {reason}" for reason in sample.invalid]
        if sample.end < sample.start:
            seconds = sample.start - sample.end
            reasons.append(f"{side} run ended {seconds:.3g} s before it started: a clock was set back")
        bad = [value for value in sample.values if not (math.isfinite(value) and value > 0)]
        if bad:
            reasons.append(f"{side} run reported {bad[0]:g}, which is no positive number")
    if pair.native is not None and pair.virtual is not None:
        early, late = sorted((pair.native, pair.virtual), key=lambda sample: sample.start)
        if (gap := late.start - early.end) > MAX_GAP_S:
            reasons.append(f"its runs lie {gap / 3600:.1f} h apart, more than {MAX_GAP_S / 3600:g} h")
    return reasons


class _Timeline:
    """The timed runs of a series by rising start.

    A run is compared only with runs of its hosts, or with all runs if the host of some run is unknown.
    """

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self.runs = [sample for pair in pairs for sample in pair.samples if not sample.untimed]
        self.runs.sort(key=lambda sample: (sample.start, sample.end))
        has_hosts = all(run.host for run in self.runs)
        self._hosts = [set(run.host.split("+")) if has_hosts else {""} for run in self.runs]
        self._indices: dict[str, list[int]] = defaultdict(list)
        for index, names in enumerate(self._hosts):
            for name in names:
                self._indices[name].append(index)

    def _iterate_later(self, host: str, index: int) -> Iterator[int]:
        """Return the indices of the runs of a host after `index`."""
        indices = self._indices[host]
        return map(indices.__getitem__, range(bisect_right(indices, index), len(indices)))

    def find_overlapping(self, index: int) -> list[Sample]:
        """Return the later runs that overlap a run and may have run on its machine."""
        run, overlapping = self.runs[index], set()
        for host in self._hosts[index]:
            for later in self._iterate_later(host, index):
                if self.runs[later].start >= run.end:
                    break
                if run.can_disturb(self.runs[later]):
                    overlapping.add(later)
        return [self.runs[later] for later in sorted(overlapping)]

    def find_between(self, first: int, last: int) -> Sample | None:
        """Return the first run between two runs that may have run on the machine of one of them."""
        between = last
        for host in self._hosts[first] | self._hosts[last]:
            for later in self._iterate_later(host, first):
                if later >= between:
                    break
                if any(self.runs[later].can_disturb(self.runs[index]) for index in (first, last)):
                    between = later
                    break
        return self.runs[between] if between < last else None


def _find_disturbances(pairs: Iterable[Pair]) -> dict[int, dict[str, None]]:
    """Return the reasons in other runs of the series for which pairs do not count, by pair number."""
    reasons: dict[int, dict[str, None]] = defaultdict(dict)
    timeline, first_index = _Timeline(pairs), dict[int, int]()
    for index, run in enumerate(timeline.runs):
        for other in timeline.find_overlapping(index):
            for a, b in ((run, other), (other, run)):
                reasons[a.number][f"its {a.side} run overlaps the {b.side} run of pair {b.number}"] = None
        # The two runs of a pair must be neighbours.
        between = timeline.find_between(first_index.setdefault(run.number, index), index)
        if between is not None:
            reasons[run.number][f"a run of pair {between.number} lies between its two runs"] = None
    return reasons
