"""Series made to measure."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from virtqual.metrics import Metric, Metrics, load_metrics
from virtqual.pairs import Sample, Series, pair_up
from virtqual.references import References, load_references

# No test asserts a time: how long an example takes is a fact about the machine.
settings.register_profile("virtqual", deadline=None)
settings.load_profile("virtqual")

REFERENCES = Path(__file__).parents[2] / "references"


@pytest.fixture(scope="session")
def metrics() -> Metrics:
    return load_metrics(REFERENCES / "metrics")


@pytest.fixture(scope="session")
def references() -> References:
    return load_references(REFERENCES)


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
            samples.append(Sample(side, number, values, clock, clock + 5))
            clock += 10
    return samples


@pytest.fixture(scope="session")
def make() -> Callable[..., Series]:
    """Return a function that makes a series from differences d, one row (or number) per pair."""

    def build(
        metric: Metric, differences, points: Sequence[float] = (), setting: str = "here", **how
    ) -> Series:
        rows = [np.atleast_1d(row) for row in differences]
        return pair_up(metric, setting, points, samples_of(metric, rows, **how))

    return build
