"""A change of the hypervisor is caught, and the same hypervisor is not.

By default the other build is the same QEMU without chaining of translation blocks, which slows emulation.
``VIRTQUAL_OTHER_UP`` names another: options of ``vcluster up`` for a slower build, such as ``--qemu PATH``.
"""

import json
import os
from pathlib import Path

import pytest
from commands import own_state, run

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
SLOWER = "--qemu-arg=-d --qemu-arg=nochain"


@pytest.fixture
def qualify(tmp_path):
    """Bring the cluster up with some options, qualify, and take it down."""
    env = own_state(tmp_path)

    def session(options, *more):
        up = run("vcluster", "up", "--hosts", "here", *options.split(), timeout=300, **env)
        assert up.returncode == 0, up.stderr
        try:
            names = ("-n", "lammps.*lj", "-n", "mpi_latency_node")
            done = run("virtqual", "qualify", "--system", "vcluster", *names, *more, timeout=1200, **env)
        finally:
            assert run("vcluster", "down", timeout=120, **env).returncode == 0
        file = max(Path(env["VIRTQUAL_STATE"]).glob("sessions/*/session.json"))
        return done, json.loads(file.read_text())

    return session


def test_a_slower_build_is_over_and_the_same_build_is_not(qualify):
    # By four pairs of the first session a change of 50 % is not always OVER.
    recorded, first = qualify("", "--pairs", "8")
    assert recorded.returncode == 0, recorded.stdout
    other = os.environ.get("VIRTQUAL_OTHER_UP")
    if not other and first["identity"]["virtual"]["hypervisor"]["accelerator"] != "tcg":
        pytest.skip("VMs are not emulated here, and VIRTQUAL_OTHER_UP names no slower build")
    slower, session = qualify(other or SLOWER, "--against", first["session"])
    assert slower.returncode == 1, slower.stdout
    lost = [verdict for verdict in session["verdicts"] if verdict["outcome"] == "OVER"]
    assert ("lammps_loop_time", "lj") in {(verdict["metric"], verdict["setting"]) for verdict in lost}
    for verdict in lost:
        assert "% slower (" in verdict["message"]
        assert f"{verdict['metric']}@{verdict['setting']}" in slower.stdout
    same, session = qualify("", "--against", first["session"])
    assert same.returncode == {"WITHIN": 0, "UNDECIDED": 3, "INVALID": 4}[session["outcome"]], same.stdout
    assert not [v for v in session["verdicts"] if v["outcome"] == "OVER"]
    judged, before = ({(v["metric"], v["setting"]) for v in s["verdicts"]} for s in (session, first))
    assert judged == before
