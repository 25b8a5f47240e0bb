"""stress-ng 0.15 to 0.19: the operations of one stressor and their time, from its YAML file.

An operation is what this version of the stressor counts as one ("bogo operation"): do not compare versions.
"""

from __future__ import annotations

from dataclasses import dataclass

from virtqual.programs.text import positive, single

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
    time
        Seconds of wall-clock time, without the start of the program.
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
        A line is missing or doubled, the version is another one, or several stressors ran.
    """

    def value(key: str, pattern: str) -> str:
        return single(NAME, rf"^ {{6}}{key}: {pattern}$", text, f"line {key!r}")[1]

    stressor = single(NAME, r"^ {4}- stressor: (\S+)$", text, "one stressor")[1]
    single(NAME, r"^\.\.\.$", text, "end of the file")
    return StressNgRun(
        version=value("stress-ng-version", r"'?(0\.1[5-9]\.\d\d)'?"),
        page=int(value("pagesize", r"(\d+)")),
        stressor=stressor,
        operations=int(value("bogo-ops", r"(\d+)")),
        time=positive(NAME, value("wall-clock-time", r"(\d+\.\d{6})"), "time"),
        resident=int(value("max-rss", r"(\d+)")) * 1024,
    )
