"""fio 3.x: jobs that run one after the other, from its JSON."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from virtqual.programs.text import OutputError, ProgramName, read_json

NAME = ProgramName("fio", "versions 3.x")
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class FioJob:
    """One job: its options, and what its reads or writes came to.

    Attributes
    ----------
    operations
        Reads or writes a second.
    bandwidth
        MB/s (10^6 bytes).
    runtime
        s
    latency, latency_p99
        Median time of a read or write, and the time that one in 100 exceeds, us.
    """

    options: dict[str, str]
    operations: float
    bandwidth: float
    runtime: float
    latency: float
    latency_p99: float


@dataclass(frozen=True)
class FioRun:
    """One run of several jobs by name, with the options that all have."""

    options: dict[str, str]
    jobs: dict[str, FioJob]


def parse(text: str) -> FioRun:
    """Read the JSON of a run; numbers that contradict each other are refused."""
    # Notes of a running fio may precede the document; line numbers of errors count them.
    notes = re.match(r"(?:(?!\{).*\n)*", text)
    begin = notes.end() if notes else 0
    with read_json(NAME, "\n" * text.count("\n", 0, begin) + text[begin:]) as document:
        if not (version := document["fio version"]).startswith("fio-3."):
            raise OutputError(NAME, f"{version} prints other keys and units than {NAME.versions}")
        options = _read_options(document.get("global options", {}))
        jobs = {job["jobname"]: _read_job(job, options) for job in document["jobs"]}
    if not jobs or len(jobs) != len(document["jobs"]):
        raise OutputError(NAME, "two jobs have one name" if jobs else "it has no job")
    return FioRun(options, jobs)


def _read_job(job: dict[str, Any], options: dict[str, str]) -> FioJob:
    name = job["jobname"]
    if error := job["error"]:
        raise OutputError(NAME, f"job {name} failed: {os.strerror(error)}")
    own = _read_options(job["job options"])
    # fio reads if it is not told otherwise.
    side = job["read"] if "read" in (options | own).get("rw", "read") else job["write"]
    if "percentile" not in side["clat_ns"]:
        raise OutputError(NAME, f"job {name} has no percentiles: run it without gtod_reduce")
    if job["read"]["total_ios"] and job["write"]["total_ios"]:
        raise OutputError(NAME, f"job {name} both reads and writes")
    runtime = side["runtime"] / 1000
    # Before 3.2, fio printed no more than whole KiB/s.
    bandwidth = side["bw_bytes"] if "bw_bytes" in side else side["bw"] * 1024
    for label, total, rate in (
        ("operations", side["total_ios"], side["iops"]),
        ("bytes", side["io_bytes"], bandwidth),
    ):
        # The first requests in flight may be counted in the rate alone.
        if not (total > 0 and abs(rate * runtime / total - 1) <= max(_TOLERANCE, 70 / side["total_ios"])):
            raise OutputError(NAME, f"job {name}: {rate} {label} a second in {runtime} s are not {total}")
    percentiles = side["clat_ns"]["percentile"]
    median, p99 = (percentiles[key] / 1000 for key in ("50.000000", "99.000000"))
    if not 0 < median <= p99 < math.inf:
        raise OutputError(NAME, f"job {name}: half of the requests take {median} us, 99 % {p99} us")
    # fio 3.1 fills the list with 0.00.
    steps = sorted((float(key), percentiles[key]) for key in percentiles if float(key))
    for (lower, before), (upper, after) in pairwise(steps):
        if before > after:
            raise OutputError(
                NAME, f"job {name}: {lower:g} % of the requests take {before} ns, {upper:g} % {after} ns"
            )
    return FioJob(own, side["iops"], bandwidth / 1e6, runtime, median, p99)


def _read_options(options: dict[str, Any]) -> dict[str, str]:
    if not all(isinstance(value, str) for value in options.values()):
        raise OutputError(NAME, f"an option is no text: {options}")
    return options
