"""RDMA from job to verdict on the stand-in site."""

import json

import pytest
from site_runs import copy_stand_in, make_program, make_stack, outcome

# As often as half of the time limit allows.
AGAIN = {"FAKE_RUN_SECONDS": "60", "FAKE_TIME_LIMIT": "24s"}
SEND = ("--full", "-n", r"^rdma_latency.*operation=send")


@pytest.fixture
def with_rdma(site):
    """The site with two nodes a side, perftest, and RDMA on both sides."""
    data = {name: copy_stand_in(site, "micro", "perftest", name) for name in ("ib_send_lat", "ib_write_bw")}
    make_stack(site, "micro", make_program(data["ib_send_lat"], "perftest", "4.5", data=data))
    # These VMs do not exist, and their nodes show it.
    site.report("steal", "foreign-load", "hypervisor-stated")
    site.env |= {
        "FAKE_NODES": "2",
        "FAKE_SCALE": "small",
        "FAKE_FEATURES_bare": "rdma",
        "FAKE_FEATURES_cloud": "rdma",
    }
    return site


def test_an_overhead_of_rdma_is_judged(with_rdma):
    with_rdma.fault("slow.cloud", "2.0")
    done = with_rdma.virtqual("qualify", "--system", "testsite", "--stack", "micro", *SEND)
    session = with_rdma.session()
    (verdict,) = session["verdicts"]
    assert (done.returncode, session["outcome"], verdict["outcome"]) == (1, "OVER", "OVER"), outcome(done)
    metrics = {(run["side"], run["results"][0]["metric"]) for run in session["runs"]}
    assert metrics == {("native", "rdma_send_latency"), ("virtual", "rdma_send_latency")}


def test_in_each_repetition_client_and_server_meet_for_each_number_of_buffers(with_rdma):
    """Few buffers would be limited by latency, which is ten times what a message takes at full rate."""
    buffers = ("-n", "^rdma_buffers%", "-S", "scope=full", "--keep-stage-files")
    done = with_rdma.reframe(*buffers, checks="perftest.py", VIRTQUAL_PAIRS="0:0", **AGAIN)
    runs = with_rdma.session()["runs"]
    assert [run["side"] for run in runs] == ["native", "virtual"], outcome(done)
    for run in runs:
        (result,) = run["results"]
        assert (result["metric"], result["points"]) == ("rdma_buffers", [1, 2, 4, 8, 16])
        assert result["setting"].endswith("16 in flight")
        assert result["values"] == pytest.approx([0.1] * 5)
    (number,) = {run["repetitions"] for run in runs}
    assert number > 1
    rooms = [file.parent for file in with_rdma.path.rglob(f"repetition-{number}/client.16.out")]
    assert len(rooms) == (4 if number == 2 else 2)
    assert all((room / "client.1.out").is_file() for room in rooms)


def test_each_step_of_a_held_job_has_both_tasks(with_rdma):
    held = {
        f"FAKE_EXTRAS_{name}": json.dumps({"session_access": [f"--partition={name}"]})
        for name in ("bare", "cloud")
    }
    options = ("--stack", "micro", "--full", "-n", "^rdma_buffers", "--max-pairs", "4")
    done = with_rdma.virtqual("qualify", "--system", "testsite", *options, **held)
    # The stand-in has one node, so the run is refused; its job script stays.
    scripts = list(with_rdma.path.rglob("rdma_buffers*/rfm_job.sh"))
    assert scripts, outcome(done)
    steps = [line for line in scripts[0].read_text().splitlines() if line.startswith("srun ")]
    assert len(steps) == 5
    assert all("--nodes=2 --ntasks=2 --ntasks-per-node=1" in step for step in steps)
