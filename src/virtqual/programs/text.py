"""Helpers of all parsers: one error, and readers that refuse a value that is missing or printed twice."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import zip_longest
from typing import Any

from virtqual.errors import InfrastructureError

# A number as C and Fortran print it in the C locale. float() would also read "1_000" and digits of other
# scripts.
NUMBER = r"-?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"


class OutputError(ValueError):
    """A program's output is incomplete, or has a form that its parser does not know."""

    def __init__(self, program: str, why: str) -> None:
        super().__init__(f"{program} output: {why}")


def line_of(text: str, offset: int) -> int:
    """Return the number, from 1, of the line that an offset lies in."""
    return text.count("\n", 0, offset) + 1


def find_all(pattern: str, text: str) -> list[re.Match[str]]:
    """Return all matches (``^`` and ``$`` match at lines, classes such as ``\\d`` are ASCII)."""
    return list(re.finditer(pattern, text, re.MULTILINE | re.ASCII))


def single(program: str, pattern: str, text: str, what: str) -> re.Match[str]:
    """Return the only match of a pattern (see `find_all`); raise OutputError if there are none or several."""
    matches = find_all(pattern, text)
    if len(matches) != 1:
        lines = [str(line_of(text, match.start())) for match in matches[:5]]
        where = f" (lines {', '.join(lines)})" if lines else ""
        raise OutputError(program, f"{what}: expected once, found {len(matches)} times{where}")
    return matches[0]


def refuse_lines(program: str, pattern: str, text: str) -> None:
    """Raise OutputError with the first line that a pattern matches."""
    if match := re.search(rf"^.*(?:{pattern}).*$", text, re.MULTILINE):
        raise OutputError(program, f"line {line_of(text, match.start())}: {match[0].strip()}")


def number(program: str, text: str, what: str) -> float:
    """Return a finite number; raise OutputError if the text is not one that C and Fortran print."""
    if not re.fullmatch(NUMBER, text) or not math.isfinite(float(text)):
        raise OutputError(program, f"{what}: {text!r} is not a number")
    return float(text)


def positive(program: str, text: str, what: str) -> float:
    """Return a finite number above zero; raise OutputError if the text is not one."""
    value = number(program, text, what)
    if value <= 0:
        raise OutputError(program, f"{what}: {text} is not above zero")
    return value


def whole_number(program: str, text: str, what: str) -> int:
    """Return a whole number from 0 on; raise OutputError if the text is not one."""
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise OutputError(program, f"{what}: {text!r} is not a whole number")
    return int(text)


def date(program: str, text: str, form: str, what: str) -> datetime:
    """Return a date of a form of `strptime`; raise OutputError if the text is not one."""
    try:
        return datetime.strptime(text, form)
    except ValueError:
        raise OutputError(program, f"{what}: {text!r} is not a date") from None


@contextmanager
def read_json(program: str, text: str) -> Iterator[Any]:
    """Yield a JSON document; raise OutputError for what the code within does not find or cannot calculate."""

    def make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) != len(pairs):
            raise OutputError(program, "a key stands twice")
        return values

    def make_int(digits: str) -> int:
        """Return a number that calculations can take for a float."""
        number(program, digits, "a value")
        return int(digits)

    try:
        yield json.loads(text, object_pairs_hook=make_object, parse_int=make_int)
    except OutputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise OutputError(program, f"it is not the JSON of a whole run ({error})") from None


def check_product(program: str, what: str, product: str, *factors: str) -> None:
    """Raise OutputError if printed numbers do not multiply to a product, within the last decimal of each."""
    slack, values = 1e-9, []
    for text in (product, *factors):
        values.append(positive(program, text, what))
        mantissa, _, exponent = text.partition("e")
        if decimals := mantissa.partition(".")[2]:
            slack += 10.0 ** (int(exponent or 0) - len(decimals)) / values[-1]
    if abs(math.prod(values[1:]) - values[0]) > slack * values[0]:
        raise OutputError(program, f"{what}: {' x '.join(factors)} is not {values[0]:.8g}")


def check_sizes(program: str, sizes: Sequence[object], asked: Sequence[int]) -> None:
    """Raise OutputError unless the message sizes of an output, in bytes, are those that were asked for."""
    for size, expected in zip_longest(map(str, sizes), map(str, asked), fillvalue="none"):
        if size != expected:
            raise OutputError(program, f"message sizes in bytes: {size} where {expected} was expected")


def replace_values(
    text: str, values: Mapping[str, int | str], *, file: str, separator: str, value: str
) -> str:
    r"""Return a program's input with new values by name; it has one entry a line, which begins with its name.

    `separator` and `value` are patterns.  An entry that is missing or there twice raises InfrastructureError.

    Examples
    --------
    >>> replace_values("n 500\nlog /tmp/x\n", {"log": "out"}, file="f", separator=r"\s+", value=r"\S+")
    'n 500\nlog out\n'
    """
    for name, new in values.items():
        text, count = re.subn(rf"(?im)^(\s*{name}{separator}){value}", rf"\g<1>{new}", text)
        if count != 1:
            raise InfrastructureError(f"{file} has {count} entries {name}: expected one")
    return text


def compute_checksum(text: str) -> str:
    """Return the checksum of a text that our own programs print last (FNV-1a, 32 bits).

    Examples
    --------
    >>> compute_checksum("a\\n")
    '2524c6d2'
    """
    checksum = 2166136261
    for byte in text.encode("utf-8", "replace"):
        checksum = (checksum ^ byte) * 16777619 % 2**32
    return f"{checksum:08x}"


def check_lines(program: str, text: str) -> None:
    """Raise OutputError unless the last line has the checksum of the lines before it."""
    end = single(program, r"^end ([0-9a-f]{8})\s*\Z", text, "last line")
    if end[1] != compute_checksum(text[: end.start()]):
        raise OutputError(program, "its lines are not those of its checksum")
