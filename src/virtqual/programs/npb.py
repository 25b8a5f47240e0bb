"""NAS Parallel Benchmarks 3.x (MPI and OpenMP): the report at the end of every benchmark."""

from __future__ import annotations

import re
from dataclasses import dataclass

from virtqual.programs.text import (
    OutputError,
    agree,
    line_of,
    positive,
    printable,
    resolution,
    single,
    whole_number,
)

NAME = "NPB"
# Values end here in every 3.x: labels of 18 characters, values of 24.
_WIDTH = 43
# Nonzeroes a row of CG's matrix, by class.
_CG_NONZEROES = {"S": 7, "W": 8, "A": 11, "B": 13, "C": 15, "D": 21, "E": 26}


@dataclass(frozen=True)
class NpbRun:
    """One run of one benchmark.

    Attributes
    ----------
    benchmark, problem_class
        E.g. ``IS`` and ``C``.
    version
        E.g. ``3.4.2``.
    iterations
        Iterations of the timed part.
    time
        Seconds.
    tasks
        Processes of the MPI version, threads of the OpenMP version.
    rate
        Mop/s of all tasks together.
    """

    benchmark: str
    problem_class: str
    version: str
    iterations: int
    time: float
    tasks: int
    rate: float


def parse(text: str) -> NpbRun:
    """Read the output of one run.

    Raises
    ------
    OutputError
        A line is missing, split, doubled or not in its columns, the result did not verify, tasks were left
        idle, or the rate is neither the tasks' rate times their number nor the operations by the time.
    """
    printable(NAME, text)
    title = single(NAME, r"^ ([A-Z]{2}) Benchmark Completed\.?$", text, "line 'Benchmark Completed'")
    end = single(NAME, r"^ Compile options:$", text, "compile options at the end")
    last = line_of(text, title.start())
    report = _report(text[title.end() : end.start()], last)

    def say(*labels: str) -> str:
        for label in labels:
            if label in report:
                return report[label]
        raise OutputError(NAME, f"the report after line {last} does not say {labels[0]!r}")

    if say("Verification") != "SUCCESSFUL":
        raise OutputError(NAME, f"verification: {say('Verification')}")
    tasks = whole_number(NAME, say("Total processes", "Total threads"), "tasks")
    for label in ("Active procs", "Active processes", "Avail threads"):
        if label in report and whole_number(NAME, report[label], label) != tasks:
            raise OutputError(NAME, f"{label}: {report[label]} of {tasks}")
    total = say("Mop/s total")
    each = say("Mop/s/process", "Mop/s/thread")
    rate, part = positive(NAME, total, "Mop/s total"), positive(NAME, each, "Mop/s of a task")
    if not agree(part * tasks, rate, resolution(each) / part, resolution(total) / rate):
        raise OutputError(NAME, f"{each} Mop/s a task are not {total} Mop/s on {tasks} tasks")
    stated = say("Time in seconds")
    time = positive(NAME, stated, "time")
    iterations = whole_number(NAME, say("Iterations"), "iterations")
    operations = _operations(title[1], say("Class"), say("Size"), iterations)
    if operations:
        expected = operations / (rate * 1e6)
        if abs(time - expected) > resolution(stated) + expected * resolution(total) / rate:
            raise OutputError(
                NAME,
                f"the operations of {title[1]} of class {say('Class')} take {expected:.3g} s "
                f"at {total} Mop/s, not {stated} s",
            )
    return NpbRun(
        benchmark=title[1],
        problem_class=say("Class"),
        version=say("Version"),
        iterations=iterations,
        time=time,
        tasks=tasks,
        rate=rate,
    )


def _operations(benchmark: str, problem_class: str, size: str, iterations: int) -> float | None:
    """Return the operations of which a benchmark computes its rate; None for those not counted here."""
    if benchmark == "IS":
        return whole_number(NAME, size, "size") * iterations
    if benchmark == "EP":
        return whole_number(NAME, size, "size")
    if benchmark == "CG" and problem_class in _CG_NONZEROES:
        nonzeroes = _CG_NONZEROES[problem_class] * (_CG_NONZEROES[problem_class] + 1)
        rows = whole_number(NAME, size, "size")
        return 2 * iterations * rows * (3 + nonzeroes + 25 * (5 + nonzeroes) + 3)
    return None


def _report(text: str, title_line: int) -> dict[str, str]:
    """Return the values of the report by label.

    Parameters
    ----------
    text
        The report, from the end of the line that is its title.
    title_line
        The number of that line.
    """
    report: dict[str, str] = {}
    for line, row in enumerate(text.split("\n")[1:], title_line + 1):
        if not row:
            continue
        match = re.fullmatch(r" (\S.{13}\S{0,2}) {0,2}=( +(\S.*))", row, re.ASCII)
        if not match or match[1].strip() in report:
            raise OutputError(
                NAME, f"line {line} is no line of the report, or the second of its kind: {row!r}"
            )
        # Dates and names of versions may be of any length.
        if len(row) != _WIDTH and not re.match(r"Compile|Version", match[1]):
            raise OutputError(NAME, f"line {line} does not end in its column: {row!r}")
        report[match[1].strip()] = match[3]
    return report
