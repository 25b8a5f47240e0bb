"""Runs of a session that holds many nodes: each of them works, and each native one meets each VM."""

import json
from collections import Counter
from types import SimpleNamespace

import pytest

from following import ended
from virtqual.harness import catalogue
from virtqual.harness.steps import NodeQueue
from virtqual.qualify import allocations, plan
from virtqual.session.session import Request, Round
from virtqual.session.summary import Summary
from virtqual.site.held import Rotation


def hold_nodes(count):
    """Return an environment in which a session holds so many nodes of each side."""
    cloud = {
        "session_access": ["--partition=cloud"],
        "nodes_of_hosts": {f"host-{k}": [f"cloud-{k}"] for k in range(1, count + 1)},
    }
    return {
        "FAKE_NODES": str(count),
        "FAKE_EXTRAS_bare": json.dumps({"session_access": ["--partition=bare"]}),
        "FAKE_EXTRAS_cloud": json.dumps(cloud),
    }


ON_TWO, ON_THREE = hold_nodes(2), hold_nodes(3)


def overlap(one, other):
    return one["start"] < other["end"] and other["start"] < one["end"]


def test_every_native_node_meets_every_vm_and_both_hosts_work_at_once(site):
    site.fault("nodes", "2")
    done = site.qualify("-n", "lj", code=0, **ON_TWO)
    said = site.words(done)
    assert "4 pairs on each of 2 nodes (about " in said
    found = site.session()
    runs = found["runs"]
    counted = Counter((run["side"], *run["nodes"]) for run in runs)
    assert set(counted) == {
        *(("native", name) for name in ("bare-1", "bare-2")),
        *(("virtual", name) for name in ("cloud-1", "cloud-2")),
    }
    (turns,) = set(counted.values())
    assert turns >= 4
    where = {(run["pair"], run["side"]): run["nodes"][0] for run in runs}
    met = [(where[pair, "native"], where[pair, "virtual"]) for pair in range(8)]
    assert set(met) == {(bare, cloud) for bare in ("bare-1", "bare-2") for cloud in ("cloud-1", "cloud-2")}
    # Two natively and two in VMs; never two on one node.
    beside = [(a, b) for a in runs for b in runs if a is not b and overlap(a, b)]
    assert beside
    assert not [a["nodes"] for a, b in beside if a["nodes"] == b["nodes"]]
    # The error is that of nodes, so that hosts are named.
    (verdict,) = found["verdicts"]
    assert (verdict["outcome"], verdict["pairs"]) == ("WITHIN", 2 * turns)
    assert "hosts confounded: native bare-1, bare-2, virtual host-1, host-2" in said


def test_nodes_that_call_themselves_otherwise_have_their_names_in_slurm(site):
    site.fault("nodes", "2")
    site.fault("own-names")
    done = site.qualify("-n", "lj", code=0, **ON_TWO)
    assert "hosts confounded: native bare-1, bare-2, virtual host-1, host-2" in site.words(done)
    runs = site.session()["runs"]
    assert {name for run in runs for name in run["nodes"]} == {"bare-1", "bare-2", "cloud-1", "cloud-2"}


def test_where_each_run_is_a_job_they_rotate_all_the_same(site):
    """As where long jobs are forbidden: each asks for its node by name."""
    site.fault("nodes", "2")
    hosts = {"nodes_of_hosts": {"host-1": ["cloud-1"], "host-2": ["cloud-2"]}}
    env = {"FAKE_NODES": "2", "FAKE_EXTRAS_cloud": json.dumps(hosts)}
    site.qualify("-n", "lj", code=0, **env)
    runs = site.session()["runs"]
    assert len({run["job"] for run in runs}) == len(runs)
    where = {(run["pair"], run["side"]): run["nodes"][0] for run in runs}
    met = {(where[pair, "native"], where[pair, "virtual"]) for pair in range(8)}
    assert met == {(bare, cloud) for bare in ("bare-1", "bare-2") for cloud in ("cloud-1", "cloud-2")}


def test_where_no_partition_is_named_or_no_host_of_its_nodes_nothing_rotates():
    def system(hosts):
        sides = SimpleNamespace(nodes=4, nodes_of_hosts={}), SimpleNamespace(nodes=4, nodes_of_hosts=hosts)
        return SimpleNamespace(
            nodes=4,
            native_extras=sides[0],
            virtual_extras=sides[1],
            partition=lambda side: SimpleNamespace(name=side),
        )

    hosts = {f"h{k}": [f"vm{k}"] for k in (1, 2)}
    native = ["n0", "n1", "n2"]
    choose = allocations.choose_rotated_nodes
    assert choose({"native": [], "virtual": []}, system(hosts)) == {}
    assert choose({"native": native, "virtual": ["vm0", "vm3"]}, system(hosts)) == {}
    # Of VMs those whose hosts are known.
    found = allocations.choose_rotated_nodes(
        {"native": native, "virtual": ["vm0", "vm1", "vm2"]}, system(hosts)
    )
    assert found == {"native": ["n0", "n1"], "virtual": ["vm1", "vm2"]}


@pytest.mark.parametrize(
    "hosts",
    [
        pytest.param({}, id="nobody says where the VMs are"),
        pytest.param(
            {"bare-1": ["cloud-1"], "bare-2": ["cloud-2"]}, id="the VMs' hosts are the native nodes"
        ),
        pytest.param({"host-1": ["cloud-1", "cloud-2"]}, id="one host has both VMs"),
    ],
)
def test_where_hosts_are_not_known_to_be_apart_one_node_works_at_a_time(site, hosts):
    site.fault("nodes", "2")
    held = {"session_access": ["--partition=cloud"], "nodes_of_hosts": hosts}
    env = {**ON_TWO, "FAKE_EXTRAS_cloud": json.dumps(held)}
    done = site.qualify("-n", "lj", **env)
    assert "pairs 0 to 3 (" in site.words(done), done.stdout + done.stderr
    runs = site.session()["runs"]
    assert len(runs) == 8
    assert not [(a, b) for a in runs for b in runs if a is not b and overlap(a, b)]


def loses_a_node(site, env, after):
    """Return the exit code of a session that loses cloud-1 after some runs, and what it said."""
    site.fault("nodes", env["FAKE_NODES"])
    process = site.start("qualify", "--system", "testsite", "-n", "lj", "--max-pairs", "8", **env)
    site.until(process, after)
    site.fault("down.cloud", "host died")
    return ended(process, 300)


def test_a_node_that_is_lost_is_set_aside_and_the_others_go_on(site):
    code, said = loses_a_node(site, ON_THREE, " 12/30")
    # One VM was lost and no native node: that alone keeps the session from being WITHIN.
    assert code == 3, said
    assert "1 of " in said
    assert "and no native one: a build that loses one run in twenty looks the same" in said
    assert (
        "node cloud-1 is down (host died): set aside; the session goes on with 2 nodes of each side" in said
    )
    assert "1 node was lost and set aside: cloud-1." in said
    found = site.session()
    ((loss, verdict),) = zip(found["lost"], found["verdicts"], strict=True)
    assert (loss["round"], list(loss["nodes"])) == (1, ["cloud-1"])
    assert found["failures"] == []
    assert verdict["outcome"] == "WITHIN"
    # One run of a pair that was cut off may have ended.
    cut_off = ("left out: no native run", "left out: no virtual run")
    assert [why for why in verdict["reasons"] if not why.endswith(cut_off)] == []
    # Whole turns of the hosts that are left: those before the loss count, too.
    assert verdict["pairs"] >= 8
    assert verdict["pairs"] % 2 == 0
    later = [run for run in found["runs"] if run["turn"] > max(r["turn"] for r in found["runs"]) - 1]
    assert {run["nodes"][0] for run in later} == {"bare-1", "bare-2", "cloud-2", "cloud-3"}
    assert len({(run["pair"], run["side"]) for run in found["runs"]}) == len(found["runs"])


def test_a_node_that_is_drained_beforehand_is_left_out_and_named(site):
    site.fault("nodes", "3")
    site.fault("down.cloud", "maintenance")
    done = site.qualify("-n", "lj", code=0, **ON_THREE)
    said = site.words(done)
    assert "2 of 3 nodes can run jobs: cloud-1 is down (maintenance): the session uses 2 of each side" in said
    assert "cloud-1" not in {node for run in site.session()["runs"] for node in run["nodes"]}


def test_a_case_of_more_nodes_than_work_at_the_begin_is_named_and_leaves_the_scope_incomplete(site):
    site.fault("nodes", "3")
    site.fault("down.cloud", "maintenance")
    names = ("-n", "lj", "-n", "lammps_scaling")
    done = site.qualify("--full", *names, code=0, **ON_THREE)
    assert "Not run here: needs 3 nodes on each side: lammps_scaling" in site.words(done)
    session = site.log().session()
    assert session.basis.too_large == ("lammps_scaling",)
    whole = {"request": session.request.model_copy(update={"names": ()})}
    assert not Summary.of(session.model_copy(update=whole)).complete
    whole["basis"] = session.basis.model_copy(update={"too_large": ()})
    assert Summary.of(session.model_copy(update=whole)).complete


def test_more_than_half_of_the_nodes_must_be_left(site):
    code, said = loses_a_node(site, ON_TWO, " 8/20")
    assert code == 5, said
    assert "node cloud-1 is down (host died)" in said.partition("Infrastructure failed")[2]


def job(case, number, node=None):
    return SimpleNamespace(turn=(case, True, number), node=node, not_before=0.0)


def begin_all(queue):
    """Return the cases whose nodes are free, in the order in which they begin."""
    return list(iter(queue.begin_next, None))


def test_cases_wait_for_their_own_node_only():
    queue = NodeQueue()
    jobs = [job("a", 0, "n1"), job("a", 1, "n2"), job("b", 0, "n1")]
    for case in jobs:
        queue.add(case)
    assert begin_all(queue) == jobs[:2]
    queue.remove(jobs[1])
    assert begin_all(queue) == []
    queue.remove(jobs[0])
    assert begin_all(queue) == [jobs[2]]


def test_the_second_run_of_a_pair_goes_first():
    queue = NodeQueue()
    first, other, second = job("b", 0, "n1"), job("a", 0, "v1"), job("b", 0, "v1")
    queue.add(first)
    assert begin_all(queue) == [first]
    queue.remove(first)
    for case in (other, second):
        queue.add(case)
    assert begin_all(queue) == [second]


def test_a_case_of_several_nodes_runs_alone():
    queue = NodeQueue()
    small, large, later = job("a", 0, "n1"), job("b", 0), job("c", 0, "n2")
    queue.add(small)
    assert begin_all(queue) == [small]
    queue.add(large)
    assert begin_all(queue) == []
    queue.remove(small)
    assert begin_all(queue) == [large]
    queue.add(later)
    assert begin_all(queue) == []
    queue.remove(large)
    assert begin_all(queue) == [later]


def test_one_that_is_not_wanted_any_more_never_begins():
    queue = NodeQueue()
    cancelled = job("a", 0, "n1")
    queue.add(cancelled)
    queue.remove(cancelled)
    assert begin_all(queue) == []


def test_a_turn_that_was_cut_off_is_run_again_as_a_whole():
    sides = ("native", "virtual")
    runs = [
        SimpleNamespace(check="lj", pair=pair, side=side, start=2.0 * pair + (side == "virtual"))
        for pair in range(3)
        for side in sides
    ]
    # Of the second turn only one pair of two has run.
    left = SimpleNamespace(runs=runs, failures=(), rounds=(1,))
    asked = SimpleNamespace(
        capacity=(set(), 2),
        rotation=lambda nodes: Rotation(2, 2),
        request=Request(system="site"),
        entries=[catalogue.Entry(name="lj", description="d", tags=("quick", "full"))],
    )
    (again,) = plan.repeat_unfinished(asked, left, Round(number=1, first=0, last=3))
    assert (again.first, again.last, again.checks) == (2, 4, ("lj",))
