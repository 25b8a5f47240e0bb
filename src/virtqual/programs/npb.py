"""NAS Parallel Benchmarks 2.3 to 3.4 (MPI): the report at the end of every benchmark."""

from __future__ import annotations

import re
from dataclasses import dataclass

from virtqual.programs.text import (
    OutputError,
    ProgramName,
    check_product,
    refuse_not_finite,
    single,
    whole_number,
)

NAME = ProgramName("NPB", "versions 2.3 to 3.4 for MPI")
# A label of at most 16 characters, padded, and its value; without a blank before "=" in some versions.
_LINE = re.compile(r" (\S.{13}\S{0,2}) {0,2}= +(\S.*)", re.ASCII)


@dataclass(frozen=True)
class NpbRun:
    """One run of a benchmark such as ``IS`` on MPI processes; `rate` is in Mop/s."""

    benchmark: str
    problem_class: str
    version: str
    tasks: int
    rate: float


def parse(text: str) -> NpbRun:
    """Read the output of one run that verified, in which no task was idle."""
    title = single(NAME, r"^ ([A-Z]{2}) Benchmark Completed\.?$", text, "line 'Benchmark Completed'")
    end = single(NAME, r"^ Compile options:$", text, "compile options at the end")
    report: dict[str, str] = {}
    for row in filter(None, text[title.end() : end.start()].split("\n")):
        match = _LINE.fullmatch(row)
        if not match or match[1].strip() in report:
            raise OutputError(NAME, f"the report has a broken or a second line {row!r}")
        report[match[1].strip()] = match[2]

    def find_value(label: str) -> str:
        if label not in report:
            raise OutputError(NAME, f"no {label!r} in the report as {NAME.versions} print it")
        return report[label]

    refuse_not_finite(NAME, text[: end.start()])
    if find_value("Verification") != "SUCCESSFUL":
        raise OutputError(NAME, f"verification: {report['Verification']}")
    tasks = whole_number(NAME, find_value("Total processes"), "tasks")
    for label in ("Active procs", "Active processes"):
        if label in report and whole_number(NAME, report[label], label) != tasks:
            raise OutputError(NAME, f"{label}: {report[label]} of {tasks}")
    total = find_value("Mop/s total")
    check_product(NAME, "rate x tasks", total, find_value("Mop/s/process"), str(tasks))
    return NpbRun(
        benchmark=title[1],
        problem_class=find_value("Class"),
        version=find_value("Version"),
        tasks=tasks,
        rate=float(total),
    )
