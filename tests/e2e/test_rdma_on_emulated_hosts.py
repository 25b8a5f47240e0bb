"""RDMA natively and in VMs of the one-machine cluster."""

from pathlib import Path

import pytest
from commands import own_state, run

from made_runs import read_session

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_rdma_is_measured_natively_and_in_vms_of_emulated_hosts(tmp_path):
    env = own_state(tmp_path)
    started = run("vcluster", "up", "--hosts", "emulated", timeout=300, **env)
    assert started.returncode == 0, started.stderr
    assert "RDMA in native nodes: rxe0" in started.stdout
    try:
        names = ("--full", "-n", "^rdma_latency.*operation=read", "--max-pairs", "4")
        done = run("virtqual", "qualify", "--system", "vcluster", *names, timeout=1800, **env)
    finally:
        assert run("vcluster", "down", timeout=120, **env).returncode == 0
    file = max(Path(env["VIRTQUAL_STATE"]).glob("sessions/2*/session.json"))
    (verdict,) = read_session(file.parent)["verdicts"]
    assert (verdict["metric"], verdict["setting"]) == ("rdma_read_latency", "two nodes, Ethernet, MTU 1024")
    assert [point["size"] for point in verdict["points"]] == [2, 64, 1024, 4096, 16384]
    # More than hardware takes, less than a time-out.
    assert all(20 < point[side] < 50_000 for point in verdict["points"] for side in ("native", "virtual"))
    assert verdict["outcome"] == "WITHIN", done.stdout
