"""Ways in which an output is damaged on its way from a program to a parser.

Every function takes a random generator, the text, and the text of another rank of the same program
(see `sibling`), and returns the damaged text.
"""

import random
import re
from collections.abc import Callable

# Not among them: what a number may be made of.  A digit that became another digit leaves no trace.
GARBAGE = "\x00\x07\x0c\x1b\x85\u2028\ufffd~#$%&*/:;<=>?@_|abxyzABNPUZ\u0663\u00bd,'\"\\ \t\n"
LINES = (
    "slurmstepd: error: *** STEP 12.0 ON node-1 CANCELLED ***",
    "[node-1:01234] WARNING: a transport falls back to 127.0.0.1, 64 bytes",
    "0 1 2 3 4 5 6 7",
    "nan nan nan nan nan",
    "\x00" * 80,
    "Killed",
)


def sibling(rng: random.Random, text: str) -> str:
    """Return what another rank or run could have printed: the same form, other decimals."""
    return re.sub(
        r"(?<=\.)\d+",
        lambda match: "".join(str(rng.randrange(1, 10)) for _ in match[0]),
        text,
        flags=re.ASCII,
    )


def _span(rng: random.Random, count: int, most: int) -> tuple[int, int]:
    first = rng.randrange(count)
    return first, min(count, first + rng.randint(1, most))


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
    ends = [match.start() for match in re.finditer("\n", text)]
    at = rng.choice(ends)
    return text[:at] + text[at + 1 :]


def split_lines(rng: random.Random, text: str, _: str) -> str:
    """Break a line in two."""
    at = rng.randrange(len(text))
    return text[:at] + "\n" + text[at:]


def merged(rng: random.Random, text: str, other: str) -> str:
    """Two ranks write into one file, line by line."""
    mine, theirs = text.splitlines(keepends=True), other.splitlines(keepends=True)
    both = []
    while mine and theirs:
        source = mine if rng.random() < 0.5 else theirs
        both.append(source.pop(0))
    return "".join(both + mine + theirs)


def interrupted(rng: random.Random, text: str, other: str) -> str:
    """A buffer of another rank comes between, at any character."""
    at, start = rng.randrange(len(text)), rng.randrange(len(other))
    return text[:at] + other[start : start + rng.choice((5, 40, 400, 4096))] + text[at:]


def with_foreign_lines(rng: random.Random, text: str, other: str) -> str:
    """Lines of another rank come between."""
    mine, theirs = text.splitlines(keepends=True), other.splitlines(keepends=True)
    first, last = _span(rng, len(theirs), rng.choice((1, 1, 4)))
    at = rng.randrange(len(mine) + 1)
    return "".join(mine[:at] + theirs[first:last] + mine[at:])


def two_runs(rng: random.Random, text: str, other: str) -> str:
    """Append another run, or part of it, before or after."""
    part = other if rng.random() < 0.5 else other[: rng.randrange(1, len(other))] + "\n"
    return rng.choice((text + part, part + text))


def duplicated(rng: random.Random, text: str, _: str) -> str:
    """Say lines twice, in place or elsewhere."""
    lines = text.splitlines(keepends=True)
    first, last = _span(rng, len(lines), rng.choice((1, 1, 4, 40)))
    at = rng.choice((last, rng.randrange(len(lines) + 1)))
    return "".join(lines[:at] + lines[first:last] + lines[at:])


def reordered(rng: random.Random, text: str, _: str) -> str:
    """Exchange two lines, or move a block."""
    lines = text.splitlines(keepends=True)
    first, last = _span(rng, len(lines), rng.choice((1, 1, 2, 10)))
    block = lines[first:last]
    del lines[first:last]
    at = rng.randrange(len(lines) + 1) if rng.random() < 0.5 else max(0, first - 1)
    return "".join(lines[:at] + block + lines[at:])


def localised(rng: random.Random, text: str, _: str) -> str:
    """Print numbers as another locale does: everywhere, in a line, or once."""
    how = rng.choice(
        (
            lambda part: re.sub(r"(?<=\d)\.(?=\d)", ",", part, flags=re.ASCII),
            lambda part: re.sub(r"(?<=\d)(?=(?:\d{3})+(?!\d))", rng.choice(",.'"), part, flags=re.ASCII),
            lambda part: part.translate({ord("0") + digit: 0x660 + digit for digit in range(10)}),
        )
    )
    if rng.random() < 0.2:
        return how(text)
    lines = text.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    return "".join([*lines[:at], how(lines[at]), *lines[at + 1 :]])


def garbage(rng: random.Random, text: str, _: str) -> str:
    """Put bytes that no number is made of over, or between, others; or whole lines."""
    at = rng.randrange(len(text))
    kind = rng.random()
    if kind < 0.2:
        line = text.rfind("\n", 0, at) + 1
        return text[:line] + rng.choice(LINES) + "\n" + text[line:]
    if kind < 0.3:
        return text[:at] + "\x00" * rng.randint(1, 512) + text[at + 512 :]
    bad = "".join(rng.choice(GARBAGE) for _ in range(rng.choice((1, 1, 1, 8))))
    # A blank in place of a leading digit is a digit changed.
    if kind < 0.6 and not bad.isspace():
        return text[:at] + bad + text[at + 1 :]
    return text[:at] + bad + text[at:]


def not_a_number(rng: random.Random, text: str, _: str) -> str:
    """Print something else, or nothing, in the place of a number."""
    number = rng.choice(list(re.finditer(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", text, re.ASCII)))
    other = rng.choice(("nan", "-nan", "NaN", "inf", "Infinity", "1e999", "*" * len(number[0]), ""))
    return text[: number.start()] + other + text[number.end() :]


def dropped(rng: random.Random, text: str, _: str) -> str:
    """Lose one character of a line that holds numbers."""
    places = [match.start() for match in re.finditer(r"[0-9.]", text)]
    at = rng.choice(places)
    return text[:at] + text[at + 1 :]


MUTATIONS: tuple[Callable[[random.Random, str, str], str], ...] = (
    truncated,
    headless,
    lost_lines,
    joined_lines,
    split_lines,
    merged,
    interrupted,
    with_foreign_lines,
    two_runs,
    duplicated,
    reordered,
    localised,
    garbage,
    not_a_number,
    dropped,
)
