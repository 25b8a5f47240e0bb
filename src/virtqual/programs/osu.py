"""OSU micro-benchmarks 5.x to 7.x: point to point and collectives, one row a message size.

Versions and options differ in their columns: the headers decide what a number is, not its place.  They also
differ in their notes, and in where these are: 7.1 to 7.3 print the data type below the column headers,
7.4 and 7.5 above.  osu_mbw_mr of 7.1 prints its title twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from virtqual.programs.text import (
    OutputError,
    ProgramName,
    check_product,
    check_sizes,
    line_of,
    positive,
    single,
)

NAME = ProgramName("OSU", "versions 5 to 7 with buffers of the host")
# Column by header; the header has the unit (us, MB/s with 1 MB = 10^6 bytes, messages/s).
_COLUMNS = {
    "Latency (us)": "latency",
    "Avg Latency(us)": "latency",
    "Bandwidth (MB/s)": "bandwidth",
    "MB/s": "bandwidth",
    "Messages/s": "messages",
}
_PERCENTILE = r"P[0-9]{1,2} Tail (?:Lat\(us\)|BW\(MB/s\))"
# Columns of options that the checks do not use (-f, -c, -D).
_UNUSED = r"(?:Min|Max) Latency\(us\)|Transmit Size"
# Neighbouring headers may have a single blank between them.
_HEADERS = "|".join([_PERCENTILE, *map(re.escape, sorted(_COLUMNS, key=len, reverse=True)), _UNUSED, r"\S+"])
_TITLE = r"^# OSU MPI (.+) v([5-7]\.\d+(?:\.\d+)?)(?:\n# OSU MPI \1 v\2)? *$"
# Lines that may be anywhere below the title: the type of the data (MPI_INT of reductions), the pairs of
# osu_mbw_mr, and where a build that allocates buffers in another way has them.
_NOTE = re.compile(
    r"# Datatype: MPI_\w+\.|# \[ pairs: [0-9]+ \] \[ window size: [0-9]+ \]"
    r"|# \w+/\w+: allocated [0-9]+ bytes at 0x[0-9a-f]+"
)
#: The title of any version, which some print twice.
TITLE = r"^# OSU (?!.*: )(\S+) (.+?) v(\d+\.\d\S*) *$(?:\n# OSU \1 \2 v\3 *$)?"
#: Units of the first column after the size, by its header in versions 3 to 7.
_FIRST_COLUMNS = {
    **dict.fromkeys(("Latency (us)", "Avg Latency(us)", "Avg Lat(us)", "Overall(us)", "Latency(us)"), "us"),
    **dict.fromkeys(("Bandwidth (MB/s)", "MB/s"), "MB/s"),
}


@dataclass(frozen=True)
class OsuTable:
    """The first column of a table of any benchmark and version, in `unit` by message size in bytes.

    A benchmark without sizes, such as a barrier, has one value of the size None.
    """

    benchmark: str
    unit: str
    values: dict[int | None, float]
    pairs: int = 0


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


def parse(text: str, first: int, last: int) -> OsuRun:
    """Read the output of one run over sizes that double from the first to the last (``-m FIRST:LAST``).

    A table does not say where it ends: the sizes tell if it stops early.
    """
    sizes = [first << power for power in range((last // first).bit_length())]
    title = single(NAME, _TITLE, text, "title")
    head = single(NAME, r"^# Size +\S.*$", text, "column headers")
    lines = text.split("\n")
    if lines.pop():
        raise OutputError(NAME, f"line {len(lines) + 1} is cut off")
    begin, header = (text.count("\n", 0, match.start()) for match in (title, head))
    rows = []
    for number, line in enumerate(map(str.rstrip, lines[begin:]), begin + 1):
        in_table = number > header + 1
        if in_table and re.match(r"[0-9]+ ", line):
            rows.append((number, line.split()))
        elif line and not _NOTE.fullmatch(line) and (in_table or not line.startswith("# ")):
            raise OutputError(NAME, f"line {number} is not a row of the table: {line!r}")
    columns = _columns(_column_names(head[0], header + 1), rows, sizes)
    pairs = 0
    if "messages" in columns:
        pairs = int(single(NAME, r"^# \[ pairs: (\d+) \] \[ window size: \d+ \]$", text, "pairs")[1])
    return OsuRun(title[1], title[2], columns, pairs)


def parse_table(text: str) -> OsuTable:
    """Read the table of one benchmark of any version, with any sizes, among lines of other programs."""
    title = single(NAME, TITLE, text, "title")
    below = text[title.end() :]
    heads = "|".join(map(re.escape, sorted(_FIRST_COLUMNS, key=len, reverse=True)))
    head = single(NAME, rf"^# (Size +)?({heads})(?: .*)?$", below, "header of a table of host buffers")
    first_line = line_of(text, title.end() + head.end()) + 1
    rows = _find_rows(below[head.end() + 1 :].split("\n"), first_line, has_size=bool(head[1]))
    values: dict[int | None, float] = {}
    for line, words in rows:
        size = int(words[0]) if head[1] else None
        if values and (size is None or size <= max(known for known in values if known is not None)):
            raise OutputError(NAME, f"line {line}: the sizes do not rise")
        values[size] = positive(NAME, words[1 if head[1] else 0], f"value in line {line}")
    if not values:
        raise OutputError(NAME, f"the table has no rows (line {first_line})")
    pairs = re.search(r"^# \[ pairs: (\d+) \]", below, re.MULTILINE)
    return OsuTable(title[2], _FIRST_COLUMNS[head[2]], values, int(pairs[1]) if pairs else 0)


def _find_rows(lines: list[str], first_line: int, *, has_size: bool) -> list[tuple[int, list[str]]]:
    """Return number and words of the rows of a table; other lines may follow it, but not interrupt it."""
    row = re.compile(r"\d+( +-?\d+(\.\d+)?)+" if has_size else r" *-?\d+\.\d+( +-?\d+(\.\d+)?)*", re.ASCII)
    rows: list[tuple[int, list[str]]] = []
    other = 0
    for number, line in enumerate(map(str.rstrip, lines), first_line):
        if row.fullmatch(line):
            if other:
                raise OutputError(NAME, f"line {other} interrupts the table")
            rows.append((number, line.split()))
        elif line and not line.startswith("#") and not other:
            other = number
    # All values of a column have the same decimals; one with fewer was cut off.
    decimals = [[len(word.partition(".")[2]) for word in words] for _, words in rows]
    for (number, _), own in zip(rows, decimals, strict=True):
        if own != decimals[0]:
            raise OutputError(NAME, f"line {number} is cut off, or has other columns than the rows above")
    return rows


def _column_names(header: str, line: int) -> list[str]:
    """Return the names of the columns after the message size."""
    names: list[str] = []
    for word in re.findall(_HEADERS, header)[2:]:
        percentile = re.fullmatch(_PERCENTILE, word)
        name = word.split()[0].lower() if percentile else _COLUMNS.get(word)
        if name is None or name in names:
            problem = "appears twice" if name else "is not one that the check asked for"
            raise OutputError(NAME, f"line {line}: the column {word!r} {problem}")
        names.append(name)
    return names


def _columns(
    names: list[str], rows: list[tuple[int, list[str]]], asked_sizes: list[int]
) -> dict[str, dict[int, float]]:
    check_sizes(NAME, [row[0] for _, row in rows], asked_sizes)
    columns: dict[str, dict[int, float]] = {name: {} for name in names}
    for line, (size, *values) in rows:
        if len(values) != len(names):
            raise OutputError(NAME, f"line {line} has {len(values)} columns, the header {len(names)}")
        words = dict(zip(names, values, strict=True))
        for name, word in words.items():
            columns[name][int(size)] = positive(NAME, word, f"{name} at line {line}")
        tails = sorted((int(name[1:]), float(word)) for name, word in words.items() if name[1:].isdigit())
        if "latency" in words and [value for _, value in tails] != sorted(value for _, value in tails):
            raise OutputError(NAME, f"line {line}: the percentiles do not rise: {tails}")
        if "messages" in words:
            check_product(NAME, f"MB/s at line {line}", words["bandwidth"], words["messages"], f"{size}e-6")
    return columns
