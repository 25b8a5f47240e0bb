"""Which pairs of which checks come next, and how long they should take."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

from virtqual import paths
from virtqual.errors import UsageError
from virtqual.qualify.state import Qualification, Request
from virtqual.runs import Run
from virtqual.session.judge import Judged
from virtqual.session.pairing import checks_of
from virtqual.session.session import Round, Session
from virtqual.session.store import readable
from virtqual.verdict.rule import LOOKS


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
    checks = checks_of(session.runs)
    failed = {failure.check for failure in session.failures}
    ranges: dict[str, tuple[int, int]] = {}
    for need in judged.verdict.needs:
        check = checks[need.series]
        # A check that failed outright would fail again, and what it has can be judged no further.
        if check in failed or need.last >= job.request.max_pairs * 2:
            continue
        first, last = ranges.get(check, (need.first, need.last))
        ranges[check] = (min(first, need.first), max(last, need.last))
    groups: dict[tuple[int, int], list[str]] = defaultdict(list)
    for check, span in ranges.items():
        groups[span].append(check)
    return [
        Round(number=len(session.rounds) + number, first=first, last=last, checks=tuple(checks))
        for number, ((first, last), checks) in enumerate(sorted(groups.items()), 1)
    ]


def expected(job: Qualification, session: Session, checks: Sequence[str], pairs: int) -> float | None:
    """Return how long a round should take, seconds, from runs that there were; None if there were none."""
    history = [run for run in _history(session) if not checks or run.check in checks]
    by_case: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in history:
        by_case[run.check, run.side].append(run.end - run.start)
    if not by_case:
        return None
    # ReFrame's start, and a second around each job.
    return 5 + pairs * sum(statistics.median(times) + 1 for times in by_case.values())


def _history(session: Session) -> Sequence[Run]:
    if session.runs:
        return session.runs
    for _, earlier in readable(paths.sessions()):
        # A session of another version would only tell how long a run may take.
        if isinstance(earlier, Session) and earlier.system == session.system and earlier.runs:
            return earlier.runs
    return ()
