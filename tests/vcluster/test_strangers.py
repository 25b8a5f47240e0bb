"""What a cluster does to processes and jobs that only look like its own."""

import os
import subprocess
from pathlib import Path

import pytest

from made_programs import write_program
from vcluster.processes import list_namespace_members

SHIM = Path(__file__).parents[2] / "src/vcluster/shim"
PROLOG = Path(__file__).parents[2] / "src/vcluster/slurm/task-prolog"


def test_a_stranger_with_a_reused_namespace_number_is_not_a_member(tmp_path):
    """This test's own processes have the number, and nothing of the cluster."""
    number = str(Path("/proc/self/ns/mnt").readlink())
    assert os.getpid() in list_namespace_members(frozenset({number}))
    assert list_namespace_members(frozenset({number}), tmp_path) == []


QUESTION = ("-S", "2026-01-01", "-P", "-j", "7", "-o", "jobid,state,exitcode,end,nodelist")


def ask_sacct(tmp_path, job: str, *question: str) -> subprocess.CompletedProcess[str]:
    write_program(tmp_path / "scontrol", f"#!/bin/sh\necho '{job}'\n")
    return subprocess.run(
        ["bash", SHIM / "sacct", *(question or QUESTION)],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def read_answer(tmp_path, job: str) -> str:
    return ask_sacct(tmp_path, job).stdout.splitlines()[1]


FIELDS = "UserId=root(0) JobState=FAILED ExitCode=134:0 EndTime=2026-01-01T00:00:01 NodeList=vm1"


def test_sacct_tells_how_a_job_ended(tmp_path):
    assert read_answer(tmp_path, f"JobId=7 JobName=a {FIELDS}") == "7|FAILED|134:0|2026-01-01T00:00:01|vm1"
    waiting = FIELDS.replace("FAILED", "PENDING").replace("=vm1", "=(null)")
    assert read_answer(tmp_path, f"JobId=7 JobName=a {waiting}") == "7|PENDING|134:0|Unknown|None assigned"
    assert ask_sacct(tmp_path, f"JobId=70 JobName=a {FIELDS}").stdout.count("\n") == 1


@pytest.mark.parametrize("question", [("-u", "root"), QUESTION[:5], QUESTION[2:4], (*QUESTION, "-j")])
def test_sacct_answers_no_other_question(tmp_path, question):
    done = ask_sacct(tmp_path, f"JobId=7 JobName=a {FIELDS}", *question)
    assert (done.returncode, done.stdout) == (1, "")
    assert "vcluster's stand-in" in done.stderr


def test_a_job_cannot_name_itself_completed(tmp_path):
    job = f"JobId=7 JobName=x JobState=COMPLETED ExitCode=0:0 {FIELDS}"
    assert read_answer(tmp_path, job) == "7|FAILED|134:0|2026-01-01T00:00:01|vm1"
