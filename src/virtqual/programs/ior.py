"""IOR 3.3 to 4.1 and mdtest 4.x: rates of data and of file operations, from JSON and from tables."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from virtqual.programs.text import (
    OutputError,
    ProgramName,
    check_product,
    date,
    find_all,
    number,
    positive,
    read_json,
    refuse_lines,
    single,
)

IOR, MDTEST = ProgramName("IOR", "versions 3.3 to 4.1"), ProgramName("mdtest", "versions 4.x")
# Phases of mdtest, by the name of each in its tables.
OPERATIONS = {"File creation": "create", "File stat": "stat", "File removal": "remove"}
_MIB = 2**20
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
# mdtest prints three decimals of rates and of seconds.
_HALF = 0.00051


@dataclass(frozen=True)
class IorRun:
    """One run of IOR that wrote once and read once.

    Attributes
    ----------
    parameters
        The parameters of the run, by IOR's names.
    tasks
        MPI tasks.
    capacity
        Bytes of the file system.
    write, read
        MB/s (10^6 bytes) of all tasks together.
    """

    version: str
    parameters: dict[str, str]
    tasks: int
    capacity: float
    write: float
    read: float


@dataclass(frozen=True)
class MdtestRun:
    """One run of mdtest.

    Attributes
    ----------
    capacity
        Bytes of the file system.
    shift
        How many ranks the task is away that wrote what a task uses.
    rates
        Operations a second of all tasks together, by the names of `OPERATIONS`.
    """

    version: str
    options: tuple[str, ...]
    tasks: int
    files: int
    capacity: float
    shift: int
    rates: dict[str, float]


def parse(text: str) -> IorRun:
    """Read the JSON of a run; a rate that its bytes and its time contradict is refused."""
    with read_json(IOR, text) as document:
        (test,) = document["tests"]
        parameters = test["Parameters"]
        summary = {entry["operation"]: entry for entry in document["summary"]}
        results = _list_results(test["Results"])
        (tasks,) = {entry["numTasks"] for entry in document["summary"]}
        size = parameters["blockSize"] * parameters["segmentCount"] * tasks
        rates = {
            access: _read_rate(access, results[access], summary[access], size) for access in ("write", "read")
        }
        version, ended, capacity = document["Version"], document["Finished"], test["Capacity"]
        parameters = {name: str(value) for name, value in parameters.unambiguous().items()}
    if len(document["summary"]) != 2:
        raise OutputError(IOR, "it did not write once and read once")
    date(IOR, ended, "%a %b %d %H:%M:%S %Y", "end")
    return IorRun(version, parameters, tasks, _read_size(IOR, capacity), rates["write"], rates["read"])


def parse_rates(text: str) -> tuple[dict[str, float], int]:
    """Return MB/s by access of a run of IOR, from its JSON or its text, and the number of tasks.

    Of several repetitions it is the best one, which IOR calls Max.
    """
    if text.lstrip().startswith("{"):
        run = parse(text)
        return {"write": run.write, "read": run.read}, run.tasks
    rates = {}
    for access in ("Write", "Read"):
        found = find_all(rf"^Max {access}: +(\S+) MiB/sec \((\S+) MB/sec\)$", text)
        if len(found) > 1:
            raise OutputError(IOR, f"'Max {access}' appears {len(found)} times, expected once")
        # Of an access that was not asked for, it is 0.
        if found and number(IOR, found[0][2], access):
            check_product(IOR, access, found[0][2], found[0][1], "1.048576")
            rates[access.lower()] = positive(IOR, found[0][2], access)
    if not rates:
        raise OutputError(IOR, "no lines 'Max Write' and 'Max Read' with rates")
    tasks = find_all(r"^(?:tasks|Number of tasks|clients) *[:=] *(\d+)\b", text)
    return rates, int(tasks[0][1]) if tasks else 0


def _list_results(results: list[Any]) -> dict[str, dict[str, Any]]:
    """Return the results of one write and one read by access."""
    # Version 3.3 has a list for each repetition, and counts the removal.
    if results and isinstance(results[0], list):
        (results,) = results
    results = [result for result in results if result["access"] != "remove"]
    if len(results) != 2:
        raise OutputError(IOR, "it did not write once and read once")
    return {result["access"]: result for result in results}


def _read_size(program: str, text: str) -> float:
    """Return the bytes of a text such as ``252.0 GiB``."""
    number_text, _, unit = text.partition(" ")
    if unit not in _UNITS:
        raise OutputError(program, f"capacity: {text!r} is no size")
    factor: int = 1024 ** _UNITS.index(unit)
    return positive(program, number_text, "capacity") * factor


def _read_rate(access: str, result: dict[str, Any], summary: dict[str, Any], size: int) -> float:
    rate: float = result["bwMiB"]
    seconds = result["totalTime"]
    # The time is printed with four decimals.
    if not (0 < rate < math.inf and abs(size / _MIB / rate - seconds) <= 1e-3 * seconds + 1e-4):
        raise OutputError(IOR, f"{access}: {rate} MiB/s in {seconds} s are not {size} bytes")
    if not math.isclose(rate, summary["bwMeanMIB"], rel_tol=1e-6, abs_tol=1e-4):
        raise OutputError(IOR, f"{access}: {rate} MiB/s, in its summary {summary['bwMeanMIB']}")
    return rate * _MIB / 1e6


def parse_mdtest(text: str) -> MdtestRun:
    """Read the tables of a run with ``-P``; a rate that its files and its time contradict is refused."""
    refuse_lines(MDTEST, r"ERROR|WARNING|FAIL", text)
    head = single(MDTEST, r"^mdtest-(\S+) was launched with (\d+) total task", text, "first line")
    if not head[1].startswith("4."):
        raise OutputError(MDTEST, f"version {head[1]} prints other tables than {MDTEST.versions}")
    asked = single(MDTEST, r"^Command line used: \S+(( '[^'\n]*')*)$", text, "command line")
    system = single(MDTEST, r"^FS +: (\S+ \S+) ", text, "size of the file system")
    shift = single(MDTEST, r"Shifting ranks by (\d+) for each phase", text, "shift of the ranks")
    counts = single(MDTEST, r"^(\d{1,18}) tasks, (\d{1,18}) files$", text, "tasks and files")
    end = single(MDTEST, r"^-- finished at (\S+ \S+) --$", text, "last line")
    date(MDTEST, end[1], "%m/%d/%Y %H:%M:%S", "end")
    if head[2] != counts[1]:
        raise OutputError(MDTEST, f"{head[2]} tasks in its first line, {counts[1]} in its table")
    (unit, times), (_, rates) = _read_table("time", text), _read_table("rate", text)
    files = int(counts[2])
    for name, rate in rates.items():
        # Version 4.1 prints the milliseconds of one operation.
        count, shown = (1000, "ms each") if unit else (files, "s")
        if abs(count / rate - times[name]) > _HALF * (1 + times[name] / rate):
            raise OutputError(
                MDTEST, f"{name}: {rate} a second in {times[name]} {shown} are not {files} files"
            )
    options = tuple(re.findall(r"'([^']*)'", asked[1]))
    size = _read_size(MDTEST, system[1])
    return MdtestRun(head[1], options, int(counts[1]), files, size, int(shift[1]), rates)


def _read_table(kind: str, text: str) -> tuple[str | None, dict[str, float]]:
    """Return the unit of a table, if it states one, and its values by operation."""
    units = {"rate": "ops/sec", "time": "ms/op"}
    pattern = rf"^SUMMARY {kind}(?: \(in ({units[kind]})\))?: \(of 1 iterations\)$"
    head = single(MDTEST, pattern, text, f"table of the {kind}")
    table = text[head.end() :].partition("SUMMARY")[0]
    values = {}
    for label, name in OPERATIONS.items():
        row = single(MDTEST, rf"^ +{label} +(\S+) +(\S+) +(\S+) +(\S+)$", table, label)
        read = positive if kind == "rate" else number
        values[name] = read(MDTEST, row[1], label)
        if {row[2], row[3]} != {row[1]}:
            raise OutputError(MDTEST, f"{label}: one iteration has several values: {row[0].strip()}")
    return head[1], values
