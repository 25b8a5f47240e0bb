"""Details of the kernel that only its own arguments can reach."""

import numpy as np
import pytest
from scipy import stats
from virtqual.verdict.decision import (
    contiguous,
    contrast,
    decide,
    pairs_needed,
    resolved_margin,
    scanned,
    summarise,
    window_variance,
)
from virtqual.verdict.design import Design

from virtqual.references.noise import Prior, sigma_of_history

ONE = np.array([[0.02**2]])


def test_a_scalar_has_one_window():
    assert len(scanned(1)) == 1
    assert len(contiguous(1)) == 1


def test_the_scan_of_23_sizes_has_90_windows_and_starts_with_the_single_ones():
    windows = scanned(23)
    assert len(windows) == 90
    assert windows.length[:23].tolist() == [1] * 23
    assert sorted(set(windows.length.tolist())) == [1, 2, 4, 8, 16, 23]
    assert windows.start[-1] == 0
    assert windows.stop[-1] == 23


@pytest.mark.parametrize("width", range(1, 30))
def test_every_contiguous_range_is_nearly_a_window_of_the_scan(width):
    windows = scanned(width)
    have = list(zip(windows.start.tolist(), windows.stop.tolist(), strict=True))
    assert len(set(have)) == len(have)
    for start, stop in zip(contiguous(width).start, contiguous(width).stop, strict=True):
        inside = max(min(stop, b) - max(start, a) for a, b in have if a >= start and b <= stop)
        assert inside > (stop - start) / 2


def test_windows_average():
    assert np.allclose(contiguous(5).weights.sum(axis=1), 1)
    assert len(contiguous(5)) == 15


def test_the_moderated_variance_weighs_history_and_session():
    d = np.array([[0.0], [0.02], [0.04]])
    summary = summarise(d, scanned(1), ONE, 20, 100.0)
    assert summary.mean[0] == pytest.approx(0.02)
    assert summary.df == 22
    assert summary.variance[0] == pytest.approx((20 * 0.02**2 + 2 * 0.02**2) / 22)


def test_an_outlier_is_pulled_in_to_two_standard_deviations():
    summary = summarise(np.array([[0.0], [0.0], [9.0]]), scanned(1), ONE, 20, 2.0)
    assert summary.mean[0] == pytest.approx(0.04 / 3)


def test_a_session_noisier_than_its_history_is_not_pulled_in_to_it():
    d = np.array([[-0.3], [-0.1], [0.1], [0.3]])
    assert summarise(d, scanned(1), ONE, 20, 2.0).mean[0] == pytest.approx(0.0)
    assert summarise(d, scanned(1), ONE, 20, 2.0).variance[0] == pytest.approx((20 * 0.0004 + 0.2) / 23)


def test_neighbouring_points_that_correlate_average_less_noise_away():
    alone = window_variance(scanned(4), Prior(0.1, 5, "", correlation=0.0).covariance(4))
    together = window_variance(scanned(4), Prior(0.1, 5, "", correlation=0.9).covariance(4))
    shared = window_variance(scanned(4), Prior(0.1, 5, "", correlation=0.0, common=0.2).covariance(4))
    assert alone[-1] == pytest.approx(0.01 / 4)
    assert alone[-1] < together[-1] < 0.01
    assert shared[-1] == pytest.approx(0.01 / 4 + 0.04)


def test_a_prior_by_point_must_fit():
    assert Prior((0.1, 0.2), 5, "").covariance(2)[1, 1] == pytest.approx(0.04)
    with pytest.raises(ValueError, match="the prior has 2 points, the series 3"):
        Prior((0.1, 0.2), 5, "").covariance(3)


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
    ],
)
def test_what_is_no_prior_is_refused(change):
    with pytest.raises(ValueError, match=r"above 0|lies in|not below 0"):
        Prior(**{"sigma": 0.1, "df": 5, "source": "", **change})


def test_bounds_are_those_of_students_t():
    d = np.array([[0.01], [0.02], [0.03], [0.02]])
    summary = summarise(d, scanned(1), ONE, 20, 100.0)
    part = contrast(summary)
    expected = 0.02 - stats.t.isf(0.01, 23) * np.sqrt(summary.variance[0] / 4)
    assert part.bound(0.01, -1)[0] == pytest.approx(expected)
    assert part.bound(0.01, +1)[0] - 0.02 == pytest.approx(0.02 - expected)


def test_two_sessions_add_their_errors_and_lose_degrees_of_freedom():
    d = np.array([[0.01], [0.02], [0.03], [0.02]])
    summary = summarise(d, scanned(1), ONE, 20, 100.0)
    one, two, three = contrast(summary), contrast(summary, summary), contrast(summary, summary, 0.1)
    assert two.mean[0] == 0
    assert two.error[0] == pytest.approx(np.sqrt(2) * one.error[0])
    assert two.df[0] == pytest.approx(46)
    assert three.error[0] == pytest.approx(np.sqrt(two.error[0] ** 2 + 2 * 0.1**2))


def test_the_majority_must_be_over_on_its_own():
    design = Design(clip=100.0, contradiction=100.0)
    arguments = {
        "limit": np.zeros(1),
        "margin": np.array([0.05]),
        "covariance": ONE,
        "df": 20,
        "design": design,
    }
    three_of_four = decide(np.array([[0.08], [0.08], [0.08], [-0.001]]), look=2, **arguments)
    two_of_four = decide(np.array([[0.13], [0.13], [-0.001], [-0.001]]), look=2, **arguments)
    assert three_of_four.over.any()
    assert not two_of_four.over.any()


def test_noise_that_cannot_resolve_the_margin_needs_overwhelming_evidence():
    wide = np.array([[0.3**2]])
    arguments = {"limit": np.zeros(1), "covariance": wide, "df": 20, "design": Design(), "look": 2}
    d = np.full((4, 1), 0.5)
    assert decide(d, margin=np.array([0.5]), **arguments).over.any()
    assert not decide(d, margin=np.array([0.05]), **arguments).over.any()
    assert decide(2 * d, margin=np.array([0.05]), **arguments).over.any()


def test_many_series_are_decided_as_each_alone():
    rng = np.random.default_rng(5)
    d = rng.normal(0.02, 0.03, (40, 4, 6))
    covariance = Prior(0.03, 20, "", common=0.01).covariance(6)
    arguments = {
        "limit": np.zeros(6),
        "margin": np.full(6, 0.1),
        "covariance": covariance,
        "df": 20,
        "design": Design(),
        "look": 2,
    }
    together = decide(d, **arguments)
    for i in range(40):
        alone = decide(d[i], **arguments)
        assert alone.over.tolist() == together.over[i].tolist()
        assert bool(alone.within) == bool(together.within[i])
        assert bool(alone.hopeless) == bool(together.hopeless[i])


def test_pairs_needed_grow_with_noise_and_shrink_with_margin():
    def needed(sigma, margin, **more):
        return float(pairs_needed(np.array([sigma**2]), np.array([margin]), Design(), 30, **more)[0])

    assert needed(0.04, 0.05) == pytest.approx(4 * needed(0.02, 0.05))
    assert needed(0.02, 0.05) == pytest.approx(4 * needed(0.02, 0.10))
    assert needed(0.02, 0.05, windows=91) > needed(0.02, 0.05)
    assert needed(0.02, 0.05, earlier_pairs=4) > needed(0.02, 0.05, earlier_pairs=18) > needed(0.02, 0.05)
    assert needed(0.02, 0.05, earlier_pairs=1) == np.inf
    assert needed(0.02, 0.05, between=0.05) == np.inf


def test_that_many_pairs_find_it_in_95_per_cent():
    """The number that INVALID names, put to the test."""
    sigma, margin, design = 0.03, 0.05, Design()
    count = int(np.ceil(pairs_needed(np.array([sigma**2]), np.array([margin]), design, 1000)[0]))
    d = np.random.default_rng(2).normal(margin, sigma, (20000, count))
    level = design.over_level(len(design.looks) - 1)
    found = d.mean(axis=1) / (sigma / np.sqrt(count)) > stats.norm.isf(level)
    assert 0.94 < found.mean() < 0.985


def test_history_is_robust_to_one_wild_pair_and_not_blind_to_two_speeds():
    rng = np.random.default_rng(4)
    calm = rng.normal(0, 0.01, (2000, 21))
    wild = calm.copy()
    wild[:, 0] = 1.0
    two_speeds = calm * 0.2 + 0.05 * (rng.random((2000, 21)) < 0.3)
    assert np.median(sigma_of_history(calm)) == pytest.approx(0.01, rel=0.1)
    assert np.median(sigma_of_history(wild)) < 0.015
    assert np.median(sigma_of_history(two_speeds)) > 0.018
    with pytest.raises(ValueError, match="at least 2 pairs, 1 were given"):
        sigma_of_history(np.array([0.1]))


@pytest.mark.parametrize("before", [-0.30, 0.0, 2.7])
def test_most_pairs_must_show_the_change_whatever_the_overhead_was(before):
    """A guest faster than native, or twenty times slower, is held to the same rule about bursts."""

    def over(change):
        found = decide(
            (before + np.array(change))[:, None],
            limit=np.array([0.05]),
            margin=np.array([0.05]),
            covariance=ONE,
            df=20,
            design=Design(),
            look=3,
            earlier=np.full((6, 1), before),
        )
        return bool(found.over[0])

    assert over([0.2] * 6)
    assert not over([0.0, 0.0, 0.3, 0.3, 0.3, 0.3])  # four of six


def test_a_resolved_margin_needs_the_maximum_of_pairs():
    variance, design = np.array([0.03**2, 0.01**2]), Design()
    margin = resolved_margin(variance, design, 23, 1, 4, 0.003)
    assert pairs_needed(variance, margin, design, 23, 1, 4, 0.003) == pytest.approx([18, 18])
    assert np.all(resolved_margin(variance, design, 23, 1, 12, 0.003) < margin)


def test_company_does_not_make_noise_hopeless():
    """Sharing the error rate with many series makes a conviction harder; it is no fault of the noise."""

    def hopeless(family, noise):
        found = decide(
            np.resize([0.068 + noise, 0.068 - noise], 18)[:, None],
            limit=np.array([0.05]),
            margin=np.array([0.03]),
            covariance=ONE,
            df=20,
            design=Design().in_session(2, family),
            look=6,
        )
        assert not np.any(found.over)
        assert not found.within
        return bool(found.hopeless)

    assert not hopeless(1, 0.02)
    assert not hopeless(500, 0.02)
    assert hopeless(1, 0.06)
