"""Plots as numbers: where their marks and lines lie, which the templates draw as SVG.

They are drawn here because a plotting library writes 20 to 60 KB for what is 2 KB so, of which there are
hundreds in a report.  What is compared is drawn as a cost: ln(virtual/native), its sign by the metric's
direction, so that worse is to the right, or above, in all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from virtqual.verdict import Verdict
from virtqual.verdict.outcome import format_value

#: Ratios at which an axis may have ticks, the finest first: so much apart near 1, or of so many each decade.
_STEPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
_DECADES = ((1.0, 2.0, 5.0), (1.0,))


@dataclass(frozen=True)
class Tick:
    """A tick of an axis: where it lies, and its text."""

    at: float
    text: str


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`, drawn from `first` to `last` (user units of SVG)."""

    low: float
    high: float
    first: float
    last: float

    def at(self, value: float) -> float:
        """Return where a value lies; one that is off the axis lies at its end."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.first + share * (self.last - self.first), 1)


def scale_of(values: Iterable[float], first: float, last: float, least: float = 0.02) -> Scale:
    """Return an axis on which all finite values lie, with some room; of `least` width."""
    known = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(known), max(known)
    room = max(0.04 * (high - low), (least - (high - low)) / 2, 1e-9)
    return Scale(low - room, high + room, first, last)


def ratios(scale: Scale, most: int) -> list[Tick]:
    """Return ticks of an axis of logarithms at round ratios, `most` of them at most.

    Examples
    --------
    >>> [tick.text for tick in ratios(Scale(math.log(0.93), math.log(1.21), 0, 100), 5)]
    ['1', '1.1', '1.2']
    >>> [tick.text for tick in ratios(Scale(math.log(0.5), math.log(90), 0, 100), 6)]
    ['1', '10']
    """
    low, high = math.exp(scale.low), math.exp(scale.high)
    found: list[float] = []
    for step in _STEPS:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < most:
            found = [count * step for count in range(first, last + 1)]
            break
    # Even steps crowd at one end of a long axis.
    if not found or high / low > 4:
        found = _in_decades(low, high, most)
    return [Tick(scale.at(math.log(one)), f"{one:.4g}") for one in found if one > 0]


def _in_decades(low: float, high: float, most: int) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for each in _DECADES:
        found = [m * 10.0**power for power in powers for m in each if low <= m * 10.0**power <= high]
        if len(found) <= most:
            return found
    step = math.ceil(len(found) / most)
    return found[::step]


def values(scale: Scale, most: int) -> list[Tick]:
    """Return ticks of an axis of logarithms of any values, at 1, 2 and 5 times powers of ten."""
    found = _in_decades(math.exp(scale.low), math.exp(scale.high), most)
    if len(found) < 2:
        # Less than a decade: its ends say how much.
        found = [math.exp(scale.low), math.exp(scale.high)]
    return [Tick(scale.at(math.log(one)), format_value(one)) for one in found]


def sizes(points: Sequence[float], scale: Scale, most: int) -> list[Tick]:
    """Return ticks at some of a curve's sizes; bytes in their binary multiples where they are such."""
    step = math.ceil(len(points) / most)
    return [Tick(scale.at(_size(point)), _binary(point)) for point in points[::step]]


def _size(point: float) -> float:
    # A size of nothing has a place before that of 1.
    return math.log2(point) if point > 0 else -1.0


def _binary(size: float) -> str:
    for power, name in ((2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki")):
        if size >= power and size % power == 0:
            return f"{size // power:g}{name}"
    return f"{size:g}"


@dataclass(frozen=True)
class Bar:
    """One metric among the others: estimate, interval, budget, and the smallest overhead that would be OVER.

    Where an end of the interval is off the axis, it is at the axis' end, and `open_left` or `open_right`.
    """

    dot: float
    left: float
    right: float
    open_left: bool
    open_right: bool
    budget: float | None
    margin: float | None
    seen: float | None


@dataclass(frozen=True)
class Forest:
    """The bars of all metrics on one axis, None for a metric without estimate; `none`: as fast as native."""

    ticks: list[Tick]
    bars: list[Bar | None]
    none: float


def forest(verdicts: Sequence[Verdict | None], width: float) -> Forest:
    """Return the bars of verdicts; the axis covers all estimates and budgets, not all intervals."""
    middle, ends = [0.0], []
    for verdict in verdicts:
        if verdict and (estimate := verdict.estimate):
            places = (estimate.log, verdict.limit, _sum(verdict.limit, verdict.margin))
            middle += [place for place in places if place is not None]
            ends += [end for end in (estimate.lower, estimate.upper) if end is not None]
    low, high = min(middle), max(middle)
    # Ends of intervals up to half of that distance beyond it.
    reach = max(high - low, 0.05) / 2
    ends = [end for end in ends if low - reach <= end <= high + reach]
    scale = scale_of([*middle, *ends], 8, width - 8)
    return Forest(ratios(scale, 7), [_bar(verdict, scale) for verdict in verdicts], scale.at(0.0))


def _bar(verdict: Verdict | None, scale: Scale) -> Bar | None:
    if verdict is None or verdict.estimate is None:
        return None
    estimate, limit, seen = verdict.estimate, verdict.limit, verdict.smallest_over
    lower = -math.inf if estimate.lower is None else estimate.lower
    upper = math.inf if estimate.upper is None else estimate.upper
    margin = _sum(limit, verdict.margin)
    return Bar(
        dot=scale.at(estimate.log),
        left=scale.at(lower),
        right=scale.at(upper),
        open_left=lower < scale.low,
        open_right=upper > scale.high,
        budget=None if limit is None else scale.at(limit),
        margin=None if margin is None else scale.at(margin),
        seen=None if seen is None or seen > scale.high else scale.at(seen),
    )


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


#: Outlines of marks around a place: a triangle up or down, and a cross.
_MARKS: dict[str, Callable[[float, float], str]] = {
    "first-native": lambda x, y: f"M{x:g} {y - 5:g}l5 9h-10z",
    "first-virtual": lambda x, y: f"M{x:g} {y + 5:g}l-5-9h10z",
    "out": lambda x, y: f"M{x - 4:g} {y - 4:g}l8 8m0-8l-8 8",
}


@dataclass(frozen=True)
class Dots:
    """The pairs of a metric in the order of time; `marks` are the outlines of all marks of a name."""

    ticks: list[Tick]
    marks: dict[str, str]
    budget: float | None
    margin: float | None
    mean: float | None


def dots(
    pairs: Sequence[tuple[float | None, str]],
    width: float,
    height: float,
    *,
    log: float | None,
    limit: float | None,
    margin: float | None,
) -> Dots:
    """Return marks for pairs.

    Parameters
    ----------
    pairs
        The logarithm of each pair's cost, None where it has none, and the name of its mark.
    log, limit, margin
        Estimate, budget and margin, which are drawn as lines; None where there is none.
    """
    most = _sum(limit, margin)
    lines = [x for x in (0.0, log, limit, most) if x is not None]
    known = [cost for cost, _ in pairs if cost is not None]
    # Worse is above.
    scale = scale_of([*lines, *known], height - 8, 8)
    step = width / max(len(pairs), 1)
    marks: dict[str, str] = {}
    for place, (cost, mark) in enumerate(pairs):
        x, y = round((place + 0.5) * step, 1), height - 5 if cost is None else scale.at(cost)
        marks[mark] = marks.get(mark, "") + _MARKS[mark](x, y)
    return Dots(
        ratios(scale, 5),
        marks,
        None if limit is None else scale.at(limit),
        None if most is None else scale.at(most),
        None if log is None else scale.at(log),
    )


@dataclass(frozen=True)
class Line:
    """A curve: its points, and the outline of its band, as SVG writes them."""

    name: str
    points: str
    band: str


@dataclass(frozen=True)
class Curves:
    """Curves over message sizes or the like."""

    x: list[Tick]
    y: list[Tick]
    lines: list[Line]


#: One curve: its name, its sizes, and by size the logarithm of its value with the ends of its band.
Band = tuple[str, Sequence[float], Sequence[tuple[float, float, float]]]


def curves(bands: Sequence[Band], width: float, height: float, *, of_ratios: bool = False) -> Curves:
    """Return curves over all their sizes; with `of_ratios` their ticks are at round ratios."""
    points = sorted({point for _, sizes_of, _ in bands for point in sizes_of})
    x = scale_of([_size(point) for point in points], 6, width - 6)
    y = scale_of([value for _, _, rows in bands for row in rows for value in row], height - 6, 6)
    lines = []
    for name, sizes_of, rows in bands:
        places = [(x.at(_size(p)), *(y.at(v) for v in row)) for p, row in zip(sizes_of, rows, strict=True)]
        above = [f"{at:g},{high:g}" for at, _, _, high in places]
        below = [f"{at:g},{low:g}" for at, _, low, _ in places]
        # Where a curve has no width there is nothing to shade.
        wide = any(low != high for _, low, high in rows)
        lines.append(
            Line(
                name,
                " ".join(f"{at:g},{mid:g}" for at, mid, _, _ in places),
                " ".join(above + below[::-1]) if wide else "",
            )
        )
    return Curves(sizes(points, x, 8), ratios(y, 5) if of_ratios else values(y, 5), lines)


@dataclass(frozen=True)
class Course:
    """One metric over builds: dots with their errors, every other build shaded, and a line at each step."""

    x: list[Tick]
    y: list[Tick]
    dots: str
    errors: str
    shades: str
    steps: str


def course(
    values: Sequence[tuple[int, float, float]], steps: Sequence[int], width: float, height: float
) -> Course:
    """Return the course of a metric.

    Parameters
    ----------
    values
        Number of the build, logarithm of the cost, and its standard error, in order.
    steps
        Numbers of the first values after a step.
    """
    y = scale_of([0.0, *(log + k * error for _, log, error in values for k in (-2, 2))], height - 6, 6)
    step = width / len(values)
    at = [round((place + 0.5) * step, 1) for place in range(len(values))]
    groups = [(build, [*places]) for build, places in groupby(range(len(values)), key=lambda i: values[i][0])]
    shades = [
        f"M{places[0] * step:.1f} 0h{len(places) * step:.1f}V{height:g}h{-len(places) * step:.1f}z"
        for build, places in groups
        if build % 2
    ]
    every = math.ceil(len(groups) / 24)
    return Course(
        [
            Tick(round((places[0] + len(places) / 2) * step, 1), str(build + 1))
            for build, places in groups[::every]
        ],
        ratios(y, 5),
        "".join(f"M{x:g} {y.at(log):g}h0" for x, (_, log, _) in zip(at, values, strict=True)),
        "".join(
            f"M{x:g} {y.at(log - 2 * error):g}V{y.at(log + 2 * error):g}"
            for x, (_, log, error) in zip(at, values, strict=True)
        ),
        "".join(shades),
        "".join(f"M{place * step:.1f} 0V{height:g}" for place in steps),
    )
