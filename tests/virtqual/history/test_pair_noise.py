"""The noise of pairs is what calm runs show, and its weight how alike nights are."""

import math

import numpy as np
import pytest

from virtqual.history.pair_noise import estimate_noise, find_stalls, usual_noise
from virtqual.verdict.estimate import MAX_HISTORY_DF

SD = 0.02


def record(runs):
    """Return the noise of pairs of runs of shape (2, n_histories, n_sessions, n_pairs)."""
    native, virtual = runs
    stalls = find_stalls(native, virtual, usual_noise(virtual - native)[..., None])
    return estimate_noise(np.where(stalls, np.nan, virtual - native))[0]


def draw_gaussian(rng, shape):
    return rng.standard_normal(shape) / math.sqrt(2)


@pytest.mark.parametrize(("share", "factor"), [(0, 1), (0.01, 2), (0.02, 2), (0.01, 10), (0.05, 3)])
@pytest.mark.parametrize("sessions", [5, 20])
def test_stalled_runs_are_no_noise(share, factor, sessions):
    rng = np.random.default_rng(1)
    runs = SD * draw_gaussian(rng, (2, 400, sessions, 4))
    sigma = record(runs + math.log(factor) * (rng.random(runs.shape) < share)) / SD
    assert np.median(sigma) == pytest.approx(1, abs=0.05)
    # A history of five sessions has ten degrees of freedom.
    assert np.quantile(sigma, 0.9) < 1.35


@pytest.mark.parametrize("sd", [0.02, 0.1])
@pytest.mark.parametrize(
    ("draw", "understated"),
    [
        (lambda rng, shape: rng.standard_t(3, shape) / math.sqrt(6), 0.8),
        (lambda rng, shape: (4 * (rng.random(shape) < 0.3) + 0.5 * draw_gaussian(rng, shape)) / 2.62, 0.95),
        (lambda rng, shape: rng.standard_exponential(shape) / math.sqrt(2), 0.8),
    ],
    ids=["t3", "two speeds", "exponential"],
)
def test_what_varies_every_day_is_noise(draw, understated, sd):
    rng = np.random.default_rng(2)
    sigma = record(sd * draw(rng, (2, 400, 20, 4))) / sd
    assert understated < np.median(sigma) < 1.05


def test_the_weight_of_a_history_is_how_alike_its_nights_are():
    rng = np.random.default_rng(1)
    steady = rng.normal(0, SD, (40, 6))
    sigma, df = estimate_noise(steady)
    assert sigma == pytest.approx(SD, rel=0.15)
    assert df == MAX_HISTORY_DF
    moody = steady * rng.choice([0.2, 3.0], (40, 1))
    assert estimate_noise(moody)[1] < 2
    neighbours = np.repeat(rng.normal(0, SD, (40, 3)), 2, axis=1)
    assert estimate_noise(neighbours)[0] > 1.2 * SD


def test_a_timer_that_shows_no_noise_has_some():
    assert estimate_noise(np.zeros((4, 4)), 0.01)[0] == pytest.approx(0.01)
