"""Queues of the rehearsed centre: what a session waits for, and what others can use meanwhile."""

import signal

import pytest
from at_centre import nothing_left, send

from following import ended, until

pytestmark = pytest.mark.centre
#: A few runs on two nodes of each side.
ON = ("-n", "^paging%.*=pages", "--fast", "--nodes", "2")
WHO = ("--account=performance", "--qos=qualification")


@pytest.fixture
def busy(site):
    """Return a function that lets others compute on all nodes of a partition for some seconds."""
    jobs = []

    def compute(partition, seconds):
        line = ["sbatch", "--parsable", f"--partition={partition}", "--nodes=8", "--exclusive", *WHO]
        jobs.append(site.slurm(*line, f"--wrap=sleep {seconds}", "--output=/dev/null").strip())

    yield compute
    site.centre.run("scancel", *jobs)
    nothing_left(site)


@pytest.fixture
def reserve(site):
    """Return a function that makes a reservation."""
    names = []

    def create(name, *settings):
        site.slurm("scontrol", "create", "reservation", f"reservationname={name}", "users=root", *settings)
        names.append(name)

    yield create
    for name in names:
        site.centre.run("scontrol", "delete", f"reservationname={name}")


def list_nodes(session):
    return {node for run in session["runs"] for node in run["nodes"]}


def test_two_days_of_queue_leave_the_free_side_to_others(site, busy):
    """Expected: no native node is held while VMs are waited for; then both sides begin together."""
    site.plant()
    busy("vm", 60)
    process = site.start(*ON, "--wait", "48")
    said = until(process, "Slurm says Resources")
    assert "waiting for 2 nodes of bare and 2 nodes of vm since" in " ".join(said.split())
    assert site.slurm("squeue", "--noheader", "--partition=bare", "--states=RUNNING") == ""
    code, said = ended(process)
    assert code == 0, said
    line = [
        "sacct",
        "--noheader",
        "--parsable2",
        "--allocations",
        "--name=" + f"virtqual-{site.session()['session']}",
    ]
    (native, virtual) = site.slurm(*line, "--format=start").split()
    assert native == virtual
    nothing_left(site)


def test_a_wait_that_is_too_long_ends(site, busy):
    """Expected: exit code 5, with what to do; its job is in no queue."""
    site.plant()
    busy("vm", 600)
    done = site.centre.run("virtqual", "qualify", "--system", "centre", *ON, "--wait", "0.005", **site.env)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 5, said
    assert "2 nodes of bare and 2 nodes of vm: not given within 0.005 h." in said
    assert "virtqual" not in site.slurm("squeue", "--noheader", "--format=%j")


def test_a_session_waits_for_its_reservation_and_uses_its_nodes_alone(site, reserve):
    site.plant()
    reserve("quali", "starttime=now+1minute", "duration=60", "nodes=bare[3-4],vm[5-6]")
    site.env["CENTRE_ACCESS"] = "--reservation=quali"
    process = site.start(*ON)
    until(process, "Slurm says Reservation")
    code, said = ended(process)
    assert code == 0, said
    assert list_nodes(site.session()) == {"bare3", "bare4", "vm5", "vm6"}
    nothing_left(site)


def test_a_session_that_ends_before_a_maintenance_begins(site, reserve):
    """Expected: with eight hours it waits, and says for what; with twenty minutes it runs."""
    site.plant()
    reserve("window", "starttime=now+30minutes", "duration=60", "flags=maint,ignore_jobs", "nodes=ALL")
    process = site.start(*ON)
    until(process, "Reserved for maintenance: its time limit")
    send(process, signal.SIGINT)
    code, said = ended(process, 120)
    assert code == 130, said
    nothing_left(site)
    site.env["CENTRE_ACCESS"] = "--time=0:20:00"
    done, _ = site.qualify(*ON)
    assert done.returncode == 0, done.stdout + done.stderr
    nothing_left(site)


def submit(site, *options):
    """Submit a session to a native node as docs/queues.md says; return its output and exit code."""
    output = site.state / "job.out"
    words = " ".join(("virtqual", "qualify", "--system", "centre", *options))
    line = ["sbatch", "--wait", "--partition=bare", "--ntasks=1", "--mem=2G", "--time=1:00:00", *WHO]
    done = site.centre.run(
        *line, "--signal=B:TERM@300", f"--output={output}", f"--wrap=exec {words}", **site.env
    )
    return output.read_text("utf-8"), done.returncode


def test_a_session_is_a_job_on_one_of_both_partitions(site):
    """Expected: it does not wait for its own node, and measures on others."""
    site.plant()
    said, code = submit(site, *ON[:3])
    assert code == 2, said
    assert "asks for every node (8) of partition bare: it would wait for itself" in " ".join(said.split())
    said, code = submit(site, *ON)
    assert code == 0, said
    assert "bare1" not in list_nodes(site.session())
    nothing_left(site)
