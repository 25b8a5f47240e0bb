"""Faults while a session measures on real Slurm and real VMs: each has its word, and no sample is lost."""

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from commands import ROOT, own_state, run

from following import ended, until
from made_runs import read_session

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

#: Short, and not refused on a machine that others load, as LAMMPS is.
CHECK = ("-n", "mpi_latency_node%")

#: How a line of progress begins once the first native run is kept and the virtual one runs, and once both are
#: kept: two pairs are six runs, since a warm-up on each side precedes them.
FIRST, FIRST_PAIR = " 3/6", " 4/6"

ACTIVATED = f". {ROOT}/ci/activate && PATH=$VCLUSTER_DIR/bin:$PATH"


class Cluster:
    """The one-machine cluster of these tests, and sessions that are started on it."""

    def __init__(self, env):
        self.env = env
        self.sessions = Path(env["VIRTQUAL_STATE"]) / "sessions"

    def up(self):
        assert run("vcluster", "up", "--hosts", "here", timeout=300, **self.env).returncode == 0

    def asked(self, *command):
        return run(*command, timeout=60, **self.env).stdout

    def start(self, *options, name=CHECK):
        words = " ".join(f"'{word}'" for word in (*name, "--pairs", "2", *options))
        return subprocess.Popen(
            ["bash", "-c", f"{ACTIVATED} exec virtqual qualify --system vcluster {words}"],
            env={**os.environ, "COLUMNS": "80", **self.env},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def last(self):
        """Return the newest session's log, line by line, and its document if it has one."""
        directory = max(self.sessions.glob("2*"))
        events = [json.loads(line) for line in (directory / "log.jsonl").read_text("utf-8").splitlines()]
        document = directory / "session.json"
        return events, read_session(directory) if document.exists() else None

    def running(self, state="R"):
        """Return the id of the job that runs, once there is one; of one of both partitions, the first's."""
        for _ in range(240):
            rows = self.asked("squeue", "--noheader", "--format=%A %t %P").split("\n")
            found = [row.split() for row in rows if row.strip()]
            if ids := [job for job, is_, _ in found if is_ == state]:
                return min(ids, key=int)
            time.sleep(0.25)
        raise AssertionError("no job came to run")

    def pids(self, pattern):
        done = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=False)
        return [int(pid) for pid in done.stdout.split()]

    def started(self, pattern):
        """Wait for processes, and return their ids."""
        for _ in range(600):
            if found := self.pids(pattern):
                return found
            time.sleep(0.1)
        return []

    def daemon(self, name):
        """Return the process ids of a daemon of this cluster."""
        return [
            pid
            for pid in self.pids(f"^[^ ]*{name}")
            if str(self.env["VCLUSTER_DIR"]) in Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace")
            or str(self.env["VCLUSTER_DIR"]) in Path(f"/proc/{pid}/environ").read_text("utf-8", "replace")
        ]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = Cluster(own_state(tmp_path_factory.mktemp("bad-days")))
    made.up()
    yield made
    assert run("vcluster", "down", timeout=120, **made.env).returncode == 0


@pytest.fixture(autouse=True)
def whole(cluster):
    """Let each test begin on a whole cluster: `up` heals one that is damaged."""
    yield
    cluster.up()
    # A controller that was killed may take jobs for running whose end it had not saved.
    for state in ("PENDING", "RUNNING"):
        cluster.asked("scancel", "--user=root", f"--state={state}")
    assert gone(cluster, [])


def test_a_job_that_somebody_cancels(cluster):
    """M6: it was called refused, and CANCELLED was never said."""
    process = cluster.start()
    until(process, FIRST)
    cluster.asked("scancel", cluster.running())
    code, said = ended(process)
    assert code == 5
    assert "ended as CANCELLED (it was cancelled)" in said
    assert len(cluster.last()[1]["runs"]) >= 1


@pytest.mark.parametrize("after", [0.3, 7])
def test_a_controller_that_is_killed_once(cluster, after):
    """M7: it is back after seconds, and the session goes on; but for a job that it had not saved yet."""
    process = cluster.start(name=("-n", "lammps.*lj"))
    until(process, FIRST)
    cluster.running()
    time.sleep(after)
    for pid in cluster.daemon("slurmctld"):
        os.kill(pid, signal.SIGKILL)
    code, said = ended(process, timeout=900)
    _, session = cluster.last()
    if after > 5 or "has forgotten job" not in said:
        # Refused where others load this machine: then the session has gone on, too.
        # A step that was ending at that moment may be lost with its controller: then its time limit ends it.
        lost = "ended as TIMEOUT" in said
        assert code == 0 or "without a CPU" in said or lost, said
        assert len(session["runs"]) >= (1 if lost else 4)
    else:
        assert code == 5
        assert len(session["runs"]) >= 1


def test_a_controller_that_does_not_come_back(cluster):
    """M10: three nodes were called unknown, the controller was not named, and the sample was lost."""
    process = cluster.start()
    until(process, FIRST)
    cluster.running()
    for _ in range(8):
        for pid in cluster.daemon("slurmctld"):
            os.kill(pid, signal.SIGKILL)
        time.sleep(3)
    code, said = ended(process)
    assert code == 5
    assert "slurmctld" in said.partition("Infrastructure failed")[2]
    assert len(cluster.last()[1]["runs"]) >= 1


def test_a_vm_that_stands_still(cluster):
    """M3: the finished native sample was lost, and the node was called completing."""
    process = cluster.start()
    until(process, FIRST)
    cluster.running()
    (victim,) = cluster.pids(f"vm1,.*{cluster.env['VCLUSTER_DIR']}")
    os.kill(victim, signal.SIGSTOP)
    try:
        code, said = ended(process)
    finally:
        os.kill(victim, signal.SIGCONT)
    assert code == 5
    # The last if it stands still before its first task has begun.
    sentences = ("node vm1 has not answered Slurm", "node vm1 has been completing", "daemons did not answer")
    assert any(sentence in said for sentence in sentences)
    assert len(cluster.last()[1]["runs"]) >= 1


def test_a_guest_whose_clock_jumps(cluster):
    """M11: the session hung, and the native sample was lost."""
    process = cluster.start()
    until(process, FIRST)
    job = cluster.running()
    setting = subprocess.Popen(
        [
            "bash",
            "-c",
            f"{ACTIVATED} exec srun --jobid={job} --het-group=1 --overlap date -s '+1 hour'",
        ],
        env={**os.environ, **cluster.env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    code, said = ended(process)
    setting.kill()
    setting.wait()
    assert code in (4, 5)
    assert "vm1" in said or "virtual" in said
    assert len(cluster.last()[1]["runs"]) >= 1


def test_a_program_that_hangs_until_its_time_limit(cluster):
    """M12: it was called refused, and TIMEOUT was never said."""
    process = cluster.start()
    until(process, "round 1")
    # A native run is over in less than a second: it is looked for before its job is, and a process that is
    # about to end does not stop.
    is_stopped = False
    while not is_stopped:
        assert process.poll() is None
        for pid in cluster.started("^[^ ]*NPmpich2? "):
            with suppress(ProcessLookupError, FileNotFoundError):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.1)
                state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
                is_stopped |= state == "T"
    job = cluster.running()
    cluster.asked("scontrol", "update", f"JobId={job}", "TimeLimit=1")
    code, said = ended(process)
    assert code == 5
    assert "ended as TIMEOUT (it reached its time limit)" in said


def gone(cluster, pids, seconds=60):
    """Return whether these processes and all jobs come to an end."""
    for _ in range(seconds):
        alive = any(Path(f"/proc/{pid}").exists() for pid in pids)
        if not alive and not cluster.asked("squeue", "--noheader", "--format=%i").split():
            return True
        time.sleep(1)
    return False


def test_virtqual_killed(cluster):
    """H7: ReFrame and its jobs went on, and the next session began beside them without a word."""
    process = cluster.start()
    until(process, FIRST)
    job = cluster.running()
    children = cluster.pids("reframe.*--system vcluster")
    (own,) = cluster.pids("virtqual qualify --system vcluster")
    os.kill(own, signal.SIGKILL)
    process.communicate(timeout=60)
    after = cluster.start()
    said = until(after, "round 1")
    assert gone(cluster, children) or cluster.running() != job
    assert "had ended without a conclusion" in " ".join(said.split())
    assert ended(after)[0] == 0
    first = sorted(cluster.sessions.glob("2*"))[-2]
    left = read_session(first)
    assert (left["outcome"], len(left["runs"])) == ("BROKEN", 1)


def test_reframe_killed(cluster):
    """H8: two samples that were finished were lost, the signal was not named, and a job was left behind."""
    process = cluster.start()
    until(process, FIRST_PAIR)
    cluster.running()
    (reframe,) = cluster.pids("reframe.*--system vcluster")
    os.kill(reframe, signal.SIGKILL)
    code, said = ended(process)
    assert code == 5
    assert "ReFrame was killed (SIGKILL)" in said
    assert len(cluster.last()[1]["runs"]) >= 2
    assert gone(cluster, [])


def test_two_sessions_at_once(cluster):
    """H9, H10: the sample of one session was the other's output."""
    first = cluster.start()
    until(first, "round 1")
    second = cluster.start()
    code, said = ended(second, 60)
    assert code == 5
    assert "measures on this system now" in said
    assert ended(first)[0] == 0
    _, session = cluster.last()
    assert len({run["job"] for run in session["runs"]}) == len(session["runs"]) >= 4
