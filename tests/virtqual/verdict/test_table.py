"""The table must decide as `judge` does, series by series."""

from dataclasses import replace

import numpy as np
import pytest
from made_series import samples_of

from virtqual.references import Budget
from virtqual.verdict import Outcome, Prior, judge
from virtqual.verdict.pairs import PairingError, Sample, pair_up
from virtqual.verdict.table import Rules, Samples, judge_table

BUDGET, PRIOR = Budget.of(0.05, margin=0.05), Prior(0.02, 20, "history")


def table_of(lists: list[list[Sample]]) -> Samples:
    rows = [(index, sample) for index, samples in enumerate(lists) for sample in samples]
    return Samples(
        series=np.array([index for index, _ in rows], dtype=np.int64),
        number=np.array([s.number for _, s in rows], dtype=np.int64),
        virtual=np.array([s.side == "virtual" for _, s in rows], dtype=bool),
        value=np.array([s.values[0] for _, s in rows], dtype=float),
        start=np.array([s.start for _, s in rows], dtype=float),
        end=np.array([s.end for _, s in rows], dtype=float),
        refused=np.array([bool(s.invalid) for _, s in rows], dtype=bool),
    )


def rules_of(metrics) -> Rules:
    limits = [BUDGET.limits(metric, (), np.array([10.0])) for metric in metrics]
    return Rules(
        lower_is_better=np.array([metric.better == "lower" for metric in metrics]),
        limit=np.array([limit[0] for limit, _ in limits]),
        margin=np.array([margin[0] for _, margin in limits]),
        sigma=np.full(len(metrics), 0.02),
        df=20,
    )


def spoil(rng, samples):
    """Do to a series what sessions do to theirs."""
    kind = rng.integers(0, 9)
    if not samples or kind > 6:
        return samples
    i = int(rng.integers(len(samples)))
    if kind == 0:
        return [*samples[:i], *samples[i + 1 :]]
    changes = [
        {"invalid": ("loud",)},
        {"values": (float("nan"),)},
        {"values": (-1.0,)},
        {"end": samples[i].end + 6},
        {"end": samples[i].start - 1},
        {"start": samples[i].start + 1000, "end": samples[i].end + 1000},
    ]
    samples = list(samples)
    samples[i] = replace(samples[i], **changes[kind - 1])
    return samples


@pytest.fixture
def many(metrics):
    rng = np.random.default_rng(8)
    chosen = [metrics["hpl" if rng.random() < 0.5 else "lammps_loop_time"] for _ in range(300)]
    lists = []
    for metric in chosen:
        pairs = int(rng.integers(0, 21))
        d = rng.choice([0.0, 0.06, 0.08, 0.3]) + rng.normal(0, rng.choice([0.01, 0.03, 0.3]), (pairs, 1))
        lists.append(spoil(rng, samples_of(metric, d)))
    return chosen, lists


def test_every_series_is_judged_as_it_is_alone(many):
    metrics, lists = many
    table = judge_table(table_of(lists), rules_of(metrics))
    seen = set()
    for i, (metric, samples) in enumerate(zip(metrics, lists, strict=True)):
        alone = judge(pair_up(metric, "here", (), samples), BUDGET, prior=PRIOR)
        assert table.outcome(i) is alone.outcome, i
        seen.add(alone.outcome)
        assert table.pairs[i] == alone.pairs
        if alone.overhead is not None:
            assert table.overhead[i] == pytest.approx(alone.overhead.log)
            assert table.lower[i] == pytest.approx(alone.overhead.lower)
            assert table.upper[i] == pytest.approx(alone.overhead.upper)
            assert (table.native[i], table.virtual[i]) == pytest.approx((alone.native, alone.virtual))
        else:
            assert np.isnan(table.overhead[i])
    assert seen == {Outcome.WITHIN, Outcome.OVER, Outcome.UNDECIDED, Outcome.INVALID}
    assert sum(table.outcomes.values()) == len(lists)


def test_rows_may_come_in_any_order(many):
    metrics, lists = many
    table = table_of(lists)
    order = np.random.default_rng(1).permutation(len(table.series))
    shuffled = Samples(**{name: column[order] for name, column in vars(table).items()})
    one, other = judge_table(table, rules_of(metrics)), judge_table(shuffled, rules_of(metrics))
    assert one.code.tolist() == other.code.tolist()
    assert one.overhead == pytest.approx(other.overhead, nan_ok=True)


def test_an_empty_table_decides_nothing(metrics):
    verdicts = judge_table(table_of([]), rules_of([metrics["hpl"]]))
    assert verdicts.outcomes == {Outcome.UNDECIDED: 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"number": 1}, "pair 1 has a sample more than once"),
        ({"number": -1}, "pair numbers from 0"),
        ({"end": float("inf")}, "needs times at which it started and ended"),
        ({"start": float("nan")}, "needs times at which it started and ended"),
    ],
)
def test_what_only_a_bug_produces_is_refused(metrics, change, message):
    samples = samples_of(metrics["hpl"], [[0.0]] * 2)
    samples[0] = replace(samples[0], **change)
    with pytest.raises(PairingError, match=message):
        judge_table(table_of([samples]), rules_of([metrics["hpl"]]))


def test_a_series_without_rules_is_refused(metrics):
    samples = samples_of(metrics["hpl"], [[0.0]] * 2)
    with pytest.raises(PairingError, match="series run from 0 to 0"):
        judge_table(table_of([samples, samples]), rules_of([metrics["hpl"]]))
