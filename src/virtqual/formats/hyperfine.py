"""hyperfine's ``--export-json``: the time of each run by command (versions 1.0 to 1.20)."""

from __future__ import annotations

import math
from typing import Any

from virtqual.errors import UsageError
from virtqual.formats.found import Found, FoundRun

KIND = "hyperfine's JSON"
CSV_HEADER = "command,mean,stddev,median,user,system,min,max"


def is_hyperfine(document: Any) -> bool:
    """Return whether a JSON document is hyperfine's."""
    results = document.get("results") if isinstance(document, dict) else None
    first = results[0] if isinstance(results, list) and results else None
    return isinstance(first, dict) and "command" in first and ("mean" in first or "times" in first)


def read(file: str, document: Any) -> Found:
    """Return the runs of all commands; a run that failed is a lost one."""
    runs: list[FoundRun] = []
    for number, result in enumerate(document["results"], start=1):
        name = str(result["command"])
        times = result.get("times")
        if not times:
            raise UsageError(
                f"{file}: is {KIND} without the time of each run (`times` of {name!r}): a mean cannot be "
                "judged; measure again with hyperfine --export-json FILE"
            )
        codes = result.get("exit_codes") or [0] * len(times)
        if len(codes) != len(times):
            raise UsageError(
                f"{file}: is {KIND}: {name!r} has {len(times)} times and {len(codes)} exit codes"
            )
        parameters = result.get("parameters") or {}
        if "parameter" in result:
            parameters = {**parameters, "parameter": result["parameter"]}
        labels = {"command": name, **{key: str(value) for key, value in parameters.items()}}
        for time, code in zip(times, codes, strict=True):
            failed = code not in (0, None)
            value = math.nan if failed else float(time)
            runs.append(FoundRun(number, "wall_time", "s", {None: value}, dict(labels), "lower"))
    why = "hyperfine runs all of one command, then all of the next"
    return Found(KIND, runs, ("command",), why)
