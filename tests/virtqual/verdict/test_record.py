"""A verdict as plain data: a contract with whoever reads session.json."""

import json

import numpy as np
import pytest
from made_series import alone

from virtqual.verdict import Outcome, Prior, Verdict
from virtqual.verdict.budget import Budget

PRIOR = Prior(sigma=0.03, df=20, source="A/A history", common=0.01)
SIZES = tuple(2.0**i for i in range(12))


@pytest.fixture
def curve(metrics, make):
    rows = np.random.default_rng(1).normal(0, 0.02, (8, 12))
    rows[:, 4:8] += 0.4
    return make(metrics["mpi_latency"], rows, SIZES, native=2.0)


def test_a_record_says_what_was_decided(curve):
    record = alone(curve, Budget.of(0.05, margin=0.1), PRIOR)
    assert (record.series, record.gate, record.outcome) == ("mpi_latency@here", "overhead", Outcome.OVER)
    assert (record.unit, record.better, record.pairs, record.waived) == ("us", "lower", 8, False)
    assert record.judged == record.overhead
    assert record.overhead.ratio == pytest.approx(np.exp(record.overhead.log))
    assert [point.size for point in record.points] == list(SIZES)
    (finding,) = record.findings
    assert (finding.low, finding.high) == (16, 128)
    assert finding.text in record.message


def test_its_keys_are_a_contract(curve):
    """No sample stands in it: those are the runs', once."""
    record = alone(curve, Budget.of(0.05, margin=0.1), PRIOR, baseline=curve)
    plain = json.loads(record.model_dump_json())
    assert list(plain) == [
        *("metric", "setting", "gate", "outcome", "unit", "better", "native", "virtual", "overhead"),
        *("change", "budget", "limit", "margin", "pairs", "next_pairs", "spread", "points", "findings"),
        *("reasons", "waiver", "waived", "hosts", "native_hosts", "virtual_hosts", "confounded", "message"),
    ]
    assert list(plain["overhead"]) == ["log", "lower", "upper", "ratio", "low", "high"]
    assert (plain["gate"], plain["change"]["log"]) == ("change", 0)


def test_an_endless_bound_is_nothing_in_json(metrics, make):
    """JSON has no infinity; one value bounds nothing."""
    series = make(metrics["hpl"], [0.1])
    record = alone(series, Budget.of(0.05, margin=0.1), Prior(sigma=0.03, df=1, source="little"))
    text = record.model_dump_json()
    assert Verdict.model_validate_json(text) == record
    assert "NaN" not in text
    assert "Infinity" not in text


def test_a_record_says_where_the_pairs_ran(metrics, make):
    """By what factor each host is slower, where roles were exchanged; whether hosts may be the overhead."""
    virtual = np.array(list("baab" * 2))
    hosts = {"native": list("abba" * 2), "virtual": list(virtual)}
    d = np.where(virtual == "a", 0.2, -0.2)
    budget = Budget.of(0.05, margin=0.1)
    record = alone(make(metrics["hpl"], d, hosts=hosts), budget, PRIOR)
    assert (record.outcome, record.confounded) == (Outcome.WITHIN, False)
    assert record.hosts == pytest.approx({"a": np.exp(0.1), "b": np.exp(-0.1)})
    fixed = {"native": ["a"] * 8, "virtual": ["b"] * 8}
    record = alone(make(metrics["hpl"], d, hosts=fixed), budget, PRIOR)
    assert (record.outcome, record.confounded, record.hosts) == (Outcome.INVALID, True, {})
    assert Verdict.model_validate_json(record.model_dump_json()) == record
    assert (record.overhead.lower, record.overhead.upper) == (None, None)
