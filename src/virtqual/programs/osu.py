"""OSU micro-benchmarks 5.x to 7.x: point to point and collectives, one row a message size.

Versions and options differ in their columns: the headers decide what a number is, not its place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from virtqual.programs.text import OutputError, check_product, positive, single

NAME = "OSU"
# Column by header; the header has the unit (us, MB/s with 1 MB = 10^6 bytes, messages/s).
_COLUMNS = {
    "Latency (us)": "latency",
    "Avg Latency(us)": "latency",
    "Bandwidth (MB/s)": "bandwidth",
    "MB/s": "bandwidth",
    "Messages/s": "messages",
}
_PERCENTILE = r"P[0-9]{1,2} Tail (?:Lat\(us\)|BW\(MB/s\))"
# Neighbouring headers may have a single blank between them.
_HEADERS = "|".join([_PERCENTILE, *map(re.escape, sorted(_COLUMNS, key=len, reverse=True)), r"\S+"])
# A line that 7.x may write between rows: where its buffers lie.
_NOTE = re.compile(r"# \w+/\w+: allocated [0-9]+ bytes at 0x[0-9a-f]+")


@dataclass(frozen=True)
class OsuRun:
    """One run of a benchmark, by its title, such as ``Allreduce Latency Test``.

    `columns` has values by message size in bytes for ``latency``, ``bandwidth``, ``messages``, ``p50`` ...;
    latencies are in us, bandwidths in MB/s (10^6 bytes).  `pairs` are pairs of processes of osu_mbw_mr, which
    alone prints them.
    """

    benchmark: str
    version: str
    columns: dict[str, dict[int, float]]
    pairs: int = 0


def sizes(first: int, last: int) -> list[int]:
    """Return the message sizes that ``-m FIRST:LAST`` asks for: doubled each time, 1 after 0."""
    result = []
    size = first
    while size <= last:
        result.append(size)
        size = 2 * size or 1
    return result


def parse(text: str, first: int, last: int) -> OsuRun:
    """Read the output of one run over sizes that were asked for (``-m FIRST:LAST``), in bytes.

    A table does not say where it ends: the sizes tell if it stops early.
    """
    title = single(NAME, r"^# OSU MPI (.+) v([5-7]\.\d+(?:\.\d+)?)$", text, "title of a version 5 to 7")
    head = single(NAME, r"^# Size +\S.*$", text, "column headers")
    lines = text.split("\n")
    if lines.pop():
        raise OutputError(NAME, f"line {len(lines) + 1} is cut off")
    begin, header = (text.count("\n", 0, match.start()) for match in (title, head))
    rows = []
    for number, line in enumerate(lines[begin:], begin + 1):
        if number > header + 1 and re.match(r"[0-9]+ ", line):
            rows.append((number, line.split()))
        elif line and not _NOTE.fullmatch(line) and not (number <= header + 1 and line.startswith("# ")):
            raise OutputError(NAME, f"line {number} is not a row of the table: {line!r}")
    columns = _columns(_column_names(head[0], header + 1), rows, sizes(first, last))
    pairs = 0
    if "messages" in columns:
        pairs = int(single(NAME, r"^# \[ pairs: (\d+) \] \[ window size: \d+ \]$", text, "pairs")[1])
    return OsuRun(title[1], title[2], columns, pairs)


def _column_names(header: str, line: int) -> list[str]:
    """Return the names of the columns after the message size."""
    names: list[str] = []
    for word in re.findall(_HEADERS, header)[2:]:
        percentile = re.fullmatch(_PERCENTILE, word)
        name = word.split()[0].lower() if percentile else _COLUMNS.get(word)
        if name is None or name in names:
            raise OutputError(NAME, f"line {line}: the column {word!r} is unknown or there twice")
        names.append(name)
    return names


def _columns(
    names: list[str], rows: list[tuple[int, list[str]]], asked_sizes: list[int]
) -> dict[str, dict[int, float]]:
    sizes_read = [int(row[0]) for _, row in rows]
    if sizes_read != asked_sizes:
        raise OutputError(NAME, f"rows for {sizes_read} bytes, asked for {asked_sizes}")
    columns: dict[str, dict[int, float]] = {name: {} for name in names}
    for line, row in rows:
        if len(row) != len(names) + 1:
            raise OutputError(NAME, f"line {line} has {len(row) - 1} columns, the header {len(names)}")
        for name, word in zip(names, row[1:], strict=True):
            columns[name][int(row[0])] = positive(NAME, word, f"{name} at line {line}")
        size, words = int(row[0]), dict(zip(names, row[1:], strict=True))
        if "messages" in words and size:
            check_product(NAME, f"MB/s at line {line}", words["bandwidth"], words["messages"], f"{size}e-6")
    return columns
