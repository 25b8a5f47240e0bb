"""Sessions side by side: their overheads, and both sides against the first session's native side.

Sessions are not paired in time with each other, so a comparison across them gets no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from virtqual.references import project_references
from virtqual.session.facts import facts
from virtqual.session.judge import admitted_of
from virtqual.session.pairing import series_of
from virtqual.session.session import Session
from virtqual.verdict import Outcome, Verdict
from virtqual.verdict.notation import Direction, describe_share, sign_of
from virtqual.verdict.pairs import Series, Side


class _Costs(NamedTuple):
    """Logarithms, larger is worse: of the native cost, and of the ratio of both sides."""

    native: float
    overhead: float


@dataclass(frozen=True)
class ComparedSeries:
    """One series in one session, with the numbers of its verdict; of a curve the means over its sizes."""

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
        return overhead.brief_text(self.better) if overhead else describe_share(self.overhead, self.better)

    @property
    def at_most(self) -> str:
        """Budget and margin of the overhead; ``-`` without one."""
        has_limit = self.verdict is not None and self.verdict.gate == "overhead"
        return self.verdict.mean.at_most(self.better) if self.verdict and has_limit else "-"

    def describe_side(self, side: Side) -> str:
        """Return by how much a side is slower than the native side of the first session; ``-`` if unknown."""
        log = self.native if side == "native" else self.virtual
        return "-" if log is None else describe_share(log, self.better)


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
        first, base, rows = series_by_session[0].get(name), math.nan, []
        for number, (session, measured) in enumerate(zip(sessions, series_by_session, strict=True)):
            if (series := measured.get(name)) is None:
                continue
            verdict = next((v for v in session.verdicts if v.series == name and v.overhead), None)
            costs = _find_costs(series, verdict)
            base, native, virtual = base if number else costs.native, None, None
            if first and first.points == series.points:
                native = costs.native - base
                virtual = native + costs.overhead
            better = series.metric.better
            rows.append(ComparedSeries(name, number, better, costs.overhead, native, virtual, verdict))
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


def _find_costs(series: Series, verdict: Verdict | None) -> _Costs:
    """Return the numbers of a verdict; of a series without one the means over its pairs."""
    if verdict and verdict.overhead and verdict.native:
        return _Costs(sign_of(verdict.better) * math.log(verdict.native), verdict.overhead.log)
    native, virtual = series.costs(series.valid).mean(axis=(1, 2)).tolist()
    return _Costs(native, virtual - native)


def differing(sessions: Sequence[Session]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each fact in which the sessions differ: its texts, each with the letters of its sessions."""
    facts_by_session = [facts(session) for session in sessions]
    for name in dict.fromkeys(name for session in facts_by_session for name in session):
        letters_by_text: dict[str, list[str]] = {}
        for letter, session in zip(letters(len(sessions)), facts_by_session, strict=True):
            letters_by_text.setdefault(session.get(name, "not said"), []).append(letter)
        if len(letters_by_text) > 1:
            yield name, [(", ".join(names), text) for text, names in letters_by_text.items()]
