"""What an interruption cuts off says nothing of the build; what is lost with a node may."""

from datetime import UTC, datetime

import pytest

from made_runs import made_failure, made_run, session_of
from virtqual.runs import Result
from virtqual.session import judge
from virtqual.session.lost import find_explained_pairs
from virtqual.session.session import Basis, Loss, Resumption, Round


def cut_session(node_lost, lost=()):
    """Turns on four places; the third was cut off, where two more VMs than hosts lack, and is run again."""
    half = {(8, "native"), (9, "native"), (10, "native"), (11, "virtual")}
    runs = []
    for pair in range(20):
        sides = ("native", "virtual") if pair % 2 else ("virtual", "native")
        for place, side in enumerate(sides):
            if pair // 4 == 2 and (pair, side) not in half:
                continue
            start, node = 100.0 * (pair // 4) + 10.0 * place, f"{side}-{pair % 4}"
            value = 1.0 + 0.001 * (pair % 3)
            runs.append(
                made_run(
                    side,
                    pair,
                    turn=pair // 4,
                    start=start,
                    end=start + 9.0,
                    seconds=8.0,
                    nodes=(node,),
                    hosts={node: f"host of {node}"},
                    results=(Result.scalar("npb_is", "is", value + 1e-7 * len(runs)),),
                )
            )
    rounds = [Round(number=1, first=0, last=3), Round(number=2, first=3, last=4, checks=("case",))]
    time = datetime.fromtimestamp(290, UTC).isoformat(timespec="seconds")
    resumed = [Resumption(time=time, ended="whatever it said", node_lost=node_lost)]
    return session_of(runs, rounds=rounds, resumed=resumed, lost=list(lost))


CUT_OFF = {"case": frozenset({8, 9, 10, 11})}


@pytest.mark.parametrize(
    ("node_lost", "lost", "explained", "virtual_lost"),
    [
        # Three virtual runs and one native one were cut off by Ctrl-C, and the session was undecided.
        (False, (), CUT_OFF, 0),
        # Which node was lost is unknown: the missing runs count, neighbours on a machine once.
        (True, (), {}, 2),
        # What counts is the node that was lost.
        (False, [Loss(round=1, nodes={"virtual-3": "it died"})], CUT_OFF, 1),
    ],
    ids=["Ctrl-C", "a node ended the session", "a node was lost before"],
)
def test_pairs_that_were_cut_off_count_only_if_a_node_was_lost(node_lost, lost, explained, virtual_lost):
    session = cut_session(node_lost, lost)
    assert find_explained_pairs(session) == explained
    slow = judge.judge(session).verdict.slow_runs
    assert slow.virtual_lost == virtual_lost
    not_counted = [(run.pair, run.side) for run in slow.lost if not run.counts]
    sides = ["virtual", "virtual", "virtual", "native"]
    assert not_counted == (list(zip(range(8, 12), sides, strict=True)) if explained else [])


def test_a_round_runs_its_turns_from_the_first_to_the_last():
    part = Round(number=1, first=2, last=4)
    assert [turn for turn in range(1, 6) if turn in part] == [2, 3, 4]


def test_a_run_after_the_last_interruption_was_not_cut_off():
    session = cut_session(node_lost=False)
    late = {"pair": 40, "turn": 4, "start": 1000.0, "end": 1009.0}
    session.runs.append(session.runs[0].model_copy(update=late))
    assert find_explained_pairs(session) == CUT_OFF


def _failed(state):
    return made_failure(kind="infrastructure", state=state)


@pytest.mark.parametrize(
    ("failures", "basis", "node_lost"),
    [
        ([], None, False),
        ([_failed("PREEMPTED")], None, False),
        ([_failed("NODE_FAIL")], None, True),
        # Sentences do not decide: these two states were not found in the conclusion.
        ([_failed("LAUNCH_FAILED")], None, True),
        ([_failed("BOOT_FAIL")], None, True),
        ([], {"interrupted": True}, False),
        ([], {"broken": ("Slurm says that node_lost is true",)}, False),
        ([], {"broken": ("node vm2 is down",), "node_lost": True}, True),
    ],
)
def test_what_ended_a_session_is_stored_and_not_read_from_its_conclusion(failures, basis, node_lost):
    session = session_of([], failures=failures)
    session.basis = basis and Basis(runs="", looks=(4,), **basis)
    assert session.node_lost == node_lost
