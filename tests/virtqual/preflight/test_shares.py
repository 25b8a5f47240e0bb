"""Several VMs of one host against that host: each is a share of it, and together they must fit."""

import pytest
from preflight_pairs import busy, node, quiet, run
from test_rules import SIZED_TO_ONE

from virtqual.identity import NotObservable
from virtqual.preflight import shares
from virtqual.preflight.admit import admit
from virtqual.preflight.compare import check_runs, compare, compare_runs
from virtqual.preflight.policy import Policy
from virtqual.runs import Result
from virtqual.session import judge as judging
from virtqual.stack.manifest import ProcessorTarget

# Half of the memory of the host, and the CPUs of one of its two NUMA nodes.
HALF = {**SIZED_TO_ONE, r"MemTotal:\s+\d+": "MemTotal: 90000000"}


def runs(native, **vm):
    """Two pairs of a case that takes two VMs of one host, and natively one node."""
    vms = {name: node("guest", **vm) for name in ("vm1", "vm2")}
    sides = [
        (run("native", pair, native, quiet()), run("virtual", pair, vms["vm1"], quiet())) for pair in (0, 1)
    ]
    return [one for here, there in sides for one in (here, there.model_copy(update={"identity": vms}))]


def items(found):
    return {one.item for one in found if one.action != "unseen"}


def test_vms_that_fill_the_numa_nodes_of_their_host_are_compared_with_all_of_it(monkeypatch):
    """The ESX 4.1 study: two VMs, one a NUMA node, against native on both (claims S01 to S20)."""
    made = runs(node("bare"), **HALF)
    assert items(compare_runs(made, judging.policy(), "production")) == set()
    checked_runs, _ = check_runs(made, judging.policy(), "production")
    assert not [run for run in checked_runs if run.results[0].invalid]
    monkeypatch.setattr(shares, "divided", lambda native, count: [native] * count)
    assert items(compare_runs(made, judging.policy(), "production")) == {"cpu-count", "numa-spread"}


@pytest.mark.parametrize(
    ("vm", "says"),
    [
        ({r"MemTotal:\s+\d+": "MemTotal: 90000000"}, "2 VMs have 8 cores together, their host 4"),
        (SIZED_TO_ONE, "2 VMs have 351562 MiB of memory together, their host 192382"),
    ],
)
@pytest.mark.parametrize("hypervisor_class", ["kvm", "emulated"])
def test_runs_on_an_overcommitted_host_are_left_out(vm, says, hypervisor_class):
    made, policy = runs(node("bare"), **vm), judging.policy()
    checked_runs, _ = check_runs(made, policy, hypervisor_class)
    left_out = [(one.side, one.results[0].invalid) for one in checked_runs if one.results[0].invalid]
    assert [side for side, _ in left_out] == ["virtual", "virtual"]
    assert left_out[0][1] == (f"host-share: {says}",)
    # One VM beside one native node takes nothing from others, whatever its size.
    alone = [one.model_copy(update={"identity": dict([*one.identity.items()][:1])}) for one in made]
    assert "host-share" not in items(check_runs(alone, policy, hypervisor_class)[1])
    without, _ = check_runs(made, policy.without("host-share"), hypervisor_class)
    assert not [one for one in without if one.results[0].invalid]


def test_shares_are_cut_numa_node_by_numa_node():
    # The first node has the CPUs 0, 1, 4, 5.
    whole = node("bare")
    assert [one.topology.used for one in shares.divided(whole, 2)] == ["0-1,4-5", "2-3,6-7"]
    assert [one.topology.used for one in shares.divided(whole, 4)] == ["0-1", "4-5", "2-3", "6-7"]


@pytest.mark.parametrize(
    ("change", "used"),
    [
        ({"numa": NotObservable(not_observable="hidden")}, ["0-3", "4-7"]),
        # CPUs of no node that is seen come last.
        ({"numa": {"1": "6-7"}}, ["0-1,6-7", "2-5"]),
        ({"used": NotObservable(not_observable="hidden")}, [NotObservable(not_observable="hidden")] * 2),
    ],
)
def test_shares_of_a_host_of_which_not_all_is_seen(change, used):
    whole = node("bare")
    whole = whole.model_copy(update={"topology": whole.topology.model_copy(update=change)})
    assert [one.topology.used for one in shares.divided(whole, 2)] == used


@pytest.mark.parametrize(("hypervisor_class", "action"), [("esxi", "report"), ("kvm", "refuse")])
def test_the_class_decides_about_each_kind_of_rule(hypervisor_class, action):
    actions, policy = {"default": "refuse", "esxi": "report"}, judging.policy()
    entries = {
        name: entry.model_copy(update={"actions": actions, "limits_by_class": {}})
        for name, entry in policy.items.items()
    }
    entries["copied-run"].limits_by_class["esxi"] = {"chance": 1e9}
    policy = Policy(entries, policy.metrics)
    update = {"load": busy(), "communication": 0.01, "seconds": 0.5}
    made = [one.model_copy(update=update) for one in runs(node("bare"))]
    checked_runs, findings = check_runs(made, policy, hypervisor_class)
    kinds = {"foreign-load", "cpu-pressure", "communication", "impossible-time", "host-share"}
    if hypervisor_class == "esxi":
        kinds.add("copied-run")
    assert {(one.item, one.action) for one in findings} == {(item, action) for item in kinds}
    assert all(bool(one.results[0].invalid) is (action == "refuse") for one in checked_runs)
    over_tcp = made[0].model_copy(update={"results": (Result.curve("osu_latency", "two nodes", {8: 18.4}),)})
    admitted = admit([*made, over_tcp], policy, hypervisor_class, rdma_sides=["native"])
    assert {one.action for one in admitted.findings} == {action, "unseen"}
    assert {*kinds, "mpi-transport", "cpu-count"} <= items(admitted.findings)
    assert admitted.counted_runs == (admitted.runs if action == "report" else ())
    target = [ProcessorTarget(name="other", features=("none_has_it",))]
    findings = compare(node("bare"), node("guest"), policy, hypervisor_class, target)
    assert [(one.item, one.action) for one in findings[:2]] == [("stack-target", action)] * 2
    assert findings[2:] == compare(node("bare"), node("guest"), policy, hypervisor_class)
