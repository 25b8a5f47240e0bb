"""The verdicts of a report, each with its line, its plots and its runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from virtqual import paths
from virtqual.references import project_references
from virtqual.references.published import Claim, PublishedCase, Study, load_studies
from virtqual.report import plots
from virtqual.report.projection import Slowdown, project_noise
from virtqual.report.summary import Line, describe_allowed, sort_lines
from virtqual.runs import Run
from virtqual.session.pairing import series_of
from virtqual.verdict import Outcome, Point, Verdict
from virtqual.verdict.labels import NATIVE_AND_VIRTUAL, Labels
from virtqual.verdict.notation import (
    MAX_SHOWN,
    Direction,
    describe_slowdown,
    format_size,
    format_value,
    sign_of,
)
from virtqual.verdict.outliers import Outlier, without_hosts
from virtqual.verdict.pairs import SIDES, Pair, Series, Side
from virtqual.verdict.places import places_of

#: The picture of the first screen has so many metrics; the others follow in a list that opens.
MAX_ROWS_SHOWN = 12
#: An end of an interval that is farther off says nothing, and would flatten all others.
MAX_DRAWN_LOG = math.log(MAX_SHOWN)


@dataclass(frozen=True)
class Row:
    """One verdict, as the template shows it."""

    number: int
    line: Line
    check: str
    bar: plots.Bar | None
    #: What the metric is, in words; empty if no file declares it.
    about: str = ""
    claims: Sequence[str] = ()
    dots: plots.Dots | None = None
    curve: plots.Curves | None = None
    ratios: plots.Curves | None = None
    axis: str = ""
    raw: str = ""
    slowdowns: Sequence[dict[Side, Slowdown]] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict."""
        return self.line.verdict

    @property
    def sizes(self) -> list[tuple[str, Point, str]]:
        """The sizes of a curve as people write them, each with its numbers and its limit."""
        better, is_baseline = self.verdict.better, self.verdict.outcome is Outcome.BASELINE
        return [
            (
                format_size(point.size, self.verdict.axis_unit),
                point,
                "-" if point.limit is None or is_baseline else describe_allowed(point.limit, better),
            )
            for point in self.verdict.points
        ]

    @property
    def smallest_over(self) -> str:
        """The smallest overhead that would have been OVER."""
        log = self.verdict.smallest_over
        return "-" if log is None or self.line.limit is None else describe_slowdown(log, self.verdict.better)


def find_series(
    runs: Sequence[Run], outliers: Sequence[Outlier], *, with_reported: bool = False
) -> dict[str, Series]:
    """Return the series of runs as they were judged: rotations lack pairs of hosts that were set aside."""
    series = series_of(runs, project_references(), with_reported=with_reported)
    rotated = [name for name in series if outliers and places_of(series[name].chosen).kind == "rotated"]
    return series | {name: without_hosts(series[name], outliers) for name in rotated}


def make_rows(
    verdicts: Sequence[Verdict],
    series: Mapping[str, Series],
    all_sizes: Mapping[str, Series],
    runs: Mapping[str, Run],
    words: Labels = NATIVE_AND_VIRTUAL,
) -> tuple[plots.Forest, list[Row]]:
    """Return the rows of verdicts, those that matter first, with their axis.

    `series` has the pairs by ``metric@setting``; `all_sizes` the same with the sizes that are only reported,
    and `runs` a run of its check.
    """
    metrics = project_references().metrics
    lines = sort_lines(verdicts)
    forest = plots.draw_forest(lines, words.reference)
    rows = []
    for number, (line, bar) in enumerate(zip(lines, forest.bars, strict=True), 1):
        name = line.verdict.series
        row = Row(number, line, runs[name].check if name in runs else "", bar)
        if line.verdict.metric in metrics:
            row = replace(row, about=metrics[line.verdict.metric].description)
        if name in series:
            row = _add_plots(row, series[name], all_sizes.get(name, series[name]), words)
        if name in series and name in runs:
            row = replace(row, slowdowns=project_noise(series[name], runs[name]))
        rows.append(row)
    return forest, rows


def _add_plots(row: Row, series: Series, all_sizes: Series, words: Labels) -> Row:
    """Return a row with its plots and runs; `all_sizes` has the sizes that are only reported, too."""
    verdict = row.verdict
    claims = [(study, claim, case) for study, claim, case in _load_claims() if case.metric == verdict.metric]
    curve = draw_values(all_sizes) if series.valid else None
    ratios = None
    if curve and verdict.points:
        cases = [case for _, _, case in claims if case.sizes]
        ratios = _draw_ratios(verdict, cases, series.metric.axis_unit, words)
    return replace(
        row,
        claims=[_describe_claim(*entry, verdict.better) for entry in claims],
        dots=_draw_dots(verdict, series, words),
        curve=curve,
        ratios=ratios,
        axis=name_axis(series),
        raw=format_runs(all_sizes),
    )


@cache
def _load_studies() -> list[Study]:
    return load_studies(paths.references() / "published")


@cache
def _load_claims() -> list[tuple[Study, Claim, PublishedCase]]:
    return [
        (study, claim, case) for study in _load_studies() for claim in study.claims for case in claim.cases
    ]


def explain_claims(ids: Collection[str]) -> dict[str, str]:
    """Return what studies say, with their titles, by the id of the claim; unknown ids are left out."""
    return {
        claim.id: f"{claim.claim} ({study.study.title}, {study.study.publisher}, {study.study.date})"
        for study in _load_studies()
        for claim in study.claims
        if claim.id in ids
    }


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


def _draw_dots(verdict: Verdict, series: Series, words: Labels) -> plots.Dots:
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
        better=verdict.better,
        reference=words.reference,
    )


def draw_values(series: Series) -> plots.Curves | None:
    """Return the plot of both sides' values over the sizes; None for one size, which makes no curve."""
    if len(series.points) < 2:
        return None
    bands = []
    for side in SIDES:
        values = series.values[side]
        logs = np.log([series.medians[side], values.min(axis=0), values.max(axis=0)])
        bands.append((side, series.points, [tuple(row) for row in logs.T.tolist()]))
    return plots.draw_curves(bands, series.metric.axis_unit)


def name_axis(series: Series) -> str:
    """Return the quantity of a curve's sizes; empty for a scalar."""
    metric = series.metric
    if not series.points:
        return ""
    up_to = metric.judged_up_to
    judged = f" (judged up to {format_size(up_to, metric.axis_unit)})" if up_to else ""
    return f"{metric.axis}{judged}"


def _draw_ratios(verdict: Verdict, claims: Sequence[PublishedCase], unit: str, words: Labels) -> plots.Curves:
    """Return the plot of the judged ratios over the sizes, with the budget and the claims of studies."""
    sizes = [point.size for point in verdict.points]
    estimates = []
    for point in verdict.points:
        judged = point.judged
        ends = (judged.lower, judged.upper)
        lower, upper = (judged.log if end is None or abs(end) > MAX_DRAWN_LOG else end for end in ends)
        estimates.append((judged.log, lower, upper))
    bands: list[plots.Band] = [("ratio", sizes, estimates)]
    limits = [(point.limit,) * 3 for point in verdict.points if point.limit is not None]
    if len(limits) == len(sizes) and verdict.outcome is not Outcome.BASELINE:
        bands.append(("budget", sizes, limits))
    if verdict.gate == "overhead":
        bands += [_make_claim_band(case, sign_of(verdict.better)) for case in claims]
    return plots.draw_curves(bands, unit, slowdowns_of=verdict.better, reference=words.reference)


def _make_claim_band(case: PublishedCase, sign: int) -> plots.Band:
    """Return the cost that a study claims over its sizes; outside of a bump there is none."""
    sizes = case.sizes or []
    reference, candidate = case.values
    cost = sign * math.log(candidate / reference)
    bump = case.bump
    costs = [cost if bump is None or bump.low <= size <= bump.high else 0.0 for size in sizes]
    return "study", sizes, [(value, value, value) for value in costs]


def format_runs(series: Series) -> str:
    """Return every run as comma-separated values; seconds count from the first run of the series."""
    starts = [run.start for pair in series.pairs for run in pair.samples if math.isfinite(run.start)]
    began = min(starts, default=0.0)
    values = [f"{size:.15g}" for size in series.points] if series.points else [series.metric.unit]
    lines = [",".join(["pair", "side", "second", "node", *values, "left out because"])]
    for pair in _sort_pairs(series):
        for run in sorted(pair.samples, key=lambda run: run.start):
            second = f"{run.start - began:.1f}" if math.isfinite(run.start) else ""
            values = [f"{value:.7g}" for value in run.values]
            reasons = "; ".join(run.invalid or pair.invalid).replace('"', "'")
            quoted = f'"{reasons}"' if reasons else ""
            lines.append(",".join([str(pair.number), run.side, second, run.node, *values, quoted]))
    return "\n".join(lines)
