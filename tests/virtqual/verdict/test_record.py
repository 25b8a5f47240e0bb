import json
from datetime import date

import numpy as np
import pytest

from virtqual.references import Budget, HypervisorClass, Quantity, Waiver
from virtqual.verdict import (
    Case,
    Design,
    Outcome,
    Prior,
    RecordError,
    judge,
    judge_session,
    rejudge,
    rejudge_session,
    sample_from_record,
    sample_to_record,
)

PRIOR = Prior(0.03, 20, "A/A history", common=0.01)
SIZES = tuple(2.0**i for i in range(12))


def through_json(data):
    return json.loads(json.dumps(data, allow_nan=False))


@pytest.fixture
def curve(metrics, make):
    rows = np.random.default_rng(1).normal(0, 0.02, (4, 12))
    rows[:, 4:8] += 0.4
    return make(metrics["mpi_latency"], rows, SIZES, native=2.0)


def test_a_record_is_judged_again_to_the_same_record(curve):
    budget = Budget.of(0.05, absolute=Quantity(0.1, "us"), margin=0.1)
    record = through_json(judge(curve, budget, prior=PRIOR).to_record())
    assert record["outcome"] == "OVER"
    assert through_json(rejudge(record).to_record()) == record


def test_a_change_is_judged_again(curve):
    budget = Budget.of(0.05, margin=0.1, gate="change")
    record = through_json(judge(curve, budget, prior=PRIOR, baseline=curve).to_record())
    assert record["change"]["log"] == 0
    assert through_json(rejudge(record).to_record()) == record


def test_it_is_the_evidence_that_decides(curve):
    record = through_json(judge(curve, Budget.of(0.05, margin=0.1), prior=PRIOR).to_record())
    record["evidence"]["budget"]["terms"][0]["relative"] = 1.0
    assert rejudge(record).outcome is Outcome.WITHIN


def test_a_value_that_is_no_number_survives_json(metrics):
    from made_series import samples_of

    from virtqual.verdict.pairs import pair_up

    runs = samples_of(metrics["hpl"], [[0.0]] * 3)
    runs[0] = type(runs[0])("native", 0, (float("nan"),), runs[0].start, runs[0].end)
    series = pair_up(metrics["hpl"], "here", (), runs)
    record = through_json(judge(series, Budget.of(0.05, margin=0.1), prior=PRIOR).to_record())
    assert record["evidence"]["series"]["pairs"][0]["native"]["values"] == [None]
    assert through_json(rejudge(record).to_record()) == record


def test_a_session_is_judged_again_to_the_same_record(metrics, make, curve):
    kvm = HypervisorClass("kvm", "overhead", True, "KVM", "a reason")
    waiver = Waiver("hpl", None, "overhead", 0.5, "kvm", "b1", "ops", "known", date(2026, 6, 1))
    five = Budget.of(0.05, margin=0.05)
    cases = [
        Case(curve, Budget.of(0.05, margin=0.1), PRIOR),
        Case(
            make(metrics["hpl"], [0.5] * 4),
            five,
            PRIOR,
            previous=make(metrics["hpl"], [0.4] * 4),
            previous_budget=five,
        ),
        Case(make(metrics["dgemm"], []), five, PRIOR),
        Case(make(metrics["fft"], [3.0] * 2), Budget.of(0.1, margin=0.1, gate="change"), PRIOR),
    ]
    session = judge_session(cases, hypervisor_class=kvm, waivers=[waiver], build="b1", today=date(2026, 5, 1))
    record = through_json(session.to_record())
    assert record["plan"] == [
        {
            "series": "dgemm@here",
            "first": 0,
            "last": 1,
            "reason": "0 of the 2 pairs that the first look needs",
        }
    ]
    assert record["qualified"] == "no (over)"
    assert through_json(rejudge_session(record).to_record()) == record


@pytest.mark.parametrize("again", [rejudge, rejudge_session])
def test_another_schema_is_refused(again):
    with pytest.raises(RecordError, match="schema is 'other/7'"):
        again({"schema": "other/7"})
    with pytest.raises(RecordError, match="schema is None"):
        again({})


def test_a_record_without_evidence_is_refused(curve):
    record = judge(curve, Budget.of(0.05, margin=0.1), prior=PRIOR).to_record()
    del record["evidence"]["prior"]
    with pytest.raises(RecordError, match=r"evidence of 'mpi_latency@here' is incomplete: 'prior'"):
        rejudge(record)


VERDICT_KEYS = [
    *("schema", "id", "outcome", "gate", "class", "message", "unit", "native", "virtual", "overhead"),
    *("change", "budget", "limit", "margin", "pairs", "next_look", "needed", "points", "findings"),
    *("reasons", "waiver", "waived", "before", "evidence"),
]
SESSION_KEYS = [
    *("schema", "outcome", "outcomes", "accepted", "qualified", "class", "alpha", "beta", "today", "waivers"),
    *("plan", "design", "cases", "build", "verdicts"),
]


def test_the_keys_of_a_record_are_a_contract(curve):
    budget = Budget.of(0.05, margin=0.1, hypervisor_class="kvm")
    record = judge(curve, budget, prior=PRIOR).to_record()
    assert list(record) == VERDICT_KEYS
    assert (record["schema"], record["id"], record["gate"]) == (
        "virtqual-verdict/1",
        "mpi_latency@here",
        "overhead",
    )
    assert (record["class"], record["unit"], record["pairs"], record["waived"]) == ("kvm", "us", 2, False)
    assert list(record["overhead"]) == ["log", "lower", "upper", "ratio", "ratio_low", "ratio_high"]
    assert record["overhead"]["ratio"] == pytest.approx(np.exp(record["overhead"]["log"]))
    assert list(record["points"][0]) == ["size", "native", "virtual", "overhead", "judged", "limit", "margin"]
    (finding,) = record["findings"]
    assert list(finding) == ["low", "high", "judged", "limit", "native", "virtual", "text"]
    assert (finding["low"], finding["high"]) == (16, 128)
    assert list(record["evidence"]) == ["series", "budget", "prior", "design", "baseline", "refused"]
    sample = record["evidence"]["series"]["pairs"][0]["native"]
    assert list(sample) == ["side", "number", "values", "start", "end", "invalid", "origin", "points"]


def test_the_keys_of_a_session_record_are_a_contract(metrics, make):
    kvm = HypervisorClass("kvm", "overhead", True, "KVM", "a reason", ("kvm",))
    case = Case(make(metrics["hpl"], [0.0] * 2), Budget.of(0.05, margin=0.05), PRIOR)
    session = judge_session([case], hypervisor_class=kvm, build="b1", today=date(2026, 5, 1))
    record = through_json(session.to_record())
    assert list(record) == SESSION_KEYS
    assert record["schema"] == "virtqual-judged-session/1"
    assert (record["outcome"], record["outcomes"], record["qualified"]) == ("WITHIN", {"WITHIN": 1}, "yes")
    assert (record["alpha"], record["beta"]) == (Design().alpha, Design().beta)
    assert (record["build"], record["today"]) == ("b1", "2026-05-01")
    assert record["class"]["accelerators"] == ["kvm"]
    again = rejudge_session(record)
    assert again.hypervisor_class == kvm
    assert again.verdicts[0].outcome is Outcome.WITHIN


def test_all_evidence_comes_back(metrics):
    from dataclasses import replace

    from made_series import samples_of

    from virtqual.verdict.pairs import pair_up

    runs = samples_of(metrics["mpi_latency"], [[0.0, 0.1]] * 3)
    runs[0] = replace(runs[0], origin={"job": "7"}, points=(1.0, 2.0))
    runs[2] = replace(runs[2], invalid=("loud",))
    series = pair_up(metrics["mpi_latency"], "here", (1.0, 2.0), runs)
    design = Design(alpha=0.004)
    verdict = judge(
        series,
        Budget.of(0.05, margin=0.1, gate="change"),
        prior=Prior((0.1, 0.2), 7, "history", common=0.02, between=0.01),
        design=design,
        baseline=series,
        refused=("because",),
    )
    again = rejudge(through_json(verdict.to_record())).evidence
    assert again.series == series
    assert again.series.pairs[0].native.origin == {"job": "7"}
    assert again.baseline == series
    assert (again.design, again.prior, again.refused) == (design, verdict.evidence.prior, ("because",))
    assert again.budget == verdict.evidence.budget


def test_all_of_a_sessions_cases_come_back(metrics, make):
    series, design = make(metrics["hpl"], [0.0] * 4), Design(alpha=0.004)
    case = Case(
        series,
        Budget.of(0.05, margin=0.05, gate="change"),
        PRIOR,
        baseline=make(metrics["hpl"], [0.1] * 4),
        refused=("because",),
    )
    session = judge_session([case], design=design, today=date(2026, 5, 1))
    again = rejudge_session(through_json(session.to_record()))
    (back,) = again.cases
    assert (back.series, back.baseline, back.refused) == (case.series, case.baseline, case.refused)
    assert (again.design, again.hypervisor_class) == (design, None)
    record = through_json(session.to_record())
    assert record["class"] is None
    del record["build"]
    with pytest.raises(RecordError, match="the session record is incomplete: 'build'"):
        rejudge_session(record)


def test_a_sample_may_leave_out_what_it_does_not_know():
    sample = sample_from_record(
        {"side": "native", "number": 0, "values": [1, None], "start": 0.0, "end": 1.0}
    )
    assert (sample.invalid, sample.origin, sample.points) == ((), {}, ())
    assert sample.values[0] == 1.0
    assert np.isnan(sample.values[1])
    assert sample_to_record(sample)["values"] == [1.0, None]


def test_a_pair_without_native_and_budgets_by_size_come_back(metrics):
    from made_series import samples_of

    from virtqual.references import Reason, Term
    from virtqual.verdict.pairs import pair_up

    runs = samples_of(metrics["mpi_latency"], [[0.0, 0.1]] * 3)
    del runs[0]
    series = pair_up(metrics["mpi_latency"], "here", (1.0, 2.0), runs)
    ranges = ((1.0, 1.0), (2.0, 64.0))
    terms = [Term(0.1, None, 0.1, Reason("claim", "D01"), low=a, high=b, where="f:3") for a, b in ranges]
    verdict = judge(series, Budget(tuple(terms), "kvm"), prior=PRIOR)
    again = rejudge(through_json(verdict.to_record())).evidence
    assert again.series == series
    assert again.series.pairs[0].native is None
    assert again.budget == verdict.evidence.budget
