"""NetPIPE 3.x result files: one row a message size, the best of its trials."""

from __future__ import annotations

import re
from dataclasses import dataclass

from virtqual.programs.text import OutputError, positive, printable

NAME = "NetPIPE"
# NetPIPE counts in binary megabits (bits a second / 2^20).
_MBIT = 2.0**20
_ROW = re.compile(r" *(\d+) (\d+\.\d{6}) +(\d+\.\d{8})", re.ASCII)


@dataclass(frozen=True)
class NetpipeRow:
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


def sizes(smallest: int, largest: int) -> list[int]:
    """Return the sizes that NetPIPE takes without perturbations (``-p 0``), both included.

    Examples
    --------
    >>> sizes(1, 16), sizes(1024, 3072)
    ([1, 2, 3, 4, 6, 8, 12, 16], [1024, 1536, 2048, 3072])
    """
    powers = [1 << power for power in range(largest.bit_length())]
    return sorted(size for size in {*powers, *(3 * power for power in powers)} if smallest <= size <= largest)


def parse(text: str, smallest: int, largest: int) -> list[NetpipeRow]:
    """Read a result file of a run without perturbations.

    The time is taken from the bandwidth column: the time column has steps of 0.01 us, one percent of an
    in-node latency.

    Parameters
    ----------
    text
        The file that ``-o`` names.
    smallest, largest
        The sizes that were asked for (``-l``, ``-u``; powers of two), in bytes: a table that lacks one
        between is refused.

    Raises
    ------
    OutputError
        A row is split, missing, out of order or doubled, or its two columns disagree.
    """
    printable(NAME, text)
    rows: list[NetpipeRow] = []
    if not text.endswith("\n"):
        raise OutputError(NAME, "the last row is cut off")
    for number, line in enumerate(text.split("\n")[:-1], 1):
        match = _ROW.fullmatch(line)
        if not match:
            raise OutputError(NAME, f"line {number} is no result row: {line!r}")
        size = int(match[1])
        rate = positive(NAME, match[2], f"bandwidth at {size} B") * _MBIT / 8
        time = size / rate * 1e6
        if abs(time - float(match[3]) * 1e6) > 0.0051 + 1e-3 * time:
            raise OutputError(NAME, f"line {number}: bandwidth and time disagree: {line!r}")
        rows.append(NetpipeRow(size, time, rate / 1e6))
    if [row.size for row in rows] != (wanted := sizes(smallest, largest)):
        raise OutputError(NAME, f"rows for {[row.size for row in rows]} B, asked for {wanted}")
    return rows
