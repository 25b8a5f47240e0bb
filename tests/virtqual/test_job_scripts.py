"""What a job writes down of its nodes, by the scripts that it runs there."""

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

import virtqual.job
from made_programs import write_program
from virtqual.identity import gather
from virtqual.job import notes
from virtqual.programs import pgbench
from virtqual.site import slurm

SCRIPTS = Path(virtqual.job.__file__).parent
# A program that tells whether its node was looked at before it.
TASK = "./task.sh /bin/sh -c 'echo virtqual.saw.*' > listed"


@pytest.fixture
def stage(tmp_path):
    """A stage directory with the scripts that a job finds there."""
    for name in ("task.sh", "node.sh", "see.sh", "seen.sh", "seen_says.py"):
        shutil.copy(SCRIPTS / name, tmp_path)
    for name in ("task.sh", "see.sh"):
        (tmp_path / name).chmod(0o755)
    (tmp_path / "gather.sh").write_text(gather.script())
    return tmp_path


def job(stage, lines):
    script = f". ./node.sh; virtqual_note begin; {lines}; virtqual_note end"
    env = {**os.environ, "SLURM_PROCID": "0", "SLURM_JOB_ID": "7", "LD_LIBRARY_PATH": "/nowhere"}
    subprocess.run(["bash", "-ec", script], cwd=stage, env=env, check=True, timeout=60)
    return notes.read(stage, 1, "7")


def test_a_shell_older_than_bash_5_notes_the_time(stage):
    """As bash 4.4 of RHEL 8, which has no EPOCHREALTIME."""
    before = time.time()
    script = "unset EPOCHREALTIME; . ./node.sh; virtqual_note begin"
    subprocess.run(["bash", "-ec", script], cwd=stage, check=True)
    (noted,) = re.findall(r"^time=(.*)$", (stage / "virtqual.begin").read_text(), re.MULTILINE)
    assert before <= float(noted) <= time.time()


def test_a_job_that_slurm_has_begun_again_ends_before_it_mixes_two_attempts(stage):
    steps = (
        "virtqual_repetition 1 out",
        "virtqual_repeated 1",
        "virtqual_repetition 2 out",
        "echo one attempt",
    )
    line = ["bash", "-c", "; ".join([". ./node.sh", *steps])]
    codes = [subprocess.run(line, cwd=stage, stderr=subprocess.DEVNULL).returncode for _ in range(2)]
    assert codes == [0, 1]
    assert (stage / "repetition-2/out").read_text() == "one attempt\n"


@pytest.mark.parametrize(
    ("lines", "looks"),
    [
        (f"virtqual_see /bin/sh; {TASK}", 0),
        # A prolog, or srun's options, may change what a task loads.
        (f"virtqual_see /bin/sh; LD_LIBRARY_PATH=/else {TASK}", 1),
        # The job script runs on the first node only.
        (TASK, 1),
    ],
    ids=["by the job script", "a task with other libraries", "another node"],
)
def test_a_node_is_seen_once_and_before_the_program(stage, lines, looks):
    noted = job(stage, lines)
    (task,) = noted.tasks
    assert (stage / "listed").read_text() == f"virtqual.saw.{task.node}\n"
    assert len(list(stage.glob("virtqual.sees-task.*"))) == looks
    (seen,) = noted.software
    assert seen.files["binary"].path == os.path.realpath("/bin/sh")
    assert notes.identify_nodes(noted, None)[task.node].node == task.node


def test_a_node_has_the_name_that_slurm_has(stage, monkeypatch):
    """As on a Cray; a server is still called by the name that its node has for itself."""
    monkeypatch.setenv("SLURMD_NODENAME", "nid000001")
    noted = job(stage, f"virtqual_see /bin/sh; {TASK}")
    assert [task.node for task in noted.tasks] == list(noted.nodes) == list(noted.files) == ["nid000001"]
    (identity,) = notes.identify_nodes(noted, None, ["-d", "mlx5_0"]).values()
    assert (identity.name, identity.node) == ("nid000001", socket.gethostname())
    assert identity.rdma_port == "mlx5_0 port 1"
    assert (stage / "virtqual.task.0").read_text().split()[-1] == socket.gethostname()


def test_tasks_print_no_labels(stage, monkeypatch):
    monkeypatch.setenv("SLURM_LABELIO", "1")
    job(stage, "./task.sh /bin/sh -c 'echo ${SLURM_LABELIO-none}' > labels")
    assert (stage / "labels").read_text() == "none\n"
    assert "SLURM_LABELIO" not in slurm.environment()


def test_the_start_of_the_shell_is_noted(stage):
    script = f"sleep 0.5; . ./node.sh; virtqual_note begin; {TASK}; virtqual_note end"
    env = {**os.environ, "SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}
    subprocess.run(["bash", "-ec", script], cwd=stage, env=env, check=True)
    noted = notes.read(stage, 1, "7")
    assert noted.shell_seconds >= 0.45
    (stage / "virtqual.begin").write_text("time=1\njob=7\ncpu_ticks=1\nuptime=late\nshell_ticks=1\n")
    with pytest.raises(notes.NotesError, match=r"virtqual.begin: uptime='late' is no time"):
        notes.read(stage, 1, "7")


def test_the_first_task_of_another_node_notes_what_that_has_to_bear(stage):
    """All its steps lie between the notes; a program's exit code and output are those of the task."""
    env = {**os.environ, "SLURM_PROCID": "1", "SLURM_LOCALID": "0"}
    ends = []
    for step in (3, 4):
        command = ["./task.sh", "/bin/sh", "-c", f"echo {step}; exit {step}"]
        done = subprocess.run(
            command, cwd=stage, env=env, capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.stdout, done.returncode) == (f"{step}\n", step)
        (begin,), (end,) = (list(stage.glob(f"virtqual.{name}.*")) for name in ("begin", "end"))
        assert "cpus_online=" in begin.read_text()
        ends.append(noted_time(end))
    assert noted_time(begin) < ends[0] < ends[1]


REPEATED = """
echo 5 > input; ln -s input linked
for k in 1 2 3; do virtqual_repetition $k out
{task} >> out
virtqual_repeated $k
done
echo after"""


def test_each_repetition_has_its_own_directory_and_finds_what_the_first_one_found(stage):
    program = "ls; cat linked; echo $PWD > wrote"
    noted = job(stage, "virtqual_see /bin/sh" + REPEATED.format(task=f"./task.sh /bin/sh -c '{program}'"))
    rooms = [stage, stage / "repetition-2", stage / "repetition-3"]
    assert [(room / "wrote").read_text().strip() for room in rooms] == list(map(str, rooms))
    for room in rooms:
        *found, last = (room / "out").read_text().split()
        assert last == "5"
        # Nothing of another repetition: neither its output nor where its tasks ran.
        expected = {"input", "linked", "node.sh", "out", "task.sh", "virtqual.task.0"}
        assert expected <= set(found)
        assert "wrote" not in found
        assert not (room / "virtqual.task.0").is_symlink()
        assert [task.rank for task in notes.read_tasks(room, 1, "7")] == [0]
    # The node was looked at once, and what came before and after the loop is the job's.
    assert not list(stage.rglob("virtqual.sees-task.*"))
    assert len(list(stage.rglob("virtqual.node.*"))) == 1
    assert noted.first_node.end["job"] == "7"


def test_notes_of_another_node_span_all_repetitions(stage):
    """Its first task makes them, wherever in the job's directory it runs."""
    lines = "export VIRTQUAL_NOTES=$PWD" + REPEATED.format(task="./task.sh /bin/sleep 0.1")
    job(stage, lines)
    (begin,), (end,) = (list(stage.rglob(f"virtqual.{name}.*")) for name in ("begin", "end"))
    assert begin.parent == end.parent == stage
    assert noted_time(end) - noted_time(begin) > 0.3
    # And it is looked at once.
    assert len(list(stage.rglob("virtqual.sees-task.*"))) == 1


def test_a_program_that_fails_ends_the_job_in_any_repetition(stage):
    task = "./task.sh /bin/sh -c 'case $PWD in */repetition-2) exit 3 ;; esac'"
    script = f". ./node.sh\ntrap 'exit $?' ERR\nvirtqual_see /bin/sh{REPEATED.format(task=task)}"
    env = {**os.environ, "SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=stage, env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, "after" in done.stdout) == (3, False)
    assert not (stage / "repetition-3").exists()


def test_a_warm_up_notes_how_long_its_program_took_and_runs_on_where_that_was_short(stage):
    timed = f"export VIRTQUAL_TIMED=1; virtqual_see /bin/sh{REPEATED}"
    lines = timed.replace(
        "virtqual_repeated $k", "virtqual_repeated $k; if virtqual_took {least}; then break; fi"
    )
    job(stage, lines.format(task="./task.sh /bin/sleep 0.2; ./task.sh /bin/sleep 0.2", least=0.35))
    took = notes.read_program_seconds(stage)
    assert 0.35 <= took < 60
    assert not (stage / "repetition-2").exists()
    (stage / "virtqual.took.0").write_text("5.00 5.00\n")
    assert notes.read_program_seconds(stage) == 0.01
    (stage / "virtqual.took.0").unlink()
    with pytest.raises(notes.NotesError, match="did not note how long its program took"):
        notes.read_program_seconds(stage)


def noted_time(note):
    return float(note.read_text().splitlines()[0].removeprefix("time="))


def test_of_other_tasks_nothing_is_noted(stage):
    env = {**os.environ, "SLURM_PROCID": "1", "SLURM_LOCALID": "1"}
    subprocess.run(["./task.sh", "/bin/true"], cwd=stage, env=env, check=True, timeout=60)
    assert not list(stage.glob("virtqual.begin*"))


# What `numactl --hardware` prints of one node, and of the distances from the first.
NODE = "node {0} cpus: {1}\nnode {0} size: {2} MB\nnode {0} free: 1 MB\n"


@pytest.mark.parametrize(
    ("nodes", "distances", "node"),
    [
        ({0: "0", 1: "1"}, "10 21", "1"),
        # Two nodes of each socket, and the same told no distances.
        ({0: "0", 1: "1", 2: "2", 3: "3"}, "10 12 32 32", "3"),
        ({0: "0", 1: "1", 2: "2", 3: "3"}, "10 20 20 20", "3"),
        # Four sockets in a ring; numbers with gaps.
        ({0: "0", 1: "1", 2: "2", 3: "3"}, "10 21 31 21", "2"),
        ({0: "0", 8: "1", 16: "2"}, "10 80 40", "8"),
        # Memory of another kind is farther away, and no other socket; a node without memory has none to give.
        ({0: "0", 1: "1", 2: ""}, "10 21 40", "1"),
        ({0: "0", 1: "1", 2: "2 (and no memory)"}, "10 21 40", "1"),
        ({0: "0"}, "10", None),
        ({0: "0", 1: "1"}, None, None),
    ],
)
def test_remote_memory_is_that_of_the_farthest_node(tmp_path, nodes, distances, node):
    said = "".join(NODE.format(name, cpus, 0 if "no memory" in cpus else 9) for name, cpus in nodes.items())
    table = f"node distances:\nnode {'   '.join(map(str, nodes))} \n  0:  {distances} \n"
    (tmp_path / "said").write_text(said + (table if distances else "No distance information available.\n"))
    numactl = f'#!/bin/sh\n[ "$1" = --hardware ] && exec cat {tmp_path}/said\necho "$@"\n'
    write_program(tmp_path / "numactl", numactl)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def take(which):
        command = ["sh", SCRIPTS / "memory.sh", which, "./stream", "-x"]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    assert take("local").stdout == "--cpunodebind=0 --membind=0 ./stream -x\n"
    done = take("remote")
    if node is None:
        assert (done.returncode, "no distance to another NUMA node" in done.stderr) == (1, True)
    else:
        assert done.stdout == f"--cpunodebind=0 --membind={node} ./stream -x\n"
        assert (tmp_path / "virtqual.memory").read_text() == f"{node}\n"


@pytest.mark.parametrize(
    ("note", "text", "says"),
    [
        ("begin", "cpus_online=0-999999999", "names a CPU above 65535"),
        ("begin", f"memory_kib={'9' * 5000}", "memory_kib='999"),
        ("end", "time=nan", "time='nan' is no time"),
        ("end", "cpu_ticks=1 2 x", "cpu_ticks='1 2 x' is no count"),
        ("task.0", "0 n1 0-999999999 7", "names a CPU above 65535"),
        ("task.0", "0 ../n1 0 7", "virtqual.task.0 is broken"),
        ("task.0", f"{'9' * 5000} n1 0 7", "virtqual.task.0 is broken"),
    ],
)
def test_a_note_of_a_vm_costs_the_login_node_nothing(stage, note, text, says):
    noted = job(stage, TASK)
    (stage / f"virtqual.{note}").open("a").write(f"\n{text}\n")
    if note.startswith("task"):
        (stage / f"virtqual.{note}").write_text(text)
    with pytest.raises(notes.NotesError, match=re.escape(says)) as error:
        notes.read(stage, len(noted.tasks), "7")
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("note", ["begin", "task.0", "seen", "node"])
def test_a_note_that_never_ends_is_refused(stage, note):
    (task,) = job(stage, TASK).tasks
    file = stage / f"virtqual.{note}{'' if note in ('begin', 'task.0') else f'.{task.node}'}"
    file.unlink()
    file.symlink_to("/dev/zero")
    with pytest.raises(notes.NotesError, match=re.escape(file.name)):
        notes.read(stage, 1, "7")
    file.unlink()
    with file.open("wb") as large:
        large.truncate(notes.MAX_NOTE_BYTES + 1)
    with pytest.raises(notes.NotesError, match="it is larger than 4 MiB"):
        notes.read(stage, 1, "7")


def test_a_node_that_says_it_has_cores_of_all_cpus(stage):
    noted = job(stage, TASK)
    (file,) = stage.glob("virtqual.node.*")
    more = "/sys/devices/system/cpu/cpu7/topology/thread_siblings_list:0-60000\n"
    file.write_text(file.read_text().replace(gather.LAST_LINE, f"{more}{gather.LAST_LINE}"))
    with pytest.raises(notes.NotesError, match=f"{file.name}: .* names more than 256 CPUs"):
        notes.identify_nodes(notes.read(stage, len(noted.tasks), "7"), None)


def test_the_cause_of_a_failed_database_is_named_and_not_what_followed_from_it(tmp_path):
    log = 'LOG:  could not bind IPv4 address "127.0.0.1": Address already in use\nFATAL:  no socket\n'
    (tmp_path / "server.log").write_text(log)
    line = f". {SCRIPTS}/postgres.sh; directory=. virtqual_postgres_failed 'the start of the server'"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    why = (tmp_path / "virtqual.why").read_text()
    assert why.startswith("PostgreSQL: the start of the server failed: LOG:  could not bind IPv4 address")


@pytest.fixture
def postgres():
    """Return the path of a real server."""
    servers = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return servers[0] if servers else pytest.skip("no PostgreSQL here (Debian: apt-get install postgresql)")


@pytest.mark.slow
def test_the_port_of_a_real_database_asks_for_a_password(tmp_path, postgres):
    """Other users of the node reach it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ask = f"psql -w -h 127.0.0.1 -p {port} -U virtqual -d postgres -tAc 'select 1'"
    script = f"""
        . {SCRIPTS}/postgres.sh
        postgres={postgres} bin={postgres.parent} postgres_port={port} postgres_address=127.0.0.1
        virtqual_start_postgres /dev/shm 1 4 env
        {ask}; echo "code $?"; PGPASSWORD=$postgres_password {ask}
    """
    env = {**os.environ, "PATH": f"{postgres.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["code", "2", "1"], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_real_database_that_is_stopped_shows_in_the_p99_of_its_client_and_leaves_nothing(
    tmp_path, postgres, nodes
):
    """The server stops for 2 s in 20: at 100 a second one transaction in ten waits for it."""
    # The server's user cannot enter the directories of tests.
    place = Path(tempfile.mkdtemp(dir="/dev/shm"))
    place.chmod(0o755)
    for name in ("postgres.sh", "apart.sh", "pgbench.sh"):
        shutil.copy(SCRIPTS / name, tmp_path)
    line = ["./pgbench.sh", postgres, place, "1", "4", str(nodes), "0", "7", "peak:2:", "stall:22:100"]
    tasks = [
        subprocess.Popen(line, cwd=tmp_path, env={**os.environ, "SLURM_PROCID": str(task)})
        for task in range(nodes)
    ]
    with tasks[0], tasks[-1]:
        while not (tmp_path / "stall.out").exists():
            assert tasks[-1].poll() is None
            time.sleep(0.1)
        time.sleep(10)
        (directory,) = place.iterdir()
        main = int((directory / "data/postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{main}/task/{main}/children").read_text("utf-8").split()
        for sign, seconds in ((signal.SIGSTOP, 2), (signal.SIGCONT, 0)):
            for process in (main, *map(int, children)):
                os.kill(process, sign)
            time.sleep(seconds)
    assert [task.returncode for task in tasks] == [0] * nodes
    load = pgbench.parse((tmp_path / "stall.out").read_text()).offered
    assert load.p50 < 500
    assert 1500 < load.p99 < 3000
    assert pgbench.parse((tmp_path / "peak.out").read_text()).rate > 10
    place.rmdir()
