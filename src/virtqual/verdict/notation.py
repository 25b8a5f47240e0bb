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
    text = " ".join(_split_slowdown(log, better))
    return text if bounds is None else f"{text} ({describe_bounds(log, better, bounds)})"


def describe_bounds(log: float, better: Direction, bounds: Bounds) -> str:
    """Return the bounds of an estimate, each with its word if the word is not the estimate's.

    They are factors if the estimate is one.

    Examples
    --------
    >>> describe_bounds(math.log(2.5), "lower", (math.log(1.8), math.log(3.4)))
    '1.80x to 3.40x'
    """
    estimate, word = _split_slowdown(log, better)
    ends = [_split_slowdown(bound, better, as_factor=estimate.endswith("x")) for bound in bounds]
    if any(end_word != word for _, end_word in ends):
        return " to ".join(" ".join(end) for end in ends)
    # The smaller difference stands first.
    return " to ".join([number for number, _ in ends][:: 1 if log >= 0 else -1])


def describe_slowdown_briefly(log: float, better: Direction, bounds: Bounds | None = None) -> str:
    """Return by how much virtual is slower, for a column: ``9% (-2 to 19%)``; a minus is faster.

    A large difference is a factor: ``4.7x (4.5 to 4.8x)`` is 4.7 times as slow.
    """
    is_factor = _split_slowdown(log, better)[0].endswith("x")
    unit = "x" if is_factor else "%"
    number, *ends = (_format_briefly(value, better, is_factor) for value in (log, *(bounds or ())))
    return f"{number}{unit} ({' to '.join(ends)}{unit})" if ends else f"{number}{unit}"


def _format_briefly(log: float, better: Direction, is_factor: bool) -> str:
    if not abs(log) <= math.log(MAX_SHOWN):
        return "?" if not is_factor else f">{MAX_SHOWN}" if log > 0 else f"<{1 / MAX_SHOWN:g}"
    if is_factor:
        factor = math.exp(log)
        return f"{factor:.{0 if factor >= 100 else 1 if factor >= 1 else 2}f}"
    return f"{round(100 * _fraction_slower(log, better))}"


def _split_slowdown(log: float, better: Direction, *, as_factor: bool = False) -> tuple[str, str]:
    """Return number and word of a difference; a large one is a factor."""
    fraction = _fraction_slower(log, better)
    ratio = 1 + fraction if better == "lower" else 1 - fraction
    if as_factor or not 0.1 <= ratio < 2:
        factor = exp_or_inf(abs(log))
        digits = 0 if factor >= 100 else 1 if factor >= 10 else 2
        number = f"{factor:.{digits}f}x" if factor <= MAX_SHOWN else f"over {MAX_SHOWN}x"
        return number, "as slow" if log > 0 else "as fast"
    return f"{abs(100 * fraction):.1f}%", "slower" if log >= 0 else "faster"


def _fraction_slower(log: float, better: Direction) -> float:
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
        The value is no budget; 0.95 may be meant as 5 % or as 95 %.
    """
    fraction = read_percent(value)
    if fraction is value:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        # A person's 1 may be meant as 1 %; a log has 1.0 for a budget of 0 %.
        is_factor = number > 1 or (number == 1 and not isinstance(value, str))
        fraction = number - 1 if is_factor else number if number < 0.5 else math.nan
    if not (isinstance(fraction, float) and 0 <= fraction < 1):
        more = ""
        if isinstance(fraction, float) and fraction >= 1:
            more = ", which is twice the time, or no rate at all; more needs a class of budgets "
            "(references/budgets)"
        raise ValueError(f"{value} is no budget or margin: write 5%, from 0% to below 100%{more}")
    return fraction
