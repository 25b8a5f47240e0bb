"""Runs that are slow or lost now and then: counted by side over a session, and compared by an exact test.

A guest that takes twice as long in one run of ten has about the mean of one that is always a little slower.
A guest that hangs in one run of ten may be as fast as native in the others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel

from virtqual.files.wording import pluralize
from virtqual.verdict.case import Case
from virtqual.verdict.estimate import Floats, Ints, append_mean
from virtqual.verdict.labels import NATIVE_AND_VIRTUAL, Labels
from virtqual.verdict.notation import MAX_LOG
from virtqual.verdict.pairs import SIDES, Machines, Pair, Sample, Series, Side

SLOW = math.log(1.25)
"""How much longer than the typical run of its side a slow run takes: more than a budget with its margin."""

SLOW_SIGMAS = 5.0
"""Standard deviations of a run's noise that a slow run exceeds: less than one in a million Gaussian runs."""

SLOW_ALPHA = 0.002
"""Error rate of the test, a fifth of the session's 1 %: nine slow runs on one side, none on the other."""

LOST_SHARE = 0.05
"""Share of its runs that a build must not lose, beyond those that native runs lose."""

LOST_LEVEL = 0.01
"""Chance that a build of `LOST_SHARE` has lost as few runs when its losses no longer forbid WITHIN."""


def slowness(runs: Floats, sigma: ArrayLike) -> Floats:
    """Return how much longer than the typical run of its side each slow run took, log units; 0 for others.

    The typical run is the lower median: of four runs two may be slow. The noise is the wider of the known
    noise and that of the faster half of the runs.

    Parameters
    ----------
    runs
        Logarithms of the cost of each run, of a curve the mean over its sizes, shape (..., n_runs).
    sigma
        Standard deviation of a pair's difference, broadcastable to (...).
    """
    n = runs.shape[-1]
    ordered = np.sort(runs, axis=-1)
    typical = ordered[..., (n - 1) // 2 : (n - 1) // 2 + 1]
    # Below the median there are no slow runs, so that their own number does not hide them.
    below = np.sort(np.maximum(typical - runs, 0), axis=-1)[..., -((n + 3) // 4) : None]
    run_sigma = np.maximum(np.asarray(sigma)[..., None] / math.sqrt(2), below.mean(axis=-1, keepdims=True))
    excess: Floats = runs - typical
    return np.where(excess > np.maximum(SLOW, SLOW_SIGMAS * run_sigma), excess, 0.0)


def p_value(
    virtual: Ints | int, virtual_runs: Ints | int, native: Ints | int, native_runs: Ints | int
) -> Floats:
    """Return the p-value of "virtual runs are slow no more often than native ones" (Fisher, one-sided)."""
    from scipy import stats  # slow to import, and not needed by the processes of checks

    slow, runs = np.add(virtual, native), np.add(virtual_runs, native_runs)
    return np.asarray(stats.hypergeom.sf(np.subtract(virtual, 1), runs, virtual_runs, slow))


def count_runs_to_clear(lost: int) -> int:
    """Return of how many runs so few may be lost: a build of `LOST_SHARE` would have lost more.

    Examples
    --------
    >>> [count_runs_to_clear(lost) for lost in (0, 1, 2, 3)]
    [0, 130, 165, 198]
    """
    from scipy import special

    if lost <= 0:
        return 0
    # Twice as many losses as there were, and ten, are expected of the last of these.
    runs = np.arange(lost, int((2 * lost + 10) / LOST_SHARE))
    return int(runs[np.argmax(special.bdtr(lost, runs, LOST_SHARE) <= LOST_LEVEL)])


class LostRun(BaseModel, extra="forbid", frozen=True):
    """A run without a value that counts."""

    side: Side
    #: The check or the series that it is of; empty for a node that was lost.
    of: str
    #: None for a warm-up, and for a node that was lost.
    pair: int | None = None
    reason: str
    #: Seconds since the epoch; None if unknown.
    start: float | None = None
    end: float | None = None
    node: str = ""
    host: str = ""
    #: It is no evidence if it was preempted, cancelled or cut off, or if its host failed, too.
    counts: bool = True

    @property
    def sample(self) -> Sample:
        """The run as a sample without values."""
        start, end = (math.nan if time is None else time for time in (self.start, self.end))
        number = -1 if self.pair is None else self.pair
        return Sample(self.side, number, (), start, end, (self.reason,), node=self.node, host=self.host)

    @property
    def name(self) -> str:
        """Side, pair and check in words."""
        place = "" if self.pair is None else f"pair {self.pair} "
        return f"{place}{self.side} {self.of}".strip()


class SlowRuns(BaseModel, extra="forbid", frozen=True):
    """The slow and the lost runs of each side in one session or several."""

    #: How many times runs of the side were slow; see `count_events`.
    virtual: int = 0
    #: Number of all runs.
    virtual_runs: int = 0
    native: int = 0
    native_runs: int = 0
    #: How many times runs of the side were lost.
    virtual_lost: int = 0
    native_lost: int = 0
    #: How many times as long as a typical run a slow virtual run takes, the median; 0 if none is slow.
    factor: float = 0.0
    #: Number of boots in which virtual runs were slow or lost.
    boots: int = 0
    #: True if virtual runs are slow or lost more often than native ones.
    found: bool = False
    #: The same in words.
    text: str = ""
    #: Virtual runs without a loss after which the losses no longer forbid WITHIN; 0 if they do not.
    more_runs: int = 0
    #: Why they forbid it.
    lost_text: str = ""
    #: The lost runs of this session by time, those that do not count included.
    lost: tuple[LostRun, ...] = ()

    def __add__(self, other: SlowRuns) -> SlowRuns:
        return SlowRuns(
            virtual=self.virtual + other.virtual,
            virtual_runs=self.virtual_runs + other.virtual_runs,
            native=self.native + other.native,
            native_runs=self.native_runs + other.native_runs,
            virtual_lost=self.virtual_lost + other.virtual_lost,
            native_lost=self.native_lost + other.native_lost,
            boots=self.boots + other.boots,
            factor=self.factor or other.factor,
        )

    @property
    def p(self) -> float:
        """The `p_value` of slow and lost runs together."""
        virtual, native = self.virtual + self.virtual_lost, self.native + self.native_lost
        return float(p_value(virtual, self.virtual_runs, native, self.native_runs))

    @property
    def runs_to_clear(self) -> int:
        """How many more virtual runs without a loss it takes; see `count_runs_to_clear`."""
        return max(count_runs_to_clear(self.virtual_lost - self.native_lost) - self.virtual_runs, 0)

    def judge(
        self, before: SlowRuns, alpha: float, min_boots: int, labels: Labels = NATIVE_AND_VIRTUAL
    ) -> SlowRuns:
        """Return these slow and lost runs, tested at the error rate `alpha` together with earlier ones."""
        together = self + before
        note = ", with earlier sessions of this build" if before.virtual_runs else ""
        own = self.virtual + self.virtual_lost
        # Earlier sessions count only together with an event of this one: they were judged in their time.
        if own > 0 and alpha > 0 and together.p <= alpha and together.boots >= min_boots:
            return self.model_copy(update={"found": True, "text": f"{together._describe_test(labels)}{note}"})
        if more := together.runs_to_clear:
            return self.model_copy(
                update={"more_runs": more, "lost_text": f"{together._describe_losses(more, labels)}{note}"}
            )
        return self

    def _describe_test(self, labels: Labels) -> str:
        parts = {}
        for side, slow, lost, factor in (
            ("virtual", self.virtual, self.virtual_lost, f" ({self.factor:.1f}x)" if self.factor else ""),
            ("native", self.native, self.native_lost, ""),
        ):
            times = (
                [f"slow{factor} {slow} times"] if slow or not (self.virtual_lost or self.native_lost) else []
            )
            times += [f"lost {lost} times"] if self.virtual_lost or self.native_lost else []
            parts[side] = " and ".join(times)
        return (
            f"{labels.candidate} runs were {parts['virtual']} in {self.virtual_runs} runs, "
            f"{labels.reference} runs {parts['native'].removeprefix('slow ')} in {self.native_runs}"
        )

    def _describe_losses(self, more: int, labels: Labels) -> str:
        reference = f"{self.native_lost or 'no'} {labels.reference} {'ones' if self.native_lost else 'one'}"
        verb = "was" if self.virtual_lost == 1 else "were"
        runs = pluralize(self.virtual_runs, f"{labels.candidate} run")
        return (
            f"{self.virtual_lost} of {runs} {verb} lost, and {reference}: a {labels.build} that loses one "
            f"run in twenty looks the same; {more} more {labels.candidate} runs without a loss decide"
        )


NO_SLOW_RUNS = SlowRuns()


@dataclass(eq=False)
class _Runs:
    """The runs of a session with how much longer than usual each took, infinite if it was lost."""

    found: dict[Hashable, tuple[Sample, float]] = field(default_factory=dict)
    #: The series in which a lost run lacks a value.
    lost_in: dict[Hashable, list[str]] = field(default_factory=dict)
    #: The runs of both sides that make a pair, each by the other.
    _peers: dict[Hashable, Hashable] = field(default_factory=dict)

    def add(self, run: Hashable, sample: Sample, excess: float, series: str) -> None:
        """Add a sample: a run is as slow as the slowest of its metrics, and lost if one of them is."""
        self.found[run] = max(self.found.get(run, (sample, 0.0)), (sample, excess), key=itemgetter(1))
        if math.isinf(excess):
            self.lost_in.setdefault(run, []).append(series)

    def add_complete(self, case: Case) -> None:
        """Add the runs of pairs that count, and of those that have both samples, of which one is lost."""
        series, valid = case.series, case.series.valid
        runs = append_mean(series.costs(valid))[..., -1]
        excesses = slowness(runs, case.sigma[-1]).T.tolist() if valid else ()
        for pair, both in zip(valid, excesses, strict=True):
            self._add_pair(series, pair, both)
        for pair in series.pairs:
            if len(pair.samples) == len(SIDES) and pair.has_lost_run:
                self._add_pair(series, pair, [math.inf if run.refused else 0.0 for run in pair.samples])

    def _add_pair(self, series: Series, pair: Pair, excesses: Sequence[float]) -> None:
        # Without times it is unknown which samples are of one run.
        runs = [(series.id, *run.run) if pair.untimed else run.run for run in pair.samples]
        self._peers |= {runs[0]: runs[1], runs[1]: runs[0]}
        for run, sample, excess in zip(runs, pair.samples, excesses, strict=True):
            self.add(run, sample, excess, series.id)

    def add_halves(self, series: Series) -> None:
        """Add the runs of pairs that have one sample; the other is lost if that one counts."""
        for pair in series.pairs:
            if len(pair.samples) != 1:
                continue
            (sample,) = pair.samples
            run: Hashable = (series.id, *sample.run) if pair.untimed else sample.run
            self.add(run, sample, math.inf if sample.refused else 0.0, series.id)
            if not sample.refused and pair.number not in series.cut_off:
                # Another of its metrics may have a value.
                peer = self._peers.get(run, ("peer", run))
                self.add(peer, _make_missing(series, sample), math.inf, series.id)

    def list_lost(self) -> Iterator[LostRun]:
        """Yield the lost runs, with their series."""
        for run, names in self.lost_in.items():
            sample = self.found[run][0]
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            times = [None if math.isnan(time) else time for time in (sample.start, sample.end)]
            yield LostRun(
                side=sample.side,
                of=f"{names[0]}{more}",
                pair=sample.number,
                reason="; ".join(sample.invalid) or "a value is no positive number",
                start=times[0],
                end=times[1],
                node=sample.node,
                host=sample.host,
            )


def _make_missing(series: Series, peer: Sample) -> Sample:
    """Return a sample in place of a missing one, after its peer, on the node of its side's nearest run."""
    side = SIDES[peer.side == "native"]
    of_side = [sample for pair in series.pairs for sample in pair.samples if sample.side == side]
    nearest = min(
        of_side, key=lambda sample: abs(sample.number - peer.number), default=replace(peer, node="")
    )
    made = replace(nearest, side=side, number=peer.number, values=(), invalid=("left no value",))
    return replace(made, start=peer.end, end=peer.end)


def slow_runs_of(cases: Iterable[Case], lost: Iterable[LostRun] = ()) -> SlowRuns:
    """Count how often runs are slow or lost; a run is so once, however many of its metrics are.

    Parameters
    ----------
    cases
        One for each series.
    lost
        Runs that left nothing from which a sample could be made.
    """
    runs, cases, lost = _Runs(), list(cases), list(lost)
    for case in cases:
        runs.add_complete(case)
    for case in cases:
        runs.add_halves(case.series)
    of_series = list(runs.list_lost())
    for index, run in enumerate(lost):
        if run.counts:
            runs.found["lost", index] = (run.sample, math.inf)
    entries = list(runs.found.values())
    bad = [entry for entry in entries if entry[0].side == "virtual" and entry[1] > 0]
    slow = [excess for _, excess in bad if not math.isinf(excess)]
    counts = Counter(sample.side for sample, _ in entries)
    events, lost_events = count_events(entries), count_events(entries, only_lost=True)
    return SlowRuns(
        virtual=events["virtual"] - lost_events["virtual"],
        virtual_runs=counts["virtual"],
        native=events["native"] - lost_events["native"],
        native_runs=counts["native"],
        virtual_lost=lost_events["virtual"],
        native_lost=lost_events["native"],
        boots=_count_boots(entries, [sample for sample, _ in bad]),
        factor=math.exp(min(float(np.median(slow)), MAX_LOG)) if slow else 0.0,
        lost=tuple(sorted([*of_series, *lost], key=lambda run: run.start or 0.0)),
    )


def _count_boots(entries: Iterable[tuple[Sample, float]], bad: Iterable[Sample]) -> int:
    """Return in how many boots runs were slow or lost; a lost run was in the boot of the run before it."""
    known = sorted((sample for sample, _ in entries if sample.boot), key=attrgetter("start"))
    boots = set()
    for sample in bad:
        before = [run for run in known if run.start <= sample.start] or known[:1]
        boots.add(sample.boot or (before[-1].boot if before else ""))
    return len(boots)


def count_events(runs: Collection[tuple[Sample, float]], *, only_lost: bool = False) -> Counter[Side]:
    """Count the events that made runs of one side slow; `runs` are those of a session with their `slowness`.

    Slow and lost runs that follow each other on a machine, or overlap, are one event; one of both sides is
    left out. With `only_lost` events without a lost run are not counted.
    """
    events = [event for event in _list_events(runs) if not only_lost or any(map(_is_lost, event))]
    sides = [{sample.side for sample, _ in event} for event in events]
    return Counter(names.pop() for names in sides if len(names) == 1)


def _is_lost(run: tuple[Sample, float]) -> bool:
    return math.isinf(run[1])


def _list_events(runs: Collection[tuple[Sample, float]]) -> list[list[tuple[Sample, float]]]:
    """Return the slow and lost runs of each event."""
    # Runs without times cannot be ordered: each slow one is an event.
    events = [[(sample, excess)] for sample, excess in runs if sample.untimed and excess > 0]
    lasting: list[list[tuple[Sample, float]]] = []
    timed = [(sample.start, -excess, sample) for sample, excess in runs if not sample.untimed]
    machines = Machines(sample for _, _, sample in timed)
    for start, speed, sample in sorted(timed, key=itemgetter(0, 1)):
        near = [event for event in lasting if any(machines.meet(run, sample) for run, _ in event)]
        if speed < 0 and near:
            near[0].append((sample, -speed))
        elif speed < 0:
            events.append([(sample, -speed)])
            lasting.append(events[-1])
        elif near:
            lasting = [event for event in lasting if event not in near or event[-1][0].end > start]
    return events
