"""The nodes of other people's sites: their adapters, threads and names, and what is printed around looks."""

import re

import pytest
from test_other_sites import at, check, complete, initialise  # noqa: F401


def read_rdma(system):
    """Return the RDMA options of both sides, and the stated rate."""
    native, virtual = system.native_extras, system.virtual_extras
    return list(native.rdma_options), list(virtual.rdma_options), native.link_gbit


@pytest.mark.parametrize(
    ("name", "native", "virtual", "gbit"),
    [
        ("eth-and-ib", "mlx5_1 1", "mlx5_0 1", 400),
        ("3rails", "mlx5_0 1", "mlx5_0 1", 400),
        ("mlxbond", "mlx5_2 1", "mlx5_0 1", 100),
        # rdma-core#847
        ("port2", "mlx5_0 2", "mlx5_0 1", 56),
        ("storage-400", "mlx5_0 1", "mlx5_0 1", 200),
    ],
)
def test_the_network_of_mpi_is_chosen(at, name, native, virtual, gbit):  # noqa: F811
    site = at(name)
    initialise(site)
    options = [["-d", device, "-i", port] for device, port in (native.split(), virtual.split())]
    assert read_rdma(complete(site)) == (*options, gbit)


def test_the_drafted_file_says_what_else_there_is(at):  # noqa: F811
    site = at("eth-and-ib")
    initialise(site)
    complete(site)
    text = (site.path / "site/systems/mysite.py").read_text("utf-8")
    assert "# InfiniBand at 200 Gbit/s on cn0008; not mlx5_0 port 1 (Ethernet at 200)" in text
    # The VM has the port of the network alone, under another name.
    assert '["UCX_NET_DEVICES", "mlx5_1:1"],  # UCX would use mlx5_0 port 1, too\n' in text
    assert '["UCX_NET_DEVICES", "mlx5_0:1"],  # as on the other side\n' in text


@pytest.mark.parametrize(
    ("name", "before", "after", "says"),
    [
        (
            *("eth-and-ib", '["-d", "mlx5_1", "-i", "1"]', '["-d", "mlx5_0"]'),
            "mlx5_0 port 1 of cn0008 is Ethernet, and MPI takes mlx5_1 port 1 (InfiniBand): write",
        ),
        (
            *("port2", '["-d", "mlx5_0", "-i", "2"]', '["-d", "mlx5_0"]'),
            'mlx5_0 port 1 of nid000008 is 1: DOWN (no -i names another): write ["-d", "mlx5_0", "-i", "2"]',
        ),
        (
            *("port2", '["-d", "mlx5_0", "-i", "2"]', '["-d", "mlx5_0", "-i", "3"]'),
            "names port 3 of mlx5_0, which nid000008 does not have",
        ),
        (
            "storage-400",
            '"link_gbit": 200',
            '"link_gbit": 400',
            "states 400.0, but it is 200 (rate of mlx5_0 port 1",
        ),
        (
            *("eth-and-ib", '["-d", "mlx5_1", "-i", "1"]', '["-d", "mlx5_0"]'),
            "mlx5_0 port 1 of cn0008 is Ethernet and mlx5_0 port 1 of vm0008 is InfiniBand: name ports of",
        ),
    ],
)
def test_stated_ports_are_held_against_the_nodes(at, name, before, after, says):  # noqa: F811
    site = at(name)
    initialise(site)
    complete(site)
    file = site.path / "site/systems/mysite.py"
    # Which of the ports MPI uses is left to UCX.
    text = re.sub(r'\["UCX_NET_DEVICES".*\n', "", file.read_text("utf-8"))
    assert before in text
    file.write_text(text.replace(before, after), "utf-8")
    assert says in check(site, "--on-nodes", code=2)


def test_a_site_may_say_that_mpi_uses_ethernet(at):  # noqa: F811
    site = at("eth-and-ib")
    initialise(site)
    complete(site)
    file = site.path / "site/systems/mysite.py"
    text = file.read_text("utf-8").replace('["-d", "mlx5_1", "-i", "1"]', '["-d", "mlx5_0"]')
    variables = '"env_vars": [["UCX_NET_DEVICES", "mlx5_0:1"]],'
    text = re.sub(r'"env_vars": \[\n(.*\],.*\n)+? *\],\n', "", text).replace(
        '"processor": {', f'{variables}\n"processor": {{'
    )
    file.write_text(text, "utf-8")
    said = check(site, "--on-nodes", code=2)
    assert "MPI takes" not in said
    file.write_text(text.replace("mlx5_0:1", "mlx5_1:1", 1), "utf-8")
    assert "names mlx5_0 port 1, but env_vars has MPI use UCX_NET_DEVICES=mlx5_1:1" in check(
        site, "--on-nodes", code=2
    )


def test_a_network_that_one_side_does_not_have_is_not_drafted(at):  # noqa: F811
    site = at("no-common-fabric")
    said = initialise(site)
    network = "No RDMA network is on both sides: nid000008 InfiniBand (mlx5_0 port 1) and vm0008 Ethernet"
    assert network in said
    system = complete(site)
    assert read_rdma(system) == ([], [], None)
    assert "rdma" not in system.partition("native").features


def test_a_network_without_verbs_is_named(at):  # noqa: F811
    assert "nid000008 has Slingshot (hsn0), which has no verbs" in initialise(at("slingshot"))


def test_threads_that_slurm_counts_as_cores_are_named(at):  # noqa: F811
    site = at("threads-as-cores")
    contradiction = (
        "Slurm has 32 cores of 1 thread for cn0004, but /sys of the node shows 16 cores of 2 threads: it "
        "counts hardware threads as cores. Correct its line in slurm.conf"
    )
    assert contradiction in initialise(site)
    complete(site)
    assert f"processor: {contradiction}" in check(site, "--on-nodes", code=2)


@pytest.mark.parametrize("name", ["nps4", "cpu0-offline"])
def test_sockets_that_are_numa_nodes_to_slurm_and_cpus_that_are_offline_are_no_contradiction(at, name):  # noqa: F811
    said = initialise(at(name))
    assert "but /sys" not in said


@pytest.mark.parametrize("name", ["labelled", "taskepilog", "binary-dmi"])
def test_what_a_site_prints_around_a_look_is_left_out(at, name):  # noqa: F811
    site = at(name)
    initialise(site)
    assert complete(site).native_extras.llc_bytes == 16 * 32 * 2**20
    check(site, "--on-nodes")


def test_slurms_name_of_a_node_is_used(at):  # noqa: F811
    """As on a Cray, whose nodes call themselves by their place."""
    site = at("slurm-name")
    said = initialise(site)
    assert "x1000" not in said
    complete(site)
    text = (site.path / "site/systems/mysite.py").read_text("utf-8")
    assert """"num_cpus": 128,  # Slurm's CPUs of nid000008""" in text
    check(site, "--on-nodes")


def test_a_name_that_slurm_does_not_have_is_named(at):  # noqa: F811
    said = initialise(at("nodename"))
    assert (
        "The node calls itself x1000c0s0b0n0, which is no name in Slurm: there it is one such as nid000001"
        in said
    )


def test_nodes_of_hosts_are_named_as_slurm_names_them(at):  # noqa: F811
    """As under CycleCloud, whose machines are called by their addresses."""
    site = at("two-names")
    initialise(site)
    assert "Slurm's CPUs of hpc-2" in (site.path / "site/systems/mysite.py").read_text("utf-8")
    complete(site)
    file = site.path / "site/systems/mysite.py"
    text = file.read_text("utf-8")
    for names, says in (
        (
            '{"h1": ["ip-0A000001"], "h2": ["ip-0A000002"]}',
            "names ip-0A000001 (hpc-1), ip-0A000002 (hpc-2) by",
        ),
        ('{"h1": ["hpc-1"], "h2": ["hpc-3"]}', "names hpc-3, which partition virt has not"),
    ):
        file.write_text(text.replace('"nodes_of_hosts": {}', f'"nodes_of_hosts": {names}'), "utf-8")
        assert says in check(site, code=2)


def test_threads_that_only_native_nodes_have_are_refused_as_such(at):  # noqa: F811
    site = at("ht-native-cores-vm")
    initialise(site)
    complete(site)
    done = site.virtqual("preflight", "--system", "mysite", code=4)
    refused = re.findall(r"^refused (\S+)", done.stdout, re.MULTILINE)
    assert refused[0] == "smt"
    assert "numa-false" not in refused
