"""A session as one HTML file: the answer, its evidence, and the next steps.

The file needs no script and no network, and its Content-Security-Policy allows neither. The same session
gives the same bytes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from virtqual.files.records import write_file
from virtqual.files.wording import list_names
from virtqual.harness.process import pattern
from virtqual.history.builds import MAX_DETECTABLE_LOG, MetricHistory, Place, describe_changes, describe_notes
from virtqual.references import project_references
from virtqual.report import plots
from virtqual.report.answer import describe_code, describe_session, list_unmeasured
from virtqual.report.comparison import ComparedSeries, compare, differing, letters
from virtqual.report.nodes import compare_nodes, describe_sides
from virtqual.report.rendering import format_time, render_page
from virtqual.report.rows import (
    MAX_ROWS_SHOWN,
    Row,
    draw_values,
    explain_claims,
    find_series,
    format_runs,
    make_rows,
    name_axis,
)
from virtqual.report.summary import Line, make_whole_line
from virtqual.report.terminal import describe_head, format_duration
from virtqual.session.judge import admitted_of
from virtqual.session.pairing import checks_of
from virtqual.session.session import Session
from virtqual.site.held import DEFAULT_NODES
from virtqual.verdict import Outcome, Verdict, texts
from virtqual.verdict.labels import NATIVE_AND_VIRTUAL
from virtqual.verdict.pairs import SIDES
from virtqual.verdict.rule import LOOKS

FILE = "report.html"
#: The first screen has so much of what was not measured.
MAX_UNMEASURED_SHOWN = 4


def render(session: Session) -> str:
    """Return the report of a session that has ended.

    Raises
    ------
    virtqual.errors.UsageError
        A run names a metric that no file declares any more.
    """
    return render_page("report.html.j2", _title(session), **_content(session))


def write(session: Session, directory: Path) -> None:
    """Write the report of a session into its directory.

    A session's verdict does not depend on its report: an error is shown in the report's place.
    """
    try:
        text = render(session)
    except Exception as error:
        text = render_page("failed.html.j2", _title(session), session=session, error=error)
    write_file(text, directory / FILE)


def read_log_digest(content: bytes) -> str | None:
    """Return the SHA-256 of the log that a report names; None if it names none."""
    match = re.search(rb'<meta name="log-sha256" content="([0-9a-f]{64})">', content)
    return match[1].decode() if match else None


def _take_overhead(verdict: Verdict) -> Verdict:
    """Return a verdict with its overhead alone: the change of another session is no part of a comparison."""
    changes = {"gate": "overhead", "change": None, "limit": None, "margin": None}
    return verdict.model_copy(update=changes) if verdict.gate == "change" else verdict


def render_comparison(sessions: Sequence[Session]) -> str:
    """Return several sessions side by side; see `virtqual.report.comparison`."""
    names = letters(len(sessions))
    rows = compare(sessions)
    lines = [make_whole_line(_take_overhead(row.verdict)) if row.verdict else None for row in rows]
    forest = plots.draw_forest(lines)
    metrics: dict[str, list[tuple[ComparedSeries, Line | None, plots.Bar | None]]] = {}
    for row, line, bar in zip(rows, lines, forest.bars, strict=True):
        metrics.setdefault(row.series, []).append((row, line, bar))
    return render_page(
        "compare.html.j2",
        f"{len(sessions)} sessions side by side",
        sessions=list(zip(names, sessions, strict=True)),
        names=names,
        differences=list(differing(sessions)),
        forest=forest,
        metrics=metrics,
    )


def render_history(places: Sequence[Place], unread: Sequence[str]) -> str:
    """Return the history of builds; `unread` says which sessions could not be read, and why."""
    metrics = [(place, metric) for place in places for metric in place.metrics]
    changed = [f"{metric.name} on {place.system}" for place, metric in metrics if metric.summary]
    if changed:
        noun = "metrics have" if len(changed) > 1 else "metric has"
        answer = f"{len(changed)} {noun} changed: {list_names(changed, 3)}"
    elif any(metric.changes.least < MAX_DETECTABLE_LOG for _, metric in metrics):
        answer = "No metric has changed"
    else:
        answer = "There are too few sessions to show a change"
    waivers = project_references().waivers
    contents = [
        {
            "title": place.title,
            "changes": describe_changes(place),
            "metrics": [(metric, _draw_course(metric)) for metric in place.metrics],
            "builds": list(zip(place.builds, place.sessions, strict=True)),
            "notes": list(describe_notes(place, waivers)),
        }
        for place in places
    ]
    title = "The history of hypervisor builds"
    return render_page("history.html.j2", title, answer=answer, places=contents, unread=unread)


def _draw_course(metric: MetricHistory) -> plots.Course:
    """Return a metric of a history by session if it changed, else by build."""
    values = [(level.build, level.log, level.error) for level in metric.levels]
    if metric.summary:
        history, errors = metric.history, np.sqrt(metric.variances).tolist()
        values = list(zip(history.builds.tolist(), history.log.tolist(), errors, strict=True))
    return plots.draw_course(values, [step.at for step in metric.changes.steps])


def _title(session: Session) -> str:
    return f"{session.outcome}: {session.hypervisor} on {session.system}"


def _content(session: Session) -> dict[str, Any]:
    runs = admitted_of(session).runs
    series = find_series(runs, session.outliers)
    all_sizes = find_series(runs, session.outliers, with_reported=True)
    run_of_check = {run.check: run for run in session.runs}
    checks = checks_of(session.runs)
    run_of = {name: run_of_check[check] for name, check in checks.items() if check in run_of_check}
    forest, rows = make_rows(session.verdicts, series, all_sizes, run_of)
    reported = [part for name, part in all_sizes.items() if name not in series and part.valid]
    return {
        "session": session,
        "words": NATIVE_AND_VIRTUAL,
        "format_command": format_command,
        "rows": rows,
        "forest": forest,
        "max_rows": MAX_ROWS_SHOWN,
        "max_unmeasured": MAX_UNMEASURED_SHOWN,
        "reported": [(part, draw_values(part), name_axis(part), format_runs(part)) for part in reported],
        "looks": LOOKS,
        **_describe_answer(session, rows),
        **_describe_both_sides(session),
        **_list_by_outcome(session, rows),
    }


def _describe_answer(session: Session, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the texts of the first screen."""
    return {
        "answer": describe_session(session, [row.line for row in rows]),
        "code": describe_code(session),
        "compared": describe_sides(session),
        "unmeasured": list_unmeasured(session),
        "lost": texts.describe_lost(session.slow_runs.lost) if session.slow_runs else [],
    }


def _describe_both_sides(session: Session) -> dict[str, Any]:
    """Return what was measured, and on which nodes."""
    first = {
        side: next((run for run in session.runs if run.side == side and run.nodes), None) for side in SIDES
    }
    identities = {side: run.identity.get(run.nodes[0]) if run else None for side, run in first.items()}
    facts = _list_facts(session)
    findings = [finding for finding in session.preflight if finding.action != "unseen"]
    return {
        "facts": facts,
        "brief": [facts["measured"], f"system {facts['system']}", f"session {facts['session']}"],
        "identity": compare_nodes(identities),
        "nodes": {side: f", {run.nodes[0]}" if run else "" for side, run in first.items()},
        "first_nodes": identities,
        "findings": findings,
        "claims": explain_claims({claim for finding in findings for claim in finding.protects}),
        "unseen": sorted({finding.item for finding in session.preflight if finding.action == "unseen"}),
    }


def _list_by_outcome(session: Session, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the rows that do not pass by outcome, and those that a bug report needs, if there is a bug."""
    slow = session.slow_runs
    has_bad_runs = slow is not None and bool(slow.found or slow.more_runs)
    over = [row for row in rows if row.verdict.outcome is Outcome.OVER]
    return {
        "over": [row for row in over if not row.verdict.waived],
        "accepted": [row for row in rows if row.verdict.waived],
        "undecided": [row for row in rows if row.verdict.outcome is Outcome.UNDECIDED],
        "invalid": [row for row in rows if row.verdict.outcome is Outcome.INVALID],
        "for_vendor": over or (rows[:3] if has_bad_runs else []),
    }


def _list_facts(session: Session) -> dict[str, str]:
    """Return what was measured, with what, and for how long."""
    measured = f"{format_time(session.created)}, {len(session.runs)} runs"
    if session.runs:
        seconds = max(run.end for run in session.runs) - min(run.start for run in session.runs)
        measured += f", {format_duration(seconds)}"
    label = f" ({session.label})" if session.label else ""
    facts = {**describe_head(session), "measured": measured, "session": session.session + label}
    return facts | ({"log": f"SHA-256 {session.log_digest}"} if session.log_digest else {})


def format_command(session: Session, rows: Sequence[Row]) -> str:
    """Return the command that measures the checks of some metrics again."""
    request = session.request
    line = ["virtqual", "qualify", "--system", session.system]
    if request:
        line += ["--full"] * request.full + ["--stack", request.stack] * bool(request.stack)
        line += ["--class", request.hypervisor_class] * bool(request.hypervisor_class)
        if request.nodes not in (None, DEFAULT_NODES):
            line += ["--nodes", str(request.nodes)]
    if session.against:
        line += ["--against", session.against]
    for check in dict.fromkeys(row.check for row in rows if row.check):
        line += ["-n", pattern(check)]
    return shlex.join(line)
