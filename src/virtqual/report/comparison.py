"""Sessions side by side: medians of both sides, and their ratios to the first session's native side.

Sessions are not paired in time with each other, so what is compared across them gets no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from virtqual.references import project_references
from virtqual.session.facts import facts
from virtqual.session.judge import admitted_of
from virtqual.session.pairing import series_of
from virtqual.session.session import Session
from virtqual.verdict import Verdict
from virtqual.verdict.estimate import Floats
from virtqual.verdict.outcome import format_range
from virtqual.verdict.pairs import Series


@dataclass(frozen=True)
class ComparedSeries:
    """One series in one session; each ratio is the geometric mean over the sizes of a curve.

    Attributes
    ----------
    series
        ``metric@setting``.
    session
        Number of the session, from 0.
    overhead
        Virtual against native in this session.
    native, virtual
        Either side against the native side of the first session; None where that did not measure the series.
    verdict
        What the session says of the overhead; None where it judged none.
    mark
        ``best`` or ``worst`` of all sessions, where the intervals of both do not overlap.
    """

    series: str
    session: int
    overhead: float
    native: float | None
    virtual: float | None
    verdict: Verdict | None = None
    mark: str = ""

    @property
    def interval(self) -> str:
        """The ends of the overhead's interval; empty where there is none."""
        judged = self.verdict.overhead if self.verdict else None
        if judged is None or judged.low is None or judged.high is None:
            return ""
        return format_range(judged.low, judged.high)


def letters(count: int) -> list[str]:
    """Return short names for so many sessions, in their order."""
    return [chr(ord("A") + number % 26) * (1 + number // 26) for number in range(count)]


def compare(sessions: Sequence[Session]) -> list[ComparedSeries]:
    """Compare what several sessions measured on both sides, series by series.

    Runs that something disturbed, and checks of which nothing may be judged, count here as little as under a
    verdict.  A series whose sizes differ from those of the first session is compared with no other.
    """
    measured = [_measured(session) for session in sessions]
    names = dict.fromkeys(name for every in measured for name in every)
    found = []
    for name in names:
        rows = []
        base = measured[0].get(name)
        for number, every in enumerate(measured):
            if (series := every.get(name)) is None:
                continue
            native, virtual = series.medians("native"), series.medians("virtual")
            before, after = (
                _ratio(values, base.medians("native")) if base and base.points == series.points else None
                for values in (native, virtual)
            )
            judged = next((v for v in sessions[number].verdicts if v.series == name and v.overhead), None)
            rows.append(ComparedSeries(name, number, _ratio(virtual, native), before, after, judged))
        marks = _marks(rows)
        found += [replace(row, mark=marks.get(row.session, "")) for row in rows]
    return found


def _marks(rows: Sequence[ComparedSeries]) -> dict[int, str]:
    """Return which session is the best and which the worst one of a series, if they surely differ."""
    known = {row.session: row.verdict.overhead for row in rows if row.verdict and row.verdict.overhead}
    if not known:
        return {}
    best, worst = (find(known, key=lambda one: known[one].log) for find in (min, max))
    above, below = known[best].upper, known[worst].lower
    if above is None or below is None or above >= below:
        return {}
    return {best: "best", worst: "worst"}


def _measured(session: Session) -> dict[str, Series]:
    """Return the series of a session that were observed on both sides and have a pair that counts."""
    series = series_of(admitted_of(session).counted_runs, project_references())
    return {name: one for name, one in series.items() if one.valid}


def _ratio(above: Floats, below: Floats) -> float:
    return math.exp(float(np.mean(np.log(above / below))))


def differing(sessions: Sequence[Session]) -> Iterator[tuple[str, list[str]]]:
    """Yield everything in which what the sessions say of themselves differs, with each session's word."""
    flat = [facts(session) for session in sessions]
    for name in dict.fromkeys(name for one in flat for name in one):
        words = [one.get(name, "not said") for one in flat]
        if len(set(words)) > 1:
            yield name, words


def shared(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return each different word of the sessions, once, with the letters of those that say it.

    Examples
    --------
    >>> shared(["7.2", "10.0", "7.2"])
    [('A, C', '7.2'), ('B', '10.0')]
    """
    names = letters(len(words))
    return [
        (", ".join(name for name, said in zip(names, words, strict=True) if said == word), word)
        for word in dict.fromkeys(words)
    ]
