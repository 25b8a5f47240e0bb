"""What the decision rule must do, whatever was measured; its error rates are in benchmarks/decision."""

import math
from dataclasses import astuple, replace

import numpy as np
import pytest
from made_series import counts
from scipy import stats

from virtqual.verdict.estimate import MIN_PAIR_SIGMA, Noise, append_mean, median, moderate, pulled_in
from virtqual.verdict.outcome import Outcome
from virtqual.verdict.overhead import Runs, estimate_change, estimate_overhead
from virtqual.verdict.pairs import SIDES, Pair, Sample
from virtqual.verdict.places import Places, places_of, recognise
from virtqual.verdict.rule import ALPHA, BETA, LOOKS, MIN_BOOTS, Batch, RuleAnswer, Ruling, judge
from virtqual.verdict.slow_runs import NO_SLOW_RUNS, SLOW_ALPHA, slowness

LIMIT, MARGIN = math.log(1.05), math.log(1.08 / 1.05)
WITHIN, OVER, UNDECIDED, INVALID = Outcome.WITHIN, Outcome.OVER, Outcome.UNDECIDED, Outcome.INVALID


def runs(d: np.ndarray, places: Places | None = None) -> Runs:
    """Return runs with the differences `d`, shape (..., n_pairs, n_columns)."""
    here = [""] * d.shape[-2]
    return Runs(np.stack([np.zeros_like(d), d], axis=-3), places or recognise(here, here))


def batch(d: object, sigma: float = 0.01, places: Places | None = None, **more: object) -> Batch:
    """Return a session with the differences `d`, shape (n_series, n_pairs) or (n_pairs,)."""
    d = np.atleast_2d(np.asarray(d, dtype=float))[..., None]
    return Batch(runs(d, places), LIMIT, MARGIN, Noise(np.array([sigma])), **more)


def judged(d: object, *, stop: bool = False, min_pairs: int = 0, min_boots: int = 1, **more: object) -> Batch:
    made = batch(d, **more)
    judge([made], stop=stop, min_pairs=min_pairs, min_boots=min_boots)
    return made


def outcomes(d: object, **more: object) -> list[Outcome]:
    return outcomes_of(judged(d, **more))


def outcomes_of(made: Batch) -> list[Outcome]:
    return [Ruling(ruling).outcome for ruling in made.ruling]


def next_pairs(made: Batch) -> list[int | None]:
    return [answer.next_pairs for answer in made.answers(LOOKS)]


def wobble(pairs: int, sd: float, mean: float = 0.0) -> np.ndarray:
    """Return differences whose mean and spread are exactly these, over any even number of first pairs."""
    return mean + sd * np.resize([1.0, -1.0], pairs)


# --- WITHIN, OVER and what is neither -----------------------------------------------------------------------


#: The largest variance of a history that a sum of squares allows, as a multiple of it, by degrees of freedom.
QUIET = {df: 1 / (df * stats.f.ppf(0.001, df, 6)) for df in (3, 7)}
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
    assert outcomes_of(result) == [expected]
    assert (result.ruling[0] == Ruling.TOO_GOOD) == (expected is INVALID)


@pytest.mark.parametrize("min_pairs", [0, 4])
@pytest.mark.parametrize("sd", [0.0002, 0.001, 0.002, 0.004])
@pytest.mark.parametrize("excess", [0.01, 0.02, 0.029])
def test_an_interval_above_the_budget_is_over_however_quiet_the_machine(
    excess: float, sd: float, min_pairs: int
) -> None:
    """Between budget and budget + margin, noise as recorded; nothing is WITHIN on the way to OVER."""
    d = wobble(18, sd, math.log(1.05 + excess))
    assert outcomes(d, sigma=max(sd, MIN_PAIR_SIGMA), min_pairs=min_pairs) == [OVER]
    if sd <= 0.002:
        for pairs in (2, 4, 6, 8):
            made = judged(d[:pairs], sigma=max(sd, MIN_PAIR_SIGMA), min_pairs=min_pairs)
            assert outcomes_of(made) == [OVER if pairs >= 4 else UNDECIDED]


def test_an_interval_above_the_budget_goes_on_if_fresh_pairs_are_needed() -> None:
    """Flagged at four pairs by an interval that lies above the budget; the next four pairs convict it."""
    d = wobble(8, 0.002, math.log(1.07))
    d[:2] -= 0.03
    assert next_pairs(judged(d[:4], sigma=0.002)) != [None]
    assert outcomes(d, sigma=0.002) != [WITHIN]


def test_a_quiet_session_outweighs_a_stated_noise() -> None:
    """With 3 % stated and 0.2 % observed, eight pairs decide what took sixteen."""
    made = judged(wobble(18, 0.002, math.log(1.07)), sigma=0.03, stop=True)
    assert (outcomes_of(made), made.used.tolist()) == ([OVER], [8])


def test_one_slow_virtual_run_is_never_pulled_in_to_acquit_and_a_native_one_never_helps() -> None:
    quiet = wobble(4, 0.005)
    virtual, native = quiet.copy(), quiet.copy()
    virtual[2] += math.log(2)
    native[2] -= math.log(2)
    assert outcomes([virtual, native, quiet]) == [UNDECIDED, WITHIN, WITHIN]
    high, low = (
        pulled_in(x[:, None], np.array([0.01]), np.zeros(4, dtype=np.int64), high=False)
        for x in (virtual, native)
    )
    assert high.max() == virtual.max()
    assert low.min() > -0.05


@pytest.mark.parametrize("pairs", range(1, 10))
def test_the_median_is_numpys(pairs: int) -> None:
    values = np.random.default_rng(pairs).normal(size=(3, pairs, 2))
    assert median(values, axis=-2) == pytest.approx(np.median(values, axis=-2, keepdims=True))


def test_outliers_are_pulled_in_to_what_noise_explains_around_their_own_hosts() -> None:
    """Two of twelve pairs are a sixth; in the second column a third one is far away, too."""
    near = [0.99, 0.99, 1.0, 1.0, 1.01]
    d = np.array([[*near, 1.5, *(-value for value in near), -1.5]] * 2).T
    d[0, 1] = 0.5
    low, high = (
        pulled_in(d, np.array([0.02, 0.001]), np.repeat([0, 1], 6), high=convict) for convict in (False, True)
    )
    expected = d.copy()
    # 2.5 times the known noise, or the observed noise where it is more.
    expected[11] = -1.05, -1 - 2.5 * 1.4826 * 0.01
    expected[0, 1] = 1 - 2.5 * 1.4826 * 0.01
    assert low == pytest.approx(expected)
    expected[5, 0], expected[:, 1] = 1.05, d[:, 1]
    assert high == pytest.approx(expected)


@pytest.mark.parametrize(
    ("squares", "df", "known_df", "variance", "convicting", "weight"),
    [
        (0.0010, 3, 20, (6 * 4e-4 + 0.0010) / 9, (6 * 4e-4 + 0.0010) / 9, 9),
        # A calmer history does not help to convict.
        (0.0030, 3, 20, (6 * 4e-4 + 0.0030) / 9, 0.0030 / 3, 9),
        (0.0030, 3, 2, (2 * 4e-4 + 0.0030) / 5, 0.0030 / 3, 5),
        # Four times what is known is a contradiction.
        (0.0048, 3, 20, 0.0048 / 3, 0.0048 / 3, 3),
        (0.0010, 1, 20, (6 * 4e-4 + 0.0010) / 7, 0.0010, 7),
        # A history that is far noisier counts with the largest noise that the session allows.
        (1e-6, 7, 20, (6 * QUIET[7] * 1e-6 + 1e-6) / 13, (6 * QUIET[7] * 1e-6 + 1e-6) / 13, 13),
        (1e-6, 3, 20, (6 * QUIET[3] * 1e-6 + 1e-6) / 9, (6 * QUIET[3] * 1e-6 + 1e-6) / 9, 9),
        # Equal values show a limit, and not how quiet the machine is.
        (0.0, 7, 20, (6 * 4e-4 + 7e-8) / 13, (6 * 4e-4 + 7e-8) / 13, 13),
        (0.0000, 0, 20, 4e-4, 4e-4, 6),
    ],
)
def test_known_and_observed_noise_are_weighted_by_their_degrees_of_freedom(
    squares: float, df: int, known_df: float, variance: float, convicting: float, weight: float
) -> None:
    noise = Noise(np.array([0.02]), df=known_df)
    for convict, expected in ((False, variance), (True, convicting)):
        found, found_df = moderate(np.array([squares]), df, noise, convict=convict)
        assert (found[0], found_df[0]) == (pytest.approx(expected), weight)


def test_a_series_that_stops_has_the_answer_of_the_pairs_that_it_used() -> None:
    d = np.random.default_rng(3).normal(LIMIT, 0.02, (60, 18))
    stopped = judged(d, sigma=0.02, stop=True)
    assert {*np.unique(stopped.used)} <= {*LOOKS}
    for pairs in LOOKS:
        passed = (stopped.used == pairs) & (stopped.ruling == Ruling.WITHIN)
        assert np.all(judged(d[:, :pairs], sigma=0.02).ruling[passed] == Ruling.WITHIN)


def test_a_series_stops_at_its_first_answer_and_not_before() -> None:
    quiet, open_at_first = wobble(18, 0.004), wobble(18, 0.02, 0.06)
    assert judged([quiet, open_at_first], stop=True).used.tolist() == [2, 18]
    assert judged([quiet, open_at_first]).used.tolist() == [18, 18]


@pytest.mark.parametrize("pairs", [3, 5, 20])
def test_pairs_between_and_beyond_the_looks_count(pairs: int) -> None:
    assert judged(wobble(pairs, 0.01)).used.tolist() == [pairs]


def test_one_pair_after_the_flag_convicts_nothing() -> None:
    """The thirteenth pair is far above, and those that flagged the series do not count."""
    d = wobble(13, 0.01, 0.04)
    d[8:12] += 0.12
    d[12] = 1.0
    made = judged(d)
    assert (made.flagged.tolist(), made.start.tolist(), outcomes_of(made)) == ([12], [0], [UNDECIDED])


def test_no_more_false_alarms_than_promised() -> None:
    d = np.random.default_rng(5).standard_t(3, (3000, 11, 18, 1)) * 0.0115 + LIMIT
    sessions = Batch(runs(d), LIMIT, MARGIN, Noise(np.array([0.02])), np.arange(3000)[:, None])
    judge([sessions], stop=True)
    alarms = int(np.any(sessions.ruling == Ruling.OVER, axis=1).sum())
    assert stats.beta.ppf(0.95, alarms + 1, 3000 - alarms) <= 0.01


def test_two_pairs_may_only_acquit_and_only_if_the_noise_is_known_and_no_more_are_asked_for() -> None:
    clean, slow = wobble(2, 0.01), wobble(2, 0.01, math.log(2))
    assert outcomes([clean, slow]) == [WITHIN, UNDECIDED]
    assert outcomes(clean, sigma=0.04) == [UNDECIDED]
    few = judged([clean, slow], min_pairs=4)
    assert outcomes_of(few) == [UNDECIDED, UNDECIDED]
    assert next_pairs(few) == [4, 4]
    assert few.flagged.tolist() == [0, 2]
    assert outcomes(wobble(4, 0.01, math.log(2))) == [OVER]


def test_a_series_is_not_over_by_fewer_boots_than_can_be_had() -> None:
    host, d = [""] * 8, wobble(8, 0.01, math.log(1.2))
    for boots in (1, 2, 3, 4):
        places = recognise(host, host, [str(pair * boots // 8) for pair in range(8)])
        result = judged(d, places=places, min_boots=MIN_BOOTS)
        is_over = boots >= MIN_BOOTS
        assert result.ruling.tolist() == [Ruling.OVER if is_over else Ruling.BOOTS]
        assert next_pairs(result) == [None if is_over else 12]


def test_a_series_gets_no_more_pairs_if_none_would_decide() -> None:
    """Each for itself: the first may still pass, and the last be over, in spite of the noise."""
    made = judged([wobble(12, 0.3, math.log(factor)) for factor in (1, 1.065, 1.14)], sigma=0.3)
    assert made.ruling.tolist() == [Ruling.OPEN, Ruling.NOISE, Ruling.OPEN]
    assert next_pairs(made) == [18, None, 18]
    # Four pairs do not say so yet.
    assert next_pairs(judged(wobble(4, 0.3, math.log(1.065)), sigma=0.3)) == [8]


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("pairs", [1, 4, 12, 18])
@pytest.mark.parametrize("against", [None, 4])
def test_curves_that_are_judged_together_have_the_answers_of_each_alone(
    against: int | None, pairs: int, *, stop: bool
) -> None:
    """They are quiet, noisy, flagged at other looks, disturbed, and clocked so that nothing bounds them."""
    late, disturbed = wobble(18, 0.004), wobble(18, 0.006)
    late[5:] += math.log(1.2)
    disturbed[3] -= math.log(2)
    steady = [wobble(18, sd, mean) for sd, mean in ((0.004, 0.0), (0.004, 0.2), (0.3, 0.065), (0.02, 0.06))]
    low = wobble(18, 0.05, 0.03)
    d = np.stack([*steady, late, disturbed, low, wobble(18, 0.004), wobble(18, 0.02, 0.1)])
    d = append_mean(d[:, :pairs, None] * [1.0, 0.5])
    noise, bias = Noise(np.array([0.01])), np.zeros((len(d), 1))
    bias[-2] = np.inf

    def answer(rows: slice) -> list[RuleAnswer]:
        part = d[rows]
        before = None if against is None else runs(append_mean(np.resize(wobble(4, 0.01), (len(part), 4, 2))))
        session = np.arange(len(part))
        made = Batch(runs(part), LIMIT, MARGIN, noise, session, before, max_margin=0.1, bias=bias[rows])
        judge([made], stop=stop)
        return made.answers(LOOKS)

    for index, together in enumerate(answer(slice(None))):
        (alone,) = answer(slice(index, index + 1))
        for part, own in zip(astuple(together), astuple(alone), strict=True):
            np.testing.assert_equal(part, own)


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_the_bounds_are_those_by_which_the_answer_was_found(level: float) -> None:
    """The mean and the bounds of WITHIN pull in slow native runs, that of OVER slow virtual ones, too."""
    d = level + append_mean(np.stack([wobble(8, 0.01), wobble(8, 0.02)], axis=-1)[None])
    d[0, 1] -= math.log(2)
    d[0, 6] += math.log(2)
    made = Batch(runs(d), LIMIT, MARGIN, noise := Noise(np.array([0.02])))
    judge([made])
    (answer,) = made.answers(LOOKS)
    acquitting = estimate_overhead(runs(d[0]), noise, convict=False)
    assert acquitting is not None
    mean, low, high = answer.bounds.T
    assert mean == pytest.approx(acquitting.mean)
    assert high == pytest.approx(mean + acquitting.reach(BETA / len(LOOKS)))
    if not level:
        assert low == pytest.approx(mean - acquitting.reach(BETA / len(LOOKS)))
        return
    assert answer.ruling is Ruling.OVER
    fresh = estimate_overhead(runs(d[0, : answer.used]), noise, convict=True, start=int(made.start[0]))
    assert fresh is not None
    assert low == pytest.approx(np.minimum(fresh.mean - fresh.reach(made.level[0]), mean))


def test_measuring_again_spends_what_is_left_of_the_error_rate_of_within() -> None:
    """All sessions together keep the 5 % that is promised, however many there are."""
    d, numbers = wobble(4, 0.01, 0.058), np.array([1, 2, 10])
    made = judged(np.tile(d, (3, 1)), attempt=numbers)
    assert outcomes_of(made) == [WITHIN, UNDECIDED, UNDECIDED]
    estimate = estimate_overhead(runs(d[:, None]), Noise(np.array([0.01])), convict=False)
    assert estimate is not None
    upper = [answer.bounds[0, 2] for answer in made.answers(LOOKS)]
    levels = BETA / len(LOOKS) / numbers**2
    assert upper == pytest.approx((estimate.mean + estimate.reach(levels)).tolist())
    assert sum(BETA / n**2 for n in range(1, 10_000)) < 0.05
    # A clean build passes, and needs no more pairs.
    assert outcomes(np.tile(wobble(4, 0.01), (3, 1)), attempt=numbers) == [WITHIN] * 3


def test_measuring_again_makes_nothing_harder_but_a_pass() -> None:
    too_good = judged(wobble(4, 0.01, -math.log(1.15)), attempt=10)
    assert too_good.ruling.tolist() == [Ruling.TOO_GOOD]
    assert outcomes(STEADY, sigma=0.03, attempt=10) == [OVER]


def test_nothing_bounds_a_series_before_the_first_look() -> None:
    (answer,) = judged([0.1]).answers(LOOKS)
    assert answer.bounds[0, 1:].tolist() == [-math.inf, math.inf]


def test_the_error_rate_of_a_curve_is_divided_among_its_sizes() -> None:
    quiet = append_mean(np.resize(wobble(4, 0.01), (1, 7, 4)).swapaxes(1, 2))
    made = Batch(runs(quiet), LIMIT, MARGIN, Noise(np.array([0.01])))
    judge([made])
    assert made.level.tolist() == [ALPHA / len(LOOKS) / 8]


def test_a_single_look_and_a_rotation_convict_by_all_pairs() -> None:
    host = [""] * 4
    made = batch(wobble(4, 0.01, 0.2), places=recognise(host, host))
    judge([made], looks=(4,))
    assert (made.ruling.tolist(), made.start.tolist()) == ([Ruling.OVER], [0])
    (answer,) = made.answers((4,))
    fresh = estimate_overhead(made.runs, Noise(np.array([[0.01]])), convict=True)
    assert fresh is not None
    assert answer.bounds[0, 1] == pytest.approx((fresh.mean - fresh.reach(ALPHA))[0, 0])
    rotated = batch(wobble(8, 0.01), places=recognise(list("abcd") * 2, list("wxyzxwzy")))
    assert (rotated.shares, made.shares) == (True, False)


def test_a_bias_widens_both_ends() -> None:
    d = wobble(18, 0.004)
    assert outcomes([d + math.log(1.03), d + math.log(1.07)], bias=0.0) == [WITHIN, OVER]
    assert outcomes([d + math.log(1.03), d + math.log(1.07)], bias=0.05) == [UNDECIDED, UNDECIDED]


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
        ("abab", "bcbc", "fixed"),
        ("abab", "xyzx", "fixed"),
        ("abab", "xyxx", "fixed"),
        # The last round is not whole.
        ("ababa", "xyyxx", "rotated"),
    ],
)
def test_roles_are_recognised(native: str, virtual: str, kind: str) -> None:
    places = recognise(list(native), list(virtual))
    assert places.kind == kind
    assert places.confounded == (kind in ("fixed", "rotated"))
    assert not recognise(list(native), list(virtual), bound=0.01).confounded


@pytest.mark.parametrize(
    ("native", "virtual", "bias", "unknown", "cells"),
    [
        ("aaaa", "aaaa", 0.0, 0.0, [0, 0, 0, 0]),
        ("abab", "abab", 0.0, 0.0, [0, 0, 0, 0]),
        ("abba", "baab", 0.0, 0.0, [0, 1, 1, 0]),
        ("aabb", "xxyy", 0.01, math.inf, [0, 0, 1, 1]),
        ("abab", "xyyx", 0.01, 0.0, [0, 3, 1, 2]),
    ],
)
def test_what_roles_leave_to_hosts(
    native: str, virtual: str, bias: float, unknown: float, cells: list[int]
) -> None:
    bounded, places = (recognise(list(native), list(virtual), bound=bound) for bound in (0.01, math.inf))
    assert (bounded.bias, places.bias) == (bias, unknown)
    assert places.cells().tolist() == cells


@pytest.mark.parametrize(
    ("nodes", "hosts", "kind", "native"),
    [
        (("abba", "baab"), ("", ""), "exchanged", "abba"),
        (("abab", "xyyx"), ("", ""), "rotated", "abab"),
        (("aaaa", "xxxx"), ("", ""), "together", ""),
        (("aaaa", "xxxx"), ("cccc", ""), "together", ""),
        (("aaaa", "xxxx"), ("cccc", "dddd"), "fixed", "cccc"),
    ],
)
def test_nodes_stand_for_hosts_only_if_they_took_turns(
    nodes: tuple[str, str], hosts: tuple[str, str], kind: str, native: str
) -> None:
    pairs = []
    for number in range(4):
        names = [[name[number : number + 1] for name in side] for side in zip(nodes, hosts, strict=True)]
        samples = (
            Sample(side, number, (1.0,), 0.0, 1.0, node=node, host=host, boot=f"boot {number}")
            for side, (node, host) in zip(SIDES, names, strict=True)
        )
        pairs.append(Pair(number, *samples))
    places = places_of(pairs)
    assert (places.kind, "".join(places.native)) == (kind, native)
    assert places.boot == ("boot 0", "boot 1", "boot 2", "boot 3")


def test_two_pairs_in_fixed_roles_may_be_followed_by_the_exchange() -> None:
    places = recognise(list("aabb"), list("bbaa"))
    d = wobble(4, 0.005)
    first = judged(d[:2], places=recognise(list("aa"), list("bb")))
    assert (outcomes_of(first), next_pairs(first)) == ([UNDECIDED], [4])
    assert outcomes(d, places=places) == [WITHIN]
    assert outcomes(d, places=recognise(list("aaaa"), list("bbbb"))) == [INVALID]


def test_an_exchange_that_lacks_a_direction_has_no_estimate() -> None:
    exchanged = runs(wobble(4, 0.01)[:, None], recognise(list("aabb"), list("bbaa")))
    assert estimate_overhead(exchanged.first(2), Noise(np.array([0.01])), convict=True) is None
    assert estimate_overhead(exchanged, Noise(np.array([0.01])), convict=True) is not None
    for now, before in ((exchanged.first(2), exchanged), (exchanged, exchanged.first(2))):
        assert estimate_change(now, before, Noise(np.array([0.01])), convict=True) is None


def test_a_rotation_is_never_given_up_for_noise() -> None:
    places = recognise(list("abcd") * 2, list("wxyzxwzy"))
    d = 0.065 + 0.3 * (np.array(places.virtual) == "w")
    assert next_pairs(judged(d, places=places)) == [4 * places.width]
    wide = 0.065 + 0.3 * np.tile([1.0, -1.0, 1.0, -1.0, -1.0, 1.0, -1.0, 1.0], 9)
    turned = recognise(list("abcd") * 18, list("wxyzxwzy") * 9)
    assert judged(wide, places=turned).ruling.tolist() == [Ruling.OPEN]
    assert judged(wide, sigma=0.3).ruling.tolist() == [Ruling.NOISE]


def test_a_rotation_is_judged_on_its_hosts() -> None:
    rng = np.random.default_rng(2)
    k, rounds = 8, 4
    one, turn = np.tile(np.arange(k), rounds), np.repeat(np.arange(rounds), k)
    other = (one + turn) % k
    n, v = rng.normal(0, 0.02, (2, k))
    places = recognise([f"n{i}" for i in one], [f"v{j}" for j in other])
    rotated = Runs(np.stack([n[one, None], v[other, None] + 0.01]), places)
    estimate = estimate_overhead(rotated, Noise(np.array([0.01])), convict=False)
    assert estimate is not None
    welch = stats.ttest_ind(v + 0.01, n, equal_var=False)
    assert estimate.mean[0] / math.sqrt(estimate.variance[0]) == pytest.approx(welch.statistic, rel=1e-6)
    assert estimate.df[0] == pytest.approx(welch.df, rel=1e-6)


@pytest.mark.parametrize("sigma", [0.001, 0.5])
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_the_error_of_a_rotation_is_that_of_hosts_and_of_rounds(rounds: int, sigma: float) -> None:
    pairs = 2 * rounds
    logs = np.random.default_rng(rounds).normal(0, 0.02, (2, pairs, 2))
    hosts = "ababab"[:pairs], "xyyxxy"[:pairs]
    rotated = Runs(logs, recognise(*map(list, hosts), bound=0.01))
    estimate = estimate_overhead(rotated, Noise(np.array([sigma] * 2)), convict=False)
    assert estimate is not None
    assert estimate.bias == 0.01
    for column in range(2):
        parts, means = [], []
        for side, text in enumerate(hosts):
            names = np.array(list(text))
            by_host = [logs[side, names == name, column].mean() for name in np.unique(names)]
            means.append(np.mean(by_host))
            parts.append((max(np.var(by_host, ddof=1) / 2, sigma**2 / (2 * pairs)), 1))
        if rounds > 1:
            by_round = (logs[1] - logs[0])[:, column].reshape(rounds, 2).mean(axis=1)
            parts.append((np.var(by_round, ddof=1) / rounds, rounds - 1))
        assert estimate.mean[column] == pytest.approx(means[1] - means[0])
        assert [estimate.variance[column], estimate.df[column]] == pytest.approx(satterthwaite(parts))


def satterthwaite(parts: list[tuple[float, float]]) -> list[float]:
    """Return the sum of variances and its degrees of freedom."""
    total = sum(variance for variance, _ in parts)
    return [total, total**2 / sum(variance**2 / df for variance, df in parts)]


@pytest.mark.parametrize(("known", "known_df"), [(0.01, 4), (0.0, 0)])
@pytest.mark.parametrize("boots", ["aaabbc", "aabbcc"])
def test_the_variance_of_boots_is_weighted_between_the_known_and_the_observed(
    boots: str, known: float, known_df: float
) -> None:
    d = np.random.default_rng(8).normal(0, 0.02, (6, 2))
    labels = np.array(list(boots))
    d[labels == "b", 0] += 0.1
    sigma = 0.05
    here = [""] * 6
    estimate = estimate_overhead(
        runs(d, recognise(here, here, list(boots))),
        Noise(np.array([sigma] * 2), df=6.0, between=known, between_df=known_df or 9),
        convict=False,
    )
    assert estimate is not None
    for column in range(2):
        groups = [d[labels == name, column] for name in "abc"]
        squares = sum(float(np.sum((group - group.mean()) ** 2)) for group in groups)
        pair = (6 * sigma**2 + squares) / 9
        means = [group.mean() for group in groups]
        expected = pair * np.mean([1 / len(group) for group in groups])
        observed = max(np.var(means, ddof=1) - expected, 0)
        between = (known_df * known**2 + 2 * observed) / (known_df + 2)
        share = sum((len(group) / 6) ** 2 for group in groups)
        parts = [(pair / 6, 9), (between * share, known_df + 2)]
        assert [estimate.variance[column], estimate.df[column]] == pytest.approx(satterthwaite(parts))


def test_boots_count_as_boots() -> None:
    d = wobble(18, 0.001)[:, None]
    noise = Noise(np.array([0.001]), between=0.02)
    for boots in (1, 3):
        here = [""] * 18
        places = recognise(here, here, [str(i % boots) for i in range(18)])
        estimate = estimate_overhead(runs(d, places), noise, convict=False)
        assert estimate is not None
        assert estimate.variance[0] == pytest.approx(0.02**2 / boots, rel=0.01)
    own = recognise(here, here, [str(i) for i in range(18)])
    estimate = estimate_overhead(runs(d, own), noise, convict=False)
    assert estimate is not None
    assert estimate.variance[0] < 1e-5


# --- against an earlier session -----------------------------------------------------------------------------


def test_the_noise_of_an_earlier_session_does_not_shrink_until_the_last_look() -> None:
    before = runs(wobble(4, 0.01)[None, :, None])
    made = judged(wobble(8, 0.01), earlier=before)
    estimate = estimate_change(made.runs, before, Noise(np.array([[0.01]])), convict=False)
    assert estimate is not None
    variance = estimate.variance * (1 / 18 + 1 / 4) / (1 / 8 + 1 / 4)
    at_last = replace(estimate, variance=variance, df=estimate.df + 10)
    assert made.reach == pytest.approx(at_last.reach(BETA / len(LOOKS)))


def test_a_change_is_convicted_with_slow_virtual_runs_pulled_in() -> None:
    before = runs(wobble(4, 0.01)[None, :, None])
    slow = wobble(8, 0.01, 0.3)
    slow[5] += math.log(2)
    judge([made := batch(slow, earlier=before)], (8,))
    (answer,) = made.answers((8,))
    assert answer.ruling is Ruling.OVER
    estimate = estimate_change(made.runs, before, Noise(np.array([[0.01]])), convict=True)
    assert estimate is not None
    assert answer.bounds[0, 1] == pytest.approx((estimate.mean - estimate.reach(made.level[0]))[0, 0])


def test_a_change_that_a_short_earlier_session_hides_is_not_tried_in_vain() -> None:
    before = runs(wobble(4, 0.1)[None, :, None])
    assert next_pairs(judged(wobble(4, 0.02, 0.08), sigma=0.03, earlier=before, max_margin=0.05)) == [8]
    hidden = judged(wobble(18, 0.1, 0.065), sigma=0.1, earlier=before, max_margin=0.05)
    assert hidden.ruling.tolist() == [Ruling.NOISE]


@pytest.mark.parametrize(("hosts", "width"), [(None, 1), (("abab", "xyyx"), 2)])
def test_the_margin_of_a_change_is_what_both_sessions_resolve(
    hosts: tuple[str, str] | None, width: int
) -> None:
    """A change that is allowed is WITHIN in 95 % of sessions of 18 turns, and one at the margin in 3 %."""
    at = recognise(*map(list, hosts)) if hosts else None
    d = wobble(4, 0.03)[None, :, None]
    made = Batch(
        runs(d, at), LIMIT, 0.001, Noise(np.array([0.03]), 6, 0.01), earlier=runs(d, at), max_margin=1.0
    )
    df = 6 + 18 * width - 1
    variance = 0.03**2 * (1 / (18 * width) + 1 / 4) + 2 * 0.01**2
    t = stats.t.ppf(0.95, df) - stats.t.ppf(0.03 / len(LOOKS), df)
    assert made.margin[0].tolist() == pytest.approx([t * math.sqrt(variance)])


def test_the_ranges_of_a_curve_are_those_that_stand_out_of_their_own_noise() -> None:
    """Sizes 2 and 3 stand out most together; 0 and 5 are over by themselves, and touch no other range."""
    over = np.array([0.5, 0.0, 0.3, 0.3, 0.0, 0.5, 0.0])
    spread = np.array([0.1, 0.01, 0.01, 0.01, 0.01, 0.1, 0.01])
    d = over + spread * np.resize([1.0, -1.0], 18)[:, None]
    made = Batch(runs(append_mean(d)[None]), LIMIT, MARGIN, Noise(append_mean(spread)))
    judge([made])
    assert outcomes_of(made) == [OVER]
    (answer,) = made.answers(LOOKS)
    assert [(part.sizes.start, part.sizes.stop) for part in answer.ranges] == [(2, 4), (0, 1), (5, 6)]
    assert [part.mean for part in answer.ranges] == pytest.approx([0.3, 0.5, 0.5], abs=1e-6)


def test_the_ranges_of_a_curve_are_those_of_the_pairs_that_convicted_it() -> None:
    d = np.tile(wobble(8, 0.01)[:, None], 4)
    d[:, 3] += np.repeat([0.25, 0.3], [2, 6])
    made = Batch(runs(append_mean(d)[None]), LIMIT, MARGIN, Noise(np.array([0.01])))
    judge([made])
    (answer,) = made.answers(LOOKS)
    assert made.start.tolist() == [2]
    assert [(part.sizes.start, part.sizes.stop) for part in answer.ranges] == [(3, 4)]
    assert answer.ranges[0].mean == pytest.approx(0.3)


def test_rotations_of_the_same_hosts_cancel_in_any_order_and_exchanged_hosts_do_not() -> None:
    turned = recognise(list("abab"), list("xyyx")), recognise(list("abab"), list("yxxy"))
    assert turned[0].cancels(turned[1])
    assert not recognise(list("aabb"), list("xxyy")).cancels(recognise(list("aabb"), list("yyxx")))


@pytest.mark.parametrize("roles", [("aabb", "bbaa"), ("abcabc", "xyzyzx"), ("aaaa", "aaaa")])
def test_a_change_is_the_difference_of_two_overheads(roles: tuple[str, str]) -> None:
    rng = np.random.default_rng(6)
    other = recognise(*([f"other {name}" for name in side] for side in roles))
    places = recognise(*map(list, roles))
    noise = Noise(np.array([0.02]), between=0.01, between_df=8)
    now, before = (Runs(rng.normal(0, 0.02, (2, len(roles[0]), 1)), at) for at in (places, other))
    estimate = estimate_change(now, before, noise, convict=True)
    half = replace(noise, df=3, between_df=4)
    first, second = (estimate_overhead(session, half, convict=True) for session in (now, before))
    assert estimate is not None
    assert first is not None
    assert second is not None
    assert estimate.mean[0] == pytest.approx(first.mean[0] - second.mean[0])
    parts = [(part.variance[0], part.df[0]) for part in (first, second)]
    assert [estimate.variance[0], estimate.df[0]] == pytest.approx(satterthwaite(parts))


def test_a_change_on_the_same_hosts_is_that_of_the_mean_over_them() -> None:
    """Hosts a and c have three pairs of four now, and two of four in the earlier session."""
    now = runs(np.resize([0.4, 0.4, 0.4, 0.6], 8)[:, None], recognise(list("aaab" * 2), list("cccd" * 2)))
    before = runs(np.resize([0.1, 0.1, 0.2, 0.2], 8)[:, None], recognise(list("aabb" * 2), list("ccdd" * 2)))
    estimate = estimate_change(now, before, Noise(np.array([0.03]), df=6), convict=False)
    assert estimate is not None
    assert estimate.mean[0] == pytest.approx(0.5 - 0.15)
    # Half of the known weight beside six pairs more than hosts, and the sums of squared weights.
    pair = (3 * 0.03**2 + 6 * MIN_PAIR_SIGMA**2) / (3 + 6)
    assert estimate.variance[0] == pytest.approx(pair * (6 / 12**2 + 2 / 4**2 + 8 / 8**2))
    assert estimate.bias == 0.0
    rng = np.random.default_rng(4)
    turned = recognise(list("ababab"), list("xyyxxy"))
    first, second = (Runs(rng.normal(0, 0.005, (2, 6, 1)), turned) for _ in range(2))
    estimate = estimate_change(first, second, Noise(np.array([0.03])), convict=False)
    assert estimate is not None
    assert estimate.mean[0] == pytest.approx(first.differences.mean() - second.differences.mean())
    assert not turned.cancels(recognise(list("aabb"), list("xxyy")))


def test_a_history_that_both_sessions_share_counts_once() -> None:
    session = runs(wobble(12, 0.01)[:, None])
    estimate = estimate_change(session, session, Noise(np.array([0.01]), df=6), convict=False)
    assert estimate is not None
    assert estimate.df[0] == pytest.approx(6 + 11 + 11)


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
    assert (nine + NO_SLOW_RUNS).factor == (NO_SLOW_RUNS + nine).factor == 1.9


@pytest.mark.parametrize("pairs", [8, 9])
def test_a_run_is_slow_by_the_noise_of_its_own_series(pairs: int) -> None:
    """The known noise of a run, that of the farthest quarter of all runs, or a quarter as long again."""
    quarter = {8: (0.2 + 0.1) / 2, 9: (0.2 + 0.1 + 0.06) / 3}[pairs]
    cases = [
        (0.4, [0.0], 5 * 0.4 / math.sqrt(2)),
        (0.0, [0.2, 0.1, 0.06], 5 * quarter),
        (0.0, [0.0], math.log(1.25)),
    ]
    rows, sigmas, expected = [], [], []
    for sigma, faster, limit in cases:
        for excess, is_slow in ((limit - 0.001, False), (limit + 0.001, True)):
            rows.append([excess, *(-value for value in faster), *[0.0] * (pairs - 1 - len(faster))])
            sigmas.append(sigma)
            expected.append([excess * is_slow, *[0.0] * (pairs - 1)])
    assert slowness(np.array(rows), np.array(sigmas)) == pytest.approx(np.array(expected))


def test_the_whole_curve_is_a_column() -> None:
    assert append_mean(np.array([[1.0, 2.0, 6.0]])).tolist() == [[1.0, 2.0, 6.0, 3.0]]
    assert append_mean(np.array([[1.0]])).tolist() == [[1.0]]
