"""The pairs of the checks that come next, and how long they should take."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from virtqual.errors import UsageError
from virtqual.files.wording import Range
from virtqual.harness import catalogue, repetitions
from virtqual.harness.catalogue import Entry
from virtqual.qualify.state import Qualification
from virtqual.runs import Run
from virtqual.session.judge import Judged, choose_min_pairs
from virtqual.session.lost import list_refusing_failures
from virtqual.session.pairing import checks_of
from virtqual.session.session import Request, Round, Session
from virtqual.session.summary import durations_of, find_recent
from virtqual.site import held
from virtqual.site.held import Rotation
from virtqual.site.systems import System
from virtqual.verdict.alternation import choose_order, list_standard_order
from virtqual.verdict.budget import HypervisorClass
from virtqual.verdict.pairs import SIDES, Side
from virtqual.verdict.rule import LOOKS, MIN_BOOTS, MIN_PAIRS_TO_QUALIFY

#: Turns of each boot, but for the last of `MIN_BOOTS`: four pairs have two boots, six have three.
TURNS_OF_BOOT = 2
#: Seconds that ReFrame takes to start, and that a run takes beside its job.
REFRAME_START_S, RUN_OVERHEAD_S = 5, 1
#: Time that Slurm, and the notes before and after the program, add to a run that was never measured.
MAX_START_S = 5.0


class _Turns(NamedTuple):
    """The first and the last turn that a check needs, and which side runs first in each."""

    first: int
    last: int
    order: str


def check_pairs(request: Request) -> None:
    """Refuse numbers of pairs that cannot decide, or contradict each other."""
    if request.max_pairs < MIN_PAIRS_TO_QUALIFY:
        raise UsageError(
            f"--max-pairs {request.max_pairs}: at least {MIN_PAIRS_TO_QUALIFY} are needed to decide"
        )
    if request.pairs and request.pairs > request.max_pairs:
        raise UsageError(f"--pairs {request.pairs} is more than --max-pairs {request.max_pairs} allows")


def look_schedule(request: Request, chosen: HypervisorClass) -> tuple[tuple[int, ...], int]:
    """Return the numbers of pairs after which a decision is tried, and the number of the first round."""
    least, most = choose_min_pairs(chosen, fast=request.fast), request.max_pairs
    looks = tuple(look for look in LOOKS if look <= most)
    # If a second look that can pass a metric is not allowed, a single one decides by all pairs.
    if sum(look >= least for look in looks) < 2:
        looks = (most,)
    return looks, request.pairs or max(least, looks[0])


def plan_next_rounds(job: Qualification, session: Session, judged: Judged) -> list[Round]:
    """Return the rounds that bring the pairs that are still needed, checks with the same need together.

    Says why it leaves out what is needed, once no round is left.
    """
    if judged.verdict is None:
        return []
    checks = checks_of(session.runs)
    ranges: dict[str, _Turns] = {}
    left_out: dict[str, str] = {}
    failing = find_failing_checks(session)
    for need in judged.verdict.needs:
        check = checks[need.series]
        rotation = _find_rotation(job, check)
        if not rotation.places:
            left_out[check] = "it takes more nodes than are left"
        elif check in failing:
            left_out[check] = "its warm-up was lost twice in a row"
        else:
            first = max(math.ceil(need.first / rotation.width), _find_next_turn(session, check, rotation))
            last = first + math.ceil((need.last - need.first + 1) / rotation.places) - 1
            # The judge counts rounds of a rotation, which are turns.
            if last >= job.request.max_pairs * 2:
                left_out[check] = "too many of its pairs do not count"
                continue
            turns = _Turns(first, last, need.order if rotation.width == 1 else "")
            # The metrics of a check may need different pairs.
            ranges[check] = max(ranges.get(check, turns), turns, key=lambda turns: turns.last)
    if left_out and not ranges:
        reasons = "; ".join(f"{check} ({reason})" for check, reason in left_out.items())
        job.screen.note(f"no more pairs, although undecided: {reasons}")
    return divide_among_boots(job, session, _make_rounds(session, ranges))


def find_failing_checks(session: Session) -> set[str]:
    """Return the checks whose warm-up was lost twice on one side, with no run of the check between or since.

    No pair follows a lost warm-up: without an end the same pairs would be asked for again and again.
    """
    ended: dict[str, float] = defaultdict(float)
    for run in session.runs:
        ended[run.check] = max(ended[run.check], run.end)
    lost = Counter(
        (failure.check, failure.side)
        for failure in session.failures
        if failure.warm_up and failure.end is not None and failure.end > ended[failure.check]
    )
    return {check for (check, _), times in lost.items() if times > 1}


def divide_among_boots(job: Qualification, session: Session, rounds: Sequence[Round]) -> list[Round]:
    """Return rounds that are short until the session has `MIN_BOOTS` boots, if VMs can be created anew."""
    if not job.system.virtual_extras.recreate_vms:
        return list(rounds)
    boots = bool(session.rounds) + sum(part.recreated is not None for part in session.rounds)
    divided = []
    for part in rounds:
        first, order = part.first, part.order
        while boots + 1 < MIN_BOOTS and part.last - first >= TURNS_OF_BOOT:
            last, of_boot = first + TURNS_OF_BOOT - 1, order[:TURNS_OF_BOOT]
            divided.append(part.model_copy(update={"first": first, "last": last, "order": of_boot}))
            first, order, boots = last + 1, order[TURNS_OF_BOOT:], boots + 1
        divided.append(part.model_copy(update={"first": first, "order": order}))
        boots += 1
    return divided


def _find_rotation(job: Qualification, case: str) -> Rotation:
    """Return the rotation of a case's runs; that of one place for a case that is not listed."""
    return next((job.rotation(entry.nodes) for entry in job.entries if entry.case == case), Rotation())


def list_unfinished_turns(job: Qualification, session: Session, part: Round) -> dict[str, str]:
    """Return by check the order of the turns of a round that are not complete, without refused checks."""
    failed, unfinished = {failure.check for failure in list_refusing_failures(session)}, {}
    checks = part.checks or [entry.case for entry in _list_fit(job)]
    for check in sorted({*checks} - failed):
        rotation, runs = _find_rotation(job, check), defaultdict[int, list[Run]](list)
        for run in session.runs:
            if run.check == check and (turn := rotation.divided(run.pair)[0]) >= part.first:
                runs[turn].append(run)
        complete = [of_turn for of_turn in runs.values() if len(of_turn) >= 2 * rotation.places]
        done = [min(of_turn, key=attrgetter("start")).side[0].upper() for of_turn in complete]
        planned = part.order or list_standard_order(part.first, part.last)
        if missing := choose_order(planned, done, len(planned) - len(done)):
            unfinished[check] = missing
    return unfinished


def _list_fit(job: Qualification) -> list[Entry]:
    """Return the checks on both sides that were requested and can run in the session."""
    selected = catalogue.select(job.entries, job.request.names, job.request.tags)
    return [e for e in selected if e.paired and not e.explain_unfit(*job.capacity)]


def _find_next_turn(session: Session, check: str, rotation: Rotation) -> int:
    """Return the turn after all turns of which a run of a check ended, well or not."""
    failures = (failure for failure in session.failures if failure.check == check and not failure.warm_up)
    pairs = [run.pair for run in session.runs if run.check == check]
    pairs += [failure.pair for failure in failures if failure.job]
    return max((rotation.divided(pair)[0] for pair in pairs), default=-1) + 1


def repeat_warm_ups(job: Qualification, session: Session) -> list[Round]:
    """Return a round for the checks of which nothing was run, since a warm-up was lost, and no other one was.

    A program that cannot start at all fails again.
    """
    warm_ups = [failure for failure in session.failures if failure.warm_up and failure.job]
    times = Counter((failure.check, failure.side, failure.pair) for failure in warm_ups)
    given_up = {failure.check for failure in session.failures if not (failure.warm_up and failure.job)}
    given_up |= {run.check for run in session.runs} | {key[0] for key, count in times.items() if count > 1}
    again = sorted({failure.check for failure in warm_ups} - given_up)
    turns = dict.fromkeys(again, _Turns(0, job.first_pairs - 1, ""))
    return divide_among_boots(job, session, _make_rounds(session, turns))


def repeat_unfinished(job: Qualification, session: Session, part: Round) -> list[Round]:
    """Return the rounds that bring the pairs that a round was cut off from, now or before a resumption.

    Nothing that was finished is run again.  A pair of which one run was finished gets a new number with both
    its runs, since the runs of a pair follow each other; if runs rotate, so does a turn.  The pairs keep
    their order.
    """
    ranges: dict[str, _Turns] = {}
    for check, order in list_unfinished_turns(job, session, part).items():
        rotation = _find_rotation(job, check)
        first = max(_find_next_turn(session, check, rotation), part.first)
        ranges[check] = _Turns(first, first + len(order) - 1, order if rotation.width == 1 else "")
    return _make_rounds(session, ranges)


def list_not_run(job: Qualification) -> tuple[list[str], list[str]]:
    """Return the requested checks that cannot run, by reason, and the cases for which nodes did not work.

    The cases take more nodes than could run jobs when the session began, but no more than are stated.
    """
    selected = catalogue.select(job.entries, job.request.names, job.request.tags)
    (features, nodes), stated = job.capacity, job.system.nodes
    too_large = [e.case for e in selected if e.nodes > nodes and not e.explain_unfit(features, stated)]
    return catalogue.group_missing(selected, features, nodes), too_large


def _make_rounds(session: Session, ranges: Mapping[str, _Turns]) -> list[Round]:
    """Return the rounds that bring each check its range of turns, numbered from the session's next one."""
    groups: dict[_Turns, list[str]] = defaultdict(list)
    for check, turns in ranges.items():
        groups[turns].append(check)
    return [
        Round(number=len(session.rounds) + number, checks=tuple(checks), **turns._asdict())
        for number, (turns, checks) in enumerate(sorted(groups.items()), 1)
    ]


class PlannedCase(NamedTuple):
    """A case that is to run, on so many nodes of each side."""

    name: str
    nodes: int
    #: How long its last runs took on each side, s.
    seconds: Mapping[Side, float]
    #: How long its program takes on a side on which it was never run, s.
    assumed_s: Range


def plan_cases(entries: Iterable[Entry], system: System, session: Session | None = None) -> list[PlannedCase]:
    """Return the cases of some checks, with the times of this session or of the latest one that ran them."""
    durations = durations_of(session) if session else {}
    for summary in find_recent(system.name):
        durations = summary.durations | durations
    scale, cases = system.native_extras.scale, []
    aim = repetitions.choose_aim(scale, system.native_extras.run_seconds)
    for entry in entries:
        seconds = durations[entry.case].medians if entry.case in durations else {}
        assumed = Range(*entry.run_seconds.get(scale, (aim, aim * repetitions.MAX_SLOWER)))
        cases.append(PlannedCase(entry.name, entry.nodes, seconds, assumed))
    return cases


def estimate_turns(cases: Sequence[PlannedCase], turns: int, rotated: held.Nodes) -> Range:
    """Return how long so many turns of all cases take, s."""

    def add_up(assumed: Callable[[Range], float]) -> float:
        total, longest_pair = 0.0, 0.0
        busy: Counter[Side] = Counter()
        for case in cases:
            times = {side: case.seconds.get(side, assumed(case.assumed_s)) + RUN_OVERHEAD_S for side in SIDES}
            if case.nodes == 1 and rotated:
                # Nodes work at once: one case runs natively while another runs in VMs.
                busy.update(times)
                longest_pair = max(longest_pair, sum(times.values()))
            else:
                total += held.count_places(rotated, case.nodes) * sum(times.values())
        total += max(longest_pair, *busy.values(), 0.0)
        return REFRAME_START_S + turns * total if cases else 0.0

    return Range(add_up(lambda s: s.low), add_up(lambda s: s.high + MAX_START_S - RUN_OVERHEAD_S))


def estimate_round(job: Qualification, session: Session, checks: Sequence[str], turns: int) -> Range:
    """Return how long a round of some checks, or of all that were requested, should take, s."""
    entries = [entry for entry in _list_fit(job) if not checks or entry.case in checks]
    return estimate_turns(plan_cases(entries, job.system, session), turns, job.rotated)
