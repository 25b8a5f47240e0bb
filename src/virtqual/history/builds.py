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

#: Prefix of the facts that define a build.
BUILD_PREFIX = "hypervisor "
#: The fact that is the build's name.
_NAME_FACT = BUILD_PREFIX + "build"
#: Facts that differ from session to session by themselves.
_SESSION_FACTS = ("label", "system", "class")
#: A history that shows only larger changes of ln(virtual/native) than this has too few sessions.
MAX_DETECTABLE_LOG = math.log(100)
#: A digest is shown by its first 12 digits.
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
    """One metric over the sessions that have it, in the order of builds, then of time."""

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
        """Variance of each session's overhead, between sessions of one build included; shape (n,)."""
        variances: Floats = self.history.variance + self.changes.between**2
        return variances

    @property
    def levels(self) -> list[Level]:
        """The overhead of each build, in the order of builds."""
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
        """Number of changes, such as ``2 steps``; empty if there is none."""
        parts = [pluralize(len(self.changes.steps), "step")] if self.changes.steps else []
        if self.changes.drift:
            parts.append("a drift")
        return " and ".join(parts)

    @property
    def outcome(self) -> str:
        """The summary of changes, or the smallest step that the history would show."""
        if not self.summary and self.changes.least > MAX_DETECTABLE_LOG:
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
    sessions
        In the order of builds, then of time.
    builds
        Names of the builds, in the order of their first sessions.
    metrics
        In the order of their largest change, the largest first.
    numbers
        The number of each build, by `build_of`.
    """

    system: str
    hypervisor_class: str
    sessions: tuple[Summary, ...]
    builds: tuple[str, ...]
    metrics: tuple[MetricHistory, ...]
    numbers: Mapping[tuple[str, ...], int]

    @property
    def title(self) -> str:
        """System, class, numbers of sessions and builds, and days."""
        days = sorted(f"{session.created:%Y-%m-%d}" for session in self.sessions)
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

    A session without virtual values is left out if other sessions have some: its build is unknown.
    """
    by_time = sorted(nights, key=lambda night: night.created)
    in_time = [
        night for night in by_time if any(verdict.virtual is not None for verdict in night.verdicts)
    ] or by_time
    keys = dict.fromkeys(map(build_of, in_time))
    number = {key: index for index, key in enumerate(keys)}
    ordered = sorted(in_time, key=lambda night: (number[build_of(night)], night.created))
    rows_by_metric: dict[tuple[str, str], list[tuple[int, Verdict]]] = defaultdict(list)
    for index, night in enumerate(ordered):
        for verdict in night.verdicts:
            usable = verdict.overhead is not None and verdict.spread is not None
            # A session that also judges a change has two verdicts on one overhead.
            rows = rows_by_metric[verdict.metric, verdict.setting]
            if usable and verdict.outcome is not Outcome.INVALID and (not rows or rows[-1][0] != index):
                rows.append((index, verdict))
    builds = np.array([number[build_of(night)] for night in ordered], dtype=np.int64)
    rank = {night.session: index for index, night in enumerate(in_time)}
    measured = {metric: rows for metric, rows in rows_by_metric.items() if rows}
    metrics = []
    for (metric, setting), rows in measured.items():
        indices = [index for index, _ in rows]
        sessions, verdicts = tuple(ordered[i] for i in indices), tuple(verdict for _, verdict in rows)
        order = np.argsort(np.argsort([rank[session.session] for session in sessions]))
        history = _make_history(builds[indices], verdicts, order)
        metrics.append(
            MetricHistory(
                metric, setting, verdicts[0].better, sessions, history, changes(history, len(measured))
            )
        )
    metrics.sort(key=_largest_change, reverse=True)
    return Place(system, hypervisor_class, tuple(ordered), tuple(_names(keys)), tuple(metrics), number)


def _make_history(builds: Ints, verdicts: Sequence[Verdict], order: Ints) -> History:
    spreads = np.array([verdict.spread for verdict in verdicts], dtype=np.float64)
    pairs = np.array([verdict.pairs for verdict in verdicts])
    sign = 1 if verdicts[0].better == "lower" else -1
    native, virtual = (
        sign * np.log([value or math.nan for value in side])
        for side in ([verdict.native for verdict in verdicts], [verdict.virtual for verdict in verdicts])
    )
    log = np.array([verdict.overhead.log if verdict.overhead else math.nan for verdict in verdicts])
    return History(builds, log, shrunk(spreads**2, pairs) / pairs, native, virtual, order)


def shrunk(variances: Floats, pairs: Ints) -> Floats:
    """Return the variances of pairs of a metric's sessions, shrunk towards their common variance.

    The variance of four pairs is uncertain, and a session could weigh many times as much as another by
    chance. Nights do differ: the common variance therefore counts for `MAX_HISTORY_DF` degrees of freedom.
    """
    df = pairs - 1
    common = float((df * variances).sum() / df.sum())
    drawn: Floats = (MAX_HISTORY_DF * common + df * variances) / (MAX_HISTORY_DF + df)
    return np.maximum(drawn, 1e-12)


def build_of(session: Summary) -> tuple[str, ...]:
    """Return all that makes a build what it is: sessions of one build are equal in it."""
    own = tuple(f"{name}: {word}" for name, word in session.facts.items() if name.startswith(BUILD_PREFIX))
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


def _largest_change(metric: MetricHistory) -> float:
    drift = metric.changes.drift
    total = abs(drift.rate) * len(metric.sessions) if drift else 0.0
    return max([total, *(abs(step.size) for step in metric.changes.steps)])


def changed(before: Summary, after: Summary) -> Iterator[tuple[str, str, str]]:
    """Yield what else two sessions differ in, beside the build's name: the facts, before, after.

    Facts that changed alike are named together.
    """
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in dict.fromkeys((*before.facts, *after.facts)):
        then, now = (session.facts.get(name, "not said") for session in (before, after))
        if name not in _SESSION_FACTS and then != now:
            alike[_differing(then, now)].append(name)
    for (then, now), names in alike.items():
        # The place already names the builds.
        if _NAME_FACT not in names:
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
class ChangeText:
    """The text of a change: its place and its metrics.

    Attributes
    ----------
    where
        Such as ``between QEMU 9.1 and QEMU 9.2``.
    metrics
        The name of each metric that changed at this place, and the size of its change.
    notes
        Other facts that changed, marks, and the build to measure next; a sentence each.
    """

    where: str
    metrics: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def describe_changes(place: Place, marks: Sequence[Mark]) -> list[ChangeText]:
    """Return the texts of all steps in the order of builds, and of drifts after them."""
    steps: dict[tuple[Any, ...], list[tuple[MetricHistory, Step]]] = defaultdict(list)
    for metric in place.metrics:
        for step in metric.changes.steps:
            ends = metric.sessions[step.first - 1], metric.sessions[step.last]
            within = [end.session for end in ends] if step.cause == "within" else []
            steps[*map(place.number, ends), step.cause, *within].append((metric, step))
    texts = [_describe_steps(place, steps[key], marks) for key in sorted(steps)]
    for metric in place.metrics:
        if metric.changes.drift:
            texts.append(_describe_drift(metric, metric.changes.drift))
    return texts


def _describe_steps(
    place: Place, steps: Sequence[tuple[MetricHistory, Step]], marks: Sequence[Mark]
) -> ChangeText:
    """Return the text of the steps of several metrics at one place."""
    metric, step = steps[0]
    first, last = metric.sessions[step.first - 1], metric.sessions[step.last]
    before, after = first, last
    where = f"between {place.build(first)} and {place.build(last)}"
    if step.cause == "within":
        sessions = f"{first.session} and {last.session}"
        where = f"between two sessions of {place.build(last)}, {sessions}: the machine's, or the boot's"
    else:
        # The sessions of both builds that are nearest in time differ in the fewest other facts.
        first_nights, last_nights = (
            [session for session in place.sessions if place.number(session) == place.number(end)]
            for end in (first, last)
        )
        before, after = min(
            product(first_nights, last_nights), key=lambda pair: abs(pair[1].created - pair[0].created)
        )
        if step.cause == "native":
            where += ", by the native side alone: the machine's, and not the build's"
    texts = [f"changed with it: {names}: {old} -> {new}" for names, old, new in changed(before, after)]
    for mark in marks_between(marks, place.system, *sorted((before.created, after.created))):
        texts.append(f"marked between them: {mark.what}, {mark.date}")
    if step.cause == "build":
        texts.append(_next_build(place, place.number(first), place.number(last)))
    return ChangeText(where, tuple((metric.name, _format_size(step)) for metric, step in steps), tuple(texts))


def _format_size(step: Step) -> str:
    """Return such as ``1.22x slower (1.20-1.24)``, with the ends of an interval of 95 %."""
    size, reach = abs(step.size), 1.96 * step.error
    ends = format_range(math.exp(size - reach), math.exp(size + reach))
    return f"{format_ratio(math.exp(size))} {_direction(step.size)} ({ends})"


def _direction(change: float) -> str:
    return "slower" if change > 0 else "faster"


def _next_build(place: Place, first: int, last: int) -> str:
    """Return which build to measure next: the middle one of the builds that the step may lie between."""
    if last - first > 1:
        return f"test next: {place.builds[(first + last) // 2]}, which is in the middle of these"
    return "test next: a build from between these two, if there is one; else what changed, one at a time"


def _describe_drift(metric: MetricHistory, drift: Drift) -> ChangeText:
    """Return the text of a drift."""
    since, noticed = (metric.in_time(number).session for number in (drift.since, drift.noticed))
    size = f"{abs(math.expm1(drift.rate)):.2%} (standard error {drift.error:.2%})"
    rate = f"{size} {_direction(drift.rate)} a session"
    return ChangeText(f"a drift since {since}, noticed at {noticed}", ((metric.name, rate),), ())


def notes(place: Place, marks: Iterable[Mark], waivers: Iterable[Waiver]) -> Iterator[str]:
    """Yield the marks of a system, and the waivers of its class."""
    yield from (f"{mark.date}: {mark.what}" for mark in marks if mark.system in ("", place.system))
    today = datetime.now(UTC).date()
    for waiver in waivers:
        if waiver.hypervisor_class == place.hypervisor_class:
            yield f"{waiver.build}: {waiver.text(today)}"


def marks_between(marks: Iterable[Mark], system: str, begin: datetime, end: datetime) -> list[Mark]:
    """Return the marks of a system from one time to another, in either order."""
    days = sorted((begin.date(), end.date()))
    return [mark for mark in marks if mark.system in ("", system) and days[0] <= mark.date <= days[1]]
