"""From runs to series and cases: which sizes are judged, by which budget, and what refuses a series."""

import math
from dataclasses import replace
from unittest.mock import Mock

import pytest

from made_runs import alternating, made_run
from virtqual.errors import UsageError
from virtqual.preflight.admit import Admitted
from virtqual.runs import Declared, Result
from virtqual.session.pairing import DECLARED_NOISE, cases_of, list_gates, series_of
from virtqual.verdict.metric import Metric
from virtqual.verdict.noise import Prior

LATENCIES, ON_TIME = {25.0: 1.0, 50.0: 2.0, 75.0: 9.0}, {25.0: 100.0, 50.0: 99.0}


def measure(*results, check="case", pairs=2):
    """Return runs of a check that give the same results, which nothing refuses."""
    return alternating(lambda side, pair: results, pairs, check=check)


def admit(*runs, refused=None):
    return Admitted(tuple(run for of_check in runs for run in of_check), refused or {}, ())


def find_cases(references, runs, **more):
    more = {"hypervisor_class": "kvm", **more}
    return {(case.series.id, case.gate): case for case in cases_of(admit(runs), references, **more)}


def test_sizes_that_are_only_reported_are_not_judged(references):
    runs = measure(Result.curve("db_p99", "x", LATENCIES), Result.curve("db_on_time", "x", ON_TIME))
    assert {name: series.points for name, series in series_of(runs, references).items()} == {
        "db_p99@x": (25.0, 50.0)
    }
    shown = series_of(runs, references, with_reported=True)
    assert {name: series.points for name, series in shown.items()} == {
        "db_p99@x": (25.0, 50.0, 75.0),
        "db_on_time@x": (25.0, 50.0),
    }
    assert series_of(runs, references, {"db_on_time@x"}, with_reported=True).keys() == {"db_on_time@x"}
    assert find_cases(references, runs).keys() == {("db_p99@x", "overhead")}


def test_a_metric_that_its_check_declares_has_the_budget_and_margin_of_the_check(references):
    declared = Declared(unit="m", better="higher", budget="2%", margin="1%")
    runs = measure(Result.scalar("own", "x", 3.0, declared=declared))
    (case,) = find_cases(references, runs).values()
    assert case.series.metric == Metric(
        name="own", unit="m", better="higher", family="declared", description="declared by its check"
    )
    (term,) = case.budget.terms
    assert (term.relative, term.margin) == (pytest.approx(0.02), 0.01)
    assert case.prior == DECLARED_NOISE["overhead"]
    earlier = admit(runs)
    cases = find_cases(references, runs, earlier=earlier)
    assert cases["own@x", "change"].prior == DECLARED_NOISE["change"]
    assert cases["own@x", "change"].budget.gate == "change"


def test_a_series_is_refused_for_the_reasons_of_its_check_alone(references):
    time = Result.scalar("lammps_loop_time", "lj", 4.0)
    runs = measure(time), measure(Result.scalar("hpl", "x", 4.0), check="other")
    now, earlier = admit(*runs, refused={"case": ("a reason",)}), admit(*runs, refused={"other": ("old",)})
    cases = {
        (case.series.id, case.gate): case.refused
        for case in cases_of(now, references, "kvm", earlier=earlier)
    }
    assert cases == {
        ("lammps_loop_time@lj", "overhead"): ("a reason",),
        ("lammps_loop_time@lj", "change"): ("a reason",),
        ("hpl@x", "overhead"): (),
        ("hpl@x", "change"): ("earlier session: old",),
    }


def test_a_change_is_refused_if_the_series_was_another_or_of_another_check(references):
    now = measure(Result.curve("db_p99", "x", LATENCIES))
    time = Result.scalar("lammps_loop_time", "lj", 4.0)
    before = measure(Result.curve("db_p99", "x", {25.0: 1.0}))
    cases = cases_of(admit(now), references, "kvm", earlier=admit(before))
    assert [case.refused for case in cases] == [(), ("the earlier session measured other sizes",)]
    cases = cases_of(admit(now), references, "kvm", earlier=admit(measure(time)))
    assert [case.refused for case in cases] == [(), ("the earlier session did not measure it",)]
    # A check that had another name then.
    moved = admit(measure(time, check="old name"), refused={"old name": ("slow",)})
    cases = cases_of(admit(measure(time)), references, "kvm", earlier=moved)
    assert [(case.refused, case.baseline is None) for case in cases] == [
        ((), True),
        (("earlier session: slow",), False),
    ]


def test_pairs_that_were_interrupted_are_those_of_their_check(references):
    runs = measure(Result.scalar("hpl", "x", 4.0))
    for interrupted, cut_off in (({"case": frozenset({1})}, {1}), ({"other": frozenset({1})}, set())):
        (case,) = find_cases(references, runs, interrupted=interrupted).values()
        assert case.series.cut_off == cut_off


def test_the_class_and_an_earlier_session_decide_what_is_judged():
    assert list_gates("overhead", has_earlier=False) == ["overhead"]
    assert list_gates("overhead", has_earlier=True) == ["overhead", "change"]
    assert list_gates("change", has_earlier=False) == list_gates("change", has_earlier=True) == ["change"]


def test_a_metric_without_a_budget_is_named(references):
    runs = measure(Result.scalar("lammps_loop_time", "lj", 4.0))
    with pytest.raises(UsageError, match="has no overhead budget for lammps_loop_time"):
        find_cases(replace(references, terms={}), runs)
    with pytest.raises(UsageError, match="nothing is known of the noise of lammps_loop_time"):
        find_cases(replace(references, priors={}), runs)


def test_the_noise_and_the_hosts_are_those_of_the_system(references):
    runs = [
        run.model_copy(update={"hosts": {"n1": f"host of {run.side}"}})
        for run in measure(Result.scalar("lammps_loop_time", "lj", 4.0), pairs=4)
    ]
    own = Prior(sigma=0.007, df=20, source="recorded", metric="lammps_loop_time")
    survey = Mock(bound_of=Mock(return_value=0.1))
    known = replace(
        references, priors={("here", "kvm"): [own], **references.priors}, surveys={"here": [survey]}
    )
    for system, prior, bound in (("here", own, 0.1), ("elsewhere", None, math.inf)):
        overhead, change = find_cases(known, runs, system=system, earlier=admit(runs)).values()
        assert (overhead.bound, overhead.earlier_bound, change.earlier_bound) == (bound, math.inf, bound)
        assert (overhead.prior is own) is (prior is own)
    native, virtual = survey.bound_of.call_args.args
    assert (set(native), set(virtual)) == ({"host of native"}, {"host of virtual"})
    assert survey.bound_of.call_args.kwargs == {"rotated": False}
    rotated = [
        run.model_copy(update={"hosts": {"n1": f"host {run.pair % 2} of {run.side}"}})
        for run in measure(Result.scalar("lammps_loop_time", "lj", 4.0), pairs=4)
    ]
    (case,) = find_cases(known, rotated, system="here").values()
    assert case.bound == 0.1
    assert survey.bound_of.call_args.kwargs == {"rotated": True}
    # Without pairs nothing is known of the places.
    (case,) = find_cases(known, runs[:1], system="here").values()
    assert case.bound == math.inf


def test_a_sample_has_the_turn_the_sizes_and_the_refusals_of_its_run(references):
    result = Result.curve("db_p99", "x", LATENCIES, invalid=("the client was the limit",))
    (pair,) = series_of([made_run("native", 0, turn=3, results=(result,))], references)["db_p99@x"].pairs
    sample = pair.native
    assert (sample.turn, sample.points, sample.invalid) == (3, (25.0, 50.0), ("the client was the limit",))
