from dataclasses import replace

import numpy as np
import pytest
from made_series import samples_of

from virtqual.verdict.pairs import PairingError, Sample, pair_up

SIZES = (8.0, 64.0)


@pytest.fixture
def runs(metrics):
    """Three good pairs of a scalar, in the order N V, V N, N V."""
    return samples_of(metrics["hpl"], [[0.1], [0.2], [0.3]])


def faults(metrics, runs):
    return {
        pair.number: pair.invalid for pair in pair_up(metrics["hpl"], "here", (), runs).pairs if pair.invalid
    }


def test_a_lower_is_better_metric_that_doubles_is_worse_by_ln_2(metrics):
    runs = [Sample("native", 0, (2.0,), 0, 1), Sample("virtual", 0, (4.0,), 2, 3)]
    series = pair_up(metrics["lammps_loop_time"], "lj", (), runs)
    assert series.differences() == pytest.approx(np.array([[np.log(2)]]))
    assert series.id == "lammps_loop_time@lj"


def test_a_higher_is_better_metric_that_doubles_is_better_by_ln_2(metrics):
    runs = [Sample("native", 0, (2.0,), 0, 1), Sample("virtual", 0, (4.0,), 2, 3)]
    assert pair_up(metrics["hpl"], "", (), runs).differences() == pytest.approx(np.array([[-np.log(2)]]))


def test_a_curve_has_one_column_for_each_size(metrics, make):
    series = make(metrics["mpi_latency"], [[0.1, 0.2], [0.3, 0.4]], SIZES)
    assert series.differences() == pytest.approx(np.array([[0.1, 0.2], [0.3, 0.4]]))
    assert series.values("native").shape == (2, 2)


def test_samples_may_come_in_any_order(metrics, runs):
    there = pair_up(metrics["hpl"], "here", (), runs)
    assert pair_up(metrics["hpl"], "here", (), runs[::-1]) == there
    assert [pair.number for pair in there.pairs] == [0, 1, 2]
    assert there.next_number == 3


def test_no_sample_is_an_empty_series(metrics):
    series = pair_up(metrics["mpi_latency"], "here", SIZES, [])
    assert series.differences().shape == (0, 2)
    assert series.next_number == 0


def test_a_run_without_peer_makes_its_pair_invalid(metrics, runs):
    del runs[3]  # native of pair 1
    assert faults(metrics, runs) == {1: ("no native run",)}
    series = pair_up(metrics["hpl"], "here", (), runs)
    assert series.differences()[:, 0] == pytest.approx([0.1, 0.3])


def test_a_refused_sample_makes_its_pair_invalid_and_keeps_the_reason(metrics, runs):
    runs[0] = replace(runs[0], invalid=("foreign load 1.7 cores",))
    assert faults(metrics, runs) == {0: ("native run refused: foreign load 1.7 cores",)}


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_value_that_is_no_positive_number_makes_its_pair_invalid(metrics, runs, value):
    runs[5] = replace(runs[5], values=(value,))
    (reasons,) = faults(metrics, runs).values()
    assert reasons == (f"virtual run reported {value:g}, which is no positive number",)


def test_overlapping_runs_of_a_pair_are_invalid(metrics, runs):
    runs[1] = replace(runs[1], start=runs[0].end - 1)
    assert "its native run overlaps the virtual run of pair 0" in faults(metrics, runs)[0]


def test_runs_that_touch_do_not_overlap(metrics, runs):
    runs[1] = replace(runs[1], start=runs[0].end)
    assert faults(metrics, runs) == {}


def test_overlapping_runs_of_two_pairs_spoil_both(metrics, runs):
    runs[1] = replace(runs[1], end=runs[2].start + 1)
    found = faults(metrics, runs)
    assert found == {
        0: ("its virtual run overlaps the virtual run of pair 1",),
        1: ("its virtual run overlaps the virtual run of pair 0",),
    }


def test_a_pair_in_the_wrong_order_is_invalid(metrics, runs):
    first, second = runs[2], runs[3]
    runs[2] = replace(first, start=second.start, end=second.end)
    runs[3] = replace(second, start=first.start, end=first.end)
    assert faults(metrics, runs) == {1: ("runs not in alternating order: pair 1 must run virtual first",)}


def test_always_native_first_is_noticed(metrics, runs):
    clock = iter(range(0, 1000, 10))
    runs = [
        replace(run, start=(t := next(clock)), end=t + 5)
        for run in sorted(runs, key=lambda r: (r.number, r.side))
    ]
    assert list(faults(metrics, runs)) == [1]


def test_a_pair_interrupted_by_another_is_invalid(metrics, runs):
    runs[1] = replace(runs[1], start=runs[2].end + 1, end=runs[2].end + 2)
    assert "a run of pair 1 lies between its two runs" in faults(metrics, runs)[0]


def test_a_clock_that_was_set_back_costs_a_pair(metrics, runs):
    runs[3] = replace(runs[3], end=runs[3].start - 1)
    says = f"{runs[3].side} run ended 1 s before it started: a clock was set back"
    assert says in faults(metrics, runs)[1]
    assert list(faults(metrics, runs)) == [1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"number": 1}, r"hpl@here: pair 1 has more than one native sample"),
        ({"number": -1}, r"native sample of pair -1: pair numbers start at 0"),
        ({"values": (1.0, 2.0)}, r"2 values for a scalar"),
        ({"values": ()}, r"0 values for a scalar"),
        ({"points": (8.0,)}, r"its points \(8.0,\) are not the series' \(\)"),
        ({"end": float("inf")}, r"cannot have started at .* and ended at inf"),
        ({"start": float("nan")}, r"cannot have started at nan"),
        ({"side": "host"}, r"a side is one of native, virtual"),
    ],
)
def test_what_only_a_bug_produces_is_refused(metrics, runs, change, message):
    runs[0] = replace(runs[0], **change)
    with pytest.raises(PairingError, match=message):
        pair_up(metrics["hpl"], "here", (), runs)


@pytest.mark.parametrize(
    ("metric", "points", "message"),
    [
        ("hpl", (8.0,), "is a scalar and has no points"),
        ("mpi_latency", (), "is a curve and needs the message sizes"),
        ("mpi_latency", (8.0, 8.0), "points must rise"),
        ("mpi_latency", (64.0, 8.0), "points must rise"),
        ("mpi_latency", (-1.0, 8.0), "finite and not negative"),
        ("mpi_latency", (float("nan"),), "finite and not negative"),
    ],
)
def test_points_must_fit_the_metric(metrics, metric, points, message):
    with pytest.raises(PairingError, match=message):
        pair_up(metrics[metric], "here", points, [])


def test_points_of_a_sample_must_be_those_of_the_series(metrics):
    run = Sample("native", 0, (1.0, 2.0), 0, 1, points=(8.0, 128.0))
    with pytest.raises(PairingError, match="are not the series'"):
        pair_up(metrics["mpi_latency"], "here", SIZES, [run])
    assert pair_up(metrics["mpi_latency"], "here", SIZES, [replace(run, points=(8, 64))]).points == SIZES


def test_a_series_is_cut_to_its_first_valid_pairs(metrics, runs):
    runs[0] = replace(runs[0], invalid=("loud",))
    series = pair_up(metrics["hpl"], "here", (), runs)
    assert [pair.number for pair in series.first(1).pairs] == [0, 1]
    assert series.first(0).pairs == ()
    assert series.first(2) is series
