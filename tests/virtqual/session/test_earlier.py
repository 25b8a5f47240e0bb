"""The earlier session that a build is held against: which one it is, and what makes it none."""

import pytest
from made_runs import made_run

from virtqual.errors import UsageError
from virtqual.runs import Answer, Result
from virtqual.session import earlier, judging
from virtqual.session.store import Failure, Session
from virtqual.verdict import Outcome


def runs(pairs=4, energy=-5.0, metric="lammps_loop_time", **more):
    """Runs of one check without any overhead, in alternating order; `energy` is what the VM computes."""
    sides = ("native", "virtual"), ("virtual", "native")
    order = [(n, side) for n in range(pairs) for side in sides[n % 2]]
    return [
        made_run(
            side,
            n,
            start=10.0 * i,
            end=10.0 * i + 5,
            results=(Result.scalar(metric, "lj", 10.0),),
            answers=(Answer(name="energy", value=energy if side == "virtual" else -5.0, tolerance=1e-6),),
            **more,
        )
        for i, (n, side) in enumerate(order)
    ]


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Return how to store a session."""
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path))

    def keep(name, runs, system="site", **more):
        session = Session(
            session=name,
            created="2026-01-01",
            system=system,
            hypervisor_class="kvm",
            identity={"native": {"partition": "metal"}},
            stack={},
            runs=runs,
            **more,
        )
        directory = tmp_path / "sessions" / name
        directory.mkdir(parents=True)
        session.write(directory)
        return name

    return keep


@pytest.mark.parametrize("hypervisor_class", ["kvm", "emulated"])
def test_a_session_without_runs_is_no_baseline(kept, hypervisor_class):
    """Neither as if nothing had been asked, nor as if it were the first one."""
    name = kept("20260101-000000-site", [], conclusion="Refused before anything was measured.")
    with pytest.raises(UsageError, match=r"has no run \(Refused before anything was measured\.\)"):
        judging.judge_runs(runs(), hypervisor_class, against=name)


@pytest.mark.parametrize("hypervisor_class", ["kvm", "emulated"])
def test_what_the_earlier_session_did_not_measure_has_no_change(kept, hypervisor_class):
    name = kept("20260101-000000-site", runs(metric="lammps_rating", check="other"))
    verdict = judging.judge_runs(runs(), hypervisor_class, against=name).verdicts[-1]
    assert (verdict.gate, verdict.outcome) == ("change", Outcome.INVALID)
    assert "the earlier session did not measure it" in verdict.reasons


def test_a_metric_of_the_earlier_session_that_is_no_more_is_left_alone(kept):
    name = kept("20260101-000000-site", [*runs(12), *runs(metric="gone", check="other")])
    assert judging.judge_runs(runs(12), "kvm", against=name).outcome is Outcome.WITHIN


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / "session.json").write_bytes(b'{"label": "\xdcberlast"}')
    with pytest.raises(UsageError, match=r"session\.json: no session \(not UTF-8: .* at byte 11\)"):
        earlier.load(tmp_path)


def test_last_is_the_newest_of_the_system_that_measured_something(kept):
    kept("20260101-000000-site", runs())
    taken = kept("20260102-000000-site", runs(), outcome="INTERRUPTED")
    kept("20260103-000000-site", [])
    kept("20260104-000000-my-site", runs(), system="my-site")
    assert earlier.find("last", "site").parent.name == taken
    with pytest.raises(UsageError, match=r"no session of system 'new' .* has a run"):
        earlier.find("last", "new")


@pytest.mark.parametrize(
    ("before", "failures", "says"),
    [
        (runs(energy=-9.0), [], "earlier session: not the same result: energy is -5 in native"),
        (
            runs(),
            [Failure(look=1, case="case %sample=3N", partition="metal", phase="performance", reason="slow")],
            "earlier session: native misses its absolute reference (slow)",
        ),
    ],
)
def test_what_the_earlier_session_refused_is_no_baseline(kept, before, failures, says):
    """Its change is refused, and nothing is said of the overhead now."""
    name = kept("20260101-000000-site", before, failures=failures)
    overhead, change = judging.judge_runs(runs(), "kvm", against=name).verdicts
    assert overhead.outcome is not Outcome.INVALID
    assert change.outcome is Outcome.INVALID
    assert says in change.message
