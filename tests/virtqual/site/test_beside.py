"""What stands beside a system: partitions that are not compared, and system files that are broken."""

import os
from pathlib import Path

import pytest

FAKE = Path(__file__).parents[2] / "fakeslurm/system.py"
GPU = {
    "name": "gpu",
    "scheduler": "slurm",
    "launcher": "srun",
    "environs": ["fake"],
    "processor": {"num_cpus": 1},
    "extras": {"cards": 4},
}


@pytest.fixture
def files(tmp_path):
    """Return how to name system files of these texts, and the site's own."""

    def named(**texts):
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(text)
        return {
            "VIRTQUAL_SYSTEMS": os.pathsep.join([*(f"{tmp_path}/{name}.py" for name in texts), str(FAKE)])
        }

    return named


def test_checks_run_beside_a_partition_that_is_none_of_theirs(site, tmp_path):
    text = (
        "import runpy\nsystem = runpy.run_path({fake!r})['system']\nsystem['partitions'].insert(0, {gpu!r})\n"
    )
    (tmp_path / "with_gpu.py").write_text(text.format(fake=str(FAKE), gpu=GPU))
    done = site.lammps(VIRTQUAL_SYSTEMS=str(tmp_path / "with_gpu.py"), VIRTQUAL_PAIRS="0:1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "@testsite:bare+fake" in done.stdout
    assert "@testsite:gpu" not in done.stdout
    listing = ("reframe", "-c", str(FAKE.parents[2] / "checks"), "--system", "testsite", "-L")
    # Counts of ranks and nodes are in the names, and what cannot run stands below them.
    ours = site.run(*listing, FAKE_CPUS_bare="8", FAKE_CPUS_cloud="8").stdout
    beside = site.run(
        *listing, FAKE_CPUS_bare="8", FAKE_CPUS_cloud="8", VIRTQUAL_SYSTEMS=str(tmp_path / "with_gpu.py")
    ).stdout
    assert "lammps problem=lj" in ours
    assert ours.partition("[List of")[2] == beside.partition("[List of")[2]


def test_a_session_runs_beside_files_that_are_broken(site, files):
    broken = files(leaves="import sys\nsys.exit(0)\n", raises="1 / 0\n", misspelt="system = {'nam': 'x'}\n")
    done = site.lammps(**broken, VIRTQUAL_PAIRS="0:1")
    assert done.returncode == 0, done.stdout + done.stderr
    for name, says in (
        ("leaves", "ends the program (0)"),
        ("raises", "division by zero"),
        ("misspelt", "name: "),
    ):
        alone = site.virtqual("qualify", "--system", name, **broken)
        assert (alone.returncode, says in alone.stderr) == (2, True), alone.stderr
        plain = site.run("reframe", "-c", str(FAKE.parents[2] / "checks"), "-r", "--system", name, **broken)
        assert plain.returncode == 1
        assert says in plain.stdout + plain.stderr
    unknown = site.virtqual("qualify", "--system", "../../evil", **broken)
    assert (unknown.returncode, "no system '../../evil'" in unknown.stderr) == (2, True)
    assert "\x1b" not in unknown.stderr
