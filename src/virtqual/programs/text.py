"""Tools of all parsers: one error, and readers that refuse values that are missing or said twice."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

# A number as C and Fortran print it in the C locale: no decimal comma, no digits of other scripts, no "1_000"
# (Python's own float() reads the last two).
NUMBER = r"-?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"
# No program prints these: a file with them was damaged on its way (blocks of zeros after a crash).
_NOT_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f]")


class OutputError(ValueError):
    """A program's output is not whole, or is not what this parser knows.

    Parameters
    ----------
    program
        The program that wrote the output.
    why
        The fault: a value that is missing, split, duplicated or out of range.
    """

    def __init__(self, program: str, why: str) -> None:
        super().__init__(f"{program} output: {why}")


def printable(program: str, text: str) -> str:
    """Return a text unchanged, and refuse a damaged one.

    Raises
    ------
    OutputError
        The text holds control characters.
    """
    if bad := _NOT_TEXT.search(text):
        raise OutputError(program, f"line {line_of(text, bad.start())} holds the byte 0x{ord(bad[0]):02x}")
    return text


def line_of(text: str, offset: int) -> int:
    """Return the number, from 1, of the line that an offset lies in."""
    return text.count("\n", 0, offset) + 1


def every(pattern: str, text: str) -> list[re.Match[str]]:
    """Return all matches (``^`` and ``$`` match at lines, classes such as ``\\d`` are ASCII)."""
    return list(re.finditer(pattern, text, re.MULTILINE | re.ASCII))


def single(program: str, pattern: str, text: str, what: str) -> re.Match[str]:
    """Return the only match of a pattern (see `every`).

    Raises
    ------
    OutputError
        The text has no match, or several: a number that is said twice cannot be trusted.
    """
    matches = every(pattern, text)
    if len(matches) != 1:
        lines = [str(line_of(text, match.start())) for match in matches[:5]]
        where = f" (lines {', '.join(lines)})" if lines else ""
        raise OutputError(program, f"{what}: expected once, found {len(matches)} times{where}")
    return matches[0]


def number(program: str, text: str, what: str) -> float:
    """Return a finite number.

    Raises
    ------
    OutputError
        The text is no finite number, or not one that C and Fortran print.
    """
    if not re.fullmatch(NUMBER, text) or not math.isfinite(float(text)):
        raise OutputError(program, f"{what}: {text!r} is not a number")
    return float(text)


def whole_number(program: str, text: str, what: str) -> int:
    """Return a whole number from 0 on.

    Raises
    ------
    OutputError
        The text is no such number.
    """
    if not re.fullmatch(r"[0-9]+", text):
        raise OutputError(program, f"{what}: {text!r} is not a whole number")
    return int(text)


def positive(program: str, text: str, what: str) -> float:
    """Return a finite number above zero.

    Raises
    ------
    OutputError
        The text is no number, or a number that is not above zero.
    """
    value = number(program, text, what)
    if value <= 0:
        raise OutputError(program, f"{what}: {text} is not above zero")
    return value


def resolution(text: str) -> float:
    """Return the unit of the last printed digit: what a number may be off by twice.

    Examples
    --------
    >>> resolution("0.030167"), resolution("8.553e+01")
    (1e-06, 0.01)
    """
    mantissa, _, exponent = text.lower().partition("e")
    return float(f"1e{int(exponent or 0) - len(mantissa.partition('.')[2])}")


def agree(first: float, second: float, *relative: float) -> bool:
    """Return whether two values are the same within the sum of relative errors."""
    return abs(first - second) <= sum(relative) * max(abs(first), abs(second))


def aligned(program: str, rows: Sequence[tuple[int, str]], what: str) -> list[list[str]]:
    """Split the rows of a table whose columns are right-aligned.

    A character that was lost or added moves everything after it: in a table that is printed in columns of one
    width this shows, although each number by itself still reads well.

    Parameters
    ----------
    program, what
        For messages.
    rows
        Line numbers and lines.  Only where the first word ends is free (a label, or a left-aligned size).

    Raises
    ------
    OutputError
        Naming the first line whose columns do not end where those of the first row end.
    """
    split = [list(re.finditer(r"[^ ]+", line)) for _, line in rows]
    ends = [[word.end() for word in words[1:]] for words in split]
    for (line, text), row in zip(rows, ends, strict=True):
        if row != ends[0]:
            raise OutputError(program, f"{what}: line {line} is not in columns with the others: {text!r}")
    return [[word[0] for word in words] for words in split]


def ordered(program: str, matches: Iterable[re.Match[str]], what: str) -> None:
    """Assert that lines stand in this order.

    Raises
    ------
    OutputError
        They do not: lines of a finished program do not change places by themselves.
    """
    starts = [match.start() for match in matches]
    if starts != sorted(starts):
        raise OutputError(program, f"{what}: the lines are not in their order")


# The names of before: parsers that sites have written after docs/licensed-application.md import them.
one, step, whole = single, resolution, whole_number
