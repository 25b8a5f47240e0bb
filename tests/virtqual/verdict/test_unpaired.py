"""Runs that did not take turns get an estimate and its interval, and never a verdict."""

import numpy as np
import pytest
import scipy.stats

from virtqual.verdict.budget import Budget
from virtqual.verdict.labels import REFERENCE_AND_CANDIDATE
from virtqual.verdict.metric import Metric
from virtqual.verdict.outcome import Outcome
from virtqual.verdict.unpaired import estimate_unpaired

TIME = Metric(name="elapsed", unit="s", better="lower", family="measured", description="a time")
RATE = TIME.model_copy(update={"better": "higher", "unit": "MB/s"})
CURVE = TIME.model_copy(update={"kind": "curve", "axis": "size", "axis_unit": "B"})


def estimate(metric, native, virtual, points=(), **more):
    options = {"budget": None, "reason": "no turns", "advice": "take turns"} | more
    return estimate_unpaired(metric, "", points, np.array(native, float), np.array(virtual, float), **options)


@pytest.mark.parametrize("metric", [TIME, RATE])
def test_the_interval_is_welchs_on_logarithms(metric):
    rng = np.random.default_rng(1)
    native, virtual = np.exp(rng.normal(0, 0.02, (9, 1))), np.exp(rng.normal(0.1, 0.05, (6, 1)))
    verdict = estimate(metric, native, virtual)
    sign = 1 if metric is TIME else -1
    test = scipy.stats.ttest_ind(sign * np.log(virtual[:, 0]), sign * np.log(native[:, 0]), equal_var=False)
    interval = test.confidence_interval(0.95)
    shown = (verdict.overhead.lower, verdict.overhead.upper)
    assert shown == pytest.approx((interval.low, interval.high), rel=1e-6)
    assert verdict.virtual / verdict.native == pytest.approx(verdict.overhead.ratio, rel=1e-6)
    assert (verdict.outcome, verdict.pairs, verdict.next_pairs) == (Outcome.UNDECIDED, 0, None)


def test_however_large_the_difference_is_there_is_no_verdict():
    budget = Budget.build(0.05, margin=0.03, gate="overhead")
    verdict = estimate(TIME, [[1.0], [1.01]] * 9, [[9.0], [9.1]] * 9, budget=budget)
    assert verdict.outcome is Outcome.UNDECIDED
    assert verdict.limit == pytest.approx(np.log(1.05))
    assert verdict.overhead.lower > verdict.limit


def test_of_a_curve_each_size_and_the_mean_are_shown():
    verdict = estimate(CURVE, [[1, 10], [1, 10]], [[1, 20], [1, 20]], (8.0, 64.0))
    assert [point.overhead.ratio for point in verdict.points] == pytest.approx([1, 2])
    assert verdict.overhead.ratio == pytest.approx(2**0.5)
    assert "of 2 sizes" in verdict.message


def test_lost_runs_are_counted_and_one_run_has_no_interval():
    verdict = estimate(
        TIME, [[1.0]], [[np.nan], [1.2], [0.0]], labels=REFERENCE_AND_CANDIDATE, reason="why", advice="what"
    )
    assert verdict.reasons == (
        "1 reference run and 1 candidate run", "why", "2 of 3 candidate runs gave no value", "what",
    )  # fmt: skip
    assert (verdict.overhead.ratio, verdict.overhead.bounds) == (pytest.approx(1.2), None)
    nothing = estimate(TIME, [[1.0]], [[np.nan]])
    assert (nothing.overhead, nothing.native) == (None, None)
