"""A session in forms for programs: every sample as CSV, verdicts as Markdown and as Prometheus metrics."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TypeAlias

from virtqual.files.wording import printable
from virtqual.references import project_references
from virtqual.report.answer import describe_code, describe_session, list_unmeasured
from virtqual.report.markdown import escape, make_list, make_table, make_verdict_table
from virtqual.report.nodes import describe_sides
from virtqual.report.summary import sort_lines
from virtqual.session.judge import admitted_of
from virtqual.session.measured import COLUMNS
from virtqual.session.pairing import checks_of, series_of
from virtqual.session.session import Session
from virtqual.verdict import Outcome, Verdict
from virtqual.verdict.labels import NATIVE_AND_VIRTUAL

#: Labels and value.
_Sample: TypeAlias = tuple[dict[str, str], float]


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
            for run in pair.samples:
                times = ["" if math.isnan(time) else repr(time) for time in (run.start, run.end)]
                places = tuple(map(_cell, (run.node, run.host, run.boot)))
                is_refused = run.refused or checks[series.id] in admitted.refused
                for size, value in zip(series.points or ("",), run.values, strict=True):
                    columns = (name, metric.name, setting, size, unit, metric.better, pair.number, run.side)
                    table.writerow((*columns, "nan" if is_refused else repr(value), *times, *places))
    return file.getvalue()


def _cell(text: str) -> str:
    """Return a text that a spreadsheet shows and does not compute."""
    return f"'{printable(text)}" if text.lstrip()[:1] in tuple("=+-@") else printable(text)


def markdown_of(session: Session) -> str:
    """Return the answer, the table of verdicts and what was compared as Markdown."""
    lines = sort_lines(session.verdicts)
    answer = describe_session(session, lines)
    about = f"Session `{printable(session.session).replace('`', '')}`, system {escape(session.system)}."
    written = [f"**{escape(session.outcome)}**: {escape(answer.sentence)}", ""]
    for note in answer.notes:
        written += [escape(note), ""]
    written += [f"{escape(describe_code(session))} {about}", ""]
    if lines:
        written += [*make_verdict_table(lines, NATIVE_AND_VIRTUAL), ""]
    written += make_list(line.verdict.message for line in lines if not _is_settled(line.verdict))
    head = ("compared", *NATIVE_AND_VIRTUAL)
    written += [*make_table(head, describe_sides(session)), ""]
    if unmeasured := list_unmeasured(session):
        written += ["Not measured:", "", *make_list(unmeasured)]
    return "\n".join(written).rstrip() + "\n"


def _is_settled(verdict: Verdict) -> bool:
    return verdict.passes or verdict.outcome is Outcome.BASELINE


def metrics_of(session: Session) -> str:
    """Return what node_exporter's textfile collector reads; a number that does not exist has no line."""
    of_session = {"system": session.system, "class": session.hypervisor_class, "build": session.build}
    began = datetime.fromisoformat(session.created).timestamp()
    outcomes: list[_Sample] = [
        ({"outcome": outcome.value}, session.all_outcomes.get(outcome.value, 0)) for outcome in Outcome
    ]
    passes: list[_Sample] = []
    costs: list[_Sample] = []
    for verdict in session.verdicts:
        of_metric = {"metric": verdict.metric, "setting": verdict.setting, "gate": verdict.gate}
        passes.append((of_metric, verdict.passes))
        if judged := verdict.judged:
            for bound, value in (("estimate", judged.log), ("lower", judged.lower), ("upper", judged.upper)):
                if value is not None:
                    costs.append(({**of_metric, "bound": bound}, value))
    gauges: tuple[tuple[str, str, list[_Sample]], ...] = (
        ("exit_code", "Exit code of the last session (docs/exit-codes.md).", [({}, session.exit_code)]),
        ("session_timestamp_seconds", "When the last session began.", [({}, began)]),
        ("verdicts", "Verdicts of the last session by outcome.", outcomes),
        ("within", "Whether a metric is within its budget, or its overhead accepted by a waiver.", passes),
        ("cost_log", "The judged ln(virtual/native), positive if virtual is worse.", costs),
    )
    return "".join(_format_gauge(name, text, samples, of_session) for name, text, samples in gauges)


def _format_gauge(
    name: str, description: str, samples: Iterable[_Sample], common_labels: dict[str, str]
) -> str:
    """Return a gauge in the text format of Prometheus."""
    lines = [f"# HELP virtqual_{name} {description}", f"# TYPE virtqual_{name} gauge"]
    for labels, value in samples:
        pairs = []
        for key, text in (common_labels | labels).items():
            escaped = text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
            pairs.append(f'{key}="{escaped}"')
        lines.append(f"virtqual_{name}{{{','.join(pairs)}}} {float(value)!r}")
    return "\n".join(lines) + "\n"


def json_of(session: Session) -> str:
    """Return the whole session, with every run."""
    return session.model_dump_json(by_alias=True, indent=1) + "\n"


#: By the end of a file's name.
FORMS: dict[str, Callable[[Session], str]] = {
    ".csv": csv_of,
    ".json": json_of,
    ".md": markdown_of,
    ".prom": metrics_of,
}
