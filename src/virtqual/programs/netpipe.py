"""NetPIPE 3.x result files: one row a message size, the best of its trials."""

from __future__ import annotations

import re
from dataclasses import dataclass

from virtqual.programs.text import OutputError, ProgramName, check_sizes, positive

NAME = ProgramName("NetPIPE", "versions 3.x")
# NetPIPE counts in binary megabits (bits a second / 2^20).
_BITS_PER_MBIT = 2.0**20
_BANDWIDTH_STEP, _TIME_STEP_US = 1e-6, 0.01
_ROW = re.compile(r" *(\d{1,18}) (\d+\.\d{6}) +(\d+\.\d{8})", re.ASCII)


@dataclass(frozen=True)
class NetpipeRow:
    """A message size in bytes, microseconds for one message one way, and MB/s (10^6 bytes)."""

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
    """Read a result file (``-o``) of a run without perturbations over these sizes (``-l``, ``-u``).

    The time of a row is that of the column with more digits.  The time has steps of 0.01 us, 1 % of a
    latency inside a node.  The bandwidth has steps of 1e-6 Mbit/s, 0.5 % if a byte takes 36 ms.
    """
    rows: list[NetpipeRow] = []
    if not text.endswith("\n"):
        raise OutputError(NAME, "the last row is cut off")
    for line, row in enumerate(text.splitlines(), 1):
        match = _ROW.fullmatch(row)
        if not match:
            raise OutputError(NAME, f"line {line} is not a row as {NAME.versions} print it: {row!r}")
        size = int(match[1])
        bandwidth = positive(NAME, match[2], f"bandwidth at {size} B")
        rounding = _BANDWIDTH_STEP / 2 / bandwidth
        time = size / (bandwidth * _BITS_PER_MBIT / 8) * 1e6
        printed_time = float(match[3]) * 1e6
        # The file has no header: this tells which column is which.
        if abs(time - printed_time) > 0.0051 + (1e-3 + rounding) * time:
            raise OutputError(NAME, f"line {line}: bandwidth and time disagree: {row!r}")
        if rounding * time > _TIME_STEP_US / 2:
            time = printed_time
        rows.append(NetpipeRow(size, time, size / time))
    check_sizes(NAME, [row.size for row in rows], sizes(smallest, largest))
    return rows
