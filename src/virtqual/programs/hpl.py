"""HPL 2.0 to 2.3 (``xhpl``): the solved system of a run with its residual, and the input file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from virtqual.programs.text import OutputError, Program, positive, single

NAME = Program("HPL", "netlib, Intel or AMD builds of 2.0 to 2.3")
_HEAD = "T/V                N    NB     P     Q               Time                 Gflops"
# A result: variant, N, NB, P, Q, time in s, GFLOP/s.
_ROW = r"^W[RC]\S+ +(\d+) +(\d+) +(\d+) +(\d+) +\d+\.\d\d +(\d\.\d{3,4}e[-+]\d\d)$"
_RESIDUAL = r"^\|\|Ax-b\|\|_oo/\(eps.*\)= *\S+ \.+ (\w+)$"
_TALLY = r"^ +(\d+) tests completed and %s residual checks,$"


@dataclass(frozen=True)
class HplRun:
    """One solved system: order and block of its matrix, process grid, and GFLOP/s."""

    n: int
    block: int
    p: int
    q: int
    rate: float


def parse(text: str) -> HplRun:
    """Read the output of a run of ``xhpl`` that solved one system, whose residual passed."""
    single(NAME, rf"^{re.escape(_HEAD)}$", text, "header")
    row = single(NAME, _ROW, text, "result")
    residual = single(NAME, _RESIDUAL, text, "residual")[1]
    passed, failed = (
        single(NAME, _TALLY % word, text, f"number of tests that {word}")[1] for word in ("passed", "failed")
    )
    single(NAME, r"^End of Tests\.$", text, "closing line")
    if (residual, passed, failed) != ("PASSED", "1", "0"):
        raise OutputError(NAME, f"residual {residual}: {passed} tests passed, {failed} failed")
    n, block, p, q = (int(row[group]) for group in range(1, 5))
    return HplRun(n, block, p, q, positive(NAME, row[5], "rate"))


def configuration(order: int, block: int, p: int, q: int, *, to_file: bool = False) -> str:
    """Return ``HPL.dat`` for one system on a grid of p x q processes.

    Results go to the file ``HPL.out``, as HPC Challenge needs it, or to standard output.  The algorithm's
    parameters are those of HPL's own example.

    Examples
    --------
    >>> configuration(480, 80, 1, 2).splitlines()[5]
    '480          N'
    """
    values: list[tuple[int | str, str]] = [
        ("HPL.out", "output file"),
        (8 if to_file else 6, "device out (6: standard output, 8: file)"),
        (1, "# of problem sizes"),
        (order, "N"),
        (1, "# of block sizes"),
        (block, "NB"),
        (0, "row-major process mapping"),
        (1, "# of process grids"),
        (p, "P"),
        (q, "Q"),
        ("16.0", "threshold of the residual"),
        (1, "# of panel factorisations"),
        (2, "right-looking"),
        (1, "# of recursive stopping criteria"),
        (4, "NBMIN"),
        (1, "# of panels in recursion"),
        (2, "NDIV"),
        (1, "# of recursive panel factorisations"),
        (1, "Crout"),
        (1, "# of broadcasts"),
        (1, "modified ring"),
        (1, "# of lookahead depths"),
        (1, "depth"),
        (2, "mixed swapping"),
        (64, "swapping threshold"),
        (0, "L1 transposed"),
        (0, "U transposed"),
        (1, "equilibration"),
        (8, "alignment"),
    ]
    return "Linpack input\nwritten by the check\n" + input_lines(values)


def input_lines(values: list[tuple[int | str, str]]) -> str:
    """Return lines of HPL's input, each of a value and its meaning."""
    return "".join(f"{value:<12} {meaning}\n" for value, meaning in values)
