"""One series at a time: what its verdict says, and why."""

import math
from dataclasses import replace

import numpy as np
import pytest
from made_series import CHANGE, FIVE, PRIOR, alone, at, budget_of, judge_session, samples_of, stated, steady

from virtqual.verdict import Case, Outcome, Verdict
from virtqual.verdict.budget import Budget, BudgetError, Quantity
from virtqual.verdict.pairs import PairingError, Sample, pair_up
from virtqual.verdict.rule import LOOKS
from virtqual.verdict.texts import TOO_GOOD

SIZES = tuple(2.0**i for i in range(23))


def bump(low, high, height, pairs, spread=0.01):
    shape = np.where([low <= size <= high for size in SIZES], height, 0.0)
    return [shape + spread * (-1) ** i * (-1.0) ** np.arange(23) for i in range(pairs)]


@pytest.fixture
def judged(metrics, make):
    """Return a function that judges differences of one scalar, alone in its session."""

    def judge(differences, budget=FIVE, prior=PRIOR, looks=LOOKS, before=None, name="hpl", **how):
        case = {key: how.pop(key) for key in ("refused", "bound", "earlier_bound") if key in how}
        series = make(metrics[name], differences, **how)
        return alone(series, budget, prior, looks, baseline=before, **case)

    return judge


@pytest.fixture
def judged_curve(metrics, make):
    """Return a function that judges differences of a latency by size, alone in its session."""

    def judge(rows, budget=FIVE, prior=PRIOR, points=SIZES, **how):
        return alone(make(metrics["mpi_latency"], rows, points, **how), budget, prior)

    return judge


@pytest.fixture
def judged_runs(metrics):
    """Return a function that judges runs of a scalar, alone in its session; a gate refuses some runs."""

    def judge(runs, refused=()):
        runs = [replace(run, invalid=("loud",)) if (run.side, run.number) in refused else run for run in runs]
        return alone(pair_up(metrics["hpl"], "here", (), runs), FIVE, PRIOR)

    return judge


def runs_of(metrics, differences, **how):
    return samples_of(metrics["hpl"], [[value] for value in differences], **how)


# -- pairs that count --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "outcome", "pairs", "next_pairs"),
    [
        ([(0.0, 4)], "WITHIN", 4, None),
        ([(0.0, 2)], "WITHIN", 2, None),
        # A conviction needs two fresh pairs, and the pairs of a look.
        ([(0.3, 2)], "UNDECIDED", 2, 4),
        ([(0.3, 3)], "UNDECIDED", 3, 4),
        ([(0.3, 4)], "OVER", 4, None),
        ([(0.3, 5)], "OVER", 4, None),
        # An acquittal does not stand against later pairs.
        ([(0.0, 4), (0.4, 3)], "UNDECIDED", 7, 8),
        ([(0.0, 4), (0.4, 14)], "OVER", 18, None),
        # Pairs that flagged do not convict.
        ([(0.4, 2), (0.03, 2)], "UNDECIDED", 4, 8),
        ([(0.4, 2), (0.03, 6)], "UNDECIDED", 8, 12),
        ([(0.4, 2), (0.045, 16)], "UNDECIDED", 18, None),
        # A conviction stands, whatever is run afterwards.
        ([(0.3, 4), (0.0, 14)], "OVER", 4, None),
    ],
)
def test_answers_by_pairs(judged, parts, outcome, pairs, next_pairs):
    verdict = judged(np.concatenate([steady(*part) for part in parts]))
    assert (verdict.outcome, verdict.pairs, verdict.next_pairs) == (Outcome[outcome], pairs, next_pairs)
    assert (verdict.passes, bool(verdict.reasons)) == (outcome == "WITHIN", outcome == "UNDECIDED")
    assert outcome != "OVER" or verdict.overhead.lower > verdict.limit
    assert len(verdict.findings) == (outcome == "OVER")


def test_the_budget_itself_is_within_and_budget_plus_margin_is_not(judged):
    assert judged(steady(np.log(1.05), 18), name="lammps_loop_time").outcome is Outcome.WITHIN
    assert judged(steady(np.log(1.10), 18), name="lammps_loop_time").outcome is Outcome.OVER


@pytest.mark.parametrize("pairs", [4, 5, 7, 9, 13, 18, 21])
@pytest.mark.parametrize(("level", "spread"), [(0.0, 0.02), (0.078, 0.06)])
def test_all_pairs_that_were_run_count(judged, pairs, level, spread):
    d = steady(level, pairs, spread)
    d[-1] -= 0.03
    verdict = judged(d, prior=stated(0.05))
    assert verdict.outcome is not Outcome.OVER
    assert verdict.pairs == pairs
    assert verdict.overhead.log == pytest.approx(d.mean(), rel=1e-6)


def test_three_pairs_of_five_on_the_bad_side_of_two_speeds_do_not_convict(judged):
    assert judged(0.07 + 0.5 * np.resize([1, -1], 5)).outcome is Outcome.UNDECIDED


@pytest.mark.parametrize("pairs", [4, 6, 18])
def test_a_single_look_lets_all_pairs_convict(judged, pairs):
    assert judged(steady(0.3, pairs), looks=[pairs]).outcome is Outcome.OVER
    assert judged(steady(0.0, pairs), looks=[pairs]).outcome is Outcome.WITHIN
    fewer = judged(steady(0.3, pairs - 1), looks=[pairs])
    assert (fewer.outcome, fewer.next_pairs) == (Outcome.UNDECIDED, pairs)
    last = judged(steady(0.078, pairs, 0.07), looks=[pairs], prior=stated(0.07))
    assert (last.outcome, last.next_pairs) == (Outcome.UNDECIDED, None)
    assert last.reasons == (f"still undecided at the maximum of {pairs} pairs",)


def test_before_the_first_decision_it_says_how_many_pairs_it_takes(judged, judged_runs):
    none = judged_runs([])
    assert (none.outcome, none.next_pairs, none.overhead) == (Outcome.UNDECIDED, 2, None)
    assert none.reasons == ("0 of the 2 pairs that the first decision needs",)
    one = judged([0.1])
    assert (one.outcome, one.next_pairs, one.pairs) == (Outcome.UNDECIDED, 2, 1)
    assert one.overhead.log == pytest.approx(0.1)
    assert one.overhead.upper is None


@pytest.mark.parametrize("pairs", [1, 2, 5])
def test_the_spread_is_the_standard_deviation_between_pairs(judged, pairs):
    d = steady(0.1, pairs) + 0.002 * np.arange(pairs)
    assert judged(d).spread == (None if pairs == 1 else pytest.approx(np.std(d, ddof=1)))


def test_next_pairs(judged):
    wide = stated(0.05)
    looks = {n: judged(steady(0.078, n, 0.045), prior=wide).next_pairs for n in (4, 5, 8, 11, 12, 17, 18)}
    assert looks == {4: 8, 5: 8, 8: 12, 11: 12, 12: 18, 17: 18, 18: None}


# -- noise -------------------------------------------------------------------------------------------


def test_one_slow_virtual_run_neither_convicts_nor_is_forgotten_and_a_native_one_does_nothing(judged):
    slow, fast = np.zeros(4), np.zeros(4)
    slow[2], fast[2] = 1.0, -1.0
    assert judged(slow).outcome is Outcome.UNDECIDED
    assert judged(fast).outcome is Outcome.WITHIN
    assert judged([*slow, *np.zeros(14)]).outcome is not Outcome.OVER


@pytest.mark.parametrize("pairs", [2, 4, 8, 12, 18])
def test_hopeless_noise_gets_no_more_pairs_and_says_how_many_it_would_need(judged, pairs):
    verdict = judged(steady(0.07, pairs, spread=0.5))
    if pairs < 12:  # which say too little of noise
        assert (verdict.outcome, verdict.next_pairs) == (Outcome.UNDECIDED, {2: 4, 4: 8, 8: 12}[pairs])
        return
    assert (verdict.outcome, verdict.next_pairs) == (Outcome.UNDECIDED, None)
    (reason,) = verdict.reasons
    assert reason.startswith("noise too high: with 18 pairs the overhead would be known to ")
    assert reason.endswith("noise (virtqual propose) if the stated one is too large")
    assert ", the margin is 5.0%; it would take up to " in reason


def test_a_large_overhead_is_seen_in_spite_of_noise(judged):
    assert judged(steady(3.0, 8, spread=0.2)).outcome is Outcome.OVER


def test_noise_of_a_curve_names_its_worst_size(judged_curve):
    rows = np.random.default_rng(1).normal(0.04, 0.01, (18, 4))
    rows[:, 2] += np.resize([0.9, -0.9], 18)
    verdict = judged_curve(rows, points=(1, 2, 4, 8))
    assert verdict.outcome is Outcome.UNDECIDED
    assert "% at 4 B, the margin is 5.0%; it would take up to " in verdict.message


# -- what is left out ----------------------------------------------------------------------------------


def test_a_refusal_makes_it_invalid_whatever_the_numbers(judged):
    for level in (0.0, 0.5, -0.5):
        verdict = judged(steady(level, 8), refused=("native misses its reference",))
        assert (verdict.outcome, verdict.next_pairs) == (Outcome.INVALID, None)
        assert verdict.reasons == ("native misses its reference",)
        assert verdict.overhead.log == pytest.approx(level)


def test_an_order_that_favours_one_side_makes_it_invalid(metrics, judged):
    runs = samples_of(metrics["hpl"], [[0.0]] * 4)
    starts = {(run.number, run.side): 20.0 * run.number + 10 * (run.side == "virtual") for run in runs}
    runs = [replace(run, start=(t := starts[run.number, run.side]), end=t + 5) for run in runs]
    series = pair_up(metrics["hpl"], "here", (), runs)
    says = "not alternated: native ran first in 4 of 4 pairs, which favours one side"
    verdict = alone(series, FIVE, PRIOR)
    assert (verdict.outcome, verdict.reasons) == (Outcome.INVALID, (says,))
    # Of two sessions either order decides what seems to have changed.
    verdict = judged(steady(0.0, 8), CHANGE, before=series)
    assert (verdict.outcome, verdict.reasons) == (Outcome.INVALID, (f"earlier session: {says}",))


@pytest.mark.parametrize(
    ("bad", "expected"),
    [([], Outcome.WITHIN), ([1], Outcome.WITHIN), (range(6), Outcome.WITHIN), (range(8), Outcome.INVALID)],
)
def test_refused_pairs_are_left_out_unless_they_are_the_rule(metrics, judged_runs, bad, expected):
    verdict = judged_runs(runs_of(metrics, steady(0.0, 8)), [("native", number) for number in bad])
    assert verdict.outcome is expected
    numbers = ", ".join(map(str, bad))
    says = f"pair{'s' * (len(bad) > 1)} {numbers} left out: native run refused: loud"
    assert (says in verdict.message) == bool(bad)
    assert ("(of pair 0; the others alike)" in verdict.message) == (len(bad) > 1)


@pytest.mark.parametrize(
    ("pairs", "bad", "outcome"),
    [
        (1, 1, Outcome.UNDECIDED),
        # Chance loses two runs now and then, and hardly four.
        (3, 3, Outcome.UNDECIDED),
        (4, 4, Outcome.INVALID),
        # A single valid pair of three asks for others.
        (3, 2, Outcome.UNDECIDED),
        (4, 2, Outcome.WITHIN),
        (5, 2, Outcome.WITHIN),
    ],
)
def test_pairs_that_lost_a_run_are_replaced_unless_all_of_four_did(metrics, judged_runs, pairs, bad, outcome):
    refused = [("native", number) for number in range(bad)]
    verdict = judged_runs(runs_of(metrics, steady(0.0, pairs)), refused)
    assert verdict.outcome is outcome
    assert verdict.next_pairs == (2 if outcome is Outcome.UNDECIDED else None)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_values_that_are_no_numbers_never_help(metrics, value):
    runs = runs_of(metrics, [0.0] * 8)
    broken = [
        replace(run, values=(value,)) if run.side == "virtual" and run.number < 3 else run for run in runs
    ]
    series = pair_up(metrics["hpl"], "here", (), broken)
    assert judge_session([Case(series, FIVE, PRIOR)]).outcome is Outcome.UNDECIDED


# -- too good ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gate", ["overhead", "baseline", "change", "against"])
def test_what_is_too_good_to_be_true_is_invalid_under_every_gate(judged, metrics, make, gate):
    before = make(metrics["hpl"], steady(-0.3, 12)) if gate in ("change", "against") else None
    budget = CHANGE if gate in ("baseline", "change") else FIVE
    verdict = judged(steady(-0.3, 8), budget, before=before)
    assert (verdict.outcome, verdict.next_pairs) == (Outcome.INVALID, None)
    assert verdict.reasons == (TOO_GOOD,)
    before = make(metrics["hpl"], steady(-0.05, 12)) if before else None
    fine = judged(steady(-0.05, 8), budget, before=before)
    assert fine.outcome is (Outcome.BASELINE if gate == "baseline" else Outcome.WITHIN)


def test_a_curve_is_too_good_by_its_mean_and_not_by_one_size(judged_curve):
    rows = np.zeros((4, 23))
    rows[:, 5] = -0.4
    assert judged_curve(rows, prior=stated(0.01)).passes
    verdict = judged_curve(rows - 0.2, prior=stated(0.01))
    assert (verdict.outcome, verdict.reasons) == (Outcome.INVALID, (TOO_GOOD,))


# -- budgets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("absolute", "outcome"), [(1.0, Outcome.WITHIN), (0.2, Outcome.OVER)])
def test_relative_and_absolute_together(judged_curve, absolute, outcome):
    allowed = Quantity(value=absolute, unit="us")
    budget = budget_of(relative=0.05, absolute=allowed, at_most=0.6, margin=0.05)
    rows = np.outer(steady(np.log(1.3), 8), np.ones(3))
    assert judged_curve(rows, budget, points=SIZES[:3], native=2.0).outcome is outcome


def test_a_budget_that_cannot_be_applied_is_an_error_unless_the_series_is_refused(judged):
    budget = Budget.build(0.6, margin=0.5)
    with pytest.raises(BudgetError, match="allow everything to be lost"):
        judged([0.1] * 4, budget)
    verdict = judged([0.1] * 4, budget, refused=("because",))
    assert verdict.outcome is Outcome.INVALID
    assert verdict.overhead.log == pytest.approx(0.1)
    assert (verdict.limit, verdict.margin) == (None, None)


# -- curves --------------------------------------------------------------------------------------------


def test_a_bump_from_16_to_128_bytes_is_one_finding_after_eight_pairs(judged_curve):
    rows = bump(16, 128, np.log(1.2), 8)
    verdict = judged_curve(rows, Budget.build(0.0, margin=0.15), stated(0.03))
    assert verdict.outcome is Outcome.OVER
    (finding,) = verdict.findings
    assert (finding.low, finding.high) == (16, 128)
    assert finding.judged.log == pytest.approx(np.log(1.2), abs=0.01)
    assert finding.judged.ratio == pytest.approx(np.exp(finding.judged.log))
    assert finding.judged.lower > finding.limit
    assert verdict.worst == finding.judged
    assert "virtual is 20.0% slower" in verdict.message
    assert "from 16 to 128 B" in verdict.message


def test_two_bumps_are_two_findings_the_worse_first(judged_curve):
    rows = np.array(bump(16, 128, np.log(1.2), 8)) + np.array(bump(2**16, 2**20, np.log(1.4), 8, 0.0))
    verdict = judged_curve(rows, Budget.build(0.0, margin=0.15), stated(0.03))
    assert [(finding.low, finding.high) for finding in verdict.findings] == [(2**16, 2**20), (16, 128)]


def test_a_single_size_is_found_and_keeps_a_curve_from_passing(judged_curve):
    budget, prior = Budget.build(0.05, margin=0.1), stated(0.03)
    for pairs, outcome in ((2, Outcome.UNDECIDED), (12, Outcome.OVER)):
        verdict = judged_curve(bump(64, 64, 0.25, pairs, 0.005), budget, prior)
        assert verdict.outcome is outcome
    assert [(finding.low, finding.high) for finding in verdict.findings] == [(64, 64)]
    assert "at 64 B" in verdict.message


def test_a_small_overhead_at_every_size_is_one_finding(judged_curve):
    """No size is over by itself: their mean is."""
    rows = np.random.default_rng(3).normal(np.log(1.05) + 0.02, 0.02, (18, 23))
    verdict = judged_curve(rows, Budget.build(0.05, margin=0.02), stated(0.02, correlation=0.0))
    assert verdict.outcome is Outcome.OVER
    (finding,) = verdict.findings
    assert SIZES.index(finding.high) - SIZES.index(finding.low) > 11
    assert finding.judged.lower > finding.limit


def test_medians_are_geometric_means_over_a_curve(judged_curve):
    rows = [[0.0, np.log(4.0)]] * 4
    verdict = judged_curve(rows, points=(1.0, 2.0), native=3.0)
    assert (verdict.native, verdict.virtual) == pytest.approx((3.0, 6.0), rel=1e-5)
    assert [point.size for point in verdict.points] == [1.0, 2.0]
    assert [point.virtual for point in verdict.points] == pytest.approx([3.0, 12.0], rel=1e-5)
    assert verdict.overhead.log == pytest.approx(np.log(2.0))
    assert verdict.points[1].overhead.log == pytest.approx(np.log(4.0))
    limits = pytest.approx((np.log(1.05), np.log(1.10 / 1.05)))
    assert (verdict.points[0].limit, verdict.points[0].margin) == limits
    assert (verdict.limit, verdict.margin) == limits


# -- hosts and boots -----------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.0, 0.5])
def test_hosts_in_fixed_roles_forbid_an_answer(judged, level):
    verdict = judged(steady(level, 8), hosts=at("a" * 8, "b" * 8))
    assert (verdict.outcome, verdict.next_pairs) == (Outcome.INVALID, None)
    assert verdict.reasons == (
        "native ran on a and virtual machines on b: a slow host looks like a slow guest, and no number of "
        "pairs tells them apart; exchange the hosts' roles, or survey them (virtqual propose --hosts)",
    )
    assert (verdict.confounded, verdict.hosts) == (True, {})
    assert verdict.overhead.log == pytest.approx(level)
    assert (verdict.overhead.lower, verdict.overhead.upper) == (None, None)
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict


def test_several_hosts_in_fixed_roles_are_all_named(judged):
    (reason,) = judged(steady(0.0, 8), hosts=at("aabbaabb", "ccddccdd")).reasons
    assert reason.startswith("native ran on a, b and virtual machines on c, d: a slow host")


def test_a_bound_on_what_hosts_differ_by_is_added_to_both_ends(judged):
    hosts = at("a" * 18, "b" * 18)
    plain = judged(steady(0.0, 18))
    verdict = judged(steady(0.0, 18), hosts=hosts, bound=0.03)
    assert verdict.passes
    assert not verdict.confounded
    assert verdict.overhead.upper == pytest.approx(plain.overhead.upper + 0.03)
    # Faster or slower, the bound takes away what the hosts might have done.
    assert judged(steady(0.09, 18), hosts=hosts, bound=0.03).outcome is Outcome.UNDECIDED
    assert judged(steady(0.0, 18), hosts=hosts, bound=0.11).outcome is not Outcome.WITHIN
    assert judged(steady(0.2, 18), hosts=hosts, bound=0.03).outcome is Outcome.OVER


@pytest.mark.parametrize("hosts", [("", ""), ("a", ""), ("", "b")])
def test_hosts_that_nobody_names_are_taken_to_be_alike_and_are_confounded(judged, hosts):
    verdict = judged(steady(0.0, 8), hosts=at([hosts[0]] * 8, [hosts[1]] * 8))
    assert verdict.outcome is Outcome.WITHIN
    assert (verdict.native_hosts, verdict.confounded) == ((), True)
    assert not judged(steady(0.0, 8)).confounded


def test_hosts_that_were_exchanged_cancel_and_are_named(judged):
    """Host a is 20 % slower than b, whichever side it carries; the guest costs nothing."""
    native = "abbaabbaabba"
    virtual = native.translate(str.maketrans("ab", "ba"))
    d = steady(0.0, 12, 0.002) + np.where(np.array(list(virtual)) == "a", 0.2, -0.2)
    verdict = judged(d, hosts=at(native, virtual))
    assert set(verdict.hosts) == {"a", "b"}
    assert verdict.outcome is Outcome.WITHIN
    assert verdict.overhead.log == pytest.approx(0.0, abs=0.002)
    assert np.log(verdict.hosts["a"] / verdict.hosts["b"]) == pytest.approx(0.2, abs=0.002)
    assert not verdict.confounded
    assert verdict.hosts == pytest.approx({"a": np.exp(0.1), "b": np.exp(-0.1)}, rel=0.002)


ROUND = ("abcd", "wxyz"), ("abcd", "xwzy"), ("abcd", "yzwx"), ("abcd", "zyxw")


def rotated(rounds):
    turns = [ROUND[turn % 4] for turn in range(rounds)]
    return at("".join(native for native, _ in turns), "".join(virtual for _, virtual in turns))


def test_a_rotation_counts_rounds_and_asks_for_whole_ones(judged):
    verdict = judged(steady(0.0, 16, 0.002), hosts=rotated(4))
    assert set(verdict.hosts) == set("abcdwxyz")
    assert (verdict.outcome, verdict.pairs) == (Outcome.WITHIN, 16)
    assert verdict.confounded
    assert not judged(steady(0.0, 16, 0.002), hosts=rotated(4), bound=0.01).confounded
    first = judged(steady(0.0, 4, 0.002), hosts=rotated(1))
    assert (first.outcome, first.next_pairs) == (Outcome.UNDECIDED, 8)
    assert first.reasons == ("4 of the 8 pairs that the first decision needs",)
    # Hosts that differ among themselves are not yet a slow guest.
    hosts = rotated(4)
    slow = judged([0.15 * (name in "wx") + 0.04 for name in hosts["virtual"]], hosts=hosts)
    assert (slow.outcome, slow.next_pairs) == (Outcome.UNDECIDED, 32)
    assert np.log(slow.hosts["w"] / slow.hosts["y"]) == pytest.approx(0.15)


def test_hosts_that_a_coarse_timer_shows_alike_are_not_known_without_error(judged):
    """All native hosts show 0.39 us and all others 0.41 us: 5.1 %, of which the last digit is half."""
    verdict = judged([np.log(0.41 / 0.39)] * 16, hosts=rotated(4), name="lammps_loop_time")
    assert verdict.outcome is not Outcome.OVER
    assert verdict.overhead.upper - verdict.overhead.log > PRIOR.sigma / 4


def test_rounds_of_a_rotation_that_are_not_whole_do_not_count(metrics, judged_runs):
    """Pair 5 is refused and round 1 goes with it, however good its other pairs are."""
    d = steady(0.0, 20, 0.002)
    d[[4, 6, 7]] = -5.0
    verdict = judged_runs(runs_of(metrics, d, hosts=rotated(5)), [("native", 5)])
    assert len(verdict.hosts) > 2
    assert (verdict.outcome, verdict.pairs) == (Outcome.WITHIN, 16)
    assert verdict.overhead.log == pytest.approx(0.0, abs=0.002)


def test_a_host_that_was_set_aside_leaves_the_others_as_the_sample(judged_runs):
    """Two turns on four hosts, two on three of them: the fourth one's runs are left out, its peers' are not.

    The overhead is 1 %, the hosts differ, and native turns are slow together with virtual ones.
    """
    native_hosts = {"a": 0.00, "b": 0.02, "c": 0.04, "d": 0.30}
    vm_hosts = {"w": 0.03, "x": 0.01, "y": 0.05, "z": -0.40}
    turns = [*ROUND[:2], ("abc", "yxw"), ("abc", "wyx")]
    runs = []
    for turn, (natives, virtuals) in enumerate(turns):
        for place, (n, v) in enumerate(zip(natives, virtuals, strict=True)):
            cost = {"native": native_hosts[n], "virtual": vm_hosts[v] + 0.01}
            for side, host in (("native", n), ("virtual", v)):
                start = 1000.0 * turn + 10 * place + (5 if side == "virtual" else 0)
                values = (100 * math.exp(-cost[side] - 0.1 * turn),)
                where = {"node": host, "host": host, "turn": turn}
                runs.append(Sample(side, 4 * turn + place, values, start, start + 4, **where))
    verdict = judged_runs(runs)
    assert verdict.pairs == 12
    # Means of hosts: (w + x + y) / 3 - (a + b + c) / 3, and the overhead.
    assert verdict.overhead.log == pytest.approx(0.01 + 0.03 - 0.02)
    assert set(verdict.hosts) == set("abcwxy")


def test_the_names_of_nodes_show_a_rotation_and_do_not_qualify(metrics, judged_runs):
    runs = runs_of(metrics, steady(0.0, 16, 0.002), hosts=rotated(4))
    verdict = judged_runs([replace(run, node=run.host, host="") for run in runs])
    assert (len(verdict.hosts), verdict.confounded) == (8, True)


def test_boots_are_part_of_what_is_not_known(judged):
    """Three boots of four pairs each, one of them 10 % slower: between boots nothing is sure."""
    boots = [name for name in "xyz" for _ in range(4)]
    d = steady(0.0, 12, 0.002) + np.repeat([0.0, 0.1, 0.0], 4)
    seen, blind = judged(d, boots=boots), judged(d)
    assert seen.overhead.upper > blind.overhead.upper
    assert seen.outcome is Outcome.UNDECIDED
    each = judged(d, boots=[str(number) for number in range(12)])
    assert each.overhead.upper == pytest.approx(blind.overhead.upper)


def test_what_boots_are_stated_to_vary_by_counts_with_one_boot(judged):
    sure, unsure = (judged(steady(0.0, 12), prior=stated(0.02, between=between)) for between in (0.0, 0.05))
    assert (sure.passes, unsure.passes) == (True, False)
    many = judged(steady(0.0, 12), prior=stated(0.02, between=0.05), boots=list("abcdef") * 2)
    assert sure.overhead.upper < many.overhead.upper < unsure.overhead.upper
    # What few sessions say of boots is less sure than a bound.
    measured = judged(steady(0.0, 12), prior=stated(0.02, between=0.05, between_df=3))
    assert measured.overhead.upper > unsure.overhead.upper


# -- change between sessions -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "outcome"), [(5.0, Outcome.WITHIN), (5.3, Outcome.OVER), (4.7, Outcome.WITHIN)]
)
def test_the_change_is_what_is_judged_and_not_the_overhead(metrics, make, judged, now, outcome):
    verdict = judged(steady(now, 8), CHANGE, before=make(metrics["hpl"], steady(5.0, 12)))
    assert (verdict.outcome, verdict.gate) == (outcome, "change")
    assert verdict.change.log == pytest.approx(now - 5.0, abs=0.01)
    assert verdict.overhead.log == pytest.approx(now, abs=0.01)


@pytest.mark.parametrize(("name", "sign"), [("lammps_loop_time", 1), ("hpl", -1)])
def test_a_change_for_the_worse_has_the_ratio_of_its_metric(metrics, make, judged, name, sign):
    verdict = judged(steady(0.3, 8), CHANGE, before=make(metrics[name], steady(0.2, 12)), name=name)
    assert verdict.change.ratio == pytest.approx(np.exp(sign * verdict.change.log))
    assert verdict.change.low < verdict.change.ratio < verdict.change.high


def test_a_change_is_less_certain_than_an_overhead_and_a_new_boot_widens_it(metrics, make, judged):
    before = make(metrics["hpl"], steady(5.0, 12))
    verdict = judged(steady(5.0, 12), CHANGE, before=before)
    overhead, change = verdict.overhead, verdict.change
    assert change.upper - change.log > 1.2 * (overhead.upper - overhead.log)
    priors = (stated(0.02, between=between) for between in (0.0, 0.05))
    sure, unsure = (judged(steady(5.0, 12), CHANGE, before=before, prior=prior) for prior in priors)
    assert unsure.change.upper > sure.change.upper
    assert (sure.passes, unsure.passes) == (True, False)


@pytest.mark.parametrize(
    ("setting", "size", "message"),
    [("there", 8.0, "other series"), ("here", 16.0, r"session has other points \(mpi_latency@here\)")],
)
def test_an_earlier_session_of_another_series_is_an_error(metrics, make, setting, size, message):
    now = make(metrics["mpi_latency"], [[0.0]] * 2, (8.0,))
    before = make(metrics["mpi_latency"], [[0.0]] * 2, (size,), setting=setting)
    with pytest.raises(PairingError, match=message):
        alone(now, CHANGE, PRIOR, baseline=before)


def test_an_earlier_session_of_one_pair_is_no_baseline(metrics, make, judged):
    verdict = judged([0.0] * 4, CHANGE, before=make(metrics["hpl"], [0.0]))
    assert verdict.outcome is Outcome.INVALID
    assert verdict.reasons == ("the earlier session has 1 valid pairs: at least 2 are needed",)


def test_an_earlier_session_of_too_few_pairs_is_named(metrics, make, judged):
    few, many = (make(metrics["hpl"], steady(0.0, pairs, 0.05)) for pairs in (2, 18))
    wide = stated(0.05)
    verdict = judged(steady(0.035, 18, 0.05), CHANGE, prior=wide, before=few)
    assert (verdict.outcome, verdict.next_pairs) == (Outcome.UNDECIDED, None)
    (reason,) = verdict.reasons
    assert reason.startswith("noise too high: with 18 pairs the change would be known to ")
    assert "the earlier session has 2 pairs: record it with more (virtqual qualify --pairs 18)" in reason
    assert judged(steady(0.0, 18, 0.05), CHANGE, prior=wide, before=many).passes
    # OVER can be said all the same.
    assert judged(steady(0.4, 18, 0.05), CHANGE, prior=wide, before=few).outcome is Outcome.OVER


def test_the_same_hosts_cancel_in_a_change_and_others_do_not(metrics, make, judged):
    before = make(metrics["hpl"], steady(0.3, 12), hosts=at("a" * 12, "b" * 12))
    assert judged(steady(0.3, 12), CHANGE, before=before, hosts=at("a" * 12, "b" * 12)).passes
    other = judged(steady(0.3, 12), CHANGE, before=before, hosts=at("a" * 12, "c" * 12))
    assert other.outcome is Outcome.INVALID
    assert other.reasons[0].startswith("native ran on a and virtual machines on c: a slow host")
    then = judged(steady(0.3, 12), CHANGE, before=before)
    assert then.outcome is Outcome.INVALID
    assert then.reasons[0].startswith("in the earlier session native ran on a and virtual machines on b: ")
    surveyed = judged(steady(0.3, 12), CHANGE, before=before, earlier_bound=0.01)
    assert surveyed.passes


@pytest.mark.parametrize(("now", "earlier"), [("ab", "cd"), ("aa", "cc"), ("ab", "cc")])
def test_the_hosts_of_a_change_are_those_of_this_session(metrics, make, judged, now, earlier):
    hosts, before = (at(native * 8, virtual * 8) for native, virtual in (now, earlier))
    verdict = judged(
        steady(0.0, 8), CHANGE, before=make(metrics["hpl"], steady(0.0, 8), hosts=before), hosts=hosts
    )
    assert (verdict.native_hosts, verdict.virtual_hosts) == ((now[0],), (now[1],))


def test_of_an_earlier_rotation_whole_rounds_count(metrics, make, judged):
    hosts = rotated(4)
    whole = make(metrics["hpl"], steady(0.3, 16, 0.002), hosts=hosts)
    cut = {side: [*names, names[0]] for side, names in hosts.items()}
    more = make(metrics["hpl"], [*steady(0.3, 16, 0.002), 9.0], hosts=cut)
    one, other = (judged(steady(0.3, 8, 0.002), CHANGE, before=before) for before in (whole, more))
    assert one.change == other.change


# -- margins of a change -----------------------------------------------------------------------------------


@pytest.fixture
def widening(metrics, make, judged):
    """Judge a change whose margin of 3 % may become 12 %."""
    budget = budget_of(relative=0.02, margin=0.03, margin_up_to=0.12, gate="change")

    def judge(earlier, prior=PRIOR, spread=0.01):
        before = make(metrics["hpl"], np.zeros(earlier))
        return judged(steady(0.0, 4, spread), budget, prior=prior, before=before)

    return judge


def test_the_margin_of_a_change_follows_from_known_noise_and_earlier_pairs(widening):
    few, many = widening(2), widening(12)
    assert few.margin > many.margin > np.log(0.98 / 0.95)
    quiet = widening(4, prior=stated(0.002))
    assert quiet.margin == pytest.approx(np.log(0.98 / 0.95))
    wild = widening(4, prior=stated(0.5))
    assert wild.margin == pytest.approx(np.log(0.98 / 0.86))
    assert "at most 2% slower (margin 3% to 12%), here 12% against 4 earlier pairs; 4 pairs" in wild.message


def test_a_loud_session_does_not_widen_its_own_margin(widening):
    calm, loud = widening(12), widening(12, spread=0.3)
    assert loud.margin == calm.margin
    assert (calm.passes, loud.passes) == (True, False)
