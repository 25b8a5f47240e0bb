"""likwid-bench 5.x: one kernel over vectors of a stated size."""

from __future__ import annotations

import re
from dataclasses import dataclass

from virtqual.programs.text import (
    OutputError,
    ProgramName,
    check_product,
    find_all,
    refuse_not_finite,
    single,
    whole_number,
)

NAME = ProgramName("likwid-bench", "versions 5.x")
_PLACE = r"^Group: 0 Thread (\d+) .*running on hwthread (\d+) - Vector length \d+ Offset \d+$"


@dataclass(frozen=True)
class LikwidRun:
    """One run of a kernel, such as ``copy_avx``, or ``stream_avx`` for STREAM's triad.

    `size` is that of all vectors in bytes; `bandwidth` is in MB/s (10^6 bytes), as STREAM counts.
    """

    kernel: str
    threads: int
    hwthreads: tuple[int, ...]
    size: int
    bandwidth: float


def parse(text: str) -> LikwidRun:
    """Read the output of one run; each thread says on which hardware thread it ran."""

    def value(label: str, pattern: str = r"(\S+)") -> str:
        return single(NAME, rf"^{re.escape(label)}:\s+{pattern}\n", text, f"line {label!r}")[1]

    refuse_not_finite(NAME, text)
    threads = int(single(NAME, r"^Using (\d+) threads$", text, "number of threads")[1])
    if not find_all(_PLACE, text):
        single(NAME, _PLACE, text, "place of a thread")
    places = {int(match[1]): int(match[2]) for match in find_all(_PLACE, text)}
    if len(find_all(_PLACE, text)) != threads or places.keys() != set(range(threads)):
        raise OutputError(NAME, f"{threads} threads were used, {len(places)} say where they ran")
    size = whole_number(NAME, value("Size (Byte)"), "size")
    passes = whole_number(NAME, value("Iterations per thread"), "iterations")
    bandwidth, time = value("MByte/s"), value("Time", r"(\S+) sec")
    check_product(NAME, "bandwidth x time", f"{size * passes}e-6", bandwidth, time)
    return LikwidRun(
        kernel=value("Test"),
        threads=threads,
        hwthreads=tuple(places[thread] for thread in range(threads)),
        size=size,
        bandwidth=float(bandwidth),
    )
