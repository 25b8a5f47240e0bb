"""HPC Challenge 1.4 and 1.5: the summary in ``hpccoutf.txt``, HPL's own verification, and the input file."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from virtqual.programs import hpl
from virtqual.programs.text import (
    OutputError,
    ProgramName,
    find_all,
    find_step,
    positive,
    refuse_not_finite,
    single,
    whole_number,
)

NAME = ProgramName("hpcc", "versions 1.4 and 1.5")
#: Order of HPL's matrix below which a transposition takes less than 10 ms, and how often PTRANS runs then.
#: A try reports the slowest of five transpositions, several tries the best of them: a busy machine disturbs
#: half of all single tries.
SHORT_ORDER, TRIES = 4000, 9
# Rates that are in the summary and in a section.  PTRANS has a row for each try, of which one counts.
_PRINTED_TWICE = (
    ("StarDGEMM_Gflops", "StarDGEMM", r"^Average Gflop/s (\S+)$"),
    ("MPIFFT_Gflops", "MPIFFT", r"^Gflop/s: +(\S+)$"),
    ("PTRANS_GBs", "PTRANS", r"^WALL .* PASSED +(\S+) +\S+$"),
)
# Two numbers of six digits, and what is calculated from both.
_ROUNDED = 2e-5


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
    summary = _read_summary(text)
    if summary.count("Success") != 1:
        raise OutputError(NAME, f"Success={summary['Success']}: hpcc itself failed")
    _check_printed_twice(text, summary)
    return HpccRun(
        version=version,
        processes=summary.count("CommWorldProcs"),
        n=summary.count("HPL_N"),
        hpl=summary.rate("HPL_Tflops") * 1e3,
        dgemm=summary.rate("StarDGEMM_Gflops"),
        fft=summary.rate("MPIFFT_Gflops"),
        random_access=summary.rate("MPIRandomAccess_GUPs"),
        ptrans=summary.rate("PTRANS_GBs"),
        fft_error=summary.rate("MPIFFT_maxErr"),
        random_access_errors=summary.count("MPIRandomAccess_Errors") / summary.rate("MPIRandomAccess_N"),
    )


class _Summary(dict[str, str]):
    """The summary's values by key, as they are printed."""

    def __missing__(self, key: str) -> str:
        raise OutputError(NAME, f"the summary has no {key}")

    def rate(self, key: str) -> float:
        return positive(NAME, self[key], key)

    def count(self, key: str) -> int:
        return whole_number(NAME, self[key], key)

    def check(self, key: str, expected: float, source: str, step: float = 0) -> None:
        """Raise OutputError unless a rate, of six digits, is the expected one within a step."""
        if not math.isclose(self.rate(key), expected, rel_tol=_ROUNDED, abs_tol=step):
            raise OutputError(NAME, f"{key}={self[key]} in the summary, {expected:.6g} by {source}")


def _read_summary(text: str) -> _Summary:
    begin = single(NAME, r"^Begin of Summary section\.$", text, "begin of the summary")
    end = single(NAME, r"^End of Summary section\.$", text, "end of the summary")
    summary = _Summary()
    for line in text[begin.end() : end.start()].strip().split("\n"):
        match = re.fullmatch(r"([A-Za-z]\w*)=(\S+)", line)
        if not match:
            raise OutputError(NAME, f"the summary has the unexpected line {line!r}")
        if match[1] in summary:
            raise OutputError(NAME, f"{match[1]} appears twice in the summary")
        summary[match[1]] = match[2]
    return summary


def _check_printed_twice(text: str, summary: _Summary) -> None:
    """Raise OutputError unless rates of the summary fit their times, and the rates in the sections above."""
    system = hpl.read_system(NAME, text)
    if summary.count("HPL_N") != system.n:
        raise OutputError(NAME, f"HPL_N={summary['HPL_N']} in the summary, {system.n} in the section of HPL")
    # The section of HPL has four digits, here and in 1e12 operations a second.
    summary.check("HPL_Tflops", system.rate / 1e3, "the section of HPL", step=1e-3 * system.rate / 1e3)
    operations = hpl.count_operations(system.n) / 1e12
    summary.check("HPL_Tflops", operations / summary.rate("HPL_time"), "HPL_N and HPL_time")
    updates = summary.count("MPIRandomAccess_ExeUpdates") / 1e9
    seconds = summary.rate("MPIRandomAccess_time")
    summary.check("MPIRandomAccess_GUPs", updates / seconds, "its updates and time")
    for key, section, pattern in _PRINTED_TWICE:
        begin, end = (
            single(NAME, rf"^{place} of {section} section\.$", text, f"section {section}")
            for place in ("Begin", "End")
        )
        # PTRANS divides by its CPU time, which may be 0 and is not read.
        part = re.sub("(?m)^CPU .*$", "", text[begin.end() : end.start()])
        refuse_not_finite(NAME, "\n" * text.count("\n", 0, begin.end()) + part)
        rows = find_all(pattern, part)
        if not rows:
            raise OutputError(NAME, f"the section {section} has no rate")
        rates = [positive(NAME, row[1], section) for row in rows]
        closest = min(rates, key=lambda rate: abs(rate - summary.rate(key)))
        summary.check(key, closest, f"the section {section}", step=find_step(rows[0][1]))


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
