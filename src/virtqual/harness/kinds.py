"""The two kinds of tests beside a site's own: measurements, and verdicts on them."""

from __future__ import annotations

from typing import Any

from reframe.core.pipeline import RegressionTestPlugin

#: The tag of verdict tests: ``reframe --exclude-tag verdict`` measures only.
VERDICT = "verdict"
#: Set in the jobs of ``--ci-generate``, which run one case each: how many verdicts share the error rate.
PIPELINE = "VIRTQUAL_PIPELINE"


class Measuring(RegressionTestPlugin):  # type: ignore[misc]  # ReFrame has no types
    """A test that is one run on one side; its ``record`` is a ``virtqual.runs.Run`` when it has passed."""


class Judging(RegressionTestPlugin):  # type: ignore[misc]
    """A test that measures nothing, and reports the verdict on the measurement ``case``."""


def measures(case: Any) -> bool:
    """Return whether a test case is a run on one side."""
    return isinstance(case.check, Measuring)


def judges(case: Any) -> bool:
    """Return whether a test case is a verdict."""
    return isinstance(case.check, Judging)
