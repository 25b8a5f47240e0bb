"""What stands beside a system: partitions that are not compared, and system files that are broken."""

from pathlib import Path

FAKE = Path(__file__).parents[2] / "fakeslurm/system.py"
GPU = {
    "name": "gpu",
    "scheduler": "slurm",
    "launcher": "srun",
    "environs": ["fake"],
    "processor": {"num_cpus": 1},
    "extras": {"cards": 4},
}


def test_checks_run_beside_a_partition_that_is_none_of_theirs(site):
    text = (
        "import runpy\nsystem = runpy.run_path({fake!r})['system']\nsystem['partitions'].insert(0, {gpu!r})\n"
    )
    listing = ("reframe", "-c", str(FAKE.parents[2] / "checks"), "--system", "testsite", "-L")
    # Counts of ranks and nodes are in the names, and what cannot run stands below them.
    ours = site.run(*listing, FAKE_CPUS_bare="8", FAKE_CPUS_cloud="8").stdout
    (site.path / "site/systems/testsite.py").write_text(text.format(fake=str(FAKE), gpu=GPU))
    done = site.lammps(VIRTQUAL_PAIRS="0:1", code=0)
    assert "@testsite:bare+fake" in done.stdout
    assert "@testsite:gpu" not in done.stdout
    beside = site.run(*listing, FAKE_CPUS_bare="8", FAKE_CPUS_cloud="8").stdout
    assert "lammps problem=lj" in ours
    assert ours.partition("[List of")[2] == beside.partition("[List of")[2]


BROKEN = {
    "leaves": ("import sys\nsys.exit(0)\n", "ends the program (0)"),
    "raises": ("1 / 0\n", "division by zero"),
    "misspelt": ("system = {'nam': 'x'}\n", "name: "),
}


def test_a_session_runs_beside_files_that_are_broken(site):
    for name, (text, _) in BROKEN.items():
        (site.path / f"site/systems/{name}.py").write_text(text)
    site.lammps(VIRTQUAL_PAIRS="0:1", code=0)
    for name, (_, says) in BROKEN.items():
        alone = site.virtqual("qualify", "--system", name)
        assert (alone.returncode, says in alone.stderr) == (2, True), alone.stderr
        assert f"site/systems/{name}.py" in alone.stderr
        plain = site.run("reframe", "-c", str(FAKE.parents[2] / "checks"), "-r", "--system", name, code=1)
        assert says in plain.stdout + plain.stderr
    unknown = site.virtqual("qualify", "--system", "../../evil")
    assert (unknown.returncode, "no system '../../evil'" in unknown.stderr) == (2, True)
    assert "\x1b" not in unknown.stderr
