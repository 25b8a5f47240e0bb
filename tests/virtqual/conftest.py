"""Series made to measure."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import settings
from made_series import REFERENCES, samples_of

from virtqual.references import References, load_references
from virtqual.references.metrics import load_metrics
from virtqual.verdict.metric import Metric, Metrics
from virtqual.verdict.pairs import Series, pair_up

# No test asserts a time: how long an example takes is a fact about the machine.
settings.register_profile("virtqual", deadline=None)
settings.load_profile("virtqual")


@pytest.fixture(scope="session")
def metrics() -> Metrics:
    return load_metrics(REFERENCES / "metrics")


@pytest.fixture(scope="session")
def references() -> References:
    return load_references(REFERENCES)


@pytest.fixture(scope="session")
def make() -> Callable[..., Series]:
    """Return a function that makes a series from differences d, one row (or number) per pair."""

    def build(
        metric: Metric, differences, points: Sequence[float] = (), setting: str = "here", **how
    ) -> Series:
        rows = [np.atleast_1d(row) for row in differences]
        return pair_up(metric, setting, points, samples_of(metric, rows, **how))

    return build
