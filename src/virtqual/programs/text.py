"""Helpers of all parsers: one error, and readers that refuse a value that is missing or printed twice."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from virtqual.errors import InfrastructureError

# A number as C and Fortran print it in the C locale. float() would also read "1_000" and digits of other
# scripts.
NUMBER = r"-?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"
# What C and Fortran print for a value that is not a number or infinite.
NOT_FINITE = r"(?i:(?<![\w.+-])[-+]?(?:nan(?:\(\w*\))?|inf|infinity)(?!\w|\.\w))"
# A line is similar to a pattern if it matches a beginning or end with this many letters, and a third of all.
_SIMILAR_LETTERS = 5
_SHOWN_CHARS = 100


class ProgramName(str):
    """The name of a program, with the versions and builds whose output its parser knows.

    `versions` completes the sentence "no result line as ... print it".
    """

    versions: str

    def __new__(cls, name: str, versions: str) -> ProgramName:
        """Return the name as a text that has `versions`."""
        program = super().__new__(cls, name)
        program.versions = versions
        return program


class OutputError(ValueError):
    """A program's output is incomplete, or has a form that its parser does not know."""

    def __init__(self, program: str, why: str = "") -> None:
        super().__init__(f"{program} output: {why}" if why else f"this is not the output of {program}")


def line_of(text: str, offset: int) -> int:
    """Return the number, from 1, of the line that an offset lies in."""
    return text.count("\n", 0, offset) + 1


def find_all(pattern: str, text: str) -> list[re.Match[str]]:
    """Return all matches (``^`` and ``$`` match at lines, classes such as ``\\d`` are ASCII)."""
    return list(re.finditer(pattern, text, re.MULTILINE | re.ASCII))


def single(program: str, pattern: str, text: str, what: str) -> re.Match[str]:
    """Return the only match of a pattern (see `find_all`).

    OutputError says whether there are several, or the closest line if there is none: it shows which other
    version or build of the program printed it.
    """
    matches = find_all(pattern, text)
    if len(matches) > 1:
        lines = ", ".join(str(line_of(text, match.start())) for match in matches[:5])
        raise OutputError(program, f"{what}: appears {len(matches)} times (lines {lines}), expected once")
    if not matches:
        raise OutputError(program, f"no {what}{_name_versions(program)}; {_describe(pattern, text)}")
    return matches[0]


def _name_versions(program: str) -> str:
    """Return who prints what is missing; a site's own parser may name its program alone."""
    return f" as {program.versions} print it" if isinstance(program, ProgramName) else ""


def _describe(pattern: str, text: str) -> str:
    """Return what an output without a match of a pattern has in its place."""
    closest = find_closest_line(pattern, text)
    if closest is None:
        return "no line is similar: the output is incomplete, or of another version or build"
    number, line = closest
    shown = line if len(line) <= _SHOWN_CHARS else f"{line[:_SHOWN_CHARS]}..."
    return f"the closest line is {number}: {shown!r}"


def find_closest_line(pattern: str, text: str) -> tuple[int, str] | None:
    """Return number and text of the line that matches most of the beginning, or of the end, of a pattern."""
    all_lines = list(enumerate(text.split("\n"), 1))
    longest, closest = 0, None
    for pieces in _split(pattern):
        lines = all_lines
        for piece in pieces:
            similar = [entry for entry in lines if piece.search(entry[1])]
            if similar and len(piece.pattern) > longest:
                longest, closest = len(piece.pattern), similar[0]
            if not similar and lines is all_lines:
                break
            lines = similar or lines
    return closest


@lru_cache(maxsize=256)
def _split(pattern: str) -> tuple[list[re.Pattern[str]], list[re.Pattern[str]]]:
    """Return the beginnings and the ends of a pattern that a similar line matches, shortest first."""
    pattern = pattern.removeprefix("^")
    third = _count_letters(pattern) / 3
    enough, few = max(_SIMILAR_LETTERS, third), max(1, min(_SIMILAR_LETTERS, third))
    beginnings: list[re.Pattern[str]] = []
    ends: list[re.Pattern[str]] = []
    for length in range(1, len(pattern)):
        for piece, pieces in ((pattern[:length], beginnings), (pattern[-length:], ends)):
            letters = _count_letters(piece)
            # Patterns of numbers have hardly any letters: half of such a pattern is enough.
            if letters >= enough or (letters >= few and 2 * length >= len(pattern)):
                # A piece that ends within a group is not a pattern.
                with suppress(re.error):
                    pieces.append(re.compile(piece, re.ASCII))
    return beginnings, ends


def _count_letters(pattern: str) -> int:
    literal = re.sub(r"\\.|\[[^]]*\]?|\(\?.", "", pattern)
    return len(re.findall("[A-Za-z]", literal))


def refuse_lines(program: str, pattern: str, text: str) -> None:
    """Raise OutputError with the first line that a pattern matches."""
    if match := re.search(rf"^.*(?:{pattern}).*$", text, re.MULTILINE):
        raise OutputError(program, f"line {line_of(text, match.start())}: {match[0].strip()}")


def refuse_not_finite(program: str, text: str) -> None:
    """Raise OutputError with the first line that has NaN or infinity for a number, whatever else it says."""
    if match := re.search(rf"^.*{NOT_FINITE}.*$", text, re.MULTILINE | re.ASCII):
        line = line_of(text, match.start())
        raise OutputError(
            program, f"line {line} has a value that is not a finite number: {match[0].strip()!r}"
        )


def number(program: str, text: str, what: str) -> float:
    """Return a finite number; raise OutputError if the text is not one that C and Fortran print."""
    if not re.fullmatch(NUMBER, text) or not math.isfinite(float(text)):
        raise OutputError(program, f"{what}: {text!r} is not a finite number")
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


class _Object(dict[str, Any]):
    """A JSON object, in which a key with two values can be there but not be read."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        last = dict(pairs)
        self._ambiguous = {key for key, value in pairs if value is not last[key] and value != last[key]}

    def __getitem__(self, key: str) -> Any:
        if key in self._ambiguous:
            raise ValueError(f"the key {key!r} appears twice, with different values")
        return super().__getitem__(key)

    def items(self) -> Any:
        return {key: self[key] for key in self}.items()

    def values(self) -> Any:
        return {key: self[key] for key in self}.values()

    def unambiguous(self) -> dict[str, Any]:
        """Return the object without the keys that have two values."""
        return {key: self[key] for key in self if key not in self._ambiguous}


@contextmanager
def read_json(program: str, text: str) -> Iterator[Any]:
    """Yield a JSON document; raise OutputError for what the code within does not find or cannot calculate.

    Some versions of programs print a key twice in an object.  That is an error only where the key is read and
    the values differ.
    """

    def make_int(digits: str) -> int:
        """Return a number that calculations can take for a float."""
        number(program, digits, "a value")
        return int(digits)

    try:
        yield json.loads(text, object_pairs_hook=_Object, parse_int=make_int)
    except OutputError:
        raise
    except KeyError as error:
        raise OutputError(program, f"no key {error}{_name_versions(program)}") from None
    except json.JSONDecodeError as error:
        raise OutputError(program, f"it is not JSON, or cut off ({error})") from None
    except (TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise OutputError(program, f"it is not the JSON of a whole run ({error})") from None


def find_step(text: str) -> float:
    """Return one unit of the last decimal of a printed number, 0 if it has none.

    Examples
    --------
    >>> find_step("1.25e+02"), find_step("0.07"), find_step("7")
    (1.0, 0.01, 0.0)
    """
    mantissa, _, exponent = text.lower().partition("e")
    decimals = mantissa.partition(".")[2]
    return float(f"1e{int(exponent or 0) - len(decimals)}") if decimals else 0.0


def check_product(program: str, what: str, product: str, *factors: str) -> None:
    """Raise OutputError if printed numbers do not multiply to a product, within the last decimal of each."""
    slack, values = 1e-9, []
    for text in (product, *factors):
        values.append(positive(program, text, what))
        slack += find_step(text) / values[-1]
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
