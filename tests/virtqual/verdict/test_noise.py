"""Noise that is known before the first pair."""

import pytest

from virtqual.verdict.noise import Prior


def test_neighbouring_points_that_correlate_average_less_noise_away():
    alone, together, shared = (
        Prior(sigma=0.1, df=5, source="stated", correlation=correlation, common=common).covariance(4).mean()
        for correlation, common in ((0.0, 0.0), (0.9, 0.0), (0.0, 0.2))
    )
    assert alone == pytest.approx(0.01 / 4)
    assert alone < together < 0.01
    assert shared == pytest.approx(0.01 / 4 + 0.04)


def test_a_prior_by_point_must_fit():
    assert Prior(sigma=(0.1, 0.2), df=5, source="stated").covariance(2)[1, 1] == pytest.approx(0.04)
    assert Prior(sigma=(0.1, 0.2), df=5, source="stated", correlation=0.5).covariance(2)[
        0, 1
    ] == pytest.approx(0.01)
    with pytest.raises(ValueError, match="the prior has 2 points, the series 3"):
        Prior(sigma=(0.1, 0.2), df=5, source="stated").covariance(3)


@pytest.mark.parametrize(
    "change",
    [
        {"sigma": 0},
        {"sigma": (0.1, -1)},
        {"sigma": float("nan")},
        {"df": 0},
        {"df": float("inf")},
        {"correlation": 1.0},
        {"correlation": -0.1},
        {"common": -1},
        {"between": -1},
        {"between_df": 0},
        {"between_df": float("nan")},
    ],
)
def test_what_is_no_prior_is_refused(change):
    with pytest.raises(ValueError, match=r"greater than|less than 1|finite number"):
        Prior(**{"sigma": 0.1, "df": 5, "source": "stated", **change})


@pytest.mark.parametrize("name", ["common", "between"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_spread_that_is_no_number_is_refused(name, value):
    """A comparison with NaN is false: without a check it would go through every sum in silence."""
    with pytest.raises(ValueError, match="finite number"):
        Prior(sigma=0.1, df=5, source="stated", **{name: value})
