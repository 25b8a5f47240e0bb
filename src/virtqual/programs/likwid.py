"""likwid-bench 5.x: one kernel over vectors of a stated size."""

from __future__ import annotations

from dataclasses import dataclass

from virtqual.programs.text import OutputError, agree, every, positive, printable, single, whole_number

NAME = "likwid-bench"


@dataclass(frozen=True)
class LikwidRun:
    """One run of one kernel.

    Attributes
    ----------
    kernel
        E.g. ``copy_avx`` or ``stream_avx`` (STREAM's triad).
    threads
        How many ran.
    hwthreads
        Where they ran, hardware thread numbers.
    size
        All vectors together, in bytes.
    time
        Seconds.
    bandwidth
        MB/s, 1 MB = 10^6 bytes, counted as STREAM counts (no write-allocate).
    """

    kernel: str
    threads: int
    hwthreads: tuple[int, ...]
    size: int
    time: float
    bandwidth: float


def parse(text: str) -> LikwidRun:
    """Read the output of one run.

    Raises
    ------
    OutputError
        A line is missing or there more than once, a thread is missing, the data volume is not the size times
        the passes, or the bandwidth is not the data volume over the time.
    """
    printable(NAME, text)

    def value(label: str) -> str:
        return single(NAME, rf"^{label}:\t+(\S+)$", text, f"line {label!r}")[1]

    threads = int(single(NAME, r"^Using (\d+) threads$", text, "number of threads")[1])
    placed = every(
        r"^Group: 0 Thread (\d+) .*running on hwthread (\d+) - Vector length \d+ Offset \d+$", text
    )
    where = {int(match[1]): int(match[2]) for match in placed}
    if len(placed) != threads or where.keys() != set(range(threads)):
        raise OutputError(NAME, f"{threads} threads were used, {len(placed)} say where they ran")
    kernel = single(NAME, r"^Test: (\S+)$", text, "line 'Test'")[1]
    time = positive(NAME, single(NAME, r"^Time:\t+(\d\.\d{6}e[-+]\d\d) sec$", text, "line 'Time'")[1], "time")
    bandwidth = positive(NAME, value(r"MByte/s"), "bandwidth")
    volume = whole_number(NAME, value(r"Data volume \(Byte\)"), "data volume")
    size = whole_number(NAME, value(r"Size \(Byte\)"), "size")
    passes = whole_number(NAME, value("Iterations per thread"), "iterations per thread")
    if volume != size * passes:
        raise OutputError(NAME, f"{volume} bytes are not {passes} times {size} bytes")
    if not agree(volume / time / 1e6, bandwidth, 1e-6, 0.01 / bandwidth):
        raise OutputError(NAME, f"{bandwidth} MB/s is not {volume} bytes in {time} s")
    return LikwidRun(
        kernel=kernel,
        threads=threads,
        hwthreads=tuple(where[thread] for thread in range(threads)),
        size=size,
        time=time,
        bandwidth=bandwidth,
    )
