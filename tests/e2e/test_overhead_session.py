"""A session on emulated hosts: real KVM guests, whose overhead is judged at once, wherever this runs."""

import json
from pathlib import Path

import pytest
from commands import ROOT, own_state, run

from in_a_browser import assert_fit_for_people
from made_runs import read_session

SIDES = ("native", "virtual")
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def session(tmp_path_factory) -> dict:
    """Pages, forks and LAMMPS on a cluster of this test's own."""
    env = own_state(tmp_path_factory.mktemp("overhead"))
    there = ROOT / ".vcluster/emulator"
    if there.exists():
        Path(env["VCLUSTER_DIR"]).mkdir()
        (Path(env["VCLUSTER_DIR"]) / "emulator").symlink_to(there)
    else:
        assert run("vcluster", "emulator", timeout=300, **env).returncode == 0
    up = run("vcluster", "up", "--hosts", "emulated", timeout=300, **env)
    assert up.returncode == 0, up.stderr
    try:
        options = ("-n", "^paging", "-n", "^lammps%.*=lj", "--max-pairs", "4")
        # The pairs bound the session, and not the time: other loads may slow the machine down.
        done = run("virtqual", "qualify", "--system", "vcluster", *options, timeout=3600, **env)
    finally:
        assert run("vcluster", "down", timeout=120, **env).returncode == 0
    (file,) = Path(env["VIRTQUAL_STATE"]).glob("sessions/*/session.json")
    return {**read_session(file.parent), "shown": done.stdout, "code": done.returncode, "file": file}


def test_the_overhead_is_judged_in_the_first_session(session):
    outcomes = {verdict["metric"]: verdict["outcome"] for verdict in session["verdicts"]}
    assert outcomes.keys() == {"page_touch_time", "fork_time", "lammps_loop_time"}
    # Four pairs may not decide; that is said, and is no pass.
    assert set(outcomes.values()) <= {"WITHIN", "UNDECIDED"}
    assert session["code"] == (0 if set(outcomes.values()) == {"WITHIN"} else 3)
    assert session["qualified"] == "no (emulated hosts)"
    assert session["hypervisor_class"] == "kvm-on-emulated-hosts"


def test_its_line_is_printed_as_the_lab_keeps_it(session, monkeypatch, capsys):
    """It is not committed: it shows how this machine compares with those of benchmarks/lab/results.jsonl."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks/lab")
    from run import describe_machine, summarise_session

    summary = summarise_session(session["file"].parent)
    with capsys.disabled():
        print("\n" + json.dumps({"experiment": "ci/test", "machine": describe_machine(), **summary}))
    outcomes = {
        f"{verdict['metric']}@{verdict['setting']}": verdict["outcome"] for verdict in session["verdicts"]
    }
    assert {name: metric["outcome"] for name, metric in summary["metrics"].items()} == outcomes


def test_native_runs_are_as_slow_as_those_in_the_guests(session):
    ratios = [verdict["overhead"]["ratio"] for verdict in session["verdicts"]]
    assert all(0.5 < ratio < 2 for ratio in ratios), ratios


def test_what_the_hosts_are_is_seen_and_reported(session):
    assert {"native-is-virtual", "native-is-emulated"} <= {found["item"] for found in session["preflight"]}
    assert session["identity"]["virtual"]["hypervisor"]["accelerator"] == "kvm"
    places = {(node, host) for one in session["runs"] for node, host in one["hosts"].items()}
    assert places <= {(f"{side}{k}", f"host{k}") for side in ("native", "vm") for k in (1, 2)}
    steal = {side: [one["load"]["steal"] for one in session["runs"] if one["side"] == side] for side in SIDES}
    assert max(steal["native"]) == 0 < min(steal["virtual"])


def test_its_report_is_fit_for_people(session, browser):
    assert_fit_for_people(browser, session["file"].with_name("report.html"))
