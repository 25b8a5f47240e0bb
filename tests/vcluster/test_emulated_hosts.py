"""Emulated hosts: real KVM guests on them, and what becomes of a host or guest that is lost."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster_under_test import Cluster

from vcluster import emulated, fetch, slurm_conf
from vcluster.errors import ClusterError, NodeError
from vcluster.processes import list_pids

SIDES = ("native", "virtual")
LICENCE = ("-L", "host:1")
pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def hosts(guest_kernel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One emulated host with its guest."""
    made = Cluster(tmp_path_factory.mktemp("hosts") / "state")
    made.environment["VCLUSTER_KERNEL"] = str(guest_kernel)
    try:
        fetch.fetch_emulator(tmp_path_factory.getbasetemp().parent / "vcluster-emulator", print)
    except ClusterError as error:
        pytest.skip(f"no QEMU that emulates hosts: {error}")
    made.directory.root.mkdir(parents=True)
    made.directory.emulator.symlink_to(tmp_path_factory.getbasetemp().parent / "vcluster-emulator")
    made.up("--hosts", "emulated:1", "--kvm", "halt_poll_ns=100000")
    yield made
    made.vcluster("down")


def eventually(holds: Callable[[], object], seconds: float = 120) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.2)


def on(cluster: Cluster, side: str, line: str) -> str:
    """Return what a line of shell prints on a node of a side."""
    done = cluster.slurm("srun", "-p", side, *LICENCE, "sh", "-c", line)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def on_host(cluster: Cluster, line: str) -> str:
    """Return what a line of shell prints on the host."""
    return emulated.run_on_host(cluster.directory.logs, "host1", line)[1].strip()


def healthy(cluster: Cluster) -> bool:
    """Return whether all nodes are."""
    return cluster.vcluster("status").returncode == 0


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
    job = hosts.slurm("sbatch", "--parsable", "-p", "virtual", *LICENCE, "-t", "1", "--wrap", "sleep 600")
    number = job.stdout.strip()
    eventually(lambda: "JobState=RUNNING" in hosts.slurm("scontrol", "show", "job", number).stdout)
    on_host(hosts, "kill -STOP $(cat /run/vcluster/vm.pid)")
    # Slurm ends the job, and waits for the node to say that it has.
    eventually(lambda: "JobState=RUNNING" not in hosts.slurm("scontrol", "show", "job", number).stdout, 200)
    on_host(hosts, "kill -CONT $(cat /run/vcluster/vm.pid)")
    eventually(lambda: "JobState=TIMEOUT" in hosts.slurm("scontrol", "show", "job", number).stdout)
    eventually(lambda: healthy(hosts))
    assert on(hosts, "virtual", "hostname") == "vm1"


def test_a_host_that_is_lost_is_noticed_at_once_and_started_again(hosts: Cluster) -> None:
    before = boot_of(hosts, "native")
    job = hosts.slurm("sbatch", "--parsable", "-p", "virtual", *LICENCE, "--wrap", "sleep 600")
    number = job.stdout.strip()
    eventually(lambda: "JobState=RUNNING" in hosts.slurm("scontrol", "show", "job", number).stdout)
    mark = str(hosts.directory.logs / "host1.control")
    lines = {pid: Path(f"/proc/{pid}/cmdline") for pid in list_pids()}
    (qemu,) = (pid for pid, line in lines.items() if line.exists() and mark in line.read_text())
    os.kill(qemu, signal.SIGKILL)
    eventually(lambda: not healthy(hosts), 10)
    status = hosts.vcluster("status")
    for node in ("native1", "vm1"):
        assert f"{node} down: host host1 died (signal 9), is started again" in status.stderr
    eventually(lambda: "JobState=NODE_FAIL" in hosts.slurm("scontrol", "show", "job", number).stdout, 30)
    eventually(lambda: healthy(hosts))
    assert boot_of(hosts, "native") != before
    assert on(hosts, "virtual", "hostname") == "vm1"


def test_a_guest_that_dies_is_down_with_a_reason_and_its_host_is_not(hosts: Cluster) -> None:
    on_host(hosts, "kill -KILL $(cat /run/vcluster/vm.pid)")
    eventually(lambda: not healthy(hosts), 20)
    assert "vm1 down: VM vm1 died (signal 9)" in hosts.vcluster("status").stderr
    assert on(hosts, "native", "hostname") == "native1"
    assert hosts.vcluster("boot-vms-anew").returncode == 0
    assert on(hosts, "virtual", "hostname") == "vm1"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--hosts", "emulated:2", "--vms", "1"), "an emulated host carries one VM"),
        (("--hosts", "elsewhere"), "expected auto, here, emulated or emulated:N"),
        (("--hosts", "emulated", "--accel", "tcg"), "guests of emulated hosts run under KVM"),
        (("--hosts", "emulated", "--kvm", "nqt=0"), "kvm and kvm_amd of kernel"),
        (("--hosts", "emulated", "--kvm", "npt"), "expected PARAMETER=VALUE"),
        (("--hosts", "emulated", "--memory", "900G"), "ask for less with --memory or --vms"),
        (
            ("--hosts", "here", "--accel", "tcg", "--kvm", "npt=0"),
            "KVM on this machine has no such parameter",
        ),
    ],
)
def test_options_that_make_no_sense_are_named(
    hosts: Cluster, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    other = Cluster(tmp_path / "other")
    other.environment["VCLUSTER_KERNEL"] = hosts.environment["VCLUSTER_KERNEL"]
    other.directory.root.mkdir()
    other.directory.emulator.symlink_to(hosts.directory.emulator)
    refused = other.vcluster("up", *options)
    assert refused.returncode == 2
    assert message in refused.stderr
