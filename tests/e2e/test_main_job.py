"""The suite end to end on the one-machine cluster: real Slurm, real VMs, real programs, a verdict."""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from commands import ROOT, own_state, run

from in_a_browser import assert_fit_for_people
from made_runs import read_session

pytestmark = pytest.mark.cluster

#: A check of a site that has a program of its own judged.
SITE_CHECK = """import reframe

from virtqual.checks.judged import judge

judge("{apps}/triad.py:triad", metrics={{"triad_bw": "memory_triad"}})
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> dict[str, str]:
    """State directories of this test run's own; stack and guest kernel are those that ci/setup made."""
    env = own_state(tmp_path_factory.mktemp("main-job"))
    up = run("vcluster", "up", "--hosts", "here", timeout=300, **env)
    assert up.returncode == 0, up.stderr
    yield env
    assert run("vcluster", "down", timeout=120, **env).returncode == 0


@pytest.fixture(scope="module")
def baseline(place) -> dict:
    """The main job with checks of every kind (of memory alone they would take minutes), two pairs each."""
    kinds = ("-n", "linpack", "-n", "paging", "-n", "mpi_latency_", "-n", "lammps")
    done = run("virtqual", "qualify", "--system", "vcluster", "--pairs", "2", *kinds, timeout=1500, **place)
    file = max(Path(place["VIRTQUAL_STATE"]).glob("sessions/*/session.json"))
    session = read_session(file.parent)
    session["shown"], session["code"], session["file"] = done.stdout, done.returncode, file
    return session


def test_the_main_job_records_a_baseline(baseline):
    verdicts = baseline["verdicts"]
    measured = [verdict for verdict in verdicts if verdict["outcome"] == "BASELINE"]
    assert len(verdicts) >= 10
    assert min(verdict["pairs"] for verdict in measured) >= 2
    assert len({run["check"].split()[0].split("_")[0] for run in baseline["runs"]}) >= 4
    # On a machine that others load, LAMMPS may go without a CPU and be refused; then it says so, and 4.
    refused = [verdict for verdict in verdicts if verdict["outcome"] != "BASELINE"]
    assert all("without a CPU" in verdict["message"] for verdict in refused)
    assert all(verdict["metric"] == "lammps_loop_time" for verdict in refused)
    assert (baseline["code"], baseline["outcome"]) == ((4, "INVALID") if refused else (0, "BASELINE"))


def test_it_says_that_the_cpus_are_emulated(baseline):
    accelerator = baseline["identity"]["virtual"]["hypervisor"]["accelerator"]
    if accelerator != "tcg":
        pytest.skip(f"the VMs run under {accelerator}")
    assert baseline["qualified"] == "no (emulated)"
    assert "no build is qualified for production" in baseline["shown"]


def test_the_table_fits_80_columns(baseline):
    lines = baseline["shown"].splitlines()
    assert [line for line in lines if len(line) > 80 and "/" not in line] == []


def test_its_report_is_fit_for_people(baseline, browser):
    assert_fit_for_people(browser, baseline["file"].with_name("report.html"))


def test_pairs_alternate_and_start_times_prove_it(baseline):
    by_check = {}
    for one in baseline["runs"]:
        by_check.setdefault(one["check"], []).append(one)
    for check, runs in by_check.items():
        order = [f"{one['pair']}{one['side'][0]}" for one in sorted(runs, key=lambda one: one["start"])]
        assert order[:4] == ["0n", "0v", "1v", "1n"], check
        assert {one["clock"] for one in runs} == {"harness"}


def test_native_and_virtual_ran_on_their_nodes(baseline):
    for one in baseline["runs"]:
        prefix = {"native": "native", "virtual": "vm"}[one["side"]]
        assert all(node.startswith(prefix) for node in one["nodes"])
        assert set(one["identity"]) == set(one["nodes"])


def test_the_same_hypervisor_against_itself_is_not_over(place, baseline):
    """By latencies, for which two earlier pairs may do: for LAMMPS it takes four."""
    done = run(
        "virtqual", "qualify", "--system", "vcluster", "--against", baseline["session"],
        "-n", "mpi_latency_node%", "--max-pairs", "4", timeout=900, **place,
    )  # fmt: skip
    assert done.returncode in (0, 3, 4), done.stdout
    assert "OVER" not in done.stdout
    session = read_session(max(Path(place["VIRTQUAL_STATE"]).glob("sessions/*")))
    assert session["against"] == baseline["session"]
    assert [verdict["metric"] for verdict in session["verdicts"]] == ["mpi_latency"]
    assert session["verdicts"][0]["outcome"] in ("WITHIN", "UNDECIDED"), done.stdout


def test_plain_reframe_with_one_partition_passes_no_verdict(place):
    done = run(
        "reframe", "-c", "checks/", "-r", "--system", "vcluster:virtual", "-n", "mpi_latency_node",
        timeout=600, VIRTQUAL_PAIRS="0:1", **place,
    )  # fmt: skip
    assert done.returncode != 0
    assert "nothing was judged: this run has no native sample to compare with" in done.stdout


def test_a_plain_check_that_builds_its_program_is_paired_and_judged(place, tmp_path):
    env = {**place, "VIRTQUAL_STATE": own_state(tmp_path)["VIRTQUAL_STATE"]}
    apps = shutil.copytree(ROOT / "tests/foreign", tmp_path / "apps")
    checks = tmp_path / "checks"
    checks.mkdir()
    (checks / "triad.py").write_text(SITE_CHECK.format(apps=apps), encoding="utf-8")
    names = r"^triad(_overhead)?%.*elements=100000"
    done = run(
        "reframe", "-c", str(checks), "-r", "--system", "vcluster", "-n", names,
        timeout=900, VIRTQUAL_PAIRS="0:1", **env,
    )  # fmt: skip
    output = done.stdout + done.stderr
    # The outcome depends on the machine; the test is that there is one.
    assert re.search(r"(WITHIN|OVER|UNDECIDED|BASELINE) memory_triad@triad, elements=100000", output), output
    (report,) = (Path(env["VIRTQUAL_STATE"]) / "reports").glob("run-*.json")
    cases = json.loads(report.read_text(encoding="utf-8"))["runs"][0]["testcases"]
    records = [json.loads(case["record"]) for case in cases if case.get("record")]
    assert [record["side"] for record in records] == ["native", "virtual", "virtual", "native"]
    assert len({record["software"][0]["files"]["binary"]["sha256"] for record in records}) == 1


def test_a_vm_that_dies_ends_the_session_with_its_name(place):
    """Last of this room: it leaves the cluster with dead VMs."""
    job = "virtqual qualify --system vcluster -n lammps --pairs 6"
    line = f". {ROOT}/ci/activate && PATH=$VCLUSTER_DIR/bin:$PATH exec {job}"
    process = subprocess.Popen(
        ["bash", "-c", line], env={**os.environ, **place}, cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    lines = []
    for text in process.stdout:
        lines.append(text)
        # Two warm-ups, and the first pair.
        if " 4/" in text:
            # Slurm may have given either VM.
            vms = subprocess.run(
                ["pgrep", "-f", f"vm[12],.*{place['VCLUSTER_DIR']}"], capture_output=True, text=True
            )
            assert vms.stdout
            for pid in vms.stdout.split():
                os.kill(int(pid), signal.SIGKILL)
            break
    rest = process.communicate(timeout=180)[0]
    print("".join(lines), rest)
    assert process.returncode == 5
    assert re.search(r"node (vm[12]) is down \(VM \1 died", rest)
    again = run("vcluster", "up", "--hosts", "here", timeout=300, **place)
    assert again.returncode == 0, again.stderr
