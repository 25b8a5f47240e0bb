"""What a system file must say: errors name file and key."""

import copy
from pathlib import Path

import pytest

from virtqual.errors import UsageError
from virtqual.site import placement, systems

EXAMPLE = Path(__file__).parents[3] / "reframe/systems/example.py"


@pytest.fixture
def example() -> dict:
    return copy.deepcopy(systems.read(EXAMPLE))


def test_the_worked_example_is_right(example):
    system = systems.check(example, "example.py")
    assert system.virtual.hypervisor.build == "8.0.3-24022510"
    assert system.partition("native").name == "bare"
    assert systems.host_of(system.virtual).link_gbit == 100


def remove(*keys):
    def change(system):
        at = system
        for key in keys[:-1]:
            at = at[key]
        del at[keys[-1]]

    return change


def put(value, *keys):
    def change(system):
        at = system
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (remove("prefix"), "system.prefix"),
        (remove("partitions", 0, "processor"), "partitions.0.processor"),
        (put({"num_cpus": 4}, "partitions", 0, "processor"), "bare].processor.num_cpus_per_core"),
        (put(["fast"], "partitions", 0, "features"), "exactly one partition must have the feature 'native'"),
        (put(["native"], "partitions", 1, "features"), "found bare, vm"),
        (remove("partitions", 1, "extras", "hypervisor"), "[vm].extras.hypervisor"),
        (put("", "partitions", 1, "extras", "hypervisor", "build"), "extras.hypervisor.build"),
        (put("local", "partitions", 0, "scheduler"), "cannot keep both partitions apart"),
        (put("big", "partitions", 0, "extras", "scale"), "extras.scale"),
        (put(1, "partitions", 1, "extras", "llc_bytes"), "extras.llc_bytes differs"),
        (put({"virtual_switches": "two"}, "partitions", 1, "extras", "host"), "'one' or 'one a VM'"),
        (
            put("100 Gb/s", "partitions", 0, "extras", "link_gbit"),
            "extras.link_gbit: Input should be a valid number",
        ),
        (put(12.5, "partitions", 0, "extras", "link_gbit"), "12.5 Gbit/s is no rate of an RDMA port"),
        (put(100_000, "partitions", 0, "extras", "link_gbit"), "the nearest is 2400"),
        (put(56, "partitions", 1, "extras", "link_gbit"), "extras.link_gbit differs"),
        (put({"order": 110_000}, "partitions", 0, "extras", "hpl"), "extras.hpl.block: Field required"),
        (put({"order": 110_000, "block": 168}, "partitions", 0, "extras", "hpl"), "extras.hpl differs"),
        (
            put({"a": ["vm1", "vm2"], "b": ["vm2"]}, "partitions", 1, "extras", "vms_of_hosts"),
            "extras.vms_of_hosts: Value error, vm2 stands twice, on a and on b",
        ),
        (put({"a": []}, "partitions", 1, "extras", "vms_of_hosts"), "extras.vms_of_hosts.a: "),
        (put({"a": ["vm[1-4]"]}, "partitions", 1, "extras", "vms_of_hosts"), "extras.vms_of_hosts.a.0: "),
        (put(32, "partitions", 1, "processor", "num_cpus"), "where extras.vms_of_hosts says that several"),
        (put("small", "partitions", 1, "extras", "scale"), "must be the same for both partitions"),
        (put(2, "partitions", 1, "processor", "num_cpus_per_core"), "must be the same for both partitions"),
    ],
)
def test_a_mistake_names_file_and_key(example, change, says):
    # The example's partitions share their hardware's dictionary.
    for partition in example["partitions"]:
        partition["extras"] = dict(partition["extras"])
        partition["processor"] = dict(partition["processor"])
        if "hypervisor" in partition["extras"]:
            partition["extras"]["hypervisor"] = dict(partition["extras"]["hypervisor"])
    change(example)
    with pytest.raises(UsageError) as error:
        systems.check(example, "mysite.py")
    assert says in str(error.value)
    assert "mysite.py" in str(error.value)


def test_vms_that_share_a_host_may_have_fewer_cores_than_it_but_not_more(example):
    bare, vm = example["partitions"]
    vm["extras"] = {**vm["extras"], "vms_of_hosts": {"h1": ["vm1", "vm2", "vm3", "vm4"], "h2": ["vm5"]}}
    vm["processor"] = {**vm["processor"], "num_cpus": 16}
    system = systems.check(example, "mysite.py")
    assert placement.of(system)["vms_per_host"] == 4
    bare["processor"] = {**bare["processor"], "num_cpus": 8}
    with pytest.raises(UsageError, match="must be the same for both partitions"):
        systems.check(example, "mysite.py")


def test_a_file_without_a_system(tmp_path):
    file = tmp_path / "mysite.py"
    file.write_text("sistem = {}\n")
    with pytest.raises(UsageError, match=r"mysite\.py: defines no dictionary named 'system'"):
        systems.read(file)


def test_a_system_that_is_not_there_says_why(tmp_path):
    file = tmp_path / "mysite.py"
    file.write_text("system = 'down for maintenance'\n")
    assert systems.read(file)["descr"] == "down for maintenance"


def test_a_size_of_hpl_that_no_node_can_hold(example):
    for partition in example["partitions"]:
        partition["extras"] = {**partition["extras"], "hpl": {"order": 300_000, "block": 168}}
    with pytest.raises(UsageError, match=r"extras\.hpl\.order: the matrix takes 686645 MiB, a node has less"):
        systems.check(example, "mysite.py")
    for partition in example["partitions"]:
        partition["extras"]["hpl"] = {"order": 110_000, "block": 168}
    assert systems.check(example, "mysite.py").virtual.hpl == systems.HplSize(order=110_000, block=168)
