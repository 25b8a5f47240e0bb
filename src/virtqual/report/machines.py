"""A session for programs: every sample as CSV, the verdicts as Markdown and as metrics of Prometheus."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable
from datetime import datetime

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from virtqual.files.wording import printable
from virtqual.references import project_references
from virtqual.session.judge import admitted_of
from virtqual.session.measured import COLUMNS
from virtqual.session.pairing import checks_of, series_of
from virtqual.session.session import Session
from virtqual.verdict import Outcome, Verdict
from virtqual.verdict.outcome import format_ratio, format_value
from virtqual.verdict.pairs import SIDES


def csv_of(session: Session) -> str:
    """Return every sample as rows that `virtqual judge` reads; one that does not count is ``nan``."""
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(COLUMNS)
    admitted = admitted_of(session)
    checks = checks_of(admitted.runs)
    for series in series_of(admitted.runs, project_references()).values():
        metric = series.metric
        name, setting, unit = map(_cell, (session.session, series.setting, metric.unit))
        for pair in series.pairs:
            for side in SIDES:
                run = getattr(pair, side)
                if run is None:
                    continue
                when = ["" if math.isnan(time) else repr(time) for time in (run.start, run.end)]
                where = tuple(map(_cell, (run.node, run.host, run.boot)))
                for size, value in zip(series.points or ("",), run.values, strict=True):
                    shown = "nan" if run.refused or checks[series.id] in admitted.refused else repr(value)
                    what = (name, metric.name, setting, size, unit, metric.better)
                    table.writerow((*what, pair.number, side, shown, *when, *where))
    return file.getvalue()


def _cell(text: str) -> str:
    """Return a text that a spreadsheet shows and does not compute."""
    return f"'{printable(text)}" if text.lstrip()[:1] in tuple("=+-@") else printable(text)


def markdown_of(session: Session) -> str:
    """Return the answer and the table of verdicts, the worst first, as a merge request shows them."""
    order = list(Outcome)
    rows = sorted(session.verdicts, key=lambda one: (one.passes, order.index(one.outcome)))
    about = f"Session `{printable(session.session).replace('`', '')}`, system {_plain(session.system)}."
    lines = [f"**{_plain(session.outcome)}**: {_plain(session.message)}", ""]
    lines += [f"Qualified: {_plain(session.qualified)}. {about}", ""]
    if rows:
        lines += ["| metric | native | virtual | unit | virtual/native | budget | verdict | pairs |"]
        lines += ["|---|---:|---:|---|---:|---|---|---:|"]
        lines += [_line(one) for one in rows]
    lines += [
        f"- {_plain(one.message)}" for one in rows if not one.passes and one.outcome is not Outcome.BASELINE
    ]
    return "\n".join(lines) + "\n"


def _line(one: Verdict) -> str:
    estimate = one.estimate
    ratio = format_ratio(estimate.ratio) if estimate else "-"
    if estimate and estimate.bounds:
        ratio += f" ({estimate.bounds})"
    values = ("-" if value is None else format_value(value) for value in (one.native, one.virtual))
    waived = " waived" if one.waived else ""
    cells = (one.name, *values, one.unit, ratio, one.budget, one.outcome.value + waived, str(one.pairs))
    return f"| {' | '.join(map(_plain, cells))} |"


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", printable(" ".join(text.split())))


def metrics_of(session: Session) -> str:
    """Return what node_exporter's textfile collector reads; a number that does not exist has no line."""
    registry = CollectorRegistry()
    of_session = {"system": session.system, "class": session.hypervisor_class, "build": session.build}

    def gauge(name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"virtqual_{name}", text, [*of_session, *labels], registry=registry)

    gauge("exit_code", "Exit code of the last session (docs/exit-codes.md).").labels(**of_session).set(
        session.exit_code
    )
    gauge("session_timestamp_seconds", "When the last session began.").labels(**of_session).set(
        datetime.fromisoformat(session.created).timestamp()
    )
    outcome = gauge("verdicts", "Verdicts of the last session by outcome.", "outcome")
    for one in Outcome:
        outcome.labels(**of_session, outcome=one.value).set(session.all_outcomes.get(one.value, 0))
    of_metric = ("metric", "setting", "gate")
    within = gauge(
        "within", "Whether a metric is within its budget, or its overhead accepted by a waiver.", *of_metric
    )
    log = gauge(
        "cost_log",
        "What was judged: ln(virtual/native), positive where virtual is worse.",
        *of_metric,
        "bound",
    )
    for verdict in session.verdicts:
        labels = {**of_session, "metric": verdict.metric, "setting": verdict.setting, "gate": verdict.gate}
        within.labels(**labels).set(verdict.passes)
        if judged := verdict.judged:
            for bound, value in (("estimate", judged.log), ("lower", judged.lower), ("upper", judged.upper)):
                if value is not None:
                    log.labels(**labels, bound=bound).set(value)
    return generate_latest(registry).decode()


def json_of(session: Session) -> str:
    """Return everything that the log tells, with every run."""
    return session.model_dump_json(by_alias=True, indent=1) + "\n"


#: By the end of a file's name.
FORMS: dict[str, Callable[[Session], str]] = {
    ".csv": csv_of,
    ".json": json_of,
    ".md": markdown_of,
    ".prom": metrics_of,
}
