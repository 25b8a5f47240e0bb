"""RDMA between two VMs, where native nodes have none: recorded, and judged against that record."""

from pathlib import Path

import pytest
from commands import own_state, run

from made_runs import read_session

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
SLOWER = ("--qemu-arg=-d", "--qemu-arg=nochain")


@pytest.fixture
def qualify(tmp_path):
    """Bring the cluster up with some options, qualify some operations, and take it down."""
    env = own_state(tmp_path)

    def session(operations, *more, up=()):
        started = run("vcluster", "up", "--hosts", "here", *up, timeout=300, **env)
        assert started.returncode == 0, started.stderr
        assert "RDMA in the VMs: rxe0" in started.stdout
        try:
            names = ("--full", "-n", f"^rdma_latency.*operation=({operations})")
            done = run("virtqual", "qualify", "--system", "vcluster", *names, *more, timeout=1200, **env)
        finally:
            assert run("vcluster", "down", timeout=120, **env).returncode == 0
        file = max(Path(env["VIRTQUAL_STATE"]).glob("sessions/*/session.json"))
        found = read_session(file.parent)
        return done, found, {f"{v['metric']}@{v['setting']}": v for v in found["verdicts"]}

    return session


def test_the_virtual_side_is_recorded_and_a_slower_build_is_over(qualify):
    done, first, verdicts = qualify("read", "--pairs", "4")
    if first["identity"]["virtual"]["hypervisor"]["accelerator"] != "tcg":
        pytest.skip("VMs are not emulated here: no option of QEMU is known to slow them down")
    assert done.returncode == 0, done.stdout
    # Reads: only one side polls, so that two host cores do for two VMs.
    (read,) = verdicts.values()
    assert (read["metric"], read["setting"]) == ("rdma_read_latency", "two nodes, Ethernet, MTU 1024")
    assert (read["outcome"], read["native"], read["overhead"]) == ("BASELINE", None, None)
    assert "native not observable: the native partition has no 'rdma'" in read["message"]
    # Through two emulated machines: more than hardware takes, less than a time-out.
    assert [point["size"] for point in read["points"]] == [2, 64, 1024, 4096, 16384]
    assert all(50 < point["virtual"] < 50_000 for point in read["points"])
    by_side = {side: [one for one in first["runs"] if one["side"] == side] for side in ("native", "virtual")}
    assert {one["results"][0]["metric"] for one in by_side["native"]} == {"yardstick_time"}
    assert {node for one in by_side["virtual"] for node in one["nodes"]} == {"vm1", "vm2"}

    done, session, verdicts = qualify("read", "--against", first["session"], up=SLOWER)
    verdict = verdicts["rdma_read_latency@two nodes, Ethernet, MTU 1024"]
    if "node-speed" in verdict["message"]:
        pytest.skip("the machine itself is not as fast as it was a minute ago: nothing can be judged")
    assert (done.returncode, session["outcome"], verdict["outcome"]) == (1, "OVER", "OVER"), done.stdout
    assert "worse" in verdict["message"]
    assert "native not observable" in verdict["message"]
