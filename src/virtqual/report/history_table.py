"""The history of builds as a table: one row for each metric of each session."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from virtqual.files.wording import printable
from virtqual.session.summary import Summary
from virtqual.verdict import Verdict
from virtqual.verdict.notation import Direction, fraction_slower

COLUMNS = (
    *("system", "class", "session", "label", "created", "build", "metric", "setting", "gate", "outcome"),
    *("unit", "better", "native", "virtual", "ratio", "slower", "lower", "upper", "budget", "margin"),
    *("pairs", "boots"),
)
"""Fractions are of the native value: 0.05 is 5 % slower. Of a verdict on a change, `slower`, `lower` and
`upper` are the change, and `native`, `virtual` and `ratio` are of the overhead."""


def csv_of(sessions: Iterable[Summary]) -> str:
    """Return all verdicts of sessions by system, class and time; cells without a number are empty."""
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(COLUMNS)
    for session in sorted(sessions, key=lambda s: (s.system, s.hypervisor_class, s.created, s.session)):
        place = session.system, session.hypervisor_class, session.session, session.label
        began = session.created.isoformat()
        for verdict in session.verdicts:
            texts = (*place, began, session.hypervisor, *_list_texts(verdict))
            table.writerow((*map(cell_of, texts), *_list_numbers(verdict)))
    return file.getvalue()


def _list_texts(verdict: Verdict) -> tuple[str, ...]:
    return (
        verdict.metric,
        verdict.setting,
        verdict.gate,
        verdict.outcome_text,
        verdict.unit,
        verdict.better,
    )


def _list_numbers(verdict: Verdict) -> tuple[float | str, ...]:
    """Return the numbers of a row."""
    judged, better = verdict.estimate, verdict.better
    limit, within_below = (verdict.limit, verdict.within_below) if verdict.judged else (None, None)
    logs = (judged.log, judged.lower, judged.upper) if judged else (None, None, None)
    slower, lower, upper, budget, both = (_fraction(log, better) for log in (*logs, limit, within_below))
    margin = "" if isinstance(budget, str) or isinstance(both, str) else round(both - budget, 6)
    ratio = verdict.overhead.ratio if verdict.overhead else ""
    values = ("" if value is None else value for value in (verdict.native, verdict.virtual))
    return (*values, ratio, slower, lower, upper, budget, margin, verdict.pairs, verdict.boots)


def _fraction(log: float | None, better: Direction) -> float | str:
    return "" if log is None else round(fraction_slower(log, better), 6)


def cell_of(text: str) -> str:
    """Return a text that a spreadsheet shows and does not compute."""
    return f"'{printable(text)}" if text.lstrip()[:1] in tuple("=+-@") else printable(text)
