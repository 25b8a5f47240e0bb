"""A system file is written by what Slurm and the nodes show, and held against it."""

import re
from pathlib import Path

import pytest

from virtqual.site import systems

ROOT = Path(__file__).parents[3]
LOOKS = ROOT / "tests/faults/preflight"
INIT = ("system", "init", "mysite", "--native", "bare", "--virtual", "cloud")
PEOPLE_KNOW = {
    r'"vendor": "TODO: [^"]*"': '"vendor": "VMware ESXi"',
    r'"build": "TODO: [^"]*"': '"build": "8.0.3-24022510"',
    r'"hypervisor_class": "TODO: [^"]*"': '"hypervisor_class": "esxi"',
    r'"nodes_of_hosts": "TODO: [^"]*"': '"nodes_of_hosts": {f"esx{k}": [f"cloud-{k}"] for k in range(1, 9)}',
}


@pytest.fixture
def centre(site):
    """Return the site with 8 native nodes and 8 VMs of two sockets with hyperthreads and InfiniBand."""
    site.env["FAKE_NODES"] = "8"
    show(site, "bare", "bare.look")
    show(site, "cloud", "guest.look")
    return site


def show(site, partition, look, size="8 2 2 190000", **changes):
    """Have Slurm show the size of a partition's nodes, and a node a recorded look with other files."""
    lines = (LOOKS / look).read_text("utf-8").splitlines()
    for path, content in {"/proc/sys/kernel/hostname": f"{partition}-1", **changes}.items():
        lines = [line for line in lines if not line.startswith(f"{path}:")] + [f"{path}:{content}"]
    text = "\n".join(line for line in lines if not line.startswith("virtqual-look"))
    site.fault(f"look.{partition}", text + "\n")
    site.fault(f"size.{partition}", f"{size}\n")


def complete(site):
    """Put in what only people know, and return the file."""
    file = site.path / "site/systems/mysite.py"
    text = file.read_text("utf-8")
    for pattern, value in PEOPLE_KNOW.items():
        text, count = re.subn(pattern, value, text)
        assert count == 1
    file.write_text(text, "utf-8")
    return file


def change(file, before, after):
    text = file.read_text("utf-8")
    assert before in text
    file.write_text(text.replace(before, after), "utf-8")


def test_only_what_people_know_is_left_to_be_written(centre):
    centre.virtqual(*INIT, "--account", "hpcops", code=0)
    done = centre.virtqual("system", "check", "mysite")
    todos = re.findall(r"^  system\.partitions\[cloud\]\.extras\.(\S+): TODO: ", done.stdout, re.MULTILINE)
    assert todos == ["hypervisor.vendor", "hypervisor.build", "hypervisor_class", "nodes_of_hosts"]
    assert done.returncode == 2
    done = centre.virtqual("qualify", "--system", "mysite")
    assert (done.returncode, "extras.hypervisor.build: TODO: " in centre.words(done)) == (2, True)
    file = complete(centre)
    centre.virtqual("system", "check", "mysite", "--on-nodes", code=0)
    system = systems.read(file).load()
    assert dict(system.partition("virtual").processor) == {
        **{"arch": "x86_64", "num_cpus": 8, "num_cpus_per_core": 2, "num_sockets": 2}
    }
    assert (system.virtual_extras.llc_bytes, system.virtual_extras.numa_nodes) == (2 * 19712 * 1024, 2)
    assert (system.native_extras.link_gbit, system.native_extras.rdma_options) == (
        *(100, ("-d", "mlx5_0", "-i", "1")),
    )
    assert (system.native_extras.memory_mib, system.native_extras.nodes) == (171000, 8)
    assert system.native_extras.session_access[1:] == ("--account=hpcops", "--time=8:00:00")
    assert system.prefix == str(centre.path / "state/reframe")
    assert not list(Path(system.prefix).iterdir())


def test_colleagues_who_use_the_file_stage_in_directories_of_their_own(centre):
    centre.virtqual(*INIT, USER="state", code=0)
    assert '/$USER/reframe",' in (centre.path / "site/systems/mysite.py").read_text("utf-8")


def test_both_sides_state_the_cores_that_both_have(centre):
    show(centre, "cloud", "guest.look", "6 1 3 190000")
    # Memory that is not configured is 1.
    show(centre, "bare", "bare.look", "8 2 2 1")
    centre.virtqual(*INIT, code=0)
    file = complete(centre)
    line = "  # Slurm's CPUs of cloud-1; bare-1 has 8, and both use what both have"
    assert f'"num_cpus": 6,{line}' in file.read_text("utf-8")
    system = systems.read(file).load()
    assert (system.cores("native"), system.cores("virtual")) == (3, 3)
    assert system.native_extras.memory_mib == int(0.9 * (197000000 // 1024))
    centre.virtqual("system", "check", "mysite", "--on-nodes", code=0)


def test_nodes_of_another_size_than_most_are_left_out(centre):
    show(centre, "bare", "bare.look", "\n".join(["8 2 2 190000"] * 7 + ["4 1 2 190000"]))
    centre.virtqual(*INIT, code=0)
    system = systems.read(complete(centre)).load()
    assert (system.native_extras.nodes, system.virtual_extras.nodes) == (7, 8)
    assert "--exclude=bare-8" in system.native_extras.session_access
    centre.virtqual("system", "check", "mysite", code=0)
    change(centre.path / "site/systems/mysite.py", ', "--exclude=bare-8"', "")
    done = centre.virtqual("system", "check", "mysite")
    assert (done.returncode, "states 8, but Slurm has 4 for bare-8" in centre.words(done)) == (2, True)


def test_an_existing_file_is_compared_and_stays(centre):
    centre.virtqual(*INIT, code=0)
    file = complete(centre)
    before = file.read_text("utf-8")
    show(centre, "bare", "bare.look", "8 2 2 100000")
    done = centre.virtqual(*INIT, code=2)
    assert "\n+" in done.stdout
    assert '"memory_mib": 90000,  # 90% of the 100000 MiB of bare-1' in done.stdout
    assert "mysite.py exists and was not changed" in centre.words(done)
    assert file.read_text("utf-8") == before


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("x y", "--native", "bare", "--virtual", "cloud"), "'x y' is no name"),
        (("vcluster", "--native", "bare", "--virtual", "cloud"), "is defined by "),
        (("mysite", "--native", "bare", "--virtual", "clod"), "did you mean cloud?"),
        (("mysite", "--native", "bare", "--virtual", "bare"), "name two partitions"),
        (("mysite", "--native", "bare", "--virtual", "cloud", "--account", "x"), "takes hpc or ops alone"),
    ],
)
def test_no_node_is_asked_for_by_what_cannot_be_written(centre, options, says):
    centre.fault("partition.cloud", "AllowAccounts=hpc,ops MaxTime=UNLIMITED")
    # A probe would fail by this node.
    centre.fault("down.bare", "broken")
    done = centre.virtqual("system", "init", *options)
    assert (done.returncode, says in centre.words(done)) == (2, True), centre.words(done)
    assert "a short job" not in done.stdout
    assert not list((centre.path / "site/systems").glob("[!t]*.py"))


STATED = (
    ('"--partition=cloud"]', '"--partition=clod"]', "[cloud].access: Slurm has no partition 'clod': did"),
    ('"--time=8:00:00"', '"--time=2-0"', "session_access: states --time=2-0, but MaxTime of partition"),
    ('"nodes": 8', '"nodes": 9', "nodes_of_hosts names 8 of the 9 VMs"),
    ('"memory_mib": 171000', '"memory_mib": 190001', "memory_mib: states 190001, but Slurm has 190000"),
    ('"num_cpus": 8', '"num_cpus": 16', "processor.num_cpus: states 16, but Slurm has 8 for"),
    ('"cloud-{k}"', '"clood-{k}"', "names clood-1, clood-2, clood-3, clood-4 and 4 more, which"),
    ('"--partition=bare"]', '"--partition=bare", "-Lhots"]', "a licence 'hots' that Slurm does not have"),
)
SHOWN = (
    ('"num_sockets": 2', '"num_sockets": 1', "num_sockets: states 1, but it is 2 (sockets in /sys of"),
    ('"numa_nodes": 2', '"numa_nodes": 4', "numa_nodes: states 4, but it is 2"),
    ("40370176", "2 * 2**20", "llc_bytes: states 2097152, but it is 40370176"),
    ('"link_gbit": 100', '"link_gbit": 200', "link_gbit: states 200.0, but it is 100 (rate of mlx5_0"),
    ('["-d", "mlx5_0", "-i", "1"]', '["-d", "mlx5_1"]', "'mlx5_1', but bare-1 has no such device: did"),
    ('"accelerator": "esxi"', '"accelerator": "kvm"', "states 'kvm', but it is esxi (clock and firmware"),
    ('state/reframe"', 'state/refame"', "refame is no directory here that can be written: make it"),
)
CLASS = ('"hypervisor_class": "esxi"', '"hypervisor_class": "kvm"', "class 'kvm' is for kvm")


@pytest.mark.parametrize(
    ("options", "code", "change_and_words"),
    [
        *(((), 2, row) for row in STATED),
        *((("--on-nodes",), 2, row) for row in SHOWN),
        ((), 4, CLASS),
        # Fewer nodes than there are may be stated.
        ((), 0, ('"nodes": 8', '"nodes": 6', "")),
    ],
)
def test_what_slurm_and_a_node_of_each_partition_show_is_held_against_the_file(
    centre, options, code, change_and_words
):
    before, after, says = change_and_words
    centre.virtqual(*INIT, code=0)
    change(complete(centre), before, after)
    done = centre.virtqual("system", "check", "mysite", *options, code=code)
    assert says in centre.words(done)
