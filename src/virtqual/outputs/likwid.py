"""likwid-bench 5.x: one kernel over vectors of a stated size."""

from __future__ import annotations

from dataclasses import dataclass

from virtqual.outputs.text import OutputError, one, positive

NAME = "likwid-bench"


@dataclass(frozen=True)
class LikwidBench:
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


def parse(text: str) -> LikwidBench:
    """Read the output of one run.

    Raises
    ------
    OutputError
        A line is missing or there more than once, a thread is missing, or the bandwidth is not the
        data volume over the time.
    """

    def value(label: str) -> str:
        return one(NAME, rf"^{label}:\s+(\S+)", text, f"line {label!r}")[1]

    threads = int(one(NAME, r"^Using (\d+) threads$", text, "number of threads")[1])
    placed = [
        int(line.split("running on hwthread ")[1].split()[0])
        for line in text.splitlines()
        if line.startswith("Group: ") and "running on hwthread " in line
    ]
    if len(placed) != threads:
        raise OutputError(NAME, f"{threads} threads were used, {len(placed)} say where they ran")
    time = positive(NAME, value("Time"), "time")
    bandwidth = positive(NAME, value(r"MByte/s"), "bandwidth")
    volume = positive(NAME, value(r"Data volume \(Byte\)"), "data volume")
    if abs(volume / time / 1e6 - bandwidth) > 1e-3 * bandwidth:
        raise OutputError(NAME, f"{bandwidth} MB/s is not {volume} bytes in {time} s")
    return LikwidBench(
        kernel=value("Test"),
        threads=threads,
        hwthreads=tuple(placed),
        size=int(positive(NAME, value(r"Size \(Byte\)"), "size")),
        time=time,
        bandwidth=bandwidth,
    )
