"""RDMA from job to verdict on the stand-in site."""

import json
import re
import shutil
from pathlib import Path

import pytest

from made_runs import read_session
from virtqual.stack import manifest
from virtqual.stack.manifest import Manifest, Program

FAKE = Path(__file__).parents[1] / "fakeslurm"
# As often as half of the time limit allows.
AGAIN = {"FAKE_RUN_SECONDS": "60", "FAKE_TIME_LIMIT": "24s"}
SEND = ("--full", "-n", r"^rdma_latency.*operation=send")


@pytest.fixture
def with_rdma(site):
    """The site with two nodes a side, perftest, and RDMA on both sides."""
    stack = site.path / "state/stack/micro"
    stack.mkdir()
    names = ("ib_send_lat", "ib_write_bw")
    data = {name: Path(shutil.copy(FAKE / "perftest", stack / name)) for name in names}
    path = data["ib_send_lat"]
    perftest = Program(
        name="perftest", version="4.5", origin="the tests", path=path, sha256=manifest.sha256(path),
        features=("perftest",), data=data, sums=manifest.checksums(data),
    )  # fmt: skip
    Manifest(name="micro", pins="none", programs=(perftest,)).write(stack)
    rules = site.path / "references/preflight.yaml"
    # These VMs do not exist, and their nodes show it.
    pattern = r"(item: hypervisor-stated\n.*?default: )refuse"
    text, count = re.subn(pattern, r"\g<1>report", rules.read_text(), flags=re.S)
    assert count == 1
    rules.write_text(text)
    site.env |= {
        "FAKE_NODES": "2",
        "FAKE_SCALE": "small",
        "FAKE_FEATURES_bare": "rdma",
        "FAKE_FEATURES_cloud": "rdma",
    }
    return site


def qualify(site, *more, **env):
    done = site.virtqual("qualify", "--system", "testsite", "--stack", "micro", *SEND, *more, **env)
    files = sorted((site.path / "state/sessions").glob("*/session.json"))
    assert files, done.stdout + done.stderr
    session = read_session(files[-1].parent)
    assert session["verdicts"], done.stdout + done.stderr
    return done, session, session["verdicts"]


def test_an_overhead_of_rdma_is_judged(with_rdma):
    with_rdma.fault("slow.cloud", "2.0")
    done, session, (verdict,) = qualify(with_rdma)
    assert (done.returncode, session["outcome"], verdict["outcome"]) == (1, "OVER", "OVER"), done.stdout
    metrics = {(run["side"], run["results"][0]["metric"]) for run in session["runs"]}
    assert metrics == {("native", "rdma_send_latency"), ("virtual", "rdma_send_latency")}


def test_as_many_messages_are_in_flight_through_few_buffers_as_through_many(with_rdma):
    """Otherwise few are limited by latency: the stand-in's is ten times what a message takes at full rate."""
    done = with_rdma.reframe("-n", r"^rdma_buffers%sample=0V", "-S", "scope=full", VIRTQUAL_PAIRS="0:0")
    assert "(0 failure(s)" in done.stdout, done.stdout + done.stderr
    (report,) = (with_rdma.path / "state/reports").glob("run-*.json")
    cases = json.loads(report.read_text())["runs"][0]["testcases"]
    records = [json.loads(case["record"]) for case in cases if case.get("record")]
    results = [result for record in records for result in record["results"]]
    assert {result["metric"] for result in results} == {"rdma_buffers"}
    for result in results:
        assert (result["points"], result["setting"][-12:]) == ([1, 2, 4, 8, 16], "16 in flight")
        assert result["values"] == pytest.approx([0.1] * 5)


def test_a_client_and_its_server_meet_in_every_repetition(with_rdma):
    """All numbers of buffers are part of a repetition."""
    buffers = ("-n", "^rdma_buffers%", "-S", "scope=full")
    more = {"VIRTQUAL_PAIRS": "0:0", **AGAIN}
    done = with_rdma.reframe(*buffers, "--keep-stage-files", **more)
    (file,) = (with_rdma.path / "state/sessions").glob("*/session.json")
    runs = read_session(file.parent)["runs"]
    assert [run["side"] for run in runs] == ["native", "virtual"], done.stdout + done.stderr
    (number,) = {run["repetitions"] for run in runs}
    assert number > 1
    assert [run["results"][0]["values"] for run in runs] == [pytest.approx([0.1] * 5)] * 2
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
    assert scripts, done.stdout + done.stderr
    steps = [line for line in scripts[0].read_text().splitlines() if line.startswith("srun ")]
    assert len(steps) == 5
    assert all("--nodes=2 --ntasks=2 --ntasks-per-node=1" in step for step in steps)
