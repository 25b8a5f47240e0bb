from datetime import date

import numpy as np
import pytest

from virtqual.references import Budget, HypervisorClass, Waiver
from virtqual.verdict import Case, Design, Outcome, Prior, SessionError, judge_session, message

PRIOR = Prior(0.02, 20, "A/A history")
FIVE = Budget.of(0.05, margin=0.05)
KVM = HypervisorClass("kvm", "overhead", True, "KVM", "a reason")
TODAY = date(2026, 6, 1)


@pytest.fixture
def case(metrics, make):
    def build(level, pairs, setting="here", budget=FIVE, **more):
        wiggle = 0.01 * np.resize([1, -1], pairs)
        return Case(
            make(metrics["hpl"], level + wiggle - (wiggle.mean() if pairs else 0), setting=setting),
            budget,
            PRIOR,
            **more,
        )

    return build


def waiver(**change):
    fields = {
        "metric": "hpl",
        "setting": None,
        "gate": "overhead",
        "up_to": 0.5,
        "hypervisor_class": "kvm",
        "build": "b1",
        "owner": "ops",
        "reason": "known",
        "expires": TODAY,
    }
    return Waiver(**{**fields, **change})


def test_a_clean_session_needs_no_more_pairs(case):
    session = judge_session([case(0.0, 2, str(i)) for i in range(20)], hypervisor_class=KVM)
    assert session.outcome is Outcome.WITHIN
    assert session.plan.complete
    assert session.qualified == (True, "")


def test_the_first_call_plans_the_first_two_pairs_of_everything(case):
    session = judge_session([case(0.0, 0, "a"), case(0.0, 1, "b")])
    assert session.plan.numbers("hpl@a") == range(0, 2)
    assert session.plan.numbers("hpl@b") == range(1, 2)
    assert session.outcome is Outcome.UNDECIDED


def test_the_screen_cannot_convict_and_flags_go_straight_to_fresh_pairs(case):
    session = judge_session([case(0.5, 2, "bad"), case(0.0, 2, "good")])
    assert session.verdict("hpl@bad").outcome is Outcome.UNDECIDED
    assert session.plan.numbers("hpl@bad") == range(2, 4)
    assert session.plan.series == ("hpl@bad",)
    assert session.plan.numbers("hpl@good") == range(0)


def test_what_is_merely_unclear_asks_for_one_pair(metrics, make):
    session = judge_session([Case(make(metrics["hpl"], [0.03, 0.12]), FIVE, PRIOR)])
    assert session.plan.numbers("hpl@here") == range(2, 3)


def test_fresh_pairs_convict(case):
    session = judge_session([case(0.5, 4, "bad"), case(0.0, 2, "good")], hypervisor_class=KVM)
    assert session.verdict("hpl@bad").outcome is Outcome.OVER
    assert session.outcome is Outcome.OVER
    assert session.plan.complete
    assert session.qualified == (False, "over")


def test_pairs_of_the_screen_do_not_convict(metrics, make):
    series = make(metrics["hpl"], [0.4, 0.4, 0.02, 0.03])
    session = judge_session([Case(series, FIVE, PRIOR)])
    assert session.outcome is not Outcome.OVER


def test_an_acquittal_by_the_screen_stands(metrics, make):
    series = make(metrics["hpl"], [0.0, 0.0, 0.3, 0.3, 0.3, 0.3])
    verdict = judge_session([Case(series, FIVE, PRIOR)]).verdict("hpl@here")
    assert (verdict.outcome, verdict.pairs) == (Outcome.WITHIN, 2)


def test_flagged_series_share_the_error_rate_and_convictions_give_theirs_back(case):
    level = 0.105
    alone = judge_session([case(level, 4, "x")])
    crowd = judge_session([case(level, 4, "x"), *(case(0.08, 4, str(i)) for i in range(20))])
    helped = judge_session([case(level, 4, "x"), *(case(2.0, 4, str(i)) for i in range(20))])
    assert alone.verdict("hpl@x").outcome is Outcome.OVER
    assert crowd.verdict("hpl@x").outcome is Outcome.UNDECIDED
    assert helped.verdict("hpl@x").outcome is Outcome.OVER
    assert helped.verdict("hpl@x").evidence.design.family == 1


def test_plans_end(case):
    """A driver that runs what the plan says comes to an end, whatever it measures."""
    for level in (0.0, 0.05, 0.075, 0.1, 1.0):
        pairs, calls = 0, 0
        while True:
            session = judge_session([case(level, pairs)])
            if session.plan.complete:
                break
            numbers = session.plan.numbers("hpl@here")
            assert numbers.start == pairs
            pairs, calls = numbers.stop, calls + 1
            assert calls < 10
        assert session.verdict("hpl@here").next_look is None


def test_pairs_refused_are_asked_for_again(metrics):
    from dataclasses import replace

    from made_series import samples_of

    from virtqual.verdict.pairs import pair_up

    runs = [
        replace(run, invalid=("loud",)) if run.number == 1 else run
        for run in samples_of(metrics["hpl"], [[0.0]] * 2)
    ]
    session = judge_session([Case(pair_up(metrics["hpl"], "here", (), runs), FIVE, PRIOR)])
    assert session.plan.numbers("hpl@here") == range(2, 3)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ("WITHIN BASELINE", Outcome.BASELINE),
        ("WITHIN BASELINE UNDECIDED", Outcome.UNDECIDED),
        ("WITHIN UNDECIDED OVER", Outcome.OVER),
        ("OVER INVALID WITHIN", Outcome.INVALID),
        ("", Outcome.INVALID),
    ],
)
def test_the_outcome_of_a_session_is_its_gravest(case, outcomes, expected):
    change = Budget.of(0.05, margin=0.05, gate="change")
    made = {
        "WITHIN": case(0.0, 2, "within"),
        "OVER": case(0.5, 4, "over"),
        "UNDECIDED": case(0.08, 2, "undecided"),
        "INVALID": case(0.0, 2, "invalid", refused=("no",)),
        "BASELINE": case(3.0, 4, "baseline", budget=change),
    }
    session = judge_session([made[name] for name in outcomes.split()])
    assert session.outcome is expected
    assert {outcome.value for outcome in session.outcomes} == set(outcomes.split())


def test_a_baseline_shows_all_its_pairs(case):
    session = judge_session([case(3.0, 6, budget=Budget.of(0.05, margin=0.05, gate="change"))])
    assert session.verdicts[0].pairs == 6


def test_a_class_that_never_qualifies_says_so(case):
    emulated = HypervisorClass("emulated", "change", False, "TCG", "a reason")
    assert judge_session([case(0.0, 2)], hypervisor_class=emulated).qualified == (False, "emulated")


def test_a_series_twice_is_an_error(case):
    with pytest.raises(SessionError, match="only once in a session: hpl@here"):
        judge_session([case(0.0, 2), case(0.0, 2)])


# -- waivers -----------------------------------------------------------------------------------------


def test_a_waived_over_stays_over_and_no_longer_stops_the_session(case):
    session = judge_session([case(0.5, 4)], hypervisor_class=KVM, waivers=[waiver()], build="b1", today=TODAY)
    (verdict,) = session.verdicts
    assert verdict.outcome is Outcome.OVER
    assert verdict.passes
    assert session.outcome is Outcome.WITHIN
    assert message(verdict).splitlines()[1] == "accepted up to 0.5x by ops until 2026-06-01: known"


@pytest.mark.parametrize(
    "change",
    [
        {"build": "b2"},
        {"hypervisor_class": "esxi"},
        {"metric": "dgemm"},
        {"setting": "there"},
        {"gate": "change"},
    ],
)
def test_a_waiver_for_something_else_does_not_apply(case, change):
    session = judge_session(
        [case(0.5, 4)], hypervisor_class=KVM, waivers=[waiver(**change)], build="b1", today=TODAY
    )
    assert session.outcome is Outcome.OVER
    assert session.verdicts[0].waiver is None


def test_an_expired_waiver_is_shown_and_does_not_apply(case):
    expired = waiver(expires=date(2026, 5, 31))
    session = judge_session([case(0.5, 4)], hypervisor_class=KVM, waivers=[expired], build="b1", today=TODAY)
    assert session.outcome is Outcome.OVER
    assert "not accepted: the waiver is for up to 0.5x by ops until 2026-05-31: known" in message(
        session.verdicts[0]
    )


def test_what_is_worse_than_a_waiver_accepts_is_over_in_spite_of_it(case):
    """The cases lose 1 - exp(-0.5) = 39 %."""
    outcomes = {}
    for up_to in (0.6, 0.61):
        waivers = [waiver(up_to=up_to)]
        session = judge_session(
            [case(0.5, 4)], hypervisor_class=KVM, waivers=waivers, build="b1", today=TODAY
        )
        outcomes[up_to] = session.outcome, session.qualified[0], session.accepted
    assert outcomes == {0.6: (Outcome.WITHIN, True, 1), 0.61: (Outcome.OVER, False, 0)}
    assert "not accepted: the waiver is for up to 0.61x by ops until" in message(session.verdicts[0])


def test_of_a_curve_the_worst_range_must_be_accepted(metrics, make):
    """On the mean this curve loses no more than the waiver says."""
    sizes = tuple(2.0**i for i in range(9))
    made = make(metrics["mpi_latency"], [[0.4] * 2 + [0.0] * 7] * 4, sizes)
    (verdict,) = judge_session(
        [Case(made, FIVE, PRIOR)],
        hypervisor_class=KVM,
        waivers=[waiver(metric="mpi_latency", up_to=1.3)],
        build="b1",
        today=TODAY,
    ).verdicts
    assert verdict.judged.ratio(verdict.metric)[0] < 1.3
    assert (verdict.outcome, verdict.waived) == (Outcome.OVER, False)


def test_waivers_are_shown_even_where_they_are_not_needed(case):
    session = judge_session([case(0.0, 2)], hypervisor_class=KVM, waivers=[waiver()], build="b1", today=TODAY)
    assert session.waivers == (waiver(),)
    assert session.verdicts[0].waiver is None


# -- details that a session adds to its verdicts -------------------------------------------------------


def test_a_session_judges_the_change_where_there_is_an_earlier_one(case, make, metrics):
    baseline = make(metrics["hpl"], [5.0] * 4)
    budget = Budget.of(0.05, margin=0.05, gate="change")
    session = judge_session([case(5.0, 2, budget=budget, baseline=baseline)])
    assert session.verdicts[0].gate == "change"
    assert session.verdicts[0].change.log == pytest.approx(0.0, abs=1e-9)
    assert session.outcome is not Outcome.BASELINE


def test_an_overhead_budget_judges_the_change_against_an_earlier_session(case, make, metrics):
    budget = Budget.of(0.05, margin=0.05, hypervisor_class="kvm")
    session = judge_session([case(5.0, 2, budget=budget, baseline=make(metrics["hpl"], [5.0] * 4))])
    judged = session.verdicts[0].budget
    assert (judged.gate, judged.hypervisor_class, judged.terms) == ("change", "kvm", budget.terms)


def test_later_pairs_of_an_acquitted_series_are_accounted_for(case):
    (three,) = judge_session([case(0.0, 3)]).verdicts
    assert three.reasons == ("decided on the screen of 2 pairs; 1 more were run",)
    assert three.passes
    (two,) = judge_session([case(0.0, 2)]).verdicts
    assert two.reasons == ()
    (over,) = judge_session([case(0.5, 6)]).verdicts
    assert not any("screen" in reason for reason in over.reasons)


def test_every_flagged_series_counts_from_the_screen_on(case):
    session = judge_session([case(0.5, 4, "a"), case(0.5, 2, "b")])
    assert (
        session.verdict("hpl@b").evidence.design.family == 1
    )  # the other was convicted and gave its share back
    session = judge_session([case(0.08, 4, "a"), case(0.08, 2, "b")])
    assert [verdict.evidence.design.family for verdict in session.verdicts] == [2, 2]


def test_a_screened_series_has_the_whole_rate_while_it_is_alone(case):
    assert judge_session([case(0.0, 2)]).verdicts[0].evidence.design.family == 1


def test_the_waiver_that_lasts_longest_is_shown(case):
    short, long = waiver(expires=date(2026, 1, 1)), waiver(setting="here", owner="boss")
    session = judge_session(
        [case(0.5, 4)], hypervisor_class=KVM, waivers=[short, long], build="b1", today=TODAY
    )
    assert session.verdicts[0].waiver is long
    assert session.outcome is Outcome.WITHIN


def test_waivers_of_no_class_and_build_do_not_leak(case):
    session = judge_session([case(0.5, 4)], waivers=[waiver(hypervisor_class="", build="")], today=TODAY)
    assert session.verdicts[0].waived
    assert judge_session([case(0.5, 4)], waivers=[waiver()], today=TODAY).waivers == ()


def test_a_plan_says_why(case):
    session = judge_session([case(0.08, 2, "a"), case(0.0, 0, "b"), case(0.0, 1, "c")])
    reasons = {need.series: need.reason for need in session.plan.needs}
    assert reasons == {
        "hpl@a": "UNDECIDED",
        "hpl@b": "0 of the 2 pairs that the first look needs",
        "hpl@c": "UNDECIDED",
    }


def test_a_series_that_is_not_there_is_named(case):
    with pytest.raises(KeyError, match="hpl@gone"):
        judge_session([case(0.0, 2)]).verdict("hpl@gone")


def test_all_repeated_series_are_named(case):
    cases = [case(0.0, 2, "b"), case(0.0, 2, "a"), case(0.0, 2, "a"), case(0.0, 2, "b")]
    with pytest.raises(SessionError, match=r"in a session: hpl@a, hpl@b\."):
        judge_session(cases)


def test_waivers_as_a_report_shows_them():
    assert waiver().text(TODAY) == "overhead of hpl accepted up to 0.5x by ops until 2026-06-01: known"
    assert waiver(setting="here", gate="change").text(TODAY).startswith("change of hpl@here accepted up to")
    expired = waiver(where="waivers.yaml:3").text(date(2026, 6, 2))
    assert expired == "waiver of ops expired on 2026-06-01 (waivers.yaml:3)"


def test_one_session_answers_over_budget_and_worse_than_before(case, metrics, make):
    slow = make(metrics["hpl"], np.full(12, 0.2), setting="here")
    held = Budget.of(0.05, margin=0.05, gate="change")
    session = judge_session([case(0.2, 4), case(0.2, 4, budget=held, baseline=slow)])
    assert [(v.gate, v.outcome) for v in session.verdicts] == [
        ("overhead", Outcome.OVER),
        ("change", Outcome.WITHIN),
    ]
    assert session.outcome is Outcome.OVER
    with pytest.raises(SessionError, match="only once"):
        judge_session([case(0.2, 4), case(0.2, 4)])


def test_three_of_four_fresh_pairs_do_not_convict(metrics, make):
    # Load that lasts hits the pairs after a flag, too; only an overhead is in nearly all of them.
    bursts = Case(make(metrics["hpl"], np.array([0.3, 0.3, 0.04, 0.3, 0.3, 0.3])), FIVE, PRIOR)
    (verdict,) = judge_session([bursts]).verdicts
    assert verdict.outcome is Outcome.UNDECIDED
    (verdict,) = judge_session([bursts], design=Design(session_majority=0.75)).verdicts
    assert verdict.outcome is Outcome.OVER


# -- changes share the earlier session's pairs ---------------------------------------------------------


@pytest.fixture
def changed(case, metrics, make):
    """A series that is judged by its change since an earlier session without overhead."""
    held = Budget.of(0.05, margin=0.05, gate="change")

    def build(level, pairs, setting):
        before = make(metrics["hpl"], np.zeros(12), setting=setting)
        return case(level, pairs, setting, budget=held, baseline=before)

    return build


def families(session):
    return {(v.gate, v.setting): v.evidence.design.family for v in session.verdicts if v.pairs > 2}


def test_all_changes_share_the_error_rate_flagged_or_not(changed):
    # What made an earlier session look fast would flag a series and convict it, too.
    clean = [changed(0.0, 2, str(i)) for i in range(9)]
    session = judge_session([changed(0.08, 4, "x"), *clean])
    assert families(session) == {("change", "x"): 10}
    session = judge_session([changed(0.08, 4, "x"), changed(2.0, 4, "y"), *clean])
    assert session.verdict("hpl@y").outcome is Outcome.OVER
    assert families(session)["change", "x"] == 10  # a conviction gives its share back


def test_two_questions_have_half_of_the_error_rate_each(case, changed):
    clean = [case(0.0, 2, str(i)) for i in range(9)] + [changed(0.0, 2, str(i)) for i in range(9)]
    session = judge_session([case(0.08, 4, "x"), changed(0.08, 4, "x"), *clean])
    assert families(session) == {("overhead", "x"): 2, ("change", "x"): 20}
    assert families(judge_session([case(0.08, 4, "x"), *clean[:9]])) == {("overhead", "x"): 1}


def test_changes_are_decided_late(changed):
    design = judge_session([changed(0.08, 4, "x")]).verdicts[0].evidence.design
    assert design.over_shares == design.curve_shares == Design().change_shares
    assert design.over_level(6) > design.over_level(2)
