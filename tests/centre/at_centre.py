"""A user's own state on the rehearsed centre's login node, and what tests do with its sessions."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import stand_ins

import centre as rehearsed
from virtqual.session.log import Log

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

#: Commands that ask Slurm's controller; `srun` starts steps, which asks it only for the nodes of the first.
ASKING = ("sinfo", "squeue", "sacct", "scontrol", "sbatch", "scancel")
COUNTING = '#!/bin/sh\necho "{name} $*" >> {log}\nexec {real} "$@"\n'


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

    def resume(self):
        done = self.centre.run("virtqual", "qualify", "--resume", self.session()["session"], **self.env)
        return done, self.session()

    def start(self, *options):
        """Start a session in the background."""
        line = self.centre.enter("virtqual", "qualify", "--system", "centre", *options)
        env = self.centre.environment(**self.env)
        return subprocess.Popen(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def session(self):
        """Return the session as its log tells it: one that was killed has no document."""
        (directory,) = (self.state / "sessions").iterdir()
        return Log(directory).session().model_dump(mode="json", by_alias=True)

    def slurm(self, *command):
        done = self.centre.run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def send(process, number):
    """Send a signal to a session: `nsenter` has started it, by a number that this machine knows, too."""
    os.kill(rehearsed.child_of(process.pid), number)


def nothing_left(site, seconds=30):
    """Assert that no job is left behind."""
    end = time.monotonic() + seconds
    while left := site.centre.run("squeue", "--noheader").stdout:
        assert time.monotonic() < end, left
        time.sleep(1)
