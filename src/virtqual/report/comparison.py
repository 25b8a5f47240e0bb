"""Sessions side by side: medians of both sides, and their ratios to the first session's native side.

Sessions are not paired in time with each other, so a comparison across them gets no verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from virtqual.references import project_references
from virtqual.session.facts import facts
from virtqual.session.judge import admitted_of
from virtqual.session.pairing import series_of
from virtqual.session.session import Session
from virtqual.verdict import Outcome, Verdict
from virtqual.verdict.estimate import Floats
from virtqual.verdict.notation import Direction, describe_slowdown, describe_slowdown_briefly, sign_of
from virtqual.verdict.pairs import Side


@dataclass(frozen=True)
class ComparedSeries:
    """One series in one session; each number is the mean over the sizes of a curve."""

    #: ``metric@setting``.
    series: str
    #: Number of the session, from 0.
    session: int
    better: Direction
    #: Virtual against native in this session, as ln(ratio), positive is worse.
    overhead: float
    #: The same of either side against the native side of the first session; None if that did not measure it.
    native: float | None
    virtual: float | None
    #: The session's verdict on the overhead, if it has one.
    verdict: Verdict | None
    #: ``best`` or ``worst`` of the sessions that were judged, if the intervals of both do not overlap.
    mark: str = ""

    @property
    def overhead_text(self) -> str:
        """By how much virtual is slower, with the interval if there is one; a minus is faster."""
        overhead = self.verdict.overhead if self.verdict else None
        bounds = overhead.bounds if overhead else None
        return describe_slowdown_briefly(self.overhead, self.better, bounds)

    def describe_side(self, side: Side) -> str:
        """Return a side against the native side of the first session, in words; ``-`` if it is unknown."""
        log = self.native if side == "native" else self.virtual
        return "-" if log is None else describe_slowdown(log, self.better)


def letters(count: int) -> list[str]:
    """Return short names for so many sessions, in their order."""
    return [chr(ord("A") + number % 26) * (1 + number // 26) for number in range(count)]


def compare(sessions: Sequence[Session]) -> list[ComparedSeries]:
    """Compare the series that several sessions measured on both sides.

    Runs and checks without a verdict do not count. A series with other sizes than in the first session is
    not compared with it.
    """
    references = project_references()
    series_by_session = [
        {
            name: series
            for name, series in series_of(admitted_of(session).counted_runs, references).items()
            if series.valid
        }
        for session in sessions
    ]
    compared = []
    for name in dict.fromkeys(name for measured in series_by_session for name in measured):
        first = series_by_session[0].get(name)
        rows = []
        for number, (session, measured) in enumerate(zip(sessions, series_by_session, strict=True)):
            if (series := measured.get(name)) is None:
                continue
            better = series.metric.better
            sides = series.medians["native"], series.medians["virtual"]
            native = virtual = None
            if first and first.points == series.points:
                native, virtual = (_find_cost(values, first.medians["native"], better) for values in sides)
            verdicts = (v for v in session.verdicts if v.series == name and v.overhead)
            overhead = _find_cost(sides[1], sides[0], better)
            rows.append(ComparedSeries(name, number, better, overhead, native, virtual, next(verdicts, None)))
        compared += _mark_extremes(rows)
    return compared


def _mark_extremes(rows: Sequence[ComparedSeries]) -> list[ComparedSeries]:
    """Return the rows of a series with the best and the worst session marked if they surely differ."""
    overheads = {
        row.session: row.verdict.overhead
        for row in rows
        if row.verdict and row.verdict.overhead and row.verdict.outcome is not Outcome.INVALID
    }
    if not overheads:
        return list(rows)
    best, worst = (find(overheads, key=lambda session: overheads[session].log) for find in (min, max))
    upper, lower = overheads[best].upper, overheads[worst].lower
    if upper is None or lower is None or upper >= lower:
        return list(rows)
    marks = {best: "best", worst: "worst"}
    return [replace(row, mark=marks.get(row.session, "")) for row in rows]


def _find_cost(values: Floats, base: Floats, better: Direction) -> float:
    """Return ln(values/base), positive is worse; of a curve the mean over its sizes."""
    return sign_of(better) * float(np.mean(np.log(values / base)))


def differing(sessions: Sequence[Session]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each fact in which the sessions differ: its texts, each with the letters of its sessions."""
    facts_by_session = [facts(session) for session in sessions]
    for name in dict.fromkeys(name for session in facts_by_session for name in session):
        letters_by_text: dict[str, list[str]] = {}
        for letter, session in zip(letters(len(sessions)), facts_by_session, strict=True):
            letters_by_text.setdefault(session.get(name, "not said"), []).append(letter)
        if len(letters_by_text) > 1:
            yield name, [(", ".join(names), text) for text, names in letters_by_text.items()]
