"""Sessions on the rehearsed centre: 8 native nodes and 8 VMs of 64 cores under a real Slurm, truth known."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import stand_ins

import centre as rehearsed

pytestmark = pytest.mark.centre
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

#: Commands that ask Slurm's controller; `srun` starts steps, which asks it only for the nodes of the first.
ASKING = ("sinfo", "squeue", "sacct", "scontrol", "sbatch", "scancel")
COUNTING = '#!/bin/sh\necho "{name} $*" >> {log}\nexec {real} "$@"\n'


@pytest.fixture(scope="module")
def shape():
    return rehearsed.Shape.read(HERE / "small.yaml")


@pytest.fixture(scope="module")
def centre(shape, tmp_path_factory):
    if os.geteuid() != 0 or not shutil.which("slurmctld", path=rehearsed.SBIN):
        pytest.skip("the rehearsed centre needs root, and Slurm's daemons")
    with rehearsed.Centre(shape, tmp_path_factory.mktemp("centre")) as up:
        yield up
        left = up.run("squeue", "--noheader").stdout
        assert left == "", "no job may be left behind"


class Site:
    """A user's own state on the centre's login node."""

    def __init__(self, centre, shape, state):
        self.centre, self.shape, self.state = centre, shape, state
        self.asked = state / "asked"
        programs = state / "bin"
        programs.mkdir(parents=True)
        for name in ASKING:
            file = programs / name
            real = shutil.which(name, path=rehearsed.SBIN)
            file.write_text(COUNTING.format(name=name, real=real, log=self.asked), encoding="utf-8")
            file.chmod(0o755)
        self.env = {
            "PATH": f"{programs}:{Path(sys.executable).parent}:{rehearsed.SBIN}",
            "CENTRE": str(centre.directory),
            "VIRTQUAL_STATE": str(state),
            "VIRTQUAL_ROOT": str(ROOT),
            "VIRTQUAL_SYSTEMS": str(HERE / "system.py"),
            "RFM_CONFIG_FILES": str(ROOT / "reframe/settings.py"),
            "PYTHONPATH": str(ROOT / "src"),
            "COLUMNS": "80",
        }

    def plant(self, **truth):
        nodes = self.shape.names("native") + self.shape.names("virtual")
        stand_ins.write(self.state, {**self.shape.truth, **truth}, nodes)

    def qualify(self, *options):
        done = self.centre.run("virtqual", "qualify", "--system", "centre", *options, **self.env)
        return done, self.session()

    def session(self):
        (directory,) = (self.state / "sessions").iterdir()
        return json.loads((directory / "session.json").read_text("utf-8"))


@pytest.fixture
def site(centre, shape, tmp_path):
    return Site(centre, shape, tmp_path / "state")


def outcome(session, metric):
    return {v["outcome"] for v in session["verdicts"] if v["metric"].startswith(metric)}


def at_work(runs):
    """Return how many nodes were at work in the mean, from the first run to the last."""
    begin, end = min(run["start"] for run in runs), max(run["end"] for run in runs)
    return sum((run["end"] - run["start"]) * len(run["nodes"]) for run in runs) / (end - begin)


def test_what_is_planted_is_found(site):
    """What is 25 % slower in VMs is OVER, what is as fast is not, and a slow host is named."""
    site.plant(overhead={"stream": 1.25}, slow={"vm3": 1.10}, node_noise=0.005)
    done, session = site.qualify("-n", "^stream%", "-n", "^lammps%")
    said = " ".join(done.stdout.split())
    assert done.returncode == 1, said + done.stderr
    assert outcome(session, "memory_triad") == {"OVER"}
    assert "OVER" not in outcome(session, "lammps_loop_time")
    (verdict,) = (v for v in session["verdicts"] if v["metric"] == "lammps_loop_time")
    slowest = max(verdict["hosts"].items(), key=lambda one: one[1])
    assert slowest[0] == "host3"
    assert 0.05 < slowest[1] < 0.15


def test_all_nodes_work_and_slurm_is_asked_seldom(site):
    site.plant(seconds=8)
    done, session = site.qualify("-n", "lammps", "-n", "paging")
    assert done.returncode in (0, 3), done.stdout + done.stderr
    runs = session["runs"]
    nodes = {name for run in runs for name in run["nodes"]}
    assert len(nodes) == 16
    by_node = sorted((run["nodes"][0], run["start"], run["end"]) for run in runs)
    for (node, _, end), (other, start, _) in itertools.pairwise(by_node):
        assert node != other or start >= end, "two runs at a time on one node"
    first = [run for run in runs if run["pair"] < 32]
    print(f"nodes at work in the mean: {at_work(first):.1f} of 16")
    assert at_work(first) >= 12
    minutes = (max(run["end"] for run in runs) - min(run["start"] for run in runs)) / 60
    asked = site.asked.read_text("utf-8").splitlines()
    looked = [line for line in asked if line.split()[0] in ("sinfo", "squeue", "sacct")]
    print(f"{len(looked)} questions in {minutes:.1f} min")
    # What begins and ends a session takes some more.
    assert len(looked) < 2 * minutes + 12


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_session_that_was_ended_goes_on(site, number):
    site.plant()
    line = site.centre.enter("virtqual", "qualify", "--system", "centre", "-n", "lammps")
    process = subprocess.Popen(
        line,
        env=site.centre.environment(**site.env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    for text in process.stdout:
        if " 30/80" in text:
            break
    # `nsenter` has started it, by a number that this machine knows, too.
    os.kill(rehearsed.child_of(process.pid), number)
    process.communicate(timeout=120)
    before = {(run["pair"], run["side"]): run["start"] for run in site.session()["runs"]}
    assert before
    done = site.centre.run("virtqual", "qualify", "--resume", site.session()["session"], **site.env)
    assert done.returncode == 0, done.stdout + done.stderr
    after = {(run["pair"], run["side"]): run["start"] for run in site.session()["runs"]}
    assert before.items() <= after.items()
    until = time.monotonic() + 30
    while left := site.centre.run("squeue", "--noheader").stdout:
        assert time.monotonic() < until, left
        time.sleep(1)
