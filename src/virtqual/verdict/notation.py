"""How values, ratios, differences and budgets are written, and how people state a budget."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Literal, TypeAlias

from pydantic import BeforeValidator

Direction = Literal["lower", "higher"]
Bounds: TypeAlias = tuple[float, float]

MAX_LOG = 700.0
"""A float holds no e to the power of more than this."""

MAX_SHOWN = 1000
"""The largest factor that is written out."""


SMALL_SHARE = 0.0995
"""Percentages below this are shown with a decimal: the next ones round to ten."""

_BYTE_PREFIXES = ("", "Ki", "Mi", "Gi", "Ti")

#: Units of a thousand of the one before.
_LADDERS = (
    ("ns", "us", "ms", "s"),
    *(
        tuple(f"{prefix}{unit}" for prefix in prefixes)
        for unit, prefixes in (
            ("B/s", ("", "k", "M", "G", "T")),
            ("FLOP/s", ("M", "G", "T", "P")),
            ("Flop/s", ("M", "G", "T", "P")),
            ("flop/s", ("M", "G", "T", "P")),
            ("op/s", ("M", "G", "T")),
        )
    ),
)


def sign_of(better: Direction) -> int:
    """Return 1 if less is better, else -1: times ln(virtual/native), positive is worse."""
    return 1 if better == "lower" else -1


def format_value(value: float | None) -> str:
    """Return a value with four significant digits and no exponent for everyday sizes; ``-`` for None."""
    if value is None:
        return "-"
    if abs(value) >= 1e12:
        return f"{value:.3e}"
    # Rounded to four digits it would have an exponent from here on.
    return f"{value:.0f}" if abs(value) >= 9999.5 else f"{value:.4g}"


def format_size(size: float, unit: str) -> str:
    """Return a size with its unit as people write it: ``2 MiB``, ``64 kB``, ``100 requests/s``."""
    prefixes = _BYTE_PREFIXES if unit == "B" else ("",)
    for power, prefix in reversed([*enumerate(prefixes)]):
        if power and size >= 1024**power and size % 1024**power == 0:
            return f"{size / 1024**power:.0f} {prefix}B"
    # A round number of kB or MB was meant as such.
    for power, prefix in ((3, "G"), (2, "M"), (1, "k")):
        if unit == "B" and size >= 1000**power and size % (1000**power / 10) == 0:
            return f"{size / 1000**power:.15g} {prefix}B"
    text = f"{size:,.0f}" if size >= 10000 and size == int(size) else f"{size:.15g}"
    return f"{text} {unit}".rstrip()


def format_sizes(low: float, high: float, unit: str) -> str:
    """Return a range of sizes such as ``16 B to 64 KiB``, with the unit once if it is the same."""
    first, last = format_size(low, unit), format_size(high, unit)
    if first.partition(" ")[2] == last.partition(" ")[2]:
        first = first.partition(" ")[0]
    return f"{first} to {last}"


def describe_sizes(low: float, high: float, unit: str) -> str:
    """Return such as ``at 8 B`` or ``from 16 to 128 B``."""
    return f"at {format_size(low, unit)}" if low == high else f"from {format_sizes(low, high, unit)}"


def scale_unit(unit: str, *values: float | None) -> tuple[str, list[float | None]]:
    """Return a unit in which the largest value has at most four digits before its point, with the values.

    A unit that has no larger one stays: ``MB/s`` is ``GB/s`` from five digits on, ``runs/day`` is itself.

    Examples
    --------
    >>> scale_unit("MB/s", 129600.0, 4321.0)
    ('GB/s', [129.6, 4.321])
    """
    largest = max((abs(value) for value in values if value is not None), default=0.0)
    factor = 1.0
    ladder = next((ladder for ladder in _LADDERS if unit in ladder), (unit,))
    for larger in ladder[ladder.index(unit) + 1 :]:
        # Rounded to four digits it would have five before its point.
        if largest / factor < 9999.5:
            break
        factor, unit = factor * 1000, larger
    return unit, [None if value is None else value / factor for value in values]


def format_percent(fraction: float) -> str:
    """Return a fraction as budgets state it, such as ``5%`` or ``2.5%``; ``5x`` for 500 %."""
    return f"{100 * fraction:.4g}%" if fraction < 1 else f"{fraction:.4g}x"


def describe_slowdown(log: float, better: Direction, bounds: Bounds | None = None) -> str:
    """Return how much slower or faster virtual is, with the bounds of the estimate if they are given.

    Percentages are of the native value; `log` and `bounds` are ln(virtual/native), positive is worse.

    Examples
    --------
    >>> describe_slowdown(math.log(1.2), "lower", (math.log(1.17), math.log(1.23)))
    '20.0% slower (17.0% to 23.0%)'
    >>> describe_slowdown(-math.log(0.98), "higher", (-math.log(1.01), -math.log(0.95)))
    '2.0% slower (1.0% faster to 5.0% slower)'
    >>> describe_slowdown(math.log(4.67), "lower")
    '4.67x as slow'
    """
    text = " ".join(_split_slowdown(log, better, as_factor=has_factor(better, log, *(bounds or ()))))
    return text if bounds is None else f"{text} ({describe_bounds(log, better, bounds)})"


def describe_bounds(log: float, better: Direction, bounds: Bounds) -> str:
    """Return the bounds of an estimate, each with its word if the word is not the estimate's.

    They are factors if the estimate or one of them is.

    Examples
    --------
    >>> describe_bounds(math.log(2.5), "lower", (math.log(1.8), math.log(3.4)))
    '1.80x to 3.40x'
    >>> describe_bounds(0.0, "higher", (-math.log(5.1), math.log(1.3)))
    '5.10x as fast to 1.30x as slow'
    """
    if text := _describe_unbounded(log, better, bounds):
        return text
    as_factor = has_factor(better, log, *bounds)
    _, word = _split_slowdown(log, better, as_factor=as_factor)
    ends = [_split_slowdown(bound, better, as_factor=as_factor) for bound in bounds]
    if any(end_word != word for _, end_word in ends):
        return " to ".join(" ".join(end) for end in ends)
    # The smaller difference stands first.
    return " to ".join([number for number, _ in ends][:: 1 if log >= 0 else -1])


def _describe_unbounded(log: float, better: Direction, bounds: Bounds) -> str:
    """Return the bounds in words if one of them or both say nothing; empty if both say something."""
    lower, upper = (abs(bound) <= math.log(MAX_SHOWN) for bound in bounds)
    if lower and upper:
        return ""
    if not (lower or upper):
        # A large difference may be known: both ends are far on the same side.
        return "no bounds" if bounds[0] < 0 < bounds[1] else f"over {MAX_SHOWN}x"
    number, word = _split_slowdown(bounds[0] if lower else bounds[1], better, as_factor=True)
    return f"{number} {word} or {'slower' if lower else 'faster'}"


def describe_slowdown_briefly(log: float, better: Direction, bounds: Bounds | None = None) -> str:
    """Return by how much virtual is slower, for a column: ``9.1% (-2.3 to 19%)``; a minus is faster.

    All numbers are factors if one of them is large: ``4.7x (4.5 to 4.8x)`` is 4.7 times as slow, ``1.2x (0.2
    to 10x)`` reaches from five times as fast to ten times as slow.
    """
    number = describe_share(log, better, as_factor=has_factor(better, log, *(bounds or ())))
    return f"{number} ({describe_bounds_briefly(log, better, bounds)})" if bounds else number


def describe_bounds_briefly(log: float, better: Direction, bounds: Bounds) -> str:
    """Return bounds for a column: ``-2.3 to 19%``, or ``40x or less`` if one says nothing."""
    lower, upper = (abs(bound) <= math.log(MAX_SHOWN) for bound in bounds)
    as_factor = has_factor(better, log, *bounds)
    if not (lower or upper):
        return "no bounds" if bounds[0] < 0 < bounds[1] else f"over {MAX_SHOWN}x"
    if not (lower and upper):
        end, word = (bounds[0], "more") if lower else (bounds[1], "less")
        return f"{describe_share(end, better, as_factor=True)} or {word}"
    # Next to an estimate without decimals they have none.
    is_small = abs(fraction_slower(log, better)) < SMALL_SHARE
    low, high = (describe_share(b, better, as_factor=as_factor, decimals=is_small) for b in bounds)
    return f"{low[:-1]} to {high}"


def describe_share(
    log: float, better: Direction, *, as_factor: bool | None = None, decimals: bool = True
) -> str:
    """Return by how much virtual is slower: ``12%`` of native, ``-2.3%`` (faster), ``4.7x`` as slow.

    With `as_factor` as None, a large difference is a factor. Percentages below ten have a decimal.
    """
    if as_factor is None:
        as_factor = has_factor(better, log)
    if not as_factor:
        share = 100 * fraction_slower(log, better)
        text = f"{share:.{1 if decimals and abs(share) < 100 * SMALL_SHARE else 0}f}"
        return f"{text.removeprefix('-') if float(text) == 0 else text}%"
    if math.isnan(log):
        return "?"
    if abs(log) > math.log(MAX_SHOWN):
        return f">{MAX_SHOWN}x" if log > 0 else f"<{1 / MAX_SHOWN:g}x"
    factor = math.exp(log)
    return f"{factor:.{0 if factor >= 9.95 else 1 if factor >= 0.995 else 2}f}x"


def describe_limit(limit: float, margin: float | None, better: Direction, *, as_factor: bool) -> str:
    """Return budget and margin, given in log units, for a column: ``60+10%``, or ``6.0+0.5x`` as slow.

    They are factors if the budget is twice the native time or more, or large and next to a result that is a
    factor (`as_factor`): 5 % is understood next to any.
    """
    as_factor = (as_factor and _is_factor(limit, better)) or fraction_slower(limit, better) >= 1 - 1e-9
    ends = [limit, limit + (margin or 0.0)]
    if as_factor:
        budget, both = (math.exp(min(end, MAX_LOG)) for end in ends)
    else:
        budget, both = (100 * fraction_slower(end, better) for end in ends)
    # Stated ones have few digits, and their logarithms are not exact.
    digits = 2 if as_factor and budget >= 9.95 else 3
    numbers = (
        f"{round(number, 6):.{digits}g}" for number in ([budget, both - budget] if margin else [budget])
    )
    return "+".join(numbers) + ("x" if as_factor else "%")


def has_factor(better: Direction, *logs: float) -> bool:
    """Return whether one of several differences is so large that all are shown as factors."""
    return any(_is_factor(log, better) for log in logs)


def _is_factor(log: float, better: Direction) -> bool:
    fraction = fraction_slower(log, better)
    ratio = 1 + fraction if better == "lower" else 1 - fraction
    return not 0.1 <= ratio < 2


def _split_slowdown(log: float, better: Direction, *, as_factor: bool = False) -> tuple[str, str]:
    """Return number and word of a difference; a large one is a factor."""
    if as_factor or _is_factor(log, better):
        factor = exp_or_inf(abs(log))
        digits = 0 if factor >= 100 else 1 if factor >= 10 else 2
        number = f"{factor:.{digits}f}x" if factor <= MAX_SHOWN else f"over {MAX_SHOWN}x"
        return number, "as slow" if log >= 0 else "as fast"
    return f"{abs(100 * fraction_slower(log, better)):.1f}%", "slower" if log >= 0 else "faster"


def fraction_slower(log: float, better: Direction) -> float:
    """Return by which fraction of the native value virtual is slower; negative if it is faster."""
    return exp_or_inf(log) - 1 if better == "lower" else 1 - exp_or_inf(-log)


def exp_or_inf(log: float) -> float:
    """Return e to the power of `log`; infinity if a float holds no such number."""
    return math.exp(log) if log < MAX_LOG else math.inf


def read_percent(value: object) -> object:
    """Return the fraction of a text such as ``5%``, and anything else as it is."""
    if isinstance(value, str) and (match := re.fullmatch(r"(\d+\.?\d*|\.\d+) ?%", value.strip())):
        return float(Decimal(match[1]) / 100)
    return value


#: To be put around the type of a key that may be written as ``5%``.
PERCENT = BeforeValidator(read_percent)


def read_budget(value: str | float) -> float:
    """Return the fraction that a budget or margin of ``5%``, 0.05 or 1.05 states.

    Raises
    ------
    ValueError
        The value is not a budget; 0.95 may be meant as 5 % or as 95 %.
    """
    fraction, hint = read_percent(value), ""
    if fraction is value:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        # A person's 1 may be meant as 1 %; a log has 1.0 for a budget of 0 %.
        is_factor = number > 1 or (number == 1 and not isinstance(value, str))
        fraction = number - 1 if is_factor else number if number < 0.5 else math.nan
        if 1 <= number < 100:
            hint = f" ({number:g} without % is {number:g} times the time: did you mean {number:g}%?)"
    if not (isinstance(fraction, float) and 0 <= fraction < 1):
        raise ValueError(
            f"{value} is not a budget or margin: write a percentage from 0% to below 100%, such as 5%{hint}"
        )
    return fraction
