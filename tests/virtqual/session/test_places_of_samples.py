"""Samples say on which nodes, machines and boots they were taken."""

from made_runs import made_run
from virtqual.identity import gather, readers
from virtqual.runs import Result, Run
from virtqual.session.pairing import series_of
from virtqual.site.hosts import find_hosts

HPL = Result.scalar("hpl", "here", 10.0)
TABLE = {"n1.cluster.example": ("vm1", "vm2"), "n2": ("vm3",)}


def booted(**boots):
    """Return identities of nodes by name, with these boots; None for one that nobody saw."""
    blank = readers.read(gather.NodeFiles({}, {}))
    return {node: blank.model_copy(update={"boot": boot} if boot else {}) for node, boot in boots.items()}


def sample(references, side, nodes, table, **more):
    hosts = find_hosts(table, nodes, side)
    run = made_run(side, 0, nodes=nodes, hosts=hosts, results=(HPL,), **more)
    (pair,) = series_of([Run.model_validate_json(run.dump())], references)["hpl@here"].pairs
    return getattr(pair, side)


def test_a_native_node_is_its_own_host_by_the_name_that_the_table_of_vms_has(references):
    native = sample(references, "native", ("n1.cluster.example",), {})
    virtual = sample(references, "virtual", ("vm2.cluster.example",), TABLE)
    assert (native.node, native.host, native.boot) == ("n1.cluster.example", "n1", "")
    assert (virtual.node, virtual.host) == ("vm2.cluster.example", "n1")


def test_nodes_of_one_machine_are_one_host_and_those_of_two_are_two(references):
    assert sample(references, "virtual", ("vm2", "vm1"), TABLE).host == "n1"
    both = sample(references, "virtual", ("vm3", "vm1"), TABLE)
    assert (both.node, both.host) == ("vm1+vm3", "n1+n2")
    assert sample(references, "native", ("a", "b"), {"box": ("a", "b")}).host == "box"


def test_what_nobody_knows_is_empty(references):
    assert sample(references, "virtual", ("vm1", "vm9"), TABLE).host == ""
    assert sample(references, "virtual", ("vm1",), {}).host == ""
    unseen = sample(references, "virtual", ("vm1", "vm2"), TABLE, identity=booted(vm1="b1", vm2=None))
    assert unseen.boot == ""


def test_the_boot_of_a_virtual_run_is_that_of_its_guests(references):
    known = booted(vm1="b1", vm2="b0")
    assert sample(references, "virtual", ("vm1", "vm2"), TABLE, identity=known).boot == "b0+b1"
    assert sample(references, "native", ("vm1", "vm2"), {}, identity=known).boot == ""
