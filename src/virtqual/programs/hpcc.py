"""HPC Challenge 1.5: the summary in ``hpccoutf.txt`` with HPL's own verification, and the input file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from virtqual.programs import hpl
from virtqual.programs.text import OutputError, Program, positive, single, whole_number

NAME = Program("hpcc", "builds of version 1.5")
#: Order of HPL's matrix below which a transposition takes less than 10 ms, and how often PTRANS runs then.
#: A try reports the slowest of five transpositions, several tries the best of them: a busy machine disturbs
#: half of all single tries.
SHORT_ORDER, TRIES = 4000, 9


@dataclass(frozen=True)
class HpccRun:
    """One run of HPC Challenge, with the order `n` of HPL's matrix.

    Rates are those of all processes together, and `dgemm` that of one process while all run.  `hpl`, `dgemm`
    and `fft` are in GFLOP/s, `random_access` in 10^9 updates a second, `ptrans` in GB/s.  `fft_error` is the
    largest error without unit, `random_access_errors` the share of wrong table entries.
    """

    version: str
    processes: int
    n: int
    hpl: float
    dgemm: float
    fft: float
    random_access: float
    ptrans: float
    fft_error: float
    random_access_errors: float


def parse(text: str) -> HpccRun:
    """Read the output file of exactly one run that succeeded (hpcc appends to a file of an earlier run)."""
    version = single(
        NAME, r"^This is the DARPA/DOE HPC Challenge Benchmark version (\S+) ", text, "version line"
    )[1]
    single(NAME, r"^End of HPC Challenge tests\.$", text, "closing line")
    single(NAME, r"^\|\|Ax-b\|\|_oo/\(eps.*\)= *\S+ \.+ PASSED$", text, "HPL's passed residual")
    summary = _summary(text)

    def find(key: str) -> str:
        if key not in summary:
            raise OutputError(NAME, f"the summary has no {key}")
        return summary[key]

    def rate(key: str) -> float:
        return positive(NAME, find(key), key)

    def count(key: str) -> int:
        return whole_number(NAME, find(key), key)

    if count("Success") != 1:
        raise OutputError(NAME, f"Success={summary['Success']}: hpcc itself failed")
    return HpccRun(
        version=version,
        processes=count("CommWorldProcs"),
        n=count("HPL_N"),
        hpl=rate("HPL_Tflops") * 1e3,
        dgemm=rate("StarDGEMM_Gflops"),
        fft=rate("MPIFFT_Gflops"),
        random_access=rate("MPIRandomAccess_GUPs"),
        ptrans=rate("PTRANS_GBs"),
        fft_error=rate("MPIFFT_maxErr"),
        random_access_errors=count("MPIRandomAccess_Errors") / rate("MPIRandomAccess_N"),
    )


def _summary(text: str) -> dict[str, str]:
    """Return the summary's values by key, as they are printed."""
    begin = single(NAME, r"^Begin of Summary section\.$", text, "begin of the summary")
    end = single(NAME, r"^End of Summary section\.$", text, "end of the summary")
    summary: dict[str, str] = {}
    for line in text[begin.end() : end.start()].strip().split("\n"):
        match = re.fullmatch(r"([A-Za-z]\w*)=(\S+)", line)
        if not match or match[1] in summary:
            raise OutputError(NAME, f"the summary has a broken or a second line {line!r}")
        summary[match[1]] = match[2]
    return summary


def count_tries(order: int) -> int:
    """Return how often PTRANS is tried beside HPL's matrix of this order."""
    return TRIES if order < SHORT_ORDER else 1


def configuration(order: int, block: int, p: int, q: int) -> str:
    """Return ``hpccinf.txt``: HPL's input, and the further tries of PTRANS (see `hpl.configuration`)."""
    more = count_tries(order) - 1
    return hpl.configuration(order, block, p, q, to_file=True) + hpl.input_lines(
        [
            ("", "separator"),
            (more, "# of additional PTRANS sizes"),
            # PTRANS transposes a matrix of half of HPL's order anyway.
            (" ".join([str(order // 2)] * more), ""),
            (0, "# of additional PTRANS block sizes"),
            ("", ""),
        ]
    )
