"""The spread of boots, of one metric and of all metrics of a machine."""

import numpy as np
import pytest
from made_series import samples_of

from virtqual.history.boots import compare_means, measure_boots, moderate, pool_metrics, shrink_variances
from virtqual.verdict.pairs import pair_up

METRICS, SD = 11, 0.02


@pytest.fixture
def measure(metrics):
    def draw(rng, boots_sd, sessions=5, sd=SD):
        """Return the spread of boots of one metric that was measured in sessions of four pairs."""
        d = rng.normal(0, sd, (sessions, 4)) + rng.normal(0, boots_sd, (sessions, 1))
        return measure_boots(
            pair_up(metrics["hpl"], "here", (), samples_of(metrics["hpl"], row[:, None])) for row in d
        )

    return draw


def test_metrics_together_know_how_boots_differ(measure):
    rng = np.random.default_rng(1)
    own, pooled = [], []
    for _ in range(60):
        spreads = [measure(rng, 0.25 * SD) for _ in range(METRICS)]
        ratio = pool_metrics(spreads)
        own += [spread.sigma for spread in spreads]
        pooled += [moderate(spread, ratio) for spread in spreads]
    assert np.mean(np.array(own) == 0) > 0.35
    assert np.mean(np.array(pooled) == 0) < 0.25
    assert np.median(pooled) == pytest.approx(0.25 * SD, rel=0.3)


def test_a_metric_of_which_boots_differ_more_keeps_its_own_spread(measure):
    rng = np.random.default_rng(2)
    wild = measure(rng, 2.5 * SD, sessions=10)
    calm = [measure(rng, 0.0, sessions=10, sd=sd) for sd in (0.001, 0.01, 0.02, 0.05) * 3]
    ratio = pool_metrics([wild, *calm])
    assert moderate(wild, ratio) == wild.sigma == pytest.approx(2.5 * SD, rel=0.5)
    # It is pulled in: what it shows is not laid to the others.
    assert ratio < 0.15
    assert ratio < np.mean([max(spread.ratio - 1, 0) / 4 for spread in (wild, *calm)]) / 2
    assert pool_metrics([]) == 0


def test_a_session_with_stalled_runs_weighs_little():
    rng = np.random.default_rng(3)
    d = rng.normal(0, SD, (200, 36, 4))
    stalled = d.copy()
    stalled[:, 7, 2] += np.log(10)
    spreads = []
    for histories in (d, stalled):
        for sessions in histories:
            errors = shrink_variances(sessions.var(axis=-1, ddof=1), np.full(36, 4)) / 4
            means = sessions.mean(axis=-1)
            spreads.append(compare_means(np.split(means, 12), np.split(errors, 12)).sigma)
    calm, spoiled = np.median(np.reshape(spreads, (2, -1)), axis=1)
    assert spoiled < calm + 0.2 * SD
