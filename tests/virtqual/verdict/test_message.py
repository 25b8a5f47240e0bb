"""Messages word by word, and verdicts as they are stored: people and programs decide by them."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from made_series import FIVE, PRIOR, alone, budget_of, samples_of, stated

from virtqual.verdict import Interval, Outcome, Verdict
from virtqual.verdict.budget import Budget, Quantity, Sizes
from virtqual.verdict.notation import format_value
from virtqual.verdict.pairs import pair_up
from virtqual.verdict.texts import range_text

WIDE = stated(0.03, common=0.01)
SIZES = tuple(2.0**i for i in range(12))


@pytest.mark.parametrize(
    ("metric", "differences", "text"),
    [
        (
            "memory_triad",
            [0.3] * 8,
            "OVER memory_triad@here: virtual is 25.9% slower (22.6% to 26.9%); native 10, virtual 7.408 "
            "MB/s; budget at most 5% slower (margin 5%); 4 of 8 pairs",
        ),
        (
            "lammps_loop_time",
            [0.0] * 4,
            "WITHIN lammps_loop_time@here: virtual is 0.0% slower (2.5% faster to 2.6% slower); native "
            "10, virtual 10 s; budget at most 5% slower (margin 5%); 4 pairs",
        ),
        (
            "lammps_loop_time",
            [0.1],
            "UNDECIDED lammps_loop_time@here: virtual is 10.5% slower; native 10, virtual 11.05 s; "
            "budget at most 5% slower (margin 5%); 1 pair\n1 of the 2 pairs that the first decision needs; "
            "next: pair 1, virtual first",
        ),
        # More pairs may not be run: the message says what is needed, and promises nothing.
        (
            "hpl",
            [0.3] * 2,
            "UNDECIDED hpl@here: virtual is 25.9% slower (22.6% to 29.1%); native 10, virtual 7.408 "
            "GFLOP/s; budget at most 5% slower (margin 5%); 2 pairs\nthe next decision needs 4 pairs; "
            "next: pairs 2 and 3, native first",
        ),
        (
            "hpl",
            [],
            "UNDECIDED hpl@here: 0 of the 2 pairs that the first decision needs; "
            "next: pairs 0 and 1, virtual first in 1",
        ),
    ],
)
def test_messages(metrics, make, metric, differences, text):
    assert alone(make(metrics[metric], differences), FIVE, PRIOR).message == text


def test_what_was_left_out_as_a_whole_is_shown_all_the_same(metrics):
    """As beside another guest: nothing is judged, and everybody asks how much it was."""
    samples = samples_of(metrics["lammps_loop_time"], [[0.6], [0.69], [0.68]])
    refused = [replace(one, invalid=("steal",)) if one.side == "virtual" else one for one in samples]
    series = pair_up(metrics["lammps_loop_time"], "here", (), refused)
    text = alone(series, FIVE, PRIOR).message
    assert text.endswith("virtual is 97.4% slower in the pairs left out, and the cause is unknown")
    some = pair_up(metrics["lammps_loop_time"], "here", (), [*refused[:2], *samples[2:]])
    assert "in the pairs left out" not in alone(some, FIVE, PRIOR).message
    half = pair_up(metrics["lammps_loop_time"], "here", (), [refused[0], *refused[2:]])
    assert "virtual is 98.4% slower in the pairs left out" in alone(half, FIVE, PRIOR).message


def test_a_curve_with_a_finding(metrics, make):
    rows = [[0.0, 0.0, 0.3, 0.3]] * 8
    budget = budget_of(relative=0.05, absolute=Quantity(value=0.1, unit="us"), at_most=0.2, margin=0.1)
    text = alone(make(metrics["mpi_latency"], rows, (1, 2, 4, 8)), budget, PRIOR).message
    assert text == (
        "OVER mpi_latency@here: virtual is 35.0% slower (27.5% to 36.9%) from 4 to 8 B; native 10, "
        "virtual 13.5 us; budget at most 5% slower or 0.1 us more, whichever is larger, up to 20% "
        "(margin 10%); 4 of 8 pairs"
    )


def test_too_good_to_be_true(metrics, make):
    text = alone(make(metrics["hpl"], [-0.3] * 4), FIVE, PRIOR).message
    assert text.startswith("INVALID hpl@here: virtual is 35.0% faster (31.6% to 38.5%); native 10")
    assert text.endswith(
        "; 4 pairs\nfaster than native by more than 10%, which is too good to be true: look for a guest "
        "clock that runs slow, a wrong unit, or a native side that something slows down"
    )


def test_an_earlier_session_that_is_too_short(metrics, make):
    now = make(metrics["lammps_loop_time"], 0.06 + 0.1 * np.resize([1, -1], 18))
    before = make(metrics["lammps_loop_time"], [0.0] * 4)
    text = alone(now, FIVE, stated(0.1), baseline=before).message
    assert text.splitlines()[1] == (
        "noise too high: with 18 pairs the change would be known to 14.1%, the margin is 5.0%; the earlier "
        "session has 4 pairs: record it with more (virtqual qualify --pairs 18), or record the noise "
        "(virtqual propose)"
    )


def test_a_clean_curve(metrics, make):
    rows = [[0.0, 0.0, 0.045, 0.0]] * 4
    text = alone(make(metrics["mpi_latency"], rows, (1, 2, 4, 8)), FIVE, PRIOR).message
    assert text.startswith("WITHIN mpi_latency@here: virtual is 4.6% slower (")
    assert (
        ") at 4 B, the largest of 4 sizes, the mean 1.1% slower; native 10, virtual 10.46 us; budget" in text
    )


def test_a_change(metrics, make):
    series = make(metrics["hpl"], [1.0] * 4)
    budget = Budget.build(0.1, margin=0.1, gate="change")
    text = alone(series, budget, PRIOR, baseline=series).message
    assert text.startswith("WITHIN hpl@here: change of the overhead since the earlier session: 0.0% slower (")
    assert (
        "; native 10, virtual 3.679 GFLOP/s; change allowed at most 10% slower (margin 10%); 4 pairs" in text
    )
    text = alone(series, budget, PRIOR).message
    assert text.startswith("BASELINE hpl@here: baseline recorded, virtual is 63.2% slower (")
    assert "; native 10, virtual 3.679 GFLOP/s; 4 pairs" in text


def test_budgets_by_size(metrics, make):
    budget = Budget(terms=(*FIVE.terms, *Budget.build(0.2, margin=0.1).terms))
    verdict = alone(make(metrics["mpi_latency"], [[0.0]] * 2, (8.0,)), budget, PRIOR)
    assert verdict.budget == (
        "at most 5% slower (margin 5%) at other sizes; at most 20% slower (margin 10%) at other sizes"
    )
    small = budget_of(sizes=Sizes(low=1, high=64), relative=0.2, margin=0.1).terms
    series = make(metrics["mpi_latency"], [[0.0]] * 2, (8.0,))
    assert alone(series, Budget(terms=(*small, *FIVE.terms)), PRIOR).budget == (
        "at most 20% slower (margin 10%) from 1 to 64 B; at most 5% slower (margin 5%) at other sizes"
    )
    more = budget_of(relative=0.05, absolute=Quantity(value=0.1, unit="us"), at_most=0.2, margin=0.1).terms
    assert alone(series, Budget(terms=(*small, *more)), PRIOR).budget.endswith(
        "; at most 5% slower or 0.1 us more, whichever is larger, up to 20% (margin 10%) at other sizes"
    )


def test_two_ranges_are_named_and_the_size_nearest_to_its_limit_is_told_from_the_largest(metrics, make):
    rows = [[0.4, 0.0, 0.0, 0.3]] * 8
    text = alone(make(metrics["mpi_latency"], rows, (1, 2, 4, 8)), FIVE, PRIOR).message
    assert re.search(r"virtual is 49.2% slower \(.*\) at 1 B and 35.0% slower \(.*\) at 8 B; native", text)
    small = budget_of(sizes=Sizes(low=1, high=1), relative=0.5, margin=0.1).terms
    budget = Budget(terms=(*small, *FIVE.terms))
    text = alone(
        make(metrics["mpi_latency"], [[0.3, 0.0, 0.02, 0.0]] * 4, (1, 2, 4, 8)), budget, PRIOR
    ).message
    assert re.search(
        r"virtual is 2.0% slower \(.*\) at 4 B, the nearest to its limit of 4 sizes, the largest is 35.0% "
        r"slower at 1 B, the mean .*; native 10, virtual 10.2 us;",
        text,
    )


def test_pairs_of_one_boot_say_so(metrics, make):
    assert alone(make(metrics["hpl"], [0.0] * 4, boots="aaaa"), FIVE, PRIOR).message.endswith(
        "4 pairs of one boot"
    )
    assert alone(make(metrics["hpl"], [0.0] * 4, boots="aabb"), FIVE, PRIOR).message.endswith("; 4 pairs")


def test_reasons_that_differ_only_in_numbers_stand_together(metrics):
    samples = samples_of(metrics["hpl"], [[0.0]] * 5)
    why = {0: ("steal of 3%", "swapped"), 1: ("steal of 4%", "swapped"), 2: ("no answer",)}
    refused = [
        replace(one, invalid=why.get(one.number, ())) if one.side == "virtual" else one for one in samples
    ]
    reasons = alone(pair_up(metrics["hpl"], "here", (), refused), FIVE, PRIOR).reasons
    said = "virtual run refused: steal of 3%; virtual run refused: swapped (of pair 0; the others alike)"
    assert f"pairs 0, 1 left out: {said}" in reasons
    assert "pair 2 left out: virtual run refused: no answer" in reasons


@pytest.mark.parametrize(
    ("pairs", "reasons"),
    [
        (
            3,
            "\n1 of the 2 pairs that the first decision needs; next: pair 3, native first; pair 0 "
            "left out: {}; pair 1 left out: ",
        ),
        (
            2,
            "UNDECIDED hpl@here: 0 of the 2 pairs that the first decision needs; next: pairs 2 and 3, "
            "native first; pair 0 left out: {}; pair 1 left out: ",
        ),
    ],
)
def test_all_reasons_stand_on_one_line(metrics, pairs, reasons):
    samples = samples_of(metrics["hpl"], [[0.0]] * pairs)
    why = {0: ("steal",), 1: ("no answer",)}
    refused = [replace(one, invalid=why.get(one.number, ())) for one in samples]
    text = alone(pair_up(metrics["hpl"], "here", (), refused), FIVE, PRIOR).message
    assert reasons.format("native run refused: steal; virtual run refused: steal") in text


@pytest.mark.parametrize("metric", ["hpl", "lammps_loop_time"])
def test_the_margin_of_a_change_is_stated_in_the_direction_of_its_metric(metrics, make, metric):
    """It is the difference between the slowest change that passes and the one that is allowed."""
    before = make(metrics[metric], 0.01 * np.resize([1, -1], 4))
    budget = budget_of("change", relative=0.05, margin=0.01, margin_up_to=0.5)
    verdict = alone(
        make(metrics[metric], 0.01 * np.resize([1, -1], 18)), budget, stated(0.05), baseline=before
    )
    shown = float(re.search(r", here (\d+\.\d)% against 4 earlier pairs", verdict.message)[1]) / 100
    sign = 1 if metric == "lammps_loop_time" else -1
    ends = (np.exp(sign * end) for end in (verdict.limit, verdict.limit + verdict.margin))
    assert shown == pytest.approx(abs(np.subtract(*ends)), abs=0.0006)


def test_the_pairs_that_noise_would_take_grow_with_its_square(metrics, make):
    rows = 0.065 + np.array([[0.05, 0.3]]) * np.resize([1, -1], 18)[:, None]
    text = alone(make(metrics["mpi_latency"], rows, (1, 8)), FIVE, stated(0.3)).message
    said = re.search(
        r"known to ([\d.]+)% at 8 B, the margin is ([\d.]+)%; it would take up to (\d+) pairs", text
    )
    # Distances above the budget, of the native value.
    reach, margin = (np.log((1.05 + float(said[number]) / 100) / 1.05) for number in (1, 2))
    assert int(said[3]) == pytest.approx(18 * (reach / margin) ** 2, rel=0.02)


def test_noise_is_too_high_at_the_size_with_the_least_margin_for_it(metrics, make):
    rows = 0.065 + 0.2 * np.resize([1, -1], 18)[:, None] * [1, 1.2]
    small = budget_of(sizes=Sizes(low=1, high=1), relative=0.05, margin=0.02).terms
    series = make(metrics["mpi_latency"], rows, (1, 8))
    text = alone(series, Budget(terms=(*small, *Budget.build(0.05, margin=0.08).terms)), stated(0.3)).message
    assert re.search(r"known to [\d.]+% at 1 B, the margin is 2.0%", text)


@pytest.mark.parametrize(
    ("log", "lower", "upper", "better", "text"),
    [
        (0.0, -0.1, 0.1, "lower", "0.0% slower (9.5% faster to 10.5% slower)"),
        (0.1, 0.0, 0.2, "lower", "10.5% slower (0.0% to 22.1%)"),
        (-0.1, -0.2, 0.0, "lower", "9.5% faster (18.1% faster to 0.0% slower)"),
        (-0.1, -0.2, -0.05, "lower", "9.5% faster (4.9% to 18.1%)"),
        (0.1, -0.2, 0.2, "higher", "9.5% slower (22.1% faster to 18.1% slower)"),
        (3.0, 2.9, 3.1, "lower", "20.1x as slow (18.2x to 22.2x)"),
        (5.5, 5.4, 5.6, "lower", "245x as slow (221x to 270x)"),
        (3.0, 0.5, 3.1, "higher", "20.1x as slow (1.65x to 22.2x)"),
        (0.8, -0.1, 1.5, "lower", "2.23x as slow (1.11x as fast to 4.48x as slow)"),
        (-5.0, -5.1, -4.9, "lower", "148x as fast (134x to 164x)"),
        # A bound of 5.3 % must not look as if it touched a budget of 5 %.
        (0.076, 0.0516, 0.1, "lower", "7.9% slower (5.3% to 10.5%)"),
        # Before the first decision there are no bounds.
        (0.1, -1.0, float("inf"), "lower", "10.5% slower"),
        # Bounds of two pairs that disagree are beyond what has a meaning, or a float.
        (0.0, -1.0, 900.0, "lower", "1.00x as slow (2.72x as fast or slower)"),
        (0.0, -900.0, 1.0, "higher", "1.00x as slow (2.72x as slow or faster)"),
        (3.0, -300.0, 8.0, "lower", "20.1x as slow (no bounds)"),
    ],
)
def test_differences_of_every_size(log, lower, upper, better, text):
    assert Interval.build(log, lower, upper, better).text(better) == text


def test_a_wild_spread_has_endless_bounds(metrics, make):
    text = alone(make(metrics["lammps_loop_time"], [-300, 300] * 2), FIVE, PRIOR).message
    assert "(no bounds)" in text


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
    assert format_value(value) == text


@pytest.mark.parametrize(
    ("points", "text"),
    [
        ((8.0,), "0.0% slower (9.5% faster to 10.5% slower) at 8 B"),
        ((16.0, 1048576.0), "0.0% slower (9.5% faster to 10.5% slower) from 16 B to 1 MiB"),
    ],
)
def test_findings(metrics, points, text):
    judged = Interval.build(0.0, -0.1, 0.1, "lower")
    assert range_text(judged, points, metrics["mpi_latency"]) == text


def test_the_bounds_of_a_range_lie_about_its_estimate(metrics, make):
    """One size alone may be surely above the mean of the range."""
    rows = np.log([[1.0, 2.2, 4.0, 2.2, 1.0]] * 8) + 0.002 * np.resize([1, -1], 8)[:, None]
    verdict = alone(make(metrics["mpi_latency"], rows, (2, 4, 8, 16, 32)), FIVE, PRIOR)
    (finding,) = verdict.findings
    assert (finding.low, finding.high) == (4, 16)
    assert finding.judged.lower < finding.judged.log == pytest.approx(np.log(2.2 * 4 * 2.2) / 3)
    assert finding.judged.log <= finding.judged.upper


def test_a_finding_without_sizes(metrics):
    judged = Interval.build(0.4, 0.3, 0.5, "lower")
    assert range_text(judged, (), metrics["mpi_latency"]) == "49.2% slower (35.0% to 64.9%)"
    assert judged.brief_text("lower") == "49% (35 to 65%)"
    assert judged.brief_text("higher") == "33% (26 to 39%)"


@pytest.mark.parametrize(
    ("better", "low", "high"), [("lower", 1.105171, 1.349859), ("higher", 0.7408182, 0.9048374)]
)
def test_the_smaller_ratio_comes_first(better, low, high):
    judged = Interval.build(0.2, 0.1, 0.3, better)
    assert (judged.low, judged.high) == (low, high)


# -- verdicts as they are stored


@pytest.fixture
def curve(metrics, make):
    rows = np.random.default_rng(1).normal(0, 0.02, (8, 12))
    rows[:, 4:8] += 0.4
    return make(metrics["mpi_latency"], rows, SIZES, native=2.0)


def test_a_record_says_what_was_decided(curve):
    record = alone(curve, Budget.build(0.05, margin=0.1), WIDE)
    assert (record.series, record.gate, record.outcome) == ("mpi_latency@here", "overhead", Outcome.OVER)
    assert (record.unit, record.better, record.pairs, record.waived) == ("us", "lower", 4, False)
    assert record.judged == record.overhead
    assert record.overhead.ratio == pytest.approx(np.exp(record.overhead.log))
    assert [point.size for point in record.points] == list(SIZES)
    (finding,) = record.findings
    assert (finding.low, finding.high) == (16, 128)
    assert finding.text in record.message


def test_its_keys_are_a_contract(curve):
    """No sample stands in it: those are the runs', once."""
    record = alone(curve, Budget.build(0.05, margin=0.1), WIDE, baseline=curve)
    plain = json.loads(record.model_dump_json())
    assert list(plain) == [
        *("metric", "setting", "gate", "outcome", "unit", "better", "axis_unit", "native", "virtual"),
        *("overhead", "change", "budget", "limit", "margin", "pairs", "pairs_run", "next_pairs"),
        *("next_order", "boots", "spread", "points", "findings", "reasons", "waiver", "waived"),
        *("hosts", "native_hosts", "virtual_hosts", "confounded", "message"),
    ]
    assert list(plain["overhead"]) == ["log", "lower", "upper", "ratio", "low", "high"]
    assert (plain["gate"], plain["change"]["log"]) == ("change", 0)


def test_what_follows_from_the_numbers_of_a_verdict(metrics, make):
    over, none = (alone(make(metrics["hpl"], rows), FIVE, PRIOR) for rows in ([0.3] * 8, []))
    assert over.smallest_over == pytest.approx(over.limit + over.overhead.log - over.overhead.lower)
    assert (none.smallest_over, none.text, none.worst) == (None, "-", None)
    assert (over.text, over.worst) == (over.overhead.text("higher"), over.overhead)
    assert alone(make(metrics["lammps_loop_time"], [0.3] * 8), FIVE, PRIOR).text.startswith("35.0% slower")
    assert (over.title, over.has_change) == ("hpl here", False)
    change = over.model_copy(update={"gate": "change"})
    assert (change.title, change.has_change, change.judged, change.estimate) == (
        *("hpl here (change)", False),
        *(None, over.overhead),
    )
    assert over.model_copy(update={"change": over.overhead}).has_change is False
    assert change.model_copy(update={"change": over.overhead}).has_change is True
    assert over.within_below == pytest.approx(over.limit + over.margin)
    assert {over.model_copy(update={name: None}).within_below for name in ("limit", "margin")} == {None}
    assert over.model_copy(update={"limit": None}).smallest_over is None
    assert over.model_copy(update={"findings": ()}).worst == over.overhead
    assert (over.outcome_text, over.model_copy(update={"waived": True}).outcome_text) == (
        "OVER",
        "OVER waived",
    )


def test_a_summary_has_no_details(curve):
    whole = alone(curve, Budget.build(0.05, margin=0.1), WIDE)
    assert whole.points
    assert whole.findings
    over = whole.model_copy(update={"hosts": {"a": 1.1}, "reasons": ("why",)})
    short = over.without_details()
    assert (short.points, short.findings, short.reasons, short.hosts, short.message) == ((), (), (), {}, "")
    assert short.overhead == over.overhead


def test_an_endless_bound_is_nothing_in_json(metrics, make):
    """JSON has no infinity; one value bounds nothing."""
    series = make(metrics["hpl"], [0.1])
    record = alone(series, Budget.build(0.05, margin=0.1), stated(0.03, df=1))
    text = record.model_dump_json()
    assert Verdict.model_validate_json(text) == record
    assert "NaN" not in text
    assert "Infinity" not in text
