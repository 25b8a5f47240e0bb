"""Messages word by word: they are what people decide by."""

import pytest

from virtqual.references import Budget, Quantity
from virtqual.verdict import Estimate, Prior, judge, message
from virtqual.verdict.outcome import Finding, number
from virtqual.verdict.pairs import pair_up

PRIOR = Prior(0.02, 20, "A/A history")
FIVE = Budget.of(0.05, margin=0.05)


def test_over(metrics, make):
    text = message(judge(make(metrics["memory_triad"], [0.3] * 3), FIVE, prior=PRIOR))
    assert text == (
        "OVER memory_triad@here: overhead 0.74x worse (0.72x to 0.77x); native 10, virtual 7.408 MB/s; "
        "budget >= 0.95x (margin 0.05); 3 pairs"
    )


def test_within(metrics, make):
    text = message(judge(make(metrics["lammps_loop_time"], [0.0] * 2), FIVE, prior=PRIOR))
    assert text == (
        "WITHIN lammps_loop_time@here: overhead 1.000x (0.954x to 1.033x); native 10, virtual 10 s; "
        "budget <= 1.05x (margin 0.05); 2 pairs"
    )


def test_undecided(metrics, make):
    text = message(judge(make(metrics["lammps_loop_time"], [0.1]), FIVE, prior=PRIOR))
    assert text == (
        "UNDECIDED lammps_loop_time@here: overhead 1.105x worse (1.031x to 1.158x); "
        "native 10, virtual 11.05 s; budget <= 1.05x (margin 0.05); 1 pair\n"
        "1 of the 2 pairs that the first look needs; decides again with 2 pairs"
    )


def test_nothing_measured(metrics):
    verdict = judge(pair_up(metrics["hpl"], "here", (), []), FIVE, prior=PRIOR)
    assert message(verdict) == "UNDECIDED hpl@here: 0 of the 2 pairs that the first look needs"


def test_a_curve_with_a_finding(metrics, make):
    rows = [[0.0, 0.0, 0.3, 0.3]] * 4
    budget = Budget.of(0.05, absolute=Quantity(0.1, "us"), margin=0.1)
    text = message(judge(make(metrics["mpi_latency"], rows, (1, 2, 4, 8)), budget, prior=PRIOR))
    assert text == (
        "OVER mpi_latency@here: overhead 1.35x worse (1.29x to 1.39x) from 4 to 8 B; native 10, "
        "virtual 13.5 us; budget <= 1.05x or more, +0.1 us (margin 0.1); 2 pairs"
    )


def test_a_clean_curve(metrics, make):
    rows = [[0.0, 0.0, 0.02, 0.0]] * 4
    text = message(judge(make(metrics["mpi_latency"], rows, (1, 2, 4, 8)), FIVE, prior=PRIOR))
    assert text.startswith("WITHIN mpi_latency@here: overhead 1.005x worse (")
    assert ") over 4 sizes, worst 1.020x at 4 B; native 10, virtual 10.05 us; budget" in text


def test_a_change(metrics, make):
    series = make(metrics["hpl"], [1.0] * 4)
    budget = Budget.of(0.1, margin=0.1, gate="change")
    text = message(judge(series, budget, prior=PRIOR, baseline=series))
    assert text.startswith("WITHIN hpl@here: change of the overhead since the earlier session 1.000x (")
    assert "; native 10, virtual 3.679 GFLOP/s; change allowed >= 0.9x (margin 0.1); 4 pairs" in text
    text = message(judge(series, budget, prior=PRIOR))
    assert text.startswith("BASELINE hpl@here: baseline recorded, overhead 0.37x worse (")


def test_budgets_by_size(references, metrics, make):
    budget = Budget((*FIVE.terms, *Budget.of(0.2, margin=0.1).terms))
    verdict = judge(make(metrics["mpi_latency"], [[0.0]] * 2, (8.0,)), budget, prior=PRIOR)
    assert verdict.budget_text == "<= 1.05x (margin 0.05) -inf to inf B; <= 1.2x (margin 0.1) -inf to inf B"


@pytest.mark.parametrize(
    ("log", "text"),
    [
        (0.0, "1.000x (0.905x to 1.105x)"),
        (0.1, "1.105x worse (1.000x to 1.22x)"),
        (-0.1, "0.905x better (0.819x to 1.000x)"),
        (3.0, "20.1x worse (18.2x to 22.2x)"),
        (5.5, "245x worse (221x to 270x)"),
        (-5.0, "0.0067x better (0.0061x to 0.0074x)"),
    ],
)
def test_ratios_of_every_size(metrics, log, text):
    assert Estimate(log, log - 0.1, log + 0.1).text(metrics["lammps_loop_time"]) == text


def test_bounds_near_a_budget_are_as_fine_as_it_is(metrics):
    """Else a bound of 1.053x looks as if it touched a budget of 1.05x."""
    estimate = Estimate(0.076, 0.0516, 0.1)
    assert estimate.text(metrics["lammps_loop_time"]) == "1.079x worse (1.053x to 1.105x)"


def test_an_endless_interval_has_a_word(metrics):
    estimate = Estimate(0.0, -1.0, float("inf"))
    assert estimate.text(metrics["lammps_loop_time"]) == "1.000x (0.37x to infinite)"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.12345, "0.1235"),
        (1234.5, "1234"),
        (12345.6, "12346"),
        (1e12, "1.000e+12"),
        (9999.7, "10000"),
        (9.4321e-05, "9.432e-05"),
        (2e-313, "2e-313"),
        (0.0, "0"),
        (-20000.4, "-20000"),
    ],
)
def test_numbers(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (None, None, "1.000x (0.905x to 1.105x)"),
        (8.0, 8.0, "1.000x (0.905x to 1.105x) at 8 B"),
        (16.0, 1048576.0, "1.000x (0.905x to 1.105x) from 16 to 1048576 B"),
    ],
)
def test_findings(metrics, low, high, text):
    finding = Finding(low, high, Estimate(0.0, -0.1, 0.1), 0.0, 1.0, 1.0)
    assert finding.text(metrics["mpi_latency"]) == text
