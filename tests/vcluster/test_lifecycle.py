"""Coming and going: what dies is noticed, what ends leaves nothing, what crashed is cleaned up."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_under_test import LICENCE, Cluster, eventually, make_options

from made_programs import write_program
from vcluster import cluster as cluster_module
from vcluster import nodefiles, qemu, requirements
from vcluster.directory import StateDirectory
from vcluster.errors import BootError
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
    assert (again.returncode, again.stdout) == (0, f"no cluster was up in {fresh.directory.root}\n")
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
    result = fresh.vcluster("up", "--hosts", "here", "--qemu-arg=-nonsense")
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
        assert said.count("VM vm1 died (signal 11) while it booted: started again, once") == 1
        if crashes == 1:
            assert process.wait(30) == 0, said
            assert fresh.is_healthy()
        else:
            assert process.wait(30) == 5
            assert "the cluster did not start: VM vm1 died (signal 11)" in said


@pytest.fixture
def another(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of this process, which leaves nothing."""
    cluster = Cluster(tmp_path / "state")
    yield cluster
    cluster.vcluster("down")
    assert cluster.leftovers() == []


def up_one_vm(cluster: Cluster, guest_kernel: Path, seconds: float) -> list[str]:
    """Bring up one VM; return what was reported."""
    options = make_options(
        qemu=requirements.program("qemu-system-x86_64"), shared=cluster.directory.shared,
        kernel=guest_kernel, vms=1, vcpus=1, hosts="here",
    )  # fmt: skip
    steps: list[str] = []
    cluster_module.up(cluster.directory, options, seconds, steps.append)
    return steps


def test_two_clusters_side_by_side(cluster: Cluster, another: Cluster) -> None:
    another.environment["VCLUSTER_KERNEL"] = cluster.environment["VCLUSTER_KERNEL"]
    another.up("--hosts", "here", "--vms", "1", "--vcpus", "1")
    names = another.slurm("sinfo", "--noheader", "--Node", "--format=%N").stdout.split()
    assert names == ["native1", "vm1"]
    assert cluster.is_healthy()
    another.vcluster("down")
    assert another.leftovers() == []
    assert cluster.is_healthy()


def test_shared_directory_that_cannot_be_mounted_is_fatal(
    another: Cluster, guest_kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = qemu.command

    def command(*arguments: object, **more: object) -> list[str]:
        line = real(*arguments, **more)  # type: ignore[arg-type]
        return [part.replace("mount_tag=shared", "mount_tag=other") for part in line]

    monkeypatch.setattr(qemu, "command", command)
    with pytest.raises(BootError, match=rf"vm1 says: mounting {another.directory.shared}"):
        up_one_vm(another, guest_kernel, 120)
    assert another.leftovers() == []


def test_a_vm_that_hangs_before_its_first_word_is_started_again(
    another: Cluster, guest_kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = qemu.command
    hang_once = 'if mkdir "$0" 2> /dev/null; then exec sleep 1000; fi; exec "$@"'

    def command(*arguments: object, **more: object) -> list[str]:
        return ["sh", "-c", hang_once, str(tmp_path / "hung"), *real(*arguments, **more)]  # type: ignore[arg-type]

    monkeypatch.setattr(qemu, "command", command)
    assert "vm1 said nothing for 20 s: started again" in up_one_vm(another, guest_kernel, 80)


def test_probe_boots_the_real_guest(guest_kernel: Path, tmp_path: Path) -> None:
    # QEMU behind a script that turns KVM into emulation: all else of the probe is as it is under KVM.
    real = requirements.program("qemu-system-x86_64")
    binary = write_program(
        tmp_path / "qemu",
        "#!/bin/bash\nfor word; do\n"
        '    case $word in kvm) word=tcg ;; host) word=max ;; esac; words+=("$word")\n'
        f'done\nexec {real} "${{words[@]}}"\n',
    )
    options = make_options(qemu=binary, kernel=guest_kernel)
    directory = StateDirectory(tmp_path)
    files = nodefiles.make_boot_files(directory, options)
    (tmp_path / "kvm").touch()
    works, reason = qemu.probe_kvm(
        options, qemu.identify(binary), files.image, files.initramfs, directory.cache,
        seconds=60, device=tmp_path / "kvm",
    )  # fmt: skip
    assert (works, reason) == (True, "a guest booted under KVM")
