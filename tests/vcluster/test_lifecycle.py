"""Coming and going: what dies is noticed, what ends leaves nothing, what crashed is cleaned up."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from cluster_under_test import LICENCE, Cluster, eventually

from vcluster import cluster as cluster_module
from vcluster import kernel, qemu, requirements
from vcluster.directory import StateDirectory
from vcluster.errors import BootError
from vcluster.options import Accelerator, Options
from vcluster.processes import list_namespace_members

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def interfaces() -> list[str]:
    return sorted(name for _, name in socket.if_nameindex())


def test_dead_vm_is_down_with_a_reason_and_its_job_ends(cluster: Cluster) -> None:
    number = cluster.submit("virtual", "sleep 600", "-w", "vm2", "-o", "/dev/null")
    cluster.wait_for_job(number, "RUNNING")
    os.kill(cluster.find_qemu("vm2.console"), signal.SIGKILL)
    eventually(lambda: cluster.vcluster("status").returncode == 5, 20)
    status = cluster.vcluster("status")
    assert "VM vm2 died (signal 9)" in status.stderr
    assert cluster.finished(number)["JobState"] == "NODE_FAIL"
    other = cluster.slurm("srun", "-p", "virtual", "-w", "vm1", *LICENCE, "hostname")
    assert other.stdout == "vm1\n"
    again = cluster.vcluster("up", "--hosts", "here")
    assert again.returncode == 0, again.stderr
    assert "damaged" in again.stdout
    assert cluster.is_healthy()


def test_controller_that_dies_comes_back_with_its_jobs(cluster: Cluster) -> None:
    number = cluster.submit("native", "sleep 8; exit 3", "-o", "/dev/null")
    cluster.wait_for_job(number, "RUNNING")
    time.sleep(1)
    cluster.vcluster("exec", "sh", "-c", "kill -9 $(cat /run/slurmctld.pid)")
    eventually(lambda: cluster.job(number).get("JobState"))
    assert cluster.finished(number)["ExitCode"] == "3:0"
    assert cluster.is_healthy()


def test_down_leaves_nothing(fresh: Cluster) -> None:
    fresh.vcluster("down")
    before = (interfaces(), Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
    assert fresh.leftovers() == []
    processes = fresh.up().processes
    assert processes is not None
    # A command that entered from outside and would hold the namespaces.
    held = subprocess.Popen(
        [str(fresh.directory.bin / "srun"), *LICENCE, "sleep", "600"],
        env=fresh.environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    eventually(lambda: fresh.slurm("squeue", "--noheader").stdout)
    assert len(list_namespace_members(frozenset(processes.namespaces))) > 5
    result = fresh.vcluster("down")
    assert (result.returncode, result.stdout) == (0, "the cluster is down\n")
    held.wait(20)
    assert list_namespace_members(frozenset(processes.namespaces)) == []
    assert (interfaces(), Path("/proc/self/mountinfo").read_text(encoding="utf-8")) == before
    assert fresh.leftovers() == []
    assert fresh.state().status == "down"
    again = fresh.vcluster("down")
    assert (again.returncode, again.stdout) == (0, "no cluster was up\n")
    refused = fresh.slurm("sinfo")
    assert refused.returncode == 1
    assert refused.stderr.startswith("sinfo: the cluster is not up")
    assert fresh.vcluster("status").returncode == 1
    assert fresh.vcluster("exec", "true").returncode == 1


@pytest.mark.parametrize("victim", ["entry", "holder"])
def test_up_after_a_crash(fresh: Cluster, victim: str) -> None:
    processes = fresh.up().processes
    assert processes is not None
    os.kill(getattr(processes, victim).pid, signal.SIGKILL)
    eventually(lambda: not list_namespace_members(frozenset(processes.namespaces)), 30)
    assert fresh.leftovers() == []
    assert fresh.vcluster("status").returncode == 1
    assert fresh.slurm("sinfo").returncode == 1
    fresh.up()
    assert fresh.is_healthy()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_up_that_is_interrupted(fresh: Cluster, number: int) -> None:
    fresh.vcluster("down")
    process = fresh.begin_up()
    assert process.stdout is not None
    for line in process.stdout:
        if "VMs started" in line:
            break
    process.send_signal(number)
    process.wait(30)
    eventually(lambda: fresh.leftovers() == [], 30)
    assert fresh.vcluster("status").returncode == 1
    assert fresh.vcluster("down").returncode == 0
    assert fresh.leftovers() == []


def test_guest_that_cannot_start_is_reported(fresh: Cluster) -> None:
    fresh.vcluster("down")
    result = fresh.vcluster("up", "--accel", "tcg", "--qemu-arg=-nonsense")
    assert result.returncode == 5
    assert "ended (exit code 1)" in result.stderr
    assert "nonsense" in result.stderr
    assert fresh.leftovers() == []


def test_a_vm_whose_emulator_crashes_as_it_boots_is_started_again_once(fresh: Cluster) -> None:
    for crashes in (1, 2):
        fresh.vcluster("down")
        process = fresh.begin_up()
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "VMs started" in line or (crashes == 2 and "started again, once" in line):
                os.kill(fresh.find_qemu("vm1.console"), signal.SIGSEGV)
        assert process.stderr is not None
        error = process.stderr.read()
        assert said.count("VM vm1 died (signal 11) while it booted: started again, once") == 1
        if crashes == 1:
            assert process.wait(30) == 0, error
            assert fresh.is_healthy()
        else:
            assert process.wait(30) == 5
            assert "the cluster did not start: VM vm1 died (signal 11)" in error


def test_two_clusters_side_by_side(cluster: Cluster, tmp_path: Path) -> None:
    other = Cluster(tmp_path / "state", Path(cluster.environment["VCLUSTER_KERNEL"]))
    try:
        result = other.vcluster("up", "--accel", "tcg", "--vms", "1", "--vcpus", "1")
        assert result.returncode == 0, result.stderr
        names = other.slurm("sinfo", "--noheader", "--Node", "--format=%N").stdout.split()
        assert names == ["native1", "vm1"]
        assert cluster.is_healthy()
    finally:
        other.vcluster("down")
    assert other.leftovers() == []
    assert cluster.is_healthy()


def one_vm(directory: StateDirectory, guest_kernel: Path) -> Options:
    binary = requirements.program("qemu-system-x86_64")
    return Options(
        qemu=binary, shared=directory.shared, kernel=guest_kernel, vms=1, vcpus=1, accel=Accelerator.TCG
    )


def test_shared_directory_that_cannot_be_mounted_is_fatal(
    fresh: Cluster, guest_kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = qemu.command

    def command(*arguments: object, **more: object) -> list[str]:
        line = real(*arguments, **more)  # type: ignore[arg-type]
        return [part.replace("mount_tag=shared", "mount_tag=other") for part in line]

    monkeypatch.setattr(qemu, "command", command)
    directory = StateDirectory(tmp_path / "state")
    options = one_vm(directory, guest_kernel)
    with pytest.raises(BootError, match=rf"vm1 says: mounting {directory.shared}"):
        cluster_module.up(directory, options, 120, lambda _: None)
    assert Cluster(directory.root).leftovers() == []


def test_a_vm_that_hangs_before_its_first_word_is_started_again(
    fresh: Cluster, guest_kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = qemu.command
    hang_once = 'if mkdir "$0" 2> /dev/null; then exec sleep 1000; fi; exec "$@"'

    def command(*arguments: object, **more: object) -> list[str]:
        return ["sh", "-c", hang_once, str(tmp_path / "hung"), *real(*arguments, **more)]  # type: ignore[arg-type]

    monkeypatch.setattr(qemu, "command", command)
    directory = StateDirectory(tmp_path / "state")
    options = one_vm(directory, guest_kernel)
    said: list[str] = []
    try:
        cluster_module.up(directory, options, 80, said.append)
        assert "vm1 said nothing for 20 s: started again" in said
    finally:
        Cluster(directory.root).vcluster("down")
    assert Cluster(directory.root).leftovers() == []


def test_probe_boots_the_real_guest(guest_kernel: Path, tmp_path: Path) -> None:
    # QEMU behind a script that turns KVM into emulation: all else of the probe is as it is under KVM.
    binary = tmp_path / "qemu"
    real = requirements.program("qemu-system-x86_64")
    binary.write_text(
        "#!/bin/bash\nfor word; do\n"
        '    case $word in kvm) word=tcg ;; host) word=max ;; esac; words+=("$word")\n'
        f'done\nexec {real} "${{words[@]}}"\n'
    )
    binary.chmod(0o755)
    found = kernel.locate_kernel(StateDirectory(tmp_path), guest_kernel, None)
    image = kernel.unpack_kernel(found, tmp_path / "cache")
    base = kernel.make_base_initramfs(found, tmp_path / "cache")
    device = tmp_path / "kvm"
    device.touch()
    works, reason = qemu.probe_kvm(
        Options(qemu=binary, shared=tmp_path), qemu.identify(binary), image, base, tmp_path / "cache",
        seconds=60, device=device,
    )  # fmt: skip
    assert (works, reason) == (True, "a guest booted under KVM")
