"""Damaged outputs of programs: refused, the same numbers, or other numbers.

    python benchmarks/damage/programs.py [--total 30000] [--seed 1]

The 15 kinds of damage are those of tests/virtqual/programs/mutations.py; of the 9 others, which leave a
number a number, no text format tells where the number is printed once.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from recorded import print_table

from virtqual.programs.text import OutputError

sys.path.insert(0, str(Path(__file__).parents[2] / "tests/virtqual/programs"))
from mutations import MUTATIONS, sibling
from samples import PARSERS, numbers, read

RESULTS = ("refused", "same numbers", "OTHER NUMBERS", "TRACEBACK")


def _at(
    pattern: str, change: Callable[[random.Random, str], str]
) -> Callable[[random.Random, str, str], str]:
    """Return a damage that changes one match of a pattern."""

    def damage(rng: random.Random, text: str, _: str) -> str:
        matches = list(re.finditer(pattern, text, re.ASCII))
        if not matches:
            return text
        match = rng.choice(matches)
        return text[: match.start()] + change(rng, match[0]) + text[match.end() :]

    return damage


def _flip(rng: random.Random, text: str, _: str) -> str:
    content = bytearray(text.encode())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return content.decode(errors="replace")


OTHERS: dict[str, Callable[[random.Random, str, str], str]] = {
    "bit flipped": _flip,
    "digit": _at(r"\d", lambda rng, _: str(rng.randrange(10))),
    "digits swapped": _at(r"\d\d", lambda rng, pair: pair[::-1]),
    "exponent": _at(r"(?<=[eE])[-+]?\d+", lambda rng, _: f"{rng.choice('+-')}{rng.randrange(10):02}"),
    "point moved": _at(r"\d\.\d", lambda rng, part: rng.choice((f".{part[::2]}", f"{part[::2]}."))),
    "blank for a digit": _at(r"\d", lambda rng, _: " "),
    "sign": _at(r"(?<=[ =])\d", lambda rng, digit: f"-{digit}"),
    "digit twice": _at(r"\d", lambda rng, digit: digit * 2),
    "point lost": _at(r"(?<=\d)\.(?=\d)", lambda rng, _: ""),
}  # fmt: skip


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--total", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    kinds = {mutate.__name__: mutate for mutate in MUTATIONS} | OTHERS
    each = -(-options.total // (len(PARSERS) * len(kinds)))
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    programs = Counter[str]()
    for name, parse in PARSERS.items():
        text = read(name)
        whole = list(numbers(parse(text)))
        for kind, mutate in kinds.items():
            for number in range(each):
                rng = random.Random(f"{options.seed} {name} {kind} {number}")
                damaged = mutate(rng, text, sibling(rng, text))
                try:
                    result = "same numbers" if list(numbers(parse(damaged))) == whole else "OTHER NUMBERS"
                except OutputError:
                    result = "refused"
                except Exception as error:
                    print(f"{name}, {kind}: {type(error).__name__}: {error}", file=sys.stderr)
                    result = "TRACEBACK"
                counts[kind][result] += 1
                programs[name] += result == "OTHER NUMBERS"
                if result == "OTHER NUMBERS" and kind not in OTHERS:
                    print(f"{name}, {kind}, number {number}: other numbers", file=sys.stderr)
    counts["ALL"] = sum(counts.values(), Counter[str]())
    print_table(
        ["damage", *RESULTS], ([kind, *(row[name] for name in RESULTS)] for kind, row in counts.items())
    )
    print(
        "Other numbers by output:", ", ".join(f"{name} {count}" for name, count in programs.most_common(12))
    )
    return int(bool(counts["ALL"]["TRACEBACK"]))


if __name__ == "__main__":
    sys.exit(main())
