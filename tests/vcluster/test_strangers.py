"""What a cluster does to processes and jobs that only look like its own."""

import os
import subprocess
from pathlib import Path

from vcluster.processes import list_namespace_members

SHIM = Path(__file__).parents[2] / "src/vcluster/shim"
PROLOG = Path(__file__).parents[2] / "src/vcluster/slurm/task-prolog"


def test_a_stranger_with_a_reused_namespace_number_is_not_a_member(tmp_path):
    """This test's own processes have the number, and nothing of the cluster."""
    number = str(Path("/proc/self/ns/mnt").readlink())
    assert os.getpid() in list_namespace_members(frozenset({number}))
    assert list_namespace_members(frozenset({number}), tmp_path) == []


def ask_sacct(tmp_path, job: str) -> str:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\necho '{job}'\n")
    scontrol.chmod(0o755)
    query = ["-S", "2026-01-01", "-P", "-j", "7", "-o", "jobid,state,exitcode,end,nodelist"]
    done = subprocess.run(
        ["bash", SHIM / "sacct", *query],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[1]


FIELDS = "UserId=root(0) JobState=FAILED ExitCode=134:0 EndTime=2026-01-01T00:00:01 NodeList=vm1"


def test_a_job_cannot_name_itself_completed(tmp_path):
    job = f"JobId=7 JobName=x JobState=COMPLETED ExitCode=0:0 {FIELDS}"
    assert ask_sacct(tmp_path, job) == "7|FAILED|134:0|2026-01-01T00:00:01|vm1"
