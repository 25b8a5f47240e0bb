"""Samples with stated differences, what judges them, and where the project's references are."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np

from virtqual.verdict import Case, Prior, SessionVerdict, Verdict, judge_sessions
from virtqual.verdict.budget import Budget, BudgetReason, Gate, HypervisorClass, Term
from virtqual.verdict.metric import Metric
from virtqual.verdict.pairs import Sample, Series
from virtqual.verdict.rule import LOOKS
from virtqual.verdict.slow_runs import SlowRuns
from virtqual.verdict.waiver import Waiver

REFERENCES = Path(__file__).parents[2] / "references"
#: Share of a value by which runs of one pair differ from those of the pair before.
DRIFT = 1e-6
PRIOR = Prior(sigma=0.02, df=20, source="A/A history")
FIVE = Budget.build(0.05, margin=0.05)
CHANGE = Budget.build(0.05, margin=0.05, gate="change")
KVM = HypervisorClass(
    name="kvm", gate="overhead", qualifies=True, description="KVM", reason="a reason", accelerators=("kvm",)
)
#: The last day of a waiver.
TODAY = date(2026, 6, 1)


def waiver(**change: object) -> Waiver:
    """Return a waiver of the overhead of HPL in build 9, with these fields."""
    fields = {"metric": "hpl", "gate": "overhead", "up_to": "50%", "hypervisor_class": "kvm", "build": "9"}
    return Waiver(**{**fields, "owner": "ops", "reason": "known", "expires": TODAY, **change})


def budget_of(gate: Gate = "overhead", **term: object) -> Budget:
    """Return a budget of one term."""
    return Budget(terms=(Term(reason=BudgetReason(policy="p"), **term),), gate=gate)


def stated(sigma: float, **more: object) -> Prior:
    """Return a prior whose noise is stated."""
    return Prior(**{"sigma": sigma, "df": 20, "source": "stated", **more})


def steady(level: float, pairs: int, spread: float = 0.01) -> np.ndarray:
    """Return differences around `level` whose mean is exactly that."""
    wiggle = spread * np.resize([1, -1], pairs)
    return level + wiggle - (wiggle.mean() if pairs else 0)


def at(native: Iterable[str], virtual: Iterable[str]) -> dict[str, list[str]]:
    """Return the hosts of each side by pair."""
    return {"native": list(native), "virtual": list(virtual)}


def counts(virtual: int, runs: int, native: int) -> SlowRuns:
    """Return the slow runs of sides with as many runs."""
    return SlowRuns(virtual=virtual, virtual_runs=runs, native=native, native_runs=runs, factor=1.9)


def judge_session(cases: Iterable[Case], **more: object) -> SessionVerdict:
    """Return the verdicts of one session."""
    (answer,) = judge_sessions([cases], **more)
    return answer


def alone(
    series: Series, budget: Budget, prior: Prior, looks: Sequence[int] = LOOKS, **more: object
) -> Verdict:
    """Return the verdict of a series that is the only one of its session."""
    (verdict,) = judge_session([Case(series, budget, prior, **more)], looks=looks).verdicts
    return verdict


def samples_of(
    metric: Metric,
    differences: Sequence[Sequence[float]],
    native: float = 10.0,
    first: int = 0,
    hosts: Mapping[str, Sequence[str]] | None = None,
    boots: Sequence[str] = (),
) -> list[Sample]:
    """Return samples with exactly these differences (one row per pair), in alternating order.

    The machine drifts, so that no clock shows one value again and again. `hosts` names those of each side, by
    pair; one host for all if it is not given. Names in `boots` are those of the virtual machine's boots, by
    pair.
    """
    samples = []
    clock = 1_000_000.0 + 100 * first
    for number, row in enumerate(differences, start=first):
        for side in ("native", "virtual") if number % 2 == 0 else ("virtual", "native"):
            sign = 1 if metric.better == "lower" else -1
            shift = sign * np.asarray(row, dtype=float) if side == "virtual" else np.zeros(len(row))
            values = tuple(float(value) for value in (1 + DRIFT * number) * native * np.exp(shift))
            host = "host" if hosts is None else hosts[side][number - first]
            boot = boots[number - first] if boots and side == "virtual" else ""
            samples.append(Sample(side, number, values, clock, clock + 5, host=host, boot=boot))
            clock += 10
    return samples


def in_order(samples: Iterable[Sample], order: str) -> list[Sample]:
    """Return samples one after the other, each pair led by the side that `order` has for it, N or V."""
    by_slot = {(sample.number, sample.side[0].upper()): sample for sample in samples}
    slots = [(number, side) for number, first in enumerate(order) for side in ("NV", "VN")[first == "V"]]
    return [
        replace(by_slot[slot], start=10.0 * index, end=10.0 * index + 5) for index, slot in enumerate(slots)
    ]
