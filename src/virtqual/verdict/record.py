"""Verdicts as JSON-able records that can be judged again.

A record holds the evidence (samples, budget, prior, design, earlier session) and what came out of it.
`rejudge` decides anew from the evidence alone; what came out before is for readers, and for whoever
wants to know whether a newer virtqual judges otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from typing import Any

from virtqual.references.budgets import Budget, HypervisorClass, Quantity, Reason, Term
from virtqual.references.metrics import Metric
from virtqual.references.noise import Prior
from virtqual.references.waivers import Waiver
from virtqual.verdict.design import Design
from virtqual.verdict.judge import judge
from virtqual.verdict.outcome import Estimate, Evidence, Finding, Verdict
from virtqual.verdict.pairs import Pair, Sample, Series
from virtqual.verdict.session import Case, SessionVerdict, judge_session

VERDICT_SCHEMA = "virtqual-verdict/1"
SESSION_SCHEMA = "virtqual-judged-session/1"


class RecordError(ValueError):
    """A record that cannot be judged again."""


def to_record(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict and its evidence as JSON-able data."""
    return {
        "schema": VERDICT_SCHEMA,
        "id": verdict.id,
        "outcome": verdict.outcome.value,
        "gate": verdict.gate,
        "class": verdict.budget.hypervisor_class,
        "message": verdict.message,
        "unit": verdict.metric.unit,
        "native": verdict.native,
        "virtual": verdict.virtual,
        "overhead": _estimate(verdict.overhead, verdict.metric),
        "change": _estimate(verdict.change, verdict.metric),
        "budget": verdict.budget_text,
        "limit": verdict.limit,
        "margin": verdict.margin,
        "pairs": verdict.pairs,
        "next_look": verdict.next_look,
        "needed": verdict.needed,
        "points": [
            {
                "size": point.size,
                "native": point.native,
                "virtual": point.virtual,
                "overhead": _estimate(point.overhead, verdict.metric),
                "judged": _estimate(verdict.judged and point.judged, verdict.metric),
                "limit": _finite(point.limit),
                "margin": _finite(point.margin),
            }
            for point in verdict.points
        ],
        "findings": [_finding(finding, verdict.metric) for finding in verdict.findings],
        "reasons": list(verdict.reasons),
        "waiver": None if verdict.waiver is None else _waiver(verdict.waiver),
        "waived": verdict.waived,
        "before": None if verdict.before is None else to_record(verdict.before),
        "evidence": _evidence(verdict.evidence),
    }


def rejudge(record: Mapping[str, Any]) -> Verdict:
    """Judge again from a record's evidence.

    Raises
    ------
    RecordError
        If it is no verdict record, or of a version this code does not know.
    """
    if record.get("schema") != VERDICT_SCHEMA:
        raise RecordError(f"not a {VERDICT_SCHEMA} record: schema is {record.get('schema')!r}.")
    try:
        evidence = record["evidence"]
        return judge(
            _to_series(evidence["series"]),
            _to_budget(evidence["budget"]),
            prior=_to_prior(evidence["prior"]),
            design=_to_design(evidence["design"]),
            baseline=None if evidence["baseline"] is None else _to_series(evidence["baseline"]),
            refused=tuple(evidence["refused"]),
        )
    except (KeyError, TypeError) as error:
        raise RecordError(f"the evidence of {record.get('id')!r} is incomplete: {error}.") from error


def session_to_record(session: SessionVerdict) -> dict[str, Any]:
    """Return a judged session as JSON-able data."""
    qualified, why = session.qualified
    return {
        "schema": SESSION_SCHEMA,
        "outcome": session.outcome.value,
        "outcomes": {outcome.value: count for outcome, count in sorted(session.outcomes.items(), key=str)},
        "accepted": session.accepted,
        "qualified": "yes" if qualified else f"no ({why})",
        "class": None if session.hypervisor_class is None else asdict(session.hypervisor_class),
        "alpha": session.design.alpha,
        "beta": session.design.beta,
        "today": session.today.isoformat(),
        "waivers": [_waiver(waiver) for waiver in session.waivers],
        "plan": [asdict(need) for need in session.plan.needs],
        "design": asdict(session.design),
        "cases": [_case(case) for case in session.cases],
        "build": session.build,
        "verdicts": [to_record(verdict) for verdict in session.verdicts],
    }


def rejudge_session(record: Mapping[str, Any]) -> SessionVerdict:
    """Judge a whole session again from its record, as of the day it was judged.

    Raises
    ------
    RecordError
        If it is no session record, or of a version this code does not know.
    """
    if record.get("schema") != SESSION_SCHEMA:
        raise RecordError(f"not a {SESSION_SCHEMA} record: schema is {record.get('schema')!r}.")
    try:
        return judge_session(
            [_to_case(case) for case in record["cases"]],
            design=_to_design(record["design"]),
            hypervisor_class=None if record["class"] is None else _to_class(record["class"]),
            waivers=[_to_waiver(waiver) for waiver in record["waivers"]],
            build=record["build"],
            today=date.fromisoformat(record["today"]),
        )
    except (KeyError, TypeError) as error:
        raise RecordError(f"the session record is incomplete: {error}.") from error


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _estimate(estimate: Estimate | None, metric: Metric) -> dict[str, float] | None:
    if estimate is None:
        return None
    ratio, low, high = estimate.ratio(metric)
    return {**asdict(estimate), "ratio": ratio, "ratio_low": low, "ratio_high": high}


def _finding(finding: Finding, metric: Metric) -> dict[str, Any]:
    return {
        "low": finding.low,
        "high": finding.high,
        "judged": _estimate(finding.judged, metric),
        "limit": finding.limit,
        "native": finding.native,
        "virtual": finding.virtual,
        "text": finding.text(metric),
    }


def _evidence(evidence: Evidence) -> dict[str, Any]:
    return {
        "series": _series(evidence.series),
        "budget": _budget(evidence.budget),
        "prior": asdict(evidence.prior),
        "design": asdict(evidence.design),
        "baseline": None if evidence.baseline is None else _series(evidence.baseline),
        "refused": list(evidence.refused),
    }


def _case(case: Case) -> dict[str, Any]:
    return {
        "series": _series(case.series),
        "budget": _budget(case.budget),
        "prior": asdict(case.prior),
        "baseline": None if case.baseline is None else _series(case.baseline),
        "previous": None if case.previous is None else _series(case.previous),
        "previous_budget": None if case.previous_budget is None else _budget(case.previous_budget),
        "refused": list(case.refused),
    }


def _to_case(data: Mapping[str, Any]) -> Case:
    return Case(
        series=_to_series(data["series"]),
        budget=_to_budget(data["budget"]),
        prior=_to_prior(data["prior"]),
        baseline=None if data["baseline"] is None else _to_series(data["baseline"]),
        previous=None if data["previous"] is None else _to_series(data["previous"]),
        previous_budget=None if data["previous_budget"] is None else _to_budget(data["previous_budget"]),
        refused=tuple(data["refused"]),
    )


def _series(series: Series) -> dict[str, Any]:
    return {
        "metric": series.metric.model_dump(),
        "setting": series.setting,
        "points": list(series.points),
        "yardstick": series.yardstick,
        "pairs": [
            {
                "number": pair.number,
                "native": None if pair.native is None else sample_to_record(pair.native),
                "virtual": None if pair.virtual is None else sample_to_record(pair.virtual),
                "invalid": list(pair.invalid),
            }
            for pair in series.pairs
        ],
    }


def sample_to_record(sample: Sample) -> dict[str, Any]:
    """Return a sample as JSON-able data; values that are no number become null."""
    return {
        "side": sample.side,
        "number": sample.number,
        "values": [_finite(value) for value in sample.values],
        "start": sample.start,
        "end": sample.end,
        "invalid": list(sample.invalid),
        "origin": dict(sample.origin),
        "points": list(sample.points),
    }


def sample_from_record(data: Mapping[str, Any]) -> Sample:
    """Return the sample of `sample_to_record`."""
    return Sample(
        side=data["side"],
        number=data["number"],
        values=tuple(math.nan if value is None else float(value) for value in data["values"]),
        start=data["start"],
        end=data["end"],
        invalid=tuple(data.get("invalid", ())),
        origin=dict(data.get("origin", {})),
        points=tuple(data.get("points", ())),
    )


def _to_series(data: Mapping[str, Any]) -> Series:
    pairs = tuple(
        Pair(
            pair["number"],
            None if pair["native"] is None else sample_from_record(pair["native"]),
            None if pair["virtual"] is None else sample_from_record(pair["virtual"]),
            tuple(pair["invalid"]),
        )
        for pair in data["pairs"]
    )
    metric, yardstick = Metric(**data["metric"]), data.get("yardstick", "")
    return Series(metric, data["setting"], tuple(data["points"]), pairs, yardstick)


def _quantity(value: float | Quantity | None) -> Any:
    return asdict(value) if isinstance(value, Quantity) else value


def _to_quantity(data: Any) -> Any:
    return Quantity(**data) if isinstance(data, Mapping) else data


def _budget(budget: Budget) -> dict[str, Any]:
    return {
        "class": budget.hypervisor_class,
        "gate": budget.gate,
        "terms": [
            {
                "relative": term.relative,
                "absolute": _quantity(term.absolute),
                "margin": _quantity(term.margin),
                "reason": asdict(term.reason),
                "both": term.both,
                "low": _finite(term.low),
                "high": _finite(term.high),
                "where": term.where,
                "margin_up_to": term.margin_up_to,
            }
            for term in budget.terms
        ],
    }


def _to_budget(data: Mapping[str, Any]) -> Budget:
    terms = tuple(
        Term(
            relative=term["relative"],
            absolute=_to_quantity(term["absolute"]),
            margin=_to_quantity(term["margin"]),
            reason=Reason(**term["reason"]),
            both=term["both"],
            low=-math.inf if term["low"] is None else term["low"],
            high=math.inf if term["high"] is None else term["high"],
            where=term["where"],
            margin_up_to=term.get("margin_up_to"),
        )
        for term in data["terms"]
    )
    return Budget(terms, data["class"], data["gate"])


def _to_prior(data: Mapping[str, Any]) -> Prior:
    sigma = data["sigma"]
    return Prior(**{**data, "sigma": tuple(sigma) if isinstance(sigma, list | tuple) else sigma})


def _to_design(data: Mapping[str, Any]) -> Design:
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in data.items()
    }
    return Design(**fields)


def _to_class(data: Mapping[str, Any]) -> HypervisorClass:
    return HypervisorClass(**{**data, "accelerators": tuple(data.get("accelerators", ()))})


def _waiver(waiver: Waiver) -> dict[str, Any]:
    return {**asdict(waiver), "expires": waiver.expires.isoformat()}


def _to_waiver(data: Mapping[str, Any]) -> Waiver:
    return Waiver(**{**data, "expires": date.fromisoformat(data["expires"])})
