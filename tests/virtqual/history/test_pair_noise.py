"""The noise of pairs is what quiet runs show, and its weight how alike nights are."""

import math

import numpy as np
import pytest

from virtqual.history.pair_noise import estimate_noise, timer_noise
from virtqual.verdict.estimate import MAX_HISTORY_DF


def test_the_weight_of_a_history_is_how_alike_its_nights_are():
    rng = np.random.default_rng(1)
    steady = rng.normal(0, 0.02, (40, 6))
    sigma, df = estimate_noise(steady)
    assert sigma == pytest.approx(0.02, rel=0.15)
    assert df == MAX_HISTORY_DF
    moody = steady * rng.choice([0.2, 3.0], (40, 1))
    assert estimate_noise(moody)[1] < 2
    wild = steady.copy()
    wild[3, 2] += math.log(2)
    assert estimate_noise(wild)[0] == pytest.approx(sigma, rel=0.1)
    neighbours = np.repeat(rng.normal(0, 0.02, (40, 3)), 2, axis=1)
    assert estimate_noise(neighbours)[0] > 1.2 * 0.02


def test_a_timer_that_shows_no_noise_has_some():
    with pytest.raises(ValueError, match="does not vary"):
        estimate_noise(np.zeros((4, 4)))
    floor = timer_noise(0.01, 0.39)
    assert estimate_noise(np.zeros((4, 4)), floor)[0] == pytest.approx(0.01 / 0.39 / math.sqrt(6))
    with pytest.raises(ValueError, match="two pairs"):
        estimate_noise(np.full((3, 4), np.nan))
