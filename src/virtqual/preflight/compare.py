"""Apply the rules: to two nodes, to one run, and to the runs of a session."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from virtqual.identity.record import Identity, seen
from virtqual.preflight import shares
from virtqual.preflight.finding import ORDER, Action, Finding
from virtqual.preflight.policy import Policy
from virtqual.preflight.rules import RULES, Scope, Studied, UnseenError
from virtqual.runs import Run
from virtqual.stack.manifest import ProcessorTarget


def compare(
    native: Identity,
    virtual: Identity,
    policy: Policy,
    hypervisor_class: str,
    targets: Sequence[ProcessorTarget] = (),
) -> list[Finding]:
    """Return all differences of a virtual node from a native one, those that refuse first.

    With the `targets` of a stack, the processors that cannot run its programs are returned as well.
    """
    findings = apply_rules("nodes", policy, hypervisor_class, native, virtual)
    if targets:
        findings += apply_rules("stack", policy, hypervisor_class, native, virtual, targets)
    return rank(findings)


def apply_rules(scope: Scope, policy: Policy, hypervisor_class: str, *arguments: object) -> list[Finding]:
    """Return what the rules of a scope find, in the policy's order; `Scope` lists their arguments."""
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
            try:
                for what in RULES[item].check(*arguments, entry.limits_of(hypervisor_class)):
                    yield item, what
            except UnseenError as error:
                yield item, error.args[0]


def rank(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings by what follows from them, each once."""
    return sorted(dict.fromkeys(findings), key=lambda finding: ORDER.index(finding.action))


def check_runs(
    runs: Sequence[Run], policy: Policy, hypervisor_class: str, earlier: Sequence[Run] = ()
) -> tuple[tuple[Run, ...], list[Finding]]:
    """Return the runs, of which refused ones carry the reason, and a finding for each item of one side.

    Runs of the `earlier` session are compared with these, and are not refused. A run without identity or load
    is not checked for them.
    """
    findings_of_copies = _check_among_runs([*earlier, *runs], policy, hypervisor_class)
    hosts = {(virtual.check, virtual.pair): _find_host(native, virtual) for native, virtual in _pair(runs)}
    checked_runs = []
    findings_by_item: dict[tuple[str, str, Action], list[Finding]] = defaultdict(list)
    for run in runs:
        host = hosts.get((run.check, run.pair)) if run.side == "virtual" else None
        findings = [
            *(apply_rules("load", policy, hypervisor_class, run.load) if run.load else ()),
            *apply_rules("run", policy, hypervisor_class, run),
            *apply_rules("metrics", policy, hypervisor_class, run, policy.metrics),
            *findings_of_copies.get(_key(run), ()),
            *(
                apply_rules("shares", policy, hypervisor_class, tuple(run.identity.values()), host)
                if host
                else ()
            ),
        ]
        for finding in findings:
            findings_by_item[finding.item, run.side, finding.action].append(finding)
        reasons = [f"{finding.item}: {finding.reason}" for finding in findings if finding.action == "refuse"]
        checked_runs.append(run.refusing(tuple(reasons)) if reasons else run)
    run_counts: Counter[str] = Counter(run.side for run in runs)
    return tuple(checked_runs), [
        _summarise(findings, f"{len(findings)} of {run_counts[side]} {side} runs")
        for (_, side, _), findings in findings_by_item.items()
    ]


def check_transport(
    runs: Sequence[Run], policy: Policy, hypervisor_class: str, sides: Collection[str]
) -> dict[str, Finding]:
    """Return by side a finding for the runs whose messages did not go over the RDMA of their partition."""
    findings_by_side: dict[str, list[Finding]] = {side: [] for side in sides}
    for run in runs:
        if run.side in findings_by_side:
            findings_by_side[run.side] += apply_rules("rdma", policy, hypervisor_class, run)
    return {
        side: findings[0].model_copy(update={"reason": f"{side}: {findings[0].reason}"})
        for side, findings in findings_by_side.items()
        if findings
    }


def _check_among_runs(
    runs: Sequence[Run], policy: Policy, hypervisor_class: str
) -> dict[tuple[object, ...], list[Finding]]:
    """Return the findings of the rules that compare all runs of a check, by run."""
    # A session that is compared with itself has each run once.
    by_check = defaultdict(list)
    for run in {_key(run): run for run in runs}.values():
        by_check[run.check].append(run)
    findings = defaultdict(list)
    for runs_of_check in by_check.values():
        for item, (run, reason) in _run_rules("among", policy, hypervisor_class, runs_of_check):
            findings[_key(run)].append(policy.finding(item, reason, hypervisor_class))
    return findings


def _summarise(findings: Sequence[Finding], count: str) -> Finding:
    """Return the first of some findings, with the number of runs that have it."""
    first = findings[0]
    left_out = " left out" if first.action == "refuse" else ""
    return first.model_copy(update={"reason": f"{count}{left_out}, the first: {first.reason}"})


def compare_runs(runs: Sequence[Run], policy: Policy, hypervisor_class: str) -> list[Finding]:
    """Return the differences of the nodes of each pair of runs; one that refuses is for all checks."""
    # An adapter lies beside one share of a host, and messages between VMs of one host do not leave it.
    policy_within_host = policy.without("hca-locality")
    node_pairs = peers(runs)
    nodes_by_finding: dict[Finding, list[str]] = defaultdict(list)
    for native, virtual, is_share in node_pairs:
        policy_of_pair = policy_within_host if is_share else policy
        for finding in compare(native, virtual, policy_of_pair, hypervisor_class):
            nodes_by_finding[finding].append(f"{native.node} with {virtual.node}")
    return rank(
        # Nodes are named if only some of them show the finding.
        finding if len(nodes) == len(node_pairs) else finding.add_nodes(nodes)
        for finding, nodes in nodes_by_finding.items()
    )


def _key(run: Run) -> tuple[object, ...]:
    return run.check, run.pair, run.side, run.job, run.start


def _pair(runs: Sequence[Run]) -> list[tuple[Run, Run]]:
    """Return the native and the virtual run of each pair that has both."""
    sides: dict[tuple[str, int], dict[str, Run]] = defaultdict(dict)
    for run in runs:
        sides[run.check, run.pair][run.side] = run
    return [(pair["native"], pair["virtual"]) for pair in sides.values() if len(pair) == 2]


def _find_host(native: Run, virtual: Run) -> Identity | None:
    """Return the native node that a run on several VMs was compared with; None if there were as many."""
    if len(native.identity) == 1 < len(virtual.identity):
        return next(iter(native.identity.values()))
    return None


def peers(runs: Sequence[Run]) -> list[tuple[Identity, Identity, bool]]:
    """Return the nodes that worked for the same pair of runs, native and virtual, each combination once.

    Only these used their CPUs alike: a run of one task says nothing of a run that fills the node.  Each
    VM is compared with a share of the native node, and this is stated, if several VMs ran beside one node.
    """
    combinations: dict[tuple[str, str], tuple[Identity, Identity, bool]] = {}
    for native, virtual in _pair(runs):
        host, vms = _find_host(native, virtual), list(virtual.identity.values())
        natives = shares.divided(host, len(vms)) if host else list(native.identity.values())
        for node, vm in zip(natives, vms, strict=False):
            combinations.setdefault((node.kind, vm.kind), (node, vm, host is not None))
    return list(combinations.values())
