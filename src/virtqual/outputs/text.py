"""What every parser shares: one error, and readers that refuse what is missing or said twice."""

from __future__ import annotations

import math
import re


class OutputError(ValueError):
    """A program's output is not whole, or is not what this parser knows.

    Parameters
    ----------
    program
        Whose output it is.
    why
        What is missing, split, duplicated or out of range.
    """

    def __init__(self, program: str, why: str) -> None:
        super().__init__(f"{program} output: {why}")


def one(program: str, pattern: str, text: str, what: str) -> re.Match[str]:
    """Return the only match of a pattern (``^`` and ``$`` match at lines).

    Raises
    ------
    OutputError
        There is no match, or more than one: a number that is said twice cannot be trusted.
    """
    matches = list(re.finditer(pattern, text, re.MULTILINE))
    if len(matches) != 1:
        raise OutputError(program, f"{what}: expected once, found {len(matches)} times")
    return matches[0]


def positive(program: str, text: str, what: str) -> float:
    """Return a finite number above zero.

    Raises
    ------
    OutputError
        It is no number, or not one above zero.
    """
    try:
        value = float(text)
    except ValueError:
        raise OutputError(program, f"{what}: {text!r} is not a number") from None
    if not math.isfinite(value) or value <= 0:
        raise OutputError(program, f"{what}: {text} is not above zero")
    return value
