"""RDMA in VMs of a machine whose native nodes have none: what is judged, and what is refused."""

import pytest

from made_runs import made_run, session_of
from virtqual.preflight.software import other_software
from virtqual.references.load import known
from virtqual.runs import Result
from virtqual.session.judge import judge
from virtqual.session.pairing import series_of
from virtqual.stack.same import LoadedFile, Seen
from virtqual.verdict import Outcome, message, record_of

WHY = "the native partition has no 'rdma'"
SIZES = (2.0, 64.0, 1024.0)
NOISE = (1.0, 1.02, 0.99, 1.01, 0.98, 1.0, 1.02, 0.99, 1.01, 0.98, 1.0, 1.0)


def run(
    pair, side, start, *, us=300.0, work=0.5, instead=WHY, python="a", rdma="b", name="recurrence-1", day=0.0
):
    native = side == "native"
    time = Result.scalar("yardstick_time", name, work * NOISE[-pair])
    curve = Result(
        metric="rdma_write_latency",
        setting="two nodes, Ethernet, MTU 1024",
        points=SIZES,
        # No two runs print the same to the last digit.
        values=tuple(us * (NOISE[pair] + 1e-4 * pair + day) * (1 + size / 1e4) for size in SIZES),
    )
    program, sha = ("/usr/bin/python3", python) if native and instead else ("/usr/bin/ib_write_lat", rdma)
    seen = Seen(
        node="n",
        program=program,
        files={"binary": LoadedFile(path=program, sha256=sha)},
        says={},
        coretype="",
        cpu=frozenset(),
    )
    return made_run(
        side,
        pair,
        start=start,
        end=start + 5,
        results=(time if native and instead else curve,),
        software=(seen,),
        instead=instead if native else "",
    )


def runs(pairs, **made):
    """Runs of one session, in alternating order."""
    order = [
        (k, side) for k in range(pairs) for side in (("native", "virtual"), ("virtual", "native"))[k % 2]
    ]
    return [run(pair, side, 1000.0 + 10 * i, **made) for i, (pair, side) in enumerate(order)]


def earlier(pairs, **made):
    return session_of(runs(pairs, day=1e-5, **made), "emulated", "e")


def judged(runs, hypervisor_class="emulated", against=None):
    return judge(session_of(runs, hypervisor_class), earlier=against).verdict


def test_the_first_session_records_the_virtual_side():
    (verdict,) = judged(runs(4)).verdicts
    assert verdict.outcome is Outcome.BASELINE
    assert (verdict.native, verdict.overhead, verdict.judged) == (None, None, None)
    assert 300 < verdict.virtual < 330
    assert "baseline recorded, virtual side alone; native not observable, virtual 3" in message(verdict)
    assert message(verdict).endswith(f"native not observable: {WHY}")


def test_where_the_overhead_is_the_gate_it_is_invalid():
    """And stays so beside a change that is within: no overhead was shown."""
    (verdict,) = judged(runs(4), "kvm").verdicts
    assert verdict.outcome is Outcome.INVALID
    assert f"native not observable: {WHY}" in verdict.reasons
    session = judged(runs(12), "kvm", against=earlier(12))
    assert [(one.gate, one.outcome) for one in session.verdicts] == [
        ("overhead", Outcome.INVALID),
        ("change", Outcome.WITHIN),
    ]
    assert session.outcome is Outcome.INVALID


@pytest.mark.parametrize(("us", "outcome"), [(300.0, Outcome.WITHIN), (600.0, Outcome.OVER)])
def test_a_later_build_is_judged_by_its_own_runs(us, outcome):
    session = judged(runs(12, us=us), against=earlier(12))
    (verdict,) = session.verdicts
    assert verdict.outcome is outcome
    assert verdict.change.ratio(verdict.metric)[0] == pytest.approx(us / 300, rel=0.02)
    assert "change of the virtual side alone since the earlier session" in message(verdict)
    assert "native not observable, virtual" in message(verdict)
    assert record_of(verdict).points[0].native is None


def test_the_yardstick_is_no_part_of_the_change():
    """Within what is allowed, a faster machine makes no build faster: nothing is divided out."""
    before = earlier(12)
    (one,), (other,) = (judged(runs(12, work=work), against=before).verdicts for work in (0.5, 0.49))
    assert one.change == other.change


@pytest.mark.parametrize(
    ("now", "says"),
    [
        ({"work": 0.6}, "preflight: node-speed: native nodes took 0.6 s for the same work, 0.5 s"),
        ({"work": 0.42}, "0.84x, and 5% are allowed"),
        ({"python": "c"}, "the work was not the same: binary: /usr/bin/python3"),
        ({"name": "recurrence-2"}, "yardstick_time@recurrence-1 and yardstick_time@recurrence-2"),
        ({"instead": ""}, "native could be observed in one of both sessions only"),
    ],
)
def test_another_machine_day_is_refused(now, says):
    """A slower machine is not taken for a slower build, nor a faster one for a build that passes."""
    (verdict,) = judged(runs(12, us=600.0, **now), against=earlier(12)).verdicts
    assert verdict.outcome is Outcome.INVALID
    assert says in "; ".join(verdict.reasons)


def test_a_run_without_yardstick_beside_it_does_not_count():
    left = [one for one in runs(4) if (one.pair, one.side) != (2, "native")]
    (verdict,) = judged(left).verdicts
    assert verdict.reasons[0] == "pair 2 left out: no native run"


def test_a_yardstick_is_no_other_software():
    assert list(other_software(runs(2))) == []
    other = run(1, "virtual", 2000.0).model_copy(update={"software": runs(1)[0].software})
    assert "not the same software" in next(other_software([*runs(1), other]))[1]


def test_series_of_yardsticks_are_not_judged():
    assert list(series_of(runs(2), known())) == ["rdma_write_latency@two nodes, Ethernet, MTU 1024"]


def test_another_program_is_not_taken_for_a_slower_hypervisor():
    """No native run of that program cancels what another version of it does."""
    (verdict,) = judged(runs(12, us=600.0, rdma="c"), against=earlier(12)).verdicts
    assert verdict.outcome is Outcome.INVALID
    assert "not the earlier session's software" in message(verdict)
