"""likwid-bench 5.x: one kernel over vectors of a stated size."""

from __future__ import annotations

from dataclasses import dataclass

from virtqual.programs.text import OutputError, find_all, positive, single, whole_number

NAME = "likwid-bench"
_PLACE = r"^Group: 0 Thread (\d+) .*running on hwthread (\d+) - Vector length \d+ Offset \d+$"


@dataclass(frozen=True)
class LikwidRun:
    """One run of one kernel.

    Attributes
    ----------
    kernel
        E.g. ``copy_avx`` or ``stream_avx`` (STREAM's triad).
    hwthreads
        Numbers of the hardware threads that its threads ran on.
    size
        All vectors together, in bytes.
    bandwidth
        MB/s, 1 MB = 10^6 bytes, counted as STREAM counts (no write-allocate).
    """

    kernel: str
    threads: int
    hwthreads: tuple[int, ...]
    size: int
    bandwidth: float


def parse(text: str) -> LikwidRun:
    """Read the output of one run; raise OutputError if a line or a thread is missing or there twice."""
    threads = int(single(NAME, r"^Using (\d+) threads$", text, "number of threads")[1])
    places = {int(match[1]): int(match[2]) for match in find_all(_PLACE, text)}
    if len(find_all(_PLACE, text)) != threads or places.keys() != set(range(threads)):
        raise OutputError(NAME, f"{threads} threads were used, {len(places)} say where they ran")
    bandwidth = single(NAME, r"^MByte/s:\t+(\S+)\n", text, "line 'MByte/s'")[1]
    return LikwidRun(
        kernel=single(NAME, r"^Test: (\S+)\n", text, "line 'Test'")[1],
        threads=threads,
        hwthreads=tuple(places[thread] for thread in range(threads)),
        size=whole_number(NAME, single(NAME, r"^Size \(Byte\):\t+(\S+)\n", text, "line 'Size'")[1], "size"),
        bandwidth=positive(NAME, bandwidth, "bandwidth"),
    )
