"""perftest 4.x to 6.x (``ib_read_lat``, ``ib_send_bw`` ...): the table over sizes (``-a``)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from virtqual.programs.text import OutputError, agree, every, number, positive, printable, resolution, single

NAME = "perftest"
# "MB/sec" of older versions is 2^20 bytes a second too; newer ones write MiB/sec.
MIB = 2.0**20
_LATENCY = ("least", "most", "typical", "average", "deviation", "p99", "p99_9")
_BANDWIDTH = ("peak", "average", "messages")
_HEADS = {
    "latency": r"^ #bytes +#iterations +t_min\[usec\] +t_max\[usec\] +t_typical\[usec\] +t_avg\[usec\] +"
    r"t_stdev\[usec\] +99% percentile\[usec\] +99\.9% percentile\[usec\] *$",
    "bandwidth": r"^ #bytes +#iterations +BW peak\[Mi?B/sec\] +BW average\[Mi?B/sec\] +MsgRate\[Mpps\] *$",
}
# Every number is padded to this width, left-aligned.
_WIDTH = 7


@dataclass(frozen=True)
class PerftestRun:
    """One run of one program, as the client saw it.

    Attributes
    ----------
    operation
        ``read``, ``send`` or ``write``.
    kind
        ``latency`` or ``bandwidth``.
    connection, transport, link
        E.g. ``RC``, ``IB``, and ``InfiniBand`` or ``Ethernet``.
    mtu
        Bytes.
    queue_pairs
        Queue pairs that the messages went through in turn.
    iterations
        Messages of a size, over all queue pairs.
    columns
        Values by message size in bytes.  Latency: ``least``, ``most``, ``typical`` (the median), ``average``,
        ``deviation``, ``p99``, ``p99_9`` in us.  Bandwidth: ``peak`` and ``average`` in MB/s (10^6 bytes),
        ``messages`` in millions a second.
    """

    operation: str
    kind: str
    connection: str
    transport: str
    link: str
    mtu: int
    queue_pairs: int
    iterations: int
    columns: dict[str, dict[int, float]]


def parse(text: str, first: int, last: int) -> PerftestRun:
    """Read the client's output of one run over sizes that double from the first to the last.

    Raises
    ------
    OutputError
        A line is missing or doubled, a row is split, missing, out of order or not in its columns, or two
        columns that say the same disagree.
    """
    return _parse(text, [first << power for power in range((last // first).bit_length())])[0]


def parse_each(text: str, sizes: Sequence[int]) -> PerftestRun:
    """Read what ``pair.sh`` kept of one run a size (``-s``): the client's outputs, each under its size.

    Raises
    ------
    OutputError
        An output is not whole (see `parse`), one is missing or there twice, or they differ in what is not the
        size, down to the blanks of their tables: a single row by itself would not show a lost digit.
    """
    before, *parts = re.split(r"^size (\d+)\n", text, flags=re.MULTILINE | re.ASCII)
    if before or [int(size) for size in parts[::2]] != list(sizes):
        raise OutputError(NAME, f"outputs for {parts[::2]} bytes, asked for {list(sizes)}")
    found = [_parse(part, [size]) for part, size in zip(parts[1::2], sizes, strict=True)]
    whole, blanks = found[0]
    columns = {name: dict(values) for name, values in whole.columns.items()}
    for (run, own), size in zip(found[1:], sizes[1:], strict=True):
        if replace(run, columns=whole.columns) != whole or own != blanks:
            raise OutputError(NAME, f"the output for {size} bytes is not like that for {sizes[0]} bytes")
        for name, values in run.columns.items():
            columns[name] |= values
    return replace(whole, columns=columns)


def _parse(text: str, wanted: list[int]) -> tuple[PerftestRun, list[int]]:
    """Read one output with rows for these sizes; return it with the blanks between its columns."""
    printable(NAME, text)
    title = single(NAME, r"^ +(?:RDMA_)?(Read|Send|Write) (Latency|BW) Test$", text, "title of the test")
    kind = "latency" if title[2] == "Latency" else "bandwidth"
    head = single(NAME, _HEADS[kind], text, f"column headers of {kind}")
    names = _LATENCY if kind == "latency" else _BANDWIDTH
    begin = text.count("\n", 0, head.end()) + 2
    rows, blanks = _rows(_table(text[head.end() + 1 :], kind), begin, len(names))
    if [int(row[0]) for row in rows] != wanted:
        raise OutputError(NAME, f"rows for {[row[0] for row in rows]} bytes, asked for {wanted}")
    if len({row[1] for row in rows}) != 1:
        raise OutputError(NAME, "the number of iterations changes between rows")
    values = {int(row[0]): _values(row, line, kind) for line, row in enumerate(rows, begin)}
    run = PerftestRun(
        operation=title[1].lower(),
        kind=kind,
        connection=single(NAME, r"^ Connection type : (\w+)\b", text, "connection type")[1],
        transport=single(NAME, r"Transport type : (\w+)$", text, "transport type")[1],
        link=single(NAME, r"^ Link type +: (\w+)$", text, "link type")[1],
        mtu=int(single(NAME, r"^ Mtu +: (256|512|1024|2048|4096)\[B\]$", text, "MTU")[1]),
        queue_pairs=int(single(NAME, r"^ Number of qps +: (\d+)\b", text, "number of queue pairs")[1]),
        iterations=int(rows[0][1]),
        columns={name: {size: value[name] for size, value in values.items()} for name in names},
    )
    return run, blanks


def _table(text: str, kind: str) -> list[str]:
    """Return the lines of the table whose header stands before a text."""
    ends = every(r"^-{20,}$", text)
    if len(ends) != 1:
        raise OutputError(NAME, "the table has no closing line, or several")
    table = text[: ends[0].start()].rstrip("\n")
    # Version 4.5 prints this deviation after stalls of a tenth of a second.  Elsewhere 0 is refused.
    return (table.replace("-nan", "0.00") if kind == "latency" else table).split("\n")


def _values(row: list[str], line: int, kind: str) -> dict[str, float]:
    """Return the values of a row by name, in the units of `PerftestRun`."""
    names = _LATENCY if kind == "latency" else _BANDWIDTH
    value = {
        name: positive(NAME, word, f"{name} at line {line}")
        for name, word in zip(names, row[2:], strict=True)
        # A steady link has no deviation; a run that lasts too long for a peak prints 0.
        if name not in ("deviation", "peak") or number(NAME, word, name)
    }
    if kind == "bandwidth":
        _assert_same_rate(value, row, line)
        value |= {name: value[name] * MIB / 1e6 for name in ("peak", "average") if name in value}
    elif not value["least"] <= value["typical"] <= value["p99"] <= value["p99_9"] <= value["most"]:
        raise OutputError(NAME, f"line {line}: least, typical, percentiles and most do not rise")
    return {name: value.get(name, 0.0) for name in names}


def _rows(lines: list[str], begin: int, count: int) -> tuple[list[list[str]], list[int]]:
    """Split the rows; return them with the blanks between their columns.

    Every number is padded to a width and followed by the same blanks in all rows, so that a lost digit shows.
    """
    rows: list[list[str]] = []
    first: list[int] = []
    for line, text in enumerate(lines, begin):
        words = text.split()
        gaps = re.split(r"[0-9.]+", text)
        if (
            not re.fullmatch(r" \d+ +\d+(?:\s+\d+\.\d\d(?:\d{4})?)+\s*", text, re.ASCII)
            or len(words) != count + 2
        ):
            raise OutputError(NAME, f"line {line} is no row of {count + 2} columns: {text!r}")
        blanks = [len(gap) - max(0, _WIDTH - len(word)) for word, gap in zip(words, gaps[1:], strict=True)]
        first = first or blanks
        if blanks != first:
            raise OutputError(NAME, f"line {line} is not in columns with the others: {text!r}")
        rows.append(words)
    return rows, first


def _assert_same_rate(value: dict[str, float], row: list[str], line: int) -> None:
    rate = value["average"] * MIB / int(row[0]) / 1e6
    slack = resolution(row[3]) / value["average"], resolution(row[4]) / value["messages"]
    if not agree(rate, value["messages"], *slack):
        raise OutputError(NAME, f"line {line}: {row[3]} MiB/s are not {row[4]} million messages/s")
    if "peak" in value and value["peak"] < value["average"] * 0.99:
        raise OutputError(NAME, f"line {line}: the peak is below the average")
