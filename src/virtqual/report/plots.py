"""Plots as numbers: the places of their marks and lines, which the templates draw as SVG.

A plotting library writes 20 to 60 KB for each of the hundreds of plots of a report; these have 2 KB. Compared
values are drawn as a cost: ln(virtual/native), signed so that worse is to the right, or above.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from virtqual.verdict import Verdict
from virtqual.verdict.notation import format_value

#: Sizes in user units of SVG: of a bar in the table, and of the plots of one metric.
BAR, WIDTH, WIDE, HEIGHT = 300, 440, 900, 150
#: Least length of an axis of logarithms.
MIN_AXIS_LOG = 0.02
#: Steps of ratios at which an axis may have ticks, the finest first.
_RATIO_STEPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
#: Ticks of each decade of a long axis, the finest first.
_DECADE_TICKS = ((1.0, 2.0, 5.0), (1.0,))
#: Height of half of the interval that a dot's error bar shows, in standard errors.
_ERROR_BAR_SIGMAS = 2
MAX_COURSE_TICKS = 24


@dataclass(frozen=True)
class Tick:
    """A tick of an axis: its place and its text."""

    at: float
    text: str


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`, drawn from `first` to `last` (user units of SVG)."""

    low: float
    high: float
    first: float
    last: float

    def place(self, value: float) -> float:
        """Return the place of a value; a value off the axis lies at its end."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.first + share * (self.last - self.first), 1)


def make_scale(values: Iterable[float], first: float, last: float) -> Scale:
    """Return an axis on which all finite values lie, with some room."""
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    room = max(0.04 * (high - low), (MIN_AXIS_LOG - (high - low)) / 2)
    return Scale(low - room, high + room, first, last)


def make_ratio_ticks(scale: Scale, max_ticks: int) -> list[Tick]:
    """Return ticks of an axis of logarithms at round ratios.

    Examples
    --------
    >>> [tick.text for tick in make_ratio_ticks(Scale(math.log(0.93), math.log(1.21), 0, 100), 5)]
    ['1', '1.1', '1.2']
    >>> [tick.text for tick in make_ratio_ticks(Scale(math.log(0.5), math.log(90), 0, 100), 6)]
    ['1', '10']
    """
    low, high = math.exp(scale.low), math.exp(scale.high)
    ratios: list[float] = []
    for step in _RATIO_STEPS:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < max_ticks:
            ratios = [count * step for count in range(first, last + 1)]
            break
    # Even steps crowd at one end of a long axis.
    if not ratios or high / low > 4:
        ratios = _divide_decades(low, high, max_ticks)
    return [Tick(scale.place(math.log(ratio)), f"{ratio:.4g}") for ratio in ratios if ratio > 0]


def _divide_decades(low: float, high: float, max_ticks: int) -> list[float]:
    """Return round values from `low` to `high`, so many at most."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values: list[float] = []
    for factors in _DECADE_TICKS:
        values = [factor * 10.0**power for power in powers for factor in factors]
        values = [value for value in values if low <= value <= high]
        if len(values) <= max_ticks:
            return values
    return values[:: math.ceil(len(values) / max_ticks)]


def _make_value_ticks(scale: Scale, max_ticks: int) -> list[Tick]:
    """Return ticks of an axis of logarithms of values, at 1, 2 and 5 times powers of ten."""
    low, high = math.exp(scale.low), math.exp(scale.high)
    values = _divide_decades(low, high, max_ticks)
    if len(values) < 2:
        # The axis has less than a decade: its ends are shown.
        values = [low, high]
    return [Tick(scale.place(math.log(value)), format_value(value)) for value in values]


def _format_size(size: float) -> str:
    """Return a size in binary multiples if it is one."""
    for power, name in ((2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki")):
        if size >= power and size % power == 0:
            return f"{size // power:g}{name}"
    return f"{size:g}"


def _size_log(size: float) -> float:
    # Size 0 has a place before that of 1.
    return math.log2(size) if size > 0 else -1.0


@dataclass(frozen=True)
class Bar:
    """One metric among others: estimate, interval, budget, and the smallest overhead that would be OVER.

    An end of the interval that is off the axis lies at its end, and `open_left` or `open_right` is set.
    """

    dot: float
    left: float
    right: float
    open_left: bool
    open_right: bool
    budget: float | None
    margin: float | None
    smallest_over: float | None


@dataclass(frozen=True)
class Forest:
    """The bars of all metrics on one axis; a metric without estimate has None."""

    ticks: list[Tick]
    bars: list[Bar | None]
    #: Place at which virtual is as fast as native.
    native: float


def draw_forest(verdicts: Sequence[Verdict | None]) -> Forest:
    """Return the bars of verdicts; the axis covers all estimates and budgets, not all intervals."""
    middle, ends = [0.0], []
    for verdict in verdicts:
        if verdict and (estimate := verdict.estimate):
            places = (estimate.log, verdict.limit, verdict.within_below)
            middle += [place for place in places if place is not None]
            ends += [end for end in (estimate.lower, estimate.upper) if end is not None]
    low, high = min(middle), max(middle)
    # The axis shows ends of intervals up to half of that distance beyond it.
    reach = max(high - low, 0.05) / 2
    ends = [end for end in ends if low - reach <= end <= high + reach]
    scale = make_scale([*middle, *ends], 8, BAR - 8)
    return Forest(make_ratio_ticks(scale, 7), [_make_bar(v, scale) for v in verdicts], scale.place(0.0))


def _make_bar(verdict: Verdict | None, scale: Scale) -> Bar | None:
    if verdict is None or verdict.estimate is None:
        return None
    estimate, smallest_over = verdict.estimate, verdict.smallest_over
    lower = -math.inf if estimate.lower is None else estimate.lower
    upper = math.inf if estimate.upper is None else estimate.upper
    is_off_axis = smallest_over is not None and smallest_over > scale.high
    return Bar(
        dot=scale.place(estimate.log),
        left=scale.place(lower),
        right=scale.place(upper),
        open_left=lower < scale.low,
        open_right=upper > scale.high,
        budget=_place(scale, verdict.limit),
        margin=_place(scale, verdict.within_below),
        smallest_over=None if is_off_axis else _place(scale, smallest_over),
    )


def _place(scale: Scale, value: float | None) -> float | None:
    return None if value is None else scale.place(value)


@dataclass(frozen=True)
class Dots:
    """The pairs of a metric in the order of time; `marks` are names of marks with their places."""

    ticks: list[Tick]
    marks: list[tuple[str, float, float]]
    budget: float | None
    margin: float | None
    mean: float | None


def draw_dots(
    pairs: Sequence[tuple[float | None, str]],
    *,
    log: float | None,
    limit: float | None,
    within_below: float | None,
) -> Dots:
    """Return marks for pairs: `pairs` are the logarithm of each one's cost, if any, and the name of its mark.

    The estimate `log`, the budget `limit` and the end of its margin are drawn as lines.
    """
    lines = [value for value in (0.0, log, limit, within_below) if value is not None]
    costs = [cost for cost, _ in pairs if cost is not None]
    # Worse is above.
    scale = make_scale([*lines, *costs], HEIGHT - 8, 8)
    step = WIDTH / max(len(pairs), 1)
    marks = [
        (mark, round((index + 0.5) * step, 1), HEIGHT - 5 if cost is None else scale.place(cost))
        for index, (cost, mark) in enumerate(pairs)
    ]
    ticks = make_ratio_ticks(scale, 5)
    return Dots(ticks, marks, _place(scale, limit), _place(scale, within_below), _place(scale, log))


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


def draw_curves(bands: Sequence[Band], *, has_ratios: bool = False) -> Curves:
    """Return curves over all their sizes, with ticks at round ratios or at round values."""
    all_sizes = sorted({size for _, sizes, _ in bands for size in sizes})
    x = make_scale([_size_log(size) for size in all_sizes], 6, WIDTH - 6)
    y = make_scale([value for _, _, rows in bands for row in rows for value in row], HEIGHT - 6, 6)
    lines = []
    for name, sizes, rows in bands:
        places = [x.place(_size_log(size)) for size in sizes]
        middle, below, above = (
            [f"{at:g},{y.place(row[index]):g}" for at, row in zip(places, rows, strict=True)]
            for index in range(3)
        )
        has_band = any(low != high for _, low, high in rows)
        lines.append(Line(name, " ".join(middle), " ".join(above + below[::-1]) if has_band else ""))
    shown_sizes = all_sizes[:: math.ceil(len(all_sizes) / 8)]
    x_ticks = [Tick(x.place(_size_log(size)), _format_size(size)) for size in shown_sizes]
    return Curves(x_ticks, make_ratio_ticks(y, 5) if has_ratios else _make_value_ticks(y, 5), lines)


@dataclass(frozen=True)
class Course:
    """One metric over builds: dots with their errors, every other build shaded, and a line at each step."""

    x: list[Tick]
    y: list[Tick]
    dots: str
    errors: str
    shades: str
    steps: str


def draw_course(values: Sequence[tuple[int, float, float]], steps: Sequence[int]) -> Course:
    """Return the course of a metric.

    `values` are numbers of builds, logarithms of costs, and their standard errors, in order; `steps` are
    numbers of the first values after a step.
    """
    bars = [(log - _ERROR_BAR_SIGMAS * error, log + _ERROR_BAR_SIGMAS * error) for _, log, error in values]
    y = make_scale([0.0, *(end for bar in bars for end in bar)], HEIGHT - 6, 6)
    step = WIDE / len(values)
    dots, errors = "", ""
    for index, ((_, log, _), (low, high)) in enumerate(zip(values, bars, strict=True)):
        x = round((index + 0.5) * step, 1)
        dots += f"M{x:g} {y.place(log):g}h0"
        errors += f"M{x:g} {y.place(low):g}V{y.place(high):g}"
    ticks, shades, begin = [], "", 0
    for build, group in groupby(number for number, _, _ in values):
        count = len(list(group))
        if build % 2:
            shades += f"M{begin * step:.1f} 0h{count * step:.1f}V{HEIGHT}h{-count * step:.1f}z"
        ticks.append(Tick(round((begin + count / 2) * step, 1), str(build + 1)))
        begin += count
    return Course(
        x=ticks[:: math.ceil(len(ticks) / MAX_COURSE_TICKS)],
        y=make_ratio_ticks(y, 5),
        dots=dots,
        errors=errors,
        shades=shades,
        steps="".join(f"M{at * step:.1f} 0V{HEIGHT}" for at in steps),
    )
