"""HPC Challenge 1.5: the results in ``hpccoutf.txt`` with HPL's own verification, and the input file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from virtqual.programs import hpl
from virtqual.programs.text import (
    OutputError,
    agree,
    every,
    number,
    positive,
    printable,
    resolution,
    single,
    whole_number,
)

NAME = "hpcc"
# The summary repeats, rounded, what the section of a test says: (section, line with the value).
_TWICE = {
    "StarDGEMM_Gflops": ("StarDGEMM", r"^Average Gflop/s (\S+)$"),
    "MPIFFT_Gflops": ("MPIFFT", r"^Gflop/s: +(\S+)$"),
    "MPIFFT_maxErr": ("MPIFFT", r"^max\(\|x-x0\|\): (\S+)$"),
    "MPIRandomAccess_GUPs": ("MPIRandomAccess", r"^(\S+) Billion\(10\^9\) Updates    per second \[GUP/s\]$"),
    "MPIRandomAccess_N": ("MPIRandomAccess", r"^Total Main table size = \S+ = (\d+) words$"),
    "MPIRandomAccess_Errors": ("MPIRandomAccess", r"^Found (\d+) errors in \d+ locations \(passed\)\.$"),
    "PTRANS_GBs": ("PTRANS", r"^WALL +(?:\d+ +){6}\S+ PASSED +(\S+) +\S+$"),
    "HPL_N": ("HPL", r"^W\S+ +(\d+) +\d+ +\d+ +\d+ +\S+ +\S+$"),
}


@dataclass(frozen=True)
class HpccRun:
    """One run of HPC Challenge.

    Attributes
    ----------
    version
        E.g. ``1.5.0``.
    processes
        MPI processes that took part.
    n
        Order of HPL's matrix.
    residual
        HPL's scaled residual (without unit); it must be below ``threshold``.
    threshold
        From the input.
    hpl, dgemm, fft
        GFLOP/s: whole system, one process while all run, whole system.
    random_access
        Billions of updates a second, whole system.
    ptrans
        GB/s, whole system.
    fft_error
        Largest error of the FFT (without unit).
    random_access_errors
        Share of wrong table entries (at most 1 % is allowed by the benchmark).
    """

    version: str
    processes: int
    n: int
    residual: float
    threshold: float
    hpl: float
    dgemm: float
    fft: float
    random_access: float
    ptrans: float
    fft_error: float
    random_access_errors: float


def parse(text: str) -> HpccRun:
    """Read the output file of exactly one run (hpcc appends: an old file would hold two).

    Raises
    ------
    OutputError
        The file holds no run or several, the summary is not whole, or hpcc itself did not succeed.
    """
    printable(NAME, text)
    version = single(
        NAME, r"^This is the DARPA/DOE HPC Challenge Benchmark version (\S+) ", text, "version line"
    )[1]
    single(NAME, r"^End of HPC Challenge tests\.$", text, "closing line")
    summary = _summary(text)

    def value(key: str) -> float:
        if key not in summary:
            raise OutputError(NAME, f"summary does not say {key}")
        return positive(NAME, summary[key], key)

    if summary.get("Success") != "1":
        raise OutputError(NAME, f"Success={summary.get('Success', 'missing')}: hpcc itself failed")
    residual, threshold = _residual(text)
    for key, (section, pattern) in _TWICE.items():
        _assert_same(text, section, pattern, key, summary.get(key, ""))
    order, count = value("HPL_N"), value("CommWorldProcs")
    # MPIFFT runs on a power of two, unless it was built otherwise.
    powers = {str(int(count)), str(1 << int(count).bit_length() - 1)}
    if order != int(order) or count != int(count) or summary.get("MPIFFT_Procs") not in powers:
        raise OutputError(NAME, "N or the number of processes is broken")
    spent, rate = value("HPL_time"), value("HPL_Tflops") * 1e12
    if not agree((2 / 3 * order + 3 / 2) * order**2 / spent, rate, 1.1e-5):
        raise OutputError(NAME, f"{rate / 1e12:g} TFLOP/s is not HPL of N = {order:g} in {spent} s")
    wrong = whole_number(NAME, summary.get("MPIRandomAccess_Errors", ""), "MPIRandomAccess_Errors")
    return HpccRun(
        version=version,
        processes=int(count),
        n=int(order),
        residual=residual,
        threshold=threshold,
        hpl=value("HPL_Tflops") * 1e3,
        dgemm=value("StarDGEMM_Gflops"),
        fft=value("MPIFFT_Gflops"),
        random_access=value("MPIRandomAccess_GUPs"),
        ptrans=value("PTRANS_GBs"),
        fft_error=value("MPIFFT_maxErr"),
        random_access_errors=wrong / value("MPIRandomAccess_N"),
    )


def _summary(text: str) -> dict[str, str]:
    """Return the summary's values by key, as they are printed."""
    begin = single(NAME, r"^Begin of Summary section\.$", text, "begin of the summary")
    end = single(NAME, r"^End of Summary section\.$", text, "end of the summary")
    summary: dict[str, str] = {}
    for line in text[begin.end() + 1 : end.start()].split("\n")[:-1]:
        match = re.fullmatch(r"([A-Za-z]\w*)=(\S+)", line)
        if not match:
            raise OutputError(NAME, f"summary is broken at {line!r}")
        if match[1] in summary:
            raise OutputError(NAME, f"summary says {match[1]} twice")
        summary[match[1]] = match[2]
    return summary


def _residual(text: str) -> tuple[float, float]:
    """Return HPL's residual, which passed, and its threshold."""
    residual = single(NAME, r"^\|\|Ax-b\|\|_oo/\(eps.*\)=( *\S+) \.+ PASSED$", text, "HPL's passed residual")
    # Said at the top of the file, and again by HPL.
    limits = {match[1] for match in every(r"scaled residuals are less than( +\d+\.\d)$", text)}
    limit = limits.pop() if len(limits) == 1 else ""
    if (len(residual[1]), len(limit)) != (17, 20):
        raise OutputError(NAME, "HPL's residual or its threshold is missing, doubled or not in its column")
    return positive(NAME, residual[1].strip(), "residual"), positive(NAME, limit.strip(), "threshold")


def _assert_same(text: str, section: str, pattern: str, key: str, said: str) -> None:
    """Assert that the summary says what the section says, to the last digit of the coarser of both."""
    begin = single(NAME, rf"^Begin of {section} section\.$", text, f"begin of {section}")
    end = single(NAME, rf"^End of {section} section\.$", text, f"end of {section}")
    found = {match[1] for match in every(pattern, text[begin.end() : end.start()])}
    # PTRANS repeats its test; all others say it once.
    if not found or (len(found) > 1 and section != "PTRANS"):
        raise OutputError(NAME, f"section {section} gives {len(found)} different values for {key}")
    summary = number(NAME, said, key)
    for value in found:
        detail = number(NAME, value, f"{key} in section {section}")
        if abs(summary - detail) <= 0.51 * max(resolution(said), resolution(value)):
            return
    raise OutputError(NAME, f"{key}={said}, the section {section} says {', '.join(sorted(found))}")


def configuration(order: int, block: int, p: int, q: int) -> str:
    """Return ``hpccinf.txt``: HPL's input without additional sizes of PTRANS (see `hpl.configuration`)."""
    more: list[tuple[int | str, str]] = [
        ("", "separator"),
        (0, "# of additional PTRANS sizes"),
        ("", ""),
        (0, "# of additional PTRANS block sizes"),
        ("", ""),
    ]
    return hpl.configuration(order, block, p, q, to_file=True) + hpl.input_lines(more)
