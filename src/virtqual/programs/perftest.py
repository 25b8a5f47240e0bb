"""perftest 4.1 to 26.04 (``ib_read_lat``, ``ib_send_bw`` ...): the table over sizes (``-a``)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from virtqual.programs.text import (
    NUMBER,
    OutputError,
    ProgramName,
    check_product,
    check_sizes,
    find_all,
    number,
    positive,
    single,
    whole_number,
)

NAME = ProgramName("perftest", "versions 4.1 to 26.04")
# "MB/sec" of older versions is 2^20 bytes a second too; newer ones write MiB/sec.
MIB = 2.0**20
_HEADS = {
    "latency": r"^ #bytes +#iterations +t_min\[usec\] +t_max\[usec\] +t_typical\[usec\] +t_avg\[usec\] +"
    r"t_stdev\[usec\] +99% percentile\[usec\] +99\.9% percentile\[usec\] *$",
    "bandwidth": r"^ #bytes +#iterations +BW peak\[Mi?B/sec\] +BW average\[Mi?B/sec\] +MsgRate\[Mpps\] *$",
}
# Names of the columns.  Deviations are not read: they may be 0 or no number.
_COLUMNS = {
    "latency": ("size", "iterations", "min", "max", "typical", "average", "deviation", "99 %", "99.9 %"),
    "bandwidth": ("size", "iterations", "peak", "average", "messages"),
}
_READ = {"latency": ("typical", "average"), "bandwidth": ("average", "messages")}
# Columns of latency, none of which may be above the next one.
_RISING = (("min", "typical", "99 %", "99.9 %", "max"), ("min", "average", "max"))


@dataclass(frozen=True)
class PerftestRun:
    """One run of one program, as the client saw it.

    `columns` has values by message size in bytes: ``typical`` (the median) and ``average`` latency in us, or
    ``average`` bandwidth in MB/s (10^6 bytes) and ``messages`` in millions a second.
    """

    operation: str  # read, send or write
    kind: str  # latency or bandwidth
    connection: str  # such as RC
    link: str  # such as InfiniBand
    mtu: int
    queue_pairs: int
    iterations: int
    columns: dict[str, dict[int, float]]


def parse_each(text: str, sizes: Sequence[int]) -> PerftestRun:
    """Read the output of one run a size (``-s``): the client's outputs, each under its size (``pair.sh``)."""
    before, *parts = re.split(r"^size (\d+)\n", text, flags=re.MULTILINE | re.ASCII)
    if before:
        raise OutputError(NAME, "its first line is not 'size' and a number")
    check_sizes(NAME, parts[::2], sizes)
    runs = [parse(part, [size]) for part, size in zip(parts[1::2], sizes, strict=True)]
    for run, size in zip(runs, sizes, strict=True):
        if replace(run, columns=runs[0].columns) != runs[0]:
            raise OutputError(NAME, f"the output for {size} bytes is not like that for {sizes[0]} bytes")
    columns = {
        name: {size: value for run in runs for size, value in run.columns[name].items()}
        for name in runs[0].columns
    }
    return replace(runs[0], columns=columns)


def parse_any(text: str) -> PerftestRun:
    """Read the client's output of one run, over the sizes of its own table."""
    single(NAME, "|".join(f"(?:{head})" for head in _HEADS.values()), text, "column headers")
    return parse(text, [int(row[1]) for row in find_all(r"^ (\d{1,10}) +\d+ +\S.*$", text)])


def parse(text: str, sizes: Sequence[int]) -> PerftestRun:
    """Read the client's output of one run over these sizes."""
    title = single(NAME, r"^ +(?:RDMA_)?(Read|Send|Write) (Latency|BW) Test$", text, "title of the test")
    kind = "latency" if title[2] == "Latency" else "bandwidth"
    head = single(NAME, _HEADS[kind], text, f"column headers of {kind}")
    table = text[head.end() + 1 :]
    end = single(NAME, r"^-{20,}\n", table, "closing line of the table")
    rows = _read_rows(kind, table[: end.start()])
    check_sizes(NAME, [row["size"] for row in rows], sizes)
    if len({row["iterations"] for row in rows}) != 1:
        raise OutputError(NAME, "the number of iterations changes between rows")
    columns = {name: {int(row["size"]): float(row[name]) for row in rows} for name in _READ[kind]}
    if kind == "bandwidth":
        columns["average"] = {size: rate * MIB / 1e6 for size, rate in columns["average"].items()}
    return PerftestRun(
        operation=title[1].lower(),
        kind=kind,
        connection=single(NAME, r"^ Connection type : (\w+)\b", text, "connection type")[1],
        link=single(NAME, r"^ Link type +: (\w+)$", text, "link type")[1],
        mtu=int(single(NAME, r"^ Mtu +: (256|512|1024|2048|4096)\[B\]$", text, "MTU")[1]),
        queue_pairs=int(single(NAME, r"^ Number of qps +: (\d+)\b", text, "number of queue pairs")[1]),
        iterations=whole_number(NAME, rows[0]["iterations"], "number of iterations"),
        columns=columns,
    )


def _read_rows(kind: str, table: str) -> list[dict[str, str]]:
    """Return the values of each row by column; those that contradict each other are refused."""
    names = _COLUMNS[kind]
    rows = []
    for line in table.splitlines():
        words = line.split()
        if len(words) != len(names):
            raise OutputError(NAME, f"a row of {kind} has {len(words)} columns, not {len(names)}: {line!r}")
        row = dict(zip(names, words, strict=True))
        size = whole_number(NAME, row["size"], f"size in {line!r}")
        for name in _READ[kind]:
            positive(NAME, row[name], f"{name} at {size} bytes")
        if kind == "bandwidth":
            factor = f"{size * 1e6 / MIB:.17g}"
            check_product(NAME, f"MiB/s at {size} bytes", row["average"], row["messages"], factor)
            _check_peak(row["peak"], row["average"], size)
        for rising in _RISING if kind == "latency" else ():
            values = [number(NAME, row[name], f"{name} at {size} bytes") for name in rising]
            if values != sorted(values) or values[0] < 0:
                raise OutputError(NAME, f"latency at {size} bytes: {', '.join(rising)} do not rise: {values}")
        rows.append(row)
    return rows


def _check_peak(peak: str, average: str, size: int) -> None:
    """Raise OutputError if the best part of a run is slower than the whole; a run by time has a peak of 0.

    Of one message, it may be infinite or no number.
    """
    best = number(NAME, peak, "peak") if re.fullmatch(NUMBER, peak) else 0.0
    # The best part ends where perftest polls for completions, the whole with its last message.
    if best and best < 0.99 * float(average) - 0.01:
        raise OutputError(NAME, f"bandwidth at {size} bytes: its peak {peak} is below its average {average}")
