"""hyperfine's ``--export-json``: the time of each run by command (versions 1.0 to 2.0)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from virtqual.errors import UsageError
from virtqual.formats.found import Found, FoundRun

KIND = "hyperfine's JSON"
CSV_HEADER = "command,mean,stddev,median,user,system,min,max"
_WALL_TIME = "time_wall_clock"
_SECONDS = {"second": 1.0, "millisecond": 1e-3, "microsecond": 1e-6, "nanosecond": 1e-9}


def is_hyperfine(document: Any) -> bool:
    """Return whether a JSON document is hyperfine's, or of a program that writes the same."""
    results = document.get("results") if isinstance(document, dict) else None
    first = results[0] if isinstance(results, list) and results else None
    keys = {"mean", "times", "measurements"}
    return isinstance(first, dict) and "command" in first and not keys.isdisjoint(first)


def read(file: str, document: Any) -> Found:
    """Return the runs of all commands; a run that failed is a lost one."""
    runs: list[FoundRun] = []
    for number, result in enumerate(document["results"], start=1):
        name = str(result.get("name") or result["command"])
        times = list(_list_times(file, name, result))
        if not times:
            raise UsageError(
                f"{file}: is {KIND} without the time of each run (`times` of {name!r}): a mean cannot be "
                "judged; measure again with hyperfine --export-json FILE"
            )
        for time in times:
            runs.append(FoundRun(number, "wall_time", "s", {None: time}, {"command": name}, "lower"))
    why = "hyperfine runs all of one command, then all of the next"
    return Found(KIND, runs, ("command",), why, are_blocks=True)


def _list_times(file: str, name: str, result: dict[str, Any]) -> Iterator[float]:
    """Yield the seconds of each run, NaN for one that failed."""
    if "measurements" in result:
        # From version 2.0 on.
        for run in result["measurements"]:
            time = run[_WALL_TIME]
            failed = run.get("exit_code", 0) not in (0, None)
            yield math.nan if failed else float(time["value"]) * _SECONDS[time.get("unit", "second")]
        return
    times = result.get("times") or []
    # Versions before 1.12 have no exit codes.
    codes = result.get("exit_codes") or [0] * len(times)
    if len(codes) != len(times):
        raise UsageError(f"{file}: is {KIND}: {name!r} has {len(times)} times and {len(codes)} exit codes")
    for time, code in zip(times, codes, strict=True):
        yield math.nan if code not in (0, None) else float(time)
