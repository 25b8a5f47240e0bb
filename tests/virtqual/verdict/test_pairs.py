from dataclasses import replace

import numpy as np
import pytest
from made_series import in_order, samples_of

from virtqual.verdict.pairs import SIDES, Machines, PairingError, Sample, pair_up, split_turn

SIZES = (8.0, 64.0)


@pytest.fixture
def runs(metrics):
    """Three good pairs of a scalar, in the order N V, V N, N V."""
    return samples_of(metrics["hpl"], [[0.1], [0.2], [0.3]])


def faults(metrics, runs):
    return {
        pair.number: pair.invalid for pair in pair_up(metrics["hpl"], "here", (), runs).pairs if pair.invalid
    }


@pytest.mark.parametrize(("metric", "sign"), [("lammps_loop_time", 1), ("hpl", -1)])
def test_a_value_that_doubles_is_worse_or_better_by_ln_2(metrics, metric, sign):
    runs = [Sample("native", 0, (2.0,), 0, 1), Sample("virtual", 0, (4.0,), 2, 3)]
    series = pair_up(metrics[metric], "lj", (), runs)
    assert series.differences == pytest.approx(np.array([[sign * np.log(2)]]))
    assert series.id == f"{metric}@lj"


def test_a_curve_has_one_column_for_each_size(metrics, make):
    series = make(metrics["mpi_latency"], [[0.1, 0.2], [0.3, 0.4]], SIZES)
    assert series.differences == pytest.approx(np.array([[0.1, 0.2], [0.3, 0.4]]))
    assert series.values["native"].shape == (2, 2)


def test_samples_may_come_in_any_order(metrics, runs):
    series = pair_up(metrics["hpl"], "here", (), runs)
    assert pair_up(metrics["hpl"], "here", (), runs[::-1]) == series
    assert [pair.number for pair in series.pairs] == [0, 1, 2]
    assert series.next_number == 3
    empty = pair_up(metrics["mpi_latency"], "here", SIZES, [])
    assert (empty.differences.shape, empty.next_number) == ((0, 2), 0)


def test_a_run_without_peer_makes_its_pair_invalid(metrics, runs):
    del runs[3]  # native of pair 1
    assert faults(metrics, runs) == {1: ("no native run",)}
    # The run that is there may be refused, too.
    loud = [replace(run, invalid=("loud",)) if run.number == 1 else run for run in runs]
    assert faults(metrics, loud) == {1: ("no native run", "virtual run refused: loud")}
    series = pair_up(metrics["hpl"], "here", (), runs)
    assert series.differences[:, 0] == pytest.approx([0.1, 0.3])


def test_a_refused_sample_makes_its_pair_invalid_and_keeps_the_reason(metrics, runs):
    runs[0] = replace(runs[0], invalid=("foreign load 1.7 cores",))
    assert faults(metrics, runs) == {0: ("native run refused: foreign load 1.7 cores",)}


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_value_that_is_no_positive_number_makes_its_pair_invalid(metrics, runs, value):
    runs[5] = replace(runs[5], values=(value,))
    (reasons,) = faults(metrics, runs).values()
    assert reasons == (f"virtual run reported {value:g}, which is not a positive number",)


def test_overlapping_runs_of_a_pair_are_invalid_and_touching_ones_are_not(metrics, runs):
    touching = [runs[0], replace(runs[1], start=runs[0].end), *runs[2:]]
    assert faults(metrics, touching) == {}
    assert pair_up(metrics["hpl"], "here", (), touching).pairs[0].first == "native"
    runs[1] = replace(runs[1], start=runs[0].end - 1)
    assert "its native run overlaps the virtual run of pair 0" in faults(metrics, runs)[0]


def test_overlapping_runs_of_two_pairs_spoil_both(metrics, runs):
    runs[1] = replace(runs[1], end=runs[2].start + 1)
    assert faults(metrics, runs) == {
        0: ("its virtual run overlaps the virtual run of pair 1",),
        1: ("its virtual run overlaps the virtual run of pair 0",),
    }


def turns(metrics, firsts):
    runs = samples_of(metrics["hpl"], [[0.0]] * len(firsts))
    return pair_up(metrics["hpl"], "here", (), in_order(runs, firsts.upper()))


@pytest.mark.parametrize("firsts", ["nnn", "nvvn", "nvnn", "vnnvn", "nnnnnnvv", "vvvvvnv"])
def test_order_is_judged_over_the_series_and_not_pair_by_pair(metrics, firsts):
    series = turns(metrics, firsts)
    assert series.not_alternated == ""
    assert series.valid == series.pairs
    assert [pair.first[0] for pair in series.pairs] == list(firsts)


@pytest.mark.parametrize(
    ("firsts", "side", "often"),
    [("nnnn", "native", "4 of 4"), ("vvvvv", "virtual", "5 of 5"), ("nnnnnnnv", "native", "7 of 8")],
)
def test_always_one_side_first_is_noticed(metrics, firsts, side, often):
    says = f"not alternated: {side} ran first in {often} pairs, which favours one side"
    assert turns(metrics, firsts).not_alternated == says


def test_pairs_at_one_time_on_other_hosts_have_no_first(metrics):
    """Of six pairs five may run on both hosts at once: the one that did not says nothing of an order."""
    runs = [
        replace(run, host=run.side, start=100.0 * run.number, end=100.0 * run.number + 5)
        for run in samples_of(metrics["hpl"], [[0.0]] * 6)
    ]
    series = pair_up(metrics["hpl"], "here", (), runs)
    assert series.valid == series.pairs
    assert {pair.first for pair in series.pairs} == {None}
    assert series.not_alternated == ""


@pytest.mark.parametrize("time", ["start", "end"])
def test_runs_without_times_are_paired_and_not_alternated(metrics, runs, time):
    runs[0] = replace(runs[0], **{time: float("nan")})
    series = pair_up(metrics["hpl"], "here", (), runs)
    assert series.valid == series.pairs
    assert (series.pairs[0].untimed, series.pairs[0].first) == (True, None)
    assert series.not_alternated == "not alternated: the runs have no start and end times"


@pytest.mark.parametrize(("hours", "valid"), [(5.9, True), (6.1, False), (30, False)])
def test_the_runs_of_a_pair_belong_to_one_part_of_the_day(metrics, runs, hours, valid):
    later = runs[4].end + hours * 3600
    runs[5] = replace(runs[5], start=later, end=later + 5)
    says = (f"its runs lie {hours:.1f} h apart, more than 6 h",)
    assert faults(metrics, runs) == ({} if valid else {2: says})


@pytest.mark.parametrize(
    ("native", "virtual", "apart"),
    [
        ({"host": "a"}, {"host": "b"}, True),
        ({"host": "a"}, {"host": "a"}, False),
        ({"host": "a+b"}, {"host": "b+c"}, False),
        ({"host": "a"}, {"host": ""}, False),
        # A node of the other side may be a guest of this one's host.
        ({"host": "", "node": "n1"}, {"host": "", "node": "v1"}, False),
    ],
)
def test_overlaps_are_allowed_on_hosts_that_are_known_to_be_others(metrics, native, virtual, apart):
    runs = [
        replace(run, **(native if run.side == "native" else virtual), start=100.0 * run.number)
        for run in samples_of(metrics["hpl"], [[0.0]] * 4)
    ]
    runs = [replace(run, end=run.start + 50) for run in runs]
    series = pair_up(metrics["hpl"], "here", (), runs)
    assert len(series.valid) == (4 if apart else 0)


def test_other_nodes_of_one_side_may_run_at_one_time(metrics):
    """A round of a rotation: four nodes, two pairs, all at once."""
    runs = [
        replace(run, host="", node=f"{run.side}{run.number}", start=0.0, end=5.0)
        for run in samples_of(metrics["hpl"], [[0.0]] * 2)
    ]
    says = faults(metrics, runs)
    assert not any("native run overlaps the native" in text for texts in says.values() for text in texts)
    assert any("native run overlaps the virtual" in text for text in says[0])
    runs = [replace(run, host=f"below {run.node}") for run in runs]
    assert faults(metrics, runs) == {}


@pytest.mark.parametrize(
    ("first", "second", "is_shared"),
    [
        (("native", "n1+n2", ""), ("native", "n2+n3", ""), True),
        (("native", "n1+n2", ""), ("native", "n3", ""), False),
        (("native", "n1", "a+b"), ("virtual", "v1", "b+c"), True),
        (("native", "n1", "a+b"), ("virtual", "v1", "c"), False),
        (("native", "n1", "a"), ("virtual", "v2", ""), True),
        (("native", "n1", "a"), ("native", "n2", ""), False),
    ],
)
def test_runs_may_have_been_on_one_machine(first, second, is_shared):
    """The host of a third run is unknown, on another node of the virtual side."""
    runs = [
        Sample(side, 0, (1.0,), 0.0, 5.0, node=node, host=host)
        for side, node, host in (first, second, ("virtual", "v9", ""))
    ]
    assert Machines(runs).meet(*runs[:2]) == is_shared


def rotation(metrics, *turns):
    """Return a series of turns such as ``aw bx``; numbers of pairs begin at 1."""
    pairs = [(turn, couple) for turn, couples in enumerate(turns) for couple in couples.split()]
    runs = [
        Sample(side, number, (1.0,), start := 100.0 * turn + 10 * place, start + 4, host=host, turn=turn)
        for number, (turn, couple) in enumerate(pairs, start=1)
        for place, (side, host) in enumerate(zip(SIDES, couple, strict=True))
    ]
    return pair_up(metrics["hpl"], "here", (), runs)


def test_turns_are_those_of_the_runs(metrics):
    series = rotation(metrics, "aw bx", "ax bw", "aw")
    assert [[pair.number for pair in turn] for turn in series.turns] == [[1, 2], [3, 4], [5]]
    assert [pair.number for pair in series.chosen] == [1, 2, 3, 4]


def test_one_host_a_side_that_all_turns_have_is_no_rotation(metrics):
    series = rotation(metrics, "aw bx cy", "by cx", "bw cy", "bw cy")
    assert series.chosen == series.valid


def test_runs_of_a_turn_that_lost_their_peers_are_paired(metrics):
    (turn,) = rotation(metrics, "aw bx cy").turns
    chosen, left = split_turn(turn, {"a", "c"}, {"x", "y"})
    hosts = [[tuple(sample.host for sample in pair.samples) for pair in part] for part in (chosen, left)]
    assert hosts == [[("c", "y"), ("a", "x")], [("b", "w")]]


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
        ({"points": (8.0,)}, r"its points \(8.0,\) are not the series' \(\)"),
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


def test_a_pair_has_lost_a_run_if_one_is_missing_or_does_not_count(metrics, runs):
    runs[0] = replace(runs[0], invalid=("loud",))
    runs[3] = replace(runs[3], values=(0.0,))
    assert runs[5].number == 2
    series = pair_up(metrics["hpl"], "here", (), [*runs[:5], *runs[6:]])
    assert [pair.number for pair in series.pairs if pair.has_lost_run] == [0, 1, 2]
