"""A session that holds nodes of both sides, on a site with a stand-in for Slurm: runs are steps there."""

import json
import os
import re
import signal
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from following import ended
from virtqual.qualify import allocations
from virtqual.site import slurm

ON = ("qualify", "--system", "testsite", "-n", "lj")
HELD = {
    f"FAKE_EXTRAS_{name}": json.dumps({"session_access": [f"--partition={name}", "--time=8:00:00"]})
    for name in ("bare", "cloud")
}


def left(site):
    return list((site.path / "slurm").glob("held.*"))


def test_all_runs_are_steps_of_one_job_of_both_sides(site):
    site.virtqual(*ON, code=0, **HELD)
    found = site.session()
    assert found["outcome"] == "WITHIN"
    assert {run["clock"] for run in found["runs"]} == {"harness"}
    jobs = {(run["side"], run["job"].split(".")[0]) for run in found["runs"]}
    assert sorted(side for side, _ in jobs) == ["native", "virtual"]
    assert len({run["job"] for run in found["runs"]}) == 8
    # Both are components of one job.
    assert [line["job"] for line in site.events("released")] == [min(job for _, job in jobs)]
    assert left(site) == []


def test_what_the_shell_has_set_reaches_no_run(site):
    site.virtqual(*ON, **HELD, UCX_TLS="rc", code=0)
    seen = [seen for run in site.session()["runs"] for seen in run["software"]]
    assert len(seen) == 8
    assert all("UCX_TLS" not in one["environment"] for one in seen)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_end_gives_the_nodes_back_and_a_resumption_asks_anew(site, number):
    site.fault("waits", "6")
    process = site.start(*ON, **HELD)
    site.until(process, " 5/10")
    os.kill(process.pid, number)
    ended(process)
    site.mend("waits")
    if number == signal.SIGINT:
        assert left(site) == []
    (directory,) = (site.path / "state/sessions").glob("2*")
    site.virtqual("qualify", "--resume", directory.name, code=0, **HELD)
    assert left(site) == []
    assert len({run["job"].split(".")[0] for run in site.session()["runs"]}) == 4


def test_a_job_that_has_ended_before_the_session(site):
    process = site.start(*ON, **HELD)
    site.until(process, " 4/10")
    for file in left(site):
        file.unlink()
    code, said = ended(process)
    assert code == 5
    assert "ended as CANCELLED (it was cancelled)" in said
    assert f"--resume {site.session()['session']}` goes on with it" in said
    assert len(site.session()["runs"]) >= 1


def test_an_allocation_that_never_begins(site):
    site.fault("allocation", "CANCELLED")
    done = site.virtqual(*ON, code=5, **HELD)
    assert "Slurm says that allocation 1 is CANCELLED" in site.words(done)
    assert left(site) == []
    # Nothing was run: it does not count.
    assert not list((site.path / "state/sessions").glob("2*"))
    site.virtqual("status", code=5)
    assert "there is no session yet" in site.words(site.virtqual("list"))


def test_a_job_that_waits_says_why(site):
    site.fault("allocation", "PENDING")
    process = site.start(*ON, **HELD)
    site.until(process, "Slurm says Priority: other jobs come first.")
    site.mend("allocation")
    assert ended(process)[0] == 0


def test_two_days_of_queue_in_seconds(site):
    """The wait is 48 h by the option, or what the system file says, and ends with what Slurm says."""
    site.fault("allocation", "PENDING|ReqNodeNotAvail,_Reserved_for_maintenance")
    for partition, extras in HELD.items():
        site.env[partition] = json.dumps({**json.loads(extras), "wait_hours": 0.0005})
    done = site.virtqual(*ON, code=5)
    said = site.words(done)
    assert "not given within 0.0005 h. Slurm says ReqNodeNotAvail, Reserved for maintenance: its time" in said
    assert "--wait HOURS waits longer" in said
    process = site.start(*ON, "--wait", "48")
    site.until(process, "gives up at")
    site.until(process, "a shorter --time lets it begin before")
    site.mend("allocation")
    assert ended(process)[0] == 0
    assert left(site) == []


def test_a_scheduler_that_begins_no_job_of_two_partitions_is_asked_for_none(site):
    site.fault("scheduler", "builtin")
    done = site.virtqual(*ON, code=5, **HELD)
    assert "its SchedulerType is sched/builtin, not sched/backfill" in site.words(done)
    assert not (site.path / "slurm/last").exists()


def test_a_session_does_not_wait_for_the_node_on_which_it_runs(site):
    done = site.virtqual(*ON, **HELD, SLURM_JOB_ID="7", SLURMD_NODENAME="bare-1", code=2)
    assert "this session runs on bare-1, and asks for every node (1) of partition bare" in site.words(done)
    assert not (site.path / "slurm/last").exists()


def test_the_nodes_of_a_reservation_and_as_many_as_the_session_uses_are_asked_for(site):
    """A session that is itself a job hands nothing of that job on."""
    hosts = {"bare": {}, "cloud": {"nodes_of_hosts": {f"host-{k}": [f"cloud-{k}"] for k in (1, 2, 3)}}}
    for name, extras in hosts.items():
        access = [f"--partition={name}", "--reservation=quali", "-m", "block:cyclic"]
        site.env[f"FAKE_EXTRAS_{name}"] = json.dumps({"session_access": access, **extras})
    site.fault("nodes", "3")
    done = site.virtqual(*ON, "--nodes", "2", FAKE_NODES="3", SLURM_JOB_ID="7", SLURM_NTASKS="1", code=0)
    said = site.words(done)
    assert "It uses 2 of 3 nodes of each side (--nodes)." in said
    asked = (site.path / "slurm/asked").read_text()
    assert not re.search("^SLURM_(JOB|NTASKS)", asked, re.MULTILINE)
    assert re.findall(r"--partition=(\w+) --reservation=quali -m block:cyclic --nodes=2 ", asked) == [
        *("bare", "cloud")
    ]
    # Slurm takes it for each step from the step's own options.
    scripts = [file.read_text() for file in (site.path / "slurm/reframe").rglob("lammps*/rfm_job.sh")]
    assert scripts
    assert all("--distribution=block:cyclic " in text for text in scripts)
    assert {node for run in site.session()["runs"] for node in run["nodes"]} == {
        f"{partition}-{k}" for partition in ("bare", "cloud") for k in (1, 2)
    }


@pytest.mark.parametrize("own_node", ["bare-1", "bare-3", "elsewhere"])
def test_a_session_that_is_a_job_names_the_nodes_beside_it(monkeypatch, own_node):
    monkeypatch.setenv("SLURMD_NODENAME", own_node)
    asked = []
    monkeypatch.setattr(slurm, "check_scheduler", lambda: None)
    monkeypatch.setattr(slurm, "allocate", lambda nodes, _: asked.extend(nodes) or "7")
    monkeypatch.setattr(slurm, "list_components", lambda _: ["7", "8"])
    names = {"native": "bare", "virtual": "cloud"}
    job = SimpleNamespace(
        system=SimpleNamespace(partition=lambda side: SimpleNamespace(name=names[side])),
        watch=SimpleNamespace(
            nodes=lambda side: [f"{names[side]}-{k}" for k in (1, 2, 3)], working=lambda _: 2
        ),
        head=SimpleNamespace(session="s"),
        log=SimpleNamespace(append=lambda _: None),
    )
    allocations._request_nodes(job)
    (_, native), (_, virtual) = asked
    assert native == [node for node in ("bare-1", "bare-2", "bare-3") if node != own_node][:2]
    assert virtual == ["cloud-1", "cloud-2"]


def test_a_controller_that_is_away_for_a_while_ends_no_waiting(monkeypatch):
    silent, notes = slurm.SilentError("squeue: timed out"), []
    monkeypatch.setattr(
        slurm, "list_waiting_jobs", Mock(side_effect=[silent, silent, {"1": "Priority"}, silent, {}])
    )
    monkeypatch.setattr(slurm, "end_steps", lambda _: [])
    monkeypatch.setattr(allocations.time, "sleep", lambda _: None)
    native = SimpleNamespace(own_scheduler=False, session_access=["-t1"])
    job = SimpleNamespace(
        system=SimpleNamespace(partition=lambda side: SimpleNamespace(name=side), native_extras=native),
        screen=SimpleNamespace(note=notes.append),
        request=SimpleNamespace(wait_hours=48),
        watch=SimpleNamespace(working=lambda _: 4),
        held={"native": "1", "virtual": "2"},
        rotated={},
    )
    allocations.hold_allocation(job)
    (note,) = notes
    assert re.fullmatch(
        r"waiting for 4 nodes of native and 4 nodes of virtual since \d\d:\d\d, "
        r"gives up at \d\d:\d\d on \d{4}-\d\d-\d\d\. "
        r"Slurm says Priority: other jobs come first\.",
        note,
    )
    monkeypatch.setattr(allocations, "CONTROLLER_TIMEOUT_S", -1.0)
    monkeypatch.setattr(slurm, "list_waiting_jobs", Mock(side_effect=silent))
    with pytest.raises(slurm.SilentError):
        allocations.hold_allocation(job)


def test_a_run_that_a_restarted_controller_did_not_begin_is_begun_again(site):
    process = site.start(*ON, **HELD)
    site.until(process, " 4/10")
    site.fault("restarted", "")
    assert ended(process)[0] == 0
    assert not (site.path / "slurm/restarted").exists()
    assert (len(site.session()["runs"]), site.session()["failures"]) == (8, [])


def test_async_is_for_runs_that_wait(site):
    done = site.virtqual(*ON, "--policy", "async", code=2, **HELD)
    assert "extras.session_access" in site.words(done)


def test_plain_reframe_takes_a_job_a_run(site):
    site.lammps(code=0, **HELD)
    assert {run["clock"] for run in site.session()["runs"]} == {"slurmctld"}


def test_both_sides_or_none(site):
    done = site.virtqual(*ON, FAKE_EXTRAS_bare=HELD["FAKE_EXTRAS_bare"], code=2)
    assert "extras.session_access: state it for both partitions, or for none" in site.words(done)
