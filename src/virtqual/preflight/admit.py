"""Admit the runs of a session, or of an earlier session, to the comparison."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from virtqual.preflight.compare import check_runs, check_transport, compare_runs, rank
from virtqual.preflight.finding import Finding, refusals
from virtqual.preflight.policy import Policy
from virtqual.preflight.software import other_answers, other_inputs, other_software
from virtqual.runs import Run

Refused = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Admitted:
    """The runs of a session after admission."""

    #: All runs; results of a refused run carry the reason, and do not count.
    runs: tuple[Run, ...]
    #: Reasons for which nothing of a check may be judged, by the name of the check.
    refused: Refused
    #: All differences of the sides and disturbances of runs, those that refuse first.
    findings: tuple[Finding, ...]

    @property
    def counted_runs(self) -> tuple[Run, ...]:
        """The runs of checks of which nothing is refused."""
        return tuple(run for run in self.runs if run.check not in self.refused)


def admit(
    runs: Sequence[Run],
    policy: Policy,
    hypervisor_class: str,
    failed: Iterable[tuple[str, str]] = (),
    earlier: Sequence[Run] = (),
    rdma_sides: Collection[str] = (),
) -> Admitted:
    """Admit the runs of a session: preflight, load, impossible values, same software, inputs and answers.

    Parameters
    ----------
    failed
        Checks of which a case failed, with the reasons: a pair that is missing may be the slow one.
    earlier
        The runs of the session that this one is compared with: a run that repeats one of them is a copy.
    rdma_sides
        The sides whose partition has the feature ``rdma``.
    """
    checked_runs, run_findings = check_runs(runs, policy, hypervisor_class, earlier)
    findings = compare_runs(runs, policy, hypervisor_class)
    reasons = refusals(findings)
    refused = [(run.check, reason) for run in runs for reason in reasons]
    # The answers of a disturbed run are as good as any, so all runs are compared.
    refused += [*other_software(runs), *other_answers(runs), *other_inputs(runs)]
    transport_findings = check_transport(runs, policy, hypervisor_class, rdma_sides)
    # perftest needs no MPI.
    mpi_runs = [
        run for run in runs if len(run.nodes) > 1 and any("mpi" in node.says for node in run.software)
    ]
    for side, finding in transport_findings.items():
        reasons = refusals([finding])
        refused += [(run.check, reason) for run in mpi_runs if run.side == side for reason in reasons]
    all_findings = rank([*findings, *run_findings, *transport_findings.values()])
    return Admitted(checked_runs, _collect_reasons([*refused, *failed]), tuple(all_findings))


def unfit_since(now: Admitted, earlier: Admitted) -> Refused:
    """Return the checks whose change since an earlier session may not be judged, with the reasons."""
    refused = [
        (check, f"earlier session: {reason}")
        for check, reasons in earlier.refused.items()
        for reason in reasons
    ]
    return _collect_reasons([*refused, *other_inputs([*earlier.runs, *now.runs])])


def _collect_reasons(reasons_of_checks: Iterable[tuple[str, str]]) -> Refused:
    """Return each reason once, by check."""
    refused: dict[str, dict[str, None]] = {}
    for check, reason in reasons_of_checks:
        refused.setdefault(check, {})[reason] = None
    return {check: tuple(reasons) for check, reasons in refused.items()}
