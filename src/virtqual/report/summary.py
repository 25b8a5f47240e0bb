"""What a reader wants first: one sentence for all verdicts, and a line for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from virtqual.files.wording import pluralize
from virtqual.verdict import Interval, Outcome, Point, Verdict
from virtqual.verdict.notation import (
    Direction,
    describe_bounds,
    describe_slowdown,
    exp_or_inf,
    format_percent,
    format_value,
)

#: What blocks is shown first.
_ORDER = (Outcome.OVER, Outcome.INVALID, Outcome.UNDECIDED, Outcome.WITHIN, Outcome.BASELINE)
#: What the exit code of each outcome means.
MEANINGS = {
    0: "within budget, or a baseline recorded",
    1: "over budget",
    3: "undecided, which is not a pass",
    4: "refused: no comparison is possible",
    5: "the infrastructure failed",
    130: "interrupted",
}


class Words(NamedTuple):
    """The words that are shown for the two sides."""

    reference: str = "native"
    candidate: str = "virtual"


SIDES_OF_SESSIONS = Words()


@dataclass(frozen=True)
class Line:
    """One verdict in a table: of a curve the size that decides it."""

    verdict: Verdict
    judged: Interval | None
    #: The budget at that size in log units; None without one.
    limit: float | None
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
        return "-" if self.limit is None else describe_limit(self.limit, self.verdict.better)

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


def describe_limit(limit: float, better: Direction) -> str:
    """Return the largest slowdown that is allowed, such as ``at most 60%``.

    Examples
    --------
    >>> describe_limit(0.0953102, "lower")
    'at most 10%'
    """
    fraction = exp_or_inf(limit) - 1 if better == "lower" else 1 - exp_or_inf(-limit)
    if fraction >= 1:
        return f"at most {1 + fraction:.3g}x as slow"
    return f"at most {format_percent(round(fraction, 4))}"


def make_line(verdict: Verdict, axis_unit: str = "") -> Line:
    """Return the line of a verdict; `axis_unit` is that of the sizes of a curve."""
    point = find_decisive(verdict)
    if point is None:
        return Line(verdict, verdict.estimate, verdict.limit, "", verdict.native, verdict.virtual)
    size = f"at {format_size(point.size, axis_unit)}"
    return Line(verdict, point.judged, point.limit, size, point.native, point.virtual)


def find_decisive(verdict: Verdict) -> Point | None:
    """Return the size of a curve that decides: the slowest of those over budget, else of all.

    None for a scalar.
    """
    points = [point for point in verdict.points if _is_over(point)] if verdict.findings else []
    return max(points or verdict.points, key=lambda point: point.judged.log, default=None)


def _is_over(point: Point) -> bool:
    return point.limit is not None and point.judged.log > point.limit


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


def describe_answer(outcome: Outcome, lines: Sequence[Line], subject: str) -> str:
    """Return one sentence, or two, on sorted lines: how many metrics hold, and the worst with its limit.

    Examples
    --------
    >>> describe_answer(Outcome.INVALID, [], "The candidate")
    'Nothing could be judged.'
    """
    if not lines:
        return "Nothing could be judged."
    total, count = len(lines), sum(line.outcome is outcome and not line.verdict.waived for line in lines)
    metrics = pluralize(total, "metric")
    of_all = f"{count} of {metrics}" if total > 1 else "the only metric"
    first = next((line for line in lines if line.outcome is outcome and not line.verdict.waived), lines[0])
    if outcome is Outcome.OVER:
        if not count:
            return f"{subject} has more slow or lost runs than its reference."
        which = "It" if total == 1 else "The worst" if count > 1 else "It"
        return f"{subject} is over budget on {of_all}. {which} is {_describe_line(first)}."
    if outcome is Outcome.UNDECIDED:
        if not first.verdict.pairs and first.judged:
            return f"An estimate and not a verdict: {_describe_line(first)}."
        return f"No verdict yet on {of_all}: {_describe_line(first)}. Undecided is not a pass."
    if outcome is Outcome.INVALID:
        reason = next(iter(first.verdict.reasons), "")
        verb = "cannot" if count != 1 else "can not"
        return (
            f"{of_all[:1].upper()}{of_all[1:]} {verb} be judged: {first.name}{': ' * bool(reason)}{reason}."
        )
    if outcome is Outcome.BASELINE:
        return f"A baseline was recorded: {metrics}, to compare later sessions with."
    of_all = f"all {metrics}" if total > 1 else "its metric"
    return f"{subject} is within budget on {of_all}. The slowest is {_describe_line(lines[0])}."


def _describe_line(line: Line) -> str:
    allowed = "" if line.limit is None else f"; {line.allowed} is allowed"
    return f"{line.name}, {line.result}{allowed}"
