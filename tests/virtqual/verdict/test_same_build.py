"""The same build again, under every class as shipped: nothing has changed, and that is the answer."""

from collections import Counter

import numpy as np
import pytest

from virtqual.qualify.plan import FIRST_PAIRS
from virtqual.verdict import Case, Outcome, judge_session

SIZES = tuple(2.0**i for i in range(23))
SESSIONS = 10


@pytest.fixture(scope="module")
def families(metrics):
    """One metric of each family that is judged; yardsticks only compare two sessions' native nodes."""
    return {metric.family: metric for metric in metrics.values() if metric.family != "yardstick"}


def cases(rng, references, families, make, name, noise):
    """Return what judges a session against an earlier one, with `noise` times the stated noise in both."""
    gates = ("change",) if references.hypervisor_class(name).gate == "change" else ("overhead", "change")
    for metric in families.values():
        points = (SIZES[:3] if metric.family == "scaling" else SIZES) if metric.kind == "curve" else ()
        prior = references.prior(make(metric, [], points), hypervisor_class=name)
        spread = noise**2 * prior.covariance(len(points) or 1)

        def drawn(pairs, metric=metric, points=points, spread=spread, between=noise * prior.between):
            d = rng.multivariate_normal(np.zeros(len(spread)), spread, pairs) + rng.normal(0, between)
            return make(metric, d, points)

        before, now = drawn(FIRST_PAIRS), drawn(18)
        for gate in gates:
            budget = references.budget(now, name, gate=gate)
            yield Case(now, budget, prior, baseline=before if gate == "change" else None)


def to_its_end(every):
    """Give each series the pairs that the plan asks for, until nothing is left to run."""
    pairs = dict.fromkeys((case.series.id for case in every), FIRST_PAIRS)
    while True:
        session = judge_session(
            Case(c.series.first(pairs[c.series.id]), c.budget, c.prior, baseline=c.baseline) for c in every
        )
        if session.plan.complete:
            return session
        for need in session.plan.needs:
            pairs[need.series] = max(pairs[need.series], need.last + 1)


@pytest.mark.parametrize("name", ["kvm", "esxi", "production", "emulated"])
@pytest.mark.parametrize("noise", [0.5, 1.0])
def test_the_same_build_is_within_what_may_change(references, families, make, name, noise):
    """Half of the stated noise is what the studies behind it showed; all of it is the worst it allows for."""
    rng = np.random.default_rng(11)
    sessions = [
        to_its_end(list(cases(rng, references, families, make, name, noise))) for _ in range(SESSIONS)
    ]
    changes = Counter(v.outcome for session in sessions for v in session.verdicts if v.gate == "change")
    assert changes.total() == SESSIONS * len(families)
    if noise == 0.5:
        assert {session.outcome for session in sessions} == {Outcome.WITHIN}
    else:
        assert changes[Outcome.WITHIN] >= 0.9 * changes.total()
        assert not changes[Outcome.OVER]
