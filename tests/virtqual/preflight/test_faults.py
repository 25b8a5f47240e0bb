"""A mismatched pair is explained by `virtqual preflight`; without the rule it would pass."""

import json

import pytest
from preflight_pairs import busy, node, quiet, run
from typer.testing import CliRunner

from made_runs import keep, session_of
from virtqual.cli import app
from virtqual.preflight.compare import check_runs, compare_runs
from virtqual.session import judge as judging
from virtqual.verdict import Outcome

# Name of the fault, edits of the guest, the item that must name it, words of its reason.
PAIRS = [
    (
        "fewer CPU features",
        {r" avx512\w+": ""},
        "cpu-features",
        "lacks avx512_vnni avx512bw avx512dq avx512f avx512vl",
    ),
    ("another clock source", {r"(current_clocksource):tsc": r"\1:acpi_pm"}, "clock-source", "acpi_pm"),
    (
        "hidden NUMA",
        {r"^/sys/devices/system/node/node1/.*\n": "", r"(node0/cpulist):.*": r"\1:0-7"},
        "numa-hidden",
        "2 NUMA nodes natively, the VM shows 1",
    ),
    ("another processor", {r"stepping\t: 7": "stepping\t: 6"}, "cpu-model", "6-85-7 natively"),
    (
        "hidden hyperthreads",
        {r"(cpu(\d)/topology/thread_siblings_list):.*": r"\1:\2"},
        "smt",
        "2 natively and 1 in the VM",
    ),
    ("a link trained down", {r"100 Gb/sec \(4X EDR\)": "56 Gb/sec (4X FDR)"}, "link-rate", "100 Gbit/s"),
    (
        "a port that is down",
        {r"4: ACTIVE": "1: DOWN"},
        "link-rate",
        "RDMA ports are 4: ACTIVE natively and 1: DOWN in the VM",
    ),
    (
        "an adapter on another node than the CPUs",
        {r"(mlx5_0/device/numa_node):0": r"\1:1", r"Cpus_allowed_list:\t0-7": "Cpus_allowed_list:\t0-1,4-5"},
        "hca-locality",
        "virtual: mlx5_0 is on NUMA node 1, the CPUs in use are on 0",
    ),
]


@pytest.fixture
def policy():
    return judging.policy()


def preflight(*arguments):
    return CliRunner().invoke(app, ["preflight", *map(str, arguments)])


def files(tmp_path, *nodes):
    paths = [tmp_path / f"{index}.json" for index in range(len(nodes))]
    for path, one in zip(paths, nodes, strict=True):
        path.write_text(json.dumps(one.plain()))
    return paths


def test_a_matched_pair_passes(tmp_path):
    done = preflight(*files(tmp_path, node("bare"), node("guest")), "--class", "esxi")
    assert done.exit_code == 0, done.output
    assert "none refused, 0 reported" in done.output


@pytest.mark.parametrize(("fault", "edits", "item", "says"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_a_mismatched_pair_is_explained(tmp_path, monkeypatch, policy, fault, edits, item, says):
    # Where a run is bound to some CPUs, it is so on both sides.
    bound = {pattern: instead for pattern, instead in edits.items() if pattern.startswith("Cpus_allowed")}
    pair = files(tmp_path, node("bare", **bound), node("guest", **edits))
    done = preflight(*pair, "--class", "esxi")
    assert done.exit_code == 4, done.output
    shown = " ".join(done.output.split())
    assert says in shown
    assert f"refused {item}" in shown
    assert " ".join(policy.items[item].remedy.split()) in shown
    assert all(claim in shown for claim in policy.items[item].protects)

    monkeypatch.setattr(judging, "policy", lambda: policy.without(item))
    done = preflight(*pair, "--class", "esxi")
    assert done.exit_code == 0, f"without the rule {item} nothing would refuse {fault}: {done.output}"


def session(tmp_path, loads):
    runs = [
        run(side, pair, node("bare" if side == "native" else "guest"), loads.get((side, pair), quiet()))
        for pair in range(4)
        for side in ("native", "virtual")
    ]
    return runs, keep(session_of(runs, "esxi"), tmp_path)


def test_a_busy_neighbour_is_explained(tmp_path, monkeypatch, policy):
    runs, directory = session(tmp_path, {("virtual", 2): busy()})
    done = preflight(directory)
    assert done.exit_code == 4, done.output
    shown = " ".join(done.output.split())
    assert "refused foreign-load" in shown
    assert "1 of 4 virtual runs left out, the first: 0.99 CPUs were busy with other work" in shown
    kept, _ = check_runs(runs, policy, "esxi")
    assert [one.pair for one in kept if one.results[0].invalid] == [2]

    monkeypatch.setattr(judging, "policy", lambda: policy.without("foreign-load"))
    assert preflight(directory).exit_code == 0


def test_a_quiet_session_passes(tmp_path):
    _, directory = session(tmp_path, {})
    done = preflight(directory)
    assert done.exit_code == 0, done.output


def test_a_session_without_identities_is_not_called_comparable(tmp_path):
    runs, _ = session(tmp_path, {})
    bare = [run.model_copy(update={"identity": {}}) for run in runs]
    done = preflight(keep(session_of(bare, "esxi", "bare"), tmp_path))
    assert done.exit_code == 2, done.output
    assert "does not say what its nodes were" in done.output


def test_a_disturbed_run_of_the_earlier_session_does_not_count(tmp_path, monkeypatch):
    runs, _ = session(tmp_path, {("native", 1): busy()})
    earlier = judging.admitted_of(session_of(runs, "esxi"))
    assert [(run.side, run.pair) for run in earlier.runs if run.results[0].invalid] == [("native", 1)]
    seen = []
    monkeypatch.setattr(judging, "cases_of", lambda *_, earlier, **__: seen.append(earlier) or [])
    judging.judge(session_of(runs, "esxi"), earlier=session_of(runs, "esxi"))
    assert seen == [earlier]


def test_only_runs_of_one_pair_are_compared(policy):
    """A run of one task and one that fills the node use other CPUs: that is no difference of the sides."""
    runs = [
        run(side, pair, node(name, used="0" if pair == 0 else "0-7"), quiet())
        for pair in range(2)
        for side, name in (("native", "bare"), ("virtual", "guest"))
    ]
    assert [one for one in compare_runs(runs, policy, "esxi") if one.action != "unseen"] == []
    hidden = node("guest", **PAIRS[2][1])
    runs[3] = run("virtual", 1, hidden, quiet())
    items = [one.item for one in compare_runs(runs, policy, "esxi") if one.action == "refuse"]
    assert items == ["numa-hidden"]


def test_what_refuses_makes_every_verdict_invalid(policy, monkeypatch):
    guest = node("guest", **PAIRS[2][1])
    runs = [
        run(side, pair, node("bare") if side == "native" else guest, quiet())
        for pair in range(2)
        for side in ("native", "virtual")
    ]
    (verdict,) = judging.judge(session_of(runs, "esxi")).verdict.verdicts
    assert verdict.outcome is Outcome.INVALID
    assert "preflight: numa-hidden" in verdict.reasons[0]
    monkeypatch.setattr(judging, "policy", lambda: policy.without("numa-hidden"))
    (verdict,) = judging.judge(session_of(runs, "esxi")).verdict.verdicts
    assert verdict.outcome is not Outcome.INVALID


def test_emulated_only_reports_features_and_clock(tmp_path):
    guest = node("guest", **PAIRS[0][1], **PAIRS[1][1])
    done = preflight(*files(tmp_path, node("bare"), guest), "--class", "emulated", "--json")
    assert done.exit_code == 0, done.output
    found = {one["item"]: one["action"] for one in json.loads(done.output)["findings"]}
    assert found["cpu-features"] == found["clock-source"] == "report"


def test_what_cannot_be_seen_is_said_and_does_not_refuse(tmp_path):
    bare = node("bare", **{r"^/sys/devices/system/node/.*\n": ""})
    done = preflight(*files(tmp_path, bare, node("guest")), "--class", "esxi", "--json")
    assert done.exit_code == 0, done.output
    unseen = [one for one in json.loads(done.output)["findings"] if one["item"] == "numa-hidden"]
    assert [one["action"] for one in unseen] == ["unseen"]
    assert "NUMA nodes of native" in unseen[0]["reason"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name two identity files"),
        (["a.json", "b.json"], "name a class"),
        (["a.json", "b.json", "--class", "esxi"], "a.json: no identity"),
        (["nothing-like-this"], "no session begins"),
    ],
)
def test_usage(arguments, says):
    done = preflight(*arguments)
    assert done.exit_code == 2
    assert says in done.output
