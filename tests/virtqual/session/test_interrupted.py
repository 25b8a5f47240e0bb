"""What an interruption cuts off says nothing of the build; what is lost with a node may."""

from datetime import UTC, datetime

import pytest

from made_runs import made_run, session_of
from virtqual.runs import Result
from virtqual.session import judge
from virtqual.session.session import Loss, Resumption, Round

INTERRUPTED = "Interrupted: what was measured is kept, nothing is concluded from it."
KILLED = "It ended before anything was concluded."
CANCELLED = "Infrastructure failed, so nothing is concluded: Slurm says that allocation 7 is CANCELLED."
NODE = "Infrastructure failed, so nothing is concluded: node vm2 is down: host died."


def cut_session(ended, lost=()):
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
    resumed = [Resumption(time=time, ended=ended)]
    return session_of(runs, rounds=rounds, resumed=resumed, lost=list(lost))


@pytest.mark.parametrize("ended", [INTERRUPTED, KILLED, CANCELLED])
def test_pairs_that_an_interruption_cut_off_leave_the_verdict_as_it_is(ended):
    """Three virtual runs and one native one were cut off by Ctrl-C, and the session was undecided."""
    session = cut_session(ended)
    assert judge.interrupted(session) == {"case": frozenset({8, 9, 10, 11})}
    (verdict,) = judge.judge(session).verdict.verdicts
    assert not [why for why in verdict.reasons if "might decide" in why]


@pytest.mark.parametrize(
    ("ended", "lost"), [(NODE, ()), (INTERRUPTED, [Loss(round=1, nodes={"vm2": "it died"})])]
)
def test_what_is_missing_since_a_node_was_lost_may_be_the_slow_one(ended, lost):
    session = cut_session(ended, lost)
    assert judge.interrupted(session) == {}
    (verdict,) = judge.judge(session).verdict.verdicts
    assert [
        why for why in verdict.reasons if "3 virtual runs were refused or left nothing, and 1 native" in why
    ]
