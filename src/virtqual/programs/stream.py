"""STREAM 5.9 and 5.10 (C, with OpenMP): copy, scale, add and triad over arrays of a stated size."""

from __future__ import annotations

import re
from dataclasses import dataclass

from virtqual.programs.text import (
    OutputError,
    agree,
    aligned,
    line_of,
    ordered,
    positive,
    printable,
    resolution,
    single,
)

NAME = "STREAM"
# Arrays that each kernel reads and writes.  STREAM counts no write-allocate.
ARRAYS = {"copy": 2, "scale": 2, "add": 3, "triad": 3}


@dataclass(frozen=True)
class StreamRun:
    """One run of STREAM.

    Attributes
    ----------
    version
        ``5.9`` or ``5.10``.
    elements, element_bytes
        Elements of one array, and bytes of an element.
    threads
        OpenMP threads, as counted by the run itself.
    copy, scale, add, triad
        Best rate in MB/s, 1 MB = 10^6 bytes.
    mean
        Rate over the average time in MB/s by kernel.  Of several runs at once, the best rates may be those of
        moments in which the others paused: their sum is what no machine has.
    """

    version: str
    elements: int
    element_bytes: int
    threads: int
    copy: float
    scale: float
    add: float
    triad: float
    mean: dict[str, float]

    @property
    def bytes_each(self) -> int:
        """Size of one array in bytes."""
        return self.elements * self.element_bytes

    def ticks(self, kernel: str) -> float:
        """Return the best time of a kernel in microseconds, which are the ticks of STREAM's clock."""
        rate: float = getattr(self, kernel)
        return ARRAYS[kernel] * self.bytes_each / rate


def parse(text: str) -> StreamRun:
    """Read the output of one run.

    Raises
    ------
    OutputError
        A line is missing or there more than once, the results did not validate, fewer threads ran than were
        asked for, the program was built without OpenMP, or a rate is not the bytes over the time.
    """
    printable(NAME, text)
    version = single(NAME, r"^STREAM version \$Revision: (5\.9|5\.10) \$$", text, "version 5.9 or 5.10")
    width = single(
        NAME,
        r"^This system uses (\d+) bytes per (?:array element|DOUBLE PRECISION word)\.$",
        text,
        "word size",
    )
    size = single(
        NAME, r"^Array size = (\d+)(?: \(elements\))?, Offset = \d+(?: \(elements\))?$", text, "array size"
    )
    asked = single(NAME, r"^Number of Threads requested = (\d+)$", text, "threads requested (OpenMP)")
    head = single(
        NAME, r"^Function +(?:Best )?Rate \(?MB/s\)? +Avg time +Min time +Max time$", text, "header"
    )
    valid = single(NAME, r"^Solution Validates(?:: .*)?$\n-{20,}\n", text, "validated solution")
    if failed := re.search(r"^.*(?:Failed Validation|errors? in (?:a|b|c)\b).*$", text, re.MULTILINE):
        raise OutputError(NAME, f"line {line_of(text, failed.start())}: {failed[0].strip()}")
    ordered(NAME, (version, width, size, asked, head, valid), "report")
    threads = int(asked[1])
    # 5.9 does not count; 5.10 does.
    if version[1] != "5.9":
        counted = single(NAME, r"^Number of Threads counted = (\d+)$", text, "threads counted")
        if counted[1] != asked[1]:
            raise OutputError(NAME, f"{counted[1]} threads ran, {asked[1]} were requested")
    elements, element_bytes = int(size[1]), int(width[1])
    rates = _rates(text, head, elements * element_bytes)
    return StreamRun(
        version=version[1],
        elements=elements,
        element_bytes=element_bytes,
        threads=threads,
        **{kernel: best for kernel, (best, _) in rates.items()},
        mean={kernel: mean for kernel, (_, mean) in rates.items()},
    )


def _rates(text: str, head: re.Match[str], each: int) -> dict[str, tuple[float, float]]:
    first = line_of(text, head.start()) + 1
    lines = text[head.end() + 1 :].split("\n")[: len(ARRAYS) + 1]
    if len(lines) <= len(ARRAYS) or not re.fullmatch(r"-{20,}", lines.pop()):
        raise OutputError(NAME, f"the table at line {first} is not four rows and a closing line")
    rates = {}
    rows = aligned(NAME, list(enumerate(lines, first)), "table")
    for line, (kernel, row) in enumerate(zip(ARRAYS, rows, strict=True), first):
        if len(row) != 5 or row[0] != f"{kernel.capitalize()}:":
            raise OutputError(NAME, f"line {line} is no row of {kernel}: {lines[line - first]!r}")
        single(NAME, rf"^{row[0]}", text, f"row of {kernel}")
        rate, average, least, most = (positive(NAME, word, f"{kernel} at line {line}") for word in row[1:])
        moved = ARRAYS[kernel] * each / least / 1e6
        if not agree(moved, rate, resolution(row[3]) / least, resolution(row[1]) / rate):
            raise OutputError(
                NAME, f"line {line}: {rate} MB/s is not {ARRAYS[kernel] * each} bytes in {least} s"
            )
        if not least <= average <= most:
            raise OutputError(NAME, f"line {line}: the average time is not between least and most")
        rates[kernel] = (rate, moved * least / average)
    return rates
