"""Which pairs of which checks come next, and how long they should take."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from virtqual import paths
from virtqual.errors import UsageError
from virtqual.harness import catalogue
from virtqual.qualify.state import Qualification
from virtqual.runs import Run
from virtqual.session.judge import Judged
from virtqual.session.pairing import checks_of
from virtqual.session.session import Request, Round, Session
from virtqual.session.summary import Summary, summaries
from virtqual.site import held
from virtqual.site.held import Rotation
from virtqual.verdict.rule import LOOKS

RECENT = 10
"""Earlier sessions in which durations are looked for."""

Times = dict[tuple[str, str], list[float]]
"""Durations of runs by case and side, seconds."""


def affordable(request: Request) -> tuple[int, ...]:
    """Return after how many pairs a decision is tried, where no more than `request` allows are run.

    Raises
    ------
    UsageError
        They are too few to decide by, or fewer than are asked for at once.
    """
    if request.max_pairs < LOOKS[0]:
        raise UsageError(f"--max-pairs {request.max_pairs}: at least {LOOKS[0]} are needed to decide")
    if request.pairs and request.pairs > request.max_pairs:
        raise UsageError(f"--pairs {request.pairs} is more than --max-pairs {request.max_pairs} allows")
    # Where a second look is not allowed, a single one decides by all pairs.
    single = request.max_pairs < LOOKS[1]
    return (request.max_pairs,) if single else tuple(look for look in LOOKS if look <= request.max_pairs)


def following(job: Qualification, session: Session, judged: Judged) -> list[Round]:
    """Return the rounds that bring the pairs that are still needed, checks with the same need together."""
    if judged.verdict is None:
        return []
    checks, rotations = checks_of(session.runs), _rotations(job)
    failed = {failure.check for failure in session.failures}
    ranges: dict[str, tuple[int, int]] = {}
    for need in judged.verdict.needs:
        check = checks[need.series]
        rotation = rotations[check]
        # A check that failed outright would fail again, and what it has can be judged no further.
        if check in failed or not rotation.places:
            continue
        first = math.ceil(need.first / rotation.width)
        last = first + math.ceil((need.last - need.first + 1) / rotation.places) - 1
        if last >= job.request.max_pairs * 2:
            continue
        known = ranges.get(check, (first, last))
        ranges[check] = (min(first, known[0]), max(last, known[1]))
    return _rounds(session, ranges)


def _rotations(job: Qualification) -> dict[str, Rotation]:
    """Return by check among how many places its runs rotate; one of a check that is not listed."""
    nodes = _nodes(job.log.directory)
    return defaultdict(Rotation, {check: job.rotation(count) for check, count in nodes.items()})


def count_unfinished_turns(job: Qualification, session: Session, part: Round) -> dict[str, int]:
    """Return by check how many turns of a round are not whole; those of checks that failed are not wanted."""
    features, nodes = job.has
    here = [entry for entry in catalogue.read(job.log.directory / catalogue.FILE) if entry.paired]
    here = [entry for entry in here if entry.can_run(features, nodes)]
    failed, rotations = {failure.check for failure in session.failures}, _rotations(job)
    found = {}
    for check in sorted({*(part.checks or asked(job.request, here))} - failed):
        rotation = rotations[check]
        turns = Counter(turn for turn in _turns(session, check, rotation) if turn >= part.first)
        whole = sum(runs >= 2 * rotation.places for runs in turns.values())
        if (left := part.last - part.first + 1 - whole) > 0:
            found[check] = left
    return found


def _turns(session: Session, check: str, rotation: Rotation) -> list[int]:
    """Return the turn of each run of a check."""
    return [rotation.divided(run.pair)[0] for run in session.runs if run.check == check]


def cut_off(job: Qualification, session: Session, part: Round) -> list[Round]:
    """Return the rounds that bring the pairs that a round was cut off from, now or before a resumption.

    Nothing that was finished is run again. A pair of which one run was finished gets a new number with both
    its runs, since the runs of a pair follow each other; where runs rotate, so does a turn.
    """
    rotations = _rotations(job)
    ranges: dict[str, tuple[int, int]] = {}
    for check, left in count_unfinished_turns(job, session, part).items():
        first = max([*_turns(session, check, rotations[check]), part.first - 1]) + 1
        ranges[check] = (first, first + left - 1)
    return _rounds(session, ranges)


def find_too_large(job: Qualification, checks: Iterable[str]) -> dict[str, int]:
    """Return those of some checks that take more nodes than are left where runs rotate, and how many."""
    nodes, rotations = _nodes(job.log.directory), _rotations(job)
    return {check: nodes[check] for check in checks if not rotations[check].places}


def _rounds(session: Session, ranges: Mapping[str, tuple[int, int]]) -> list[Round]:
    """Return the rounds that bring each check its range of pairs, numbered from the session's next one."""
    groups: dict[tuple[int, int], list[str]] = defaultdict(list)
    for check, span in ranges.items():
        groups[span].append(check)
    return [
        Round(number=len(session.rounds) + number, first=first, last=last, checks=tuple(checks))
        for number, ((first, last), checks) in enumerate(sorted(groups.items()), 1)
    ]


class Durations(NamedTuple):
    """How long runs took, and what that depends on.

    Attributes
    ----------
    times
        Seconds by case and side.
    nodes
        How many nodes of a side each case takes.
    """

    times: Times
    nodes: dict[str, int]

    def of(self, turns: int, rotated: held.Nodes) -> float:
        """Return how long so many turns of all cases take, seconds, among the nodes that runs rotate over."""

        def at_a_time(check: str) -> float:
            """Return how many of its runs each side has in a turn, of those that are not at the same time."""
            nodes = self.nodes.get(check, 1)
            # Where nodes work at once, two cases take turns on them: one natively while the other is in VMs.
            return 0.5 if nodes == 1 and rotated else held.places_among(rotated, nodes)

        # ReFrame's start, and a second around each job.
        runs = ((statistics.median(took) + 1) * at_a_time(check) for (check, _), took in self.times.items())
        return 5 + turns * sum(runs)


def expected(job: Qualification, session: Session, checks: Sequence[str], turns: int) -> float | None:
    """Return how long a round should take, seconds, from runs that there were; None if there were none."""
    times = _times([run for run in session.runs if not checks or run.check in checks])
    known = Durations(times, _nodes(job.log.directory)) if times else earlier(job.request, session.system)
    return known.of(turns, job.rotated) if known.times else None


def earlier(request: Request, system: str) -> Durations:
    """Return how long runs of the cases that are asked for took when they were last run."""
    cases: set[str] | None = None
    found = Durations({}, {})
    for directory, summary in islice(summaries(paths.sessions()), RECENT):
        # A session of another version would only tell how long a run may take.
        if not isinstance(summary, Summary) or summary.system != system or not summary.runs:
            continue
        try:
            entries = catalogue.read(directory / catalogue.FILE)
        except UsageError:
            continue
        if cases is None:
            cases = asked(request, entries)
        times = {
            (case, side): [seconds]
            for case, durations in summary.durations.items()
            if case in cases
            for side, seconds in durations.medians.items()
        }
        found = Durations(times | found.times, {entry.case: entry.nodes for entry in entries} | found.nodes)
    return found


def _nodes(directory: Path) -> dict[str, int]:
    return {entry.case: entry.nodes for entry in catalogue.read(directory / catalogue.FILE)}


def asked(request: Request, entries: Iterable[catalogue.Entry]) -> set[str]:
    """Return the cases that are asked for, as runs name them."""
    chosen = catalogue.select(entries, request.names, request.tags)
    return set(catalogue.cases_of(chosen, "full" if request.full else "quick"))


def _times(runs: Iterable[Run]) -> Times:
    times: Times = defaultdict(list)
    for run in runs:
        times[run.check, run.side].append(run.end - run.start)
    return dict(times)
