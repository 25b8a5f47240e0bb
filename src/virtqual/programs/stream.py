"""STREAM 5.9 and 5.10 (C, with OpenMP): copy, scale, add and triad over arrays of a stated size."""

from __future__ import annotations

from dataclasses import dataclass

from virtqual.programs.text import OutputError, ProgramName, check_product, positive, refuse_lines, single

NAME = ProgramName("STREAM", "versions 5.9 and 5.10 in C")
# Arrays that each kernel reads and writes.  STREAM counts no write-allocate.
ARRAYS = {"copy": 2, "scale": 2, "add": 3, "triad": 3}
_WORD = r"^This system uses (\d+) bytes per (?:array element|DOUBLE PRECISION word)\.$"
_SIZE = r"^Array size = (\d+)(?: \(elements\))?, Offset = \d+(?: \(elements\))?$"
_HEAD = r"^Function +(?:Best )?Rate \(?MB/s\)? +Avg time +Min time +Max time$"


@dataclass(frozen=True)
class StreamRun:
    """One run: bytes of an array, OpenMP threads, and rates by kernel in MB/s (10^6 bytes).

    `best` is what STREAM prints.  `mean` is the rate over the average time.  Best rates of several runs at
    once may add up to more than any machine has, if the other runs paused at each best moment.
    """

    version: str
    bytes_each: int
    threads: int
    best: dict[str, float]
    mean: dict[str, float]

    def ticks(self, kernel: str) -> float:
        """Return the best time of a kernel in microseconds, which are the ticks of STREAM's clock."""
        return ARRAYS[kernel] * self.bytes_each / self.best[kernel]


def parse(text: str) -> StreamRun:
    """Read the output of one run with validated results, on as many threads as were asked for."""
    refuse_lines(NAME, r"Failed Validation|errors? in (?:a|b|c)\b", text)
    version = single(NAME, r"^STREAM version \$Revision: (5\.9|5\.10) \$$", text, "version 5.9 or 5.10")[1]
    word = single(NAME, _WORD, text, "word size")[1]
    elements = single(NAME, _SIZE, text, "array size")[1]
    threads = single(NAME, r"^Number of Threads requested = (\d+)$", text, "threads requested (OpenMP)")[1]
    single(NAME, _HEAD, text, "header")
    single(NAME, r"^Solution Validates(?:: .*)?$\n-{20,}\n", text, "validated solution")
    # 5.9 does not count the threads.
    if version != "5.9":
        counted = single(NAME, r"^Number of Threads counted = (\d+)$", text, "threads counted")[1]
        if counted != threads:
            raise OutputError(NAME, f"{counted} threads ran, {threads} were requested")
    bytes_each = int(elements) * int(word)
    best, mean = {}, {}
    for kernel, arrays in ARRAYS.items():
        row = single(NAME, rf"^{kernel.capitalize()}:(.*)$", text, f"row of {kernel}")[1].split()
        if len(row) != 4:
            raise OutputError(NAME, f"the row of {kernel} has {len(row)} columns, not 4")
        rate, average, shortest, longest = (positive(NAME, value, kernel) for value in row)
        check_product(NAME, f"{kernel}, rate x time", f"{arrays * bytes_each}e-6", row[0], row[2])
        if not shortest <= average <= longest:
            raise OutputError(NAME, f"{kernel}: the average time is not between the shortest and the longest")
        best[kernel] = rate
        mean[kernel] = arrays * bytes_each / average / 1e6
    return StreamRun(version, bytes_each, int(threads), best, mean)


def parse_rates(text: str) -> dict[str, float]:
    """Return the best rates by kernel in MB/s of a run of any version, in C or Fortran."""
    refuse_lines(NAME, r"Failed Validation|errors? in (?:a|b|c)\b", text)
    single(
        NAME, r"^Function +(?:Best )?Rate \(?MB/s\)? +(?:Avg|RMS) time +Min time +Max time$", text, "header"
    )
    single(NAME, r"^ ?Solution Validates.*$", text, "validated solution")
    rates = {}
    for kernel in ARRAYS:
        row = single(NAME, rf"^{kernel.capitalize()}: *(.*)$", text, f"row of {kernel}")[1].split()
        if len(row) != 4:
            raise OutputError(NAME, f"the row of {kernel} has {len(row)} columns, not 4")
        rates[kernel], _, shortest, longest = (positive(NAME, value, kernel) for value in row)
        if shortest > longest:
            raise OutputError(NAME, f"{kernel}: the shortest time {row[2]} s is above the longest {row[3]} s")
    return rates
