"""NetPIPE 3.x result files: one row a message size, the best of its trials."""

from __future__ import annotations

import re
from dataclasses import dataclass

from virtqual.outputs.text import OutputError, positive

NAME = "NetPIPE"
# NetPIPE counts in binary megabits (bits a second / 2^20).
_MBIT = 2.0**20
_ROW = re.compile(r" *(\d+) (\d+\.\d{6}) +(\d+\.\d{8})")


@dataclass(frozen=True)
class Row:
    """One message size.

    Attributes
    ----------
    size
        Bytes.
    time
        Microseconds for one message, one way (half of the round trip of a ping-pong).
    bandwidth
        MB/s, 1 MB = 10^6 bytes.
    """

    size: int
    time: float
    bandwidth: float


def parse(text: str, largest: int) -> list[Row]:
    """Read a result file.

    The time is taken from the bandwidth column: the time column has steps of 0.01 us, one percent of an
    in-node latency.

    Parameters
    ----------
    text
        The file that ``-o`` names.
    largest
        The last size that was asked for (``-u``), in bytes: a table that stops before it is refused.

    Raises
    ------
    OutputError
        A row is split, out of order, doubled, its two columns disagree, or the table ends early.
    """
    rows: list[Row] = []
    if not text.endswith("\n"):
        raise OutputError(NAME, "the last row is cut off")
    for number, line in enumerate(text.splitlines(), 1):
        match = _ROW.fullmatch(line)
        if not match:
            raise OutputError(NAME, f"line {number} is no result row: {line!r}")
        size = int(match[1])
        rate = positive(NAME, match[2], f"bandwidth at {size} B") * _MBIT / 8
        time = size / rate * 1e6
        if abs(time - float(match[3]) * 1e6) > 0.0051 + 1e-3 * time:
            raise OutputError(NAME, f"line {number}: bandwidth and time disagree: {line!r}")
        if rows and size <= rows[-1].size:
            raise OutputError(NAME, f"line {number}: size {size} B after {rows[-1].size} B")
        rows.append(Row(size, time, rate / 1e6))
    if not rows or rows[-1].size != largest:
        raise OutputError(NAME, f"the table ends at {rows[-1].size if rows else 0} B, not at {largest} B")
    return rows
