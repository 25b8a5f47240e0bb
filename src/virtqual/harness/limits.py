"""The time limit of a run: three times the longest recent run of its case, within the limits of the site.

A short limit lets Slurm start a job in a gap, and ends a program that hangs early.
"""

from __future__ import annotations

import math
from functools import cache

from virtqual.session.summary import find_recent

#: A hypervisor that is much slower must be measured, and not ended.
TIME_LIMIT_FACTOR = 3
#: The shortest limit.
MIN_TIME_LIMIT_S = 600
#: The longest limit by scale, if the partition states no `time_limit`.
MAX_TIME_LIMITS_S = {"small": 600, "standard": 7200}


def choose_time_limit(case: str, system: str, stack: str, longest: float) -> float:
    """Return the time limit of a run of a case, in seconds, at most the longest that the site allows."""
    limit = TIME_LIMIT_FACTOR * _find_longest_runs(system, stack).get(case, math.inf)
    return min(max(limit, MIN_TIME_LIMIT_S), longest)


@cache
def _find_longest_runs(system: str, stack: str) -> dict[str, float]:
    """Return the longest run of each case, seconds; infinity if one has reached its limit."""
    longest: dict[str, float] = {}
    for summary in find_recent(system, stack):
        for case, durations in summary.durations.items():
            seconds = math.inf if durations.longest is None else durations.longest
            longest[case] = max(longest.get(case, 0.0), seconds)
    return longest
