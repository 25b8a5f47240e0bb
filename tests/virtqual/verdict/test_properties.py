"""What must hold whatever was measured."""

import math
from dataclasses import replace
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from made_series import REFERENCES, samples_of

from virtqual.references import Budget
from virtqual.references.metrics import load_metrics
from virtqual.verdict import (
    Case,
    Design,
    Outcome,
    Prior,
    VerdictRecord,
    judge,
    judge_session,
    message,
    record_of,
)
from virtqual.verdict.pairs import Pair, Series, pair_up

METRICS = load_metrics(REFERENCES / "metrics")
SCALARS = [METRICS["hpl"], METRICS["lammps_loop_time"]]
SIZES = (2.0, 8.0, 64.0, 1024.0)

level = st.floats(-0.5, 0.5)
noise = st.floats(-0.08, 0.08)
counts = st.sampled_from(Design().looks)
metrics = st.sampled_from(SCALARS)
priors = st.builds(Prior, st.floats(0.003, 0.1), st.floats(2, 50), st.just("drawn"))
budgets = st.builds(lambda b, m: Budget.of(b, margin=m), st.floats(0, 0.2), st.floats(0.01, 0.3))


@st.composite
def differences(draw, pairs=None, base=level):
    count = draw(counts) if pairs is None else pairs
    middle = draw(base)
    return [middle + value for value in draw(st.lists(noise, min_size=count, max_size=count))]


def series_of(metric, values, **how):
    return pair_up(metric, "here", (), samples_of(metric, [[value] for value in values], **how))


def same(one, other):
    assert one.outcome is other.outcome
    assert one.overhead.log == pytest.approx(other.overhead.log, abs=1e-9)
    assert one.overhead.lower == pytest.approx(other.overhead.lower, abs=1e-9)
    assert one.overhead.upper == pytest.approx(other.overhead.upper, abs=1e-9)


@given(metrics, differences(), budgets, priors, st.randoms())
def test_the_order_of_pairs_within_a_look_does_not_matter(metric, values, budget, prior, random):
    before = max((look for look in Design().looks if look < len(values)), default=0)
    new = values[before:]
    random.shuffle(new)
    shuffled = values[:before] + new
    same(
        judge(series_of(metric, values), budget, prior=prior),
        judge(series_of(metric, shuffled), budget, prior=prior),
    )


@given(metrics, differences(), budgets, priors, st.floats(1e-6, 1e6))
def test_the_unit_does_not_matter(metric, values, budget, prior, factor):
    same(
        judge(series_of(metric, values), budget, prior=prior),
        judge(series_of(metric, values, native=10 * factor), budget, prior=prior),
    )


@given(metrics, differences(), priors)
def test_swapping_native_and_virtual_turns_the_sign(metric, values, prior):
    there = series_of(metric, values)
    swapped = Series(
        metric,
        "here",
        (),
        tuple(
            Pair(p.number, replace(p.virtual, side="native"), replace(p.native, side="virtual"))
            for p in there.pairs
        ),
    )
    budget = Budget.of(0.0, margin=0.1)
    one, other = judge(there, budget, prior=prior), judge(swapped, budget, prior=prior)
    assert swapped.differences() == pytest.approx(-there.differences())
    if one.pairs == other.pairs:
        assert one.overhead.log == pytest.approx(-other.overhead.log, abs=1e-9)
    assert {one.outcome, other.outcome} != {Outcome.OVER}


@given(differences(), budgets, priors)
def test_direction_only_changes_words(values, budget, prior):
    lower = Budget.of(0.0, margin=0.1)
    one = judge(series_of(METRICS["hpl"], values), lower, prior=prior)
    other = judge(series_of(METRICS["lammps_loop_time"], values), lower, prior=prior)
    ratio, low, high = one.overhead.ratio(METRICS["hpl"])
    assert low <= ratio <= high
    if one.pairs == other.pairs:
        assert one.overhead.log == pytest.approx(other.overhead.log, abs=1e-9)
        assert ratio == pytest.approx(1 / other.overhead.ratio(METRICS["lammps_loop_time"])[0])


@given(metrics, differences(base=st.floats(0.0, 1.0)), budgets, priors, st.floats(0, 2))
def test_adding_a_worse_pair_never_turns_over_into_within(metric, values, budget, prior, extra):
    before = judge(series_of(metric, values), budget, prior=prior)
    event(before.outcome.value)
    worse = max(values) + extra
    for more in range(1, 8) if before.outcome is Outcome.OVER else ():
        after = judge(series_of(metric, [*values, *[worse] * more]), budget, prior=prior)
        assert after.outcome is not Outcome.WITHIN


@given(metrics, differences(), budgets, priors, st.floats(0.001, 1))
def test_making_every_pair_worse_never_improves_the_outcome(metric, values, budget, prior, extra):
    rank = {Outcome.WITHIN: 0, Outcome.UNDECIDED: 1, Outcome.INVALID: 1, Outcome.OVER: 2}
    before = judge(series_of(metric, values), budget, prior=prior)
    after = judge(series_of(metric, [value + extra for value in values]), budget, prior=prior)
    assert rank[after.outcome] >= rank[before.outcome]


@given(metrics, differences(), st.floats(0, 0.2), st.floats(0, 0.2), priors)
def test_a_larger_budget_never_turns_within_into_over(metric, values, small, more, prior):
    tight = judge(series_of(metric, values), Budget.of(small, margin=0.1), prior=prior)
    loose = judge(series_of(metric, values), Budget.of(small + more, margin=0.1), prior=prior)
    if tight.outcome is Outcome.WITHIN:
        assert loose.outcome is not Outcome.OVER
    if loose.outcome is Outcome.OVER:
        assert tight.outcome is Outcome.OVER


@given(metrics, differences(), budgets, priors)
def test_the_interval_and_the_outcome_say_the_same(metric, values, budget, prior):
    verdict = judge(series_of(metric, values), budget, prior=prior)
    assert verdict.overhead.lower < verdict.overhead.log < verdict.overhead.upper
    if verdict.outcome is Outcome.WITHIN:
        assert verdict.overhead.upper < verdict.limit + verdict.margin
    if verdict.outcome is Outcome.OVER:
        assert verdict.overhead.lower > verdict.limit
    assert (verdict.next_look is None) == (
        verdict.outcome is not Outcome.UNDECIDED or verdict.pairs == Design().max_pairs
    )


@given(metrics, differences(), budgets, priors)
def test_a_record_says_the_same_after_json(metric, values, budget, prior):
    record = record_of(judge(series_of(metric, values), budget, prior=prior))
    assert VerdictRecord.model_validate_json(record.model_dump_json()) == record


@given(st.lists(differences(pairs=4), min_size=1, max_size=5), budgets, priors)
def test_the_order_of_cases_does_not_matter(rows, budget, prior):
    cases = [
        Case(pair_up(SCALARS[0], str(i), (), samples_of(SCALARS[0], [[v] for v in row])), budget, prior)
        for i, row in enumerate(rows)
    ]
    first = {v.id: v.outcome for v in judge_session(cases).verdicts}
    for order in list(permutations(cases))[:6]:
        assert {v.id: v.outcome for v in judge_session(order).verdicts} == first


@given(st.lists(differences(pairs=6), min_size=1, max_size=5), budgets, priors)
def test_company_never_convicts(rows, budget, prior):
    """What is not OVER alone is not OVER among others: the error rate is shared, never multiplied."""
    cases = [
        Case(pair_up(SCALARS[0], str(i), (), samples_of(SCALARS[0], [[v] for v in row])), budget, prior)
        for i, row in enumerate(rows)
    ]
    together = judge_session(cases)
    for case, verdict in zip(cases, together.verdicts, strict=True):
        if verdict.outcome is Outcome.OVER:
            assert judge_session([case]).verdicts[0].outcome is Outcome.OVER


@given(st.lists(st.lists(noise, min_size=4, max_size=4), min_size=2, max_size=6), level, budgets, priors)
def test_findings_are_ranges_of_the_curve_that_do_not_touch(rows, base, budget, prior):
    metric = METRICS["mpi_latency"]
    curve = [[base + value for value in row] for row in rows]
    verdict = judge(pair_up(metric, "here", SIZES, samples_of(metric, curve)), budget, prior=prior)
    assert bool(verdict.findings) == (verdict.outcome is Outcome.OVER)
    ranges = sorted((SIZES.index(f.low), SIZES.index(f.high)) for f in verdict.findings)
    assert all(a <= b for a, b in ranges)
    assert all(after[0] - before[1] > 1 for before, after in pairwise(ranges))


@given(metrics, differences(), budgets, priors)
def test_messages_are_short_and_have_no_broken_numbers(metric, values, budget, prior):
    text = message(judge(series_of(metric, values), budget, prior=prior))
    assert len(text.splitlines()) <= 2
    assert "nan" not in text
    assert "inf" not in text.replace("infinite", "")
    assert metric.unit in text


@given(st.floats(0.01, 0.9), st.floats(0.001, 0.09), st.floats(0.1, 100))
def test_budget_and_margin_mean_what_they_say(relative, margin, native):
    for metric, sign in ((METRICS["hpl"], -1), (METRICS["lammps_loop_time"], 1)):
        limit, extra, _ = Budget.of(relative, margin=margin).limits(metric, (), np.array([native]))
        assert math.exp(sign * limit[0]) == pytest.approx(1 + sign * relative)
        assert math.exp(sign * (limit[0] + extra[0])) == pytest.approx(1 + sign * (relative + margin))
