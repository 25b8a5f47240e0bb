"""A node that is lost and comes back: what it cut off is run again, what was finished is not."""

import json
from types import SimpleNamespace

import pytest

from made_runs import SIDES, STACK, made_run, session_of
from virtqual.errors import InfrastructureError
from virtqual.harness import catalogue
from virtqual.qualify import between, plan
from virtqual.session.log import Begun, Failed, Log, Returned, RoundBegun, Submitted
from virtqual.session.session import Failure, Head, Loss, Request, Round
from virtqual.site.held import Rotation

ON = ("qualify", "--system", "testsite", "-n", "lj")
#: The node is down for some seconds; nobody waits for the shell that ends it.
DIES = """echo "host died" > "$FAKE_SLURM/down.cloud"
setsid bash -c 'sleep {seconds}; rm "$FAKE_SLURM/down.cloud"' &
"""
LJ = "lammps %problem=lj"


def returning(within):
    return {"FAKE_EXTRAS_cloud": json.dumps({"node_returns_within": within})}


def latest(site):
    return Log(sorted((site.path / "state/sessions").glob("2*"))[-1])


def test_the_missing_pairs_are_run_in_a_further_round(site):
    # Jobs 1 and 2 warm up; 8 is the virtual run of pair 2, whose native run was finished.
    site.fault("die.8", DIES.format(seconds=12))
    done = site.virtqual(*ON, **returning(120))
    said = " ".join(done.stdout.split())
    assert done.returncode == 0, said + done.stderr
    assert "node cloud-1 is down: host died: waiting up to 120 s" in said
    assert "1 node was lost and came back: cloud-1 (1 time)." in said
    session = latest(site).session()
    assert [(one.first, one.last) for one in session.rounds] == [(0, 3), (3, 4)]
    assert [(loss.round, list(loss.nodes)) for loss in session.lost] == [(1, ["cloud-1"])]
    assert session.failures == []
    # Each place has one run: what was finished was not run again, and pair 2 stays half a pair.
    places = [(run.pair, run.side) for run in session.runs]
    assert sorted(places) == sorted(
        {(k, side) for k in (0, 1, 3, 4) for side in ("native", "virtual")} | {(2, "native")}
    )
    assert session.verdicts[0].pairs == 4
    written = json.loads((latest(site).directory / "session.json").read_text())
    assert written["lost"][0]["nodes"] == {"cloud-1": "node cloud-1 is down: host died"}


def test_a_node_that_does_not_come_back_in_time_ends_the_session(site):
    site.fault("die.4", DIES.format(seconds=60))
    done = site.virtqual(*ON, **returning(1))
    said = " ".join(done.stdout.split())
    assert done.returncode == 5, said + done.stderr
    assert "after 1 s (extras.node_returns_within) node cloud-1 is down (host died)" in said, said
    session = latest(site).session()
    assert (session.outcome, session.lost, len(session.runs)) == ("BROKEN", [], 1)


def failure(kind="infrastructure", reason="job 4 ended as NODE_FAIL (a node of it died)", check=LJ):
    return Failure(
        check=check, case=check, pair=0, side="virtual", partition="cloud", job="4", kind=kind, reason=reason
    )


HEAD = Head(
    session="s",
    created="2026-01-01T00:00:00+00:00",
    system="x",
    hypervisor_class="kvm",
    identity=SIDES,
    stack=STACK,
)
LOSS = Loss(round=1, nodes={"vm1": "node vm1 is down"}, seconds=9)


def test_what_a_loss_cut_off_is_no_failure_and_what_was_refused_stays_refused(tmp_path):
    log = Log(tmp_path)
    refused = failure("refused", "wrong energy")
    for event in (
        Begun(head=HEAD),
        RoundBegun(round=Round(number=1, first=0, last=3)),
        Submitted(job="3", case="c", submitted=1.0),
        Failed(failure=refused),
        Failed(failure=failure()),
        Returned(loss=LOSS),
        Submitted(job="5", case="c", submitted=2.0),
    ):
        log.append(event)
    assert (log.session().failures, log.session().lost) == ([refused], [LOSS])
    # Job 3 was cancelled when the node was lost: its end is not awaited for ever.
    assert list(log.unfinished()) == ["5"]


@pytest.fixture
def job(tmp_path):
    """Return a session that has lost a node, and what the watch and Slurm will say."""
    log = Log(tmp_path)
    log.append(Begun(head=HEAD))
    watch = SimpleNamespace(
        lost={"vm1": "node vm1 is down"}, may_return=lambda: True, returned=lambda seconds: []
    )
    return SimpleNamespace(
        system=SimpleNamespace(virtual=SimpleNamespace(node_returns_within=60)),
        watch=watch,
        log=log,
        broken=[],
        screen=SimpleNamespace(note=lambda text: None),
        held={},
        rotated={},
    )


def goes_on(job, *losses, failures=()):
    session = session_of([])
    session.lost, session.failures = list(losses), list(failures)
    return between.goes_on(job, Round(number=2, first=0, last=3), session)


def test_a_loss_is_noted_in_the_log(job):
    assert goes_on(job, LOSS)
    (loss,) = job.log.session().lost
    assert (loss.round, loss.nodes) == (2, {"vm1": "node vm1 is down"})


def test_a_node_that_was_back_before_it_was_missed_counts_all_the_same(job):
    job.watch.lost = {}
    assert goes_on(job, failures=[failure()])
    assert list(job.log.session().lost[0].nodes) == ["a node of job 4"]


def test_more_losses_than_three_end_the_session(job):
    assert goes_on(job, LOSS, LOSS)
    assert not goes_on(job, LOSS, LOSS, LOSS)
    assert "nodes were lost 3 times before" in job.broken[0]


@pytest.mark.parametrize(
    "case", ["nobody promises it", "no node", "a program failed", "something else broke"]
)
def test_nothing_else_is_waited_for(job, case):
    failures = [failure()]
    if case == "nobody promises it":
        job.system.virtual.node_returns_within = None
    elif case == "no node":
        job.watch.may_return = lambda: False
    elif case == "a program failed":
        job.watch.lost, failures = {}, [failure(reason="job exited with exit code 1")]
    else:
        job.broken = ["ReFrame was killed"]
    assert not goes_on(job, failures=failures)
    assert job.log.session().lost == []


def test_a_slurm_that_does_not_cancel_ends_the_session(job, monkeypatch):
    def silent(jobs):
        raise InfrastructureError("squeue: no answer")

    monkeypatch.setattr(between, "cancel", silent)
    assert not goes_on(job)
    assert job.broken == ["squeue: no answer"]


def test_what_was_cut_off_is_asked_for_by_check(tmp_path):
    tags = ("quick", "full")
    entries = [
        catalogue.Entry(name=name, description="d", tags=tags) for name in ("whole", "half", "never", "bad")
    ]
    entries.append(catalogue.Entry(name="absent", description="d", tags=tags, lacks="an input"))
    entries.append(catalogue.Entry(name="foreign", description="d", tags=tags, paired=False))
    catalogue.write(entries, tmp_path / catalogue.FILE)
    job = SimpleNamespace(
        log=SimpleNamespace(directory=tmp_path),
        request=Request(system="x"),
        has=(set(), 1),
        rotation=lambda nodes: Rotation(),
    )
    sides = ("native", "virtual")
    runs = [made_run(side, pair, check="whole") for pair in range(4) for side in sides]
    runs += [made_run(side, pair, check="half") for pair in range(2) for side in sides]
    runs.append(made_run("native", 2, check="half"))
    session = session_of(runs)
    session.rounds = [Round(number=1, first=0, last=3)]
    session.failures = [failure("refused", "wrong", check="bad")]
    rounds = plan.cut_off(job, session, session.rounds[0])
    assert [(one.number, one.first, one.last, one.checks) for one in rounds] == [
        (2, 0, 3, ("never",)),
        (3, 3, 4, ("half",)),
    ]
