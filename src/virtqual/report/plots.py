"""Plots as numbers: the places of their marks and lines, which the templates draw as SVG.

A plotting library writes 20 to 60 KB for each of the hundreds of plots of a report; these have 2 KB. Compared
values are drawn as a cost: ln(virtual/native), signed so that worse is to the right, or above.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from virtqual.report.summary import MAX_PERCENT_LOG, Line, share_of, shows_factors
from virtqual.verdict.notation import Direction, format_size, format_value

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
#: Steps of slowdowns, fractions of the reference, at which an axis may have ticks, the finest first.
_PERCENT_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
#: Ticks of a longer axis: how many times as slow.
_FACTORS = (
    (0.1, 0.2, 0.5, 1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000),
    (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
    (0.01, 0.1, 1, 10, 100, 1000, 10000),
    (1e-4, 0.01, 1, 100, 10000),
)
#: Least distance of two ticks, for the widest text.
MIN_TICK_DISTANCE = 38
#: The same on an axis that runs upwards.
MIN_TICK_HEIGHT = 18
REFERENCE = "native"
#: A longer word does not fit below a tick.
MAX_REFERENCE_CHARS = 10


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
    """Return at most `max_ticks` round values from `low` to `high`."""
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


def _size_log(size: float) -> float:
    # Size 0 has a place before that of 1.
    return math.log2(size) if size > 0 else -1.0


@dataclass(frozen=True)
class Bar:
    """One metric among others: estimate, interval, budget and margin.

    An end of the interval that is off the axis lies at its end, and `open_left` or `open_right` is set.
    """

    dot: float
    left: float
    right: float
    open_left: bool
    open_right: bool
    budget: float | None
    margin: float | None


@dataclass(frozen=True)
class Forest:
    """The bars of all metrics on one axis; a metric without estimate has None."""

    axis: SlowdownAxis
    ticks: list[Tick]
    bars: list[Bar | None]
    #: Place at which both sides are the same.
    native: float


@dataclass(frozen=True)
class SlowdownAxis:
    """Where slowdowns lie: by percent of the reference's value as in texts, or by factors if one is large.

    A rate that is halved is 50 % slower, and 2 times as slow.
    """

    has_factors: bool

    def place(self, log: float, better: Direction) -> float:
        """Return where a slowdown lies; 0 is as fast as the reference, and more is slower.

        Examples
        --------
        >>> [round(SlowdownAxis(False).place(math.log(1.25), better), 3) for better in ("lower", "higher")]
        [0.25, 0.2]
        """
        if self.has_factors or math.isinf(log):
            return log
        return share_of(log, better)

    def make_ticks(
        self, scale: Scale, distance: float = MIN_TICK_DISTANCE, reference: str = REFERENCE
    ) -> list[Tick]:
        """Return ticks at round slowdowns, `distance` apart; `reference` is the word at 0.

        Examples
        --------
        >>> [tick.text for tick in SlowdownAxis(False).make_ticks(Scale(-0.05, 0.22, 0, 300))]
        ['−5 %', 'native', '5 %', '10 %', '15 %', '20 %']
        >>> [tick.text for tick in SlowdownAxis(True).make_ticks(Scale(-0.1, 3.0, 0, 300))]
        ['native', '2x', '5x', '10x', '20x']
        """
        if self.has_factors:
            choices = [[math.log(one) for one in factors] for factors in _FACTORS]
        else:
            choices = [_list_multiples(step, scale) for step in _PERCENT_STEPS]
        for values in [*choices, [0.0]]:
            places = [scale.place(value) for value in values if scale.low <= value <= scale.high]
            if all(abs(after - before) >= distance for before, after in pairwise(places)):
                break
        shown = [value for value in values if scale.low <= value <= scale.high]
        texts = [self._format_tick(value, reference) for value in shown]
        return [Tick(place, text) for place, text in zip(places, texts, strict=True)]

    def _format_tick(self, value: float, reference: str) -> str:
        if abs(value) < 1e-9:
            word = "1x" if self.has_factors else "0 %"
            return reference if len(reference) <= MAX_REFERENCE_CHARS else word
        if self.has_factors:
            return f"{math.exp(value):.3g}x"
        # Only a time can be as much longer: no rate is more than 100 % slower.
        if value > 1 - 1e-9:
            return f"{1 + value:.3g}x"
        return f"{100 * value:.4g} %".replace("-", "\N{MINUS SIGN}")


def _list_multiples(step: float, scale: Scale) -> list[float]:
    first, last = math.ceil(scale.low / step - 1e-9), math.floor(scale.high / step + 1e-9)
    return [count * step for count in range(first, last + 1)]


def draw_forest(lines: Sequence[Line | None], reference: str = REFERENCE) -> Forest:
    """Return the bars of verdicts; the axis covers all estimates and limits, and intervals near them.

    That is up to three times the largest limit, or farther where the estimates are. `reference` is the word
    for the reference side.
    """
    axis = SlowdownAxis(shows_factors(lines))
    middle, ends, limits = [0.0], [], [0.0]
    places = [_places_of(line, axis) for line in lines]
    for place in places:
        if place is not None:
            middle += [place.dot, *(value for value in (place.limit, place.margin) if value is not None)]
            limits.append(max(place.limit or 0.0, place.margin or 0.0))
            ends += [end for end in (place.lower, place.upper) if math.isfinite(end)]
    low, high = min(middle), max(middle)
    # Ends of intervals are shown up to half of that distance beyond it, or three times the largest limit.
    reach, limit = max(high - low, 0.05) / 2, max(limits)
    far = math.log(3) if axis.has_factors else 2 * limit
    ends = [min(max(end, min(low - reach, -far)), max(high + reach, limit + far)) for end in ends]
    scale = make_scale([*middle, *ends], 16, BAR - 16)
    bars = [_make_bar(place, scale) for place in places]
    return Forest(axis, axis.make_ticks(scale, reference=reference), bars, scale.place(0.0))


@dataclass(frozen=True)
class _Places:
    """The numbers of a bar on its axis."""

    dot: float
    lower: float
    upper: float
    limit: float | None
    margin: float | None


def _places_of(line: Line | None, axis: SlowdownAxis) -> _Places | None:
    if line is None or line.judged is None:
        return None
    judged, better = line.judged, line.verdict.better
    lower = -math.inf if judged.lower is None else judged.lower
    upper = math.inf if judged.upper is None else judged.upper
    dot, lower, upper = (axis.place(log, better) for log in (judged.log, lower, upper))
    limit, margin = (
        None if log is None else axis.place(log, better) for log in (line.limit, line.within_below)
    )
    return _Places(dot, lower, upper, limit, margin)


def _make_bar(place: _Places | None, scale: Scale) -> Bar | None:
    if place is None:
        return None
    return Bar(
        dot=scale.place(place.dot),
        left=scale.place(place.lower),
        right=scale.place(place.upper),
        open_left=place.lower < scale.low,
        open_right=place.upper > scale.high,
        budget=_place(scale, place.limit),
        margin=_place(scale, place.margin),
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
    better: Direction,
    reference: str = REFERENCE,
) -> Dots:
    """Return marks for pairs: `pairs` are the logarithm of each one's cost, if any, and the name of its mark.

    The estimate `log`, the budget `limit` and the end of its margin are drawn as lines.
    """
    shown = [one for one in (log, limit, within_below, *(cost for cost, _ in pairs)) if one is not None]
    axis = SlowdownAxis(max(map(abs, shown), default=0.0) > MAX_PERCENT_LOG)
    log, limit, within_below = (
        None if one is None else axis.place(one, better) for one in (log, limit, within_below)
    )
    pairs = [(None if one is None else axis.place(one, better), mark) for one, mark in pairs]
    lines = [value for value in (0.0, log, limit, within_below) if value is not None]
    costs = [cost for cost, _ in pairs if cost is not None]
    # Worse is above.
    scale = make_scale([*lines, *costs], HEIGHT - 8, 8)
    step = WIDTH / max(len(pairs), 1)
    marks = [
        (mark, round((index + 0.5) * step, 1), HEIGHT - 5 if cost is None else scale.place(cost))
        for index, (cost, mark) in enumerate(pairs)
    ]
    ticks = axis.make_ticks(scale, MIN_TICK_HEIGHT, reference)
    return Dots(ticks, marks, _place(scale, limit), _place(scale, within_below), _place(scale, log))


@dataclass(frozen=True)
class Curve:
    """A curve: its points, and the outline of its band, as SVG writes them."""

    name: str
    points: str
    band: str


@dataclass(frozen=True)
class Curves:
    """Curves over message sizes or the like."""

    x: list[Tick]
    y: list[Tick]
    lines: list[Curve]


#: One curve: its name, its sizes, and by size the logarithm of its value with the ends of its band.
Band = tuple[str, Sequence[float], Sequence[tuple[float, float, float]]]


def draw_curves(
    bands: Sequence[Band],
    unit: str = "",
    *,
    slowdowns_of: Direction | None = None,
    reference: str = REFERENCE,
) -> Curves:
    """Return curves over all their sizes, with ticks at round values.

    `unit` is that of the sizes. The values are slowdowns if it is said which way is better.
    """
    axis: SlowdownAxis | None = None
    if slowdowns_of:
        axis = SlowdownAxis(any(abs(row[0]) > MAX_PERCENT_LOG for _, _, rows in bands for row in rows))
        bands = [
            (name, sizes, [_put_on_axis(row, axis, slowdowns_of) for row in rows])
            for name, sizes, rows in bands
        ]
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
        lines.append(Curve(name, " ".join(middle), " ".join(above + below[::-1]) if has_band else ""))
    shown_sizes = all_sizes[:: math.ceil(len(all_sizes) / 8)]
    x_ticks = [Tick(x.place(_size_log(size)), format_size(size, unit)) for size in shown_sizes]
    y_ticks = axis.make_ticks(y, MIN_TICK_HEIGHT, reference) if axis else _make_value_ticks(y, 5)
    return Curves(x_ticks, y_ticks, lines)


def _put_on_axis(
    row: tuple[float, float, float], axis: SlowdownAxis, better: Direction
) -> tuple[float, float, float]:
    middle, low, high = (axis.place(log, better) for log in row)
    return middle, low, high


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
