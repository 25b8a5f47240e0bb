"""Emulated hosts: real KVM guests on them, and what becomes of a host or guest that is lost."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_under_test import LICENCE, Cluster, eventually

from vcluster import emulated, fetch, slurm_conf
from vcluster.errors import ClusterError, NodeError

SIDES = ("native", "virtual")
pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def hosts(guest_kernel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One emulated host with its guest."""
    cluster = Cluster(tmp_path_factory.mktemp("hosts") / "state", guest_kernel)
    emulator = tmp_path_factory.getbasetemp().parent / "vcluster-emulator"
    try:
        fetch.fetch_emulator(emulator, print)
    except ClusterError as error:
        pytest.skip(f"no QEMU that emulates hosts: {error}")
    cluster.directory.root.mkdir(parents=True)
    cluster.directory.emulator.symlink_to(emulator)
    cluster.up("--hosts", "emulated:1", "--kvm", "halt_poll_ns=100000", "--disk-cache", "writethrough")
    yield cluster
    cluster.vcluster("down")


def on(cluster: Cluster, side: str, line: str) -> str:
    """Return what a line of shell prints on a node of a side."""
    done = cluster.slurm("srun", "-p", side, *LICENCE, "sh", "-c", line)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def on_host(cluster: Cluster, line: str) -> str:
    """Return what a line of shell prints on the host."""
    return emulated.run_on_host(cluster.directory.logs, "host1", line)[1].strip()


def boot_of(cluster: Cluster, side: str) -> str:
    """Return which boot of a node it is."""
    return on(cluster, side, "cat /proc/sys/kernel/random/boot_id")


def test_the_guest_runs_under_kvm_of_a_host_that_is_the_native_node(hosts: Cluster) -> None:
    assert "svm" in on(hosts, "native", "grep -m1 flags /proc/cpuinfo").split()
    assert on(hosts, "native", "pgrep -c qemu-system") == "1"
    assert on(hosts, "native", "hostname") == "native1"
    clocks = on(hosts, "virtual", "cat /sys/devices/system/clocksource/*/available_clocksource")
    assert "kvm-clock" in clocks.split()
    (host,) = hosts.state().hosts
    assert (host.native, host.virtual) == (("native1",), ("vm1",))
    assert host.emulator is not None
    assert host.emulator.binary.is_relative_to(hosts.directory.emulator.resolve())
    assert host.kvm["kvm.halt_poll_ns"] == "100000"
    assert host.kvm["kvm_amd.npt"] == "Y"


def test_both_sides_have_the_same_instructions_and_what_jobs_open_in_memory(hosts: Cluster) -> None:
    flags = {side: set(on(hosts, side, "grep -m1 flags /proc/cpuinfo").split()) for side in SIDES}
    of_programs = re.compile("sse|avx|fma|f16c|bmi|aes|popcnt|movbe|adx|sha_ni|xsave")
    chosen = {side: {flag for flag in flags[side] if of_programs.search(flag)} for side in SIDES}
    assert chosen["native"] == chosen["virtual"] > {"sse4_2", "popcnt"}
    plugins = slurm_conf.find_plugins()
    for side in SIDES:
        assert on(hosts, side, f"stat -f -c %T {plugins}/auth_munge.so") == "tmpfs"


def test_each_side_has_a_disk_of_its_own_and_the_vms_is_opened_as_asked_for(hosts: Cluster) -> None:
    folder = emulated.SCRATCH
    line = f"stat -f -c '%T %b' {folder}; : > {folder}/$(hostname); ls {folder}"
    lines = {side: on(hosts, side, line).splitlines() for side in SIDES}
    assert lines["native"][0] == lines["virtual"][0]
    assert lines["native"][0].startswith("ext2/ext3 ")
    assert [lines[side][1:] for side in SIDES] == [["lost+found", "native1"], ["lost+found", "vm1"]]
    assert "file=/dev/vdb,format=raw,if=virtio,cache=writethrough" in on_host(hosts, "cat /run/vcluster/vm")
    partitions = hosts.state().partitions
    assert partitions.native.scratch == partitions.virtual.scratch == folder


def test_commands_on_a_host_have_their_exit_code_and_end_in_time(hosts: Cluster) -> None:
    done = hosts.vcluster("host", "host1", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.returncode, done.stdout) == (3, "out\nerr\n")
    nowhere = hosts.vcluster("host", "host9", "true")
    assert nowhere.returncode == 2
    assert "no emulated host 'host9'; there are: host1" in nowhere.stderr
    with pytest.raises(NodeError, match="has not answered 'sleep 5' within 1 s"):
        emulated.run_on_host(hosts.directory.logs, "host1", "sleep 5", seconds=1)
    eventually(lambda: on_host(hosts, "echo here") == "here", 20)


def test_vms_are_booted_anew_and_their_host_is_not(hosts: Cluster) -> None:
    before = {side: boot_of(hosts, side) for side in ("native", "virtual")}
    done = hosts.vcluster("boot-vms-anew")
    assert done.returncode == 0, done.stderr
    assert boot_of(hosts, "native") == before["native"]
    assert boot_of(hosts, "virtual") != before["virtual"]


def test_a_guest_that_hangs_ends_its_job_at_the_time_limit_and_goes_on(hosts: Cluster) -> None:
    mark = hosts.directory.shared / "begun"
    number = hosts.submit("virtual", f"touch {mark}; sleep 600", "-t", "1")
    # Slurm calls the job running before its script has begun.
    eventually(mark.exists)
    on_host(hosts, "kill -STOP $(cat /run/vcluster/vm.pid)")
    # Slurm ends the job, and waits for the node to say that it has.
    eventually(lambda: hosts.job(number)["JobState"] != "RUNNING", 200)
    on_host(hosts, "kill -CONT $(cat /run/vcluster/vm.pid)")
    hosts.wait_for_job(number, "TIMEOUT")
    eventually(lambda: hosts.is_healthy())
    assert on(hosts, "virtual", "hostname") == "vm1"


def test_a_host_that_is_lost_is_noticed_at_once_and_started_again(hosts: Cluster) -> None:
    before = boot_of(hosts, "native")
    number = hosts.submit("virtual", "sleep 600")
    hosts.wait_for_job(number, "RUNNING")
    os.kill(hosts.find_qemu("host1.control"), signal.SIGKILL)
    eventually(lambda: not hosts.is_healthy(), 10)
    status = hosts.vcluster("status")
    for node in ("native1", "vm1"):
        assert f"{node} down: host host1 died (signal 9), is started again" in status.stderr
    hosts.wait_for_job(number, "NODE_FAIL", seconds=30)
    eventually(lambda: hosts.is_healthy())
    assert boot_of(hosts, "native") != before
    assert on(hosts, "virtual", "hostname") == "vm1"


def test_a_guest_that_dies_is_down_with_a_reason_and_its_host_is_not(hosts: Cluster) -> None:
    on_host(hosts, "kill -KILL $(cat /run/vcluster/vm.pid)")
    eventually(lambda: not hosts.is_healthy(), 20)
    assert "vm1 down: VM vm1 died (signal 9)" in hosts.vcluster("status").stderr
    assert on(hosts, "native", "hostname") == "native1"
    assert hosts.vcluster("boot-vms-anew").returncode == 0
    assert on(hosts, "virtual", "hostname") == "vm1"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--hosts", "emulated", "--kvm", "nqt=0"), "kvm and kvm_amd of kernel"),
        (("--hosts", "emulated", "--memory", "900G"), "ask for less with --memory or --vms"),
        (("--hosts", "here", "--kvm", "npt=0"), "only emulated hosts are given parameters of KVM"),
    ],
)
def test_options_that_make_no_sense_are_named(
    hosts: Cluster, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    other = Cluster(tmp_path / "other", Path(hosts.environment["VCLUSTER_KERNEL"]))
    other.directory.root.mkdir()
    other.directory.emulator.symlink_to(hosts.directory.emulator)
    refused = other.vcluster("up", *options)
    assert refused.returncode == 2
    assert message in refused.stderr
