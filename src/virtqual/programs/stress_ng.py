"""stress-ng 0.15 to 0.22: the operations of one stressor and their time, from its YAML file.

An operation is what this version of the stressor counts as one ("bogo operation"): do not compare versions.
"""

from __future__ import annotations

from dataclasses import dataclass

from virtqual.programs.text import OutputError, ProgramName, check_product, positive, single

_OLDEST, _NEWEST = 15, 22
NAME = ProgramName("stress-ng", "versions 0.15 to 0.22")


@dataclass(frozen=True)
class StressNgRun:
    """One run of one stressor in one instance.

    `page` is the size of the kernel's pages in bytes, `time` wall-clock seconds without the program's start,
    `resident` the most memory in bytes that its processes had at a time.
    """

    version: str
    page: int
    stressor: str
    operations: int
    time: float
    resident: int


def parse(text: str) -> StressNgRun:
    """Read the YAML file of a run of one stressor with ``--metrics``."""

    def value(key: str, pattern: str) -> str:
        return single(NAME, rf"^ {{6}}{key}: {pattern}$", text, f"line {key!r}")[1]

    version = value("stress-ng-version", r"'?(\d+\.\d\d\.\d\d)'?")
    if not _OLDEST <= int(version.split(".")[1]) <= _NEWEST:
        raise OutputError(NAME, f"version {version} may count other operations: use {NAME.versions}")
    stressor = single(NAME, r"^ {4}- stressor: (\S+)$", text, "one stressor")[1]
    single(NAME, r"^\.\.\.$", text, "end of the file")
    operations, time = value("bogo-ops", r"(\d+)"), value("wall-clock-time", r"(\d+\.\d{6})")
    rate = value("bogo-ops-per-second-real-time", r"(\d+\.\d{6})")
    check_product(NAME, "rate x time", operations, rate, time)
    return StressNgRun(
        version=version,
        page=int(value("pagesize", r"(\d+)")),
        stressor=stressor,
        operations=int(operations),
        time=positive(NAME, time, "time"),
        resident=int(value("max-rss", r"(\d+)")) * 1024,
    )
