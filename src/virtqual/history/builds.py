"""The history of builds: which build made which metric slower, since when, and what else changed with it."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain, product
from typing import Any

import numpy as np

from virtqual.files.wording import pluralize
from virtqual.history.boots import shrink_variances
from virtqual.history.change_points import Changes, History, Step, find_changes
from virtqual.references.marks import Mark
from virtqual.session.summary import Summary
from virtqual.verdict import Outcome, Verdict
from virtqual.verdict.estimate import Floats, Ints
from virtqual.verdict.notation import Direction, describe_share, describe_slowdown, has_factor, sign_of
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
    better: Direction
    #: One of its sessions shows the overhead as a factor.
    as_factor: bool = False

    @property
    def text(self) -> str:
        """The overhead with its interval of 95 %, such as ``5.0% slower (3.0% to 7.0%)``."""
        return _describe_estimate(self.log, self.error, self.better)

    @property
    def estimate(self) -> str:
        """By how much virtual is slower, as `virtqual show` writes it: ``5.0%``; a minus is faster."""
        as_factor = self.as_factor or has_factor(self.better, self.log)
        return describe_share(self.log, self.better, as_factor=as_factor)


@dataclass(frozen=True)
class MetricHistory:
    """One metric over the sessions that have it, in the order of builds, then of time."""

    #: Metric and setting, for people.
    name: str
    better: Direction
    sessions: tuple[Summary, ...]
    history: History
    changes: Changes
    #: Whether each session shows its overhead as a factor.
    as_factors: tuple[bool, ...]
    #: Budget and margin of the overhead in the last session, of a curve the smallest; ``-`` without one.
    at_most: str = "-"

    @property
    def variances(self) -> Floats:
        """Variance of each session's overhead, between sessions of one build included; shape (n,)."""
        variances: Floats = self.history.variance + self.changes.between**2
        return variances

    @property
    def levels(self) -> list[Level]:
        """The overhead of each build, in the order of builds."""
        levels = []
        for build in np.unique(self.history.builds):
            is_of_build = self.history.builds == build
            weights = 1 / self.variances[is_of_build]
            log = float(np.average(self.history.log[is_of_build], weights=weights))
            as_factor = bool(np.any(is_of_build & np.array(self.as_factors)))
            error = 1 / math.sqrt(float(weights.sum()))
            levels.append(Level(int(build), log, error, self.better, as_factor))
        return levels

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
        return self.summary or f"none above {describe_share(self.changes.least, 'lower')}"

    @property
    def largest_change(self) -> float:
        """The largest change of ln(virtual/native), of a drift over all sessions."""
        drift = self.changes.drift
        total = abs(drift.rate) * len(self.sessions) if drift else 0.0
        return max([total, *(abs(step.size) for step in self.changes.steps)])


@dataclass(frozen=True)
class Place:
    """The history of one system and class."""

    system: str
    hypervisor_class: str
    #: Names of the builds, in the order of their first sessions.
    builds: tuple[str, ...]
    #: The sessions of each build, in the order of time.
    sessions: tuple[list[Summary], ...]
    #: In the order of their largest change, the largest first.
    metrics: tuple[MetricHistory, ...]
    #: Those of the system.
    marks: tuple[Mark, ...]

    @property
    def title(self) -> str:
        """System, class, numbers of sessions and builds, and days."""
        days = sorted(f"{session.created:%Y-%m-%d}" for group in self.sessions for session in group)
        return (
            f"{self.system} {self.hypervisor_class}: {pluralize(len(days), 'session')} of "
            f"{pluralize(len(self.builds), 'build')}, {' to '.join(dict.fromkeys((days[0], days[-1])))}"
        )


def make_place(
    system: str, hypervisor_class: str, sessions: Iterable[Summary], marks: Iterable[Mark] = ()
) -> Place:
    """Return the history of a system and class; `sessions` may have any order, `marks` be of other systems.

    A session without virtual values is left out if other sessions have some: its build is unknown.
    """
    sessions = sorted(sessions, key=lambda session: session.created)
    measured = [session for session in sessions if any(v.virtual is not None for v in session.verdicts)]
    sessions_by_build: dict[tuple[str, ...], list[Summary]] = defaultdict(list)
    for session in measured or sessions:
        sessions_by_build[get_build_key(session)].append(session)
    in_order = list(chain(*sessions_by_build.values()))
    builds = np.repeat(np.arange(len(sessions_by_build)), [*map(len, sessions_by_build.values())])
    verdicts_by_metric: dict[str, dict[int, Verdict]] = defaultdict(dict)
    for index, session in enumerate(in_order):
        for verdict in session.verdicts:
            is_usable = verdict.overhead is not None and verdict.spread is not None
            if is_usable and verdict.outcome is not Outcome.INVALID:
                # A session that also judges a change has two verdicts on one overhead.
                verdicts_by_metric[verdict.name].setdefault(index, verdict)
    metrics = []
    for name, verdicts in verdicts_by_metric.items():
        of_metric = tuple(in_order[index] for index in verdicts)
        in_time = np.argsort([session.created.timestamp() for session in of_metric], kind="stable")
        history = _make_history(builds[list(verdicts)], list(verdicts.values()), in_time)
        better = next(iter(verdicts.values())).better
        changes = find_changes(history, len(verdicts_by_metric))
        latest = list(verdicts.values())[in_time[-1]]
        at_most = latest.at_most if latest.gate == "overhead" else "-"
        as_factors = tuple(v.overhead is not None and v.overhead.is_factor(better) for v in verdicts.values())
        metrics.append(MetricHistory(name, better, of_metric, history, changes, as_factors, at_most))
    metrics.sort(key=lambda metric: metric.largest_change, reverse=True)
    names = _name_builds(list(sessions_by_build))
    own_marks = tuple(mark for mark in marks if mark.system in ("", system))
    return Place(
        system, hypervisor_class, names, tuple(sessions_by_build.values()), tuple(metrics), own_marks
    )


def _make_history(builds: Ints, verdicts: Sequence[Verdict], in_time: Ints) -> History:
    spreads = np.array([verdict.spread for verdict in verdicts], dtype=np.float64)
    pairs = np.array([verdict.pairs for verdict in verdicts])
    sign = sign_of(verdicts[0].better)
    native = sign * np.log([verdict.native or math.nan for verdict in verdicts])
    virtual = sign * np.log([verdict.virtual or math.nan for verdict in verdicts])
    log = np.array([verdict.overhead.log if verdict.overhead else math.nan for verdict in verdicts])
    return History(builds, log, shrink_variances(spreads**2, pairs) / pairs, native, virtual, in_time)


def get_build_key(session: Summary) -> tuple[str, ...]:
    """Return all that defines a session's build: its name and the facts of the hypervisor."""
    facts = (f"{name}: {text}" for name, text in session.facts.items() if name.startswith(BUILD_PREFIX))
    return session.hypervisor, *facts


def _name_builds(keys: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return a name for each build; builds of the same name get the words that not all of them have."""
    words = {key: [word for fact in key[1:] for word in fact.partition(": ")[2].split()] for key in keys}
    words_by_name: dict[str, list[set[str]]] = defaultdict(list)
    for key in keys:
        words_by_name[key[0]].append(set(words[key]))
    names = []
    for key in keys:
        namesakes = words_by_name[key[0]]
        own = [word for word in words[key] if word not in set.intersection(*namesakes)]
        suffix = f" [{' '.join(own) or 'nothing of the others'}]" if len(namesakes) > 1 else ""
        names.append(key[0] + suffix)
    return tuple(names)


def compare_facts(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield the facts in which two sessions differ, beside the build's name: names, before, after.

    Facts that changed alike are named together.
    """
    names_by_change: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in dict.fromkeys((*before, *after)):
        old, new = (facts.get(name, "not said") for facts in (before, after))
        if name not in _SESSION_FACTS and old != new:
            names_by_change[_shorten_change(old, new)].append(name)
    for (old, new), names in names_by_change.items():
        # The change already names the builds.
        if _NAME_FACT not in names:
            yield ", ".join(names), old, new


def _shorten_change(old: str, new: str) -> tuple[str, str]:
    """Return two texts of a fact as people compare them: settings that differ, the start of a digest."""
    before, after = (_DIGEST.sub(lambda digest: digest[0][:12], text).split() for text in (old, new))
    if any("=" in word for word in before + after):
        removed = [word for word in before if word not in after]
        added = [word for word in after if word not in before]
        if removed or added:
            before, after = removed, added
    return " ".join(before) or "nothing", " ".join(after) or "nothing"


@dataclass(frozen=True)
class ChangeText:
    """The text of a change."""

    #: The place of the change, such as ``between QEMU 9.1 and QEMU 9.2``.
    where: str
    #: The name of each metric that changed there, and the size of its change.
    metrics: tuple[tuple[str, str], ...]
    #: Other facts that changed, marks, and the build to measure next; a sentence each.
    notes: tuple[str, ...] = ()


def describe_changes(place: Place) -> list[ChangeText]:
    """Return the texts of all steps in the order of builds, and of drifts after them."""
    steps_by_place: dict[tuple[Any, ...], list[tuple[MetricHistory, Step]]] = defaultdict(list)
    for metric in place.metrics:
        for step in metric.changes.steps:
            ends = [step.first - 1, step.last]
            names = [metric.sessions[end].session for end in ends] if step.cause == "within" else []
            steps_by_place[*metric.history.builds[ends], step.cause, *names].append((metric, step))
    texts = [_describe_steps(place, steps_by_place[key]) for key in sorted(steps_by_place)]
    for metric in place.metrics:
        if drift := metric.changes.drift:
            in_time = metric.history.in_time
            since, noticed = (metric.sessions[in_time[at]].session for at in (drift.since, drift.noticed))
            size = f"{abs(math.expm1(drift.rate)):.2%} (standard error {drift.error:.2%})"
            rate = f"{size} {'slower' if drift.rate > 0 else 'faster'} a session"
            texts.append(ChangeText(f"a drift since {since}, noticed at {noticed}", ((metric.name, rate),)))
    return texts


def _describe_steps(place: Place, steps: Sequence[tuple[MetricHistory, Step]]) -> ChangeText:
    """Return the text of the steps of several metrics between the same builds or sessions."""
    metric, step = steps[0]
    before, after = metric.sessions[step.first - 1], metric.sessions[step.last]
    first, last = metric.history.builds[[step.first - 1, step.last]].tolist()
    if step.cause == "within":
        sessions = f"{before.session} and {after.session}"
        where = f"between two sessions of {place.builds[last]}, {sessions}: the machine's, or the boot's"
    else:
        where = f"between {place.builds[first]} and {place.builds[last]}"
        if step.cause == "native":
            where += ", by the native side alone: the machine's, and not the build's"
        # The sessions of both builds that are nearest in time differ in the fewest other facts.
        before, after = min(
            product(place.sessions[first], place.sessions[last]),
            key=lambda pair: abs(pair[1].created - pair[0].created),
        )
    changed = compare_facts(before.facts, after.facts)
    notes = [f"changed with it: {names}: {old} -> {new}" for names, old, new in changed]
    begin, end = sorted((before.created.date(), after.created.date()))
    marks = (mark for mark in place.marks if begin <= mark.date <= end)
    notes += [f"marked between them: {mark.what}, {mark.date}" for mark in marks]
    if step.cause == "build" and last - first > 1:
        notes.append(f"test next: {place.builds[(first + last) // 2]}, which is in the middle of these")
    elif step.cause == "build":
        notes.append(
            "test next: a build from between these two, if there is one; else what changed, one at a time"
        )
    sizes = [(m.name, _describe_estimate(step.size, step.error, m.better)) for m, step in steps]
    return ChangeText(where, tuple(sizes), tuple(notes))


def _describe_estimate(log: float, error: float, better: Direction) -> str:
    """Return a difference with its interval of 95 %, such as ``22.0% slower (20.0% to 24.0%)``."""
    reach = 1.96 * error
    return describe_slowdown(log, better, (log - reach, log + reach))


def describe_notes(place: Place, waivers: Iterable[Waiver]) -> Iterator[str]:
    """Yield the marks of a system, and the waivers of its class."""
    yield from (f"{mark.date}: {mark.what}" for mark in place.marks)
    today = date.today()
    for waiver in waivers:
        if waiver.hypervisor_class == place.hypervisor_class:
            yield f"{waiver.build}: {waiver.text(today)}"
