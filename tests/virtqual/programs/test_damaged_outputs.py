"""Each parser says what is wrong with an output of which a line is lost, or a number is another one.

The first damage with each message stands in tests/outputs/messages.txt.  If messages change, run this file by
Python, and read the difference.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from mutations import NUMBER
from samples import OUTPUTS, PARSERS, read, reseal

from virtqual.programs.text import OutputError

MESSAGES = OUTPUTS / "messages.txt"
SHOWN_CHARS = 60
SEAL = re.compile(r"^end [0-9a-f]{8}$", re.MULTILINE)


def name_parser(name: str) -> str:
    parser = PARSERS[name]
    function = parser.func if isinstance(parser, partial) else parser
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"


SAMPLES = {
    parser: [name for name in PARSERS if name_parser(name) == parser] for parser in map(name_parser, PARSERS)
}


def damage(text: str) -> Iterator[tuple[str, str]]:
    """Yield what was done to the first and the last line of a kind, and the damaged text."""
    lines = text.splitlines(keepends=True)
    kinds = [re.sub(rf"\s+|{NUMBER.pattern}", "#", line) for line in lines]
    first = {kind: place for place, kind in reversed(list(enumerate(kinds)))}
    last = {kind: place for place, kind in enumerate(kinds)}
    for place in sorted({*first.values(), *last.values()}):
        line = lines[place]
        before, after = "".join(lines[:place]), "".join(lines[place + 1 :])
        shown = line.strip()[:SHOWN_CHARS]
        yield f"without: {shown}", before + after
        for number in NUMBER.finditer(line):
            for other in ("x", "0", "17"):
                changed = line[: number.start()] + other + line[number.end() :]
                yield f"{number[0]} is {other}: {shown}", before + changed + after


def damage_sealed(text: str) -> Iterator[tuple[str, str]]:
    """Yield damages, and those of an output with a checksum as if its program had printed them, too."""
    for done, damaged in damage(text):
        yield done, damaged
        # Only the checksum guards the code of a histogram.
        if SEAL.search(text) and SEAL.search(damaged) and "HISTF" not in done:
            yield f"{done} (with its checksum)", reseal(damaged)


def find_message(parser: Callable[[str], object], text: str) -> str | None:
    try:
        parser(text)
    except OutputError as error:
        return str(error)
    return None


def list_messages(parser: str) -> str:
    messages = {}
    for name in SAMPLES[parser]:
        for done, text in damage_sealed(read(name)):
            if message := find_message(PARSERS[name], text):
                # Versions of Python say otherwise why a text is no JSON.
                message = re.sub(r" \((?:[A-Z].* column |too many ).*", "", message)
                # Numbers, and lines that are quoted with them, make no other message.
                kind = re.sub(r"'[^']*(?:\d|\bx\b)[^']*'|\[.*?\]|\d+(?:\.\d+)?|\s+", "#", message)
                messages.setdefault(kind, f"{done}\n    {message}\n")
    return "".join(messages.values())


def read_messages() -> dict[str, str]:
    parts = re.split(r"^== (\S+)\n", MESSAGES.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("parser", SAMPLES)
def test_the_messages_of_damaged_outputs(parser):
    assert list_messages(parser) == read_messages()[parser]


def test_each_parser_has_messages():
    assert list(read_messages()) == list(SAMPLES)


if __name__ == "__main__":
    MESSAGES.write_text("".join(f"== {name}\n{list_messages(name)}" for name in SAMPLES), encoding="utf-8")
