"""Nights: what has changed from one session to the next, for whoever is to be told.

The sessions themselves say what is to be told; nothing else is kept.  The same sessions give the same notices
with the same ids, so that whoever delivers them need only remember which ids were delivered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from typing import Literal, TypeAlias

from virtqual.session.summary import Summary
from virtqual.verdict import Outcome, Verdict
from virtqual.verdict.outcome import format_ratio

#: After so many nights in which it is not decided, somebody is told.
UNDECIDED_NIGHTS = 3
#: Exit codes of sessions that have an answer.
ANSWERS = (0, 1, 3)
#: What is over budget where no metric is, and the session is all the same.
SLOW_RUNS = "slow runs"

Kind = Literal["over", "resolved", "undecided", "failed", "none"]
#: A session, and the metrics that are over budget after it.
Standing: TypeAlias = tuple[Summary, Set[str]]


@dataclass(frozen=True)
class Notice:
    """A change of state that somebody is to be told.

    Attributes
    ----------
    kind
        ``over``: newly over budget; ``resolved``: no more; ``undecided``: for so many nights;
        ``failed``: the session has no answer; ``none``: there was none.
    system, hypervisor_class
        Where.
    subject
        A metric with its setting; empty for the build as a whole.
    session
        The session that shows it; empty where there is none.
    when
        When that began; where there was no session, when the one before it did.
    text
        One sentence.
    first
        Whether it is of the oldest session that there is, and nobody knows what was before it.
    """

    kind: Kind
    system: str
    hypervisor_class: str
    subject: str
    session: str
    when: datetime
    text: str
    first: bool = False

    @property
    def id(self) -> str:
        """The same for the same change, whoever finds it, and whenever."""
        what = (
            self.kind,
            self.system,
            self.hypervisor_class,
            self.subject,
            self.session,
            self.when.isoformat(),
        )
        return hashlib.sha256("\0".join(what).encode()).hexdigest()[:16]


def notices(
    sessions: Sequence[Summary], *, expected: timedelta | None = None, now: datetime | None = None
) -> list[Notice]:
    """Return all notices of a history, the oldest first.

    Parameters
    ----------
    sessions
        In the order of time, of any systems and classes: each of those has a history of its own.
        One that still runs, or was interrupted and may go on, has no answer yet, and changes nothing.
    expected
        How long after one session the next one has to begin; None where nobody waits for it.
    now
        Up to when; with `expected`.
    """
    found: list[Notice] = []
    for _, every in by_place(sessions):
        after = standings(night for night in every if night.answered)
        found += (*_of_build(after), *_of_metrics(after))
        if expected and now:
            found += _missing(every, expected, now)
    return sorted(found, key=lambda one: (one.when, one.subject))


def by_place(sessions: Iterable[Summary]) -> Iterator[tuple[tuple[str, str], list[Summary]]]:
    """Yield what has a history of its own, a system and a class, with its sessions in the order of time."""

    def place(night: Summary) -> tuple[str, str]:
        return night.system, night.hypervisor_class

    for which, group in groupby(sorted(sessions, key=place), key=place):
        yield which, sorted(group, key=lambda one: one.created)


def standings(nights: Iterable[Summary]) -> list[Standing]:
    """Return with each session of a history what is over budget after it.

    A metric stays over until a later session that measured it finds it within budget, or accepted by a
    waiver; what a whole session does not measure any more, all of whose metrics are, is over no longer.
    """
    found: list[Standing] = []
    over: set[str] = set()
    of_slow_runs: set[str] = set()
    for night in nights:
        measured = {verdict.title for verdict in night.verdicts}
        passing = {verdict.title for verdict in night.verdicts if verdict.passes}
        found_over = {verdict.title for verdict in night.verdicts if verdict.outcome is Outcome.OVER}
        over = (over | found_over) - passing
        if night.exit_code == 1 and not over & measured:
            of_slow_runs = of_slow_runs or measured
            over |= {SLOW_RUNS}
        # They are the session's, not a metric's: one of fewer checks has not looked everywhere.
        elif night.exit_code == 0 and measured >= of_slow_runs:
            of_slow_runs = set()
            over -= {SLOW_RUNS}
        if night.exit_code == 0 and night.complete and measured and measured == passing:
            over = set()
        found.append((night, frozenset(over)))
    return found


def gap(nights: Sequence[Summary], expected: timedelta, now: datetime) -> datetime | None:
    """Return since when a session is missing at the end of a history; None if none is.

    A session without an answer fills no gap, but the last one while it may still come to one.
    """
    *_, last = nights
    answered = [night for night in nights if night.answered]
    begin = (answered or nights)[-1].created
    missing = last.created - begin > expected or now - last.created > expected
    return begin if missing else None


def _of_build(after: Sequence[Standing]) -> Iterator[Notice]:
    """Yield the changes of whole sessions: from an answer to none, and from OVER to WITHIN and back."""
    told_over = told_failed = failing = False
    for night, over in after:
        kind: Kind | None = None
        if night.exit_code not in ANSWERS:
            kind = None if failing else "failed"
            failing = told_failed = True
        else:
            failing = False
            if over and (not told_over or (told_failed and night.exit_code == 1)):
                kind, told_over, told_failed = "over", True, False
            # What is undecided tells nothing of the state before.
            elif not over and night.exit_code == 0 and (told_over or told_failed):
                kind, told_over, told_failed = "resolved", False, False
        if kind:
            yield _notice(
                kind, night, "", f"{night.hypervisor}: {night.conclusion}", first=night is after[0][0]
            )


def _of_metrics(after: Sequence[Standing]) -> Iterator[Notice]:
    """Yield the changes of every metric."""
    before: Set[str] = frozenset()
    undecided: dict[str, list[Summary]] = {}
    for night, over in after:
        verdicts = {verdict.title: verdict for verdict in night.verdicts}
        # What has changed, the kind of the change, and since which session it is so.
        told: list[tuple[str, Kind, str, Summary]] = []
        for name in over - before:
            told.append((name, "over", f"newly over budget{_factor(verdicts.get(name))}", night))
        for name in before - over:
            found = verdicts.get(name)
            how = "not found any more" if name == SLOW_RUNS else "not measured any more"
            if found:
                how = "accepted by a waiver" if found.outcome is Outcome.OVER else "within budget again"
            told.append((name, "resolved", f"{how}{_factor(found)}", night))
        for name, verdict in verdicts.items():
            in_a_row = [*undecided.get(name, ()), night] if verdict.outcome is Outcome.UNDECIDED else []
            undecided[name] = in_a_row
            if len(in_a_row) == UNDECIDED_NIGHTS:
                told.append((name, "undecided", f"undecided for {UNDECIDED_NIGHTS} nights", in_a_row[0]))
        for name, kind, text, since in told:
            yield _notice(
                kind, night, name, f"{name}: {text}, {night.hypervisor}", first=since is after[0][0]
            )
        before = over


def _notice(kind: Kind, night: Summary, subject: str, text: str, *, first: bool) -> Notice:
    place = night.system, night.hypervisor_class
    return Notice(kind, *place, subject, night.session, night.created, text, first)


def _factor(verdict: Verdict | None) -> str:
    return f" ({format_ratio(verdict.judged.ratio)})" if verdict and verdict.judged else ""


def _missing(nights: Sequence[Summary], expected: timedelta, now: datetime) -> Iterator[Notice]:
    """Yield one notice for each gap between sessions that came to an end, from when it began."""
    answered = [night.created for night in nights if night.answered]
    begins = [begin for begin, after in pairwise(answered) if after - begin > expected]
    if (last := gap(nights, expected, now)) is not None:
        begins.append(last)
    for begin in begins:
        text = (
            f"no session since {begin:%Y-%m-%d %H:%M} has come to an end: one was expected to begin until "
            f"{begin + expected:%Y-%m-%d %H:%M}"
        )
        yield Notice("none", nights[0].system, nights[0].hypervisor_class, "", "", begin, text)
