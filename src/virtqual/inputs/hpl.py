"""Input of High Performance Linpack, by itself or as a part of HPC Challenge."""

from __future__ import annotations


def hpl(order: int, block: int, p: int, q: int, *, to_file: bool = False) -> str:
    """Return ``HPL.dat`` for one system; the algorithm's parameters are those of HPL's own example.

    Parameters
    ----------
    order, block
        Of the matrix, and of its blocks.
    p, q
        Rows and columns of the process grid.
    to_file
        Whether results go to the file ``HPL.out`` (as HPC Challenge wants it), or to standard output.

    Examples
    --------
    >>> hpl(480, 80, 1, 2).splitlines()[5]
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
    return _lines(["Linpack input", "written by the check"], values)


def hpcc(order: int, block: int, p: int, q: int) -> str:
    """Return ``hpccinf.txt``: HPL's input, and no additional sizes of PTRANS (parameters as `hpl`)."""
    more: list[tuple[int | str, str]] = [
        ("", "separator"),
        (0, "# of additional PTRANS sizes"),
        ("", ""),
        (0, "# of additional PTRANS block sizes"),
        ("", ""),
    ]
    return hpl(order, block, p, q, to_file=True) + _lines([], more)


def _lines(head: list[str], values: list[tuple[int | str, str]]) -> str:
    return "".join(f"{line}\n" for line in head + [f"{value:<12} {what}" for value, what in values])
