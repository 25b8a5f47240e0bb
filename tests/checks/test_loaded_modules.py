"""Programs of modules are measured in jobs, and in steps of a held allocation."""

import json
import re

import pytest

# The profile of the machine may have begun PATH anew, and BASH_ENV may load its own module system.  That of a
# person may leave the directory.
PROFILE = """
unset BASH_ENV
cd /
export PATH=$FAKE_PATH:$PATH
module() {
    [ "$1 $2" = "load lammps/1" ] || { echo "no module $2" >&2; return 1; }
    export LOADEDMODULES=$2 PATH=HERE:$PATH
}
"""
FILE = """
name: centre
programs:
  lammps: {modules: [lammps/1], version: '1', data: {bench: HERE/bench}}
"""


@pytest.fixture
def centre(site):
    """The site, whose stack is registered from a file of modules."""
    here = str((site.path / "site/stacks/fake").rename(site.path / "apps"))
    (site.path / "apps/manifest.json").unlink()
    profile = PROFILE.replace("HERE", here).replace("$FAKE_PATH", site.env["PATH"])
    (site.path / "centre.yaml").write_text(FILE.replace("HERE", here))
    (site.path / ".bash_profile").write_text(profile)
    site.env |= {"HOME": str(site.path), "FAKE_MODULES_SYSTEM": "envmod"}
    site.virtqual("stack", "register", "--modules", "centre.yaml", code=0)
    return site


def find_loaded_modules(site):
    return {
        software["environment"].get("LOADEDMODULES")
        for run in site.session()["runs"]
        for software in run["software"]
    }


def test_a_job_loads_the_modules(centre):
    done = centre.lammps(VIRTQUAL_PAIRS="0:0")
    assert find_loaded_modules(centre) == {"lammps/1"}, done.stdout
    # A module that is gone ends the job, and the session says so.
    profile = centre.path / ".bash_profile"
    profile.write_text(profile.read_text().replace("lammps/1", "lammps/2"))
    centre.lammps(VIRTQUAL_PAIRS="0:0", code=1)
    assert not centre.session()["runs"]
    assert re.search(
        "job exited with exit code 1: .*no module lammps/1", json.dumps(centre.session()["failures"])
    )


def test_a_step_loads_the_modules(centre):
    for name in ("bare", "cloud"):
        extras = {"session_access": [f"--partition={name}"]}
        centre.env[f"FAKE_EXTRAS_{name}"] = json.dumps(extras)
    done = centre.qualify("-n", "lammps.*lj", "--pairs", "2")
    assert find_loaded_modules(centre) == {"lammps/1"}, done.stdout
    assert {re.match(r"\d+\.", run["job"]) is not None for run in centre.session()["runs"]} == {True}


def test_a_system_that_loads_no_modules_is_refused(centre):
    done = centre.lammps(FAKE_MODULES_SYSTEM="nomod", code=1)
    assert "'centre' loads modules (lammps/1), and the file of system 'testsite' states" in centre.words(done)
