"""What the cluster does, on a real one."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from cluster_under_test import LICENCE, Cluster, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_all_nodes_are_idle(cluster: Cluster) -> None:
    result = cluster.vcluster("status", "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert {name: node["state"] for name, node in report["nodes"].items()} == dict.fromkeys(
        ("native1", "native2", "vm1", "vm2"), "idle"
    )
    assert report["state"]["hypervisor"]["vendor"] == "QEMU"
    table = cluster.vcluster("status").stdout
    assert max(map(len, table.splitlines())) <= 80 or str(cluster.directory.root) in table


def test_up_again_does_nothing_and_refuses_other_options(cluster: Cluster) -> None:
    before = cluster.state()
    again = cluster.vcluster("up", "--hosts", "here")
    assert (again.returncode, "already up" in again.stdout) == (0, True)
    assert cluster.state() == before
    other = cluster.vcluster("up", "--hosts", "here", "--vms", "1")
    assert other.returncode == 2
    assert "vms 2, asked for 1" in other.stderr


def srun_on_both_nodes(cluster: Cluster, side: str, *command: str) -> list[str]:
    result = cluster.slurm("srun", "-p", side, "-N2", "-n2", *LICENCE, *command)
    assert result.returncode == 0, result.stderr
    return sorted(result.stdout.splitlines())


def test_nodes_are_what_the_state_file_says(cluster: Cluster) -> None:
    state = cluster.state()
    assert srun_on_both_nodes(cluster, "native", "uname", "-nr") == [
        f"{name} {state.host.kernel}" for name in ("native1", "native2")
    ]
    assert srun_on_both_nodes(cluster, "virtual", "uname", "-nr") == [
        f"{name} {state.guest.kernel}" for name in ("vm1", "vm2")
    ]
    assert os.uname().release == state.host.kernel
    assert (state.partitions.virtual.rdma, state.partitions.native.rdma) == ("rxe0", None)
    port = "/sys/class/infiniband/rxe0/ports/1/state"
    assert srun_on_both_nodes(cluster, "virtual", "cat", port) == ["4: ACTIVE"] * 2


@pytest.mark.parametrize("partition", ["native", "virtual"])
def test_shared_directory_is_coherent_and_the_rest_is_read_only(cluster: Cluster, partition: str) -> None:
    mark = cluster.directory.shared / f"mark-{partition}"
    mark.write_text("from the host")
    script = f"cat {mark}; echo from the node > {mark}.back; touch {cluster.directory.root}/stray || true"
    result = cluster.slurm("srun", "-p", partition, "-n1", *LICENCE, "bash", "-c", script)
    assert result.stdout == "from the host"
    assert Path(f"{mark}.back").read_text(encoding="utf-8") == "from the node\n"
    if partition == "virtual":
        assert not (cluster.directory.root / "stray").exists()
    (cluster.directory.root / "stray").unlink(missing_ok=True)


def affinities(cluster: Cluster, *arguments: str) -> list[str]:
    command = ("--cpu-bind=cores", *LICENCE, "grep", "Cpus_allowed_list", "/proc/self/status")
    result = cluster.slurm("srun", *arguments, *command)
    assert result.returncode == 0, result.stderr
    return sorted(line.split()[-1] for line in result.stdout.splitlines())


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="binding needs two CPUs")
def test_tasks_have_cpus_of_their_own(cluster: Cluster) -> None:
    owned = cluster.state().partitions.native.host_cpus
    across = affinities(cluster, "-p", "native", "-N2", "-n2", "-c1")
    assert across == sorted(str(cpus[0]) for cpus in owned.values())
    assert len(set(across)) == 2
    within = affinities(cluster, "-p", "native", "-N1", "-n2", "-c1", "-w", "native2")
    assert within == sorted(map(str, owned["native2"]))
    whole = affinities(cluster, "-p", "native", "-N1", "-n1", "-c2")
    first, last = min(owned["native1"]), max(owned["native1"])
    assert whole in ([f"{first}-{last}"], [f"{first},{last}"])
    assert affinities(cluster, "-p", "virtual", "-N1", "-n2", "-c1") == ["0", "1"]


def test_vcpus_stay_on_their_cpus(cluster: Cluster) -> None:
    owned = cluster.state().partitions.virtual.host_cpus
    for name, cpus in owned.items():
        bound = {}
        for task in Path(f"/proc/{cluster.find_qemu(f'{name}.console')}/task").iterdir():
            match = re.match(r"CPU (\d+)/", (task / "comm").read_text())
            if match:
                bound[int(match[1])] = os.sched_getaffinity(int(task.name))
        assert bound == {k: {cpu} for k, cpu in enumerate(cpus)}


def test_one_side_at_a_time_in_the_order_of_submission(cluster: Cluster) -> None:
    log = cluster.directory.shared / "order"
    log.unlink(missing_ok=True)
    sides = ["native", "virtual", "native", "virtual", "virtual", "native"]
    script = f'echo "begin $SLURM_JOB_ID" >> {log}; sleep 0.5; echo "end $SLURM_JOB_ID" >> {log}'
    numbers = [cluster.submit(side, script, "-o", "/dev/null") for side in sides]
    for number in numbers:
        assert cluster.finished(number)["JobState"] == "COMPLETED"
    expected = [f"{what} {number}" for number in numbers for what in ("begin", "end")]
    assert log.read_text().splitlines() == expected


def test_forwarders_keep_directory_input_environment_and_exit_code(cluster: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "with blank"
    folder.mkdir()
    cluster.environment["SOME_VARIABLE"] = "some value"
    command = ["srun", *LICENCE, "bash", "-c", 'pwd; echo "$SOME_VARIABLE"; cat; exit 7']
    command[0] = str(cluster.directory.bin / "srun")
    result = subprocess.run(
        command, env=cluster.environment, cwd=folder, input="by way of stdin", capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.stdout == f"{folder}\nsome value\nby way of stdin"
    assert result.returncode == 7


def test_a_job_may_call_the_forwarders(cluster: Cluster) -> None:
    for side in ("native", "virtual"):
        out = cluster.directory.shared / f"inner-{side}"
        number = cluster.submit(side, f"PATH={cluster.directory.bin}:$PATH srun hostname", "-o", str(out))
        assert cluster.finished(number)["ExitCode"] == "0:0", out.read_text()
        assert out.read_text().startswith({"native": "native", "virtual": "vm"}[side])


def test_a_forwarder_that_is_killed_takes_its_job_along(cluster: Cluster) -> None:
    command = [str(cluster.directory.bin / "srun"), *LICENCE, "sleep", "300"]
    process = subprocess.Popen(command, env=cluster.environment, stdin=subprocess.DEVNULL)
    eventually(lambda: "sleep" in cluster.slurm("squeue", "--noheader", "--format=%j %T").stdout)
    process.terminate()
    process.wait(60)
    eventually(lambda: not cluster.slurm("squeue", "--noheader").stdout)


def test_exec(cluster: Cluster) -> None:
    assert cluster.vcluster("exec", "hostname").stdout == "head\n"
    assert cluster.vcluster("exec", "bash", "-c", "exit 9").returncode == 9


def test_sacct_tells_the_truth(cluster: Cluster) -> None:
    good = cluster.submit("native", "true", "-o", "/dev/null")
    bad = cluster.submit("native", "exit 134", "-o", "/dev/null")
    for number in (good, bad):
        cluster.finished(number)
    query = ("-S", "2026-01-01", "-P", "-j", f"{good},{bad}", "-o", "jobid,state,exitcode,end,nodelist")
    lines = cluster.slurm("sacct", *query).stdout.splitlines()
    assert lines[0] == "JobID|State|ExitCode|End|NodeList"
    assert [line.split("|")[:3] for line in lines[1:]] == [
        [good, "COMPLETED", "0:0"],
        [bad, "FAILED", "134:0"],
    ]
    assert all(re.fullmatch(r"\d{4}-.*\|native\d", line.split("|", 3)[3]) for line in lines[1:])
    unknown = cluster.slurm("sacct", "-P", "-j", "99999", *query[-2:])
    assert (unknown.returncode, unknown.stdout) == (0, f"{lines[0]}\n")
    refused = cluster.slurm("sacct", "-u", "somebody")
    assert refused.returncode == 1
    assert "unsupported argument" in refused.stderr
