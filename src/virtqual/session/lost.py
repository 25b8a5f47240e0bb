"""The runs of a session that left no value: which are evidence against a side, and which are not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime

from virtqual.runs import Run
from virtqual.session.session import Failure, Session
from virtqual.verdict.pairs import SIDES, Side
from virtqual.verdict.slow_runs import LostRun

#: Slurm's states of jobs that somebody, or a job of more importance, ended.
ENDED_BY_OTHERS = frozenset(["CANCELLED", "PREEMPTED", "REVOKED"])
HOST_FAILED = "; its host failed, too"


def list_refusing_failures(session: Session) -> list[Failure]:
    """Return the failures because of which nothing of their checks may be judged.

    Another run of the check may end well, unless none ever did on that side, the run never began, or the
    hardware is not proven.
    """
    has_run = {(run.check, run.side) for run in session.runs}
    return [
        failure
        for failure in session.failures
        if failure.kind in ("infrastructure", "reference")
        or not failure.job
        or (failure.check, failure.side) not in has_run
    ]


def list_lost_runs(session: Session) -> list[LostRun]:
    """Return the runs that left nothing, of checks that may be judged, and the nodes that were lost.

    A run that was preempted, cancelled or cut off does not count, nor does a node whose host failed, too.
    """
    refusing = list_refusing_failures(session)
    nodes, explained = _Nodes(session), find_explained_pairs(session)
    lost = [nodes.describe(failure, None) for failure in session.failures if failure not in refusing]
    lost += [nodes.describe(failure, number) for number, failure in session.cut_off]
    lost += nodes.list_lost()
    failed = {(run.of, run.pair, run.side) for run in lost}
    lost += [
        LostRun(side=side, of=check, pair=pair, reason="the session ended before it did", counts=False)
        for check, pair, side in _list_halves(session)
        if pair in explained.get(check, ()) and (check, pair, side) not in failed
    ]
    return lost


def find_explained_pairs(session: Session) -> dict[str, frozenset[int]]:
    """Return by check the numbers of the pairs with one run of which it is known why the other is missing.

    It failed, or the session ended or lost a node before it had ended; the pair is run again under another
    number.
    """
    failed = {(failure.check, failure.pair, failure.side) for failure in session.failures}
    failed |= {(failure.check, failure.pair, failure.side) for _, failure in session.cut_off}
    runs = {(run.check, run.pair): run for run in session.runs}
    explained: dict[str, set[int]] = defaultdict(set)
    for check, pair, side in _list_halves(session):
        if (check, pair, side) in failed or _is_cut_off(session, runs[check, pair]):
            explained[check].add(pair)
    return {check: frozenset(pairs) for check, pairs in explained.items()}


def _list_halves(session: Session) -> Iterator[tuple[str, int, Side]]:
    """Yield check, number and missing side of the pairs that have one run."""
    sides: dict[tuple[str, int], list[Side]] = defaultdict(list)
    for run in session.runs:
        sides[run.check, run.pair].append(run.side)
    for (check, pair), (side, *others) in sides.items():
        if not others:
            yield check, pair, SIDES[side == "native"]


def _is_cut_off(session: Session, run: Run) -> bool:
    """Return whether the session ended, or lost a node, in the round of a run, and what it lost is known."""
    turn = run.pair if run.turn is None else run.turn
    rounds = [part for part in session.rounds if run.check in (part.checks or (run.check,)) and turn in part]
    if rounds and rounds[-1].number in {loss.round for loss in session.lost}:
        return True
    # The times of resumptions are in whole seconds.
    ends = (r for r in session.resumed if datetime.fromisoformat(r.time).timestamp() + 1 >= run.end)
    if (end := next(ends, None)) is None:
        return False
    return not end.node_lost or bool(end.nodes) or any(f.node_lost for _, f in session.cut_off)


class _Nodes:
    """The nodes of a session: their sides, their hosts, and which were lost in one round."""

    def __init__(self, session: Session) -> None:
        self._of: dict[str, tuple[Side, str]] = {
            node: (run.side, run.hosts.get(node, "")) for run in session.runs for node in run.nodes
        }
        #: By round the nodes that a failure names as lost, and all that were lost, with the reasons.
        self._named: dict[int, set[str]] = defaultdict(set)
        self._lost: dict[int, dict[str, str]] = defaultdict(dict)
        for number, failure in session.cut_off:
            if failure.node_lost:
                self._named[number].update(failure.nodes)
                self._lost[number].update(dict.fromkeys(failure.nodes, failure.reason))
        for number, lost_nodes in (
            *((loss.round, loss.nodes) for loss in session.lost),
            *((end.round, end.nodes) for end in session.resumed),
        ):
            self._lost[number].update(lost_nodes)

    def _failed_hosts(self, number: int) -> set[str]:
        """Return the hosts of which a round lost the native node and a virtual one."""
        hosts: dict[Side, set[str]] = {side: set() for side in SIDES}
        for side, host in (self._of[node] for node in self._lost.get(number, ()) if node in self._of):
            hosts[side].add(host)
        return set.intersection(*hosts.values()) - {""}

    def describe(self, failure: Failure, number: int | None) -> LostRun:
        """Return a failure as a lost run; one that round `number` cut off counts if its node was lost."""
        hosts = {self._of[node][1] for node in failure.nodes if node in self._of} - {""}
        reason, counts = failure.reason, failure.state not in ENDED_BY_OTHERS
        if number is not None:
            has_failed = bool(hosts & self._failed_hosts(number))
            reason += HOST_FAILED * has_failed
            counts = failure.node_lost and not has_failed
        return LostRun(
            side=failure.side,
            of=failure.check,
            pair=None if failure.warm_up else failure.pair,
            reason=reason,
            start=failure.start,
            end=failure.end,
            node="+".join(sorted(failure.nodes)),
            host="+".join(sorted(hosts)),
            counts=counts,
        )

    def list_lost(self) -> Iterator[LostRun]:
        """Yield the nodes that were lost, but for those that a failure names."""
        for number, nodes in self._lost.items():
            for node in nodes.keys() - self._named.get(number, set()):
                # Of a node without any run it is unknown whether it is native.
                side, host = self._of.get(node, ("virtual", ""))
                has_failed = host in self._failed_hosts(number)
                reason = nodes[node] + HOST_FAILED * has_failed
                yield LostRun(side=side, of="", reason=reason, node=node, host=host, counts=not has_failed)
