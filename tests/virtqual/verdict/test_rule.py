"""What the decision rule must do, whatever was measured; its error rates are in benchmarks/decision."""

import math

import numpy as np
import pytest
from made_series import counts
from scipy import stats

from virtqual.verdict.estimate import Noise, append_mean, pulled_in
from virtqual.verdict.outcome import Outcome
from virtqual.verdict.overhead import change, overhead
from virtqual.verdict.places import host_effects, recognise
from virtqual.verdict.rule import LOOKS, Batch, BatchState, Cause, decide, judge
from virtqual.verdict.slow_runs import SLOW_ALPHA, slowness

LIMIT, MARGIN = math.log(1.05), math.log(1.08 / 1.05)
WITHIN, OVER, UNDECIDED, INVALID = (
    outcome.code for outcome in (Outcome.WITHIN, Outcome.OVER, Outcome.UNDECIDED, Outcome.INVALID)
)


def batch(d: object, sigma: float = 0.01, **more: object) -> Batch:
    """Return a session with the differences `d`, shape (n_series, n_pairs) or (n_pairs,)."""
    d = np.atleast_2d(np.asarray(d, dtype=float))[None, ..., None]
    noise = more.pop("noise", Noise([sigma]))
    return Batch(np.zeros_like(d), d, LIMIT, MARGIN, noise, **more)


def judged(d: object, **more: object) -> BatchState:
    return judge([batch(d, **more)])[0]


def outcomes(d: object, **more: object) -> list[int]:
    return judged(d, **more).outcome.tolist()


def wobble(pairs: int, sd: float, mean: float = 0.0) -> np.ndarray:
    """Return differences whose mean and spread are exactly these, over any even number of first pairs."""
    return mean + sd * np.resize([1.0, -1.0], pairs)


# --- WITHIN, OVER and what is neither -----------------------------------------------------------------------


STEADY, SPIKED = wobble(18, 0.004, math.log(1.07)), wobble(18, 0.005)
SPIKED[[2, 9]] += math.log(4)


@pytest.mark.parametrize(
    ("d", "sigma", "expected"),
    [
        (STEADY, 0.03, OVER),  # although the stated noise is large
        (STEADY[:4], 0.03, UNDECIDED),
        (SPIKED, 0.01, UNDECIDED),  # slow runs alone do not convict
        (wobble(4, 0.01, -0.05), 0.01, WITHIN),
        *((wobble(4, 0.01, -math.log(factor)), 0.01, INVALID) for factor in (1.5, 10, 1000)),  # too good
    ],
)
def test_answers(d: np.ndarray, sigma: float, expected: int) -> None:
    result = judged(d, sigma=sigma)
    assert result.outcome.tolist() == [expected]
    assert (result.cause[0] == Cause.TOO_GOOD) == (expected == INVALID)


def test_one_slow_virtual_run_is_never_pulled_in_to_acquit_and_a_native_one_never_helps() -> None:
    quiet = wobble(4, 0.005)
    virtual, native = quiet.copy(), quiet.copy()
    virtual[2] += math.log(2)
    native[2] -= math.log(2)
    assert outcomes([virtual, native, quiet]) == [UNDECIDED, WITHIN, WITHIN]
    high, low = (
        pulled_in(x[:, None], [0.01], np.zeros(4, dtype=np.int64), high=False) for x in (virtual, native)
    )
    assert high.max() == virtual.max()
    assert low.min() > -0.05


def test_batches_of_a_session_share_its_error_rate() -> None:
    # At the level of one series this one is just over; beside forty that are flagged, too, it is not.
    border = wobble(18, 0.02, LIMIT + 0.0205)
    assert outcomes(border, sigma=0.02) == [OVER]
    others = batch(np.stack([wobble(18, 0.02, LIMIT + 0.012)] * 40), sigma=0.02)
    first, _ = judge([batch(border, sigma=0.02), others])
    assert first.outcome[0] != OVER
    with pytest.raises(ValueError, match="same sessions"):
        judge([batch(border), Batch(*[np.zeros((2, 1, 4, 1))] * 2, LIMIT, MARGIN, Noise([0.01]))])


def drive(batch_: Batch) -> BatchState:
    """Stop every series at its first answer, as a session does."""
    state = BatchState(batch_)
    for index in range(len(LOOKS)):
        decide([state], index)
        state.running &= state.outcome == UNDECIDED
    return state


def test_driving_stops_where_judging_the_same_pairs_would() -> None:
    rng = np.random.default_rng(3)
    d = rng.normal(LIMIT, 0.02, (1, 60, 18))
    driven = drive(batch(d[0], sigma=0.02))
    for pairs in LOOKS:
        here = driven.used == pairs
        if here.any():
            again = judged(d[0, :, :pairs], sigma=0.02).outcome
            passed = here & (driven.outcome == WITHIN)
            assert np.all(again[passed] == WITHIN)


def test_no_more_false_alarms_than_promised() -> None:
    rng = np.random.default_rng(5)
    d = rng.standard_t(3, (3000, 11, 18, 1)) * 0.0115 + LIMIT
    result = drive(Batch(np.zeros_like(d), d, LIMIT, MARGIN, Noise([0.02])))
    alarms = int(np.any(result.outcome.reshape(result.shape) == OVER, axis=1).sum())
    assert stats.beta.ppf(0.95, alarms + 1, 3000 - alarms) <= 0.01


# --- places -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("native", "virtual", "kind"),
    [
        ("aaaa", "aaaa", "together"),
        ("abab", "abab", "together"),
        ("aabb", "bbaa", "exchanged"),
        ("aaaa", "bbbb", "fixed"),
        ("abcabc", "xyzyzx", "rotated"),
        ("abab", "xyyx", "rotated"),
        ("aabb", "xyxy", "fixed"),
        ("aabc", "bbaa", "fixed"),
    ],
)
def test_roles_are_recognised(native: str, virtual: str, kind: str) -> None:
    places = recognise(list(native), list(virtual))
    assert places.kind == kind
    assert places.confounded == (kind in ("fixed", "rotated"))
    assert not recognise(list(native), list(virtual), bound=0.01).confounded


def test_an_exchange_cancels_hosts_and_names_them() -> None:
    roles = "aabbaabbaabb"
    places = recognise(list(roles), list("bbaabbaabbaa"))
    slower = np.array([0.16 if host == "a" else 0.0 for host in roles])
    native, virtual = slower, 0.16 - slower + 0.03 + wobble(12, 0.001)
    estimate = overhead(native[:, None], virtual[:, None], places, Noise([0.01]), convict=True)
    assert estimate is not None
    assert estimate.mean[0] == pytest.approx(0.03, abs=1e-9)
    assert estimate.spread[0] < 0.002
    effects = host_effects(virtual - native, places)
    assert effects[0] - effects[1] == pytest.approx(0.16, abs=1e-9)
    one_way = overhead(native[:2, None], virtual[:2, None], places.first(2), Noise([0.01]), convict=True)
    assert one_way is None


def test_a_batch_refuses_missing_places_and_values() -> None:
    with pytest.raises(ValueError, match="8 pairs, places of 4"):
        batch(wobble(8, 0.002), places=recognise(["a"] * 4, ["b"] * 4))
    with pytest.raises(ValueError, match="no number"):
        batch([0.0, 0.1, math.nan, 0.0])


def test_a_rotation_is_judged_on_its_hosts() -> None:
    rng = np.random.default_rng(2)
    k, rounds = 8, 4
    one, turn = np.tile(np.arange(k), rounds), np.repeat(np.arange(rounds), k)
    other = (one + turn) % k
    n, v = rng.normal(0, 0.02, (2, k))
    places = recognise([f"n{i}" for i in one], [f"v{j}" for j in other])
    estimate = overhead(n[one, None], v[other, None] + 0.01, places, Noise([0.01]), convict=False)
    assert estimate is not None
    welch = stats.ttest_ind(v + 0.01, n, equal_var=False)
    assert estimate.mean[0] / math.sqrt(estimate.variance[0]) == pytest.approx(welch.statistic, rel=1e-6)
    assert estimate.df[0] == pytest.approx(welch.df, rel=1e-6)


def test_boots_count_as_boots() -> None:
    d = wobble(18, 0.001)[:, None]
    noise = Noise([0.001], between=0.02)
    for boots in (1, 3):
        here = [""] * 18
        places = recognise(here, here, [str(i % boots) for i in range(18)])
        estimate = overhead(np.zeros_like(d), d, places, noise, convict=False)
        assert estimate is not None
        assert estimate.variance[0] == pytest.approx(0.02**2 / boots, rel=0.01)
    own = recognise(here, here, [str(i) for i in range(18)])
    estimate = overhead(np.zeros_like(d), d, own, noise, convict=False)
    assert estimate is not None
    assert estimate.variance[0] < 1e-5


# --- against an earlier session -----------------------------------------------------------------------------


def test_more_pairs_are_run_if_a_change_might_be_over_despite_few_earlier_ones() -> None:
    before = wobble(4, 0.02)[None, None, :, None]
    assert outcomes(wobble(4, 0.02, 0.08), sigma=0.03, earlier=(np.zeros_like(before), before)) == [UNDECIDED]


def test_rotations_of_the_same_hosts_cancel_in_any_order_and_exchanged_hosts_do_not() -> None:
    turned = recognise(list("abab"), list("xyyx")), recognise(list("abab"), list("yxxy"))
    assert turned[0].cancels(turned[1])
    assert not recognise(list("aabb"), list("xxyy")).cancels(recognise(list("aabb"), list("yyxx")))


@pytest.mark.parametrize("roles", [("aabb", "bbaa"), ("abcabc", "xyzyzx"), ("aaaa", "aaaa")])
def test_a_change_is_the_difference_of_two_overheads(roles: tuple[str, str]) -> None:
    rng = np.random.default_rng(6)
    other = recognise(*([f"other {name}" for name in side] for side in roles))
    places, noise = recognise(*map(list, roles)), Noise([0.02])
    now, before = (tuple(rng.normal(0, 0.02, (2, len(roles[0]), 1))) for _ in range(2))
    estimate = change(now, places, before, other, noise, convict=True)
    first = overhead(*now, places, noise, convict=True)
    second = overhead(*before, other, noise, convict=True)
    assert estimate is not None
    assert first is not None
    assert second is not None
    assert estimate.mean[0] == pytest.approx(first.mean[0] - second.mean[0])
    assert estimate.variance[0] == pytest.approx(first.variance[0] + second.variance[0])


def test_a_history_that_both_sessions_share_counts_once() -> None:
    d, places = wobble(12, 0.01)[:, None], recognise([""] * 12, [""] * 12)
    sessions = (np.zeros_like(d), d)
    estimate = change(sessions, places, sessions, places, Noise([0.01], df=6), convict=False)
    assert estimate is not None
    assert 6 + 11 < estimate.df[0] < 6 + 11 + 11


# --- slow runs ----------------------------------------------------------------------------------------------


def test_slow_runs_are_counted_by_side_and_tested_exactly() -> None:
    runs = np.zeros(20)
    assert not slowness(runs + math.log(3), 0.02).any()  # a steady overhead is none
    runs[[3, 7, 11, 15]] = math.log(1.9)
    assert np.count_nonzero(slowness(runs, 0.02)) == 4
    assert not slowness(runs, 0.4).any()  # where such runs are everyday noise
    nine = counts(9, 132, 0)
    table = [[9, 123], [0, 132]]
    assert nine.p == pytest.approx(stats.fisher_exact(table, alternative="greater").pvalue)
    assert nine.p <= SLOW_ALPHA
    assert counts(8, 132, 0).p > SLOW_ALPHA
    assert counts(30, 132, 30).p > SLOW_ALPHA
    assert (counts(5, 44, 0) + counts(5, 88, 0)).p <= SLOW_ALPHA


def test_the_whole_curve_is_a_column() -> None:
    assert append_mean(np.array([[1.0, 2.0, 6.0]])).tolist() == [[1.0, 2.0, 6.0, 3.0]]
    assert append_mean(np.array([[1.0]])).tolist() == [[1.0]]
