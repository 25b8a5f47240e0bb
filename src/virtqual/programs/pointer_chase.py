"""pointer_chase: the time of a dependent load over working sets of rising size (source: config/repo)."""

from __future__ import annotations

from dataclasses import dataclass

from virtqual.programs.text import ProgramName, check_lines, find_all, positive, single

NAME = ProgramName("pointer_chase", "builds of version 1.0")
_ROW = r"^(\d+) (\d+) (\d+\.\d{3}) (\d+) (\d+)$"


@dataclass(frozen=True)
class WorkingSet:
    """One working set: its bytes, the loads that were timed, and ns a load.

    `page` is the size of the kernel's pages in bytes, `huge` how many bytes of the set's mapping are in huge
    pages, transparent or reserved.
    """

    size: int
    loads: int
    time: float
    page: int
    huge: int


@dataclass(frozen=True)
class PointerChaseRun:
    """One run with the pages that were asked for (``4K``, ``THP``, ``2M`` or ``1G``), by rising size."""

    pages: str
    sets: tuple[WorkingSet, ...]


def parse(text: str) -> PointerChaseRun:
    """Read the output of one run."""
    pages = single(NAME, r"\A^pointer_chase \S+ pages (4K|THP|2M|1G)$", text, "first line")[1]
    check_lines(NAME, text)
    sets = tuple(
        WorkingSet(
            size=int(size),
            loads=int(loads),
            time=positive(NAME, time, "time"),
            page=1024 * int(page),
            huge=1024 * int(huge),
        )
        for size, loads, time, page, huge in (row.groups() for row in find_all(_ROW, text))
    )
    return PointerChaseRun(pages, sets)
