"""From the runs of a session and its basis to its conclusion, when it ends and when it is judged again."""

from __future__ import annotations

from pathlib import Path

from virtqual.harness import catalogue
from virtqual.references import project_references
from virtqual.session.conclusion import conclude
from virtqual.session.judge import judge
from virtqual.session.session import Session
from virtqual.verdict.slow_runs import NO_SLOW_RUNS


def draw_conclusion(session: Session, earlier: Session | None, directory: Path) -> None:
    """Write the verdicts and the conclusion into a session, by its basis and the catalogue of its checks."""
    basis = session.basis
    assert basis is not None
    judged = judge(
        session,
        earlier=earlier,
        looks=basis.looks,
        share=basis.share,
        slow_before=basis.slow_before or NO_SLOW_RUNS,
        attempts=basis.attempts,
        today=basis.today,
    )
    check_set = project_references().qualifications.get(session.hypervisor_class)
    cases = []
    if check_set:
        cases = catalogue.cases_of(catalogue.read(directory / catalogue.FILE), check_set.scope)
    conclude(session, judged, check_set=check_set, cases=cases)
