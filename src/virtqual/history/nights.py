"""Notices of changes from one session to the next.

Notices follow from the sessions alone: the same sessions give the same notices with the same ids. The
outbox therefore stores only which ids were delivered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Literal, TypeAlias

from virtqual.session.summary import Summary
from virtqual.verdict import Outcome, Verdict
from virtqual.verdict.notation import describe_slowdown

#: A metric that is undecided in so many nights in a row gives a notice.
UNDECIDED_NIGHTS = 3
#: Exit codes of sessions that have an answer.
ANSWERS = (0, 1, 3)
#: Stands for a metric if a session is over budget and no metric of it is.
SLOW_RUNS = "slow runs"

Kind = Literal["over", "resolved", "undecided", "failed", "none"]
#: A session, and the metrics that are over budget after it.
Standing: TypeAlias = tuple[Summary, Set[str]]


@dataclass(frozen=True)
class Notice:
    """A change of the state of a system and class (kinds: docs/nights.md)."""

    kind: Kind
    system: str
    hypervisor_class: str
    #: A metric with its setting; empty for the build as a whole.
    subject: str
    #: The session that shows the change; empty if a session is missing.
    session: str
    #: Begin of the session; if it is missing, of the session before.
    when: datetime
    #: One sentence.
    text: str
    #: The change is of the oldest session, so that the state before is unknown.
    first: bool = False

    @property
    def id(self) -> str:
        """Digest of all fields but the text: equal for equal changes."""
        place = self.kind, self.system, self.hypervisor_class
        fields = (*place, self.subject, self.session, self.when.isoformat())
        return hashlib.sha256("\0".join(fields).encode()).hexdigest()[:16]


def find_notices(
    sessions: Sequence[Summary], *, expected: timedelta | None = None, now: datetime | None = None
) -> list[Notice]:
    """Return all notices of the histories of all systems and classes, the oldest first.

    A session that still runs or may go on has no answer yet, and changes nothing. If sessions are expected,
    `expected` is the longest time between the begins of two, and `now` the end of the history.
    """
    notices: list[Notice] = []
    for _, nights in group_by_place(sessions):
        history = find_standings(night for night in nights if night.answered)
        notices += (*_find_build_changes(history), *_find_metric_changes(history))
        if expected and now:
            notices += _find_gaps(nights, expected, now)
    return sorted(notices, key=lambda notice: (notice.when, notice.subject))


def group_by_place(sessions: Iterable[Summary]) -> Iterator[tuple[tuple[str, str], list[Summary]]]:
    """Yield each system and class with its sessions in the order of time."""
    get_place = attrgetter("system", "hypervisor_class")
    for place, group in groupby(sorted(sessions, key=get_place), key=get_place):
        yield place, sorted(group, key=lambda night: night.created)


def find_standings(nights: Iterable[Summary]) -> list[Standing]:
    """Return each session of a history with the metrics that are over budget after it.

    A metric stays over budget until a later session finds it within budget, or accepts it by a waiver.
    A complete session that finds all its metrics within budget also ends metrics that it does not measure.
    """
    history: list[Standing] = []
    over: set[str] = set()
    # Metrics of the session that began with slow runs.
    slow_session: set[str] = set()
    for night in nights:
        measured = {verdict.title for verdict in night.verdicts}
        passing = {verdict.title for verdict in night.verdicts if verdict.passes}
        newly_over = {verdict.title for verdict in night.verdicts if verdict.outcome is Outcome.OVER}
        over = (over | newly_over) - passing
        if night.exit_code == 1 and not over & measured:
            slow_session = slow_session or measured
            over |= {SLOW_RUNS}
        # Slow runs are counted over the session: only a session with the same metrics shows their absence.
        elif night.exit_code == 0 and measured >= slow_session:
            slow_session = set()
            over -= {SLOW_RUNS}
        if night.exit_code == 0 and night.complete and measured and measured == passing:
            over = set()
        history.append((night, frozenset(over)))
    return history


def find_gap(nights: Sequence[Summary], expected: timedelta, now: datetime) -> datetime | None:
    """Return since when a session is missing at the end of a history; None if none is.

    A session without an answer fills no gap, except the last one while it may still have an answer.
    """
    *_, last = nights
    answered = [night for night in nights if night.answered]
    begin = (answered or nights)[-1].created
    missing = last.created - begin > expected or now - last.created > expected
    return begin if missing else None


def _find_build_changes(history: Sequence[Standing]) -> Iterator[Notice]:
    """Yield the changes of the build: from an answer to none, and from OVER to WITHIN and back."""
    noticed_over = noticed_failure = failing = False
    for night, over in history:
        kind: Kind | None = None
        if night.exit_code not in ANSWERS:
            kind = None if failing else "failed"
            failing = noticed_failure = True
        else:
            failing = False
            if over and (not noticed_over or (noticed_failure and night.exit_code == 1)):
                kind, noticed_over, noticed_failure = "over", True, False
            # An undecided session does not end the state before.
            elif not over and night.exit_code == 0 and (noticed_over or noticed_failure):
                kind, noticed_over, noticed_failure = "resolved", False, False
        if kind:
            text = f"{night.hypervisor}: {night.conclusion}"
            yield _make_notice(kind, night, "", text, is_first=night is history[0][0])


def _find_metric_changes(history: Sequence[Standing]) -> Iterator[Notice]:
    """Yield the changes of every metric."""
    before: Set[str] = frozenset()
    undecided: dict[str, list[Summary]] = {}
    for night, over in history:
        verdicts = {verdict.title: verdict for verdict in night.verdicts}
        # Metric, kind of the change, text, and the session at which the state began.
        changes: list[tuple[str, Kind, str, Summary]] = []
        for name in over - before:
            changes.append((name, "over", f"newly over budget{_format_slowdown(verdicts.get(name))}", night))
        for name in before - over:
            verdict_now = verdicts.get(name)
            if not verdict_now:
                text = "not found any more" if name == SLOW_RUNS else "not measured any more"
            else:
                is_waived = verdict_now.outcome is Outcome.OVER
                text = "accepted by a waiver" if is_waived else "within budget again"
            changes.append((name, "resolved", f"{text}{_format_slowdown(verdict_now)}", night))
        for name, verdict in verdicts.items():
            in_a_row = [*undecided.get(name, ()), night] if verdict.outcome is Outcome.UNDECIDED else []
            undecided[name] = in_a_row
            if len(in_a_row) == UNDECIDED_NIGHTS:
                changes.append((name, "undecided", f"undecided for {UNDECIDED_NIGHTS} nights", in_a_row[0]))
        for name, kind, text, since in changes:
            text = f"{name}: {text}, {night.hypervisor}"
            yield _make_notice(kind, night, name, text, is_first=since is history[0][0])
        before = over


def _make_notice(kind: Kind, night: Summary, subject: str, text: str, *, is_first: bool) -> Notice:
    place = night.system, night.hypervisor_class
    return Notice(kind, *place, subject, night.session, night.created, text, is_first)


def _format_slowdown(verdict: Verdict | None) -> str:
    return f" ({describe_slowdown(verdict.judged.log, verdict.better)})" if verdict and verdict.judged else ""


def _find_gaps(nights: Sequence[Summary], expected: timedelta, now: datetime) -> Iterator[Notice]:
    """Yield one notice for each gap between sessions that came to an end, from when it began."""
    answered = [night.created for night in nights if night.answered]
    begins = [begin for begin, after in pairwise(answered) if after - begin > expected]
    if (last := find_gap(nights, expected, now)) is not None:
        begins.append(last)
    for begin in begins:
        text = (
            f"no session since {begin:%Y-%m-%d %H:%M} has come to an end: one was expected to begin until "
            f"{begin + expected:%Y-%m-%d %H:%M}"
        )
        yield Notice("none", nights[0].system, nights[0].hypervisor_class, "", "", begin, text)
