"""What a system file must say: errors name file and key."""

import copy
import json
import re
from pathlib import Path

import pytest
import reframe
from typer.testing import CliRunner

from virtqual.cli import app
from virtqual.errors import InfrastructureError, UsageError, VirtqualError
from virtqual.site import configuration, held, placement, systems
from virtqual.site.extras import HplSize
from virtqual.verdict.pairs import SIDES

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "site.example/systems/_example.py"


@pytest.fixture
def example() -> dict:
    return copy.deepcopy(systems.read(EXAMPLE).content[0])


def test_the_worked_example_is_right(example):
    system = systems.check(example, "example.py")
    assert system.virtual_extras.hypervisor.build == "8.0.3-24022510"
    assert system.partition("native").name == "bare"
    assert system.virtual_extras.read_host().link_gbit == 100


REMOVED = object()


def change_key(system, path, value):
    """Change a key of a system, such as ``vm.extras.scale``."""
    *parents, last = path.split(".")
    for parent in parents:
        names = [partition["name"] for partition in system.get("partitions", ())]
        system = system["partitions"][names.index(parent)] if parent in names else system[parent]
    if value is REMOVED:
        del system[last]
    else:
        system[last] = value


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"prefix": REMOVED}, "system.prefix"),
        ({"bare.processor": REMOVED}, "system.partitions[bare].processor: is missing"),
        ({"bare.processor": {"num_cpus": 4}}, "system.partitions[bare].processor.num_cpus_per_core: is"),
        ({"bare.features": ["fast"]}, "exactly one partition must have the feature 'native'"),
        ({"vm.features": ["native"]}, "found bare, vm"),
        ({"vm.extras.hypervisor": REMOVED}, "[vm].extras.hypervisor"),
        ({"vm.extras.hypervisor.build": ""}, "extras.hypervisor.build"),
        ({"bare.scheduler": "local"}, "[bare].scheduler: 'local' is not 'slurm' or 'squeue'"),
        ({"bare.extras.scale": "big"}, "extras.scale"),
        ({"vm.extras.llc_bytes": 1}, "extras.llc_bytes differs"),
        ({"vm.extras.host": {"virtual_switches": "two"}}, "'one' or 'one a VM'"),
        ({"bare.extras.link_gbit": "100 Gb/s"}, "extras.link_gbit: '100 Gb/s' is no number"),
        ({"bare.extras.link_gbit": 0}, "extras.link_gbit: 0 must be more than 0"),
        ({"vm.extras.link_gbit": 56}, "extras.link_gbit differs"),
        ({"bare.extras.hpl": {"order": 110000}}, "extras.hpl.block: is missing"),
        ({"bare.extras.hpl": {"order": 110000, "block": 168}}, "extras.hpl differs"),
        ({"vm.extras.run_seconds": 5.0}, "extras.run_seconds differs"),
        ({"bare.extras.run_seconds": -1}, "extras.run_seconds: "),
        ({"bare.extras.run_seconds": "20"}, "extras.run_seconds: "),
        (
            {"vm.extras.nodes_of_hosts": {"a": ["vm1", "vm2"], "b": ["vm2"]}},
            "extras.nodes_of_hosts: vm2 stands twice, on a and on b",
        ),
        (
            {"bare.extras.nodes_of_hosts": {"a": ["n1"], "b": ["n1.cluster.example"]}},
            "n1.cluster.example stands twice, on a and on b",
        ),
        (
            {"vm.extras.nodes_of_hosts": {"a": ["vm1"], "a.example": ["vm2"]}},
            "a and a.example are one host by the first part of their names",
        ),
        ({"vm.extras.nodes_of_hosts": {"a": ["vm1", "vm1.example"]}}, "vm1.example stands twice"),
        ({"vm.extras.nodes_of_hosts": {"a": []}}, "extras.nodes_of_hosts.a: "),
        ({"vm.extras.nodes_of_hosts": {"a": ["vm[1-4]"]}}, "nodes_of_hosts.a[0]: "),
        (
            {"vm.processor.num_cpus": 60},
            "are 64 natively and 60 in the VM, and must be the same for both partitions",
        ),
        ({"vm.extras.scale": "small"}, "extras.scale differs"),
        ({"vm.extras.numa_hiden": True}, "is not a key of this kind of entry: did you mean numa_hidden"),
        ({"bare.extras.link_gbits": 100}, "did you mean link_gbit"),
        ({"vm.extras.numa_hidden": "no"}, "[vm].extras.numa_hidden: 'no' is neither True nor False"),
        ({"bare.extras.nodes": "2"}, "[bare].extras.nodes: '2' is no whole number"),
        ({"bare.extras.rdma_options": "-d mlx5_0"}, "rdma_options: '-d mlx5_0' is no list"),
        ({"bare.extras.rdma_options": []}, "rdma_options: names no device"),
        ({"bare.extras.hypervisor": {}}, "[bare].extras.hypervisor: is not a key"),
        ({"prefx": 1}, "system.prefx: is not a key of ReFrame's systems: did you mean prefix"),
        ({"vm.env_var": []}, "[vm].env_var: is not a key of ReFrame's systems: did you mean"),
        ({"bare.processor.num_cpu": 4}, "[bare].processor.num_cpu: is not a key of ReFrame's"),
        ({"bare.max_jobs": "4"}, "[bare].max_jobs: '4' is not a number"),
        ({"bare.access": "-pbare"}, "[bare].access: '-pbare' is not a list: write ['-pbare']"),
        ({"bare.access": ["-pbare", "--time=8h"]}, "[bare].access: '8h' is no time of Slurm"),
        ({"vm.extras.session_access": ["-pvm -t 1:x"]}, "[vm].extras.session_access: '1:x' is no time"),
        ({"prefix": "scratch/virtqual"}, "system.prefix: 'scratch/virtqual' is a relative path"),
        ({"prefix": "/scratch/$NOT_SET/virtqual"}, "names a variable that is not set: NOT_SET; set it"),
        ({"vm.extras.nodes_of_hosts": {"a": ["v1"], "b": ["v2"]}}, "names 2 of the 8 VMs"),
        ({"vm.extras.hypervisor.build": "TODO: the build"}, "hypervisor.build: TODO: the build (what"),
        ({"hostnames": REMOVED}, "system.hostnames: is missing"),
        ({"name": "../../evil"}, "system.name: '../../evil' is no name"),
        ({"name": "-x"}, "system.name: '-x' is no name"),
        ({"bare.name": "x y"}, "system.partitions[x y].name: 'x y' is no name"),
        (
            {
                "vm.scheduler": "squeue",
                "bare.extras.session_access": REMOVED,
                "vm.extras.session_access": REMOVED,
            },
            "scheduler: 'squeue' learns no exit code of a job",
        ),
        ({"vm.launcher": "ssh"}, "[vm].launcher: 'ssh' is not 'srun'"),
        (
            {"vm.launcher": "mpirun"},
            "[vm].launcher: 'mpirun' cannot start tasks on one side of a",
        ),
        ({"vm.launcher": "mpiexec"}, "write 'srun', with extras.mpi_options=['--mpi=pmix'] for Open MPI or"),
        ({"vm.access": REMOVED}, "[vm].access: is missing"),
        ({"vm.access": []}, "[vm].access: "),
        ({"vm.access": ["-pvm", "-Mother"]}, "access: --clusters must be the same in access and"),
        ({"vm.access": ["--account=hpcops --partition=bare"]}, "access of bare and vm is the same"),
        ({"bare.features": ["native", "virtual"]}, "found bare, vm"),
        ({"bare.features": ["native", "virtual"], "vm.features": ["rdma"]}, "bare has both features"),
        ({"vm.processor.num_cpus_per_core": 2}, "State the number that both have, 32"),
    ],
)
def test_a_mistake_names_file_and_key(example, changes, says):
    # The example's partitions share their hardware's dictionary.
    example = json.loads(json.dumps(example))
    for path, value in changes.items():
        change_key(example, path, value)
    with pytest.raises(UsageError) as error:
        systems.check(example, "mysite.py")
    assert says in str(error.value)
    assert "mysite.py" in str(error.value)


def test_vms_that_share_a_host_may_have_fewer_cores_than_it_but_not_more(example):
    bare, vm = example["partitions"]
    hosts = {"h1": ["vm1", "vm2", "vm3", "vm4"], "h2": ["vm5"]}
    vm["extras"] = {**vm["extras"], "nodes": 5, "nodes_of_hosts": hosts}
    vm["processor"] = {**vm["processor"], "num_cpus": 16}
    system = systems.check(example, "mysite.py")
    assert placement.read_placement(system)["vms_per_host"] == 4
    bare["processor"] = {**bare["processor"], "num_cpus": 8}
    with pytest.raises(UsageError, match="must be the same for both partitions"):
        systems.check(example, "mysite.py")


def test_a_size_of_hpl_that_no_node_can_hold(example):
    for partition in example["partitions"]:
        partition["extras"] = {**partition["extras"], "hpl": {"order": 300_000, "block": 168}}
    with pytest.raises(UsageError, match=r"extras\.hpl\.order: the matrix takes 686645 MiB, a node has less"):
        systems.check(example, "mysite.py")
    for partition in example["partitions"]:
        partition["extras"]["hpl"] = {"order": 110_000, "block": 168}
    assert systems.check(example, "mysite.py").virtual_extras.hpl == HplSize(order=110_000, block=168)


@pytest.fixture
def configure(tmp_path, monkeypatch):
    """Return a function that returns ReFrame's configuration for one system."""
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path))
    monkeypatch.setenv("VIRTQUAL_ROOT", str(tmp_path))
    directory = tmp_path / "reframe/systems"
    directory.mkdir(parents=True)

    def make(system):
        (directory / "mysite.py").write_text(f"system = {system!r}\n")
        return configuration.configuration()

    return make


GPU = {"name": "gpu", "scheduler": "local", "launcher": "local", "extras": {"memory_mib": "of a card"}}


@pytest.mark.parametrize("place", [0, 2])
def test_another_partition_is_nobodys_business(example, place, configure):
    example["partitions"].insert(place, GPU)
    system = systems.check(example, "mysite.py")
    assert [system.partition(side).name for side in SIDES] == ["bare", "vm"]
    (made,) = configure(example)["systems"]
    assert made["partitions"][place] == GPU
    bare = next(p for p in made["partitions"] if p["name"] == "bare")
    assert (bare["environs"], bare["features"]) == (["no-stack"], ["native", "rdma", "multinode", "numa"])


def test_tasks_fill_one_socket_after_the_other_unless_the_site_says_how(example, configure):
    example["partitions"][0]["access"] += ["-m", "block:cyclic"]
    bare, vm = (partition["access"] for partition in configure(example)["systems"][0]["partitions"])
    assert bare == example["partitions"][0]["access"]
    assert vm == [*example["partitions"][1]["access"], "--distribution=block:block"]


def test_job_scripts_are_login_shells_if_the_system_has_modules(example, configure):
    settings = {"use_login_shell": True, "resolve_module_conflicts": False, "target_systems": ["example"]}
    assert configure(example)["general"][1:] == [settings]


def test_only_a_scheduler_of_ones_own_is_asked_often(example, configure):
    example["modules_system"] = "nomod"
    assert len(configure(example)["general"]) == 1
    example["partitions"][0]["extras"]["own_scheduler"] = True
    with pytest.raises(UsageError, match=r"extras\.own_scheduler differs between the partitions: both"):
        systems.check(example, "mysite.py")
    example["partitions"][1]["extras"]["own_scheduler"] = True
    (settings,) = configure(example)["general"][1:]
    assert (settings["target_systems"], settings["poll_rate_min"]) == (["example"], 4)


def test_a_job_that_waits_is_not_cancelled_unless_the_site_says_so(example, configure):
    example["partitions"][0]["sched_options"] = {"slurm_job_cancel_reasons": ["QOSMaxJobsPerUserLimit"]}
    bare, vm = (partition["sched_options"] for partition in configure(example)["systems"][0]["partitions"])
    assert bare == {"slurm_job_cancel_reasons": ["QOSMaxJobsPerUserLimit"], "max_sacct_failures": 120}
    assert vm["slurm_job_cancel_reasons"] == []
    # One's own database is asked often.
    for partition in example["partitions"]:
        partition["extras"]["own_scheduler"] = True
    (_, vm) = (partition["sched_options"] for partition in configure(example)["systems"][0]["partitions"])
    assert vm == {"slurm_job_cancel_reasons": []}


def test_what_a_sites_own_checks_need_has_a_place(example):
    example["partitions"][0]["extras"]["site"] = {"rack": 7}
    assert systems.check(example, "mysite.py").native_extras.site == {"rack": 7}


def test_reframe_takes_what_is_accepted_here(example):
    # Its own check is of the whole configuration, and one system that it refuses stops every other.
    schema = Path(reframe.__file__).parent / "schemas/config.json"
    known = json.loads(schema.read_text(encoding="utf-8"))["properties"]["systems"]["items"]["properties"]
    with pytest.raises(UsageError) as error:
        systems.check({**example, **dict.fromkeys(known, object())}, "mysite.py")
    for key in known:
        assert f"system.{key}: " in str(error.value)


SITE = """
import json
system = json.loads({text!r})
"""
WAYS_TO_BREAK = {
    "1 / 0": (2, r"broken\.py:1: cannot be read \(ZeroDivisionError: division by zero\)"),
    "import sys\nsys.exit(0)": (2, r"broken\.py:2: ends the program \(0\)"),
    "raise SystemExit('gone')": (2, r"broken\.py:1: ends the program \(gone\)"),
    "system = {": (2, r"broken\.py:1: cannot be read \(SyntaxError"),
    "import nothing_of_the_kind": (2, r"broken\.py:1: cannot be read \(ModuleNotFoundError"),
    "sistem = {}": (2, r"broken\.py: defines no dictionary named 'system'"),
    "system = 'down for maintenance'": (5, "system 'broken': down for maintenance"),
    "system = {}": (2, r"broken\.py: system\.name: is missing"),
    "from virtqual.errors import InfrastructureError\nraise InfrastructureError('the file server sleeps')": (
        5,
        "the file server sleeps",
    ),
}


@pytest.fixture
def sites(tmp_path, monkeypatch, example):
    """Return a directory with the file of one system that is right, and nothing else."""
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("VIRTQUAL_ROOT", str(tmp_path))
    monkeypatch.delenv("VIRTQUAL_SITE", raising=False)
    directory = tmp_path / "reframe/systems"
    directory.mkdir(parents=True)
    (directory / "right.py").write_text(SITE.format(text=json.dumps({**example, "name": "right"})))
    return directory


@pytest.mark.parametrize(("text", "code", "says"), [(text, *end) for text, end in WAYS_TO_BREAK.items()])
def test_a_broken_file_stops_its_own_system_only(sites, text, code, says):
    (sites / "broken.py").write_text(text + "\n")
    assert configuration.load_system("right").name == "right"
    with pytest.raises(VirtqualError, match=says) as error:
        configuration.load_system("broken")
    assert error.value.exit_code == code
    listed = {system["name"]: system for system in configuration.configuration()["systems"]}
    assert listed["right"]["partitions"][0]["name"] == "bare"
    assert listed["broken"]["descr"] in str(error.value)
    assert [partition["name"] for partition in listed["broken"]["partitions"]] == ["absent"]


def test_a_command_ends_as_the_error_says_and_never_as_a_system_file_wants(sites):
    (sites / "broken.py").write_text("import sys\nsys.exit(0)\n")
    done = CliRunner().invoke(app, ["preflight", "--system", "broken"])
    assert (done.exit_code, "broken.py:2: ends the program" in done.output) == (2, True)


def test_an_unknown_class_names_file_and_key(sites, example, tmp_path):
    (tmp_path / "references").symlink_to(ROOT / "references")
    change_key(example, "vm.extras.hypervisor_class", "esxy")
    (sites / "right.py").write_text(SITE.format(text=json.dumps({**example, "name": "right"})))
    done = CliRunner().invoke(app, ["preflight", "--system", "right"], env={"COLUMNS": "500"})
    key = "right.py: system.partitions[vm].extras.hypervisor_class"
    assert (done.exit_code, f"{key}: unknown class 'esxy': did you mean esxi?" in done.output) == (2, True)


def test_a_system_that_is_unknown_may_be_in_a_file_that_is_broken(sites):
    (sites / "broken.py").write_text("1 / 0\n")
    with pytest.raises(UsageError, match=r"no system 'cluster'.*right.*not read: .*broken\.py:1: cannot"):
        configuration.load_system("cluster")


def test_a_file_that_defines_another_system_than_its_name_says_is_named(sites):
    (sites / "right.py").rename(sites / "mysite.py")
    with pytest.raises(UsageError, match=r"no system 'mysite'.*; .*mysite\.py defines 'right'"):
        configuration.load_system("mysite")


def test_two_files_of_one_system_are_refused_and_a_broken_one_hides_none(sites, tmp_path):
    other = tmp_path / "site/systems/right.py"
    other.parent.mkdir(parents=True)
    other.write_text("1 / 0\n")
    assert configuration.load_system("right").name == "right"
    other.write_text((sites / "right.py").read_text())
    with pytest.raises(
        UsageError, match=r"'right' is defined twice, by .*systems/right\.py and by .*right\.py"
    ):
        configuration.load_system("right")
    assert [system["name"] for system in configuration.configuration()["systems"]] == ["right"]


def test_a_device_in_place_of_a_system_file_is_not_read_for_ever(sites):
    (sites / "zero.py").symlink_to("/dev/zero")
    with pytest.raises(UsageError, match=r"zero\.py: cannot be read .*no regular file"):
        configuration.load_system("zero")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"schema": "vcluster/0"}', "schema 'vcluster/0'"),
        ('{"schema": "vcluster/1", "sta', "cannot be read"),
        ('{"schema": "vcluster/3", "status": "up"}', "created"),
        ("[]", "schema None"),
    ],
)
def test_a_broken_state_of_the_cluster_names_its_file_and_is_no_verdict(tmp_path, monkeypatch, text, says):
    monkeypatch.setenv("VCLUSTER_DIR", str(tmp_path))
    file = tmp_path / "state.json"
    assert "is not up" in str(systems.read(ROOT / "reframe/systems/vcluster.py").content)
    file.write_text(text)
    with pytest.raises(InfrastructureError, match=re.escape(says)) as error:
        systems.read(ROOT / "reframe/systems/vcluster.py").load()
    assert str(file) in str(error.value)
    assert error.value.exit_code == 5


def test_a_state_directory_that_cannot_be_written_is_named(sites, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for state in (tmp_path / "file", Path("/proc/1/task")):
        monkeypatch.setenv("VIRTQUAL_STATE", str(state))
        with pytest.raises(InfrastructureError, match=rf"{state}/log: .*VIRTQUAL_STATE"):
            configuration.configuration()


def test_the_nodes_that_a_session_uses_are_those_that_the_checks_see(sites, monkeypatch):
    def count_nodes():
        listed = {system["name"]: system for system in configuration.configuration()["systems"]}
        return [partition["extras"]["nodes"] for partition in listed["right"]["partitions"]]

    assert count_nodes() == [8, 8]
    for name, value in held.SessionNodes(system="right", of=2).environment().items():
        monkeypatch.setenv(name, value)
    assert count_nodes() == [2, 2]


def test_vms_that_share_a_host_are_all_used(example):
    """Their jobs name VMs of one host, and Slurm would choose others."""
    system = systems.check(example, "example.py")
    assert [system.use_nodes(count).virtual_extras.nodes for count in (None, 4, 99)] == [8, 4, 8]
    example["partitions"][1]["extras"]["nodes_of_hosts"] = {"esx": [f"vm{k}" for k in range(8)]}
    assert systems.check(example, "example.py").use_nodes(4).virtual_extras.nodes == 8
