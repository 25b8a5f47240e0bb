"""How many pairs a session may take."""

from types import SimpleNamespace

import pytest
from made_series import judge_session
from typer.testing import CliRunner

from made_runs import keep, made_run, session_of
from virtqual import cli, paths
from virtqual.errors import UsageError
from virtqual.harness import catalogue
from virtqual.qualify import plan
from virtqual.session.session import Request
from virtqual.verdict import Case, Outcome, Prior
from virtqual.verdict.budget import Budget
from virtqual.verdict.session import Need


@pytest.mark.parametrize(
    ("pairs", "at_most", "says"),
    [
        (None, 3, "--max-pairs 3: at least 4 are needed to decide"),
        (99, 18, "--pairs 99 is more than --max-pairs 18 allows"),
    ],
)
def test_pairs_that_could_not_decide_or_are_not_allowed_are_refused(pairs, at_most, says):
    with pytest.raises(UsageError, match=says):
        plan.look_schedule(Request(system="x", pairs=pairs, max_pairs=at_most))


@pytest.mark.parametrize(("at_most", "looks"), [(4, (4,)), (7, (7,)), (8, (4, 8)), (18, (4, 8, 12, 18))])
def test_the_least_that_is_allowed_can_convict(metrics, make, at_most, looks):
    assert plan.look_schedule(Request(system="x", pairs=4, max_pairs=at_most)) == looks
    lost = Case(
        make(metrics["hpl"], [0.5] * at_most),
        Budget.build(0.05, margin=0.05),
        Prior(sigma=0.02, df=6, source="stated"),
    )
    assert judge_session([lost], looks=looks).outcome is Outcome.OVER


def test_the_command_refuses_them_before_it_looks_for_the_system():
    for options, says in ((("--max-pairs", "3"), "4"), (("--pairs", "19"), "--max-pairs 18")):
        done = CliRunner().invoke(cli.app, ["qualify", "--system", "none", *options])
        assert (done.exit_code, says in done.output) == (2, True), done.output


def test_how_long_a_session_takes_follows_from_the_last_runs_of_what_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path))
    entries = [
        catalogue.Entry(name=name, description="d", tags=tags)
        for name, tags in (
            ("hpl n=1", ("linpack", "quick", "full")),
            ("hpl n=2", ("linpack", "full")),
            ("slow", ("app", "quick", "full")),
        )
    ]
    made = (
        ("1", [("hpl %n=1", 7), ("hpl %n=2", 70), ("slow", 300)]),
        ("2", [("slow", 100)]),
        ("3", []),
    )
    for name, times in made:
        runs = [
            made_run(side, 0, check=check, end=end) for check, end in times for side in ("native", "virtual")
        ]
        catalogue.write(entries, keep(session_of(runs, name=name), paths.sessions()) / catalogue.FILE)

    def seconds(**asked):
        alone = {"rotated": {}, "places": lambda nodes: 1, "log": SimpleNamespace(directory=tmp_path)}
        job = SimpleNamespace(request=Request(system="site", **asked), **alone)
        return plan.estimate_round(job, session_of([]), (), 2)

    assert seconds(names=("hpl",)) == 5 + 2 * (8 + 8)
    assert seconds(names=("hpl",), full=True) == 5 + 2 * (8 + 8 + 71 + 71)
    # The last time that it ran counts, and what only an earlier session ran is not forgotten.
    assert seconds(tags=("app",)) == 5 + 2 * (101 + 101)
    assert seconds() == 5 + 2 * (8 + 8 + 101 + 101)
    assert seconds(names=("never_run",)) is None


@pytest.mark.parametrize(
    ("first", "failed", "reason"),
    [(4, ["lj"], "a run of it failed"), (36, [], "too many of its pairs do not count")],
)
def test_needed_pairs_that_are_not_run_are_named(tmp_path, first, failed, reason):
    notes = []
    result = SimpleNamespace(series="lammps_loop_time@lj")
    session = SimpleNamespace(
        runs=[SimpleNamespace(check="lj", results=[result])],
        failures=[SimpleNamespace(check=check) for check in failed],
        rounds=(1,),
    )
    job = SimpleNamespace(
        request=Request(system="site"),
        log=SimpleNamespace(directory=tmp_path),
        screen=SimpleNamespace(note=notes.append),
    )
    needs = (Need(result.series, first, first + 3),)
    judged = SimpleNamespace(verdict=SimpleNamespace(needs=needs))
    assert plan.plan_next_rounds(job, session, judged) == []
    assert notes == [f"no more pairs, although undecided: lj ({reason})"]
