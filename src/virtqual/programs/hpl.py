"""HPL 2.0 to 2.3 (``xhpl``): the solved system of a run with its residual, and the input file."""

from __future__ import annotations

from dataclasses import dataclass

from virtqual.programs.text import (
    OutputError,
    ProgramName,
    find_all,
    find_step,
    number,
    positive,
    single,
    whole_number,
)

NAME = ProgramName("HPL", "netlib, Intel or AMD builds of 2.0 to 2.3")
# Builds for GPUs add a column: the rate a GPU.
_HEAD = r"^T/V +N +NB +P +Q +Time +Gflops *$"
# A result: variant, N, NB, P, Q, time in s, GFLOP/s.  Builds differ in the number of decimals.
_ROW = r"^W[RC]\w+ +(\d+) +(\d+) +(\d+) +(\d+) +(\d+\.\d+) +(\d\.\d+e[-+]\d\d) *$"
_RESIDUAL = r"^\|\|Ax-b\|\|_oo/\(eps.*\)= *(\S+) \.+ (\w+)$"
_THRESHOLD = 16.0
"""The scaled residual that `configuration` allows."""
_TALLY = {
    "were run": r"^Finished +(\d+) tests with the following results:$",
    "passed": r"^ +(\d+) tests completed and passed residual checks,$",
    "failed": r"^ +(\d+) tests completed and failed residual checks,$",
    "were skipped": r"^ +(\d+) tests skipped because of illegal input values\.$",
}


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
    run = read_system(NAME, text)
    total, passed, failed, skipped = (
        single(NAME, pattern, text, f"number of tests that {word}")[1] for word, pattern in _TALLY.items()
    )
    single(NAME, r"^End of Tests\.$", text, "closing line")
    if (total, passed, failed, skipped) != ("1", "1", "0", "0"):
        tally = f"{passed} tests passed, {failed} failed, {skipped} were skipped, of {total}"
        raise OutputError(NAME, tally)
    return run


def read_system(program: ProgramName, text: str) -> HplRun:
    """Return the only solved system of an output, whose rate is that of its order and time.

    Its residual must have passed, and be a number below the threshold.
    """
    single(program, _HEAD, text, "header of the result")
    row = single(program, _ROW, text, "result line")
    residual, word = single(program, _RESIDUAL, text, "residual").groups()
    if word != "PASSED" or not 0 <= number(program, residual, "residual") < _THRESHOLD:
        raise OutputError(program, f"residual {residual} {word}")
    n, block, p, q = (whole_number(program, row[group], "result line") for group in range(1, 5))
    _check_rate(program, n, row[5], row[6])
    return HplRun(n, block, p, q, positive(program, row[6], "rate"))


def parse_all(text: str) -> dict[str, list[HplRun]]:
    """Return the solved systems of an output by variant (such as ``WR11C2R4``); the residual of each passed.

    Builds that print no residuals are refused.
    """
    rows = find_all(_ROW.replace(r"W[RC]\w+", r"(W[RC]\w+)"), text)
    residuals = [match.groups() for match in find_all(_RESIDUAL, text)]
    if not rows:
        single(NAME, _ROW, text, "result line")
    if len(residuals) < len(rows):
        raise OutputError(NAME, f"{len(rows)} results, but {len(residuals)} residuals: was it cut off?")
    for residual, word in residuals:
        if word != "PASSED" or not 0 <= number(NAME, residual, "residual") < _THRESHOLD:
            raise OutputError(NAME, f"residual {residual} {word}")
    runs: dict[str, list[HplRun]] = {}
    for variant, *cells in (row.groups() for row in rows):
        n, block, p, q = (whole_number(NAME, cell, "result line") for cell in cells[:4])
        _check_rate(NAME, n, cells[4], cells[5])
        runs.setdefault(variant, []).append(HplRun(n, block, p, q, positive(NAME, cells[5], "rate")))
    return runs


def count_operations(n: int) -> float:
    """Return the operations that HPL counts for a system of order n: 2/3 n^3 + 3/2 n^2 (HPL_pdtest.c)."""
    return (2 / 3 * n + 3 / 2) * n**2


def _check_rate(program: ProgramName, n: int, time: str, rate: str) -> None:
    """Raise OutputError unless GFLOP/s are the operations over seconds, within the last digit of both."""
    operations = count_operations(n) / 1e9
    seconds, printed = number(program, time, "time"), positive(program, rate, "rate")
    # The last digit may be rounded or cut off.
    step, rate_step = find_step(time), find_step(rate)
    slowest = operations / (seconds + step)
    fastest = operations / (seconds - step) if seconds > step else float("inf")
    if not slowest - rate_step <= printed <= fastest + rate_step:
        raise OutputError(program, f"{rate} GFLOP/s are not {operations:.6g} Gflop (N = {n}) in {time} s")


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
