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
    """

    kind: Kind
    system: str
    hypervisor_class: str
    subject: str
    session: str
    when: datetime
    text: str

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


def _of_build(system: str, kind: str, nights: Sequence[Summary]) -> Iterator[Notice]:
    """Yield the changes of whole sessions: from an answer to none, and from OVER to WITHIN and back."""
    before = ""
    for night in nights:
        state = {0: "within", 1: "over", 3: "undecided"}.get(night.exit_code, "failed")
        told = (system, kind, "", night.session, night.created)
        if state == "failed" and before != "failed":
            yield Notice("failed", *told, f"{night.hypervisor}: {night.conclusion}")
        elif state == "over" and before != "over":
            yield Notice("over", *told, f"{night.hypervisor}: {night.conclusion}")
        elif state == "within" and before in ("over", "failed"):
            yield Notice("resolved", *told, f"{night.hypervisor}: {night.conclusion}")
        # What is undecided tells nothing of the state before.
        before = before if state == "undecided" and before else state


def _of_metrics(system: str, kind: str, nights: Sequence[Summary]) -> Iterator[Notice]:
    over: set[str] = set()
    undecided: dict[str, int] = {}
    for night in nights:
        for verdict in night.verdicts:
            name, told = verdict.name, (system, kind, verdict.name, night.session, night.created)
            undecided[name] = undecided.get(name, 0) + 1 if verdict.outcome is Outcome.UNDECIDED else 0
            if undecided[name] == UNDECIDED_NIGHTS:
                yield Notice("undecided", *told, f"{name}: undecided for {UNDECIDED_NIGHTS} nights")
            elif verdict.outcome is Outcome.OVER and not verdict.passes and name not in over:
                over.add(name)
                yield Notice(
                    "over", *told, f"{name}: newly over budget{_factor(verdict)}, {night.hypervisor}"
                )
            elif verdict.passes and name in over:
                over.remove(name)
                how = "accepted by a waiver" if verdict.outcome is Outcome.OVER else "within budget again"
                yield Notice("resolved", *told, f"{name}: {how}{_factor(verdict)}, {night.hypervisor}")


def _factor(verdict: VerdictSummary) -> str:
    return "" if verdict.ratio is None else f" ({verdict.ratio:.3g}x)"


def _missing(
    system: str, kind: str, nights: Sequence[Summary], expected: timedelta, now: datetime
) -> Iterator[Notice]:
    """Yield one notice for each gap between sessions, from when it began.

    A session without an answer fills no gap, but the last one while it may still come to one.
    """
    begins = [night.created for night in nights if night.answered or night is nights[-1]]
    for begin, after in pairwise([*begins, now]):
        if after - begin > expected:
            late = begin + expected
            text = f"no session since {begin:%Y-%m-%d %H:%M}: one was expected until {late:%Y-%m-%d %H:%M}"
            yield Notice("none", system, kind, "", "", begin, text)
