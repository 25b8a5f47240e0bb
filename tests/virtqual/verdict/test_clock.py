"""The step of a clock: found in the values, and refused if it is too large for the margin."""

from dataclasses import replace

import numpy as np
import pytest
from made_series import PRIOR, alone, budget_of, samples_of

from virtqual.verdict import Outcome
from virtqual.verdict.budget import Budget, BudgetReason, Sizes, Term
from virtqual.verdict.clock import find_coarse_clock, find_last_place, find_steps
from virtqual.verdict.pairs import pair_up

THREE = Budget.build(0.05, margin=0.03)
OSU = budget_of(relative=0.1, margin=0.1)
SIZES = (1.0, 1024.0, 1048576.0)


@pytest.fixture
def timed(metrics):
    """Return a function that makes a series of times that a clock rounds; `show` makes values of them."""

    def build(overhead, step, pairs=4, sd=0.01, native=1.0, seed=1, points=(), show=np.array):
        rng = np.random.default_rng(seed)
        name = "mpi_latency" if points else "hpl" if show(2.0) < show(1.0) else "lammps_loop_time"
        runs = samples_of(metrics[name], [[0.0] * max(len(points), 1)] * pairs)
        scale = np.resize(native, max(len(points), 1))
        samples = []
        for run in runs:
            level = scale * (1 + overhead * (run.side == "virtual"))
            times = level * np.exp(rng.normal(0, sd / np.sqrt(2), len(scale)))
            values = show(np.maximum(np.round(times / step), 1) * step if step else times)
            samples.append(run.__class__(run.side, run.number, tuple(values.tolist()), run.start, run.end))
        return pair_up(metrics[name], "here", points, samples)

    return build


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ([0.19, 0.2, 0.21, 0.2], 0.01),
        ([100, 101, 104, 104], 1),
        # one value that repeats may be a limit
        ([95, 100, 105, 100], 1),
        ([95, 100, 105, 100, 95], 5),
        # fio prints three digits: no value repeats
        ([21400, 21700, 22200, 21800, 22300, 21900, 22000, 22200], 1),
        # nanoseconds as microseconds
        ([390 / 1000, 400 / 1000, 410 / 1000], 0.01),
        # runs a day, by whole seconds: what repeats differs by more than its digits say
        ([86400 / 21, 86400 / 23, 86400 / 22, 86400 / 22, 86400 / 21], 86400 / 22 - 86400 / 23),
        ([37.281352, 39.145420, 37.281352, 41.009487, 39.145420], 1.864067),
        # means of three times of 0.01 s
        ([0.61 / 3, 0.62 / 3, 0.61 / 3, 0.62 / 3], 0.01 / 3),
        # all values are equal: the last digit counts
        ([2.5, 2.5, 2.5], 0.1),
        ([3000.0] * 8, 1),
        ([3000.12345] * 8, 1e-3),
        # MPI latency of two nodes: one side repeats, and the difference of the other is noise
        ([14.997, 14.997, 14.997, 14.997, 1898.193, 1764.584, 1900.101, 1780.486], 0.001),
        ([0.9203125, 0.9203125, 4.3049219, 4.5946094], 1e-7),
        ([0.9346008651256573, 0.9047985144057312, 0.9453296552073213], 1e-7),
        # a disk that is throttled to one of two levels now and then (fio in VMs of Azure, MiB/s)
        ([48.7, 195, 195, 195, 195, 195, 195, 48.7], 0.1),
        ([195, 195, 52, 195, 77.4, 52, 77.4, 180], 0.1),
        # a limit, with a run that it did not reach
        ([3000] * 7 + [2900], 1),
        # latencies of pgbench in three digits: a step of 3 %
        ([0.034, 0.034, 0.033, 0.034, 0.033, 0.034, 0.035, 0.034], 0.001),
    ],
)
def test_the_step_is_the_last_digit_or_the_difference_of_values_that_repeat(values, step):
    (found,) = find_steps(np.array(values, dtype=float)[:, None])
    assert found == pytest.approx(step, rel=1e-4)


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ([3000.0], 1),
        ([1.2], 0.1),
        ([0.034, 1200.0], 0.001),
        ([1.23456789], 1e-6),
        # further digits of large numbers come from arithmetic
        ([1_394_764.25], 1),
        ([250_000_000.0], 100),
    ],
)
def test_the_last_place_is_the_finest_that_a_value_shows(values, place):
    assert find_last_place(np.array(values)) == pytest.approx(place)


def test_the_sizes_of_a_curve_show_one_step():
    values = np.array([[1.25, 3.5, 1021.11], [1.25, 3.51, 1020.42], [1.25, 3.5, 1022.97]])
    assert find_steps(values) == pytest.approx([0.01] * 3)


SHOWN = {
    "printed": lambda t: t,
    "converted": lambda t: 37.2813521 * t,
    "as a rate": lambda t: 1 / t,
    "runs a day": lambda t: np.round(86400 / t, 1),
}


@pytest.mark.parametrize(
    ("step", "overhead", "shown"),
    [
        *((0.05, overhead, shown) for overhead in (0.05, 0.08) for shown in SHOWN),
        *((0.1, overhead, "printed") for overhead in (0.0, 0.05, 0.08, 0.12)),
        *((0.1, 0.12, shown) for shown in SHOWN),
    ],
)
def test_nothing_is_said_by_a_clock_whose_steps_are_too_large(timed, step, overhead, shown):
    for seed in range(12):
        sd, native = 0.01 + 0.01 * (seed % 2), 0.93 + 0.02 * seed
        series = timed(overhead, step, 4, sd, native, seed, show=SHOWN[shown])
        verdict = alone(series, THREE, PRIOR)
        assert verdict.outcome is Outcome.INVALID
        assert "clock too coarse" in verdict.reasons[0]


@pytest.mark.parametrize("shown", [name for name in SHOWN if name != "printed"])
def test_a_step_that_a_conversion_hides_lets_no_overhead_of_budget_and_margin_pass(timed, shown):
    for seed in range(12):
        series = timed(0.08, 0.1, 8, 0.02, 0.93 + 0.02 * seed, seed, show=SHOWN[shown])
        assert alone(series, THREE, PRIOR).outcome in (Outcome.INVALID, Outcome.UNDECIDED)


def series_of(metrics, native, virtual, name="storage_random_read"):
    """Return pairs of these values."""
    samples = samples_of(metrics[name], [[0.0]] * len(native))
    values = {"native": native, "virtual": virtual}
    samples = [replace(sample, values=(values[sample.side][sample.number],)) for sample in samples]
    return pair_up(metrics[name], "here", (), samples)


LIMITED = (
    "pairs: a limit (a rate cap, or the step of a clock) holds both sides; this measures the limit, not the "
    "hypervisor"
)


@pytest.mark.parametrize(
    ("native", "virtual", "note"),
    [
        ([3000.0] * 8, [3000.0] * 8, f"native and virtual both show 3000 IO/s in all 8 {LIMITED}"),
        (
            [3000.12345] * 8,
            [3000.12345] * 8,
            f"native and virtual both show 3000 IO/s in all 8 {LIMITED}",
        ),
        (
            [3000, 3001, 3000, 3000, 2999, 3000, 3000, 3000],
            [3000.0] * 8,
            f"native and virtual both show 3000 IO/s in 6 of 8 {LIMITED}",
        ),
        # fio in VMs of Azure
        (
            [3109, 3109, 3111, 3109, 3109, 3109, 3109, 3109],
            [3109, 3109, 3109, 3109, 3114, 3109, 3109, 3109],
            f"native and virtual both show 3109 IO/s in 6 of 8 {LIMITED}",
        ),
        # fio with rate_iops=300
        ([300.0] * 4, [300.0] * 4, f"native and virtual both show 300 IO/s in all 4 {LIMITED}"),
        # a token bucket of 400: no value repeats
        ([395.08057, 395.30582, 394.56558, 393.02597], [394.73245, 395.1271, 394.80411, 394.2199], None),
        # one value in half of the pairs is often chance
        ([39.8, 39.8, 39.9, 39.8], [39.8, 39.9, 39.9, 39.7], None),
    ],
)
def test_a_limit_that_holds_both_sides_is_within_and_named(metrics, native, virtual, note):
    verdict = alone(series_of(metrics, native, virtual), THREE, PRIOR)
    assert verdict.outcome is Outcome.WITHIN
    assert verdict.reasons == ((note,) if note else ())
    assert note is None or verdict.message.endswith(f"\n{note}")


def test_a_limit_of_the_virtual_side_alone_is_judged(metrics):
    native = [3009.3, 2998.1, 3004.7, 3001.9, 2997.2, 3006.1, 3003.3, 3000.8]
    verdict = alone(series_of(metrics, native, [2700.0] * 8), THREE, PRIOR)
    assert (verdict.outcome, verdict.reasons) == (Outcome.OVER, ())


@pytest.mark.parametrize("value", [20.0, 1.1])
def test_equal_values_of_few_digits_are_refused_by_their_last_digit(metrics, value):
    verdict = alone(series_of(metrics, [value] * 8, [value] * 8, "lammps_loop_time"), THREE, PRIOR)
    assert verdict.outcome is Outcome.INVALID
    assert "print more digits" in verdict.reasons[0]


def test_equal_values_claim_no_more_than_their_digits(metrics):
    series = series_of(metrics, [150.0] * 8, [150.0] * 8)
    verdict = alone(series, THREE, PRIOR)
    assert verdict.outcome is Outcome.WITHIN
    finer = alone(series_of(metrics, [150.125] * 8, [150.125] * 8), THREE, PRIOR)
    # Half a unit of the last digit on each side.
    assert verdict.overhead.upper - finer.overhead.upper == pytest.approx(1 / 150 - 0.001 / 150.125, rel=1e-3)


@pytest.mark.parametrize(
    ("digits", "sd"), [(4, 0.001), (4, 0.02), (6, 0.0002), (6, 0.001), (6, 0.03), (9, 0.001), (17, 0.02)]
)
def test_a_clock_of_four_digits_and_more_is_fine(timed, digits, sd):
    show = lambda t: np.array([float(f"{time:.{digits}g}") for time in np.ravel(t)])  # noqa: E731
    for seed in range(20):
        series = timed(0.03, 0, 4, sd=sd, native=10 ** (0.15 * seed), seed=seed, show=show)
        assert series.check_clock(THREE) is None


@pytest.mark.parametrize("sd", [0.0, 0.001, 0.03])
def test_latencies_of_osu_are_judged_though_small_ones_repeat(timed, sd):
    series = timed(0.0, 0.01, sd=sd, points=SIZES, native=(0.39, 1.253, 87.437))
    assert alone(series, OSU, PRIOR).outcome is Outcome.WITHIN
    assert series.clock_bias[0] == pytest.approx(0.01 / 0.39, rel=0.03)


@pytest.mark.parametrize("sessions", [1, 2])
def test_half_a_step_a_side_is_added_to_the_bounds_of_a_size_in_each_session(timed, sessions):
    series = timed(0.0, 0.01, sd=0.0, points=SIZES, native=(0.39, 1.253, 87.437))
    small, _, large = alone(series, OSU, PRIOR, baseline=series if sessions == 2 else None).points
    more = small.judged.upper - large.judged.upper
    assert more == pytest.approx(sessions * 0.01 * (1 / 0.39 - 1 / 87.44))
    assert large.judged.lower - small.judged.lower == pytest.approx(more)


def test_the_message_names_step_size_share_margin_and_repetitions(timed):
    series = timed(0.0, 0.01, points=SIZES, native=(0.1, 1.253, 87.437))
    assert alone(series, OSU, PRIOR).reasons == (
        "clock too coarse: it shows steps of 0.01 us at 1 B, 10.0% of 0.1 us, more than a third of the "
        "margin of 10.0%; print more digits, make the runs longer, or take 3 times as many repetitions "
        "in a run",
    )


def test_the_worst_size_is_that_of_the_largest_share_of_its_margin(metrics):
    reason = BudgetReason(policy="p")
    small = Term(relative=0.1, margin=0.05, reason=reason, sizes=Sizes(low=1, high=8))
    budget = Budget(terms=(small, Term(relative=0.1, margin=0.5, reason=reason)))

    def find(native, step=0.01):
        values = np.full(2, native)
        return find_coarse_clock(metrics["mpi_latency"], (1024.0, 1.0), np.full(2, step), values, budget)

    clock = find(0.5)
    assert (clock.size, clock.margin, clock.repetitions) == (1.0, 0.05, 2)
    assert find(0.7) is None
    # The unit does not matter.
    assert find(5e-6, 1e-7).repetitions == 2


@pytest.mark.parametrize(
    ("values", "others", "step"),
    [
        # printed to a hundredth, while the other side has six digits
        ([0.21, 0.21, 0.21, 0.21], [0.213871, 0.209112, 0.211763, 0.212904], 0.01),
        # ticks of 4 ms
        ([0.208, 0.212, 0.212, 0.208], [0.213871, 0.209112, 0.211763, 0.212904], 0.004),
        # a rate by times of whole seconds
        (
            [86400 / k for k in (22, 23, 22, 23)],
            [3927.2811, 3760.9127, 3911.0712, 3800.2209],
            86400 / 22 / 23,
        ),
        # a zero at the end is not printed: one value of ten has none
        ([1.2, 1.2, 1.2, 1.2], [1.23, 1.21, 1.22, 1.19], 0.01),
        # a side that repeats to the last of five digits
        ([14.997, 14.997, 14.997, 14.997], [15.113, 15.208, 14.994, 15.077], 0.001),
    ],
)
def test_the_clock_of_one_side_shows_next_to_finer_values_of_the_other(values, others, step):
    sides = [np.array(side)[:, None] for side in (values, others)]
    for native, virtual in (sides, sides[::-1]):
        assert find_steps(native, virtual) == pytest.approx(step, rel=1e-4)


@pytest.mark.parametrize("side", ["native", "virtual"])
def test_a_coarse_clock_of_one_side_is_refused(timed, side):
    series = timed(0.0, 0.0, 8)
    pairs = []
    for pair in series.pairs:
        sample = getattr(pair, side)
        rounded = replace(sample, values=(round(sample.values[0], 1),))
        pairs.append(replace(pair, **{side: rounded}))
    verdict = alone(replace(series, pairs=tuple(pairs)), THREE, PRIOR)
    assert verdict.outcome is Outcome.INVALID
    assert verdict.reasons[0].startswith("clock too coarse")


def test_two_pairs_may_show_too_large_a_step_by_chance(timed):
    verdict = alone(timed(0.0, 0.05, 2), THREE, PRIOR, looks=(2, 4, 8))
    assert (verdict.outcome, verdict.next_pairs) == (Outcome.UNDECIDED, 4)
    assert "more pairs may show smaller steps" in verdict.reasons[0]
    assert alone(timed(0.0, 0.05, 2), THREE, PRIOR, looks=(2,)).next_pairs is None


def test_the_clock_of_the_earlier_session_counts_as_well(timed):
    now, before = timed(0.0, 0.001, 8), timed(0.0, 0.05, 8)
    (reason,) = alone(now, THREE, PRIOR, baseline=before).reasons
    assert reason.startswith("earlier session: clock too coarse")


def test_an_earlier_session_of_two_pairs_is_not_refused_for_a_step_that_may_be_chance(timed):
    now, before = timed(0.0, 0.001, 8), timed(0.0, 0.05, 2)
    assert before.check_clock(THREE) is not None
    verdict = alone(now, THREE, PRIOR, baseline=before)
    assert verdict.outcome is Outcome.UNDECIDED
    assert "clock" not in verdict.reasons[0]
