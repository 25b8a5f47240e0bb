"""Noise that is known before the first pair."""

import math

import pytest
from made_series import stated

from virtqual.verdict.noise import sigma_of


def test_neighbouring_points_that_correlate_average_less_noise_away():
    alone, together, shared = (
        stated(0.1, correlation=correlation, common=common).covariance(4).mean()
        for correlation, common in ((0.0, 0.0), (0.9, 0.0), (0.0, 0.2))
    )
    assert alone == pytest.approx(0.01 / 4)
    assert alone < together < 0.01
    assert shared == pytest.approx(0.01 / 4 + 0.04)


def test_a_prior_by_size_has_its_own_noise_of_their_mean():
    assert stated((0.1, 0.2), correlation=0.5).covariance(2)[0, 1] == pytest.approx(0.01)
    assert sigma_of(stated((0.1, 0.2), points=(1, 2)), 2)[-1] == pytest.approx(
        math.sqrt((0.05 + 2 * 0.01) / 4)
    )
    assert sigma_of(stated((0.1, 0.2), points=(1, 2), mean=0.12), 2) == pytest.approx((0.1, 0.2, 0.12))
    for contradiction in ({"points": None}, {"common": 0.0}, {"correlation": 0.5}):
        with pytest.raises(
            ValueError, match=r"error, `mean` goes with `points`, and without `correlation` and `common`\. \["
        ):
            stated((0.1, 0.2), **{"points": (1, 2), "mean": 0.12, **contradiction})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sigma", 0),
        ("sigma", (0.1, -1)),
        ("df", 0),
        ("correlation", 1.0),
        ("correlation", -0.1),
        ("common", -1),
        ("between", -1),
        ("between_hosts", -1),
        ("between_df", 0),
        # A comparison with NaN is false: without a check it would go through every sum in silence.
        *((field, math.nan) for field in ("sigma", "common", "between", "between_hosts", "between_df")),
        *((field, math.inf) for field in ("df", "common", "between", "between_hosts")),
    ],
)
def test_what_is_no_prior_is_refused(field, value):
    with pytest.raises(ValueError, match=r"greater than|less than 1|finite number"):
        stated(**{"sigma": 0.1, field: value})
