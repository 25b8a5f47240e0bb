"""Ways in which an output is damaged on its way from a program to a parser.

Every function takes a random generator, the text, and the text of another rank of the same program
(see `sibling`), and returns the damaged text.  All damage is in lines: a file system loses, repeats or mixes
buffers, and a locale or a version prints other words.  A character that became another one leaves no trace.
"""

import random
import re
from collections.abc import Callable

UNITS = {
    "(us)": "(ms)", "MB/s": "GB/s", "usec": "msec", "Gflop": "Mflop", "seconds": "minutes", "MByte": "GByte",
    "Mop/s": "Kop/s", "Byte": "kByte", "MiB": "GiB",
}  # fmt: skip
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)


def sibling(rng: random.Random, text: str) -> str:
    """Return what another rank or run could have printed: the same form, other decimals."""
    return re.sub(
        r"(?<=\.)\d+",
        lambda match: "".join(str(rng.randrange(1, 10)) for _ in match[0]),
        text,
        flags=re.ASCII,
    )


def _span(rng: random.Random, count: int, largest: int) -> tuple[int, int]:
    first = rng.randrange(count)
    return first, min(count, first + rng.randint(1, largest))


def truncated(rng: random.Random, text: str, _: str) -> str:
    """Cut at any character."""
    return text[: rng.randrange(len(text))]


def headless(rng: random.Random, text: str, _: str) -> str:
    """Begin at any character."""
    return text[rng.randrange(1, len(text)) :]


def lost_lines(rng: random.Random, text: str, _: str) -> str:
    """Lose a line, or some."""
    lines = text.splitlines(keepends=True)
    first, last = _span(rng, len(lines), rng.choice((1, 1, 3, 20)))
    return "".join(lines[:first] + lines[last:])


def joined_lines(rng: random.Random, text: str, _: str) -> str:
    """Lose the end of a line."""
    end = rng.choice([match.start() for match in re.finditer("\n", text)])
    return text[:end] + text[end + 1 :]


def merged(rng: random.Random, text: str, other: str) -> str:
    """Two ranks write into one file, line by line."""
    sources = [text.splitlines(keepends=True), other.splitlines(keepends=True)]
    lines = []
    while all(sources):
        lines.append(rng.choice(sources).pop(0))
    return "".join(lines + sources[0] + sources[1])


def with_foreign_lines(rng: random.Random, text: str, other: str) -> str:
    """Lines of another rank come between."""
    lines, foreign = text.splitlines(keepends=True), other.splitlines(keepends=True)
    first, last = _span(rng, len(foreign), rng.choice((1, 1, 4)))
    place = rng.randrange(len(lines) + 1)
    return "".join(lines[:place] + foreign[first:last] + lines[place:])


def two_runs(rng: random.Random, text: str, other: str) -> str:
    """Append another run, or part of it, before or after."""
    part = other if rng.random() < 0.5 else other[: rng.randrange(1, len(other))] + "\n"
    return rng.choice((text + part, part + text))


def duplicated(rng: random.Random, text: str, _: str) -> str:
    """Repeat lines, in place or elsewhere."""
    lines = text.splitlines(keepends=True)
    first, last = _span(rng, len(lines), rng.choice((1, 1, 4, 40)))
    place = rng.choice((last, rng.randrange(len(lines) + 1)))
    return "".join(lines[:place] + lines[first:last] + lines[place:])


def reordered(rng: random.Random, text: str, _: str) -> str:
    """Exchange two lines, or move a block."""
    lines = text.splitlines(keepends=True)
    first, last = _span(rng, len(lines), rng.choice((1, 1, 2, 10)))
    block = lines[first:last]
    del lines[first:last]
    place = rng.randrange(len(lines) + 1) if rng.random() < 0.5 else max(0, first - 1)
    return "".join(lines[:place] + block + lines[place:])


def localised(rng: random.Random, text: str, _: str) -> str:
    """Print numbers as another locale does: everywhere, or in a line."""
    translate = rng.choice(
        (
            lambda part: re.sub(r"(?<=\d)\.(?=\d)", ",", part, flags=re.ASCII),
            lambda part: re.sub(r"(?<=\d)(?=(?:\d{3})+(?!\d))", rng.choice(",.'"), part, flags=re.ASCII),
            lambda part: part.translate({ord("0") + digit: 0x660 + digit for digit in range(10)}),
        )
    )
    if rng.random() < 0.2:
        return translate(text)
    lines = text.splitlines(keepends=True)
    place = rng.randrange(len(lines))
    return "".join([*lines[:place], translate(lines[place]), *lines[place + 1 :]])


def not_a_number(rng: random.Random, text: str, _: str) -> str:
    """Print something else, or nothing, in the place of a number."""
    number = rng.choice(list(NUMBER.finditer(text)))
    other = rng.choice(("nan", "-nan", "NaN", "inf", "Infinity", "1e999", "*" * len(number[0]), ""))
    return text[: number.start()] + other + text[number.end() :]


def wrong_unit(rng: random.Random, text: str, _: str) -> str:
    """Print another unit, if the text has one."""
    places = list(re.finditer("|".join(map(re.escape, UNITS)), text))
    if not places:
        return text
    unit = rng.choice(places)
    return text[: unit.start()] + UNITS[unit[0]] + text[unit.end() :]


MUTATIONS: tuple[Callable[[random.Random, str, str], str], ...] = (
    truncated,
    headless,
    lost_lines,
    joined_lines,
    merged,
    with_foreign_lines,
    two_runs,
    duplicated,
    reordered,
    localised,
    not_a_number,
    wrong_unit,
)
