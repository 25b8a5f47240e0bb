"""The number of starts of the program in each run of a case, or its offered rates: the warm-ups decide them.

The warm-up of each side measures how long the program takes, and shows how fine its clock is.  The native
warm-up of a service shows how many requests a second the service answers at most: the runs are offered shares
of this peak, the same rates on both sides.  A case that an earlier session, or an earlier round of this
session, has measured is measured again with the same number, and at the same rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from virtqual.references import project_references
from virtqual.runs import Result
from virtqual.session.session import Session
from virtqual.verdict.clock import find_coarse_clock, find_steps
from virtqual.verdict.pairs import Series

#: Each start costs a launch, which takes longer than a program of less than 80 ms does.  The mean of 25 has
#: a fifth of the noise of one.
MAX_STARTS = 25
#: The share of a job's time limit for all repetitions: a slow run must not be ended as a broken one.
SHARE_OF_LIMIT = 0.5
#: The time of the program in each run by scale, s: at least on the faster side, in all repetitions.
AIMS = {"small": 2.0, "standard": 20.0}
#: How many times as long the slower side takes at most, which goes before.
MAX_SLOWER = 3
#: The name of the answer by which the runs of a service agree on their offered rates.
NATIVE_PEAK = "native peak"

#: By stack and case: the number of starts in earlier rounds and sessions. A case without one has warm-ups.
decided_starts: dict[tuple[str, str], int] = {}
#: The native peak of which their runs were offered shares.
decided_peaks: dict[tuple[str, str], float] = {}


class StartTime(NamedTuple):
    """Seconds that one start took in a warm-up: the program by its node's clock, and with the launch."""

    program: float
    total: float


def choose_aim(scale: str, stated: float | None = None) -> float:
    """Return the time that the system file states, or that of the scale."""
    return AIMS[scale] if stated is None else stated


def count_starts(warm_ups: Sequence[StartTime], aim: float, limit: float, for_clock: int = 1) -> int:
    """Return how often each run of either side starts the program.

    `warm_ups` has the times of each side, `aim` is the time that the faster one takes at least, and `limit`
    is the time limit of the job, all in seconds. `for_clock` starts at least are needed because the clock is
    coarse, however long the slower side takes.

    Examples
    --------
    Natively 0.3 s, in a VM 0.4 s and once 2 s, for 2 s at least and 6 s at most:

    >>> count_starts([StartTime(0.3, 0.4), StartTime(0.4, 0.6)], 2, 600)
    7
    >>> count_starts([StartTime(0.3, 0.4), StartTime(2.0, 2.5)], 2, 600)
    3
    """
    if not warm_ups:
        return 1
    enough = math.ceil(aim / min(time.program for time in warm_ups))
    short_enough = int(aim * MAX_SLOWER / max(time.program for time in warm_ups))
    most = int(SHARE_OF_LIMIT * limit / max(time.total for time in warm_ups))
    return max(1, min(max(min(enough, short_enough), for_clock), most, MAX_STARTS))


def count_for_clock(starts: Sequence[Sequence[Result]], hypervisor_class: str) -> int:
    """Return how many starts a run needs for its mean to have steps of a third of each margin.

    `starts` has the results of each start of the warm-ups. No margin is known without a class.
    """
    references, counts = project_references(), [1]
    for results in zip(*starts, strict=True) if hypervisor_class else ():
        values, first = np.array([result.values for result in results]), results[0]
        # A single value shows no step, and values that are not positive are refused when they are judged.
        if len(values) > 1 and values.min() > 0:
            metric = references.metrics[first.metric]
            budget = references.budget(Series(metric, first.setting), hypervisor_class)
            typical = np.median(values, axis=0)
            clock = find_coarse_clock(metric, first.points, find_steps(values, repeats=0), typical, budget)
            counts.append(clock.repetitions if clock else 1)
    return max(counts)


def starts_of(session: Session) -> dict[str, int]:
    """Return by case how often the runs of a session started its program."""
    return {run.check: run.repetitions for run in session.runs}


def peaks_of(session: Session) -> dict[str, float]:
    """Return by case the native peak of which the runs of a session were offered shares."""
    answers = ((run.check, answer) for run in session.runs for answer in run.answers)
    return {check: answer.value for check, answer in answers if answer.name == NATIVE_PEAK}


def take_over(session: Session) -> None:
    """Make the runs of this process repeat their programs as a session and its earlier session do."""
    stack = session.stack["name"]
    for case, count in {**starts_of(session), **session.repetitions}.items():
        decided_starts[stack, case] = count
    for case, peak in {**peaks_of(session), **session.peaks}.items():
        decided_peaks[stack, case] = peak
