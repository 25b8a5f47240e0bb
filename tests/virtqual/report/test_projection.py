"""What the noise of one node costs on many, against times that are drawn one by one."""

import numpy as np
import pytest

from virtqual.report.projection import project

ONE_IN = np.array([digit * 10.0**power for power in range(5) for digit in (1, 2, 5)])


def draw_pieces(rng, *shape):
    """Pieces of 1000 us: 1 in 1000 is interrupted for 50 to 1000 us."""
    interrupted = rng.random(shape) < 1e-3
    return 1000 + rng.exponential(0.5, shape) + interrupted * rng.uniform(50, 1000, shape)


def quantiles(pieces):
    ordered = np.sort(pieces, axis=-1)
    count = pieces.shape[-1]
    return np.stack([ordered[..., 0 if n == 1 else int(count - count // n)] for n in ONE_IN], axis=-1)


@pytest.mark.parametrize("ranks", [16, 512, 4096])
def test_the_projection_is_the_loss_of_a_program_that_waits_for_all_ranks(ranks):
    rng = np.random.default_rng(7)
    loss = project(ONE_IN, quantiles(draw_pieces(rng, 4, 1_000_000)), ranks, 1)
    slowest = np.array([draw_pieces(rng, ranks).max() for _ in range(2000)])
    assert loss.mean == pytest.approx(slowest.mean() / 1000 - 1, rel=0.15)
    assert loss.low <= loss.mean <= loss.high
    assert not loss.is_bound


def test_a_loss_by_rarer_pieces_than_were_measured_is_a_bound():
    times = quantiles(draw_pieces(np.random.default_rng(7), 4, 1_000_000))
    known, unknown = project(ONE_IN, times, 4096, 64), project(ONE_IN[:9], times[:, :9], 4096, 64)
    assert unknown.is_bound
    assert unknown.mean < known.mean
