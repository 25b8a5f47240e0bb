"""What cannot be does not count: copies of a run, and times that contradict each other."""

import math
import random
import re

import pytest

from made_runs import made_run, session_of
from virtqual.preflight.compare import check_runs
from virtqual.runs import Declared, Result
from virtqual.session import judge as judging

SIZES = [2.0**power for power in range(14)]
LOOP = Declared(unit="s", better="lower", budget=1.05, margin=0.03)


def curve(values, metric="mpi_latency"):
    return Result.curve(metric, "same node", dict(zip(SIZES, values, strict=False)))


def scalar(value):
    return Result.scalar("npb_is", "is", value)


def placed(side, pair, result, *, first=0, **more):
    """A run in its place: one begins every 100 s, and its job has a number of its own."""
    place = first + 2 * pair + (side == "virtual")
    more = {"seconds": 58.5, **more}
    span = more.pop("span", 60.0)
    start = 100.0 * place
    return made_run(side, pair, start=start, end=start + span, job=str(place), results=(result,), **more)


def refused(runs, item, earlier=(), hypervisor_class="kvm"):
    """The runs that an item refuses, by side and pair, and what the session shows of them."""
    checked_runs, findings = check_runs(runs, judging.policy(), hypervisor_class, earlier)
    out = [
        (run.side, run.pair)
        for run in checked_runs
        if any(why.startswith(f"{item}: ") for result in run.results for why in result.invalid)
    ]
    return out, [finding.reason for finding in findings if finding.item == item]


def measured(digits, spread, count, places=2):
    """Latencies as a program prints them, of as many runs."""
    made = random.Random(7)
    return [
        [round(digits * (1 + size / 100) * made.gauss(1, spread), places) for size in range(14)]
        for _ in range(count)
    ]


def test_a_curve_of_an_earlier_run_on_the_same_side_is_a_copy():
    """The output of the last run lay on the VMs, and both virtual runs were the same in all sizes."""
    native, (virtual,) = measured(25.0, 0.02, 2), measured(140.0, 0.05, 1)
    runs = [placed("native", n, curve(values)) for n, values in enumerate(native)]
    runs += [placed("virtual", n, curve(virtual)) for n in range(2)]
    out, says = refused(runs, "copied-run")
    assert out == [("virtual", 1)]
    assert "1 of 2 virtual runs left out" in says[0]
    assert "all 14 values repeat those of pair 0 (job 1) to the last digit" in says[0]
    # In the session's own words, and without the rule nobody says so.
    judged = judging.judge(session_of(runs))
    assert [one.item for one in judged.admitted.findings if one.action == "refuse"] == ["copied-run"]
    assert check_runs(runs, judging.policy().without("copied-run"), "kvm")[1] == []


def test_rates_over_a_few_ticks_of_a_clock_repeat_by_chance():
    """STREAM at 700 GB/s: best times of some 2,700 us, and rates that are printed to 0.1 MB/s."""

    def rates(ticks):
        kernels = [("copy", 1280), ("scale", 1280), ("add", 1920), ("triad", 1920)]
        return tuple(
            Result.scalar(f"memory_{name}", "8 threads", round(size * 1e6 / 2743, 1), ticks=ticks)
            for name, size in kernels
        )

    def twice(ticks):
        runs = [placed("native", n, scalar(1.0)) for n in range(2)]
        return [run.model_copy(update={"results": rates(ticks)}) for run in runs]

    assert refused(twice(2743.0), "copied-run")[0] == []
    assert refused(twice(None), "copied-run")[0] == [("native", 1)]
    assert refused(twice(2743000.0), "copied-run")[0] == [("native", 1)]


def test_what_is_no_number_is_not_asked_for_its_digits():
    """Runs of an earlier session that were damaged: another rule refuses them."""
    runs = [placed("native", n, scalar(float("inf"))) for n in range(2)]
    assert refused(runs, "copied-run") == ([], [])


def test_an_output_of_the_earlier_session_is_a_copy():
    before = [placed("virtual", 0, curve(measured(140.0, 0.05, 1)[0]))]
    now = [placed("virtual", 3, curve(before[0].results[0].values), first=10)]
    assert refused(now, "copied-run", before)[0] == [("virtual", 3)]
    assert refused(now, "copied-run")[0] == []
    # The other side's, and a session that is held against itself.
    assert refused([placed("native", 3, now[0].results[0], first=10)], "copied-run", before)[0] == []
    assert refused(before, "copied-run", before)[0] == []
    earlier = session_of(before, name="before")
    assert judging.judge(session_of(now), earlier=earlier).admitted.runs[0].results[0].invalid


def test_values_that_are_computed_are_compared_as_a_curve():
    computed = [[value / 3 for value in values] for values in measured(0.9, 0.01, 1)]
    runs = [placed("native", n, curve(computed[0])) for n in range(2)]
    assert refused(runs, "copied-run")[0] == [("native", 1)]
    runs = [placed("native", n, scalar(1000 / 0.39)) for n in range(8)]
    assert refused(runs, "copied-run")[0] == []


@pytest.mark.parametrize(
    ("values", "copies"),
    [
        ([0.39] * 8, []),
        # The last digit may be 0, and was printed all the same.
        ([0.4, 0.39, 0.4, 0.41], []),
        ([2011.52, 2013.1, 2011.52, 2009.0], []),
        ([41234.57, 41210.33, 41234.57, 41190.0], [2]),
        ([412.345, 412.345, 412.345, 412.345], [1, 2, 3]),
    ],
)
def test_only_digits_that_cannot_repeat_make_a_copy(values, copies):
    runs = [placed("virtual", n, scalar(value)) for n, value in enumerate(values)]
    assert refused(runs, "copied-run")[0] == [("virtual", n) for n in copies]


@pytest.mark.parametrize(
    ("results", "copies"),
    [
        # Nine digits are printed.
        ([scalar(123456.789)] * 2, [1]),
        # The digits of the value that repeats count, not those of another run.
        ([scalar(value) for value in (41234.57, 0.05, 41234.57)], [2]),
        ([curve([math.inf] * 14)] * 2, []),
    ],
)
def test_which_digits_make_a_copy(results, copies):
    runs = [placed("virtual", n, result) for n, result in enumerate(results)]
    assert refused(runs, "copied-run")[0] == [("virtual", n) for n in copies]


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (
            scalar(2011.521),
            r"the value repeats those of pair 0 \(job 1\) to the last digit, which happens by chance once in "
            r"2e\+03 times: what was printed is no measurement of this run",
        ),
        (curve([1.0, 20115.21], "npb_is"), "all 2 values repeat those of pair 0 .*"),
        (
            Result.curve("npb_is", "is", {float(size): 123456.789 + size for size in range(80)}),
            r"all 80 values .* by chance once in 1e\+300 times: .*",
        ),
    ],
)
def test_a_copy_is_said_with_its_chance(result, says):
    out, shown = refused([placed("virtual", n, result) for n in range(2)], "copied-run")
    assert out == [("virtual", 1)]
    assert re.fullmatch(says, shown[0].partition("the first: ")[2])


def test_quiet_runs_that_print_few_digits_are_honest():
    """Latencies of a quiet machine: two decimals, and most of them repeat."""
    for seed in range(50):
        made = random.Random(seed)
        shown = [[round(0.2 * made.gauss(1, 0.003), 2) for _ in SIZES] for _ in range(8)]
        assert (
            refused([placed("native", n, curve(one)) for n, one in enumerate(shown)], "copied-run")[0] == []
        )


def test_a_run_cannot_be_shorter_than_its_program_says():
    said = [Result.scalar("case_loop", "lj", seconds, declared=LOOP) for seconds in (2.8, 12.0)]
    runs = [placed("virtual", n, one, seconds=3.0, span=4.0) for n, one in enumerate(said)]
    out, says = refused(runs, "impossible-time")
    assert out == [("virtual", 1)]
    assert "case_loop@lj is 12 s, but the whole program took 3 s on its node" in says[0]
    known = placed("native", 0, Result.scalar("lammps_loop_time", "lj", 12.0), seconds=3.0, span=4.0)
    assert refused([known], "impossible-time")[0] == [("native", 0)]
    # A rate of 12 is no time.
    assert refused([placed("native", 0, scalar(12.0), seconds=3.0)], "impossible-time")[0] == []


def test_a_rating_is_the_seconds_of_a_run_as_well():
    """One digit of one step of WRF made its time 8 s longer than the program's own."""
    ratings = [Result.scalar("wrf_rating", "em_b_wave", 86_400 / seconds) for seconds in (0.98, 8.98, 0.97)]
    runs = [placed("native", pair, rating, seconds=3.0) for pair, rating in enumerate(ratings)]
    out, says = refused(runs, "impossible-time")
    assert out == [("native", 1)]
    assert "the time of wrf_rating@em_b_wave is 8.98 s, but the whole program took 3 s on its node" in says[0]


def test_half_of_the_repetitions_took_as_long_as_their_value_on_average():
    loop = Result.scalar("case_loop", "lj", 0.9, declared=LOOP)
    runs = [placed("virtual", n, loop, seconds=3.0, span=4.0, repetitions=n) for n in (1, 8, 9, 10)]
    out, says = refused(runs, "impossible-time")
    assert out == [("virtual", 10)]
    assert "case_loop@lj is 0.9 s, 5 times at least, but the whole program took 3 s" in says[0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"span": -5.0}, "it ended 5 s before it started, by the clock of test"),
        ({"seconds": -2.0}, "its program took -2 s by its node's clock"),
        ({"seconds": 0.0}, "its program took 0 s"),
    ],
)
def test_no_time_is_negative(change, says):
    out, shown = refused([placed("virtual", 0, scalar(1.0), **change)], "impossible-time")
    assert out == [("virtual", 0)]
    assert says in shown[0]


def test_a_job_that_ends_in_the_second_of_its_start_is_possible():
    assert refused([placed("virtual", 0, scalar(1.0), span=0.0, seconds=0.4)], "impossible-time")[0] == []


@pytest.mark.parametrize("seconds", [-0.5, 0.0])
def test_no_program_takes_less_than_nothing(seconds):
    run = placed("virtual", 0, Result.scalar("lammps_loop_time", "lj", seconds))
    assert (
        f"lammps_loop_time@lj is {seconds:g} s, which is no time" in refused([run], "impossible-time")[1][0]
    )


@pytest.mark.parametrize(
    ("result", "repetitions", "says"),
    [
        # 2 % and a second more than the 1000 s of the whole program.
        (Result.scalar("case_loop", "lj", 1021.0, declared=LOOP), 1, None),
        (Result.scalar("case_loop", "lj", 1021.1, declared=LOOP), 1, "case_loop@lj is 1021 s, but the whole"),
        (
            Result.scalar("case_loop", "lj", 600.0, declared=LOOP),
            4,
            "600 s, 2 times at least, but the whole",
        ),
        (Result.scalar("no_such_metric", "lj", 5000.0), 1, None),
        (Result.scalar("wrf_rating", "em_b_wave", 0.5), 1, "the time of wrf_rating@em_b_wave is 1.728e+05 s"),
        (Result.scalar("wrf_rating", "em_b_wave", 0.0), 1, None),
    ],
)
def test_how_much_longer_than_its_run_a_program_may_say_it_took(result, repetitions, says):
    run = placed("native", 0, result, seconds=1000.0, span=1001.0, repetitions=repetitions)
    out, shown = refused([run], "impossible-time")
    assert out == ([("native", 0)] if says else [])
    assert not says or says in shown[0]


@pytest.mark.parametrize(("rate", "fits"), [(0.5, False), (0.001, False), (1.25, False), (1.0, True)])
def test_the_clock_of_a_guest_is_held_against_the_schedulers(rate, fits):
    """A run of 60 s whose guest's clock runs at another rate."""
    runs = [placed("native", 0, scalar(5.0)), placed("virtual", 0, scalar(5.1), seconds=58.5 * rate)]
    out, says = refused(runs, "node-clock")
    assert out == ([] if fits else [("virtual", 0)])
    if rate < 1:
        assert "but its job 60 s by the scheduler's" in says[0]
        assert "1.5 s lie between them natively" in says[0]
        # Emulated, all around the program takes longer: it is said, and refuses nothing.
        out, says = refused(runs, "node-clock", hypervisor_class="emulated")
        assert (out, len(says)) == ([], 1)


@pytest.mark.parametrize(("rate", "fits"), [(0.5, False), (1.0, True)])
def test_the_clock_of_a_native_node_is_held_against_other_runs(rate, fits):
    """Three pairs of runs of 60 s, of which one native run is on a node whose clock runs at another rate."""
    runs = [placed(side, pair, scalar(5.0)) for pair in range(3) for side in ("native", "virtual")]
    runs[2] = placed("native", 1, scalar(5.0), seconds=58.5 * rate)
    out, says = refused(runs, "node-clock")
    assert out == ([] if fits else [("native", 1)])
    assert fits or says[0].endswith(
        "but its job 60 s by the scheduler's; 1.5 s lie between them in other runs"
    )
    # What both jobs of a pair do around their programs is no wrong clock.
    runs[3] = placed("virtual", 1, scalar(5.0), seconds=58.5 * rate)
    assert refused(runs, "node-clock")[0] == []


JOB_IS_LONGER = ", but its job 60 s by the scheduler's; 1.5 s lie between them natively"


@pytest.mark.parametrize(
    ("shell_seconds", "says"),
    [
        (30.0, None),
        (15.0, f" with 15 s before it by the node's clock{JOB_IS_LONGER}"),
        (1.0, f" with 1 s before it by the node's clock{JOB_IS_LONGER}"),
        (0.0, f" by the node's clock{JOB_IS_LONGER}"),
        (60.0, " with 60 s before it by the node's clock, but its whole job 60 s by the scheduler's"),
    ],
)
def test_a_shell_that_loads_modules_slowly_is_no_wrong_clock(shell_seconds, says):
    """A job of 60 s, half of which a login shell and modules take in the VM, and 3 s of it natively."""
    runs = [
        placed("native", 0, scalar(5.0), span=33.0, seconds=28.5, shell_seconds=3.0),
        placed("virtual", 0, scalar(5.1), seconds=28.5, shell_seconds=shell_seconds),
    ]
    out, shown = refused(runs, "node-clock")
    assert out == ([("virtual", 0)] if says else [])
    assert not says or shown[0].endswith(f"the first: its program took 28.5 s{says}")


@pytest.mark.parametrize(
    ("native", "virtual", "fits"),
    [
        # A pair without a native run is held against the middle of all.
        ({"span": 70.0, "seconds": 60.0}, {"pair": 1, "span": 80.0, "seconds": 60.0}, True),
        ({"span": 60.0, "seconds": 60.0}, {"pair": 1, "span": 67.0, "seconds": 60.0}, False),
        # A native job that seems shorter than its program does not make the VM's allowance smaller.
        ({"span": 57.0, "seconds": 58.5}, {"span": 60.0, "seconds": 54.0}, True),
        # Twice of what lies between natively, 5 s and 2 % of the job.
        ({"span": 52.0, "seconds": 50.0}, {"span": 50.0, "seconds": 40.0}, True),
        ({"span": 52.0, "seconds": 50.0}, {"span": 50.0, "seconds": 39.9}, False),
        ({"span": 52.0, "seconds": 50.0}, {"span": 50.0, "seconds": 56.0}, True),
        ({"span": 52.0, "seconds": 50.0}, {"span": 50.0, "seconds": 56.1}, False),
        ({"span": 1000.0, "seconds": 1000.0}, {"span": 1000.0, "seconds": 980.0}, True),
        ({"span": 60.0, "seconds": 60.0}, {"span": 0.0, "seconds": 58.5}, False),
        # The time in the queue is in the span from submission on.
        ({"span": 60.0, "seconds": 60.0, "clock": "submission"}, {"span": 60.0, "seconds": 30.0}, True),
        ({"span": 60.0, "seconds": 60.0}, {"span": 600.0, "seconds": 60.0, "clock": "submission"}, True),
    ],
)
def test_how_much_longer_than_its_program_a_job_may_be(native, virtual, fits):
    virtual = {"pair": 0, **virtual}
    # A run that ended before it began says nothing of the clock's rate, and hides no other run.
    runs = [placed("virtual", 2, scalar(5.0), span=-5.0), placed("native", 0, scalar(5.0), **native)]
    runs.append(placed("virtual", virtual.pop("pair"), scalar(5.1), **virtual))
    assert refused(runs, "node-clock")[0] == ([] if fits else [("virtual", runs[-1].pair)])


def test_whole_seconds_of_slurm_and_slower_jobs_are_honest():
    made = random.Random(3)
    runs = []
    for pair in range(20):
        for side, around in (("native", made.uniform(0, 3)), ("virtual", made.uniform(0, 5))):
            seconds = made.choice([0.1, 2.0, 60.0, 1800.0]) * made.gauss(1, 0.02)
            # Either end may be noted up to a second off, and submission may return after the start.
            span = max(seconds + around + made.uniform(-1, 2), 0.0)
            runs.append(placed(side, pair, scalar(5.0), seconds=seconds, span=span))
    assert refused(runs, "node-clock") == ([], [])


def test_what_a_job_does_around_its_program_natively_the_guests_may_do_as_well():
    """The first pair of a round runs its program again under a profiler, after the notes."""
    spans = {0: 200.0, 1: 60.0, 2: 60.0, 3: 60.0}
    runs = [
        placed(side, pair, scalar(5.0), span=span * (1.2 if side == "virtual" else 1), seconds=58.5)
        for pair, span in spans.items()
        for side in ("native", "virtual")
    ]
    assert refused(runs, "node-clock")[0] == [("virtual", 1), ("virtual", 2), ("virtual", 3)]
    queued = [run.model_copy(update={"clock": "submission"}) for run in runs]
    assert refused(queued, "node-clock")[0] == []
