"""Samples, pairs of samples that ran one after the other, and series of pairs."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise, product
from operator import attrgetter
from typing import Literal

import numpy as np

from virtqual.errors import UsageError
from virtqual.verdict.alternation import balance_order
from virtqual.verdict.budget import Budget
from virtqual.verdict.clock import CoarseClock, find_coarse_clock, find_steps
from virtqual.verdict.estimate import Floats, median
from virtqual.verdict.labels import NATIVE_AND_VIRTUAL, Labels
from virtqual.verdict.metric import Metric
from virtqual.verdict.notation import sign_of

Side = Literal["native", "virtual"]

SIDES: tuple[Side, Side] = ("native", "virtual")

MAX_GAP_S = 6 * 3600.0
"""Seconds that may pass between the runs of a pair: by day and by night a machine has other temperatures and
other neighbours."""

MIN_FIRST_RUNS = 4
"""At least one pair in so many must run each side first: a first run is colder, and a machine drifts."""


class PairingError(UsageError):
    """Samples that no working harness produces, such as two of one side and number."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run on one side."""

    side: Side
    #: Number of the pair it belongs to, from 0.
    number: int
    #: One value for each size, in the metric's unit.
    values: tuple[float, ...]
    #: Seconds since the epoch; NaN if unknown.
    start: float
    end: float
    #: Why the run was refused; empty if it was not.
    invalid: tuple[str, ...] = ()
    #: The sizes, if the program's output names them.
    points: tuple[float, ...] = ()
    #: Names of the node, of the machine below it, and of the boot of its virtual machine, joined by ``+`` if
    #: there are several; empty if unknown.
    node: str = ""
    host: str = ""
    boot: str = ""
    #: Pairs of one turn ran on several places at about one time. None: the pair is a turn by itself.
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
    def has_lost_run(self) -> bool:
        """A run is missing, or does not count."""
        return len(self.samples) < len(SIDES) or any(sample.refused for sample in self.samples)

    @property
    def lacks_virtual_run(self) -> bool:
        """Its virtual run is missing or does not count, and its native run does."""
        has_native = self.native is not None and not self.native.refused
        return has_native and (self.virtual is None or self.virtual.refused)

    @property
    def untimed(self) -> bool:
        """The times of a run are unknown."""
        return any(sample.untimed for sample in self.samples)

    @property
    def first(self) -> Side | None:
        """Side that ran first; None if that is unknown, both ran at one time, or they were no neighbours."""
        native, virtual = self.native, self.virtual
        if native is None or virtual is None or self.untimed or native.number != virtual.number:
            return None
        if native.end <= virtual.start:
            return "native"
        return "virtual" if virtual.end <= native.start else None


@dataclass(frozen=True)
class Series:
    """All pairs of one metric in one setting, such as ``1 thread``, by rising number; invalid ones too."""

    metric: Metric
    setting: str
    #: Sizes of a curve in the metric's axis unit, rising; empty for a scalar.
    points: tuple[float, ...] = ()
    pairs: tuple[Pair, ...] = ()
    #: Numbers of the pairs that an interruption cut off, and of those with an outlying host; they count
    #: neither as attempted nor as refused.
    cut_off: frozenset[int] = frozenset()
    set_aside: frozenset[int] = frozenset()
    #: The words for the sides in messages.
    labels: Labels = NATIVE_AND_VIRTUAL

    @property
    def id(self) -> str:
        """``metric@setting``."""
        return f"{self.metric.name}@{self.setting}"

    @cached_property
    def valid(self) -> tuple[Pair, ...]:
        """The pairs that count."""
        return tuple(pair for pair in self.pairs if not pair.invalid)

    @cached_property
    def chosen(self) -> tuple[Pair, ...]:
        """The pairs that are judged: the valid ones, or of a rotation complete turns of the same hosts.

        Turns and hosts are chosen for the largest number of pairs, and not by any value.
        """
        turns = self.turns
        labels = [names for turn in turns for names in list_labels(turn, "place")]
        if len(turns) == len(self.valid) or any(len(set(names)) < len(names) for names in labels):
            return self.valid
        sizes = {len(turn) for turn in turns}
        choices = (_choose_hosts([turn for turn in turns if len(turn) >= size]) for size in sizes)
        chosen = max(choices, key=len)
        native, virtual = host_names(chosen)
        is_rotation = len(native) > 1 and not native & virtual
        return chosen if is_rotation and len(chosen) < len(self.valid) else self.valid

    @property
    def turns(self) -> list[list[Pair]]:
        """The valid pairs of each turn; a pair is a turn by itself if the hosts do not rotate."""
        native, virtual = host_names(self.pairs)
        width = 1 if native & virtual else max(len(native), 1)
        turns: dict[int, list[Pair]] = defaultdict(list)
        for pair in self.valid:
            turn = pair.native.turn if pair.native else None
            turns[pair.number // width if turn is None else turn].append(pair)
        return list(turns.values())

    @property
    def width(self) -> int:
        """Number of values per run: the points of a curve, 1 for a scalar."""
        return max(len(self.points), 1)

    @cached_property
    def values(self) -> dict[Side, Floats]:
        """The values of each side in the valid pairs, shape (n_pairs, n_points), in the unit."""
        rows = {side: [getattr(pair, side).values for pair in self.valid] for side in SIDES}
        return {side: np.array(rows[side], dtype=float).reshape(-1, self.width) for side in SIDES}

    @cached_property
    def medians(self) -> dict[Side, Floats]:
        """The median of each side over the valid pairs, shape (n_points,), in the unit."""
        return {side: median(self.values[side], axis=0)[0] for side in SIDES}

    @cached_property
    def clock_steps(self) -> Floats:
        """The step of the clock at each size, in the unit, shape (n_points,); the larger of two clocks."""
        return find_steps(*(self.values[side] for side in SIDES))

    @property
    def clock_bias(self) -> Floats:
        """How far the clock may have moved the overhead, in log units by size: half a step a side."""
        return self.clock_steps * sum(1 / self.medians[side] for side in SIDES) / 2

    def check_clock(self, budget: Budget, *, suspected: bool = False) -> CoarseClock | None:
        """Return the clock if its step is too large for the margins of a budget.

        A step is `suspected` as soon as it divides all values, and known if two values repeat as well.
        """
        steps = (
            find_steps(*(self.values[side] for side in SIDES), repeats=0) if suspected else self.clock_steps
        )
        return find_coarse_clock(self.metric, self.points, steps, self.medians["native"], budget)

    @cached_property
    def differences(self) -> Floats:
        """ln(virtual/native) of the valid pairs, positive if virtual is worse; shape (n_pairs, n_points)."""
        ratios = self.values["virtual"] / self.values["native"]
        return np.asarray(sign_of(self.metric.better) * np.log(ratios))

    def costs(self, pairs: Sequence[Pair]) -> Floats:
        """Return the logarithms of values, larger is worse, shape (2, n_pairs, n_points)."""
        if pairs is self.valid:
            values = np.stack([self.values[side] for side in SIDES])
        else:
            values = np.array([[getattr(pair, side).values for pair in pairs] for side in SIDES])
        return np.asarray(sign_of(self.metric.better) * np.log(values))

    @property
    def first_sides(self) -> list[Side]:
        """The side that ran first in each valid pair; pairs whose runs overlap in time are left out."""
        return [pair.first for pair in self.valid if pair.first]

    @property
    def not_alternated(self) -> str:
        """Why the order of the runs favours one side; empty if both took turns in running first."""
        if any(pair.untimed for pair in self.valid):
            return "not alternated: the runs have no start and end times"
        first = self.first_sides
        for side, other in (SIDES, SIDES[::-1]):
            if len(self.valid) >= MIN_FIRST_RUNS and first.count(side) < len(first) // MIN_FIRST_RUNS:
                share = f"{first.count(other)} of {len(first)} pairs"
                name = self.labels.of(other)
                return f"not alternated: {name} ran first in {share}, which favours one side"
        return ""

    def can_alternate(self, pairs: int) -> bool:
        """Return whether more valid pairs, so many in all, can let each side run first often enough."""
        if pairs <= len(self.valid) or any(pair.untimed for pair in self.valid):
            return False
        fewest = min(map(self.first_sides.count, SIDES))
        return fewest + pairs - len(self.valid) >= pairs // MIN_FIRST_RUNS

    def choose_order(self, pairs: int) -> str:
        """Return which side runs first in each pair that is needed to have so many valid ones.

        A letter for each pair, N or V; empty if the valid pairs have no order.
        """
        if self.valid and not self.first_sides:
            return ""
        done = "".join(side[0].upper() for side in self.first_sides)
        return balance_order(self.next_number, pairs - len(self.valid), done, pairs // MIN_FIRST_RUNS)

    @property
    def next_number(self) -> int:
        """The first pair number that has not been run."""
        return self.pairs[-1].number + 1 if self.pairs else 0


def list_labels(pairs: Sequence[Pair], attribute: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return an attribute of the native and of the virtual samples of pairs."""
    label = attrgetter(attribute)
    return tuple([label(pair.native) for pair in pairs]), tuple([label(pair.virtual) for pair in pairs])


def host_names(pairs: Iterable[Pair]) -> tuple[set[str], set[str]]:
    """Return the places of the native and of the virtual samples of pairs, which may lack samples."""
    samples = [sample for pair in pairs for sample in pair.samples]
    native, virtual = ({sample.place for sample in samples if sample.side == side} for side in SIDES)
    return native, virtual


def _choose_hosts(turns: Sequence[Sequence[Pair]]) -> tuple[Pair, ...]:
    """Return the pairs of hosts that all turns have, as many of both sides."""
    sides = zip(*map(host_names, turns), strict=True)
    common = [set.intersection(*names) for names in sides]
    count = min(map(len, common))
    native, virtual = (set(sorted(names)[:count]) for names in common)
    return tuple(pair for turn in turns for pair in split_turn(turn, native, virtual)[0])


def split_turn(turn: Sequence[Pair], native: Set[str], virtual: Set[str]) -> tuple[list[Pair], list[Pair]]:
    """Return the pairs of a turn that some hosts make, and those of its other runs.

    Runs that lost their peers are paired: in a rotation it does not matter which hosts make a pair.
    """
    groups: dict[tuple[bool, bool], list[Pair]] = defaultdict(list)
    for pair, *places in zip(turn, *list_labels(turn, "place"), strict=True):
        groups[places[0] in native, places[1] in virtual].append(pair)
    natives, virtuals = groups[True, False], groups[False, True]
    chosen = [Pair(a.number, a.native, b.virtual) for a, b in zip(natives, virtuals, strict=False)]
    other_pairs = [Pair(b.number, b.native, a.virtual) for a, b in zip(natives, virtuals, strict=False)]
    other_pairs += groups[False, False] + natives[len(chosen) :] + virtuals[len(chosen) :]
    return groups[True, True] + chosen, other_pairs


def pair_up(
    metric: Metric,
    setting: str,
    points: Sequence[float],
    samples: Iterable[Sample],
    labels: Labels = NATIVE_AND_VIRTUAL,
) -> Series:
    """Return a series of the samples of one metric in one setting, with each pair number that a sample has.

    Raises
    ------
    PairingError
        For samples that no working harness produces.
    """
    points = tuple(float(point) for point in points)
    name = f"{metric.name}@{setting}"
    if metric.kind == "scalar" and points:
        raise PairingError(f"{name}: {metric.name} is a scalar and has no points; {len(points)} were given.")
    if metric.kind == "curve" and not points:
        raise PairingError(f"{name}: {metric.name} is a curve and needs the {metric.axis}s of its values.")
    runs: dict[tuple[int, Side], Sample] = {}
    for sample in samples:
        if sample.points not in ((), points):
            raise PairingError(
                f"{name}: {labels.of(sample.side)} sample of pair {sample.number}: its points "
                f"{sample.points} are not the series' {points}."
            )
        if (sample.number, sample.side) in runs:
            raise PairingError(
                f"{name}: pair {sample.number} has more than one {labels.of(sample.side)} sample."
            )
        runs[sample.number, sample.side] = sample
    numbers = sorted({number for number, _ in runs})
    pairs = [Pair(number, runs.get((number, "native")), runs.get((number, "virtual"))) for number in numbers]
    disturbances = _find_disturbances(pairs, labels)
    for index, pair in enumerate(pairs):
        if invalid := (*_list_faults(pair, labels), *disturbances.get(pair.number, ())):
            pairs[index] = replace(pair, invalid=invalid)
    return Series(metric, setting, points, tuple(pairs), labels=labels)


def _list_faults(pair: Pair, labels: Labels) -> list[str]:
    """Return the reasons in the pair itself for which it does not count."""
    reasons: list[str] = []
    for side in SIDES:
        sample: Sample | None = getattr(pair, side)
        run = f"{labels.of(side)} run"
        if sample is None:
            reasons.append(f"no {run}")
            continue
        reasons += [f"{run} refused: {reason}" for reason in sample.invalid]
        if sample.end < sample.start:
            seconds = sample.start - sample.end
            reasons.append(f"{run} ended {seconds:.3g} s before it started: a clock was set back")
        bad = [value for value in sample.values if not (math.isfinite(value) and value > 0)]
        if bad:
            reasons.append(f"{run} reported {bad[0]:g}, which is not a positive number")
    if pair.native is not None and pair.virtual is not None:
        early, late = sorted((pair.native, pair.virtual), key=lambda sample: sample.start)
        if (gap := late.start - early.end) > MAX_GAP_S:
            reasons.append(f"its runs lie {gap / 3600:.1f} h apart, more than {MAX_GAP_S / 3600:g} h")
    return reasons


def _find_disturbances(pairs: Iterable[Pair], labels: Labels) -> dict[int, dict[str, None]]:
    """Return by pair number the reasons for which pairs do not count: other runs overlap or part theirs."""
    runs = [sample for pair in pairs for sample in pair.samples if not sample.untimed]
    times = attrgetter("start", "end")
    runs.sort(key=times)
    last = {run.number: run for run in runs}
    first = {run.number: run for run in reversed(runs)}
    reasons: dict[int, dict[str, None]] = defaultdict(dict)
    # The runs of a pair by themselves, one after the other, need no look at machines.
    groups = [group for group in _split_by_time(runs) if len(group) > 2 or group[0].end > group[-1].start]
    machines = Machines(runs if groups else ())
    for latest, *later in (line for group in groups for line in machines.timelines(group)):
        for before, run in pairwise([latest, *later]):
            if run.start < latest.end:
                for a, b in ((latest, run), (run, latest)):
                    own, other = labels.of(a.side), labels.of(b.side)
                    reasons[a.number][f"its {own} run overlaps the {other} run of pair {b.number}"] = None
            for a, b in ((before, run), (run, before)):
                if a.number != b.number and times(first[a.number]) < times(b) < times(last[a.number]):
                    reasons[a.number][f"a run of pair {b.number} lies between its two runs"] = None
            latest = max(latest, run, key=lambda run: run.end)
    return reasons


def _split_by_time(runs: Sequence[Sample]) -> list[list[Sample]]:
    """Return runs, which are sorted by time, in groups that can only disturb runs of their own group.

    A group ends when all its runs have ended and all its pairs are complete.
    """
    last = {run.number: index for index, run in enumerate(runs)}
    groups: list[list[Sample]] = []
    end, complete_after = -math.inf, -1
    for index, run in enumerate(runs):
        if run.start >= end and index > complete_after:
            groups.append([])
        groups[-1].append(run)
        end, complete_after = max(end, run.end), max(complete_after, last[run.number])
    return groups


#: A node of one side.
_Node = tuple[Side, str]
#: Whether the host of nodes is unknown, and the indices of their runs.
_Kind = tuple[bool, tuple[int, ...]]


class Machines:
    """Which runs may have been on one machine.

    A node whose host is unknown in a run may be a guest of each node of the other side. The runs may name
    thousands of nodes: nodes that exactly the same runs name are examined once.
    """

    def __init__(self, runs: Iterable[Sample]) -> None:
        self._nodes: dict[_Node, frozenset[_Node]] = {}
        self._hosts: dict[str, frozenset[str]] = {}
        hostless: set[_Node] = set()
        for run in runs:
            place, nodes = (run.side, run.node), run.node.split("+")
            if place not in self._nodes:
                self._nodes[place] = frozenset([(run.side, node) for node in nodes])
            if run.host not in self._hosts:
                self._hosts[run.host] = frozenset(run.host.split("+")) - {""}
            if not run.host:
                hostless |= self._nodes[place]
        self._hostless = frozenset(hostless)
        nodes_everywhere = frozenset[_Node]().union(*self._nodes.values())
        #: Numbers of all nodes by side and by whether their hosts are unknown.
        self._counts = Counter(map(self._kind_of, nodes_everywhere))

    def meet(self, run: Sample, other: Sample) -> bool:
        """Return whether two of the runs may have been on one machine."""
        if not self._hosts[run.host].isdisjoint(self._hosts[other.host]):
            return True
        nodes, other_nodes = self._nodes[run.side, run.node], self._nodes[other.side, other.node]
        if run.side == other.side:
            common = nodes & other_nodes
            guest_side = SIDES[run.side == "native"]
            return bool(common) and (bool(self._counts[guest_side, True]) or bool(common & self._hostless))
        return not (nodes.isdisjoint(self._hostless) or other_nodes.isdisjoint(self._hostless)) or not (
            run.host and other.host
        )

    def timelines(self, runs: Sequence[Sample]) -> list[list[Sample]]:
        """Return the runs of each machine, or of each two nodes that may be one, in their order.

        Machines with the same runs are one; those with a single run are left out.
        """
        runs_by_host: dict[str, list[int]] = defaultdict(list)
        for index, run in enumerate(runs):
            for host in self._hosts[run.host]:
                runs_by_host[host].append(index)
        lines = {tuple(indices) for indices in runs_by_host.values()}
        if self._hostless:
            lines.update(self._list_lines_of_nodes(runs))
        return [[runs[index] for index in line] for line in sorted(lines) if len(line) > 1]

    def _list_lines_of_nodes(self, runs: Sequence[Sample]) -> Iterator[tuple[int, ...]]:
        """Yield the indices of the runs of each node, and of each two nodes that may be one machine."""
        runs_by_node: dict[_Node, list[int]] = defaultdict(list)
        for index, run in enumerate(runs):
            for node in self._nodes[run.side, run.node]:
                runs_by_node[node].append(index)
        kinds = {(*self._kind_of(node), tuple(indices)) for node, indices in runs_by_node.items()}
        here = Counter(map(self._kind_of, runs_by_node))
        # Nodes of other runs are hosts and guests, too; they have no run here.
        kinds |= {(*kind, ()) for kind, count in self._counts.items() if count > here[kind]}
        native, virtual = ([kind[1:] for kind in kinds if kind[0] == side] for side in SIDES)
        couples: Iterable[tuple[_Kind, _Kind]] = product(native, virtual)
        if _are_sides_apart(runs):
            # No run disturbs one of the other side, of whose nodes it matters only if their hosts are known.
            without_runs = [{(is_hostless, ()) for is_hostless, _ in nodes} for nodes in (native, virtual)]
            couples = chain(product(native, without_runs[1]), product(without_runs[0], virtual))
        yield from (indices for _, is_hostless, indices in kinds if is_hostless)
        for (is_hostless, indices), (is_other_hostless, others) in couples:
            line = [index for index in indices if is_other_hostless or not runs[index].host]
            line += [index for index in others if is_hostless or not runs[index].host]
            yield tuple(sorted(line))

    def _kind_of(self, node: _Node) -> tuple[Side, bool]:
        return node[0], node in self._hostless


def _are_sides_apart(runs: Sequence[Sample]) -> bool:
    """Return whether no native run overlaps a virtual one, and no run lies between two of another pair."""
    times = [(run.start, run.end) for run in runs]
    ends = dict.fromkeys(SIDES, -math.inf)
    first: dict[int, int] = {}
    for index, run in enumerate(runs):
        begin = first.setdefault(run.number, index)
        lies_between = bisect_left(times, times[index]) > bisect_right(times, times[begin])
        if lies_between or run.start < ends[SIDES[run.side == "native"]]:
            return False
        ends[run.side] = max(ends[run.side], run.end)
    return True
