"""Samples with the differences that a test asks for, and where the project's references are."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from virtqual.references.metrics import Metric
from virtqual.verdict.pairs import Sample

REFERENCES = Path(__file__).parents[2] / "references"


def samples_of(
    metric: Metric, differences: Sequence[Sequence[float]], native: float = 10.0, first: int = 0
) -> list[Sample]:
    """Return samples with exactly these differences (one row per pair), in alternating order."""
    samples = []
    clock = 1_000_000.0 + 100 * first
    for number, row in enumerate(differences, start=first):
        for side in ("native", "virtual") if number % 2 == 0 else ("virtual", "native"):
            sign = 1 if metric.better == "lower" else -1
            shift = sign * np.asarray(row, dtype=float) if side == "virtual" else np.zeros(len(row))
            values = tuple(float(value) for value in native * np.exp(shift))
            samples.append(Sample(side, number, values, clock, clock + 5, host="host"))
            clock += 10
    return samples
