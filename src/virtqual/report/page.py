"""A session as one HTML file: the answer, its evidence, and the next steps.

The file needs no script and no network, and its Content-Security-Policy allows neither. The same session
gives the same bytes.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from virtqual import paths
from virtqual.files.records import write_file
from virtqual.files.wording import list_names
from virtqual.harness.process import pattern
from virtqual.history.builds import MAX_DETECTABLE_LOG, MetricHistory, Place, describe_changes, describe_notes
from virtqual.identity import Identity
from virtqual.references import project_references
from virtqual.references.published import Claim, PublishedCase, Study, load_studies
from virtqual.report import plots
from virtqual.report.comparison import ComparedSeries, compare, differing, letters
from virtqual.report.identity import describe
from virtqual.report.projection import Slowdown, project_noise
from virtqual.report.rendering import format_time, render_page
from virtqual.report.terminal import describe_head, format_duration
from virtqual.runs import Run
from virtqual.session.conclusion import describe_failures
from virtqual.session.judge import admitted_of
from virtqual.session.lost import list_refusing_failures
from virtqual.session.pairing import checks_of, series_of
from virtqual.session.session import Session
from virtqual.site.held import DEFAULT_NODES
from virtqual.verdict import Outcome, Verdict, texts
from virtqual.verdict.notation import Direction, describe_bounds, describe_slowdown, format_value, sign_of
from virtqual.verdict.outliers import Outlier, without_hosts
from virtqual.verdict.pairs import SIDES, Pair, Series, Side
from virtqual.verdict.places import places_of
from virtqual.verdict.rule import LOOKS

FILE = "report.html"
#: Two texts with more characters are shown by the words in which they differ.
MAX_COMPARED_CHARS = 160


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
    forest = plots.draw_forest([row.verdict and _take_overhead(row.verdict) for row in rows])
    metrics: dict[str, list[tuple[ComparedSeries, plots.Bar | None]]] = {}
    for row, bar in zip(rows, forest.bars, strict=True):
        metrics.setdefault(row.series, []).append((row, bar))
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


@dataclass(frozen=True)
class Row:
    """One verdict, as the template shows it."""

    number: int
    verdict: Verdict
    check: str
    bar: plots.Bar | None
    claims: list[str]
    dots: plots.Dots | None = None
    curve: plots.Curves | None = None
    ratios: plots.Curves | None = None
    axis: str = ""
    raw: str = ""
    slowdowns: Sequence[dict[Side, Slowdown]] = ()

    @property
    def bounds(self) -> str:
        """The bounds of the estimate; empty if they are unknown."""
        estimate = self.verdict.estimate
        if estimate is None or estimate.bounds is None:
            return ""
        return describe_bounds(estimate.log, self.verdict.better, estimate.bounds)

    @property
    def slowdown(self) -> str:
        """The estimate without its bounds; ``-`` if there is none."""
        estimate = self.verdict.estimate
        return describe_slowdown(estimate.log, self.verdict.better) if estimate else "-"

    @property
    def smallest_over(self) -> str:
        """The smallest overhead that would have been OVER."""
        log = self.verdict.smallest_over
        return "-" if log is None else describe_slowdown(log, self.verdict.better)


def _content(session: Session) -> dict[str, Any]:
    runs = admitted_of(session).runs
    series = _find_series(runs, session.outliers)
    all_sizes = _find_series(runs, session.outliers, with_reported=True)
    began = min((run.start for run in session.runs), default=0.0)
    forest, rows = _make_rows(session, series, all_sizes, began)
    judged = {run.check for run in session.runs for result in run.results if result.series in series}
    first = {
        side: next((run for run in session.runs if run.side == side and run.nodes), None) for side in SIDES
    }
    identities = {side: run.identity.get(run.nodes[0]) if run else None for side, run in first.items()}
    facts = _list_facts(session)
    over = [row for row in rows if row.verdict.outcome is Outcome.OVER]
    return {
        "session": session,
        "format_command": format_command,
        "rows": rows,
        "forest": forest,
        "over": [row for row in over if not row.verdict.waived],
        "accepted": [row for row in rows if row.verdict.waived],
        "undecided": [row for row in rows if row.verdict.outcome is Outcome.UNDECIDED],
        "invalid": [row for row in rows if row.verdict.outcome is Outcome.INVALID],
        "for_vendor": over or rows[:3],
        "reported": [
            (part, _draw_values(part), _name_axis(part), _format_runs(part, began))
            for name, part in all_sizes.items()
            if name not in series and part.valid
        ],
        "failures": describe_failures(list_refusing_failures(session)),
        "lost": texts.describe_lost(session.slow_runs.lost) if session.slow_runs else [],
        "unmeasured": {name: reasons for name, reasons in session.refused.items() if name not in judged},
        "facts": facts,
        "brief": [facts["system"], f"class {facts['class']}", facts["measured"], facts["session"]],
        "identity": _compare_nodes(identities),
        "nodes": {side: f", {run.nodes[0]}" if run else "" for side, run in first.items()},
        "first_nodes": identities,
        "findings": [finding for finding in session.preflight if finding.action != "unseen"],
        "unseen": sorted({finding.item for finding in session.preflight if finding.action == "unseen"}),
        "looks": LOOKS,
    }


def _find_series(
    runs: Sequence[Run], outliers: Sequence[Outlier], *, with_reported: bool = False
) -> dict[str, Series]:
    """Return the series of runs as they were judged: rotations lack pairs of hosts that were set aside."""
    series = series_of(runs, project_references(), with_reported=with_reported)
    rotated = [name for name in series if outliers and places_of(series[name].chosen).kind == "rotated"]
    return series | {name: without_hosts(series[name], outliers) for name in rotated}


def _make_rows(
    session: Session, series: Mapping[str, Series], all_sizes: Mapping[str, Series], began: float
) -> tuple[plots.Forest, list[Row]]:
    """Return the rows of all verdicts, the worst first, with their axis; see `_make_row`."""
    verdicts = sorted(session.verdicts, key=_excess, reverse=True)
    forest = plots.draw_forest(verdicts)
    checks, runs = checks_of(session.runs), {run.check: run for run in session.runs}
    rows = []
    for number, (verdict, bar) in enumerate(zip(verdicts, forest.bars, strict=True), 1):
        run = runs.get(checks.get(verdict.series, ""))
        name = verdict.series
        rows.append(_make_row(number, verdict, bar, run, series.get(name), all_sizes.get(name), began))
    return forest, rows


def _excess(verdict: Verdict) -> tuple[bool, float]:
    """Return how far a verdict is above its budget; a verdict without estimate is last."""
    estimate = verdict.estimate
    return estimate is not None, 0.0 if estimate is None else estimate.log - (verdict.limit or 0.0)


def _make_row(
    number: int,
    verdict: Verdict,
    bar: plots.Bar | None,
    run: Run | None,
    series: Series | None,
    all_sizes: Series | None,
    began: float,
) -> Row:
    """Return the row of a verdict; `all_sizes` is its series with the sizes that are only reported."""
    claims = [(study, claim, case) for study, claim, case in _load_claims() if case.metric == verdict.metric]
    texts = [_describe_claim(*entry, verdict.better) for entry in claims]
    row = Row(number, verdict, run.check if run else "", bar, texts)
    if series is None or all_sizes is None:
        return row
    curve = _draw_values(all_sizes) if series.valid else None
    ratios = None
    if curve and verdict.points:
        ratios = _draw_ratios(verdict, [case for _, _, case in claims if case.sizes])
    return replace(
        row,
        dots=_draw_dots(verdict, series),
        curve=curve,
        ratios=ratios,
        axis=_name_axis(series),
        raw=_format_runs(all_sizes, began),
        slowdowns=project_noise(series, run) if run else [],
    )


@cache
def _load_claims() -> list[tuple[Study, Claim, PublishedCase]]:
    studies = load_studies(paths.references() / "published")
    return [(study, claim, case) for study in studies for claim in study.claims for case in claim.cases]


def _describe_claim(study: Study, claim: Claim, case: PublishedCase, better: Direction) -> str:
    """Return the claim of a study on a metric, in a line."""
    reference, candidate = case.values
    log = math.log(candidate / reference) * sign_of(better)
    source = study.study
    sizes = f", {format_value(min(case.sizes))} to {format_value(max(case.sizes))}" if case.sizes else ""
    return (
        f"{describe_slowdown(log, better)}{sizes}: {case.setting} ({claim.id}; {source.title}, "
        f"{source.publisher}, {source.date}){'; ' + case.assumption if case.assumption else ''}"
    )


def _sort_pairs(series: Series) -> list[Pair]:
    """Return all pairs in the order in which they began."""

    def began(pair: Pair) -> float:
        return min((run.start for run in pair.samples if math.isfinite(run.start)), default=math.inf)

    return sorted(series.pairs, key=lambda pair: (began(pair), pair.number))


def _draw_dots(verdict: Verdict, series: Series) -> plots.Dots:
    """Return the plot of all pairs in the order of time."""
    means = series.differences.mean(axis=1).tolist()
    costs = {pair.number: cost for pair, cost in zip(series.valid, means, strict=True)}
    marks = [
        (costs.get(pair.number), f"first-{pair.first or 'native'}" if pair.number in costs else "out")
        for pair in _sort_pairs(series)
    ]
    has_budget = verdict.gate == "overhead" and not verdict.points
    return plots.draw_dots(
        marks,
        log=verdict.overhead.log if verdict.overhead else None,
        limit=verdict.limit if has_budget else None,
        within_below=verdict.within_below if has_budget else None,
    )


def _draw_values(series: Series) -> plots.Curves | None:
    """Return the plot of both sides' values over the sizes; None for one size, which makes no curve."""
    if len(series.points) < 2:
        return None
    bands = []
    for side in SIDES:
        values = series.values[side]
        logs = np.log([series.medians[side], values.min(axis=0), values.max(axis=0)])
        bands.append((side, series.points, [tuple(row) for row in logs.T.tolist()]))
    return plots.draw_curves(bands)


def _name_axis(series: Series) -> str:
    """Return quantity and unit of a curve's sizes; empty for a scalar."""
    metric = series.metric
    judged = f" (judged up to {metric.judged_up_to:g})" if metric.judged_up_to else ""
    return f"{metric.axis}, {metric.axis_unit}{judged}" if series.points else ""


def _draw_ratios(verdict: Verdict, claims: Sequence[PublishedCase]) -> plots.Curves:
    """Return the plot of the judged ratios over the sizes, with the budget and the claims of studies."""
    sizes = [point.size for point in verdict.points]
    estimates = []
    for point in verdict.points:
        judged = point.judged
        lower, upper = (judged.log if end is None else end for end in (judged.lower, judged.upper))
        estimates.append((judged.log, lower, upper))
    bands: list[plots.Band] = [("ratio", sizes, estimates)]
    limits = [(point.limit,) * 3 for point in verdict.points if point.limit is not None]
    if len(limits) == len(sizes):
        bands.append(("budget", sizes, limits))
    if verdict.gate == "overhead":
        bands += [_make_claim_band(case, sign_of(verdict.better)) for case in claims]
    return plots.draw_curves(bands, has_ratios=True)


def _make_claim_band(case: PublishedCase, sign: int) -> plots.Band:
    """Return the cost that a study claims over its sizes; outside of a bump there is none."""
    sizes = case.sizes or []
    reference, candidate = case.values
    cost = sign * math.log(candidate / reference)
    bump = case.bump
    costs = [cost if bump is None or bump.low <= size <= bump.high else 0.0 for size in sizes]
    return "study", sizes, [(value, value, value) for value in costs]


def _format_runs(series: Series, began: float) -> str:
    """Return every run as comma-separated values; seconds count from the session's first run."""
    values = [f"{size:g}" for size in series.points] if series.points else [series.metric.unit]
    lines = [",".join(["pair", "side", "second", "node", *values, "left out because"])]
    for pair in _sort_pairs(series):
        for run in sorted(pair.samples, key=lambda run: run.start):
            second = f"{run.start - began:.1f}" if math.isfinite(run.start) else ""
            values = [f"{value:.7g}" for value in run.values]
            reasons = "; ".join(run.invalid or pair.invalid).replace('"', "'")
            quoted = f'"{reasons}"' if reasons else ""
            lines.append(",".join([str(pair.number), run.side, second, run.node, *values, quoted]))
    return "\n".join(lines)


def _list_facts(session: Session) -> dict[str, str]:
    """Return what was measured, with what, and for how long."""
    measured = f"{format_time(session.created)}, {len(session.runs)} runs"
    if session.runs:
        seconds = max(run.end for run in session.runs) - min(run.start for run in session.runs)
        measured += f", {format_duration(seconds)}"
    label = f" ({session.label})" if session.label else ""
    facts = {**describe_head(session), "measured": measured, "session": session.session + label}
    return facts | ({"log": f"SHA-256 {session.log_digest}"} if session.log_digest else {})


def _compare_nodes(identities: Mapping[Side, Identity | None]) -> dict[str, Any]:
    """Return the facts of a node of either side: different, equal, and those of one side alone."""
    facts = {side: describe(identity) if identity else {} for side, identity in identities.items()}
    native, virtual = facts["native"], facts["virtual"]
    common = {section for section, _ in native} & {section for section, _ in virtual}
    different: list[tuple[str, str, str]] = []
    equal: list[tuple[str, str, str]] = []
    for key in dict.fromkeys((*native, *virtual)):
        if key[0] in common:
            old, new = native.get(key, "not there"), virtual.get(key, "not there")
            (equal if old == new else different).append((" ".join(key), *_shorten_difference(old, new)))
    only = []
    for side, facts_of_side in facts.items():
        rows = [(" ".join(key), text) for key, text in facts_of_side.items() if key[0] not in common]
        sections = list(dict.fromkeys(section for section, _ in facts_of_side if section not in common))
        only += [(side, sections, rows)] if rows else []
    return {"different": different, "equal": equal, "only": only}


def _shorten_difference(first: str, second: str) -> tuple[str, str]:
    """Return two texts, or the words in which they differ if they are long."""
    if first == second or len(first) + len(second) <= MAX_COMPARED_CHARS:
        return first, second
    words, other_words = first.split(), second.split()
    removed = " ".join(word for word in words if word not in set(other_words))
    added = " ".join(word for word in other_words if word not in set(words))
    before, after = (
        f"beside what both have: {text}" if text else "only what both have" for text in (removed, added)
    )
    return before, after


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
