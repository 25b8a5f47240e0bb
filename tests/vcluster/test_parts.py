"""Options, topology, processes, configuration, requirements: all without a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_under_test import make_options
from pydantic import ValidationError
from typer.testing import CliRunner

from vcluster import cli, cluster, host, network, nodefiles, processes, requirements, slurm_conf, topology
from vcluster.directory import StateDirectory
from vcluster.errors import NodeError, OptionError, RequirementError
from vcluster.kernel import GuestKernel
from vcluster.options import parse_memory
from vcluster.processes import Process, list_children
from vcluster.topology import make_nodes


def test_memory() -> None:
    sizes = {"2G": 2048, "1536M": 1536, "900": 900, "1GiB": 1024}
    assert {text: parse_memory(text) for text in sizes} == sizes
    for text in ("", "2T", "-1G", "1.5G", "G"):
        with pytest.raises(OptionError, match="--memory"):
            parse_memory(text)


def test_options_have_bounds_and_name_their_differences() -> None:
    with pytest.raises(ValidationError):
        make_options(vms=0)
    options = make_options()
    assert options.differences(make_options()) == []
    assert options.differences(make_options(vms=3)) == ["vms 2, asked for 3"]
    assert options.differences(make_options(qemu_args=["-x", "y"])) == ["qemu-args none, asked for -x y"]


@pytest.mark.parametrize(
    ("host_cpus", "cpus_per_node", "expected"),
    [
        ([0, 1], 2, [(0, 1), (1, 0), (0, 1)]),
        ([0, 1, 2, 3], 2, [(0, 1), (2, 3), (1, 2)]),
        ([0, 1, 2, 3], 1, [(0,), (1,), (2,)]),
        ([4, 6], 1, [(4,), (6,), (6,)]),
        ([0, 1, 2, 3], 3, [(0, 1, 2), (1, 2, 3), (2, 3, 0)]),
        (None, 2, [(0, 1), (0, 1), (0, 1)]),
    ],
)
def test_a_pair_has_the_same_cpus(
    host_cpus: list[int] | None, cpus_per_node: int, expected: list[tuple[int, ...]]
) -> None:
    native = make_nodes("native", 3, cpus_per_node, host_cpus)
    virtual = make_nodes("virtual", 3, cpus_per_node, host_cpus)
    assert [node.cpus for node in native] == [node.cpus for node in virtual] == expected
    addresses = {node.address for node in native + virtual} | {node.mac for node in native + virtual}
    assert len(addresses) == 12


def test_last_level_caches_are_counted_once(tmp_path: Path) -> None:
    for cpu, group in ((0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")):
        for index, (level, size, shared) in enumerate([(1, "32K", str(cpu)), (3, "8M", group)]):
            folder = tmp_path / f"cpu{cpu}/cache/index{index}"
            folder.mkdir(parents=True)
            values = {"type": "Unified", "level": level, "size": size, "shared_cpu_list": shared}
            for name, value in values.items():
                (folder / name).write_text(f"{value}\n")
    assert host.measure_last_level_caches(tmp_path) == 16 << 20
    assert host.measure_last_level_caches(tmp_path / "none") == 0


def test_this_machine_is_described_as_its_kernel_does() -> None:
    described = host.describe_host()
    assert f": {described.cpu_model}\n" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    assert 0 < host.read_memory_mib("MemAvailable") < described.memory_mib
    assert host.read_memory_mib("NoSuchKey") == 0


def test_slurm_conf_lets_native_nodes_be_as_large_as_several_vms() -> None:
    options = make_options(vcpus=1, native_cpus=2)
    native = make_nodes("native", 2, options.cpus_per_native_node, [0, 1])
    virtual = make_nodes("virtual", 2, options.vcpus, [0, 1])
    text = slurm_conf.render(options, native, virtual, Path("/state/spool"), Path("/state/log"))
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and line[0] != "#")
    assert values["Licenses"] == slurm_conf.LICENCE
    assert values["StateSaveLocation"] == "/state/spool"
    for line in (
        "PartitionName=native Nodes=native1,native2 Default=YES",
        "PartitionName=virtual Nodes=vm1,vm2 MaxTime",
        "NodeName=native2 NodeAddr=10.77.1.2 CPUs=2 ",
        "NodeName=vm2 NodeAddr=10.77.2.2 CPUs=1 RealMemory=1536",
    ):
        assert line in text
    assert "$" not in text
    assert make_options(vcpus=3).cpus_per_native_node == 3


def test_network_has_no_way_out_and_every_node_a_name() -> None:
    native, virtual = make_nodes("native", 2, 1, [0, 1]), make_nodes("virtual", 1, 1, [0])
    lines = network.commands(native, virtual)
    assert not [line for line in lines if "route" in line]
    assert "tuntap add dev vm1 mode tap" in lines
    text = topology.render_hosts_file(native)
    assert "10.77.0.1 head" in text
    assert "10.77.1.2 native2" in text


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_files_with_the_munge_key_are_for_their_owner_and_go_with_the_cluster(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path / "with blank").make()
    nodefiles.write_files(directory, make_options(), (), ())
    first_key = (directory.etc / "munge/key").read_bytes()
    native, virtual = make_nodes("native", 1, 1, [0]), make_nodes("virtual", 1, 1, [0])
    nodefiles.write_files(directory, make_options(), native, virtual)
    key = (directory.etc / "munge/key").read_bytes()
    assert len(key) == 1024
    assert key != first_key
    directory.cache.mkdir()
    base = directory.cache / "initramfs-6.1"
    base.write_bytes(b"")
    # As an earlier version left it.
    (directory.cache / "vm1.initramfs").touch(mode=0o644)
    kernel = GuestKernel("6.1", tmp_path / "vmlinuz", tmp_path)
    files = nodefiles.BootFiles(kernel, kernel.image, base, None)
    packed = nodefiles.pack_initramfs(directory, virtual[0], files, make_options(), [])
    holders = {path for path in directory.root.rglob("*") if path.is_file() and key in path.read_bytes()}
    assert holders == {directory.etc / "munge/key", packed}
    assert {mode(path) for path in holders} == {0o600}
    cluster.down(directory)
    assert not [path for path in holders if path.exists()]
    assert base.exists()


def test_state_directory_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("VCLUSTER_DIR", str(tmp_path / "x"))
    assert StateDirectory.default().root == tmp_path / "x"
    monkeypatch.delenv("VCLUSTER_DIR")
    assert StateDirectory.default().root == tmp_path / "vcluster"
    for path in ("/run/x", "/dev/shm/x"):
        monkeypatch.setenv("VCLUSTER_DIR", path)
        with pytest.raises(OptionError, match="mounts anew"):
            StateDirectory.default()


@pytest.mark.parametrize("command", ["kernel", "emulator", "path", "up"])
def test_every_command_that_writes_makes_the_state_directory_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("VCLUSTER_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", "/nonexistent")
    # All end early: fetching has no apt, and nothing else is there either.
    monkeypatch.setattr(requirements, "SEARCH_PATH", str(tmp_path))
    CliRunner().invoke(cli.app, [command])
    assert mode(tmp_path / "state") == 0o700


@pytest.mark.parametrize("name", ["lock", "kernel", "cache", "shared", None])
def test_an_existing_state_directory_is_closed_to_other_users(tmp_path: Path, name: str | None) -> None:
    tmp_path.chmod(0o755)
    if name:
        (tmp_path / name).mkdir()
    assert mode(StateDirectory(tmp_path).make().root) == 0o700


def test_a_directory_of_something_else_is_not_closed_to_other_users(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(OptionError, match="files that are not vcluster's: choose an empty"):
        StateDirectory(tmp_path).make()
    assert mode(tmp_path) == 0o755


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OptionError("no such option."), 2, "no such option."),
        (NodeError("vm1 down"), 5, "vm1 down"),
        (KeyboardInterrupt(), 130, "interrupted; `vcluster status` shows whether a cluster is up."),
    ],
)
def test_a_command_ends_with_the_exit_code_of_its_error(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    def fail(_: object) -> bool:
        raise error

    monkeypatch.setattr(cluster, "down", fail)
    result = CliRunner().invoke(cli.app, ["down"])
    assert (result.exit_code, result.stderr) == (code, f"vcluster: {message}\n")


def test_process_identity() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        process = Process.look_up(child.pid)
        assert process.is_alive()
        assert child.pid in list_children(os.getpid())
        later = process.model_copy(update={"started": process.started + 1})
        assert not later.is_alive()
        assert not later.kill()
        assert not process.model_copy(update={"boot": "another"}).is_alive()
        assert child.poll() is None
        assert process.kill()
        assert process.wait(5)
    finally:
        child.kill()
        child.communicate()
    with pytest.raises(ProcessLookupError):
        Process.look_up(child.pid)


def test_a_process_that_is_ending_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process of namespaces sleeps without its namespaces until all others in them have ended."""
    process = Process.look_up(os.getpid())
    fields = ["S", "1", "1", "1", "0", "-1", "4194564", *["0"] * 12, str(process.started)]
    monkeypatch.setattr(processes, "_read_stat", lambda _: fields)
    assert not process.is_alive()
    assert not process.wait(0)
    fields[6] = "4194560"
    assert process.is_alive()


def test_missing_programs_are_named_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(requirements, "SEARCH_PATH", str(tmp_path))
    with pytest.raises(
        RequirementError, match=r"slurmctld.*munged.*apt-get install slurmctld slurmd .*munge"
    ):
        requirements.check_programs()
    with pytest.raises(RequirementError, match="iproute2"):
        requirements.program("ip")
