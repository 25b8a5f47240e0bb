"""What a reader wants first: one sentence for all verdicts, and a line for each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from virtqual.files.wording import list_names, pluralize
from virtqual.verdict import Interval, Outcome, OverRange, Point, Verdict
from virtqual.verdict.notation import (
    Direction,
    describe_bounds,
    describe_slowdown,
    exp_or_inf,
    format_percent,
    format_value,
)
from virtqual.verdict.slow_runs import SlowRuns

#: What blocks is shown first.
_ORDER = (Outcome.OVER, Outcome.INVALID, Outcome.UNDECIDED, Outcome.WITHIN, Outcome.BASELINE)
#: What the exit code of each outcome means.
MEANINGS = {
    0: "it passes",
    1: "over budget",
    3: "undecided, which is not a pass",
    4: "refused: no comparison is possible",
    5: "the infrastructure failed",
    130: "interrupted",
}


@dataclass(frozen=True)
class Line:
    """One verdict in a table: of a curve the size that decides it."""

    verdict: Verdict
    judged: Interval | None
    #: The budget at that size in log units; None without one.
    limit: float | None
    #: The overhead from which on no estimate is WITHIN there, in log units.
    within_below: float | None
    #: Such as ``at 2 MiB``; empty for a scalar.
    size: str
    #: Medians in the verdict's unit.
    native: float | None
    virtual: float | None

    @property
    def outcome(self) -> Outcome:
        """The outcome of the verdict."""
        return self.verdict.outcome

    @property
    def slowdown(self) -> str:
        """The estimate without its interval; ``-`` if there is none."""
        return describe_slowdown(self.judged.log, self.verdict.better) if self.judged else "-"

    @property
    def bounds(self) -> str:
        """The interval; empty if it is unknown."""
        if self.judged is None or self.judged.bounds is None:
            return ""
        return describe_bounds(self.judged.log, self.verdict.better, self.judged.bounds)

    @property
    def result(self) -> str:
        """Such as ``35 % slower (16 to 45 %)``."""
        return f"{self.slowdown} ({self.bounds})" if self.bounds else self.slowdown

    @property
    def allowed(self) -> str:
        """Such as ``at most 60 %``; ``-`` without a budget."""
        if self.limit is None:
            return "-"
        return describe_limit(self.limit, self.verdict.better, as_factor="x as" in self.slowdown)

    @property
    def values(self) -> str:
        """The values of both sides, such as ``12.1 and 11.8 GB/s``; empty without values."""
        if self.native is None or self.virtual is None:
            return ""
        return f"{format_value(self.native)} and {format_value(self.virtual)} {self.verdict.unit}"

    @property
    def name(self) -> str:
        """Metric, setting and size."""
        return f"{self.verdict.title} {self.size}".strip()


def describe_limit(limit: float, better: Direction, *, as_factor: bool = False) -> str:
    """Return the largest slowdown that is allowed, such as ``at most 60%``, or ``at most 4x``.

    Examples
    --------
    >>> describe_limit(0.0953102, "lower")
    'at most 10%'
    """
    fraction = exp_or_inf(limit) - 1 if better == "lower" else 1 - exp_or_inf(-limit)
    if fraction >= 1 or as_factor:
        return f"at most {exp_or_inf(limit):.3g}x"
    return f"at most {format_percent(round(fraction, 4))}"


def make_line(verdict: Verdict, axis_unit: str = "") -> Line:
    """Return the line of a verdict; `axis_unit` is that of the sizes of a curve."""
    point = find_decisive(verdict)
    if point is None:
        return make_whole_line(verdict)
    limit = None if verdict.outcome is Outcome.BASELINE else point.limit
    within_below = None if limit is None or point.margin is None else limit + point.margin
    size = f"at {format_size(point.size, axis_unit)}"
    return Line(verdict, point.judged, limit, within_below, size, point.native, point.virtual)


def make_whole_line(verdict: Verdict) -> Line:
    """Return the line of a verdict with the mean over all sizes of a curve."""
    has_limit = verdict.outcome is not Outcome.BASELINE
    limit, within_below = (verdict.limit, verdict.within_below) if has_limit else (None, None)
    return Line(verdict, verdict.estimate, limit, within_below, "", verdict.native, verdict.virtual)


def find_decisive(verdict: Verdict) -> Point | None:
    """Return the size of a curve that decides: the slowest of those over budget, else of all.

    None for a scalar.
    """
    over = [point for point in verdict.points if any(_covers(finding, point) for finding in verdict.findings)]
    return max(over or verdict.points, key=lambda point: point.judged.log, default=None)


def _covers(finding: OverRange, point: Point) -> bool:
    low, high = finding.low, finding.high
    return low is not None and high is not None and low <= point.size <= high


def format_size(size: float, unit: str) -> str:
    """Return a size with its unit, of bytes in binary multiples.

    Examples
    --------
    >>> format_size(2097152.0, "B"), format_size(3.0, "nodes")
    ('2 MiB', '3 nodes')
    """
    if unit in ("B", "bytes", "byte"):
        for power, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
            if size >= power and size * 8 % power == 0:
                return f"{size / power:g} {name}"
    return f"{format_value(size)} {unit}".strip()


def sort_lines(verdicts: Sequence[Verdict], axis_units: Mapping[str, str] | None = None) -> list[Line]:
    """Return the lines of verdicts: what blocks first, then the slowest first.

    `axis_units` has the unit of the sizes by series.
    """
    units = axis_units or {}
    lines = [make_line(verdict, units.get(verdict.series, "")) for verdict in verdicts]
    return sorted(lines, key=_rank)


def _rank(line: Line) -> tuple[bool, int, bool, float]:
    judged = line.judged
    return (
        line.verdict.passes,
        _ORDER.index(line.outcome),
        judged is None,
        -judged.log if judged else 0.0,
    )


def describe_answer(
    outcome: Outcome, lines: Sequence[Line], subject: str, slow_runs: SlowRuns | None = None
) -> str:
    """Return one or two sentences on sorted lines: how many metrics hold, and the worst with its limit.

    `subject` is what was judged, such as a build.

    Examples
    --------
    >>> describe_answer(Outcome.INVALID, [], "The candidate")
    'Nothing could be judged.'
    """
    text = _describe_outcome(outcome, lines, subject, slow_runs) if lines else "nothing could be judged."
    return text[:1].upper() + text[1:]


def _describe_outcome(
    outcome: Outcome, lines: Sequence[Line], subject: str, slow_runs: SlowRuns | None
) -> str:
    chosen = [line for line in lines if line.outcome is outcome and not line.verdict.waived]
    # A metric may have a verdict on its overhead, and one on the change.
    noun = "metric" if len({line.verdict.gate for line in lines}) == 1 else "verdict"
    count = {2: "both"}.get(len(lines), f"all {len(lines)}")
    all_metrics = f"its {noun}" if len(lines) == 1 else f"{count} {noun}s"
    some = all_metrics if len(chosen) == len(lines) else f"{len(chosen)} of {len(lines)} {noun}s"
    if outcome is Outcome.OVER:
        if not chosen:
            why = f" ({slow_runs.text})" if slow_runs else ""
            return f"{subject} is not within budget: its runs are slow or lost too often{why}."
        return f"{subject} is over budget on {some}. {_describe_first(chosen, 'worst')}"
    if outcome is Outcome.UNDECIDED:
        return _describe_undecided(chosen, some, all_metrics, subject)
    if outcome is Outcome.INVALID:
        return f"{subject} could not be judged on {some}."
    if outcome is Outcome.BASELINE:
        metrics = pluralize(len(lines), "metric")
        return f"A baseline of {subject} was recorded with {metrics}; no budget applies to it."
    if waived := sum(line.verdict.waived for line in lines):
        within = f"{len(lines) - waived} of {pluralize(len(lines), 'metric')}"
        return f"{subject} is within budget on {within}; {waived} accepted by waiver."
    return f"{subject} is within budget on {all_metrics}. {_describe_first(lines, 'slowest')}"


def _describe_first(lines: Sequence[Line], which: str) -> str:
    """Return the largest slowdown of some lines in one sentence, with its limit."""
    line = find_slowest(lines)
    head = f"The {which} is {line.name}: " if len(lines) > 1 else f"{line.name}: "
    return f"{head}{_describe_result(line)}."


def find_slowest(lines: Sequence[Line]) -> Line:
    """Return the line with the largest slowdown."""
    return max(lines, key=lambda line: line.judged.log if line.judged else -math.inf)


def _describe_result(line: Line) -> str:
    return line.result if line.limit is None else f"{line.result}, {line.allowed} is allowed"


def _describe_undecided(chosen: Sequence[Line], some: str, all_metrics: str, subject: str) -> str:
    if not chosen:
        return f"No verdict on {subject}, although it is within budget on {all_metrics}: runs were lost."
    if all(not line.verdict.pairs and line.judged for line in chosen):
        return f"An estimate, and no verdict. {_describe_first(chosen, 'slowest')}"
    return f"No verdict yet on {some} of {subject}. {_describe_first(chosen, 'slowest')}"


def describe_so_far(lines: Sequence[Line]) -> str:
    """Return how many of the verdicts have which outcome, such as ``2 over budget, 9 within budget``."""
    words = {
        Outcome.OVER: "over budget",
        Outcome.INVALID: "not judged",
        Outcome.UNDECIDED: "undecided",
        Outcome.WITHIN: "within budget",
        Outcome.BASELINE: "recorded without a budget",
    }
    counts = Counter(Outcome.WITHIN if line.verdict.passes else line.outcome for line in lines)
    parts = [f"{counts[outcome]} {word}" for outcome, word in words.items() if counts[outcome]]
    return list_names(parts, len(parts)) if parts else ""
