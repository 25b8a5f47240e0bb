"""A user's own state on the rehearsed centre's login node, and what tests do with its sessions."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import stand_ins

import centre as rehearsed
from made_programs import write_program
from virtqual.session.log import Log

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

#: Commands that ask Slurm's controller; `srun` starts steps, which asks it only for the nodes of the first.
ASKING = ("sinfo", "squeue", "sacct", "scontrol", "sbatch", "scancel")
COUNTING = '#!/bin/sh\necho {name} $* >> {log}\nexec {real} "$@"\n'


class Site:
    """A user's own state on the centre's login node."""

    def __init__(self, centre, shape, state):
        self.centre, self.shape, self.state = centre, shape, state
        self.asked = state / "asked"
        #: The centre's own directory.
        self.directory = state / "site"
        (self.directory / "systems").mkdir(parents=True)
        shutil.copy(HERE / "system.py", self.directory / "systems/centre.py")
        programs = state / "bin"
        for name in ASKING:
            real = shutil.which(name, path=rehearsed.SBIN)
            write_program(programs / name, COUNTING.format(name=name, real=real, log=self.asked))
        self.env = {
            "PATH": f"{programs}:{Path(sys.executable).parent}:{rehearsed.SBIN}",
            "CENTRE": str(centre.directory),
            "VIRTQUAL_STATE": str(state),
            "VIRTQUAL_ROOT": str(ROOT),
            "VIRTQUAL_SITE": str(self.directory),
            "RFM_CONFIG_FILES": str(ROOT / "reframe/settings.py"),
            "PYTHONPATH": str(ROOT / "src"),
            "COLUMNS": "80",
        }

    def plant(self, **truth):
        nodes = self.shape.names("native") + self.shape.names("virtual")
        stand_ins.write(self.directory, {**self.shape.truth, **truth}, nodes)

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
        """Return the newest session as its log tells it: one that was killed has no document."""
        directory = max((self.state / "sessions").glob("2*"))
        return Log(directory).session().model_dump(mode="json", by_alias=True)

    def hosts(self, **builds):
        """State what each host of the VMs says when it is asked, where a build is not the usual one."""
        said = self.state / "hosts"
        record = {"schema": "virtqual-host/1", "vendor": "KVM", "accelerator": "kvm", "build": "8.2.0"}
        lines = ["#!/bin/sh"]
        for number, _ in enumerate(self.shape.names("virtual"), 1):
            build = {"build": builds[f"host{number}"]} if f"host{number}" in builds else {}
            lines.append(f"echo '{json.dumps(record | build)}' > {said}/host{number}.json")
        write_program(said / "ask", "\n".join(lines) + "\n")
        self.env["CENTRE_HOSTS"] = str(said)

    def slurm(self, *command):
        done = self.centre.run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def wall(runs, seconds):
    """Return how many seconds the runs of a session would take in their order if each took so many.

    A run waits for its nodes, and for the other run of its pair; one between nodes for all before it, and all
    for it.
    """
    free, pairs, alone, last = {}, {}, 0.0, 0.0
    for run in sorted(runs, key=lambda run: run["start"]):
        pair = run["check"], run["pair"]
        between = len(run["nodes"]) > 1
        begin = max(
            alone, last if between else 0, pairs.get(pair, 0), *(free.get(n, 0) for n in run["nodes"])
        )
        last = max(last, begin + seconds)
        pairs[pair] = begin + seconds
        free |= dict.fromkeys(run["nodes"], begin + seconds)
        if between:
            alone = begin + seconds
    return last


def send(process, number):
    """Send a signal to a session: `nsenter` has started it, by a number that this machine knows, too."""
    os.kill(rehearsed.child_of(process.pid), number)


def nothing_left(site, seconds=30):
    """Assert that no job is left behind."""
    end = time.monotonic() + seconds
    while left := site.centre.run("squeue", "--noheader").stdout:
        assert time.monotonic() < end, left
        time.sleep(1)
