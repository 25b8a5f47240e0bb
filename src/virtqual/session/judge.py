"""The one judge: from a session's runs to its verdicts, in a straight line.

runs -> admit -> pair -> judge -> conclude
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache

from virtqual import paths
from virtqual.preflight.admit import Admitted, admit
from virtqual.preflight.canaries import Canary, ask_canaries
from virtqual.preflight.compare import compare_runs
from virtqual.preflight.finding import refusals
from virtqual.preflight.policy import Policy, load_policy
from virtqual.references import project_references
from virtqual.runs import Run
from virtqual.session.lost import find_explained_pairs, list_lost_runs, list_refusing_failures
from virtqual.session.pairing import cases_of, series_of
from virtqual.session.session import Session
from virtqual.verdict import SessionVerdict, judge_sessions
from virtqual.verdict.budget import HypervisorClass
from virtqual.verdict.pairs import SIDES
from virtqual.verdict.rule import LOOKS, MIN_PAIRS_TO_QUALIFY
from virtqual.verdict.slow_runs import NO_SLOW_RUNS, SlowRuns


def choose_min_pairs(hypervisor_class: HypervisorClass | None, *, fast: bool = False) -> int:
    """Return from how many pairs on a metric can be WITHIN: the first look's, if no build is qualified.

    Without a class the noise is not known well enough for two pairs.
    """
    qualifies = hypervisor_class is None or hypervisor_class.qualifies
    return MIN_PAIRS_TO_QUALIFY if qualifies and not fast else LOOKS[0]


@cache
def policy() -> Policy:
    """Return what each item of preflight means, read once a process."""
    file, site_file = (part / "preflight.yaml" for part in (paths.references(), paths.site_references()))
    return load_policy(file, project_references(), site_file)


@dataclass(frozen=True)
class Judged:
    """A session as it was judged."""

    admitted: Admitted
    #: None if no run was measured.
    verdict: SessionVerdict | None

    @property
    def unmeasured(self) -> int:
        """The number of checks that have no run that counts and hence no verdict."""
        measured = {run.check for run in self.admitted.runs}
        return len(self.admitted.refused.keys() - measured)


def judge(
    session: Session,
    *,
    earlier: Session | None = None,
    looks: Sequence[int] = LOOKS,
    share: int = 1,
    slow_before: SlowRuns = NO_SLOW_RUNS,
    today: date | None = None,
) -> Judged:
    """Judge a session from its runs and failures: the only place where a verdict is made.

    Parameters
    ----------
    earlier
        The earlier session that it is compared with.
    looks
        Numbers of pairs at which a decision is tried; one number if it was fixed before the first pair.
    share
        How many sessions share the error rate: a plain ReFrame run over several stacks is one each.
    slow_before
        Slow and lost runs of earlier sessions of this build.
    today
        The day on which waivers must hold.

    Raises
    ------
    virtqual.errors.UsageError
        The class does not exist, or no budget covers a metric.
    virtqual.verdict.pairs.PairingError
        For samples that only a bug of the harness produces.
    """
    class_name = session.hypervisor_class
    references = project_references()
    admitted = admitted_of(session, earlier=earlier)
    verdict = None
    if session.runs:
        cases = cases_of(
            admitted,
            references,
            class_name,
            system=session.system,
            # Runs of the earlier session that were disturbed or refused are no measure of a change.
            earlier=None if earlier is None else admitted_of(earlier, class_name),
            interrupted=find_explained_pairs(session),
        )
        hypervisor_class = references.hypervisor_class(class_name)
        (verdict,) = judge_sessions(
            [cases],
            hypervisor_class=hypervisor_class,
            waivers=references.waivers,
            build=session.build,
            looks=looks,
            share=share,
            slow_before=slow_before,
            today=today,
            min_pairs=choose_min_pairs(hypervisor_class, fast=session.fast),
            recreates_vms=session.recreates_vms,
            lost=list_lost_runs(session),
        )
    return Judged(admitted, verdict)


def admitted_of(session: Session, hypervisor_class: str = "", *, earlier: Session | None = None) -> Admitted:
    """Return which runs of a session may be compared, under its own class or another one.

    A run that also stands in the `earlier` session is refused.
    """
    failed = [(failure.check, failure.why) for failure in list_refusing_failures(session)]
    chosen = hypervisor_class or session.hypervisor_class
    rdma_sides = [side for side in SIDES if "rdma" in session.identity[side].get("features", ())]
    return admit(session.runs, policy(), chosen, failed, earlier.runs if earlier else (), rdma_sides)


def find_refusals(session: Session) -> tuple[str, ...]:
    """Return why preflight refuses all checks of a session, by what its runs have seen of their nodes."""
    return refusals(compare_runs(session.runs, policy(), session.hypervisor_class))


def canaries(runs: Sequence[Run]) -> tuple[Canary, ...]:
    """Return the answer of each canary on admitted runs; disturbed runs do not count."""
    max_rdma_us = policy().items["mpi-transport"].limits["latency_us"]
    assert isinstance(max_rdma_us, float)
    return ask_canaries(runs, series_of(runs, project_references()).values(), max_rdma_us)
