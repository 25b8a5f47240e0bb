"""The same build again, under every class as shipped: nothing has changed, and that is the answer."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from virtqual.verdict import Case, Outcome, judge_sessions
from virtqual.verdict.pairs import SIDES
from virtqual.verdict.rule import LOOKS

SIZES = tuple(2.0**i for i in range(23))
SESSIONS = 10


@pytest.fixture(scope="module")
def families(metrics):
    """One metric of each family, of those that are judged."""
    return {metric.family: metric for metric in metrics.values() if metric.judged_up_to != 0}


def cases(rng, references, families, make, name, noise, earlier, known, hosts_known=True):
    """Return what judges a session against an earlier one, with `noise` times the stated noise in both.

    A history of the noise knows `known` times what is stated. If the hosts are unknown, boots change them.
    """
    gates = ("change",) if references.hypervisor_class(name).gate == "change" else ("overhead", "change")
    for metric in families.values():
        points = (SIZES[:3] if metric.family == "scaling" else SIZES) if metric.kind == "curve" else ()
        prior = references.prior(make(metric, [], points), hypervisor_class=name)
        spread = noise**2 * prior.covariance(len(points) or 1)
        boots = noise * prior.boots(hosts_known=hosts_known)

        def drawn(pairs, metric=metric, points=points, spread=spread, boots=boots):
            d = rng.multivariate_normal(np.zeros(len(spread)), spread, pairs) + rng.normal(0, boots)
            hosts = None if hosts_known else {side: [""] * pairs for side in SIDES}
            return make(metric, d, points, hosts=hosts)

        before, now = drawn(earlier), drawn(LOOKS[-1])
        for gate in gates:
            budget = references.budget(now, name, gate=gate)
            history = prior.model_copy(
                update={name: known * getattr(prior, name) for name in ("sigma", "common", "between")}
            )
            yield Case(now, budget, history, baseline=before if gate == "change" else None)


def to_their_end(sessions):
    """Give each series of each session the pairs that it needs, until nothing is left to run."""
    pairs = [dict.fromkeys((case.series.id for case in every), LOOKS[0]) for every in sessions]
    while True:
        judged = judge_sessions(
            [replace(c, series=replace(c.series, pairs=c.series.pairs[: had[c.series.id]])) for c in every]
            for every, had in zip(sessions, pairs, strict=True)
        )
        if not any(session.needs for session in judged):
            return judged
        for session, had in zip(judged, pairs, strict=True):
            for need in session.needs:
                had[need.series] = max(had[need.series], need.last + 1)


def changes_of(references, families, make, name, **how):
    """Return the sessions, and of all of them the verdicts about the change."""
    rng = np.random.default_rng(11)
    judged = to_their_end(
        [list(cases(rng, references, families, make, name, **how)) for _ in range(SESSIONS)]
    )
    changes = [v for session in judged for v in session.verdicts if v.gate == "change"]
    assert len(changes) == SESSIONS * len(families)
    return judged, changes


@pytest.mark.parametrize("name", ["kvm", "esxi", "production", "emulated"])
def test_the_same_build_is_within_what_may_change(references, families, make, name):
    """Half of the stated noise is what the studies behind it showed; a history of the site says so."""
    judged, _ = changes_of(references, families, make, name, noise=0.5, known=0.5, earlier=12)
    assert Counter(session.outcome for session in judged) == {Outcome.WITHIN: SESSIONS}


@pytest.mark.parametrize("name", ["kvm", "esxi", "production", "emulated"])
@pytest.mark.parametrize("earlier", [4, 18])
def test_where_only_stated_noise_is_known_nothing_worse_is_said_than_that(
    references, families, make, name, earlier
):
    """The most of noise that a statement allows for may need more pairs than there are; that is no OVER."""
    _, changes = changes_of(references, families, make, name, noise=1.0, known=1.0, earlier=earlier)
    answers = Counter(verdict.outcome for verdict in changes)
    assert answers.keys() <= {Outcome.WITHIN, Outcome.UNDECIDED}
    # Four earlier pairs do not resolve the change of noisy metrics; eighteen do, but for an unlucky draw.
    assert answers[Outcome.WITHIN] >= (0.98 if earlier == 18 else 0.5) * len(changes)


def test_where_boots_may_change_the_host_no_change_is_said_to_be_one(references, families, make):
    """Two sessions of one boot each, whose VMs nobody places, may differ by all that hosts do."""
    judged, changes = changes_of(
        references, families, make, "kvm", noise=1.0, known=1.0, earlier=18, hosts_known=False
    )
    assert {verdict.outcome for verdict in changes} == {Outcome.WITHIN, Outcome.UNDECIDED}
    assert not any(session.qualified[0] for session in judged)
