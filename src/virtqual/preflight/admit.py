"""A single call decides which may be compared, for an earlier session as well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from virtqual.preflight.compare import check_runs
from virtqual.preflight.finding import Finding, refusals
from virtqual.preflight.policy import Policy
from virtqual.preflight.software import other_answers, other_inputs, other_software
from virtqual.runs import Run

Refused = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Admitted:
    """The runs of a session after admission.

    Attributes
    ----------
    runs
        All of them; the results of those that were disturbed carry the reason, and do not count.
    refused
        Reasons by name of check for which nothing of it may be judged.
    findings
        Everything in which both sides differ, or that disturbed runs, by what follows from it.
    """

    runs: tuple[Run, ...]
    refused: Refused
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
) -> Admitted:
    """Admit the runs of a session: preflight, load, what cannot be, same software, same inputs, same answers.

    Parameters
    ----------
    runs
        All of the session.
    policy
        The items of preflight, and the consequence of each.
    hypervisor_class
        The class of budgets by which the runs are judged.
    failed
        Checks of which a case failed, with the reasons: a pair that is missing may be the slow one.
    earlier
        All of the session that it is held against: a run that repeats one of them is a copy.
    """
    checked = check_runs(runs, policy, hypervisor_class, earlier)
    reasons = refusals(checked.findings)
    refused = [(check, reason) for check in dict.fromkeys(run.check for run in runs) for reason in reasons]
    # The answers of a disturbed run are as good as any, so all runs are compared.
    refused += [*other_software(checked.runs), *other_answers(checked.runs), *other_inputs(checked.runs)]
    return Admitted(checked.runs, _collected([*refused, *failed]), tuple(checked.all_findings))


def unfit_since(now: Admitted, earlier: Admitted) -> Refused:
    """Return the checks whose change since an earlier session may not be judged, with the reasons."""
    pairs = [
        (check, f"earlier session: {reason}")
        for check, reasons in earlier.refused.items()
        for reason in reasons
    ]
    return _collected([*pairs, *other_inputs([*earlier.runs, *now.runs])])


def _collected(pairs: Iterable[tuple[str, str]]) -> Refused:
    refused: dict[str, dict[str, None]] = {}
    for check, reason in pairs:
        refused.setdefault(check, {})[reason] = None
    return {check: tuple(reasons) for check, reasons in refused.items()}
