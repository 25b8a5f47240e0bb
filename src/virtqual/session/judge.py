"""The one judge: from a session's runs to its verdicts, in a straight line.

runs -> admit -> pair -> judge -> conclude
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache

from virtqual import paths
from virtqual.preflight.admit import Admitted, admit, unfit_since
from virtqual.preflight.canaries import Canary, ask_canaries
from virtqual.preflight.policy import Policy, load_policy
from virtqual.references import project_references
from virtqual.runs import Run
from virtqual.session.pairing import Before, cases_of, series_of
from virtqual.session.session import Session
from virtqual.verdict import SessionVerdict, judge_sessions
from virtqual.verdict.rule import LOOKS
from virtqual.verdict.slow_runs import NO_SLOW_RUNS, SlowRuns


@cache
def policy() -> Policy:
    """Return what each item of preflight means, read once a process."""
    return load_policy(paths.references() / "preflight.yaml", project_references())


@dataclass(frozen=True)
class Judged:
    """A session as it was judged.

    Attributes
    ----------
    admitted
        Its runs, what was refused, and what was found.
    canaries
        What the measurements themselves say of features that the hypervisor may lack.
    verdict
        None where no run was admitted to be judged, since there is none.
    """

    admitted: Admitted
    canaries: tuple[Canary, ...]
    verdict: SessionVerdict | None

    @property
    def unmeasured(self) -> int:
        """How many checks have no run that counts, so that they are not among the verdicts."""
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
    session
        With all its runs so far.
    earlier
        The earlier session that it is compared with, or None.
    looks
        After how many pairs a decision is tried; one number where it was fixed before the first pair.
    share
        How many sessions share the error rate: a plain ReFrame run over several stacks is one each.
    slow_before
        Slow runs of earlier sessions of this build.
    today
        The day on which waivers must hold; None for today.

    Raises
    ------
    virtqual.errors.UsageError
        The class does not exist, or no budget covers a metric.
    virtqual.verdict.pairs.PairingError
        For what only a bug of the harness produces.
    """
    class_name = session.hypervisor_class
    admitted = admitted_of(session, earlier=earlier)
    before = None
    if earlier is not None:
        # Runs of the earlier session that were disturbed or refused are no measure of a change.
        earlier_admitted = admitted_of(earlier, class_name)
        before = Before(earlier_admitted.runs, unfit_since(admitted, earlier_admitted))
    verdict = None
    if session.runs:
        cases = cases_of(
            admitted.runs,
            project_references(),
            class_name,
            system=session.system,
            refused=admitted.refused,
            before=before,
            interrupted=find_interrupted_pairs(session),
        )
        (verdict,) = judge_sessions(
            [cases],
            hypervisor_class=project_references().hypervisor_class(class_name),
            waivers=project_references().waivers,
            build=session.build,
            looks=looks,
            share=share,
            slow_before=slow_before,
            today=today,
        )
    return Judged(admitted, canaries(admitted.runs), verdict)


def admitted_of(session: Session, hypervisor_class: str = "", *, earlier: Session | None = None) -> Admitted:
    """Return which runs of a session may be compared, under its own class or another one.

    A run that also stands in the `earlier` session is refused.
    """
    failed = [(failure.check, failure.why) for failure in session.failures]
    chosen = hypervisor_class or session.hypervisor_class
    return admit(session.runs, policy(), chosen, failed, earlier.runs if earlier else ())


def find_interrupted_pairs(session: Session) -> dict[str, frozenset[int]]:
    """Return by check the numbers of the pairs that have one run because the session was interrupted then.

    The other run was not begun, or was cancelled, and the pair was run again under another number. Pairs of a
    round that lost a node are not returned: their missing runs may be missing for their values.
    """
    lost = {loss.round for loss in session.lost}
    # Their times are in whole seconds.
    ends = [
        (datetime.fromisoformat(resumption.time).timestamp() + 1, resumption.node_lost)
        for resumption in session.resumed
    ]
    runs: dict[tuple[str, int], list[Run]] = defaultdict(list)
    for run in session.runs:
        runs[run.check, run.pair].append(run)
    interrupted: dict[str, set[int]] = defaultdict(set)
    for (check, pair), (run, *peers) in runs.items():
        if peers:
            continue
        turn = pair if run.turn is None else run.turn
        round_numbers = [
            part.number for part in session.rounds if check in (part.checks or (check,)) and turn in part
        ]
        node_lost = next((lost for time, lost in ends if time >= run.end), True)
        if not node_lost and round_numbers and round_numbers[-1] not in lost:
            interrupted[check].add(pair)
    return {check: frozenset(pairs) for check, pairs in interrupted.items()}


def canaries(runs: Sequence[Run]) -> tuple[Canary, ...]:
    """Return what every canary says of admitted runs; disturbed ones do not count."""
    return ask_canaries(runs, series_of(runs, project_references()).values())
