import numpy as np
import pytest

from virtqual.references import Budget, BudgetError, Quantity, Reason, Term
from virtqual.verdict import Design, Outcome, Prior, judge, message
from virtqual.verdict.pairs import PairingError, pair_up

PRIOR = Prior(0.02, 20, "A/A history")
FIVE = Budget.of(0.05, margin=0.05)
SIZES = tuple(2.0**i for i in range(23))


def steady(level, pairs, spread=0.01):
    """Differences around `level` whose mean is exactly that."""
    wiggle = spread * np.resize([1, -1], pairs)
    return level + wiggle - wiggle.mean()


def bump(low, high, height, pairs, spread=0.01):
    shape = np.where([low <= size <= high for size in SIZES], height, 0.0)
    return [shape + spread * (-1) ** i * (-1.0) ** np.arange(23) for i in range(pairs)]


def test_no_overhead_is_within_after_two_pairs(metrics, make):
    verdict = judge(make(metrics["hpl"], steady(0.0, 2)), FIVE, prior=PRIOR)
    assert verdict.outcome is Outcome.WITHIN
    assert verdict.passes
    assert verdict.pairs == 2
    assert verdict.next_look is None


def test_thirty_per_cent_is_over_after_three_pairs_and_not_before(metrics, make):
    two = judge(make(metrics["hpl"], steady(0.3, 2)), FIVE, prior=PRIOR)
    assert (two.outcome, two.next_look) == (Outcome.UNDECIDED, 3)
    three = judge(make(metrics["hpl"], steady(0.3, 3)), FIVE, prior=PRIOR)
    assert three.outcome is Outcome.OVER
    assert not three.passes
    assert three.overhead.log == pytest.approx(0.3)
    assert three.overhead.lower > -np.log(0.95)


def test_the_budget_itself_is_within_and_budget_plus_margin_is_not(metrics, make):
    series = make(metrics["lammps_loop_time"], steady(np.log(1.05), 18))
    assert judge(series, FIVE, prior=PRIOR).outcome is Outcome.WITHIN
    series = make(metrics["lammps_loop_time"], steady(np.log(1.10), 18))
    assert judge(series, FIVE, prior=PRIOR).outcome is Outcome.OVER


def test_only_whole_looks_count(metrics, make):
    five = judge(make(metrics["hpl"], [*steady(0.08, 4, 0.035), -5.0]), FIVE, prior=PRIOR)
    assert five.pairs == 4
    assert five.overhead.log == pytest.approx(0.08)


def test_a_conviction_stands_whatever_is_run_afterwards(metrics, make):
    verdict = judge(make(metrics["hpl"], [*steady(0.3, 3), *[0.0] * 9]), FIVE, prior=PRIOR)
    assert (verdict.outcome, verdict.pairs, verdict.next_look) == (Outcome.OVER, 3, None)
    assert verdict.overhead.log == pytest.approx(0.3)


def test_an_acquittal_does_not_stand(metrics, make):
    verdict = judge(make(metrics["hpl"], [0.0, 0.0, *[0.3] * 16]), FIVE, prior=PRIOR)
    assert verdict.outcome is Outcome.OVER


def test_no_pair_and_one_pair_ask_for_the_first_look(metrics, make):
    none = judge(make(metrics["hpl"], []), FIVE, prior=PRIOR)
    assert (none.outcome, none.next_look, none.overhead) == (Outcome.UNDECIDED, 2, None)
    assert "0 of the 2 pairs" in message(none)
    one = judge(make(metrics["hpl"], [0.1]), FIVE, prior=PRIOR)
    assert (one.outcome, one.next_look, one.pairs) == (Outcome.UNDECIDED, 2, 1)
    assert one.overhead.log == pytest.approx(0.1)


def test_two_pairs_that_contradict_each_other_decide_nothing(metrics, make):
    budget = Budget.of(0.05, margin=0.5)
    apart = judge(make(metrics["hpl"], [-0.20, 0.0]), budget, prior=PRIOR)
    near = judge(make(metrics["hpl"], [-0.05, 0.0]), budget, prior=PRIOR)
    assert apart.outcome is Outcome.UNDECIDED
    assert near.outcome is Outcome.WITHIN


def test_one_outlier_does_not_make_a_clean_metric_over(metrics, make):
    verdict = judge(make(metrics["hpl"], [0.0, 0.01, 1.0, -0.01]), FIVE, prior=PRIOR)
    assert verdict.outcome is not Outcome.OVER
    assert verdict.overhead.log == pytest.approx((0.0 + 0.01 - 0.01 + 0.005 + 2.0 * 0.02) / 4)


def test_hopeless_noise_is_invalid_and_says_how_many_pairs_it_would_need(metrics, make):
    verdict = judge(make(metrics["hpl"], steady(0.07, 4, spread=0.5)), FIVE, prior=PRIOR)
    assert verdict.outcome is Outcome.INVALID
    assert verdict.needed > 18
    assert f"would need {verdict.needed} pairs, 18 are the maximum" in message(verdict)


def test_noise_does_not_hide_what_is_plainly_over(metrics, make):
    verdict = judge(make(metrics["hpl"], steady(3.0, 4, spread=0.2)), FIVE, prior=PRIOR)
    assert verdict.outcome is Outcome.OVER


def test_noise_that_eighteen_pairs_can_resolve_is_not_invalid(metrics, make):
    verdict = judge(make(metrics["hpl"], steady(0.085, 4, spread=0.035)), FIVE, prior=PRIOR)
    assert (verdict.outcome, verdict.next_look) == (Outcome.UNDECIDED, 6)


def test_undecided_at_the_maximum_asks_for_nothing_more(metrics, make):
    noisy = Prior(0.040, 20, "A/A history")
    middle = -np.log(0.922)
    verdict = judge(make(metrics["hpl"], steady(middle, 18, spread=0.043)), FIVE, prior=noisy)
    assert (verdict.outcome, verdict.next_look) == (Outcome.UNDECIDED, None)
    assert "still undecided at the maximum of 18 pairs" in verdict.reasons


def test_a_refusal_makes_it_invalid_whatever_the_numbers(metrics, make):
    verdict = judge(
        make(metrics["hpl"], steady(0, 4)), FIVE, prior=PRIOR, refused=("native misses its reference",)
    )
    assert verdict.outcome is Outcome.INVALID
    assert "native misses its reference" in message(verdict)


@pytest.mark.parametrize(
    ("bad", "expected"),
    [([], Outcome.WITHIN), ([1], Outcome.WITHIN), ([0, 1], Outcome.INVALID), ([0, 1, 2], Outcome.INVALID)],
)
def test_refused_pairs_are_replaced_unless_they_are_the_rule(metrics, bad, expected):
    from dataclasses import replace

    from made_series import samples_of

    runs = samples_of(metrics["hpl"], [[value] for value in steady(0.0, 4)])
    runs = [replace(run, invalid=("loud",)) if run.number in bad else run for run in runs]
    verdict = judge(pair_up(metrics["hpl"], "here", (), runs), FIVE, prior=PRIOR)
    assert verdict.outcome is expected
    assert all(f"pair {number} left out: native run refused: loud" in message(verdict) for number in bad)


def test_a_single_valid_pair_of_three_asks_for_another(metrics):
    from dataclasses import replace

    from made_series import samples_of

    runs = samples_of(metrics["hpl"], [[0.0]] * 3)
    runs = [replace(run, invalid=("loud",)) if run.number in (0, 1) else run for run in runs]
    verdict = judge(pair_up(metrics["hpl"], "here", (), runs), FIVE, prior=PRIOR)
    assert (verdict.outcome, verdict.next_look) == (Outcome.UNDECIDED, 2)


# -- budgets -----------------------------------------------------------------------------------------


def test_an_absolute_budget_is_a_difference_in_the_unit(metrics, make):
    budget = Budget.of(absolute=Quantity(0.5, "us"), margin=Quantity(0.5, "us"))
    for extra, outcome in ((0.4, Outcome.WITHIN), (0.9, Outcome.OVER)):
        rows = np.log((2 + extra) / 2) + np.outer(steady(0, 6, 0.005), np.ones(3))
        series = make(metrics["mpi_latency"], rows, SIZES[:3], native=2.0)
        assert judge(series, budget, prior=PRIOR).outcome is outcome


@pytest.mark.parametrize(("both", "outcome"), [("larger", Outcome.WITHIN), ("smaller", Outcome.OVER)])
def test_relative_and_absolute_together(metrics, make, both, outcome):
    budget = Budget.of(0.05, absolute=Quantity(1.0, "us"), margin=0.05, both=both)
    series = make(metrics["mpi_latency"], np.outer(steady(np.log(1.3), 6), np.ones(3)), SIZES[:3], native=2.0)
    assert judge(series, budget, prior=PRIOR).outcome is outcome


def test_a_budget_in_another_unit_is_an_error(metrics, make):
    budget = Budget.of(absolute=Quantity(1.0, "ms"), margin=0.05)
    with pytest.raises(BudgetError, match="mpi_latency is in us, its budget in ms"):
        judge(make(metrics["mpi_latency"], [[0.0], [0.0]], (8.0,)), budget, prior=PRIOR)


def test_a_budget_that_allows_everything_to_be_lost_is_an_error(metrics, make):
    with pytest.raises(BudgetError, match="allow everything to be lost"):
        judge(make(metrics["hpl"], [0.0, 0.0]), Budget.of(0.6, margin=0.5), prior=PRIOR)


def test_a_budget_needs_a_part():
    with pytest.raises(BudgetError, match="relative or an absolute part"):
        Budget.of(margin=0.1)


# -- curves ------------------------------------------------------------------------------------------


def test_a_bump_from_16_to_128_bytes_is_one_finding_after_two_pairs(metrics, make):
    series = make(metrics["mpi_latency"], bump(16, 128, np.log(1.2), 2), SIZES)
    verdict = judge(series, Budget.of(0.0, margin=0.15), prior=Prior(0.03, 20, "A/A history"))
    assert verdict.outcome is Outcome.OVER
    (finding,) = verdict.findings
    assert (finding.low, finding.high) == (16, 128)
    assert finding.judged.log == pytest.approx(np.log(1.2), abs=0.01)
    assert "overhead 1.20" in message(verdict)
    assert "from 16 to 128 B" in message(verdict)


def test_two_bumps_are_two_findings_the_worse_first(metrics, make):
    rows = np.array(bump(16, 128, np.log(1.2), 4)) + np.array(bump(2**16, 2**20, np.log(1.4), 4, 0.0))
    verdict = judge(
        make(metrics["mpi_latency"], rows, SIZES), Budget.of(0.0, margin=0.15), prior=Prior(0.03, 20, "")
    )
    assert [(finding.low, finding.high) for finding in verdict.findings] == [(2**16, 2**20), (16, 128)]


def test_a_single_size_needs_three_pairs(metrics, make):
    budget, prior = Budget.of(0.0, margin=0.5), Prior(0.03, 20, "")
    two = judge(make(metrics["mpi_latency"], bump(8, 8, 0.15, 2), SIZES), budget, prior=prior)
    three = judge(make(metrics["mpi_latency"], bump(8, 8, 0.15, 3), SIZES), budget, prior=prior)
    assert two.findings == ()
    assert [(f.low, f.high) for f in three.findings] == [(8, 8)]
    assert "at 8 B" in message(three)


def test_a_clean_curve_is_within_and_names_its_worst_size(metrics, make):
    rows = bump(64, 64, 0.03, 2, 0.005)
    verdict = judge(
        make(metrics["mpi_latency"], rows, SIZES), Budget.of(0.05, margin=0.2), prior=Prior(0.03, 20, "")
    )
    assert verdict.outcome is Outcome.WITHIN
    assert "worst 1.030x at 64 B" in message(verdict)
    assert len(verdict.points) == 23


def test_one_bad_size_keeps_a_curve_from_passing(metrics, make):
    rows = bump(64, 64, 0.25, 2, 0.005)
    verdict = judge(
        make(metrics["mpi_latency"], rows, SIZES), Budget.of(0.05, margin=0.2), prior=Prior(0.03, 20, "")
    )
    assert verdict.outcome is Outcome.UNDECIDED


# -- change between sessions -------------------------------------------------------------------------

CHANGE = Budget.of(0.05, margin=0.05, gate="change")


def test_without_an_earlier_session_a_change_gate_records_the_baseline(metrics, make):
    verdict = judge(make(metrics["hpl"], steady(5.0, 2)), CHANGE, prior=PRIOR)
    assert verdict.outcome is Outcome.BASELINE
    assert not verdict.passes
    assert verdict.overhead.log == pytest.approx(5.0)
    assert "baseline recorded" in message(verdict)


@pytest.mark.parametrize(
    ("now", "outcome"), [(5.0, Outcome.WITHIN), (5.3, Outcome.OVER), (4.7, Outcome.WITHIN)]
)
def test_the_change_is_what_is_judged_and_not_the_overhead(metrics, make, now, outcome):
    before = make(metrics["hpl"], steady(5.0, 4))
    verdict = judge(make(metrics["hpl"], steady(now, 4)), CHANGE, prior=PRIOR, baseline=before)
    assert verdict.outcome is outcome
    assert verdict.change.log == pytest.approx(now - 5.0, abs=0.01)
    assert verdict.overhead.log == pytest.approx(now, abs=0.01)
    assert verdict.gate == "change"


def test_a_change_is_less_certain_than_either_overhead(metrics, make):
    series = make(metrics["hpl"], steady(5.0, 4))
    verdict = judge(series, CHANGE, prior=PRIOR, baseline=series)
    overhead, change = verdict.overhead, verdict.change
    assert change.upper - change.lower > 1.3 * (overhead.upper - overhead.lower)


def test_what_a_new_boot_changes_widens_the_change(metrics, make):
    series = make(metrics["hpl"], steady(5.0, 4))
    sure = judge(series, CHANGE, prior=Prior(0.02, 20, ""), baseline=series)
    unsure = judge(series, CHANGE, prior=Prior(0.02, 20, "", between=0.05), baseline=series)
    assert unsure.change.upper > sure.change.upper
    assert unsure.overhead.upper == sure.overhead.upper


def test_an_earlier_session_of_another_series_is_an_error(metrics, make):
    series = make(metrics["hpl"], [0.0, 0.0])
    with pytest.raises(PairingError, match="other series"):
        judge(series, CHANGE, prior=PRIOR, baseline=make(metrics["hpl"], [0.0, 0.0], setting="there"))


def test_an_earlier_session_of_one_pair_is_no_baseline(metrics, make):
    series = make(metrics["hpl"], [0.0, 0.0])
    verdict = judge(series, CHANGE, prior=PRIOR, baseline=make(metrics["hpl"], [0.0]))
    assert verdict.outcome is Outcome.INVALID
    assert "the earlier session has 1 valid pairs" in message(verdict)


def test_the_message_has_all_that_an_operator_asks_for(metrics, make):
    text = message(judge(make(metrics["memory_triad"], steady(0.3, 3)), FIVE, prior=PRIOR))
    for part in (
        "OVER",
        "memory_triad@here",
        "0.74x worse (",
        "native 10",
        "MB/s",
        ">= 0.95x",
        "margin 0.05",
        "3 pairs",
    ):
        assert part in text


def test_a_design_with_other_error_rates_decides_otherwise(metrics, make):
    series = make(metrics["hpl"], steady(0.08, 3))
    assert judge(series, FIVE, prior=PRIOR).outcome is Outcome.UNDECIDED
    assert judge(series, FIVE, prior=PRIOR, design=Design(alpha=0.4)).outcome is Outcome.OVER


def test_other_points_of_an_earlier_session_are_named(metrics, make):
    now = make(metrics["mpi_latency"], [[0.0]] * 2, (8.0,))
    before = make(metrics["mpi_latency"], [[0.0]] * 2, (16.0,))
    with pytest.raises(PairingError, match=r"the earlier session has other points \(mpi_latency@here\)"):
        judge(now, CHANGE, prior=PRIOR, baseline=before)


def test_medians_are_geometric_means_over_a_curve(metrics, make):
    rows = [[0.0, np.log(4.0)]] * 2
    verdict = judge(make(metrics["mpi_latency"], rows, (1.0, 2.0), native=3.0), FIVE, prior=PRIOR)
    assert (verdict.native, verdict.virtual) == pytest.approx((3.0, 6.0))
    assert [point.size for point in verdict.points] == [1.0, 2.0]
    assert [point.virtual for point in verdict.points] == pytest.approx([3.0, 12.0])
    assert verdict.overhead.log == pytest.approx(np.log(2.0))
    assert verdict.points[1].overhead.log == pytest.approx(np.log(4.0))
    assert (verdict.points[0].limit, verdict.points[0].margin) == pytest.approx(
        (np.log(1.05), np.log(1.10 / 1.05))
    )
    assert (verdict.limit, verdict.margin) == pytest.approx((np.log(1.05), np.log(1.10 / 1.05)))


def test_noise_against_too_short_an_earlier_session_is_said_to_be_that(metrics, make):
    prior = Prior(0.05, 20, "")
    now = make(metrics["hpl"], steady(0.08, 18, 0.05))
    verdict = judge(now, CHANGE, prior=prior, baseline=make(metrics["hpl"], steady(0.0, 2)))
    assert verdict.outcome is Outcome.INVALID
    assert verdict.needed is None
    assert "cannot be resolved against the earlier session, whatever the number of pairs" in message(verdict)


def test_an_earlier_session_that_there_is_not_is_not_named(metrics, make):
    """Nothing is confirmed with three pairs of which two are the screen's."""
    design = Design().up_to(3).in_session(2, 1)
    verdict = judge(
        make(metrics["hpl"], steady(0.08, 3, 0.05)), FIVE, prior=Prior(0.05, 20, ""), design=design
    )
    assert verdict.outcome is Outcome.INVALID
    assert "cannot be resolved, whatever the number of pairs" in message(verdict)


def test_noise_of_a_curve_names_its_worst_size(metrics, make):
    rng = np.random.default_rng(1)
    rows = rng.normal(0.06, 0.01, (4, 4))
    rows[:, 2] += [0.9, -0.9, 0.9, -0.9]
    verdict = judge(make(metrics["mpi_latency"], rows, (1, 2, 4, 8)), FIVE, prior=PRIOR)
    assert verdict.outcome is Outcome.INVALID
    assert "% at 4 B; its margin of 4.8% would need" in message(verdict)


def test_a_refused_series_is_shown_even_where_its_budget_cannot_be_applied(metrics, make):
    budget = Budget.of(absolute=Quantity(1.0, "ms"), margin=0.05)
    verdict = judge(make(metrics["hpl"], [0.1] * 2), budget, prior=PRIOR, refused=("because",))
    assert verdict.outcome is Outcome.INVALID
    assert verdict.overhead.log == pytest.approx(0.1)
    assert (verdict.limit, verdict.margin, verdict.needed) == (None, None, None)


def test_next_looks(metrics, make):
    wide = Prior(0.04, 20, "")
    looks = {
        n: judge(make(metrics["hpl"], steady(0.08, n, 0.035)), FIVE, prior=wide).next_look
        for n in (2, 3, 4, 6, 8, 12)
    }
    assert looks == {2: 3, 3: 4, 4: 6, 6: 8, 8: 12, 12: 18}


# -- margins of a change ------------------------------------------------------------------------------


def widening(metrics, make, earlier, prior=PRIOR, spread=0.01, name="hpl"):
    term = Term(0.02, None, 0.03, Reason("policy", "p"), margin_up_to=0.12)
    return judge(
        make(metrics[name], steady(0.0, 4, spread=spread)),
        Budget((term,), "kvm", "change"),
        prior=prior,
        baseline=make(metrics[name], np.zeros(earlier)),
    )


def test_the_margin_of_a_change_follows_from_known_noise_and_earlier_pairs(metrics, make):
    few, many = widening(metrics, make, 2), widening(metrics, make, 12)
    assert few.margin > many.margin > np.log(0.98 / 0.95)
    quiet = widening(metrics, make, 4, prior=Prior(0.002, 20, "A/A history"))
    assert quiet.margin == pytest.approx(np.log(0.98 / 0.95))
    wild = widening(metrics, make, 4, prior=Prior(0.5, 20, "A/A history"))
    assert wild.margin == pytest.approx(np.log(0.98 / 0.86))
    assert ">= 0.98x (margin 0.03 to 0.12), here 0.12 against 4 earlier pairs; 4 pairs" in message(wild)


def test_a_loud_session_does_not_widen_its_own_margin(metrics, make):
    calm, loud = widening(metrics, make, 4), widening(metrics, make, 4, spread=0.3)
    assert loud.margin == calm.margin
    assert (calm.passes, loud.passes) == (True, False)
