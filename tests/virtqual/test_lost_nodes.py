"""A node that is lost is set aside: what it cut off is run again, what was finished is not."""

from threading import Event
from types import SimpleNamespace

import pytest

from made_runs import HEAD, made_failure, made_run, session_of
from virtqual import qualify
from virtqual.errors import InfrastructureError
from virtqual.harness import catalogue
from virtqual.qualify import between, opening, plan
from virtqual.session.log import Begun, Failed, Log, RoundBegun, SetAside, Submitted
from virtqual.session.session import Loss, Request, Round
from virtqual.site import held
from virtqual.site.held import Rotation
from virtqual.verdict.outliers import Outlier
from virtqual.verdict.rule import LOOKS

LJ = "lammps %problem=lj"
DOWN = {"vm1": "node vm1 is down"}
LOSS = Loss(round=1, nodes=DOWN)


def failure(kind="infrastructure", reason="job 4 ended as NODE_FAIL (a node of it died)", check=LJ):
    return made_failure(check=check, case=check, job="4", kind=kind, reason=reason)


def test_a_node_that_is_lost_ends_a_session_whose_runs_do_not_rotate(site):
    site.fault("die.4", 'echo "host died" > "$FAKE_SLURM/down.cloud"')
    done = site.qualify("-n", "lj", code=5)
    said = site.words(done)
    assert "node cloud-1 is down (host died)" in said.partition("nothing is concluded")[2], said
    assert "(a node of it died). `virtqual qualify --resume" in said, said
    session = site.log().session()
    assert (session.outcome, session.lost, len(session.runs)) == ("BROKEN", [], 1)
    assert session.node_lost


def test_what_a_loss_cut_off_is_no_failure_and_what_was_refused_stays_refused(tmp_path):
    log = Log(tmp_path)
    refused = failure("refused", "wrong energy")
    for event in (
        Begun(head=HEAD),
        RoundBegun(round=Round(number=1, first=0, last=3)),
        Submitted(job="3", case="c", submitted=1.0),
        Failed(failure=refused),
        Failed(failure=failure()),
        SetAside(loss=LOSS),
        Submitted(job="5", case="c", submitted=2.0),
    ):
        log.append(event)
    assert (log.session().failures, log.session().lost) == ([refused], [LOSS])
    # Job 3 was cancelled when the node was lost: its end is not awaited for ever.
    assert list(log.unfinished()) == ["5"]


@pytest.mark.parametrize(("nodes", "is_used"), [(["vm1", "vm2"], True), (["vm1"], False)])
def test_a_host_that_the_earlier_session_set_aside_is_named_if_it_may_be_used(nodes, is_used):
    partition = SimpleNamespace(extras=SimpleNamespace(nodes_of_hosts={"h1": ["vm1"], "h2": ["vm2"]}))
    outlier = Outlier(host="h2", metric="", log=0.1)
    job = SimpleNamespace(
        system=SimpleNamespace(partition=lambda side: partition),
        watch=SimpleNamespace(nodes=lambda side: nodes if side == "virtual" else []),
        earlier=session_of([], outliers=[outlier]),
        head=SimpleNamespace(against="s"),
    )
    notes = list(opening._name_outliers(job))
    named = f"Session s set a host aside that this one may use again: {outlier}."
    assert [note.startswith(named) for note in notes] == [True] * is_used


@pytest.fixture
def job(tmp_path):
    """Return a session of four nodes a side that has lost a node, and what the watch and Slurm will say."""
    log = Log(tmp_path)
    log.append(Begun(head=HEAD))
    watch = SimpleNamespace(lost=dict(DOWN), lost_nodes={"vm1"}, stop=Event(), set_aside=lambda lost: None)
    job = SimpleNamespace(
        request=Request(system="x"),
        capacity=(set(), 4),
        system=SimpleNamespace(nodes=4, virtual_extras=SimpleNamespace(recreate_vms=())),
        watch=watch,
        log=log,
        broken=[],
        screen=SimpleNamespace(note=lambda text: None),
        held={"vm": "7"},
        entries=[],
        rotated={"bare": ["b1", "b2", "b3", "b4"], "vm": ["vm1", "vm2", "vm3", "vm4"]},
    )
    job.rotation = lambda nodes: held.rotate(job.rotated, 4, nodes)
    return job


@pytest.fixture(autouse=True)
def nodes_of_allocation(monkeypatch):
    """Have Slurm say which nodes an allocation has; a test may change them."""
    nodes = ["vm1", "vm2", "vm3", "vm4"]
    monkeypatch.setattr(between, "list_job_nodes", lambda number: nodes)
    return nodes


def goes_on(job, *losses):
    session = session_of([])
    session.lost = list(losses)
    return between.set_lost_nodes_aside(job, Round(number=2, first=0, last=3), session)


def test_a_loss_is_noted_in_the_log_and_the_others_go_on(job):
    assert goes_on(job, LOSS, LOSS)
    assert job.log.session().lost == [Loss(round=2, nodes=DOWN)]
    assert job.rotated == {"bare": ["b1", "b2", "b3"], "vm": ["vm2", "vm3", "vm4"]}


def test_a_case_of_more_nodes_than_are_left_fails_although_the_loss_was_its_own(job):
    job.entries = [catalogue.Entry(name="wide", description="d", tags=("quick",), nodes=4)]
    job.log.append(Failed(failure=failure(check="wide")))
    part = Round(number=1, first=0, last=3)
    assert between.set_lost_nodes_aside(job, part, job.log.session())
    ((kind, reason),) = [(each.kind, each.reason) for each in job.log.session().failures]
    assert (kind, "takes 4 nodes of each side, and 3 are left" in reason) == ("failed", True)
    assert plan.repeat_unfinished(job, job.log.session(), part) == []


def test_failures_that_a_loss_caused_do_not_count_when_more_pairs_are_planned(job, monkeypatch):
    def lose_node(job, session, part):
        job.log.append(Failed(failure=failure()))

    def set_aside(job, part, session):
        return job.log.append(SetAside(loss=LOSS)) or True

    planned = []
    job.first_pairs, job.earlier, job.looks = 4, None, LOOKS
    monkeypatch.setattr(qualify, "run_round", lose_node)
    monkeypatch.setattr(qualify, "set_lost_nodes_aside", set_aside)
    monkeypatch.setattr(plan, "plan_next_rounds", lambda job, session, judged: planned.extend([session]))
    qualify._run_rounds(job)
    assert [session.failures for session in planned] == [[]]


def test_a_node_that_slurm_removed_from_the_allocation_is_lost(job, nodes_of_allocation):
    job.watch.lost.clear()
    job.watch.lost_nodes = {"vm3"}
    nodes_of_allocation.remove("vm3")
    assert goes_on(job)
    assert job.log.session().lost[0].nodes.keys() == {"vm3"}


def test_more_losses_than_three_end_the_session(job):
    assert not goes_on(job, LOSS, LOSS, LOSS)
    assert "nodes were lost 3 times before" in job.broken[0]


@pytest.mark.parametrize("case", ["one run at a time", "no node", "a program failed", "too few", "broke"])
def test_nothing_else_is_set_aside(job, case):
    if case == "one run at a time":
        job.rotated = {}
    elif case == "no node":
        job.watch.lost_nodes = set()
    elif case == "a program failed":
        job.watch.lost, job.watch.lost_nodes = {}, set()
    elif case == "too few":
        job.rotated["vm"] = ["vm1", "vm2"]
    else:
        job.broken = ["ReFrame was killed"]
    assert not goes_on(job)
    assert job.log.session().lost == []


def test_a_slurm_that_does_not_answer_ends_the_session(job, monkeypatch):
    def silent(number):
        raise InfrastructureError("squeue: no answer")

    monkeypatch.setattr(between, "list_job_nodes", silent)
    assert not goes_on(job)
    assert job.broken == ["squeue: no answer"]


def test_what_was_cut_off_is_asked_for_by_check():
    # A site's own check may be tagged with neither scope.
    names = ("whole", "half", "never", "bad")
    entries = [catalogue.Entry(name=name, description="d", tags=()) for name in names]
    entries.append(catalogue.Entry(name="absent", description="d", tags=(), lacks="an input"))
    entries.append(catalogue.Entry(name="foreign", description="d", tags=(), paired=False))
    job = SimpleNamespace(
        entries=entries,
        request=Request(system="x"),
        capacity=(set(), 1),
        rotation=lambda nodes: Rotation(),
    )
    sides = ("native", "virtual")
    runs = [made_run(side, pair, check="whole") for pair in range(4) for side in sides]
    runs += [made_run(side, pair, check="half") for pair in range(2) for side in sides]
    runs.append(made_run("native", 2, check="half"))
    session = session_of(runs)
    session.rounds = [Round(number=1, first=0, last=3)]
    session.failures = [failure("refused", "wrong", check="bad")]
    rounds = plan.repeat_unfinished(job, session, session.rounds[0])
    assert [(one.number, one.first, one.last, one.checks) for one in rounds] == [
        (2, 0, 3, ("never",)),
        (3, 3, 4, ("half",)),
    ]
