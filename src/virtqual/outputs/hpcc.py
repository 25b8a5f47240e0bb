"""HPC Challenge 1.5: the summary section of ``hpccoutf.txt``, and HPL's own verification."""

from __future__ import annotations

import re
from dataclasses import dataclass

from virtqual.outputs.text import OutputError, one, positive

NAME = "hpcc"


@dataclass(frozen=True)
class Hpcc:
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


def parse(text: str) -> Hpcc:
    """Read the output file of exactly one run (hpcc appends: an old file would hold two).

    Raises
    ------
    OutputError
        The file holds no run or several, the summary is not whole, or hpcc itself did not succeed.
    """
    version = one(
        NAME, r"^This is the DARPA/DOE HPC Challenge Benchmark version (\S+) ", text, "version line"
    )[1]
    one(NAME, r"^End of HPC Challenge tests\.$", text, "closing line")
    begin = one(NAME, r"^Begin of Summary section\.$", text, "begin of the summary")
    end = one(NAME, r"^End of Summary section\.$", text, "end of the summary")
    summary: dict[str, str] = {}
    for line in text[begin.end() + 1 : end.start()].splitlines():
        match = re.fullmatch(r"([A-Za-z]\w*)=(\S+)", line)
        if not match:
            raise OutputError(NAME, f"summary is broken at {line!r}")
        if match[1] in summary:
            raise OutputError(NAME, f"summary says {match[1]} twice")
        summary[match[1]] = match[2]

    def number(key: str) -> float:
        if key not in summary:
            raise OutputError(NAME, f"summary does not say {key}")
        return positive(NAME, summary[key], key)

    def share(key: str) -> float:
        if key not in summary:
            raise OutputError(NAME, f"summary does not say {key}")
        return float(summary[key])

    if summary.get("Success") != "1":
        raise OutputError(NAME, f"Success={summary.get('Success', 'missing')}: hpcc itself failed")
    residual = one(NAME, r"^\|\|Ax-b\|\|_oo/\(eps.*\)= +(\S+) \.+ PASSED$", text, "HPL's passed residual")
    threshold = re.search(r"scaled residuals are less than +(\S+)$", text, re.MULTILINE)
    if not threshold:
        raise OutputError(NAME, "HPL does not say its residual's threshold")
    return Hpcc(
        version=version,
        processes=int(number("CommWorldProcs")),
        n=int(number("HPL_N")),
        residual=positive(NAME, residual[1], "residual"),
        threshold=positive(NAME, threshold[1], "threshold"),
        hpl=number("HPL_Tflops") * 1e3,
        dgemm=number("StarDGEMM_Gflops"),
        fft=number("MPIFFT_Gflops"),
        random_access=number("MPIRandomAccess_GUPs"),
        ptrans=number("PTRANS_GBs"),
        fft_error=number("MPIFFT_maxErr"),
        random_access_errors=share("MPIRandomAccess_ErrorsFraction"),
    )
