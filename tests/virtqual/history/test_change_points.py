"""Simulated histories, whose changes are known."""

from dataclasses import replace

import numpy as np
import pytest

from virtqual.history.change_points import DRIFT_ALPHA, STEP_ALPHA, History, find_changes

BUILDS, SESSIONS, METRICS, ERROR = 12, 3, 11, 0.014
BUILD = np.repeat(np.arange(BUILDS), SESSIONS)
ONE_BUILD = np.zeros(50, dtype=np.int64)


def make_history(rng, virtual=0.0, native=0.0, builds=BUILD, boots=0.0):
    """Return sessions with a standard error of 1.4 %, on a machine whose nights differ by 2 %."""
    count = len(builds)
    night = rng.normal(0, 0.02, count) + native
    log = virtual - native + rng.normal(0, ERROR, count) + rng.normal(0, boots, count)
    in_time = np.arange(count, dtype=np.int64)
    return History(builds, log, np.full(count, ERROR**2), night, night + log, in_time)


def draw(rng, *sides, metrics=METRICS, **noise):
    """Return the changes that are found in a new history."""
    return find_changes(make_history(rng, *sides, **noise), metrics)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.mark.parametrize("boots", [0.0, 0.01])
def test_steps_and_drifts_without_a_change_are_as_rare_as_promised(rng, boots):
    histories = [[draw(rng, boots=boots) for _ in range(METRICS)] for _ in range(150)]
    # Twice what is allowed would be 2 % of 150.
    assert sum(any(metric.steps for metric in history) for history in histories) <= 300 * STEP_ALPHA + 2
    assert sum(any(metric.drift for metric in history) for history in histories) <= 300 * DRIFT_ALPHA + 2


@pytest.mark.parametrize(
    ("builds", "sessions", "boots"), [(3, 1, 0.02), (5, 1, 0.02), (12, 1, 0.03), (4, 2, 0.03), (6, 3, 0.02)]
)
def test_short_histories_show_no_false_changes(rng, builds, sessions, boots):
    """The spread of boots is hardly known from few sessions."""
    builds = np.repeat(np.arange(builds), sessions)
    histories = [[draw(rng, builds=builds, boots=boots) for _ in range(METRICS)] for _ in range(200)]
    assert sum(any(metric.steps or metric.drift for metric in history) for history in histories) <= 5


@pytest.mark.parametrize("at", [2, 6, 9])
def test_an_early_or_late_step_is_laid_to_its_build(rng, at):
    right = 0
    for _ in range(100):
        steps = draw(rng, (at <= BUILD) * 0.05).steps
        right += [(BUILD[step.at], step.cause) for step in steps] == [(at, "build")]
    assert right >= 95


@pytest.mark.parametrize(("builds", "sessions", "boots"), [(12, 3, 0.0), (6, 3, 0.02), (4, 2, 0.02)])
def test_nine_of_ten_histories_show_the_least_step(rng, builds, sessions, boots):
    numbers = np.repeat(np.arange(builds), sessions)
    is_after = numbers >= builds // 2
    least = np.median([draw(rng, builds=numbers, boots=boots).least for _ in range(100)])

    def count_steps(size):
        return sum(bool(draw(rng, is_after * size, builds=numbers, boots=boots).steps) for _ in range(100))

    assert count_steps(least) >= 80
    assert count_steps(least / 2) <= 50


def test_the_error_of_a_size_is_its_own(rng):
    steps = [draw(rng, (BUILD >= 6) * 0.1).steps[0] for _ in range(50)]
    assert 0.85 <= np.mean([abs(step.size - 0.1) < 1.96 * step.error for step in steps]) <= 1
    assert all(step.first <= 18 <= step.last for step in steps)


def test_an_unsure_step_within_a_build_ends_within_it(rng):
    builds = np.repeat(np.arange(3), 6)
    virtual = 0.05 * (np.arange(len(builds)) >= 9) - 0.02 * (builds >= 1)
    steps = [step for _ in range(600) for step in draw(rng, virtual, builds=builds, metrics=1).steps]
    within = [step for step in steps if step.cause == "within"]
    assert len(within) > 100
    assert all(builds[step.first - 1] == builds[step.at] == builds[step.last] for step in within)


def test_a_machine_that_becomes_faster_as_a_whole_makes_no_step(rng):
    faster = -0.15 * (np.arange(len(BUILD)) >= 18)
    assert not any(draw(rng, faster, faster).steps for _ in range(50))


@pytest.mark.parametrize("since", [17, 18, 19], ids=["within a build", "between builds", "within the next"])
def test_a_step_of_the_native_side_alone_is_the_machines(rng, since):
    faster = -0.15 * (np.arange(len(BUILD)) >= since)
    histories = [draw(rng, 0.0, faster).steps for _ in range(50)]
    assert all(len(steps) == 1 for steps in histories)
    assert all(steps[0].cause != "build" for steps in histories)


def test_nights_that_differ_much_do_not_acquit_a_build(rng):
    """By chance the native side moves as the overhead does."""
    causes = []
    for _ in range(100):
        quiet = make_history(rng, (BUILD >= 6) * 0.15)
        night = rng.normal(0, 0.1, len(BUILD))
        loud = replace(quiet, native=night, virtual=night + quiet.log)
        causes += [step.cause for step in find_changes(loud, METRICS).steps]
    assert len(causes) >= 95
    assert causes.count("native") <= 1


def test_a_step_between_sessions_of_a_build_is_not_the_builds(rng):
    histories = [draw(rng, 0.15 * (np.arange(len(BUILD)) >= 19)).steps for _ in range(50)]
    assert all([(step.at, step.cause) for step in steps] == [(19, "within")] for steps in histories)


def test_a_drift_that_no_night_shows_is_noticed(rng):
    histories = [draw(rng, 0.001 * np.arange(50), builds=ONE_BUILD) for _ in range(50)]
    drifts = [changes.drift for changes in histories if changes.drift]
    # A few look more like one step between two nights: the machine's, too.
    assert sum(bool(changes.drift or changes.steps) for changes in histories) >= 48
    assert len(drifts) >= 45
    assert all(step.cause == "within" for changes in histories for step in changes.steps)
    assert not any(changes.steps for changes in histories if changes.drift)
    assert np.median([drift.rate for drift in drifts]) == pytest.approx(0.001, rel=0.4)


def test_years_of_one_build_show_a_step_at_its_night(rng):
    builds = np.zeros(200, dtype=np.int64)
    (step,) = draw(rng, 0.05 * (np.arange(200) >= 120), builds=builds).steps
    assert step.cause == "within"
    assert abs(step.at - 120) <= 2


def test_builds_of_one_session_each_are_judged_by_how_they_differ(rng):
    builds = np.arange(40)
    histories = [draw(rng, 0.1 * (builds >= 20), builds=builds) for _ in range(30)]
    assert sum([step.at for step in changes.steps] == [20] for changes in histories) >= 27


def test_two_sessions_show_no_step(rng):
    assert draw(rng, builds=np.array([0, 1])).steps == ()


def test_sessions_that_are_sure_weigh_more(rng):
    """Unsure sessions that are far off make no step."""
    plain = make_history(rng)
    log, variance = plain.log.copy(), plain.variance.copy()
    log[-3:] += 0.3
    variance[-3:] = 0.3**2
    assert find_changes(replace(plain, log=log, variance=variance), METRICS).steps == ()
    log[-3:] += 0.3
    assert len(find_changes(replace(plain, log=log), METRICS).steps) == 1
