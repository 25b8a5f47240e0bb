"""The series of a session together: one error rate, what is still to be run, slow runs, and waivers."""

from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from made_series import (
    CHANGE,
    FIVE,
    KVM,
    PRIOR,
    TODAY,
    at,
    counts,
    in_order,
    judge_session,
    samples_of,
    stated,
    steady,
    waiver,
)

from virtqual.verdict import Case, Need, Outcome, judge_sessions
from virtqual.verdict.budget import Budget
from virtqual.verdict.pairs import Sample, pair_up
from virtqual.verdict.slow_runs import count_events, slow_runs_of


def verdict_on(session, series):
    (verdict,) = [verdict for verdict in session.verdicts if verdict.series == series]
    return verdict


@pytest.fixture
def case(metrics, make):
    def build(level, pairs, setting="here", budget=FIVE, spread=0.01, prior=PRIOR, how=None, **more):
        series = make(metrics["hpl"], steady(level, pairs, spread), setting=setting, **(how or {}))
        return Case(series, budget, prior, **more)

    return build


def waive(case, *waivers):
    """Judge a case that loses 1 - exp(-0.5) = 39 %."""
    return judge_session([case(0.5, 8)], hypervisor_class=KVM, waivers=waivers, build="9", today=TODAY)


# -- what is still to be run ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("series", "needs", "outcome"),
    [
        # Level and pairs of each series: first pairs, a clean session, flagged, convicted.
        ([(0.0, 0), (0.0, 1)], [Need("hpl@0", 0, 1, "NV"), Need("hpl@1", 1, 1, "V")], Outcome.UNDECIDED),
        ([(0.0, 4)] * 20, [], Outcome.WITHIN),
        ([(0.5, 2), (0.0, 4)], [Need("hpl@0", 2, 3, "NN")], Outcome.UNDECIDED),
        ([(0.5, 8), (0.0, 4)], [], Outcome.OVER),
    ],
)
def test_only_series_without_an_answer_need_pairs(case, series, needs, outcome):
    cases = [case(level, pairs, str(index)) for index, (level, pairs) in enumerate(series)]
    session = judge_session(cases, hypervisor_class=KVM)
    assert (session.outcome, verdict_on(session, "hpl@0").outcome) == (outcome, outcome)
    assert session.needs == tuple(needs)
    passes = outcome is Outcome.WITHIN
    assert session.qualified == (passes, "" if passes else outcome.value.lower())


def test_needs_come_to_an_end(case):
    """A driver that runs what is needed comes to an end, whatever it measures."""
    for level in (0.0, 0.05, 0.078, 0.1, 1.0):
        pairs, calls = 0, 0
        while needs := judge_session([case(level, pairs, spread=0.05, prior=stated(0.05))]).needs:
            (need,) = needs
            assert need.first == pairs
            pairs, calls = need.last + 1, calls + 1
            assert calls <= 5
        assert 2 <= pairs <= 18


@pytest.mark.parametrize(
    ("order", "lost", "needs", "says"),
    [
        ("NVNN", [1], "V", "pair 4, virtual first"),
        ("NVNN", [2], "N", "pair 4, native first"),
        # Replaced once, and lost again.
        ("NVNNV", [1, 4], "V", "pair 5, virtual first"),
        ("NVNNVV", [1, 4, 5], "V", "pair 6, virtual first"),
        # Of a harness that takes turns: any order of the fourth pair will do.
        ("NVNV", [1], "N", "pair 4, native first"),
    ],
)
def test_pairs_refused_are_asked_for_again_in_their_order(metrics, order, lost, needs, says):
    runs = in_order(samples_of(metrics["hpl"], [[0.0]] * len(order)), order)
    runs = [replace(run, invalid=("loud",)) if run.number in lost else run for run in runs]
    session = judge_session([Case(pair_up(metrics["hpl"], "here", (), runs), FIVE, PRIOR)], min_pairs=4)
    assert session.needs == (Need("hpl@here", len(order), len(order + needs) - 1, needs),)
    assert f"; next: {says}; pair" in session.verdicts[0].message


@pytest.mark.parametrize("pairs", [8, 11])
def test_a_rotation_needs_whole_rounds(metrics, pairs):
    """Two hosts a side; what is left of a round that is not whole does not count."""
    hosts = {"native": list("ab" * 6)[:pairs], "virtual": list("xyyx" * 3)[:pairs]}
    d = [[0.078 + 0.2 * (name == "x")] for name in hosts["virtual"]]
    runs = samples_of(metrics["hpl"], d, hosts=hosts)
    if pairs == 11:  # pair 3 is refused, and pair 11 was not run
        runs = [replace(run, invalid=("loud",)) if run.number == 3 else run for run in runs]
    session = judge_session([Case(pair_up(metrics["hpl"], "here", (), runs), FIVE, PRIOR)])
    (verdict,), (need,) = session.verdicts, session.needs
    assert (set(verdict.hosts), verdict.pairs) == (set("abxy"), 8)
    assert (need.first, need.last, need.order, verdict.next_order) == (pairs, pairs + 7, "", "")
    assert "next: " not in verdict.message


# -- the session's one answer ----------------------------------------------------------------------------


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
    made = {
        "WITHIN": case(0.0, 4, "within"),
        "OVER": case(0.5, 8, "over"),
        "UNDECIDED": case(0.12, 2, "undecided"),
        "INVALID": case(0.0, 4, "invalid", refused=("no",)),
        "BASELINE": case(3.0, 4, "baseline", budget=CHANGE),
    }
    session = judge_session([made[name] for name in outcomes.split()])
    assert session.outcome is expected
    assert {outcome.value for outcome in session.outcomes} == set(outcomes.split())


def test_a_class_that_never_qualifies_says_so(case):
    emulated = KVM.model_copy(update={"name": "emulated", "gate": "change", "qualifies": False})
    assert judge_session([case(0.0, 4)], hypervisor_class=emulated).qualified == (False, "emulated")
    assert judge_session([case(0.0, 4)]).qualified == (False, "no hypervisor class")
    worded = emulated.model_copy(update={"gate": "overhead", "because": "emulated hosts"})
    assert judge_session([case(0.0, 4)], hypervisor_class=worded).qualified == (False, "emulated hosts")


def test_two_pairs_qualify_no_build(case):
    few, enough = (
        judge_session([case(0.0, pairs)], looks=(pairs,), hypervisor_class=KVM) for pairs in (2, 4)
    )
    assert (few.outcome, few.qualified) == (
        Outcome.WITHIN,
        (False, "fewer than 4 pairs can lack rare slow runs"),
    )
    assert enough.qualified == (True, "")


def test_one_boot_qualifies_no_build(metrics):
    for boots, is_qualified in (("aaaa", False), ("aabb", True)):
        runs = samples_of(metrics["hpl"], [[value] for value in steady(0.0, 4)], boots=list(boots))
        session = judge_session(
            [Case(pair_up(metrics["hpl"], "here", (), runs), FIVE, PRIOR)], hypervisor_class=KVM
        )
        assert session.outcome is Outcome.WITHIN
        assert session.qualified[0] == is_qualified
        assert (" of one boot" in session.verdicts[0].message) != is_qualified


def test_nothing_is_over_by_fewer_boots_than_can_be_had(metrics):
    for boots, outcome in (("aaaabbbb", Outcome.UNDECIDED), ("aaaabbcc", Outcome.OVER)):
        runs = samples_of(metrics["hpl"], [[value] for value in steady(0.5, 8)], boots=list(boots))
        case = Case(pair_up(metrics["hpl"], "here", (), runs), FIVE, PRIOR)
        assert judge_session([case], recreates_vms=True).outcome is outcome
        assert judge_session([case]).outcome is Outcome.OVER


def test_slow_runs_take_as_many_boots_as_any_other_over(metrics):
    """One bad boot makes a run of each metric slow, again and again."""
    for boots, is_found in (("a" * 12 + "b" * 12, False), ("a" * 8 + "b" * 8 + "c" * 8, True)):
        values = [[0.5 * (number % 2)] for number in range(24)]
        runs = samples_of(metrics["hpl"], values, boots=list(boots))
        case = Case(pair_up(metrics["hpl"], "here", (), runs), WIDE, PRIOR)
        slow = judge_session([case], recreates_vms=True).slow_runs
        assert (slow.boots, slow.found) == (len(set(boots)), is_found)
        assert judge_session([case]).slow_runs.found


ROTATED = "hosts confounded: native a, b, virtual x, y, and no survey bounds the difference"
ROTATED_FOUR = ROTATED.replace("a, b", "a, b, c, d").replace("x, y", "w, x, y, z")


@pytest.mark.parametrize(
    ("native", "virtual", "bound", "why"),
    [
        ("", "", float("inf"), "it is not stated which hosts carry the virtual machines"),
        ("a", "", float("inf"), "it is not stated which hosts carry the virtual machines"),
        ("a", "b", 0.001, ""),
        ("a", "a", float("inf"), ""),
        ("ab", "xyyx", float("inf"), ROTATED),
    ],
)
def test_a_build_qualifies_only_where_hosts_are_known(case, native, virtual, bound, why):
    hosts = {"hosts": at(*(np.resize(list(names) or [""], 8) for names in (native, virtual)))}
    session = judge_session(
        [case(0.0, 8, "a"), case(0.0, 8, "b", how=hosts, bound=bound)], hypervisor_class=KVM
    )
    assert session.outcome is Outcome.WITHIN
    assert session.qualified == (not why, why)


@pytest.mark.parametrize(
    ("hosts", "why"),
    [
        (at(["host"] * 12, ["host"] * 12), ""),
        (at(["other"] * 12, ["other"] * 12), ""),
        (at([""] * 12, [""] * 12), "it is not stated which hosts carry the virtual machines"),
        (at("abcd" * 3, "wxyzxywzyzxw"), ROTATED_FOUR),
    ],
)
def test_hosts_of_the_earlier_session_leave_a_change_to_them_as_well(case, metrics, make, hosts, why):
    """What it called overhead may have been one of hosts, behind which a slower build hides now."""
    before = make(metrics["hpl"], steady(0.0, 12), hosts=hosts)
    session = judge_session([case(0.0, 8, budget=CHANGE, baseline=before)], hypervisor_class=KVM)
    assert session.outcome is Outcome.WITHIN
    assert session.qualified == (not why, why)


# -- one error rate ------------------------------------------------------------------------------------


NARROW = Budget.build(0.05, margin=0.02)


def crowd(case, level, spread=0.02):
    """Return a case that is just OVER alone, and forty others."""
    others = [case(level, 18, str(index), NARROW, spread) for index in range(40)]
    return [case(0.0717, 18, "x", NARROW, 0.02), *others]


def test_flagged_series_share_the_error_rate_and_convictions_give_theirs_back(case):
    def judged(cases):
        return verdict_on(judge_session(cases), "hpl@x").outcome

    assert judged(crowd(case, 0.063)[:1]) is Outcome.OVER
    assert judged(crowd(case, 0.063)) is Outcome.UNDECIDED
    assert judged(crowd(case, 2.0)) is Outcome.OVER
    # Series that were never flagged cost nothing.
    assert judged(crowd(case, 0.0, 0.001)) is Outcome.OVER
    # Sessions that share the error rate convict less easily.
    assert judge_session(crowd(case, 0.063)[:1], share=40).outcome is not Outcome.OVER


def test_one_case_in_two_sessions_has_the_answer_of_each(case):
    many = crowd(case, 0.063)
    alone = many[:1]
    for sessions in ([alone, many], [many, alone], [alone, many, alone]):
        answers = [verdict_on(session, "hpl@x").outcome for session in judge_sessions(sessions)]
        assert answers == [Outcome.OVER if cases is alone else Outcome.UNDECIDED for cases in sessions]


def test_changes_share_the_error_rate_flagged_or_not(case, metrics, make):
    """What made an earlier session look fast would flag a series and convict it, too."""

    def changed(level, setting, spread=0.01):
        before = make(metrics["hpl"], np.zeros(18), setting=setting)
        return case(level, 18, setting, CHANGE, spread, baseline=before)

    def judged(*company):
        return verdict_on(judge_session([changed(0.073, "x", 0.02), *company]), "hpl@x").outcome

    assert judged() is Outcome.OVER
    assert judged(*(changed(0.0, str(i)) for i in range(40))) is not Outcome.OVER
    assert judged(*(changed(2.0, str(i)) for i in range(40))) is Outcome.OVER


def test_the_stated_boots_of_one_series_are_not_those_of_another(metrics):
    """A series whose boots nobody states must not take them for known because its neighbour's are."""
    d = steady(0.0, 8, 0.002) + np.repeat([0.06, -0.06], 4)

    def torn(setting, prior):
        runs = samples_of(metrics["hpl"], [[value] for value in d], boots=["1"] * 4 + ["2"] * 4)
        return Case(pair_up(metrics["hpl"], setting, (), runs), FIVE, prior)

    mine, other = torn("x", PRIOR), torn("y", stated(0.02, between=0.03))
    alone = verdict_on(judge_session([mine]), "hpl@x")
    assert alone.outcome is Outcome.UNDECIDED
    beside, (apart, _) = judge_session([mine, other]), judge_sessions([[mine], [other]])
    for session in (beside, apart):
        assert verdict_on(session, "hpl@x").outcome is Outcome.UNDECIDED
        assert verdict_on(session, "hpl@x").overhead == alone.overhead


# -- two questions -------------------------------------------------------------------------------------


def test_one_session_answers_over_budget_and_worse_than_before(case, metrics, make):
    slow = make(metrics["hpl"], np.full(12, 0.2), setting="here")
    session = judge_session([case(0.2, 8), case(0.2, 8, budget=CHANGE, baseline=slow)])
    answers = [(verdict.gate, verdict.outcome) for verdict in session.verdicts]
    assert answers == [("overhead", Outcome.OVER), ("change", Outcome.WITHIN)]
    assert session.outcome is Outcome.OVER


def test_an_overhead_budget_judges_the_change_against_an_earlier_session(case, metrics, make):
    budget = Budget.build(0.05, margin=0.05)
    session = judge_session([case(5.0, 4, budget=budget, baseline=make(metrics["hpl"], [5.0] * 12))])
    (verdict,) = session.verdicts
    assert (verdict.gate, verdict.outcome) == ("change", Outcome.WITHIN)
    assert verdict.budget == "at most 5% slower (margin 5%)"
    assert "; change allowed at most 5% slower" in verdict.message


# -- slow runs -----------------------------------------------------------------------------------------


@pytest.fixture
def spiky(metrics):
    """A case whose virtual runs of some numbers take 1.6 times as long, beside others of the same runs."""

    def build(slow, metric="hpl", setting="here", pairs=12, native=(), refused=()):
        d = np.array([[0.5 * (number in slow)] for number in range(pairs)])
        runs = samples_of(metrics[metric], d)
        better = metrics[metric].better == "lower"
        runs = [
            replace(run, values=(run.values[0] * (1.6 if better else 1 / 1.6),))
            if run.side == "native" and run.number in native
            else run
            for run in runs
        ]
        return Case(pair_up(metrics[metric], setting, (), runs), FIVE, PRIOR, refused=refused)

    return build


def test_a_run_is_slow_once_however_many_of_its_metrics_are(spiky):
    both = [spiky({1, 5}), spiky({5, 7}, "lammps_loop_time")]
    session = judge_session(both)
    assert (session.slow_runs.virtual, session.slow_runs.virtual_runs) == (3, 12)
    assert (session.slow_runs.native, session.slow_runs.native_runs) == (0, 12)
    assert session.slow_runs.factor == pytest.approx(np.exp(0.5))
    # A series under two gates has its runs once, and a refused series none.
    before = spiky(set(), pairs=12).series
    twice = [*both, replace(both[0], baseline=before), spiky({1, 2, 3}, setting="other", refused=("no",))]
    assert judge_session(twice).slow_runs == session.slow_runs


@pytest.mark.parametrize(
    ("slow", "events"),
    [
        ("N0", (0, 1)),
        ("V0 V1", (1, 0)),  # the order is N0 V0 V1 N1 V2 N2 N3 V3: neighbours
        ("V1 V2", (2, 0)),
        ("N2 N3", (0, 1)),
        ("N0 V0", (0, 0)),
        ("N0 V0 V1", (0, 0)),
        ("V0 V1 N2 N3 V3", (1, 0)),
    ],
)
def test_slow_runs_that_follow_each_other_are_one_event(slow, events):
    order = ["N0", "V0", "V1", "N1", "V2", "N2", "N3", "V3"]
    sides = {"N": "native", "V": "virtual"}

    def count(host):
        """Count with a second metric whose program ends later, and a machine on which nothing is slow."""
        runs = []
        for place, name in enumerate(order):
            run = Sample(sides[name[0]], int(name[1]), (1.0,), 60.0 * place, 60.0 * place + 50, node="n1")
            run = replace(run, host=host)
            runs.append((run, 0.7 * (name in slow.split())))
            runs.append((replace(run, end=run.end + 5), runs[-1][1]))
            runs.append((replace(run, node="n2", host=host and "other"), 0.0))
        counts = count_events(runs)
        return counts["virtual"], counts["native"]

    assert count("host") == events
    assert count("") == events


def test_slow_runs_on_several_machines_at_one_time_are_several_events():
    runs = [
        (Sample(side, 0, (1.0,), start, start + 50, node=f"{side} {node}"), 0.7 * (side == "virtual"))
        for start, side in ((0.0, "native"), (60.0, "virtual"), (120.0, "native"))
        for node in range(3)
    ]
    assert count_events(runs) == {"virtual": 3}
    # Where nothing is said of the machines there may be only one.
    assert count_events([(replace(run, node=""), excess) for run, excess in runs]) == {"virtual": 1}


def test_slow_runs_of_both_sides_are_counted_apart(spiky):
    slow = judge_session([spiky({1}, native={4, 8, 9})]).slow_runs
    assert (slow.virtual, slow.native) == (1, 3)
    # A steady overhead makes no run slow.
    steady_runs = judge_session([spiky(set(range(12)))]).slow_runs
    assert (steady_runs.virtual, steady_runs.factor) == (0, 0.0)


def test_each_slow_run_without_times_is_an_event(spiky):
    case = spiky({1, 5})
    pairs = [replace(pair, virtual=replace(pair.virtual, end=float("nan"))) for pair in case.series.pairs]
    slow = slow_runs_of([replace(case, series=replace(case.series, pairs=tuple(pairs)))])
    assert (slow.virtual, slow.virtual_runs, slow.native) == (2, 12, 0)


WIDE = Budget.build(0.5, margin=0.4)


def of_many(case, series, slow, budget=WIDE):
    """A clean session of many series with 4 pairs of their own; the first `slow` of them have a slow run.

    The budget is so wide that no series is flagged.
    """
    made = []
    for index in range(series):
        one = case(0.0, 4, str(index), budget, spread=0.001)
        runs = [run for pair in one.series.pairs for run in (pair.native, pair.virtual)]
        # Each series' runs are at a time of their own.
        runs = [replace(run, start=run.start + 1000 * index, end=run.end + 1000 * index) for run in runs]
        runs = [
            replace(run, values=(run.values[0] / 1.9,))
            if index < slow and (run.side, run.number) == ("virtual", 2)
            else run
            for run in runs
        ]
        made.append(replace(one, series=pair_up(one.series.metric, str(index), (), runs)))
    return made


def test_virtual_runs_that_are_slow_more_often_are_found_and_make_it_over(case):
    for slow, found in ((8, False), (9, True)):
        session = judge_session(of_many(case, 33, slow), hypervisor_class=KVM)
        assert {verdict.outcome for verdict in session.verdicts} == {Outcome.WITHIN}
        assert (session.slow_runs.virtual, session.slow_runs.virtual_runs) == (slow, 132)
        assert session.slow_runs.found == found
        assert session.outcome is (Outcome.OVER if found else Outcome.WITHIN)
        assert session.qualified == ((False, "over") if found else (True, ""))


def test_slow_runs_of_earlier_sessions_are_added(case):
    cases = of_many(case, 20, 5)
    before = counts(5, 88, 0)
    alone, together = judge_session(cases), judge_session(cases, slow_before=before)
    assert (alone.slow_runs.found, together.slow_runs.found) == (False, True)
    assert together.slow_runs.virtual == 5
    assert together.slow_runs.text.endswith(
        "10 times in 168 runs, native runs 0 times in 168, with earlier sessions of this build"
    )
    assert "earlier" not in alone.slow_runs.text
    assert together.outcome is Outcome.OVER
    # Where native runs were as slow, the machine is.
    native = judge_session(cases, slow_before=counts(5, 88, 8))
    assert not native.slow_runs.found
    # A session without any is not OVER for those before it.
    many = counts(20, 88, 0)
    after = judge_session(of_many(case, 20, 0), slow_before=many)
    assert (after.slow_runs + many).p < 0.001
    assert after.outcome is Outcome.WITHIN
    assert judge_session(of_many(case, 20, 1), slow_before=many).outcome is Outcome.OVER


def test_slow_runs_are_asked_for_once_when_nothing_is_left_to_run(case):
    session = judge_session(of_many(case, 33, 12, FIVE))
    assert session.needs
    assert session.slow_runs.p < 0.001
    assert not session.slow_runs.found
    assert session.outcome is Outcome.UNDECIDED


def test_sessions_that_share_the_error_rate_share_that_of_slow_runs(case):
    cases = of_many(case, 33, 9)
    alone = judge_session(cases).slow_runs
    assert (alone.found, "earlier" in alone.text) == (True, False)
    assert not judge_session(cases, share=2).slow_runs.found


# -- waivers -----------------------------------------------------------------------------------------


def test_a_waived_over_stays_over_and_no_longer_stops_the_session(case):
    session = waive(case, waiver())
    (verdict,) = session.verdicts
    assert verdict.outcome is Outcome.OVER
    assert verdict.passes
    assert (session.outcome, session.today) == (Outcome.WITHIN, TODAY)
    assert verdict.message.startswith("OVER hpl@here: virtual is 39.3% slower (")
    assert verdict.message.splitlines()[1] == "accepted up to 50% slower by ops until 2026-06-01: known"


@pytest.mark.parametrize(
    "change", ["build b2", "hypervisor_class esxi", "metric dgemm", "setting there", "gate change"]
)
def test_a_waiver_for_something_else_does_not_apply(case, change):
    session = waive(case, waiver(**dict([change.split()])))
    assert session.outcome is Outcome.OVER
    assert session.verdicts[0].waiver is None


def test_an_expired_waiver_is_shown_and_does_not_apply(case):
    session = waive(case, waiver(expires=date(2026, 5, 31)))
    assert session.outcome is Outcome.OVER
    says = "not accepted: the waiver is for up to 50% slower by ops until 2026-05-31: known"
    assert says in session.verdicts[0].message


def test_what_is_worse_than_a_waiver_accepts_is_over_in_spite_of_it(case):
    outcomes = {}
    for up_to in ("40%", "39%"):
        session = waive(case, waiver(up_to=up_to))
        outcomes[up_to] = session.outcome, session.qualified[0], session.verdicts[0].waived
    accepted, refused = (Outcome.WITHIN, True, True), (Outcome.OVER, False, False)
    assert outcomes == {"40%": accepted, "39%": refused}
    assert "not accepted: the waiver is for up to 39% slower by ops until" in session.verdicts[0].message


@pytest.mark.parametrize(("up_to", "is_accepted"), [("200%", False), ("350%", True)])
def test_a_size_that_is_surely_slower_than_a_waiver_says_is_not_accepted(metrics, make, up_to, is_accepted):
    """The mean of the range is 2.7 times as slow, one of its sizes 4 times."""
    rows = np.log([[1.0, 2.2, 4.0, 2.2, 1.0]] * 8) + 0.002 * np.resize([1, -1], 8)[:, None]
    series = make(metrics["mpi_latency"], rows, (2, 4, 8, 16, 32))
    accepted = (waiver(metric="mpi_latency", up_to=up_to),)
    session = judge_session(
        [Case(series, FIVE, PRIOR)], hypervisor_class=KVM, waivers=accepted, build="9", today=TODAY
    )
    assert [verdict.waived for verdict in session.verdicts] == [is_accepted]


@pytest.mark.parametrize(("metric", "largest"), [("lammps_loop_time", 1.5), ("hpl", 1 / (1 - 0.5))])
def test_a_waiver_accepts_up_to_its_share_of_native(metrics, metric, largest):
    """Half as long again, or half of the rate."""
    log = np.log(largest)
    covers = [waiver(metric=metric).covers(log + more, metrics[metric]) for more in (-0.001, 0.001)]
    assert covers == [True, False]


def test_of_a_curve_the_worst_range_must_be_accepted(metrics, make):
    """On the mean this curve loses no more than the waiver says."""
    sizes = tuple(2.0**i for i in range(9))
    made = make(metrics["mpi_latency"], [[0.4] * 2 + [0.0] * 7] * 8, sizes)
    (verdict,) = judge_session(
        [Case(made, FIVE, PRIOR)],
        hypervisor_class=KVM,
        waivers=[waiver(metric="mpi_latency", up_to="30%")],
        build="9",
        today=TODAY,
    ).verdicts
    assert verdict.judged.ratio < 1.3
    assert (verdict.outcome, verdict.waived) == (Outcome.OVER, False)


def test_waivers_of_the_class_and_build_are_shown_even_where_they_are_not_needed(case):
    session = judge_session([case(0.0, 4)], hypervisor_class=KVM, waivers=[waiver()], build="9", today=TODAY)
    assert session.waivers == (waiver(),)
    assert session.verdicts[0].waiver is None
    assert judge_session([case(0.5, 8)], waivers=[waiver()], today=TODAY).waivers == ()


def test_the_waiver_that_lasts_longest_is_shown(case):
    days = date(2026, 1, 1), date(2026, 6, 2), date(2026, 6, 3), TODAY
    waivers = [waiver(expires=day, owner=f"owner {number}") for number, day in enumerate(days)]
    session = waive(case, *waivers)
    assert session.verdicts[0].waiver == f"{waivers[2].accepted}: {waivers[2].reason}"
    assert session.outcome is Outcome.WITHIN


def test_waivers_as_a_report_shows_them():
    assert waiver().text(TODAY) == "overhead of hpl accepted up to 50% slower by ops until 2026-06-01: known"
    assert waiver(setting="here", gate="change").text(TODAY).startswith("change of hpl@here accepted up to")
    expired = waiver().read_from("waivers.yaml", 3).text(date(2026, 6, 2))
    assert expired == "waiver of ops expired on 2026-06-01 (waivers.yaml:3)"


def test_a_slow_run_beyond_all_floats_has_a_factor_still(case):
    calm = case(0.0, 8)
    pairs = [replace(pair, native=replace(pair.native, values=(1e308,))) for pair in calm.series.pairs]
    values = [1e308] * 5 + [1e-308] * 3
    pairs = [
        replace(pair, virtual=replace(pair.virtual, values=(value,)))
        for pair, value in zip(pairs, values, strict=True)
    ]
    slow_runs = slow_runs_of([replace(calm, series=replace(calm.series, pairs=tuple(pairs)))])
    assert slow_runs.virtual == 2  # of the last three runs two follow each other
    assert 1e300 < slow_runs.factor < float("inf")
