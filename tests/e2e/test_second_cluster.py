"""The suite on a Slurm cluster that vcluster did not make, given only a system file."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from made_runs import read_session

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


@pytest.mark.cluster
@pytest.mark.slow
def test_the_suite_runs_unchanged_on_a_second_cluster(tmp_path):
    if os.geteuid() != 0 or not shutil.which("slurmctld", path="/usr/sbin:/usr/bin"):
        pytest.skip("needs root and Slurm's daemons to make a second cluster")
    state, site = tmp_path / "state", tmp_path / "site"
    (site / "systems").mkdir(parents=True)
    shutil.copy(HERE / "second_system.py", site / "systems/second.py")
    (site / "stacks").symlink_to(ROOT / "site/stacks")
    # This cluster has no accounting database.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sacct").symlink_to(ROOT / "src/vcluster/shim/sacct")
    env = {
        **os.environ,
        "PATH": f"{tmp_path}/bin:{ROOT}/.venv/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "VIRTQUAL_STATE": str(state),
        "VIRTQUAL_SITE": str(site),
        "SECOND_PREFIX": str(tmp_path / "prefix"),
        "VCLUSTER_DIR": str(tmp_path / "none"),
    }
    log = tmp_path / "out.txt"
    with log.open("w") as out:
        done = subprocess.run(
            [
                HERE / "second-slurm", tmp_path / "slurm",
                "virtqual", "qualify", "--system", "second", "-n", "memory.*one|mpi_latency_node|lammps.*lj",
                "--max-pairs", "4",
            ],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=900,
            check=False,
        )  # fmt: skip
    print(log.read_text())
    session = read_session(max(state.glob("sessions/*/session.json")).parent)
    outcomes = {f"{v['metric']}@{v['setting']}": v["outcome"] for v in session["verdicts"]}
    # One machine against itself: noise may leave it open, but nothing is over budget and nothing is broken.
    assert done.returncode in (0, 3, 4)
    assert len(outcomes) == 4
    assert "OVER" not in outcomes.values()
    assert {run["side"] for run in session["runs"]} == {"native", "virtual"}
