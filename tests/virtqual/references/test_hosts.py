"""How far hosts differ at most, by the roles in which they ran."""

import math

import pytest

from virtqual.references import References
from virtqual.references.hosts import HostSurvey
from virtqual.verdict.metric import Metric, Metrics
from virtqual.verdict.pairs import Series

STATED = {"family": "motion", "native": ["a", "b"], "virtual": ["c", "d"], "bound": 0.03, "source": "s"}
SPEED = Metric(name="speed", unit="m/s", better="higher", family="motion", description="how fast")


@pytest.mark.parametrize(
    ("means", "native", "virtual", "rotated", "bound"),
    [
        (0.01, "a", "c", False, 0.03),
        (0.01, "cd", "b", False, 0.03),
        (0.01, "ab", "cd", False, 0.03),
        # The means are compared if all hosts of both groups took turns.
        (0.01, "ab", "cd", True, 0.01),
        (0.01, "cd", "ab", True, 0.01),
        (0.01, "ab", "c", True, 0.03),
        (0.05, "ab", "cd", True, 0.03),
        (None, "ab", "cd", True, 0.03),
        # Each host must have been surveyed, and in the other group.
        (0.01, "a", "e", False, math.inf),
        (0.01, "ae", "c", False, math.inf),
        (0.01, "a", "b", False, math.inf),
        (0.01, "ab", "ce", True, math.inf),
    ],
)
def test_the_bound_of_hosts_by_their_roles(means, native, virtual, rotated, bound):
    survey = HostSurvey(**STATED, means=means)
    assert survey.bound_of(native, virtual, rotated=rotated) == bound


def test_a_host_in_both_groups_is_refused():
    with pytest.raises(ValueError, match="a, b of both groups: hosts in both roles need no bound"):
        HostSurvey(**{**STATED, "virtual": ["a", "b", "c"]})


def test_the_first_survey_of_the_metric_and_its_setting_that_covers_the_hosts_counts():
    surveys = [
        HostSurvey(**{**STATED, "setting": "hill", "bound": 0.01}),
        HostSurvey(**{**STATED, "virtual": ["c"], "bound": 0.02}),
        HostSurvey(**STATED),
        HostSurvey(**{**STATED, "family": "waiting", "virtual": ["e"]}),
    ]
    references = References(Metrics([SPEED]), surveys={"here": surveys})

    def bound_of(setting, virtual, system="here"):
        return references.host_bound(Series(SPEED, setting), system, ["a"], [virtual])

    assert (bound_of("hill", "c"), bound_of("track", "c"), bound_of("track", "d")) == (0.01, 0.02, 0.03)
    assert bound_of("track", "e") == bound_of("hill", "c", "elsewhere") == math.inf
