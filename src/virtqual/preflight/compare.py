"""Apply the rules: to two nodes, to one run, and to the runs of a session."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from virtqual.identity.record import Identity, seen
from virtqual.preflight import shares
from virtqual.preflight.finding import ORDER, Action, Finding
from virtqual.preflight.policy import Policy
from virtqual.preflight.rules import RULES, Scope, Studied
from virtqual.runs import Run


def compare(native: Identity, virtual: Identity, policy: Policy, hypervisor_class: str) -> list[Finding]:
    """Return everything in which a virtual node differs from a native one.

    Parameters
    ----------
    native, virtual
        One node of each side.
    policy
        The items of preflight, and the consequence of each.
    hypervisor_class
        The class of budgets by which the runs are judged.

    Returns
    -------
    list of Finding
        The findings that refuse, then those that are reported, then the values that were not comparable.
    """
    return ranked(apply_rules("nodes", policy, hypervisor_class, native, virtual))


def apply_rules(scope: Scope, policy: Policy, hypervisor_class: str, *arguments: object) -> list[Finding]:
    """Return what the rules of a scope find, in the policy's order.

    Parameters
    ----------
    scope
        The scope whose rules are applied.
    policy
        The items of preflight, and the consequence of each.
    hypervisor_class
        The class of budgets by which the runs are judged.
    *arguments
        The arguments of the rules of this scope.
    """
    findings = []
    for item, what in _run_rules(scope, policy, hypervisor_class, *arguments):
        reason = what if seen(what) else what.not_observable
        action: Action | None = "report" if isinstance(what, Studied) else None
        if not seen(what):
            action = "unseen"
        findings.append(policy.finding(item, reason, hypervisor_class, action=action))
    return findings


def _run_rules(
    scope: Scope, policy: Policy, hypervisor_class: str, *arguments: object
) -> Iterator[tuple[str, Any]]:
    """Yield everything that the rules of a scope yield, each with its item."""
    for item, entry in policy.items.items():
        if RULES[item].scope == scope:
            for what in RULES[item].check(*arguments, entry.limits_of(hypervisor_class)):
                yield item, what


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings by what follows from them, each once."""
    return sorted(dict.fromkeys(findings), key=lambda finding: ORDER.index(finding.action))


@dataclass(frozen=True)
class Checked:
    """Runs after preflight.

    Attributes
    ----------
    runs
        All of them; the results of those that are refused carry the reason, and do not count.
    findings
        Findings of comparing both sides: a finding that refuses here refuses everything.
    disturbed
        Findings about single runs, such as their load: a finding that refuses here leaves out its run.
    """

    runs: tuple[Run, ...]
    findings: tuple[Finding, ...]
    disturbed: tuple[Finding, ...]

    @property
    def all_findings(self) -> list[Finding]:
        """All findings, those that refuse first."""
        return ranked((*self.findings, *self.disturbed))


def check_runs(
    runs: Sequence[Run], policy: Policy, hypervisor_class: str, earlier: Sequence[Run] = ()
) -> Checked:
    """Compare both sides of some runs, and refuse the runs that were disturbed, or that cannot be.

    A run without identity and load (of a session before there were any) is neither compared nor left out.
    Runs of the `earlier` session are what these are held against, and are not refused here.
    """
    checked_runs, met = [], defaultdict(list)
    by_check = defaultdict(list)
    # A session may be held against itself, and a run is no copy of itself.
    for run in {_which(run): run for run in (*earlier, *runs)}.values():
        by_check[run.check].append(run)
    among = defaultdict(list)
    for runs_of_check in by_check.values():
        for item, (run, reason) in _run_rules("among", policy, hypervisor_class, runs_of_check):
            among[_which(run)].append(policy.finding(item, reason, hypervisor_class))
    hosts = {(virtual.check, virtual.pair): _host(native, virtual) for native, virtual in _pairs(runs)}
    for run in runs:
        refused = []
        findings_of_run = apply_rules("load", policy, hypervisor_class, run.load) if run.load else []
        findings_of_run += apply_rules("run", policy, hypervisor_class, run)
        findings_of_run += apply_rules("metrics", policy, hypervisor_class, run, policy.metrics)
        findings_of_run += among.get(_which(run), ())
        if run.side == "virtual" and (host := hosts.get((run.check, run.pair))):
            findings_of_run += apply_rules(
                "shares", policy, hypervisor_class, tuple(run.identity.values()), host
            )
        for finding in findings_of_run:
            met[finding.item, run.side, finding.action].append(finding)
            if finding.action == "refuse":
                refused.append(f"{finding.item}: {finding.reason}")
        checked_runs.append(run.refusing(tuple(refused)) if refused else run)
    disturbed = []
    for (item, side, action), cases in met.items():
        count = f"{len(cases)} of {sum(run.side == side for run in runs)} {side} runs"
        count += " left out" if action == "refuse" else ""
        reason = f"{count}, the first: {cases[0].reason}"
        disturbed.append(policy.finding(item, reason, hypervisor_class, action=action))
    # An adapter lies beside one share of a host; what VMs of one host say to each other does not leave it.
    within = policy.without("hca-locality")
    compared = peers(runs)
    where: dict[Finding, list[str]] = defaultdict(list)
    for native, virtual, share in compared:
        for finding in compare(native, virtual, within if share else policy, hypervisor_class):
            where[finding].append(f"{native.node} with {virtual.node}")
    findings = [
        # Nodes are named if only some of them show it.
        finding if len(nodes) == len(compared) else finding.add_nodes(nodes)
        for finding, nodes in where.items()
    ]
    return Checked(tuple(checked_runs), tuple(ranked(findings)), tuple(disturbed))


def _which(run: Run) -> tuple[object, ...]:
    return run.check, run.pair, run.side, run.job, run.start


def _pairs(runs: Sequence[Run]) -> list[tuple[Run, Run]]:
    """Return the native and the virtual run of each pair that has both."""
    sides: dict[tuple[str, int], dict[str, Run]] = defaultdict(dict)
    for run in runs:
        sides[run.check, run.pair][run.side] = run
    return [(pair["native"], pair["virtual"]) for pair in sides.values() if len(pair) == 2]


def _host(native: Run, virtual: Run) -> Identity | None:
    """Return the native node that a run on several VMs was compared with; None where there were as many."""
    if len(native.identity) == 1 < len(virtual.identity):
        return next(iter(native.identity.values()))
    return None


def peers(runs: Sequence[Run]) -> list[tuple[Identity, Identity, bool]]:
    """Return the nodes that worked for the same pair of runs, native and virtual, each combination once.

    Only these used their CPUs alike: a run of one task says nothing of a run that fills the node.  Each
    VM is compared with a share of the native node, and this is stated, if several VMs ran beside one node.
    """
    combinations: dict[tuple[str, str], tuple[Identity, Identity, bool]] = {}
    for native, virtual in _pairs(runs):
        host, vms = _host(native, virtual), list(virtual.identity.values())
        natives = shares.divided(host, len(vms)) if host else list(native.identity.values())
        for node, vm in zip(natives, vms, strict=False):
            combinations.setdefault((node.kind, vm.kind), (node, vm, host is not None))
    return list(combinations.values())
