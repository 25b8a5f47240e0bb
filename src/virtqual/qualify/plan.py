"""Which pairs of which checks come next, and how long they should take."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

from virtqual import paths
from virtqual.errors import UsageError
from virtqual.qualify.job import Qualification, Request
from virtqual.runs import Run
from virtqual.session import store
from virtqual.verdict import Design
from virtqual.verdict.session import SCREEN

# Pairs of the first look. Two would do for most verdicts; but any session may become the earlier one against
# which a later one is held, and what is not measured now limits how small a change can be seen then.
FIRST_PAIRS = 4


def design(max_pairs: int) -> Design:
    """Return the decision's design with fewer looks.

    Raises
    ------
    UsageError
        With so few pairs nothing could be OVER: its pairs are those after the screen.
    """
    screened = Design().in_session(SCREEN, 1)
    least = next(look for index, look in enumerate(screened.looks) if screened.over_level(index))
    if max_pairs < least:
        raise UsageError(f"--max-pairs {max_pairs}: at least {least} are needed to find anything over budget")
    return Design().up_to(max_pairs)


def affordable(request: Request) -> None:
    """Check that the pairs that are asked for at once are allowed, and enough to decide by.

    Raises
    ------
    UsageError
        If they are not.
    """
    design(request.max_pairs)
    if request.pairs and request.pairs > request.max_pairs:
        raise UsageError(f"--pairs {request.pairs} is more than --max-pairs {request.max_pairs} allows")


def following(job: Qualification) -> list[tuple[int, int, tuple[str, ...]]]:
    """Group the checks that need more pairs by the pair numbers that they need."""
    if job.verdict is None:
        return []
    by_series = {result.series: run.check for run in job.session.runs for result in run.results}
    ranges: dict[str, tuple[int, int]] = {}
    for need in job.verdict.plan.needs:
        check = by_series[need.series]
        # A check that failed outright would fail again, and what it has can be judged no further.
        if check in job.refused or need.last >= job.request.max_pairs * 2:
            continue
        first, last = ranges.get(check, (need.first, need.last))
        ranges[check] = (min(first, need.first), max(last, need.last))
    groups: dict[tuple[int, int], list[str]] = defaultdict(list)
    for check, span in ranges.items():
        groups[span].append(check)
    return [(first, last, tuple(checks)) for (first, last), checks in sorted(groups.items())]


def expected(job: Qualification, checks: Sequence[str], pairs: int) -> float | None:
    """Return how long a look should take, seconds, from runs that there were; None if there were none."""
    history = [run for run in _history(job) if not checks or run.check in checks]
    by_case: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in history:
        by_case[run.check, run.side].append(run.end - run.start)
    if not by_case:
        return None
    # ReFrame's start, and a second around each job.
    return 5 + pairs * sum(statistics.median(times) + 1 for times in by_case.values())


def _history(job: Qualification) -> Sequence[Run]:
    if job.session.runs:
        return job.session.runs
    for file in sorted(paths.sessions().glob(f"*-{job.session.system}/{store.FILE}"), reverse=True):
        try:
            earlier = store.load(file)
        except UsageError:
            continue  # of another version: it only tells how long a run may take
        if earlier.runs:
            return earlier.runs
    return ()
