"""RDMA in VMs whose native peers have none, from job to verdict on the stand-in site."""

import json
import re
import shutil
import time
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
    """The site with two nodes a side, perftest, and RDMA in the VMs; the machine may be of any speed."""
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
    text, count = re.subn(r"(item: node-speed\n.*?share: )0.05", r"\g<1>9", rules.read_text(), flags=re.S)
    # These VMs do not exist, and their nodes tell.
    text, told = re.subn(r"(item: hypervisor-stated\n.*?default: )refuse", r"\g<1>report", text, flags=re.S)
    assert (count, told) == (1, 1)
    rules.write_text(text)
    site.env |= {"FAKE_NODES": "2", "FAKE_SCALE": "small", "FAKE_FEATURES_cloud": "rdma"}
    return site


def qualify(site, *more, **env):
    done = site.virtqual("qualify", "--system", "testsite", "--stack", "micro", *SEND, *more, **env)
    files = sorted((site.path / "state/sessions").glob("*/session.json"))
    assert files, done.stdout + done.stderr
    session = read_session(files[-1].parent)
    assert session["verdicts"], done.stdout + done.stderr
    return done, session, session["verdicts"]


@pytest.mark.slow
def test_a_slower_build_is_over_though_native_has_no_rdma(with_rdma):
    emulated = {"FAKE_EMULATED": "1"}
    done, first, (recorded,) = qualify(with_rdma, "--pairs", "4", **emulated)
    assert (done.returncode, recorded["outcome"]) == (0, "BASELINE"), done.stdout
    assert (recorded["native"], recorded["overhead"]) == (None, None)
    assert "Native -: not observable, the native partition has no 'rdma'" in " ".join(done.stdout.split())
    assert {one["results"][0]["metric"] for one in first["runs"] if one["side"] == "native"} == {
        "yardstick_time"
    }
    time.sleep(1.1)
    with_rdma.fault("slow.cloud", "2.0")
    done, _, (verdict,) = qualify(with_rdma, "--against", first["session"], **emulated)
    assert (done.returncode, verdict["outcome"]) == (1, "OVER"), done.stdout
    assert "virtual side alone since the earlier session" in verdict["message"]


@pytest.mark.slow
def test_where_overheads_are_judged_there_is_none(with_rdma):
    done, session, (verdict,) = qualify(with_rdma)
    assert (done.returncode, session["outcome"], verdict["outcome"]) == (4, "INVALID", "INVALID"), done.stdout
    assert "native not observable: the native partition has no 'rdma'" in verdict["message"]


def test_as_many_messages_are_in_flight_through_few_buffers_as_through_many(with_rdma):
    """Otherwise few are limited by latency: the stand-in's is ten times what a message takes at full rate."""
    done = with_rdma.reframe("-n", r"^rdma_buffers%sample=0V", "-S", "scope=full", VIRTQUAL_PAIRS="0:0")
    assert "(0 failure(s)" in done.stdout, done.stdout + done.stderr
    (report,) = (with_rdma.path / "state/reports").glob("run-*.json")
    cases = json.loads(report.read_text())["runs"][0]["testcases"]
    records = [json.loads(case["record"]) for case in cases if case.get("record")]
    (result,) = [one for record in records for one in record["results"] if one["metric"] == "rdma_buffers"]
    assert (result["points"], result["setting"][-12:]) == ([1, 2, 4, 8, 16], "16 in flight")
    assert result["values"] == pytest.approx([0.1] * 5)


def test_where_both_sides_have_it_a_client_and_its_server_meet_in_every_repetition(with_rdma):
    """All numbers of buffers are part of a repetition."""
    buffers = ("-n", "^rdma_buffers%", "-S", "scope=full")
    more = {"FAKE_FEATURES_bare": "rdma", "VIRTQUAL_PAIRS": "0:0", **AGAIN}
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


def test_where_native_has_none_every_run_starts_its_program_once(with_rdma):
    more = {"VIRTQUAL_PAIRS": "0:0", **AGAIN}
    with_rdma.reframe("-n", r"^rdma_buffers%", "-S", "scope=full", **more)
    (file,) = (with_rdma.path / "state/sessions").glob("*/session.json")
    assert [run["repetitions"] for run in read_session(file.parent)["runs"]] == [1, 1]
