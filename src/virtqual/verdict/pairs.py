"""What may be compared with what: samples, pairs of samples, and their log differences.

A *sample* is one run's value (scalar) or values (curve). A *pair* is a native and a virtual sample that
ran one after the other; sides take turns in running first, so that a drift of the machine falls on both
alike. Recorded start times prove it; they are checked here.

Two kinds of trouble are kept apart:

`PairingError` - a bug of the harness
    Two samples of one side and number, another number of values than points, other points, an infinite
    time, a number below zero. No verdict can mean anything, so nothing is returned.
invalid - a fact of the session
    A run without peer, runs of one series that overlap on one host, a pair that another pair
    interrupted, or whose runs are hours apart, a run that ended before it started (a clock was set back), a
    value that is not a positive number, a sample that a validity gate refused. The
    pair stays in the series with its reasons, is left out of the numbers, and is asked for again.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from virtqual.references.metrics import Metric

Side = Literal["native", "virtual"]
Floats = NDArray[np.float64]

SIDES: tuple[Side, Side] = ("native", "virtual")

MOST_GAP = 6 * 3600.0
"""Seconds that may pass between the runs of a pair: by day and by night a machine has other temperatures and
other neighbours. A queue in which the other side waits for longer makes no pairs."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})

EITHER_ORDER = 4
"""One pair in so many, at least, must run each side first: a first run is colder, and a machine drifts."""


class PairingError(ValueError):
    """Samples that no working harness produces; see the module's text."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run on one side.

    Parameters
    ----------
    side
        ``native`` or ``virtual``.
    number
        Number of the pair it belongs to, from 0.
    values
        One value per point, in the metric's unit; exactly one for a scalar.
    start, end
        When the run started and ended, in seconds since the epoch; NaN where nobody says.
    invalid
        Why a validity gate refused the run; empty if none did.
    origin
        Where it ran (job, nodes, session ...): JSON-able, kept and never interpreted.
    points
        The sizes its values belong to, where the program's output says so; empty if unknown. They must
        be the series' own.
    node, host, boot
        Names of the node, of the machine below it, and of the boot of its virtual machine; of several
        nodes joined by ``+``. Empty where nobody says.
    turn
        Pairs of one turn ran on several places at about one time. None: its pair is a turn.
    """

    side: Side
    number: int
    values: tuple[float, ...]
    start: float
    end: float
    invalid: tuple[str, ...] = ()
    origin: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    points: tuple[float, ...] = ()
    node: str = ""
    host: str = ""
    boot: str = ""
    turn: int | None = None

    @property
    def place(self) -> str:
        """The host, or the node where nobody knows the host; empty where nobody says either."""
        return self.host or self.node

    @property
    def run(self) -> tuple[Hashable, ...]:
        """Identity of the run: samples of several metrics that have it in common are of one run."""
        return self.side, self.number, self.start, self.end, self.node

    @property
    def refused(self) -> bool:
        """Whether the run itself does not count, whatever its peer is."""
        return bool(self.invalid) or not all(math.isfinite(v) and v > 0 for v in self.values)


@dataclass(frozen=True, slots=True)
class Pair:
    """A native and a virtual sample of one number.

    Parameters
    ----------
    number
        From 0.
    native, virtual
        The samples; None where a run left nothing.
    invalid
        Why it cannot be used; empty if it can.
    """

    number: int
    native: Sample | None
    virtual: Sample | None
    invalid: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether it may enter the numbers."""
        return not self.invalid

    @property
    def untimed(self) -> bool:
        """Whether nobody says when its runs were."""
        for sample in (self.native, self.virtual):
            if sample is not None and (math.isnan(sample.start) or math.isnan(sample.end)):
                return True
        return False

    @property
    def first(self) -> Side | None:
        """Side that ran first; None where that is not known, or both ran at one time."""
        if self.native is None or self.virtual is None or self.untimed:
            return None
        if _overlap(self.native, self.virtual):
            return None
        return "native" if self.native.start < self.virtual.start else "virtual"


@dataclass(frozen=True)
class Series:
    """All pairs of one metric in one setting.

    Parameters
    ----------
    metric
        What was measured.
    setting
        How: ``1 thread``, ``two nodes``, ``lj`` ...
    points
        Sizes of a curve in the metric's axis unit, rising; empty for a scalar.
    pairs
        By rising number, the invalid ones included.
    cut_off
        Numbers of pairs that have one run because the session was interrupted, whatever their values were.
    """

    metric: Metric
    setting: str
    points: tuple[float, ...] = ()
    pairs: tuple[Pair, ...] = ()
    cut_off: frozenset[int] = frozenset()

    @property
    def id(self) -> str:
        """``metric@setting``."""
        return f"{self.metric.name}@{self.setting}"

    @cached_property
    def valid(self) -> tuple[Pair, ...]:
        """The pairs that may enter the numbers."""
        return tuple(pair for pair in self.pairs if pair.valid)

    @property
    def width(self) -> int:
        """Number of values per run: the points of a curve, 1 for a scalar."""
        return max(len(self.points), 1)

    def values(self, side: Side) -> Floats:
        """Return the values of one side in the valid pairs, shape (n_pairs, n_points), in the unit."""
        return self._values[side]

    @cached_property
    def _values(self) -> dict[str, Floats]:
        found: dict[str, Floats] = {}
        for side in SIDES:
            rows = [getattr(pair, side).values for pair in self.valid]
            found[side] = np.array(rows, dtype=np.float64).reshape(len(rows), self.width)
            found[side].flags.writeable = False
        return found

    def medians(self, side: Side) -> Floats:
        """Return the median of one side over the valid pairs, shape (n_points,), in the unit."""
        # Of so few values several times as fast as numpy's.
        ordered = np.sort(self.values(side), axis=0)
        middle: Floats = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
        return middle

    def differences(self) -> Floats:
        """Return d = ln(virtual/native) of the valid pairs, positive where virtual is worse.

        Returns
        -------
        ndarray
            Shape (n_pairs, n_points), no unit; one column for a scalar. Read-only.
        """
        return self._differences

    @cached_property
    def _differences(self) -> Floats:
        log_ratio = np.log(self.values("virtual")) - np.log(self.values("native"))
        d: Floats = log_ratio if self.metric.better == "lower" else -log_ratio
        d.flags.writeable = False
        return d

    def refused(self, side: Side) -> int:
        """Return how many runs of a side do not count, or left nothing where their peers did."""
        if len(self.valid) == len(self.pairs):
            return 0  # a refused run leaves no valid pair
        samples = (getattr(pair, side) for pair in self.pairs if pair.number not in self.cut_off)
        return sum(sample is None or sample.refused for sample in samples)

    @property
    def not_alternated(self) -> str:
        """Why the order of the runs favours one side; empty where both took turns in running first."""
        first = dict.fromkeys(SIDES, 0)
        for pair in self.valid:
            if pair.first is not None:
                first[pair.first] += 1
            elif pair.untimed:
                return "not alternated: the runs have no start and end times"
        for side, other in (SIDES, SIDES[::-1]):
            if len(self.valid) >= EITHER_ORDER and first[side] < sum(first.values()) // EITHER_ORDER:
                often = f"{first[other]} of {sum(first.values())} pairs"
                return f"not alternated: {other} ran first in {often}, which favours one side"
        return ""

    @property
    def next_number(self) -> int:
        """The first pair number that has not been run."""
        return self.pairs[-1].number + 1 if self.pairs else 0


def pair_up(metric: Metric, setting: str, points: Sequence[float], samples: Iterable[Sample]) -> Series:
    """Make a series of the samples of one metric in one setting.

    Parameters
    ----------
    metric
        What was measured.
    setting
        How; part of the series' name.
    points
        Sizes of a curve, rising and positive; empty for a scalar.
    samples
        In any order.

    Returns
    -------
    Series
        With every pair number that any sample has; see the module's text for which pairs are invalid.

    Raises
    ------
    PairingError
        For what only a bug of the harness produces.
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
    pairs = [
        Pair(number, runs.get((number, "native")), runs.get((number, "virtual")))
        for number in sorted({number for number, _ in runs})
    ]
    disturbed = _disturbed(pairs)
    return Series(
        metric,
        setting,
        points,
        tuple(
            Pair(pair.number, pair.native, pair.virtual, (*_faults(pair), *disturbed.get(pair.number, ())))
            for pair in pairs
        ),
    )


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
    what = f"{name}: {sample.side} sample of pair {sample.number}"
    if sample.side not in SIDES:
        raise PairingError(f"{what}: a side is one of {', '.join(SIDES)}.")
    if sample.number < 0:
        raise PairingError(f"{what}: pair numbers start at 0.")
    if len(sample.values) != max(len(points), 1):
        expected = f"{len(points)} points" if points else "a scalar"
        raise PairingError(f"{what}: {len(sample.values)} values for {expected}.")
    if sample.points and tuple(float(point) for point in sample.points) != points:
        raise PairingError(f"{what}: its points {sample.points} are not the series' {points}.")
    if math.isinf(sample.start) or math.isinf(sample.end):
        raise PairingError(f"{what}: it cannot have started at {sample.start} and ended at {sample.end}.")


def _faults(pair: Pair) -> tuple[str, ...]:
    """Return what makes one pair unusable, seen on its own."""
    reasons: list[str] = []
    for side in SIDES:
        sample: Sample | None = getattr(pair, side)
        if sample is None:
            reasons.append(f"no {side} run")
            continue
        reasons += [f"{side} run refused: {reason}" for reason in sample.invalid]
        if sample.end < sample.start:
            back = sample.start - sample.end
            reasons.append(f"{side} run ended {back:.3g} s before it started: a clock was set back")
        bad = [value for value in sample.values if not (math.isfinite(value) and value > 0)]
        if bad:
            reasons.append(f"{side} run reported {bad[0]:g}, which is no positive number")
    if pair.native is not None and pair.virtual is not None:
        early, late = sorted((pair.native, pair.virtual), key=lambda sample: sample.start)
        if (gap := late.start - early.end) > MOST_GAP:
            reasons.append(f"its runs lie {gap / 3600:.1f} h apart, more than {MOST_GAP / 3600:g} h")
    return tuple(reasons)


def _overlap(one: Sample, other: Sample) -> bool:
    return one.start < other.end and other.start < one.end


class _RunsByPlace:
    """The runs of a series by place and host, to find those that can disturb a run.

    Runs on different hosts do not disturb each other. Other nodes of one side are other machines; a node of
    the other side may be a guest of this one. A run without a name may be anywhere.
    """

    def __init__(self, runs: Sequence[Sample]) -> None:
        self._runs = runs

    @cached_property
    def _of_side(self) -> dict[Side, list[int]]:
        return {side: [i for i, run in enumerate(self._runs) if run.side == side] for side in SIDES}

    @cached_property
    def _named(self) -> dict[tuple[Side, str, str], list[int]]:
        indices = defaultdict(list)
        for index, run in enumerate(self._runs):
            for kind, label in (("place", run.place), ("host", run.host)):
                for name in set(label.split("+")):
                    indices[run.side, kind, name].append(index)
        return indices

    def after(self, index: int, run: Sample) -> Iterator[Iterator[int]]:
        """Yield rising indices after `index` of the runs that can disturb a run, by the name they share."""
        peers = SIDES[run.side == "native"]
        for side, kind, label in ((run.side, "place", run.place), (peers, "host", run.host)):
            names = set(label.split("+"))
            shared = [self._of_side[side]]
            if "" not in names:
                shared = [self._named.get((side, kind, name), []) for name in (*names, "")]
            for indices in shared:
                yield map(indices.__getitem__, range(bisect_right(indices, index), len(indices)))


def _disturbed(pairs: Sequence[Pair]) -> dict[int, list[str]]:
    """Return what makes pairs unusable because of other runs of the series, by pair number."""
    reasons: dict[int, dict[str, None]] = defaultdict(dict)
    runs = [sample for pair in pairs for sample in (pair.native, pair.virtual) if sample is not None]
    runs = [run for run in runs if not (math.isnan(run.start) or math.isnan(run.end))]
    runs.sort(key=lambda sample: (sample.start, sample.end))
    by_place = _RunsByPlace(runs)
    for index, (run, later) in enumerate(pairwise(runs)):
        if later.start >= run.end:
            continue
        overlapping = set()
        for others in by_place.after(index, run):
            for other in others:
                if runs[other].start >= run.end:
                    break
                overlapping.add(other)
        for other in sorted(overlapping):
            for one, by in ((run, runs[other]), (runs[other], run)):
                text = f"its {one.side} run overlaps the {by.side} run of pair {by.number}"
                reasons[one.number][text] = None
    # The two runs of a pair must be neighbours, or something ran there between them.
    first: dict[int, int] = {}
    for index, run in enumerate(runs):
        start = first.setdefault(run.number, index)
        if index - start < 2:
            continue
        both = (*by_place.after(start, run), *by_place.after(start, runs[start]))
        between = min(next(others, index) for others in both)
        if between < index:
            reasons[run.number][f"a run of pair {runs[between].number} lies between its two runs"] = None
    return {number: list(texts) for number, texts in reasons.items()}
