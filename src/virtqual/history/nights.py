"""Nights: what has changed from one session to the next, for whoever is to be told.

The sessions themselves say what is to be told; nothing else is kept.  The same sessions give the same notices
with the same ids, so that whoever delivers them need only remember which ids were delivered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from typing import Literal

from virtqual.session.summary import Summary, VerdictSummary
from virtqual.verdict import Outcome

#: After so many nights in which it is not decided, somebody is told.
UNDECIDED_NIGHTS = 3
#: Exit codes of sessions that have an answer.
ANSWERS = (0, 1, 3)
#: What is over budget where no metric is, and the session is all the same.
SLOW_RUNS = "slow runs"

Kind = Literal["over", "resolved", "undecided", "failed", "none"]


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
    found = []
    for (system, kind), every in by_place(sessions):
        nights = [night for night in every if night.answered]
        found += list(_of_build(system, kind, nights))
        found += list(_of_metrics(system, kind, nights))
        if expected and now:
            found += list(_missing(system, kind, every, expected, now))
    return sorted(found, key=lambda one: (one.when, one.subject))


def by_place(sessions: Iterable[Summary]) -> Iterator[tuple[tuple[str, str], list[Summary]]]:
    """Yield what has a history of its own, a system and a class, with its sessions in the order of time."""

    def place(night: Summary) -> tuple[str, str]:
        return night.system, night.hypervisor_class

    for which, group in groupby(sorted(sessions, key=place), key=place):
        yield which, sorted(group, key=lambda one: one.created)


def standings(nights: Iterable[Summary]) -> Iterator[tuple[Summary, dict[str, Summary]]]:
    """Yield with each session of a history what is over budget after it, and since which session.

    A metric stays over until a later session that measured it finds it within budget, or accepted by a
    waiver; what a whole session does not measure any more, all of whose metrics are, is over no longer.
    """
    over: dict[str, Summary] = {}
    for night in nights:
        for verdict in night.verdicts:
            if verdict.passes:
                over.pop(verdict.name, None)
            elif verdict.outcome is Outcome.OVER:
                over.setdefault(verdict.name, night)
        measured = {verdict.name for verdict in night.verdicts}
        if night.exit_code == 1 and not over.keys() & measured:
            over.setdefault(SLOW_RUNS, night)
        elif night.exit_code == 0:
            slow = over.get(SLOW_RUNS)
            # They are the session's, not a metric's: one of fewer checks has not looked everywhere.
            if slow and measured >= {verdict.name for verdict in slow.verdicts}:
                del over[SLOW_RUNS]
            if night.complete and measured and all(verdict.passes for verdict in night.verdicts):
                over.clear()
        yield night, dict(over)


def gap(nights: Sequence[Summary], expected: timedelta, now: datetime) -> datetime | None:
    """Return since when a session is missing at the end of a history; None if none is.

    A session without an answer fills no gap, but the last one while it may still come to one.
    """
    *_, last = nights
    answered = [night for night in nights if night.answered]
    begin = (answered or nights)[-1].created
    missing = last.created - begin > expected or now - last.created > expected
    return begin if missing else None


def _of_build(system: str, kind: str, nights: Sequence[Summary]) -> Iterator[Notice]:
    """Yield the changes of whole sessions: from an answer to none, and from OVER to WITHIN and back."""
    told_over = told_failed = failing = False
    for night, over in standings(nights):

        def notice(kind_of: Kind, night: Summary = night) -> Notice:
            text = f"{night.hypervisor}: {night.conclusion}"
            return Notice(kind_of, system, kind, "", night.session, night.created, text, night is nights[0])

        if night.exit_code not in ANSWERS:
            if not failing:
                yield notice("failed")
            failing = told_failed = True
            continue
        failing = False
        if over and (not told_over or (told_failed and night.exit_code == 1)):
            yield notice("over")
            told_over, told_failed = True, False
        # What is undecided tells nothing of the state before.
        elif not over and night.exit_code == 0 and (told_over or told_failed):
            yield notice("resolved")
            told_over = told_failed = False


def _of_metrics(system: str, kind: str, nights: Sequence[Summary]) -> Iterator[Notice]:
    before: dict[str, Summary] = {}
    undecided: dict[str, list[Summary]] = {}
    for night, over in standings(nights):
        verdicts = {verdict.name: verdict for verdict in night.verdicts}

        def notice(kind_of: Kind, name: str, text: str, since: Summary, night: Summary = night) -> Notice:
            text = f"{name}: {text}, {night.hypervisor}"
            return Notice(kind_of, system, kind, name, night.session, night.created, text, since is nights[0])

        for name in over.keys() - before.keys():
            yield notice("over", name, f"newly over budget{_factor(verdicts.get(name))}", night)
        for name in before.keys() - over.keys():
            found = verdicts.get(name)
            how = "not found any more" if name == SLOW_RUNS else "not measured any more"
            if found:
                how = "accepted by a waiver" if found.outcome is Outcome.OVER else "within budget again"
            yield notice("resolved", name, f"{how}{_factor(found)}", night)
        for name, verdict in verdicts.items():
            in_a_row = [*undecided.get(name, ()), night] if verdict.outcome is Outcome.UNDECIDED else []
            undecided[name] = in_a_row
            if len(in_a_row) == UNDECIDED_NIGHTS:
                yield notice("undecided", name, f"undecided for {UNDECIDED_NIGHTS} nights", in_a_row[0])
        before = over


def _factor(verdict: VerdictSummary | None) -> str:
    return "" if verdict is None or verdict.ratio is None else f" ({verdict.ratio:.3g}x)"


def _missing(
    system: str, kind: str, nights: Sequence[Summary], expected: timedelta, now: datetime
) -> Iterator[Notice]:
    """Yield one notice for each gap between sessions that came to an end, from when it began."""
    answered = [night.created for night in nights if night.answered]
    begins = [begin for begin, after in pairwise(answered) if after - begin > expected]
    if (last := gap(nights, expected, now)) is not None:
        begins.append(last)
    for begin in begins:
        late = begin + expected
        text = (
            f"no session since {begin:%Y-%m-%d %H:%M} has come to an end: one was expected to begin until "
            f"{late:%Y-%m-%d %H:%M}"
        )
        yield Notice("none", system, kind, "", "", begin, text)
