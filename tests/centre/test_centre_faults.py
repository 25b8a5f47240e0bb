"""Faults on the rehearsed centre: each ends as is written before it, and no sample is lost."""

import random
import signal
import time

import pytest
from at_centre import nothing_left, send

from following import ended, until

pytestmark = pytest.mark.centre
#: A check on one core of a node, and its runs: warm-ups and four turns on eight places of either side.
#: Sixty-four tasks a run would be as many processes of this machine, for nothing that these tests look at.
ON = ("-n", "^paging%.*=pages")
RUNS, WARM_UPS = 80, 16


def kept(site):
    return {(run["check"], run["pair"], run["side"]): run["start"] for run in site.session()["runs"]}


@pytest.fixture
def node(site):
    """Return a function that changes a node's state; all are well again afterwards."""
    changed = []

    def update(name, state, reason="a test"):
        changed.append(name)
        site.slurm("scontrol", "update", f"nodename={name}", f"state={state}", f"reason={reason}")

    yield update
    for name in changed:
        site.centre.run("scontrol", "update", f"nodename={name}", "state=resume")
    # One that is down is taken back when its slurmd is heard of.
    time.sleep(5)


def test_a_node_that_is_down_in_a_run_is_set_aside(site, node):
    """Expected: it is named, the others go on, and the verdict is that of hosts that were in all turns."""
    site.plant(seconds=2)
    process = site.start(*ON)
    until(process, " 40/80")
    node("vm5", "down", "host died")
    code, said = ended(process)
    assert code == 0, said
    # Slurm takes it back at once (ReturnToService=2), but not into the allocation.
    assert "node vm5 " in said.partition("set aside; the session goes on with 7 nodes of each side")[0]
    found = site.session()
    assert [list(loss["nodes"]) for loss in found["lost"]] == [["vm5"]]
    (verdict,) = found["verdicts"]
    assert verdict["outcome"] == "WITHIN"
    hosts = {kind: [host for host in verdict["hosts"] if host.startswith(kind)] for kind in ("bare", "host")}
    assert "host5" not in hosts["host"]
    assert len(hosts["bare"]) == len(hosts["host"]) >= 4
    assert verdict["pairs"] % len(hosts["bare"]) == 0
    nothing_left(site)


def test_a_node_that_is_drained_before_is_left_out(site, node):
    """Expected: the session begins with seven nodes of each side, and says so."""
    site.plant()
    node("bare2", "drain", "memory replaced")
    done, found = site.qualify(*ON)
    said = " ".join(done.stdout.split())
    assert done.returncode == 0, said + done.stderr
    assert "7 of 8 nodes can run jobs: bare2 is drained (memory replaced): the session uses 7 of each" in said
    assert "bare2" not in {name for run in found["runs"] for name in run["nodes"]}


def test_a_held_job_that_somebody_cancels_ends_the_session_which_goes_on(site):
    """Expected: exit code 5 in Slurm's word; resumed, nothing finished is run again."""
    site.plant(seconds=2)
    process = site.start(*ON)
    until(process, " 30/80")
    (held, _) = site.slurm("squeue", "--noheader", "--format=%A").split()
    site.slurm("scancel", held)
    code, said = ended(process)
    assert code == 5, said
    assert "CANCELLED" in said
    before = kept(site)
    assert before
    done, _ = site.resume()
    assert done.returncode == 0, done.stdout + done.stderr
    assert before.items() <= kept(site).items()
    nothing_left(site)


def test_a_controller_that_is_restarted_is_not_noticed(site):
    """Expected: exit code 0, no run lost."""
    site.plant(seconds=2)
    process = site.start(*ON)
    until(process, " 30/80")
    site.slurm("sh", "-c", "pkill -x slurmctld; sleep 5; slurmctld")
    code, said = ended(process)
    assert code == 0, said
    assert len(kept(site)) >= RUNS - WARM_UPS
    nothing_left(site)


def test_accounting_that_is_down_is_not_noticed(site):
    """Expected: exit code 0, no run lost."""
    site.plant(seconds=2)
    process = site.start(*ON)
    until(process, " 30/80")
    site.slurm("pkill", "-x", "slurmdbd")
    try:
        code, said = ended(process)
    finally:
        site.slurm("slurmdbd")
    assert code == 0, said
    assert len(kept(site)) >= RUNS - WARM_UPS
    nothing_left(site)


def test_an_account_that_may_not_compute_there_is_named_in_slurms_words(site):
    """Expected: exit code 5, nothing measured, and how to say which account, QOS and reservation it is."""
    site.plant()
    site.env["CENTRE_ACCOUNT"] = "teaching"
    done = site.centre.run("virtqual", "qualify", "--system", "centre", *ON, **site.env)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 5, said
    assert "Invalid account or account/partition combination specified" in said
    assert "access" in said
    nothing_left(site)


def only_pages_are_invalid(site):
    """Return what a session of pages and STREAM says, of which the first leave nothing in VMs."""
    done, found = site.qualify(*ON, "-n", "^stream%")
    said = " ".join(done.stdout.split())
    assert done.returncode == 4, said + done.stderr
    outcomes = {verdict["metric"]: verdict["outcome"] for verdict in found["verdicts"]}
    assert outcomes.pop("page_touch_time", "INVALID") == "INVALID"
    assert set(outcomes.values()) == {"WITHIN"}
    nothing_left(site)
    return said


def test_runs_that_reach_their_time_limit_leave_their_check_invalid(site):
    """Expected: pages, 12 times slower in VMs, are INVALID by TIMEOUT; STREAM is judged; exit code 4."""
    site.plant(overhead={"stress-ng": 12.0})
    site.env["CENTRE_TIME_LIMIT"] = "6s"
    assert "ended as TIMEOUT (it reached its time limit)" in only_pages_are_invalid(site)
    # A program ends with its run: it does not go on beside the next one.
    finished = (site.directory / "stacks/rehearsed/ended").read_text("utf-8").split("\n")
    assert "stress-ng bare1" in finished
    assert "stress-ng vm1" not in finished


def test_programs_that_the_kernel_kills_leave_their_check_invalid(site):
    """Expected: pages in VMs, killed as memory is used up, are INVALID; STREAM is judged; exit code 4."""
    site.plant(killed=["stress-ng"])
    assert "exit code 137 (killed by SIGKILL: was its memory used up?)" in only_pages_are_invalid(site)


def test_a_stage_directory_that_is_full_is_named(site, centre):
    """Expected: exit code 5, with the reason of the file system; what was measured before is kept."""
    site.plant(seconds=2)
    stage = centre.directory / "reframe"
    stage.mkdir(exist_ok=True)
    site.slurm("mount", "-t", "tmpfs", "-o", "size=600k", "stage", str(stage))
    try:
        done, found = site.qualify(*ON)
    finally:
        site.slurm("umount", "--lazy", str(stage))
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode in (4, 5), said
    assert "No space left on device" in said
    assert found["outcome"] != "WITHIN"
    nothing_left(site)


def test_nodes_that_are_kept_for_maintenance_are_used_by_those_who_ask_for_it(site):
    """Expected: exit code 5, named, without the reservation; with it in `access` the session runs."""
    site.plant()
    site.slurm(
        "scontrol",
        "create",
        "reservation",
        *["reservationname=window", "users=root", "starttime=now", "duration=60", "flags=maint,ignore_jobs"],
        "nodes=bare[1-8],vm[1-8]",
    )
    try:
        # Slurm needs some seconds to show it; a session that begins before waits until it is over.
        while "maint" not in site.slurm("sinfo", "--noheader", "--format=%T", "--nodes=vm1"):
            time.sleep(1)
        done = site.centre.run("virtqual", "qualify", "--system", "centre", *ON, **site.env)
        assert done.returncode == 5, done.stdout + done.stderr
        assert "bare1 is maint" in " ".join(done.stderr.split())
        site.env["CENTRE_ACCESS"] = "--reservation=window"
        done, _ = site.qualify(*ON)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        site.slurm("scontrol", "delete", "reservation=window")


@pytest.mark.parametrize("moment", random.Random(14).sample(range(WARM_UPS + 2, RUNS - 2), 10))
def test_a_session_that_is_interrupted_at_any_moment_goes_on(site, moment):
    """Expected: 130; resumed, every run that had finished counts, and the verdict is a whole session's."""
    site.plant()
    process = site.start(*ON)
    until(process, f" {moment}/{RUNS}")
    send(process, signal.SIGINT)
    code, said = ended(process, 120)
    assert code == 130, said
    nothing_left(site)
    before = kept(site)
    done, found = site.resume()
    assert done.returncode == 0, done.stdout + done.stderr
    assert before.items() <= kept(site).items()
    assert [verdict["outcome"] for verdict in found["verdicts"]] == ["WITHIN"]


def test_a_session_that_is_killed_goes_on(site):
    """Expected: no word, its jobs are ended by the next one, which goes on."""
    site.plant()
    process = site.start(*ON)
    until(process, " 30/80")
    send(process, signal.SIGKILL)
    process.communicate(timeout=120)
    before = kept(site)
    done, _ = site.resume()
    assert done.returncode == 0, done.stdout + done.stderr
    assert before.items() <= kept(site).items()
    nothing_left(site)
