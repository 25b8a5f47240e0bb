"""Apply the rules: to two nodes, to one run, and to the runs of a session."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

from virtqual.files.wording import list_names
from virtqual.identity.record import Identity
from virtqual.preflight import shares
from virtqual.preflight.finding import ORDER, Action, Finding
from virtqual.preflight.policy import Policy
from virtqual.preflight.rules import RULES, RunsOfCheck, Scope, UnseenError
from virtqual.preflight.software import group_by_check
from virtqual.runs import Run
from virtqual.stack.manifest import ProcessorTarget

MAX_NAMED_NODES = 3


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
    for item, entry in policy.items.items():
        if RULES[item].scope == scope:
            try:
                for what in RULES[item].check(*arguments, **entry.limits_of(hypervisor_class)):
                    findings.append(policy.finding(item, what, hypervisor_class))
            except UnseenError as error:
                findings.append(policy.finding(item, error.args[0], hypervisor_class))
    return findings


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
    # A session that is compared with itself has each run once.
    all_runs = {_key(run): run for run in [*earlier, *runs]}.values()
    runs_by_check = {check: RunsOfCheck(group) for check, group in group_by_check(all_runs)}
    hosts = {_key(virtual): _find_host(native, virtual) for native, virtual in _pair(runs)}
    checked_runs = []
    findings_by_item: dict[tuple[str, str, Action], list[Finding]] = defaultdict(list)
    for run in runs:
        findings = apply_rules("load", policy, hypervisor_class, run.load) if run.load else []
        group = runs_by_check[run.check]
        findings += apply_rules("run", policy, hypervisor_class, run, group, policy.metrics)
        if host := hosts.get(_key(run)):
            vms = tuple(run.identity.values())
            findings += apply_rules("shares", policy, hypervisor_class, vms, host)
        for finding in findings:
            findings_by_item[finding.item, run.side, finding.action].append(finding)
        reasons = [f"{finding.item}: {finding.reason}" for finding in findings if finding.action == "refuse"]
        checked_runs.append(run.refusing(tuple(reasons)) if reasons else run)
    run_counts: Counter[str] = Counter(run.side for run in runs)
    summaries = []
    for (_, side, action), findings in findings_by_item.items():
        left_out = " left out" if action == "refuse" else ""
        count = f"{len(findings)} of {run_counts[side]} {side} runs{left_out}"
        summaries.append(findings[0].prefix(f"{count}, the first"))
    return tuple(checked_runs), summaries


def check_transport(
    runs: Sequence[Run], policy: Policy, hypervisor_class: str, sides: Collection[str]
) -> dict[str, Finding]:
    """Return by side the first finding of messages that did not go over the RDMA of their partition."""
    first_findings = {}
    for side in sides:
        for run in (run for run in runs if run.side == side):
            if findings := apply_rules("rdma", policy, hypervisor_class, run):
                first_findings[side] = findings[0].prefix(side)
                break
    return first_findings


def compare_runs(runs: Sequence[Run], policy: Policy, hypervisor_class: str) -> list[Finding]:
    """Return the differences of the nodes of each pair of runs; one that refuses is for all checks."""
    # An adapter lies beside one share of a host, and messages between VMs of one host do not leave it.
    policy_within_host = policy.without("hca-locality")
    node_pairs = peers(runs)
    nodes_by_finding: dict[Finding, list[str]] = defaultdict(list)
    for native, virtual, is_share in node_pairs:
        policy_of_pair = policy_within_host if is_share else policy
        for finding in compare(native, virtual, policy_of_pair, hypervisor_class):
            nodes_by_finding[finding].append(f"{native.name} with {virtual.name}")
    return rank(
        # Nodes are named if only some of them show the finding.
        finding if len(nodes) == len(node_pairs) else finding.prefix(list_names(nodes, MAX_NAMED_NODES))
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

    Only these used their CPUs alike: a run of one task says nothing of a run that fills the node. Each VM is
    compared with a share of the native node, and this is stated, if several VMs ran beside one node.
    """
    combinations: dict[tuple[str, str], tuple[Identity, Identity, bool]] = {}
    for native, virtual in _pair(runs):
        host, vms = _find_host(native, virtual), list(virtual.identity.values())
        natives = shares.divided(host, len(vms)) if host else list(native.identity.values())
        for node, vm in zip(natives, vms, strict=False):
            combinations.setdefault((node.kind, vm.kind), (node, vm, host is not None))
    return list(combinations.values())
