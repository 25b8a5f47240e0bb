"""Google Benchmark's ``--benchmark_format=json``: one value a repetition (versions 1.0 to 1.9)."""

from __future__ import annotations

import math
from typing import Any

from virtqual.errors import UsageError
from virtqual.formats.found import Found, FoundRun, Wanted, guess_better

KIND = "Google Benchmark's JSON"
_AGGREGATES = ("_mean", "_median", "_stddev", "_cv", "_BigO", "_RMS")
_UNITS = {
    **dict.fromkeys(("real_time", "cpu_time"), ""),
    "items_per_second": "items/s",
    "bytes_per_second": "B/s",
}
#: Numbers of an entry that are not measured.
_NOT_MEASURED = frozenset(
    ["family_index", "per_family_instance_index", "repetitions", "repetition_index", "threads", "iterations"]
)


def is_google_benchmark(document: Any) -> bool:
    """Return whether a JSON document is Google Benchmark's."""
    benchmarks = document.get("benchmarks") if isinstance(document, dict) else None
    if not isinstance(benchmarks, list) or not all(isinstance(entry, dict) for entry in benchmarks):
        return False
    return (
        bool(benchmarks)
        and "name" in benchmarks[0]
        and ("real_time" in str(benchmarks) or "context" in document)
    )


def read(file: str, document: Any, wanted: Wanted) -> Found:
    """Return the repetitions of all benchmarks; the mean and the like of several are left out.

    It is `real_time` unless another key was asked for, such as `cpu_time` or `items_per_second`.
    """
    key = wanted.metric or "real_time"
    runs: list[FoundRun] = []
    names = {entry["name"] for entry in document["benchmarks"]}
    for number, entry in enumerate(document["benchmarks"], start=1):
        if _is_aggregate(entry, names):
            continue
        name = str(entry.get("run_name", entry["name"]))
        has_failed = entry.get("error_occurred") or entry.get("skipped")
        if key not in entry and not has_failed:
            keys = ", ".join(
                k for k, v in entry.items() if isinstance(v, int | float) and k not in _NOT_MEASURED
            )
            raise UsageError(f"{file}: is {KIND}: {name} has no {key!r} (--metric): it has {keys}")
        value = math.nan if has_failed else float(entry[key])
        unit = wanted.unit or _UNITS.get(key, key) or str(entry.get("time_unit", "ns"))
        runs.append(FoundRun(number, key, unit, {None: value}, {"benchmark": name}, guess_better(unit)))
    if not runs:
        raise UsageError(
            f"{file}: is {KIND} with means alone: they cannot be judged; measure with "
            "--benchmark_repetitions=10 and without --benchmark_report_aggregates_only"
        )
    note = f"{key} of each repetition is judged" + (
        "" if wanted.metric else " (--metric chooses another key)"
    )
    context = document.get("context") or {}
    facts = {
        "host": str(context.get("host_name", "")),
        "date": str(context.get("date", "")),
        "CPUs": f"{context.get('num_cpus', '')} at {context.get('mhz_per_cpu', '')} MHz"
        if "num_cpus" in context
        else "",
    }
    why = "the file does not say when each repetition ran"
    return Found(KIND, runs, ("benchmark",), why, notes=(note,), facts={k: v for k, v in facts.items() if v})


def _is_aggregate(entry: dict[str, Any], names: set[str]) -> bool:
    if "run_type" in entry:
        return bool(entry["run_type"] != "iteration")
    # Versions before 1.5 tell them by their names.
    name = str(entry["name"])
    return any(
        name.endswith(end) and (name.removesuffix(end) in names or end in ("_BigO", "_RMS"))
        for end in _AGGREGATES
    )
