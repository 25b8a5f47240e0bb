"""Sessions on the rehearsed centre: 8 native nodes and 8 VMs of 64 cores under a real Slurm, truth known."""

import itertools

import pytest

pytestmark = pytest.mark.centre


def outcome(session, metric):
    return {v["outcome"] for v in session["verdicts"] if v["metric"].startswith(metric)}


def at_work(runs):
    """Return how many nodes were at work in the mean, from the first run to the last."""
    begin, end = min(run["start"] for run in runs), max(run["end"] for run in runs)
    return sum((run["end"] - run["start"]) * len(run["nodes"]) for run in runs) / (end - begin)


def test_what_is_planted_is_found(site):
    """What is 25 % slower in VMs is OVER, what is as fast is not, and a slow host is named."""
    site.plant(overhead={"stream": 1.25}, slow={"vm3": 1.10}, node_noise=0.005)
    done, session = site.qualify("-n", "^stream%", "-n", "^lammps%")
    said = " ".join(done.stdout.split())
    assert done.returncode == 1, said + done.stderr
    assert outcome(session, "memory_triad") == {"OVER"}
    assert "OVER" not in outcome(session, "lammps_loop_time")
    (verdict,) = (v for v in session["verdicts"] if v["metric"] == "lammps_loop_time")
    slowest = max(verdict["hosts"].items(), key=lambda one: one[1])
    assert slowest[0] == "host3"
    assert 1.05 < slowest[1] < 1.15


def test_all_nodes_work_and_slurm_is_asked_seldom(site):
    # As real programs take at least: all nodes share this machine's few cores for what is done around them.
    site.plant(seconds=20)
    done, session = site.qualify("-n", "paging")
    assert done.returncode in (0, 3), done.stdout + done.stderr
    runs = session["runs"]
    nodes = {name for run in runs for name in run["nodes"]}
    assert len(nodes) == 16
    by_node = sorted((run["nodes"][0], run["start"], run["end"]) for run in runs)
    for (node, _, end), (other, start, _) in itertools.pairwise(by_node):
        assert node != other or start >= end, "two runs at a time on one node"
    first = [run for run in runs if run["pair"] < 32]
    print(f"nodes at work in the mean: {at_work(first):.1f} of 16")
    assert at_work(first) >= 12
    minutes = (max(run["end"] for run in runs) - min(run["start"] for run in runs)) / 60
    asked = site.asked.read_text("utf-8").splitlines()
    looked = [line for line in asked if line.split()[0] in ("sinfo", "squeue", "sacct")]
    print(f"{len(looked)} questions in {minutes:.1f} min")
    # What begins and ends a session takes some more.
    assert len(looked) < 2 * minutes + 12


def test_where_long_jobs_are_forbidden_each_run_is_a_job_that_accounting_knows(site):
    site.plant()
    site.env |= {"CENTRE_HELD": "no", "CENTRE_SCHEDULER": "slurm"}
    done, session = site.qualify("-n", "^lammps%")
    assert done.returncode == 0, done.stdout + done.stderr
    assert outcome(session, "lammps_loop_time") == {"WITHIN"}
    jobs = {run["job"] for run in session["runs"]}
    assert len(jobs) == len(session["runs"])
    line = ["sacct", "--noheader", "--parsable2", "--allocations", "--format=jobid,state,account,qos"]
    known = {row.split("|")[0]: row.split("|")[1:] for row in site.slurm(*line).splitlines()}
    assert {tuple(known[job]) for job in jobs} == {("COMPLETED", "performance", "qualification")}
