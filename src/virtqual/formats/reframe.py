"""ReFrame's run reports (schemas 1.x to 4.x) and performance logs (2.x to 4.x)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from virtqual.errors import UsageError
from virtqual.files.times import read_time
from virtqual.formats.found import Found, FoundRun, guess_better

REPORT, PERFLOG = "a ReFrame run report", "a ReFrame performance log"
_SIDES = ("partition", "environ", "system", "nodelist")
_INFO = re.compile(r"^(?P<test>.+?)(?: on | @)(?P<partition>[\w.-]+:[\w.-]+)(?: using |\+)(?P<environ>\S+)$")
_VALUE = re.compile(r"^(?P<name>[^=]+)=(?P<value>[-+0-9.eE]+|nan|inf|None|null)$")
_IGNORED = frozenset(("jobid", "num_tasks", "nodelist", "tags", "ref", "result"))
_OLD = re.compile(r"^\d{4}-\d\d-\d\dT\S+\|reframe |\|ref=\S+ \(l=", re.MULTILINE)


def is_report(document: Any) -> bool:
    """Return whether a JSON document is a run report."""
    return isinstance(document, dict) and "session_info" in document and "runs" in document


def is_perflog(text: str) -> bool:
    """Return whether a text is a performance log, with a header or in the form before 4.0."""
    first = text.lstrip("\n").partition("\n")[0]
    if first.count("|") >= 3 and re.search(r"\|[A-Za-z_]\w*_value\|", first):
        return True
    return bool(_OLD.search(text[:5000]))


def read_report(file: str, document: Any) -> Found:
    """Return the performance values of the tests that passed or missed their references."""
    runs, without = [], 0
    for entry in _list_cases(document):
        found = list(_read_case(entry))
        without += not found
        runs += found
    if not runs:
        raise UsageError(
            f"{file}: is {REPORT} in which none of {without} tests has a performance value: a test needs "
            "performance functions"
        )
    notes = (f"{without} tests without performance values are left out",) if without else ()
    return Found(REPORT, runs, _SIDES, "", notes=notes)


def _list_cases(document: Any) -> Iterator[dict[str, Any]]:
    for run in document["runs"]:
        yield from (case for case in run.get("testcases") or [] if isinstance(case, dict))


def _read_case(case: dict[str, Any]) -> Iterator[FoundRun]:
    system = str(case.get("system") or "")
    partition = str(case.get("partition") or "")
    place = f"{system}:{partition}" if partition and ":" not in system else system
    nodes = case.get("job_nodelist") or case.get("nodelist") or []
    nodelist = "+".join(map(str, nodes)) if isinstance(nodes, list) else str(nodes)
    labels = {
        "test": str(case.get("display_name") or case.get("name") or case.get("unique_name") or ""),
        "partition": place,
        "environ": str(case.get("environ") or case.get("environment") or ""),
        "nodelist": nodelist,
    }
    start, end = _read_times(case)
    number = int(case.get("line", 0) or 0)
    for name, value, unit in _list_values(case):
        yield FoundRun(
            number,
            name,
            unit,
            {None: value},
            dict(labels),
            guess_better(unit),
            start=start,
            end=end,
            node=nodelist,
        )


def _list_values(case: dict[str, Any]) -> Iterator[tuple[str, float, str]]:
    """Yield name, value and unit: a list of objects until schema 3, and a map of lists from 4 on."""
    for entry in case.get("perfvars") or []:
        yield str(entry["name"]), _number(entry.get("value")), str(entry.get("unit") or "")
    if not case.get("perfvars"):
        for key, values in (case.get("perfvalues") or {}).items():
            yield (
                str(key).rpartition(":")[2],
                _number(values[0]),
                str((values[4] if len(values) > 4 else "") or ""),
            )


def _read_times(case: dict[str, Any]) -> tuple[float, float]:
    """Return start and end of a test's job; a start that is not there is the end less the time of the run."""
    end = math.nan
    for key in ("job_completion_time_unix", "completion_time_unix", "job_completion_time", "completion_time"):
        with suppress(ValueError, TypeError):
            end = read_time(case.get(key))
        if not math.isnan(end):
            break
    seconds = _number(case.get("time_run"))
    return (end if math.isnan(seconds) else end - seconds), end


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return math.nan


def read_perflog(file: str, text: str) -> Found:
    """Return the performance values of a log; a header may come again where the fields changed."""
    runs: list[FoundRun] = []
    names: list[str] = []
    for line, row in enumerate(text.splitlines(), start=1):
        if row.count("|") < 3:
            continue
        cells = [cell.strip() for cell in row.strip().split("|")]
        if any(name.endswith("_value") for name in cells):
            names = cells
        elif names and "|ref=" not in row:
            runs += _read_row(line, _align(f"{file}:{line}", names, cells))
        else:
            runs += _read_old_row(line, cells)
    if not runs:
        raise UsageError(f"{file}: is {PERFLOG} without a performance value")
    note = (
        "a performance log says when each run ended and not when it began: runs at the same time may look as "
        "if they took turns"
    )
    return Found(PERFLOG, runs, _SIDES, "", notes=(note,))


def _align(place: str, names: list[str], cells: list[str]) -> dict[str, str]:
    """Return the fields of a row by name.

    A list of modules or nodes may be written with ``|`` as well: the performance values, which come last, are
    then counted from the end.
    """
    if len(cells) < len(names):
        raise UsageError(
            f"{place}: is a row of {len(cells)} fields in {PERFLOG} with {len(names)}: was it cut off?"
        )
    if len(cells) == len(names):
        return dict(zip(names, cells, strict=True))
    first = next(index for index, name in enumerate(names) if name.endswith("_value"))
    row = dict(zip(names[first:], cells[first - len(names) :], strict=True))
    row["info"] = next((cell for cell in cells if _INFO.match(cell)), "")
    row["job_completion_time"] = next((cell for cell in cells if re.match(r"\d{4}-\d\d-\d\dT", cell)), "")
    return row


def _read_row(line: int, row: dict[str, str]) -> Iterator[FoundRun]:
    info = _INFO.match(row.get("info", ""))
    partition = row.get("partition") or (info["partition"] if info else "")
    system = row.get("system", "")
    labels = {
        "test": row.get("display_name")
        or row.get("name")
        or row.get("unique_name")
        or (info["test"] if info else ""),
        "partition": f"{system}:{partition}" if system and ":" not in partition else partition,
        "environ": row.get("environ") or (info["environ"] if info else ""),
        "nodelist": "" if row.get("job_nodelist", "") in ("null", "None") else row.get("job_nodelist", ""),
    }
    end = math.nan
    for key in ("job_completion_time_unix", "job_completion_time", "completion_time", "asctime"):
        with suppress(ValueError):
            end = read_time("" if row.get(key) in ("null", "None") else row.get(key))
        if not math.isnan(end):
            break
    for name, cell in row.items():
        if name.endswith("_value") and cell not in ("", "null", "None"):
            metric = name.removesuffix("_value")
            unit = row.get(f"{metric}_unit", "")
            yield FoundRun(
                line,
                metric,
                unit,
                {None: _number(cell)},
                dict(labels),
                guess_better(unit),
                start=end,
                end=end,
                node=labels["nodelist"],
            )


def _read_old_row(line: int, cells: list[str]) -> Iterator[FoundRun]:
    """Yield the value of a row such as ``DATE|reframe 3.2|TEST on SYSTEM using ENV|perf=1|ref=...|UNIT``."""
    info = next((match for cell in cells if (match := _INFO.match(cell))), None)
    nodelist = next((cell.partition("=")[2] for cell in cells if cell.startswith("nodelist=")), "")
    labels = {
        "test": info["test"] if info else "",
        "partition": info["partition"] if info else "",
        "environ": info["environ"] if info else "",
        "nodelist": nodelist,
    }
    end = math.nan
    with suppress(ValueError):
        end = read_time(cells[0])
    place = next((index for index, cell in enumerate(cells) if cell.startswith("ref=")), len(cells))
    values = [
        (index, match)
        for index, cell in enumerate(cells[:place])
        if (match := _VALUE.match(cell)) and match["name"] not in _IGNORED
    ]
    if values:
        index, match = values[-1]
        # The unit follows the value, or its reference.
        units = [cell for cell in cells[index + 1 :] if "=" not in cell]
        unit = units[0] if units else ""
        value: dict[float | None, float] = {None: _number(match["value"])}
        yield FoundRun(
            line, match["name"], unit, value, labels, guess_better(unit), start=end, end=end, node=nodelist
        )
