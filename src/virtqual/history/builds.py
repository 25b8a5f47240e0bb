"""The history of builds: which build made which metric slower, since when, and what else changed with it."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from typing import Any

import numpy as np

from virtqual.files.wording import pluralize
from virtqual.history.change_points import Changes, Drift, History, Step, changes
from virtqual.references.marks import Mark
from virtqual.session.summary import Summary
from virtqual.verdict import Outcome, Verdict
from virtqual.verdict.estimate import MAX_HISTORY_DF, Floats, Ints
from virtqual.verdict.outcome import format_range, format_ratio
from virtqual.verdict.waiver import Waiver

#: Facts that make a build what it is begin so; other facts may change with it.
BUILD = "hypervisor "
#: The fact that is the build's name.
_NAME = BUILD + "build"
#: Facts that differ from session to session by themselves.
_OWN = ("label", "system", "class")
#: A history that would show no smaller change of ln(virtual/native) than this says nothing.
MOST = math.log(100)
#: Of a digest people compare the beginning.
_DIGEST = re.compile(r"\b[0-9a-f]{40,}\b")


@dataclass(frozen=True)
class Level:
    """The overhead of one build over its sessions: ln(virtual/native), positive is worse, and its error."""

    build: int
    log: float
    error: float
    better: str

    @property
    def text(self) -> str:
        """Such as ``1.05x (1.03-1.07)``, with the ends of an interval of 95 %."""
        sign = 1 if self.better == "lower" else -1
        ends = sorted(math.exp(sign * (self.log + side * 1.96 * self.error)) for side in (-1, 1))
        return f"{format_ratio(math.exp(sign * self.log))} ({format_range(*ends)})"


@dataclass(frozen=True)
class MetricHistory:
    """One metric over the sessions that have it.

    Attributes
    ----------
    metric, setting, better
        Which.
    sessions
        Those that have it, in the order of builds, then of time.
    history
        Its numbers, in the same order.
    changes
        What they show.
    """

    metric: str
    setting: str
    better: str
    sessions: tuple[Summary, ...]
    history: History
    changes: Changes

    @property
    def name(self) -> str:
        """Metric and setting, for people."""
        return f"{self.metric} {self.setting}"

    @property
    def variances(self) -> Floats:
        """Of each session's overhead, with what sessions of one build vary by; shape (n,)."""
        variances: Floats = self.history.variance + self.changes.between**2
        return variances

    @property
    def levels(self) -> list[Level]:
        """The overhead of each build, in their order."""
        weights = 1 / self.variances
        return [
            Level(
                int(build),
                float(np.average(self.history.log[of], weights=weights[of])),
                1 / math.sqrt(float(weights[of].sum())),
                self.better,
            )
            for build in np.unique(self.history.builds)
            for of in [self.history.builds == build]
        ]

    @property
    def summary(self) -> str:
        """How much changed, such as ``2 steps``; empty if nothing did."""
        steps = [pluralize(len(self.changes.steps), "step")] if self.changes.steps else []
        return " and ".join(steps + ["a drift"] * bool(self.changes.drift))

    @property
    def outcome(self) -> str:
        """What changed, or from what size on a step would have shown."""
        if not self.summary and self.changes.least > MOST:
            return "too few sessions"
        return self.summary or f"none >= {format_ratio(math.exp(self.changes.least), short=True)}x"

    def in_time(self, number: int) -> Summary:
        """Return a session by its place in time."""
        return self.sessions[int(np.argsort(self.history.order)[number])]


@dataclass(frozen=True)
class Place:
    """The history of one system and class.

    Attributes
    ----------
    system, hypervisor_class
        Which.
    sessions
        In the order of builds, then of time.
    builds
        Names of the builds, in the order of their first sessions.
    metrics
        Those that changed first, the largest change first.
    numbers
        The number of each build, by all that makes it what it is.
    """

    system: str
    hypervisor_class: str
    sessions: tuple[Summary, ...]
    builds: tuple[str, ...]
    metrics: tuple[MetricHistory, ...]
    numbers: Mapping[tuple[str, ...], int]

    @property
    def title(self) -> str:
        """System, class, and of what it is made."""
        days = sorted(f"{one.created:%Y-%m-%d}" for one in self.sessions)
        return (
            f"{self.system} {self.hypervisor_class}: {pluralize(len(self.sessions), 'session')} of "
            f"{pluralize(len(self.builds), 'build')}, {' to '.join(dict.fromkeys((days[0], days[-1])))}"
        )

    def build(self, session: Summary) -> str:
        """Return the name of a session's build."""
        return self.builds[self.number(session)]

    def number(self, session: Summary) -> int:
        """Return the number of a session's build."""
        return self.numbers[build_of(session)]


def place_of(system: str, hypervisor_class: str, nights: Iterable[Summary]) -> Place:
    """Return the history of a system and class; `nights` are its sessions in any order.

    A session that measured nothing in VMs is left out where others did: no run says which build it was.
    """
    every = sorted(nights, key=lambda one: one.created)
    in_time = [night for night in every if any(one.virtual is not None for one in night.verdicts)] or every
    keys = dict.fromkeys(map(build_of, in_time))
    number = {key: index for index, key in enumerate(keys)}
    ordered = sorted(in_time, key=lambda one: (number[build_of(one)], one.created))
    found: dict[tuple[str, str], list[tuple[int, Verdict]]] = defaultdict(list)
    for index, one in enumerate(ordered):
        for verdict in one.verdicts:
            usable = verdict.overhead is not None and verdict.spread is not None
            # A session that judges the change, too, has two verdicts on one overhead.
            seen = found[verdict.metric, verdict.setting]
            if usable and verdict.outcome is not Outcome.INVALID and (not seen or seen[-1][0] != index):
                seen.append((index, verdict))
    builds = np.array([number[build_of(one)] for one in ordered], dtype=np.int64)
    rank = {one.session: index for index, one in enumerate(in_time)}
    known = {which: rows for which, rows in found.items() if rows}
    metrics = []
    for (metric, setting), rows in known.items():
        where = [index for index, _ in rows]
        sessions, verdicts = tuple(ordered[i] for i in where), tuple(verdict for _, verdict in rows)
        in_order = np.argsort(np.argsort([rank[one.session] for one in sessions]))
        history = _history(builds[where], verdicts, in_order)
        found_here = changes(history, len(known))
        metrics.append(MetricHistory(metric, setting, verdicts[0].better, sessions, history, found_here))
    metrics.sort(key=_largest, reverse=True)
    return Place(system, hypervisor_class, tuple(ordered), tuple(_names(keys)), tuple(metrics), number)


def _history(builds: Ints, verdicts: Sequence[Verdict], order: Ints) -> History:
    spreads = np.array([one.spread for one in verdicts], dtype=np.float64)
    pairs = np.array([one.pairs for one in verdicts])
    sign = 1 if verdicts[0].better == "lower" else -1
    native, virtual = (
        sign * np.log([value or math.nan for value in side])
        for side in ([one.native for one in verdicts], [one.virtual for one in verdicts])
    )
    log = np.array([verdict.overhead.log if verdict.overhead else math.nan for verdict in verdicts])
    return History(builds, log, shrunk(spreads**2, pairs) / pairs, native, virtual, order)


def shrunk(variances: Floats, pairs: Ints) -> Floats:
    """Return the variances of pairs of a metric's sessions, each drawn to what all of them show.

    Of four pairs a variance is hardly known, and by chance a session would weigh many times what another
    one does; but nights do differ, so that the others count for `MAX_HISTORY_DF` degrees of freedom.
    """
    df = pairs - 1
    usual = float((df * variances).sum() / df.sum())
    drawn: Floats = (MAX_HISTORY_DF * usual + df * variances) / (MAX_HISTORY_DF + df)
    return np.maximum(drawn, 1e-12)


def build_of(session: Summary) -> tuple[str, ...]:
    """Return all that makes a build what it is: sessions of one build are equal in it."""
    own = tuple(f"{name}: {word}" for name, word in session.facts.items() if name.startswith(BUILD))
    return session.hypervisor, *own


def _names(keys: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield a name for each build: those of the same name get what not all of them have."""
    listed = list(keys)
    alike: dict[str, list[set[str]]] = defaultdict(list)
    for key in listed:
        alike[key[0]].append(set(_words(key)))
    for key in listed:
        common = set.intersection(*alike[key[0]])
        own = [word for word in _words(key) if word not in common]
        yield key[0] if len(alike[key[0]]) == 1 else f"{key[0]} [{' '.join(own) or 'nothing of the others'}]"


def _words(key: tuple[str, ...]) -> list[str]:
    return [word for fact in key[1:] for word in fact.partition(": ")[2].split()]


def _largest(one: MetricHistory) -> float:
    drift = abs(one.changes.drift.rate) * len(one.sessions) if one.changes.drift else 0.0
    return max([drift, *(abs(step.size) for step in one.changes.steps)])


def changed(before: Summary, after: Summary) -> Iterator[tuple[str, str, str]]:
    """Yield what else two sessions differ in, beside the build's name: the facts, before, after.

    Facts that changed alike are named together.
    """
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in dict.fromkeys((*before.facts, *after.facts)):
        then, now = (one.facts.get(name, "not said") for one in (before, after))
        if name not in _OWN and then != now:
            alike[_differing(then, now)].append(name)
    for (then, now), names in alike.items():
        # What says the same as the build's name is told by that.
        if _NAME not in names:
            yield ", ".join(names), then, now


def _differing(then: str, now: str) -> tuple[str, str]:
    """Return two words of a fact as people compare them: settings that differ, the start of a digest."""
    words = [_DIGEST.sub(lambda digest: digest[0][:12], word).split() for word in (then, now)]
    if any("=" in word for word in words[0] + words[1]):
        own = [[word for word in words[side] if word not in words[1 - side]] for side in (0, 1)]
        words = own if any(own) else words
    before, after = (" ".join(side) or "nothing" for side in words)
    return before, after


@dataclass(frozen=True)
class Told:
    """What people are told of a change: where it is, and in which metrics.

    Attributes
    ----------
    where
        Such as ``between QEMU 9.1 and QEMU 9.2``.
    metrics
        The name of each metric that changed there, and how it did.
    notes
        What changed with it, what people marked there, and what to measure next; a sentence each.
    """

    where: str
    metrics: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def told(place: Place, marks: Sequence[Mark]) -> list[Told]:
    """Return all changes in the order of builds, and drifts after them."""
    steps: dict[tuple[Any, ...], list[tuple[MetricHistory, Step]]] = defaultdict(list)
    for one in place.metrics:
        for step in one.changes.steps:
            ends = one.sessions[step.first - 1], one.sessions[step.last]
            within = [end.session for end in ends] if step.cause == "within" else []
            steps[*map(place.number, ends), step.cause, *within].append((one, step))
    drifts = [(one, one.changes.drift) for one in place.metrics if one.changes.drift]
    return [_step(place, steps[key], marks) for key in sorted(steps)] + [_drift(*each) for each in drifts]


def _step(place: Place, those: Sequence[tuple[MetricHistory, Step]], marks: Sequence[Mark]) -> Told:
    """Return what is to be said of the steps of several metrics that lie at one place."""
    one, step = those[0]
    first, last = one.sessions[step.first - 1], one.sessions[step.last]
    before, after = (first, last) if step.cause == "within" else _nearest(place, first, last)
    where = f"between {place.build(first)} and {place.build(last)}"
    if step.cause == "within":
        sessions = f"{first.session} and {last.session}"
        where = f"between two sessions of {place.build(last)}, {sessions}: the machine's, or the boot's"
    elif step.cause == "native":
        where += ", by the native side alone: the machine's, and not the build's"
    said = [f"changed with it: {names}: {then} -> {now}" for names, then, now in changed(before, after)]
    for mark in marks_between(marks, place.system, *sorted((before.created, after.created))):
        said.append(f"marked between them: {mark.what}, {mark.date}")
    if step.cause == "build":
        said.append(_next(place, place.number(first), place.number(last)))
    return Told(where, tuple((one.name, _size(step)) for one, step in those), tuple(said))


def _nearest(place: Place, first: Summary, last: Summary) -> tuple[Summary, Summary]:
    """Return two sessions of the builds of two others: those that are nearest in time."""
    these, those = (
        [one for one in place.sessions if place.number(one) == place.number(end)] for end in (first, last)
    )
    return min(product(these, those), key=lambda pair: abs(pair[1].created - pair[0].created))


def _size(step: Step) -> str:
    """Return such as ``1.22x slower (1.20-1.24)``, with the ends of an interval of 95 %."""
    size, reach = abs(step.size), 1.96 * step.error
    ends = format_range(math.exp(size - reach), math.exp(size + reach))
    return f"{format_ratio(math.exp(size))} {_way(step.size)} ({ends})"


def _way(change: float) -> str:
    return "slower" if change > 0 else "faster"


def _next(place: Place, first: int, last: int) -> str:
    """Return which build to measure next: the middle one of those that the step may lie at."""
    if last - first > 1:
        return f"test next: {place.builds[(first + last) // 2]}, which is in the middle of these"
    return "test next: a build from between these two, if there is one; else what changed, one at a time"


def _drift(one: MetricHistory, drift: Drift) -> Told:
    """Return what is to be said of a drift."""
    since, noticed = (one.in_time(number).session for number in (drift.since, drift.noticed))
    rate = (
        f"{abs(math.expm1(drift.rate)):.2%} (standard error {drift.error:.2%}) {_way(drift.rate)} a session"
    )
    return Told(f"a drift since {since}, noticed at {noticed}", ((one.name, rate),), ())


def notes(place: Place, marks: Iterable[Mark], waivers: Iterable[Waiver]) -> Iterator[str]:
    """Yield what people have marked at a system, and what they accept under its class."""
    yield from (f"{one.date}: {one.what}" for one in marks if one.system in ("", place.system))
    today = datetime.now(UTC).date()
    for waiver in waivers:
        if waiver.hypervisor_class == place.hypervisor_class:
            yield f"{waiver.build}: {waiver.text(today)}"


def marks_between(marks: Iterable[Mark], system: str, begin: datetime, end: datetime) -> list[Mark]:
    """Return what people marked at a system from one moment to another, in either order."""
    days = sorted((begin.date(), end.date()))
    return [one for one in marks if one.system in ("", system) and days[0] <= one.date <= days[1]]
