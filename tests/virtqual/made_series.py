"""Samples with the differences that a test asks for, and where the project's references are."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from virtqual.verdict import Case, Prior, SessionVerdict, Verdict, judge_sessions
from virtqual.verdict.budget import Budget
from virtqual.verdict.metric import Metric
from virtqual.verdict.pairs import Sample, Series
from virtqual.verdict.rule import LOOKS

REFERENCES = Path(__file__).parents[2] / "references"


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

    `hosts` names those of each side, by pair; one host for all if it is not given. Names in `boots` are those
    of the virtual machine's boots, by pair.
    """
    samples = []
    clock = 1_000_000.0 + 100 * first
    for number, row in enumerate(differences, start=first):
        for side in ("native", "virtual") if number % 2 == 0 else ("virtual", "native"):
            sign = 1 if metric.better == "lower" else -1
            shift = sign * np.asarray(row, dtype=float) if side == "virtual" else np.zeros(len(row))
            values = tuple(float(value) for value in native * np.exp(shift))
            host = "host" if hosts is None else hosts[side][number - first]
            boot = boots[number - first] if boots and side == "virtual" else ""
            samples.append(Sample(side, number, values, clock, clock + 5, host=host, boot=boot))
            clock += 10
    return samples
