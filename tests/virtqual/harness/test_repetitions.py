"""The number of times that a run starts its program."""

from types import SimpleNamespace

import pytest

from made_runs import session_of
from virtqual.harness import repetitions
from virtqual.harness.repetitions import MAX_STARTS, StartTime, choose_aim, count_for_clock, count_starts
from virtqual.runs import Answer, Result

HOUR_S = 3600


def start_times(*seconds, launch=0.1):
    return [StartTime(program, program + launch) for program in seconds]


@pytest.mark.parametrize(
    ("scale", "sides", "starts"),
    [
        # The faster side lasts 2 s or more, the slower one 6 s at most.
        ("small", (0.5, 0.6), 4),
        ("small", (0.6, 0.5), 4),
        ("small", (0.3, 0.3), 7),
        ("small", (0.3, 2.0), 3),
        # The slower side goes before, and no program is started less than once.
        ("small", (0.3, 4.0), 1),
        ("small", (0.3, 90.0), 1),
        ("small", (2.0, 2.0), 1),
        ("small", (1.99, 2.0), 2),
        ("small", (600.0, 620.0), 1),
        # Each start costs a launch.
        ("small", (0.01, 0.01), MAX_STARTS),
        ("small", (0.01, 0.5), 12),
        # 20 s, and 60 s.
        ("standard", (5.0, 5.2), 4),
        ("standard", (5.0, 25.0), 2),
        ("standard", (5.0, 60.0), 1),
        ("standard", (0.01, 0.01), MAX_STARTS),
        ("standard", (25.0, 26.0), 1),
        # One side alone was selected; or there was no warm-up.
        ("small", (0.5,), 4),
        ("small", (), 1),
    ],
)
def test_the_number_follows_the_rule(scale, sides, starts):
    assert count_starts(start_times(*sides), choose_aim(scale), HOUR_S) == starts


@pytest.mark.parametrize(("least", "starts"), [(0.0, 1), (1.0, 2), (6.0, 12)])
def test_a_system_file_may_state_the_time(least, starts):
    assert count_starts(start_times(0.5, 0.6), choose_aim("small", least), HOUR_S) == starts


@pytest.mark.parametrize(("limit", "starts"), [(600, 25), (60, 15), (8, 2), (1, 1)])
def test_repetitions_with_their_launches_take_half_of_the_time_limit_at_most(limit, starts):
    assert count_starts(start_times(0.05, 0.1, launch=1.9), choose_aim("small"), limit) == starts


@pytest.mark.parametrize(
    ("sides", "limit", "for_clock", "starts"),
    [
        ((0.5, 0.6), HOUR_S, 3, 4),
        ((0.5, 0.6), HOUR_S, 9, 9),
        # A coarse clock goes before the time of the slower side, but not before the time limit.
        ((20.0, 21.0), HOUR_S, 5, 5),
        ((20.0, 21.0), 100, 5, 2),
        ((0.5, 0.6), HOUR_S, 100, MAX_STARTS),
    ],
)
def test_a_coarse_clock_takes_as_many_starts_as_its_step_needs(sides, limit, for_clock, starts):
    assert count_starts(start_times(*sides), choose_aim("small"), limit, for_clock) == starts


@pytest.mark.parametrize(
    ("values", "starts"),
    [
        # The margin is 3 %: a step of 5 % needs five starts. Of values that are all equal the digits count.
        ((0.2, 0.21, 0.19, 0.2), 5),
        ((2.0, 2.0, 2.0, 2.0), 50),
        ((3000.0, 3000.0, 3000.0, 3000.0), 1),
        ((0.201, 0.202, 0.2, 0.2), 1),
        ((0.20174, 0.20174, 0.20392, 0.20158), 1),
        ((0.2,), 1),
        ((0.0, 0.2), 1),
    ],
)
def test_the_starts_of_the_warm_ups_show_the_step(values, starts):
    fine = Result.scalar("namd_elapsed", "water", 10.0)
    results = [
        (fine.model_copy(update={"values": (10 + n / 1000,)}), Result.scalar("lammps_loop_time", "lj", value))
        for n, value in enumerate(values)
    ]
    assert count_for_clock(results, "kvm") == starts
    assert count_for_clock(results, "") == 1


def test_the_sizes_of_a_curve_share_their_clock():
    curves = [
        (Result.curve("osu_latency", "two nodes", {1: 1.25, 2: 1.25, 4: last}),) for last in (1.26, 1.27)
    ]
    assert count_for_clock(curves, "kvm") == 1
    assert count_for_clock([], "kvm") == 1


def session(stack, starts, earlier):
    """Return a session whose runs started their programs so often, with the numbers of an earlier one."""
    head = session_of([], stack={"name": stack}, repetitions=earlier)
    runs = [SimpleNamespace(check=check, repetitions=count, answers=()) for check, count in starts.items()]
    return head.model_copy(update={"runs": runs})


def test_an_earlier_round_and_an_earlier_session_are_taken_over_by_stack(monkeypatch):
    monkeypatch.setattr(repetitions, "decided_starts", {})
    repetitions.take_over(session("first", {"stream": 4, "hpl": 1}, earlier={"lammps": 7}))
    repetitions.take_over(session("second", {"stream": 5}, earlier={"stream": 3}))
    cases = ("stream", "hpl", "lammps", "milc")
    assert [repetitions.decided_starts.get(("first", case)) for case in cases] == [4, 1, 7, None]
    # The number of the earlier session goes before.
    assert [repetitions.decided_starts.get(("second", case)) for case in ("stream", "hpl")] == [3, None]


def test_the_native_peak_of_an_earlier_session_goes_before_that_of_an_earlier_round(monkeypatch):
    monkeypatch.setattr(repetitions, "decided_peaks", {})
    peak = Answer(name=repetitions.NATIVE_PEAK, value=120.0, tolerance=1e-9)
    other = Answer(name="energy", value=7.0, tolerance=1e-9)
    runs = [SimpleNamespace(check=check, repetitions=1, answers=(other, peak)) for check in ("db", "web")]
    head = session("stack", {}, earlier={})
    repetitions.take_over(head.model_copy(update={"runs": runs, "peaks": {"web": 90.0}}))
    assert repetitions.decided_peaks == {("stack", "db"): 120, ("stack", "web"): 90}
