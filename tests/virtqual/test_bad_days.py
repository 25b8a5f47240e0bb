"""Faults while a session measures, on a site with a stand-in for Slurm: each ends as promised.

The names M1, H7 ... are those of a table of faults that were tried; what only real nodes can show is in
tests/e2e/test_bad_days_live.py.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from virtqual.session.seal import intact_lines, seal
from virtqual.stack.manifest import Manifest, Program

ON = ("qualify", "--system", "testsite", "-n", "lj")


def reframe_of(process):
    """Return the process id of the ReFrame that a session has started."""
    for _ in range(100):
        done = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False)
        if pids := [int(pid) for pid in done.stdout.split()]:
            return pids[0]
        time.sleep(0.1)
    raise AssertionError("ReFrame was not started")


@pytest.mark.parametrize(
    ("state", "cause"),
    [("NODE_FAIL", "a node of it died"), ("PREEMPTED", "by Slurm"), ("REVOKED", "by Slurm")],
)
def test_a_job_that_lost_its_node_ends_the_session(site, state, cause):
    assert end_of_virtual_job(site, state, cause, "infrastructure") == 5
    assert site.session()["outcome"] == "BROKEN"


def test_a_session_ends_once_three_programs_have_failed_on_a_side(site):
    names = ("stress-ng", "pointer-chase", "fixed-work", "mpi-latency")
    programs = (
        Program.from_files(Path("/bin/true"), name=name, version="1", origin="the tests", features=(name,))
        for name in names
    )
    (site.path / "site/stacks/more").mkdir()
    Manifest(name="more", programs=tuple(programs)).write(site.path / "site/stacks/more")
    site.fault("fault.launch")
    done = site.qualify("--stack", "more", code=5)
    said = site.words(done)
    assert (
        "nothing is concluded: ReFrame gave up: no run has ended well on bare, and 3 programs failed" in said
    )
    assert "job exited with exit code 1: srun: error: no such option" in said
    assert f"`virtqual qualify --resume {site.directory().name}` goes on with it. " in said


def test_a_program_whose_cases_all_fail_stops_no_other(site):
    site.fault("fault.crash")
    done = site.qualify("-n", "lammps", "--full", code=5)
    said = site.words(done)
    assert "fail warm-up native lammps problem=lj: job exited with exit code 1: lmp: crashed" in said
    assert len(site.session()["failures"]) == 5


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ("CANCELLED", "it was cancelled"),
        ("TIMEOUT", "it reached its time limit"),
        ("OUT_OF_MEMORY", "it used more memory than it may"),
        ("DEADLINE", "by Slurm"),
    ],
)
def test_a_job_that_slurm_ended_leaves_its_check_invalid_in_slurms_word(site, state, cause):
    """M6, M12, M1d: it was a job script that did not reach its end."""
    assert end_of_virtual_job(site, state, cause, "failed") == 4
    found = site.session()
    assert (found["outcome"], [one["outcome"] for one in found["verdicts"]]) == ("INVALID", ["INVALID"])


def end_of_virtual_job(site, state, cause, kind):
    """Return the exit code of a session whose virtual runs Slurm ends."""
    site.fault("ended.cloud", state)
    done = site.virtqual(*ON)
    assert f"ended as {state} ({cause})" in site.session()["conclusion"]
    assert "launch option" not in done.stdout
    found = site.session()
    # Each virtual run ends so; a run that is lost costs its pair only.
    assert {run["side"] for run in found["runs"]} == {"native"}
    assert {(failure["kind"], failure["state"]) for failure in found["failures"]} == {(kind, state)}
    return done.returncode


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("moment", "runs"), [(0.3, None), (0.7, None), ("round 1", 0), (" 3/10", 1)], ids=str
)
def test_a_session_can_be_interrupted_at_any_moment(site, number, moment, runs):
    """H1 to H6: at the beginning it was a death by the signal, or 5 for want of ReFrame's report."""
    process = site.start(*ON)
    if isinstance(moment, str):
        site.until(process, moment)
    else:
        time.sleep(moment)
    process.send_signal(number)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 130, said
    assert "nterrupted" in said
    assert "Traceback" not in said
    # A session without a run is removed.
    if runs or (runs == 0 and list((site.path / "state/sessions").glob("2*"))):
        found = site.session()
        assert found["outcome"] == "INTERRUPTED"
        assert len(found["runs"]) >= runs


@pytest.mark.parametrize("command", [["qualify", "--system", "none"], ["history"]])
def test_while_it_imports_a_signal_raises_nothing(site, command):
    """numpy turns a KeyboardInterrupt while it is imported into an ImportError, which was exit code 5."""
    seen = (
        "import signal, sys\n"
        "class Seen:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'numpy':\n"
        "            print(name, signal.getsignal(signal.SIGINT).__name__, flush=True)\n"
        "sys.meta_path.insert(0, Seen())\n"
        f"sys.argv = ['virtqual', *{command}]\n"
        "from virtqual.cli import app\n"
        "app()\n"
    )
    done = subprocess.run([sys.executable, "-c", seen], env=site.env, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["numpy _end"]


def test_a_reframe_that_is_killed_loses_no_sample(site):
    """H8: samples of two finished runs were lost, and the signal was not named."""
    process = site.start(*ON)
    site.until(process, " 4/10")
    os.kill(reframe_of(process), signal.SIGKILL)
    said = " ".join(process.communicate(timeout=60)[0].split())
    assert process.returncode == 5, said
    assert "ReFrame was killed (SIGKILL)" in said
    assert len(site.session()["runs"]) >= 2


def test_a_session_that_is_killed_is_looked_after_by_the_next_one(site):
    """H7: ReFrame and its jobs went on; the next session began beside them and said nothing."""
    process = site.start(*ON)
    site.until(process, " 4/10")
    reframe = reframe_of(process)
    process.kill()
    process.communicate(timeout=60)
    done = site.virtqual(*ON)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not Path(f"/proc/{reframe}").exists()
    first, second = site.session(0), site.session(1)
    assert f"session {first['session']} had ended without a conclusion" in site.words(done)
    assert (first["outcome"], first["exit_code"]) == ("BROKEN", 5)
    assert 2 <= len(first["runs"]) <= 8
    # No run of it is taken for one of the second, which has all its own.
    jobs = {run["job"] for run in second["runs"]}
    assert len(jobs) == len(second["runs"]) == 8
    assert not {run["job"] for run in first["runs"]} & jobs


@pytest.mark.parametrize("other", ["qualify", "reframe"])
def test_of_two_sessions_at_once_the_second_is_refused(site, other):
    """H9, H10: they shared stage directories, and one judged the other's output."""
    process = site.start(*ON)
    site.until(process, "round 1")
    if other == "qualify":
        done = site.virtqual(*ON)
        assert done.returncode == 5, done.stdout
    else:
        done = site.lammps()
        assert done.returncode == 1, done.stdout
    assert "measures on this system now" in site.words(done)
    assert process.wait(timeout=120) == 0
    runs = site.session()["runs"]
    assert len({run["job"] for run in runs}) == len(runs) == 8


def test_each_session_has_stage_directories_of_its_own(site):
    site.fault("fault.crash")
    for _ in range(2):
        site.virtqual(*ON)
        time.sleep(1.1)
    stages = sorted((site.path / "slurm/reframe/stage").iterdir())
    assert [stage.name for stage in stages] == [site.session(n)["session"] for n in (0, 1)]


def test_a_database_that_cannot_be_written_is_said(site):
    """D16: it stood only in ReFrame's own output."""
    (site.path / "state/results.db").write_bytes(b"no database" * 100)
    done = site.virtqual(*ON, code=0)
    assert "ReFrame's results database was not written" in site.words(done)
    assert len(site.session()["runs"]) == 8


DAMAGES = {
    "no number": (lambda run: run.update(values=[[-1.0]]), "no pair that counts"),
    "infinite": (lambda run: run.update(values=[[1e999]]), "log.jsonl:11: no JSON: expected value at line 1"),
    "too many": (lambda run: run.update(values=[[1.0, 2.0]]), "2 values for 0 sizes"),
    "one pair": (lambda run: run.update(pair=0), "testsite: lammps_loop_time@lj: pair 0 has more than one"),
    "a key of no run": (lambda run: run.update(pairs=1), "pairs"),
}


def test_a_broken_earlier_session_is_refused_before_anything_is_measured(site):
    """D14: hours were measured first, and then there were no valid pairs."""
    assert site.virtqual(*ON).returncode == 0
    (file,) = (site.path / "state/sessions").glob("*/log.jsonl")
    whole = [line for _, line in intact_lines(file.read_bytes(), file.name)]
    for name, (damage, says) in DAMAGES.items():
        events = [json.loads(line) for line in whole]
        for event in events:
            if event["event"] == "finished":
                damage(event["run"])
        file.write_bytes(seal(json.dumps(event).encode() for event in events))
        done = site.virtqual(*ON, "--against", str(file.parent))
        assert done.returncode == 2, name + done.stdout + done.stderr
        assert says in site.words(done), name
        assert len(list((site.path / "state/sessions").glob("2*"))) == 1


def test_a_label_is_text(site):
    """E1: control characters reached the terminal."""
    label = "a\x1b]0;b\x07" + "c" * 10_000
    done = site.virtqual(*ON, "--label", label, code=0)
    assert "\x1b" not in done.stdout
    assert (len(site.session()["label"]), site.session()["label"][:2]) == (200, "a\ufffd")


@pytest.mark.parametrize(
    ("command", "options", "says"),
    [
        ("qualify", ("--against", ""), "--against names no session"),
        ("qualify", ("--policy", "foo"), "'foo' is not one of 'serial', 'async'"),
        ("qualify", ("-n", "("), "--name '(' is no regular expression"),
        ("sweep", ("-n", "["), "--name '[' is no regular expression"),
    ],
)
def test_what_was_asked_for_is_wrong(site, command, options, says):
    """U2, U6, U7: taken as none, and 5 as if the machine were broken."""
    done = site.virtqual(command, "--system", "testsite", *options, code=2)
    assert says in " ".join(done.stderr.replace("│", " ").split())
