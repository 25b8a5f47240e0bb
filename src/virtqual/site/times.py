"""The times of jobs, by one clock for all jobs.

The clocks of the nodes are not comparable (a VM's may be seconds off), so the scheduler's is used: Slurm's
controller notes start and end of every job in whole seconds.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from virtqual.files import execute
from virtqual.site.slurm import TIMES, seconds


@dataclass(frozen=True)
class Span:
    """Start and end of a job, seconds since the epoch, and whose clock that is."""

    start: float
    end: float
    clock: str


def of_job(job: str, submitted: float, seen_done: float) -> Span:
    """Return when a finished job ran.

    Parameters
    ----------
    job
        Slurm's job id.
    submitted, seen_done
        When the caller submitted it and saw it done.  They sharpen Slurm's whole seconds where one job
        was submitted after another had been seen done, and stand in where Slurm cannot be asked.
    """
    command = ["scontrol", "-o", "show", "job", str(job)]
    text = execute.read_output(command, env=os.environ | TIMES, seconds=30) or ""
    start, end = (re.search(rf"\b{key}=(\S+)", text) for key in ("StartTime", "EndTime"))
    try:
        begun, ended = (seconds(m[1]) for m in (start, end) if m)
    except ValueError:
        return Span(submitted, seen_done, "submission")
    begun = max(begun, submitted)
    return Span(begun, max(begun, min(ended + 1, seen_done)), "slurmctld")
