"""How long a run may take: three times the longest that its case took lately, within what the site allows.

A short limit lets Slurm start a job in a gap, and ends a program that hangs early.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import islice

from virtqual import paths
from virtqual.session.summary import Summary, summaries

#: So many times the longest run of a case: a hypervisor that is much slower is to be measured, not ended.
TIMES = 3
#: Seconds that every run is given, where the system file states nothing else.
LEAST = 600
#: Seconds by scale of a run of which nothing is known, where the system file states no `time_limit`.
MOST = {"small": 600, "standard": 7200}
#: Sessions of a system that are looked through.
RECENT = 10


def seconds(case: str, system: str, stack: str, least: float, most: float) -> float:
    """Return the time limit of a run.

    Parameters
    ----------
    case
        As runs name it.
    system, stack
        Names of what it runs on and with.
    least, most
        Seconds that the site allows.
    """
    if least >= most:
        return most
    return min(max(TIMES * _longest(system, stack).get(case, math.inf), least), most)


@cache
def _longest(system: str, stack: str) -> dict[str, float]:
    """Return the longest run of each case, seconds; of one that has reached its limit nothing is known."""
    longest: dict[str, float] = {}
    earlier = (
        summary
        for _, summary in summaries(paths.sessions())
        if isinstance(summary, Summary) and (summary.system, summary.stack) == (system, stack)
    )
    for summary in islice(earlier, RECENT):
        for case, durations in summary.durations.items():
            seconds = math.inf if durations.longest is None else durations.longest
            longest[case] = max(longest.get(case, 0.0), seconds)
    return longest
