"""Histories whose truth is known: what is found, and what is not."""

import numpy as np
import pytest

from virtqual.history.change_points import ALPHA, ALPHA_DRIFT, History, changes

BUILDS, SESSIONS, METRICS, ERROR = 12, 3, 11, 0.014
OF = np.repeat(np.arange(BUILDS), SESSIONS)


def history(rng, virtual, native=0.0, of=OF, boots=0.0):
    """Sessions of a standard error of 1.4 %, on a machine whose nights differ by 2 %."""
    count = len(of)
    night = rng.normal(0, 0.02, count) + native
    log = virtual - native + rng.normal(0, ERROR, count) + rng.normal(0, boots, count)
    order = np.arange(count, dtype=np.int64)
    return History(of, log, np.full(count, ERROR**2), night, night + log, order)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.mark.parametrize("boots", [0.0, 0.01])
def test_where_nothing_changed_nothing_is_found(rng, boots):
    many = 150
    found = [[changes(history(rng, 0.0, boots=boots), METRICS) for _ in range(METRICS)] for _ in range(many)]
    # Twice what is allowed would be 2 % of 150.
    assert sum(any(one.steps for one in each) for each in found) <= 150 * 2 * ALPHA + 2
    assert sum(any(one.drift for one in each) for each in found) <= 150 * 2 * ALPHA_DRIFT + 2


@pytest.mark.parametrize(
    ("builds", "sessions", "boots"), [(3, 1, 0.02), (5, 1, 0.02), (12, 1, 0.03), (4, 2, 0.03), (6, 3, 0.02)]
)
def test_nor_in_a_short_history(rng, builds, sessions, boots):
    """Of few sessions little is known of what boots vary by: it must not pass for knowledge."""
    of = np.repeat(np.arange(builds), sessions)
    found = [
        [changes(history(rng, 0.0, of=of, boots=boots), METRICS) for _ in range(METRICS)] for _ in range(200)
    ]
    assert sum(any(one.steps or one.drift for one in each) for each in found) <= 5


@pytest.mark.parametrize("at", [2, 6, 9])
def test_a_step_is_laid_to_its_build(rng, at):
    """Be it early or late, when it could be the begin of a drift."""
    right = 0
    for _ in range(100):
        (*steps,) = changes(history(rng, (at <= OF) * 0.05), METRICS).steps
        right += [(OF[step.at], step.cause) for step in steps] == [(at, "build")]
    assert right >= 95


@pytest.mark.parametrize(("builds", "sessions", "boots"), [(12, 3, 0.0), (6, 3, 0.02), (4, 2, 0.02)])
def test_nine_of_ten_show_the_least_step_that_it_says(rng, builds, sessions, boots):
    of = np.repeat(np.arange(builds), sessions)
    step = of >= builds // 2
    least = np.median([changes(history(rng, 0.0, of=of, boots=boots), METRICS).least for _ in range(100)])

    def shown(size):
        found = [changes(history(rng, step * size, of=of, boots=boots), METRICS) for _ in range(100)]
        return sum(bool(one.steps) for one in found)

    assert shown(least) >= 80
    assert shown(least / 2) <= 50


def test_its_size_is_told_with_its_error(rng):
    found = [changes(history(rng, (OF >= 6) * 0.1), METRICS).steps[0] for _ in range(50)]
    within = [abs(step.size - 0.1) < 1.96 * step.error for step in found]
    assert 0.85 <= np.mean(within) <= 1
    assert all(step.first <= 18 <= step.last for step in found)


def test_a_step_within_a_build_ends_within_it(rng):
    """However unsure its place is: it is told as one between two sessions of that build."""
    of = np.repeat(np.arange(3), 6)
    virtual = 0.05 * (np.arange(len(of)) >= 9) - 0.02 * (of >= 1)
    found = [step for _ in range(600) for step in changes(history(rng, virtual, of=of), 1).steps]
    within = [step for step in found if step.cause == "within"]
    assert len(within) > 100
    assert all(of[step.first - 1] == of[step.at] == of[step.last] for step in within)


def test_a_machine_that_becomes_faster_as_a_whole_makes_no_step(rng):
    faster = -0.15 * (np.arange(len(OF)) >= 18)
    assert not any(changes(history(rng, faster, faster), METRICS).steps for _ in range(50))


@pytest.mark.parametrize("since", [17, 18, 19], ids=["within a build", "between builds", "within the next"])
def test_the_native_side_alone_is_the_machines_matter(rng, since):
    faster = -0.15 * (np.arange(len(OF)) >= since)
    found = [changes(history(rng, 0.0, faster), METRICS).steps for _ in range(50)]
    assert all(len(steps) == 1 for steps in found)
    assert all(steps[0].cause != "build" for steps in found)


def test_nights_that_differ_much_make_no_step_the_machines_matter(rng):
    """By chance the native side moves as the overhead does: that acquits no build."""
    causes = []
    for _ in range(100):
        plain = history(rng, (OF >= 6) * 0.15)
        night = rng.normal(0, 0.1, len(OF))
        loud = History(OF, plain.log, plain.variance, night, night + plain.log, plain.order)
        causes += [step.cause for step in changes(loud, METRICS).steps]
    assert len(causes) >= 95
    assert causes.count("native") <= 1


def test_between_sessions_of_a_build_it_is_no_builds_matter(rng):
    slower = 0.15 * (np.arange(len(OF)) >= 19)
    found = [changes(history(rng, slower), METRICS).steps for _ in range(50)]
    assert all([step.cause for step in steps] == ["within"] for steps in found)
    assert all(steps[0].at == 19 for steps in found)


def test_a_drift_that_no_night_shows_is_noticed(rng):
    nights = np.arange(50)
    of = np.zeros(50, dtype=np.int64)
    found = [changes(history(rng, 0.001 * nights, of=of), METRICS) for _ in range(50)]
    drifts = [one.drift for one in found if one.drift]
    # A few look more like one step between two nights: the machine's, too.
    assert sum(bool(one.drift or one.steps) for one in found) >= 48
    assert len(drifts) >= 45
    assert all(step.cause == "within" for one in found for step in one.steps)
    assert not any(one.steps for one in found if one.drift)
    assert np.median([one.rate for one in drifts]) == pytest.approx(0.001, rel=0.4)


def test_years_of_one_build_show_a_step_at_its_night(rng):
    of = np.zeros(200, dtype=np.int64)
    (step,) = changes(history(rng, 0.05 * (np.arange(200) >= 120), of=of), METRICS).steps
    assert step.cause == "within"
    assert abs(step.at - 120) <= 2


def test_builds_of_one_session_each_are_judged_by_how_they_differ(rng):
    of = np.arange(40)
    found = [changes(history(rng, 0.1 * (of >= 20), of=of), METRICS) for _ in range(30)]
    assert sum([step.at for step in one.steps] == [20] for one in found) >= 27
    assert all(one.df > 0 for one in found)


def test_of_two_sessions_nothing_is_said(rng):
    assert changes(history(rng, 0.0, of=np.array([0, 1])), METRICS).steps == ()


def test_sessions_that_are_sure_weigh_more(rng):
    """One session that is hardly known, far off, makes no step."""
    plain = history(rng, 0.0)
    log, variance = plain.log.copy(), plain.variance.copy()
    log[-3:] += 0.3
    variance[-3:] = 0.3**2
    off = History(plain.builds, log, variance, plain.native, plain.virtual, plain.order)
    assert changes(off, METRICS).steps == ()
    log[-3:] += 0.3
    sure = History(plain.builds, log, plain.variance, plain.native, plain.virtual, plain.order)
    assert len(changes(sure, METRICS).steps) == 1
