"""A session as one HTML file: the answer, what it rests on, and what to do, for whoever it is sent to.

The file needs no script and no network, and its Content-Security-Policy allows neither.  The same session
gives the same bytes.  Verdicts are shown as the session keeps them; its pairs are taken from its runs.
"""

from __future__ import annotations

import base64
import hashlib
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from virtqual import paths
from virtqual.files.records import write_file
from virtqual.files.wording import list_names, printable
from virtqual.harness.process import pattern
from virtqual.history.builds import MAX_DETECTABLE_LOG, MetricHistory, Place, describe_changes, describe_notes
from virtqual.references import project_references
from virtqual.references.marks import Mark
from virtqual.references.published import Claim, PublishedCase, Study, load_studies
from virtqual.report import plots
from virtqual.report.comparison import compare, differing, letters, shared
from virtqual.report.identity import words
from virtqual.report.terminal import details
from virtqual.runs import Run
from virtqual.session.judge import admitted_of
from virtqual.session.pairing import checks_of, series_of
from virtqual.session.session import Session
from virtqual.site.placement import word
from virtqual.verdict import Interval, Outcome, Verdict
from virtqual.verdict.outcome import format_ratio, format_value
from virtqual.verdict.pairs import SIDES, Pair, Series, Side
from virtqual.verdict.rule import LOOKS

FILE = "report.html"
#: Sizes of plots: of a bar in the table, and of the plots of one metric (user units of SVG).
BAR, WIDTH, WIDE, HEIGHT = 300, 440, 900, 150
#: A larger logarithm than this is no overhead that a session could find.
MAX_SEEN_LOG = 50
#: Longer words than this are shown by what differs in them.
LONG = 160


def render(session: Session) -> str:
    """Return the report of a session that has ended.

    Raises
    ------
    virtqual.errors.UsageError
        A run names a metric that no file declares any more.
    """
    return _page("report.html.j2", _title(session), session=session, command=command, **_content(session))


def write(session: Session, directory: Path) -> None:
    """Write the report of a session into its directory.

    A session's verdict does not depend on whether its report can be made: what prevents that stands in the
    report's place.
    """
    try:
        text = render(session)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        text = _page("failed.html.j2", _title(session), session=session, why=why)
    write_file(text, directory / FILE)


def render_comparison(sessions: Sequence[Session]) -> str:
    """Return several sessions side by side; see `virtqual.report.comparison`."""
    names = letters(len(sessions))
    rows = compare(sessions)
    drawn = plots.forest([row.verdict for row in rows], BAR)
    metrics: dict[str, list[dict[str, Any]]] = {}
    better = {}
    for row, bar in zip(rows, drawn.bars, strict=True):
        verdict = row.verdict
        if verdict is not None:
            better[row.series] = f"{verdict.better} is better"
        shown = {
            "name": names[row.session],
            "verdict": verdict,
            "word": verdict.outcome.value if verdict else "",
            "ratio": f"{names[row.session]}: {format_ratio(row.overhead)}",
            "bar": bar,
            "overhead": format_ratio(row.overhead),
            "interval": row.interval,
            "native": "-" if row.native is None else format_ratio(row.native),
            "virtual": "-" if row.virtual is None else format_ratio(row.virtual),
            "mark": row.mark,
        }
        metrics.setdefault(row.series, []).append(shown)
    return _page(
        "compare.html.j2",
        f"{len(sessions)} sessions side by side",
        sessions=list(zip(names, sessions, strict=True)),
        when=_when,
        differs=[(fact, shared(words)) for fact, words in differing(sessions)],
        forest=drawn,
        metrics=[(name.replace("@", " "), better.get(name, ""), each) for name, each in metrics.items()],
    )


def render_history(places: Sequence[Place], marks: Sequence[Mark], left: Sequence[str]) -> str:
    """Return the history of builds; `left` says which sessions could not be read, and why."""
    changed = [f"{one.name} on {place.system}" for place in places for one in place.metrics if one.summary]
    several = "metrics have" if len(changed) > 1 else "metric has"
    shown = any(one.changes.least < MAX_DETECTABLE_LOG for place in places for one in place.metrics)
    nothing = "No metric has changed" if shown else "There are too few sessions to show a change"
    return _page(
        "history.html.j2",
        "The history of hypervisor builds",
        answer=f"{len(changed)} {several} changed: {list_names(changed, 3)}" if changed else nothing,
        places=[
            {
                "title": place.title,
                "changes": describe_changes(place, marks),
                "metrics": [_course(one) for one in place.metrics],
                "builds": list(_builds(place)),
                "notes": list(describe_notes(place, marks, project_references().waivers)),
            }
            for place in places
        ],
        left=left,
    )


def _course(one: MetricHistory) -> dict[str, Any]:
    """Return a metric of a history: where something changed by session, else by build."""
    steps, levels = one.changes.steps, one.levels
    history = one.history
    values = [(level.build, level.log, level.error) for level in levels]
    if one.summary:
        errors = np.sqrt(one.variances).tolist()
        values = list(zip(history.builds.tolist(), history.log.tolist(), errors, strict=True))
    return {
        "name": one.name,
        "better": f"{one.better} is better",
        "course": plots.course(values, [step.at for step in steps], WIDE, HEIGHT),
        "sessions": len(one.sessions),
        "first": levels[0].text,
        "last": levels[-1].text,
        "summary": one.summary,
        "outcome": one.outcome,
    }


def _builds(place: Place) -> Iterator[tuple[int, str, str, int]]:
    # The sessions stand in the order of builds, then of time.
    for index, group in groupby(place.sessions, key=place.number):
        first, *others = group
        yield index + 1, place.builds[index], f"{first.created:%Y-%m-%d}", 1 + len(others)


def _title(session: Session) -> str:
    return f"{session.outcome}: {session.hypervisor} on {session.system}"


def _page(template: str, title: str, **content: Any) -> str:
    environment = _environment()
    style = environment.get_template("report.css").render()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return environment.get_template(template).render(
        title=title,
        style=Markup(style),
        style_hash=digest,
        BAR=BAR,
        WIDTH=WIDTH,
        WIDE=WIDE,
        HEIGHT=HEIGHT,
        **content,
    )


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("virtqual.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_shown,
    )


def _shown(value: Any) -> Any:
    """Return what a template shows of a value."""
    if isinstance(value, float):
        return f"{value:g}"
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return printable(value)


@dataclass(frozen=True)
class Row:
    """One verdict, as the template shows it."""

    number: int
    verdict: Verdict
    check: str
    bar: plots.Bar | None
    dots: plots.Dots | None
    curve: plots.Curves | None
    ratios: plots.Curves | None
    axis: str
    rows: list[tuple[str, ...]]
    raw: str
    seen: str
    claims: list[str]

    @property
    def name(self) -> str:
        """Metric and setting."""
        return self.verdict.name

    @property
    def word(self) -> str:
        """The outcome."""
        return self.verdict.outcome.value

    @property
    def estimate(self) -> str:
        """What was judged, or what was recorded where nothing is."""
        return format_ratio(self.verdict.estimate.ratio) if self.verdict.estimate else ""

    @property
    def bounds(self) -> str:
        """Its interval."""
        return (self.verdict.estimate.bounds if self.verdict.estimate else None) or ""

    @property
    def ratio(self) -> str:
        """Both."""
        return f"{self.estimate} ({self.bounds})" if self.bounds else self.estimate

    @property
    def worse(self) -> str:
        """Whether it is better or worse, in a word."""
        estimate = self.verdict.estimate
        return "" if estimate is None else "worse" if estimate.log > 0 else "better"

    @property
    def is_better(self) -> str:
        """Which way the values are better."""
        return f"{self.verdict.better} is better"


def _content(session: Session) -> dict[str, Any]:
    admitted = admitted_of(session)
    series, checks = series_of(admitted.runs, project_references()), checks_of(session.runs)
    ordered = sorted(session.verdicts, key=_excess, reverse=True)
    drawn = plots.forest(ordered, BAR)
    began = min((run.start for run in session.runs), default=0.0)
    rows = [
        _row(index, verdict, series.get(verdict.series), checks, bar, began)
        for index, (verdict, bar) in enumerate(zip(ordered, drawn.bars, strict=True), 1)
    ]
    judged = {run.check for run in session.runs for result in run.results if result.series in series}
    first = {side: next((run for run in session.runs if run.side == side), None) for side in SIDES}
    facts = dict(_facts(session))
    return {
        "rows": rows,
        "forest": drawn,
        "over": [row for row in rows if row.verdict.outcome is Outcome.OVER and not row.verdict.waived],
        "accepted": [row for row in rows if row.verdict.waived],
        "undecided": [row for row in rows if row.verdict.outcome is Outcome.UNDECIDED],
        "invalid": [row for row in rows if row.verdict.outcome is Outcome.INVALID],
        "unmeasured": {name: why for name, why in session.refused.items() if name not in judged},
        "facts": facts,
        "brief": [facts["system"], f"class {facts['class']}", facts["measured"], facts["session"]],
        "identity": _identity(first),
        "nodes": {side: f", {run.nodes[0]}" if run else "" for side, run in first.items()},
        "hosts": list(_hosts(session)),
        "reported": [one for one in session.preflight if one.action != "unseen"],
        "unseen": sorted({one.item for one in session.preflight if one.action == "unseen"}),
        "looks": LOOKS,
        "bug_report": _bug_report(session, rows, first),
    }


def _excess(verdict: Verdict) -> tuple[bool, float]:
    """Return how far a verdict is above its budget; what has no estimate is last."""
    judged = verdict.estimate
    return judged is not None, 0.0 if judged is None else judged.log - (verdict.limit or 0.0)


def _row(
    index: int,
    verdict: Verdict,
    series: Series | None,
    checks: dict[str, str],
    bar: plots.Bar | None,
    began: float,
) -> Row:
    seen = verdict.smallest_over
    sign = 1 if verdict.better == "lower" else -1
    found = series if series is not None and series.pairs else None
    claims = [one for one in _published() if one[2].metric == verdict.metric]
    curve, ratios = _curves(verdict, found, [case for _, _, case in claims if case.sizes])
    return Row(
        number=index,
        verdict=verdict,
        check=checks.get(verdict.series, ""),
        bar=bar,
        dots=_dots(verdict, found),
        curve=curve,
        ratios=ratios,
        axis=f"{found.metric.axis}, {found.metric.axis_unit}" if found and found.points else "",
        rows=list(_sizes(verdict)),
        raw=_raw(found, began) if found else "",
        seen=""
        if seen is None or not math.isfinite(seen) or seen > 50
        else format_ratio(math.exp(sign * seen)),
        claims=[_claimed(*one) for one in claims],
    )


@cache
def _published() -> list[tuple[Study, Claim, PublishedCase]]:
    studies = load_studies(paths.references() / "published")
    return [(study, claim, case) for study in studies for claim in study.claims for case in claim.cases]


def _claimed(study: Study, claim: Claim, case: PublishedCase) -> str:
    """Return what a study says of a metric, in a line."""
    reference, candidate = case.values
    said = study.study
    where = f", {format_value(min(case.sizes))} to {format_value(max(case.sizes))}" if case.sizes else ""
    return (
        f"{format_ratio(candidate / reference)}{where}: {case.setting} ({claim.id}; {said.title}, "
        f"{said.publisher}, {said.date}){'; ' + case.assumption if case.assumption else ''}"
    )


def _ordered(series: Series) -> list[Pair]:
    """Return all pairs in the order in which they began."""

    def began(pair: Pair) -> float:
        starts = [run.start for run in (pair.native, pair.virtual) if run and math.isfinite(run.start)]
        return min(starts, default=math.inf)

    return sorted(series.pairs, key=lambda pair: (began(pair), pair.number))


def _dots(verdict: Verdict, series: Series | None) -> plots.Dots | None:
    if series is None:
        return None
    costs = series.differences.mean(axis=1).tolist()
    known = {pair.number: cost for pair, cost in zip(series.valid, costs, strict=True)}
    marks = [
        (known.get(pair.number), f"first-{pair.first or 'native'}" if pair.number in known else "out")
        for pair in _ordered(series)
    ]
    overhead = verdict.overhead
    whole = verdict.gate == "overhead" and not verdict.points
    return plots.dots(
        marks,
        WIDTH,
        HEIGHT,
        log=overhead.log if overhead else None,
        limit=verdict.limit if whole else None,
        margin=verdict.margin if whole else None,
    )


def _curves(
    verdict: Verdict, series: Series | None, claims: Sequence[PublishedCase]
) -> tuple[plots.Curves | None, plots.Curves | None]:
    """Return the plot of both sides' values over the sizes, and that of what was judged and is claimed."""
    if series is None or not series.points or not series.valid:
        return None, None
    bands = []
    for side in SIDES:
        every = series.values(side)
        ends = zip(series.medians(side), every.min(axis=0), every.max(axis=0), strict=True)
        bands.append((side, series.points, [(math.log(a), math.log(b), math.log(c)) for a, b, c in ends]))
    values = plots.curves(bands, WIDTH, HEIGHT)
    if not verdict.points:
        return values, None
    points = [one.size for one in verdict.points]
    shown: list[plots.Band] = [("ratio", points, [_with_ends(one.judged) for one in verdict.points])]
    limits = [(one.limit, one.limit, one.limit) for one in verdict.points if one.limit is not None]
    if len(limits) == len(points):
        shown.append(("budget", points, limits))
    if verdict.gate == "overhead":
        shown += [_study_curve(case, 1 if verdict.better == "lower" else -1) for case in claims]
    return values, plots.curves(shown, WIDTH, HEIGHT, of_ratios=True)


def _study_curve(case: PublishedCase, sign: int) -> plots.Band:
    """Return the cost that a study claims, over its sizes; outside of a bump it is none."""
    points = case.sizes or []
    reference, candidate = case.values
    cost = sign * math.log(candidate / reference)
    bump = case.bump
    costs = [cost if bump is None or bump.low <= size <= bump.high else 0.0 for size in points]
    return "study", points, [(one, one, one) for one in costs]


def _with_ends(judged: Interval) -> tuple[float, float, float]:
    """Return an estimate with the ends of its interval, itself where it has none."""
    lower, upper = (judged.log if end is None else end for end in (judged.lower, judged.upper))
    return judged.log, lower, upper


def _sizes(verdict: Verdict) -> Iterator[tuple[str, ...]]:
    for one in verdict.points:
        shown = format_ratio(one.judged.ratio) + (f" ({one.judged.bounds})" if one.judged.bounds else "")
        yield f"{one.size:g}", format_value(one.native), format_value(one.virtual), shown


def _raw(series: Series, began: float) -> str:
    """Return every run as comma-separated values; seconds count from the session's first run."""
    head = ["pair", "side", "second", "node", *(f"{p:g}" for p in series.points or ()), "left out because"]
    if not series.points:
        head[4:4] = [series.metric.unit]
    lines = [",".join(head)]
    for pair in _ordered(series):
        runs = [run for run in (pair.native, pair.virtual) if run is not None]
        for run in sorted(runs, key=lambda run: run.start):
            when = f"{run.start - began:.1f}" if math.isfinite(run.start) else ""
            values = (f"{value:.7g}" for value in run.values)
            why = "; ".join(run.invalid or pair.invalid).replace('"', "'")
            lines.append(
                ",".join([str(pair.number), run.side, when, run.node, *values, f'"{why}"' if why else ""])
            )
    return "\n".join(lines)


def _facts(session: Session) -> Iterator[tuple[str, str]]:
    virtual = session.identity["virtual"]
    guest = virtual.get("guest", {})
    yield "build", session.hypervisor
    yield from details(virtual.get("hypervisor", {}).get("details", {})).items()
    if guest.get("kernel"):
        yield "guest kernel", str(guest["kernel"])
    if session.placement:
        yield (
            "placement",
            ", ".join(f"{name.replace('_', ' ')} {word(value)}" for name, value in session.placement.items()),
        )
    yield "system", session.system
    yield "class", session.hypervisor_class
    yield "compared with", session.against or "no earlier session"
    programs = ", ".join(f"{one['name']} {one['version']}" for one in session.stack["programs"])
    yield "stack", f"{session.stack['name']} ({session.stack['hash']}): {programs}"
    ends = [run.end for run in session.runs]
    took = f", {_duration(max(ends) - min(run.start for run in session.runs))}" if ends else ""
    yield "measured", f"{_when(session.created)}, {len(session.runs)} runs{took}"
    yield "session", f"{session.session} ({session.label})" if session.label else session.session


def _when(created: str) -> str:
    return f"{datetime.fromisoformat(created).astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 100 else f"{minutes} min"


def _identity(first: Mapping[Side, Run | None]) -> dict[str, Any]:
    """Return what the first node of either side is: what differs, what is alike, and what only one has."""
    said: dict[Side, dict[tuple[str, str], str]] = {}
    for side, run in first.items():
        known = run.identity.get(run.nodes[0]) if run else None
        said[side] = {(title, name): value for title, name, value in (words(known) if known else ())}
    titles = {side: dict.fromkeys(title for title, _ in facts) for side, facts in said.items()}
    both = titles["native"].keys() & titles["virtual"].keys()
    differ: list[tuple[str, str, str]] = []
    alike: list[tuple[str, str, str]] = []
    for fact in dict.fromkeys(fact for facts in said.values() for fact in facts if fact[0] in both):
        one, other = (facts.get(fact, "not there") for facts in said.values())
        (alike if one == other else differ).append((" ".join(fact), *_beside(one, other)))
    only = []
    for side, facts in said.items():
        rows = [(f"{title} {name}", value) for (title, name), value in facts.items() if title not in both]
        only += [(side, [title for title in titles[side] if title not in both], rows)] if rows else []
    return {"differ": differ, "alike": alike, "only": only}


def _beside(one: str, other: str) -> tuple[str, str]:
    if one == other or len(one) + len(other) <= LONG:
        return one, other
    return _only(one, other), _only(other, one)


def _only(text: str, other: str) -> str:
    left = [word for word in text.split() if word not in set(other.split())]
    return f"beside what both have: {' '.join(left)}" if left else "only what both have"


def _hosts(session: Session) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for verdict in session.verdicts:
        if verdict.hosts:
            worst_first = sorted(verdict.hosts.items(), key=lambda one: -one[1])
            each = [(host, f"{factor - 1:+.1%}") for host, factor in worst_first]
            yield verdict.name, each


def _bug_report(session: Session, rows: Sequence[Row], first: Mapping[Side, Run | None]) -> str:
    """Return text for whoever makes the hypervisor: what was measured, on what, and how to do it again."""
    over = [row for row in rows if row.verdict.outcome is Outcome.OVER] or rows[:3]
    lines = [session.message, ""]
    lines += [
        f"{name}: {value}" for name, value in _facts(session) if name not in ("session", "compared with")
    ]
    for side, run in first.items():
        identity = run.identity.get(run.nodes[0]) if run else None
        if identity is not None:
            lines += [
                "",
                f"{side} node",
                f"  processor {_word(identity.cpu.model)} ({_word(identity.cpu.signature)}), "
                f"microcode {_word(identity.cpu.microcode)}",
                f"  kernel {_word(identity.kernel.release)}",
                f"  command line {_word(identity.kernel.command_line)}",
            ]
    for row in over:
        verdict = row.verdict
        lines += [
            "",
            f"{row.name} ({row.is_better})",
            f"  native {_shown_value(verdict.native)}, virtual {_shown_value(verdict.virtual)} "
            f"{verdict.unit} (medians of {verdict.pairs} pairs, native and virtual in turn)",
            f"  {row.ratio} {row.worse}; budget {verdict.budget}",
        ]
        lines += [f"  {finding.text}" for finding in verdict.findings if verdict.points]
    lines += ["", "To measure it again:", f"  {command(session, over)}"]
    return "\n".join(lines)


def _shown_value(value: float | None) -> str:
    return "-" if value is None else format_value(value)


def _word(value: object) -> str:
    return value if isinstance(value, str) else "not observable"


def command(session: Session, rows: Sequence[Row]) -> str:
    """Return the command that measures the checks of some metrics again."""
    asked = session.request
    line = ["virtqual", "qualify", "--system", session.system]
    if asked:
        line += ["--full"] * asked.full + ["--stack", asked.stack] * bool(asked.stack)
        line += ["--class", asked.hypervisor_class] * bool(asked.hypervisor_class)
    for check in dict.fromkeys(row.check for row in rows if row.check):
        line += ["-n", pattern(check)]
    return shlex.join(line)
