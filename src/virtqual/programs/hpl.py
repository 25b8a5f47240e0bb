"""HPL 2.0 to 2.3 (``xhpl``): the solved systems of a run, each with its residual, and the input file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from virtqual.programs.text import (
    OutputError,
    agree,
    every,
    line_of,
    ordered,
    positive,
    printable,
    resolution,
    single,
)

NAME = "HPL"
_HEAD = "T/V                N    NB     P     Q               Time                 Gflops"
# A result: variant, N, NB, P, Q, time in s, GFLOP/s; right-aligned under the header.
_ROW = r"^(W[RC]\S+)( +\d+)( +\d+)( +\d+)( +\d+)( +\d+\.\d\d)( +\d\.\d{3,4}e[-+]\d\d)$"
_CHECK = r"^\|\|Ax-b\|\|_oo/\(eps\*\(\|\|A\|\|_oo\*\|\|x\|\|_oo\+\|\|b\|\|_oo\)\*N\)=( *\S+) \.{6} (\w+)$"


@dataclass(frozen=True)
class Solved:
    """One linear system.

    Attributes
    ----------
    variant
        HPL's encoded options, e.g. ``WR11C2R4``.
    n, block, p, q
        Order of the matrix, blocking factor, process grid.
    time
        Seconds.
    rate
        GFLOP/s.
    residual
        Scaled residual (without unit), below the run's threshold.
    """

    variant: str
    n: int
    block: int
    p: int
    q: int
    time: float
    rate: float
    residual: float


def parse(text: str) -> list[Solved]:
    """Read the output of one run of ``xhpl``, of as many systems as its input asked for.

    Raises
    ------
    OutputError
        A line is missing, split or doubled, a residual did not pass, or a rate is not HPL's operation count
        over the time.
    """
    printable(NAME, text)
    limit = single(
        NAME, r"^- Computational tests pass if scaled residuals are less than +(\d+\.\d)$", text, "threshold"
    )
    tally = single(
        NAME,
        r"^Finished +(\d+) tests with the following results:\n"
        r" +(\d+) tests completed and passed residual checks,\n"
        r" +(\d+) tests completed and failed residual checks,\n"
        r" +(\d+) tests skipped because of illegal input values\.$",
        text,
        "closing tally",
    )
    end = single(NAME, r"^End of Tests\.$", text, "closing line")
    ordered(NAME, (limit, tally, end), "report")
    if tally[3] != "0" or tally[4] != "0" or tally[1] != tally[2]:
        raise OutputError(NAME, f"{tally[1]} tests: {tally[2]} passed, {tally[3]} failed, {tally[4]} skipped")
    parts = every(rf"{re.escape(_HEAD)}$", text)
    if len(parts) != int(tally[1]) or len(every(_ROW, text)) != len(parts) or parts[-1].end() > tally.start():
        raise OutputError(NAME, f"{len(every(_ROW, text))} results, {len(parts)} headers, {tally[1]} tests")
    if len(every(r"\|\|Ax-b\|\|_oo/\(eps", text)) != len(parts):
        raise OutputError(NAME, f"{len(parts)} results, but not as many residuals")
    bounds = [part.start() for part in parts] + [tally.start()]
    return [
        _solved(text[first:last], line_of(text, first), positive(NAME, limit[1], "threshold"))
        for first, last in pairwise(bounds)
    ]


def _solved(part: str, line: int, threshold: float) -> Solved:
    where = f"result at line {line}"
    row = single(NAME, _ROW, part, where)
    check = single(NAME, _CHECK, part, f"residual of the {where}")
    if row.start() > check.start() or len(row[0]) != len(_HEAD) or len(check[1]) != 17:
        raise OutputError(NAME, f"{where} is not in its columns: {row[0]!r}, {check[0]!r}")
    if check[2] != "PASSED":
        raise OutputError(NAME, f"{where}: residual {check[1].strip()} {check[2]}")
    n, block, p, q = (int(row[i]) for i in (2, 3, 4, 5))
    time, rate = (positive(NAME, row[i].strip(), where) for i in (6, 7))
    # HPL counts 2/3 N^3 + 3/2 N^2 operations (HPL_pdtest.c of 2.x).
    expected = (2 / 3 * n + 3 / 2) * n * n / time / 1e9
    if not agree(expected, rate, resolution(row[6]) / time, resolution(row[7]) / rate):
        raise OutputError(NAME, f"{where}: {rate} GFLOP/s is not N = {n} in {time} s")
    residual = positive(NAME, check[1].strip(), f"residual of the {where}")
    if residual >= threshold:
        raise OutputError(NAME, f"{where}: residual {residual} is not below {threshold}")
    return Solved(row[1], n, block, p, q, time, rate, residual)


def configuration(order: int, block: int, p: int, q: int, *, to_file: bool = False) -> str:
    """Return ``HPL.dat`` for one system; the algorithm's parameters are those of HPL's own example.

    Parameters
    ----------
    order, block
        Order of the matrix, and of its blocks.
    p, q
        Rows and columns of the process grid.
    to_file
        Whether results go to the file ``HPL.out`` (as HPC Challenge wants it), or to standard output.

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
