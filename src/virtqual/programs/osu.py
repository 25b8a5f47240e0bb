"""OSU micro-benchmarks 5.x to 7.x: point to point and collectives, one row a message size.

The column headers decide what a number is: versions and options differ in them, not in their places.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from virtqual.programs.text import OutputError, agree, aligned, positive, printable, resolution, single

NAME = "OSU"
# Column by header; the header has the unit (us, MB/s with 1 MB = 10^6 bytes, messages/s).
_COLUMNS = {
    "Latency (us)": "latency",
    "Avg Latency(us)": "latency",
    "Min Latency(us)": "least",
    "Max Latency(us)": "most",
    "Iterations": "iterations",
    "Bandwidth (MB/s)": "bandwidth",
    "MB/s": "bandwidth",
    "Messages/s": "messages",
    "Validation": "validation",
}
# A line that 7.x may write between rows: where its buffers lie.
_NOTE = re.compile(r"# \w+/\w+: allocated [0-9]+ bytes at 0x[0-9a-f]+")
_PERCENTILE = re.compile(r"P([0-9]{1,2}) Tail (?:Lat\(us\)|BW\(MB/s\))")


@dataclass(frozen=True)
class OsuRun:
    """One run of one benchmark.

    Attributes
    ----------
    benchmark
        The benchmark's title, e.g. ``Latency Test`` or ``Allreduce Latency Test``.
    version
        E.g. ``7.4``.
    columns
        Values by message size in bytes, for each column (``latency``, ``least``, ``most``, ``bandwidth``,
        ``messages``, ``iterations``, ``p50`` ...); latencies in us, bandwidths in MB/s (10^6 bytes).
    pairs, window
        For osu_mbw_mr: pairs of processes, and messages in flight; else 0.
    validated
        Whether every row says that its data arrived unchanged (option ``-c``).
    """

    benchmark: str
    version: str
    columns: dict[str, dict[int, float]] = field(default_factory=dict)
    pairs: int = 0
    window: int = 0
    validated: bool = False


def sizes(first: int, last: int) -> list[int]:
    """Return the message sizes that ``-m FIRST:LAST`` asks for: doubled each time, 1 after 0."""
    found = []
    size = first
    while size <= last:
        found.append(size)
        size = 2 * size or 1
    return found


def parse(text: str, first: int, last: int) -> OsuRun:
    """Read the output of one run.

    Parameters
    ----------
    text
        The standard output of the run.
    first, last
        The message sizes that were asked for (``-m FIRST:LAST``), in bytes: a table does not say where it
        ends, and one that stops early or lacks a row is refused.

    Raises
    ------
    OutputError
        A row is split, missing, out of order, doubled or not in its columns, a header is unknown, or the data
        of a message did not validate.
    """
    printable(NAME, text)
    title = single(NAME, r"^# OSU MPI (.+) v([5-7]\.\d+(?:\.\d+)?)$", text, "title of a version 5 to 7")
    head = single(NAME, r"^# Size +\S.*$", text, "column headers")
    lines = text.split("\n")
    if lines.pop():
        raise OutputError(NAME, f"line {len(lines) + 1} is cut off")
    begin, header = (text.count("\n", 0, match.start()) for match in (title, head))
    rows = []
    for number, line in enumerate(lines[begin:], begin + 1):
        if number > header + 1 and re.match(r"[0-9]+ ", line):
            rows.append((number, line))
        elif not (line == "" or _NOTE.fullmatch(line) or (number <= header + 1 and line.startswith("# "))):
            raise OutputError(NAME, f"line {number} is no row of the table: {line!r}")
    names = _names(head[0], header + 1)
    columns = _columns(names, header + 1, head[0], rows, sizes(first, last))
    validated = "validation" in names
    pairs = window = 0
    if "messages" in columns:
        setting = single(NAME, r"^# \[ pairs: (\d+) \] \[ window size: (\d+) \]$", text, "pairs and window")
        pairs, window = int(setting[1]), int(setting[2])
    return OsuRun(title[1], title[2], columns, pairs, window, validated)


def _headers(header: str) -> list[re.Match[str]]:
    """Split a header line; neighbours may have a single blank between them."""
    known = "|".join(re.escape(word) for word in sorted(_COLUMNS, key=len, reverse=True))
    return list(re.finditer(rf"{known}|{_PERCENTILE.pattern}|\S+", header))[2:]


def _names(header: str, line: int) -> list[str]:
    names = []
    for word in _headers(header):
        percentile = _PERCENTILE.fullmatch(word[0])
        name = f"p{percentile[1]}" if percentile else _COLUMNS.get(word[0])
        if name is None or name in names:
            raise OutputError(NAME, f"line {line}: the column {word[0]!r} is unknown or there twice")
        names.append(name)
    return names


def _columns(
    names: list[str], line: int, header: str, rows: list[tuple[int, str]], wanted: list[int]
) -> dict[str, dict[int, float]]:
    split = aligned(NAME, rows, "table") if rows else []
    found = [int(row[0]) for row in split]
    if found != wanted:
        raise OutputError(NAME, f"rows for {found} bytes, asked for {wanted}")
    if len(split[0]) != len(names) + 1:
        raise OutputError(NAME, f"{len(split[0]) - 1} columns under the {len(names)} headers at line {line}")
    _under(header, line, rows[0])
    columns: dict[str, dict[int, float]] = {name: {} for name in names if name != "validation"}
    for (number, _), row in zip(rows, split, strict=True):
        for name, word in zip(names, row[1:], strict=True):
            if name == "validation":
                if word != "Pass":
                    raise OutputError(NAME, f"line {number}: the data did not validate: {word}")
            else:
                columns[name][int(row[0])] = positive(NAME, word, f"{name} at line {number}")
        _agree(columns, int(row[0]), dict(zip(names, row[1:], strict=True)), number)
    return columns


def _under(header: str, line: int, row: tuple[int, str]) -> None:
    """Assert that every column ends under its header: one that moved may be another column's."""
    heads = [word.end() for word in _headers(header)]
    ends = [match.end() for match in re.finditer(r"[^ ]+", row[1])][1:]
    if heads != ends:
        raise OutputError(NAME, f"the columns of line {row[0]} are not under the headers of line {line}")


def _agree(columns: dict[str, dict[int, float]], size: int, words: dict[str, str], line: int) -> None:
    value = {name: column[size] for name, column in columns.items()}
    if "messages" in value and size:
        rate, bandwidth = value["messages"] * size / 1e6, value["bandwidth"]
        slack = resolution(words["messages"]) / value["messages"], resolution(words["bandwidth"]) / bandwidth
        if not agree(rate, bandwidth, *slack):
            raise OutputError(NAME, f"line {line}: {words['messages']} messages/s are not {bandwidth} MB/s")
    if "least" in value and not value["least"] <= value["latency"] <= value["most"]:
        raise OutputError(NAME, f"line {line}: the average is not between least and most")
    tails = [value[name] for name in sorted((n for n in value if n[0] == "p"), key=lambda n: int(n[1:]))]
    if "latency" in value and tails != sorted(tails):
        raise OutputError(NAME, f"line {line}: percentiles do not rise")
