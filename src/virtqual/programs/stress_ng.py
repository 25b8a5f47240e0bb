"""stress-ng 0.15 to 0.19: the operations of one stressor and their time, from its YAML file.

An operation is what this version of the stressor takes for one ("bogo operation"): do not compare versions.
"""

from __future__ import annotations

from dataclasses import dataclass

from virtqual.programs.text import (
    OutputError,
    agree,
    ordered,
    positive,
    printable,
    single,
)

NAME = "stress-ng"


@dataclass(frozen=True)
class StressNgRun:
    """One run of one stressor in one instance.

    Attributes
    ----------
    version
        E.g. ``0.15.06``.
    page
        Size of the kernel's pages in bytes.
    stressor
        E.g. ``vm``.
    operations
        How many were done.
    time
        Seconds by the clock on the wall, without the start of the program.
    resident
        Most memory in bytes that its processes had at a time.
    """

    version: str
    page: int
    stressor: str
    operations: int
    time: float
    resident: int


def parse(text: str) -> StressNgRun:
    """Read the YAML file of a run with ``--metrics``.

    Raises
    ------
    OutputError
        A line is missing, doubled or out of its order, the version is another one, no processor has pages of
        that size, several stressors ran, or the rate is not the operations over the time.
    """
    printable(NAME, text)
    version = single(
        NAME, r"^ {6}stress-ng-version: '?(0\.1[5-9]\.\d\d)'?$", text, "version between 0.15 and 0.19"
    )
    head = single(NAME, r"^metrics:$", text, "head of the metrics")
    stressor = single(NAME, r"^ {4}- stressor: (\S+)$", text, "one stressor")
    end = single(NAME, r"^\.\.\.$", text, "end of the file")
    page, counted, rate, wall, most = (
        single(NAME, rf"^ {{6}}{key}: ({value})$", text, f"line {key!r}")
        for key, value in (
            ("pagesize", r"\d+"),
            ("bogo-ops", r"\d+"),
            ("bogo-ops-per-second-real-time", r"\d+\.\d{6}"),
            ("wall-clock-time", r"\d+\.\d{6}"),
            ("max-rss", r"\d+"),
        )
    )
    ordered(NAME, (version, page, head, stressor, counted, rate, wall, most, end), "report")
    size, operations = int(page[1]), int(counted[1])
    if size < 4096 or size & (size - 1):
        raise OutputError(NAME, f"no processor has pages of {size} bytes")
    time, speed = positive(NAME, wall[1], "time"), positive(NAME, rate[1], "rate")
    if not agree(operations / time, speed, 1e-6 / time, 1e-6 / speed):
        raise OutputError(NAME, f"{speed} operations a second are not {operations} in {time} s")
    return StressNgRun(
        version=version[1],
        page=size,
        stressor=stressor[1],
        operations=operations,
        time=time,
        resident=int(most[1]) * 1024,
    )
