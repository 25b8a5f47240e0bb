"""A mismatched pair is explained by `virtqual preflight`; without the rule it would pass."""

import json
from functools import partial

import pytest
from preflight_pairs import busy, node, quiet, run
from test_rules import CASES, ONE_NODE

from calling import call
from made_runs import keep, session_of
from virtqual.preflight.compare import check_runs, compare_runs
from virtqual.session import judge as judging
from virtqual.verdict import Outcome

#: Items of which the first case is refused in class esxi, and by no other rule.
REFUSED = ("cpu-features", "clock-source", "numa-hidden", "cpu-model", "smt", "link-rate", "hca-locality")


@pytest.fixture
def policy():
    return judging.policy()


preflight = partial(call, "preflight")


def files(tmp_path, *nodes):
    paths = [tmp_path / f"{index}.json" for index in range(len(nodes))]
    for path, one in zip(paths, nodes, strict=True):
        path.write_text(json.dumps(one.plain()))
    return paths


def test_a_matched_pair_passes(tmp_path):
    done = preflight(*files(tmp_path, node("bare"), node("guest")), "--class", "esxi", code=0)
    assert "none refused, 0 reported" in done.output


@pytest.mark.parametrize("item", REFUSED)
def test_a_mismatched_pair_is_explained(tmp_path, monkeypatch, policy, item):
    native, guest, _, says = CASES[item][0]
    pair = files(tmp_path, node("bare", **native), node("guest", **guest))
    done = preflight(*pair, "--class", "esxi", code=4)
    shown = " ".join(done.output.split())
    assert says in shown
    assert f"refused {item}" in shown
    assert " ".join(policy.items[item].remedy.split()) in shown
    assert all(claim in shown for claim in policy.items[item].protects)

    monkeypatch.setattr(judging, "policy", lambda: policy.without(item))
    preflight(*pair, "--class", "esxi", code=0)


def session(tmp_path, loads):
    runs = [
        run(side, pair, node("bare" if side == "native" else "guest"), loads.get((side, pair), quiet()))
        for pair in range(4)
        for side in ("native", "virtual")
    ]
    return runs, keep(session_of(runs, "esxi"), tmp_path)


def test_a_busy_neighbour_is_explained(tmp_path, monkeypatch, policy):
    runs, directory = session(tmp_path, {("virtual", 2): busy()})
    done = preflight(directory, code=4)
    shown = " ".join(done.output.split())
    assert "refused foreign-load" in shown
    assert "1 of 4 virtual runs left out, the first: 0.99 CPUs were busy with other work" in shown
    kept, _ = check_runs(runs, policy, "esxi")
    assert [one.pair for one in kept if one.results[0].invalid] == [2]

    monkeypatch.setattr(judging, "policy", lambda: policy.without("foreign-load"))
    preflight(directory, code=0)


def test_a_quiet_session_passes(tmp_path):
    _, directory = session(tmp_path, {})
    preflight(directory, code=0)


def test_a_session_without_identities_is_not_called_comparable(tmp_path):
    runs, _ = session(tmp_path, {})
    bare = [run.model_copy(update={"identity": {}}) for run in runs]
    done = preflight(keep(session_of(bare, "esxi", "bare"), tmp_path), code=2)
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
    hidden = node("guest", **ONE_NODE)
    runs[3] = run("virtual", 1, hidden, quiet())
    items = [one.item for one in compare_runs(runs, policy, "esxi") if one.action == "refuse"]
    assert items == ["numa-hidden"]


def test_what_refuses_makes_every_verdict_invalid(policy, monkeypatch):
    guest = node("guest", **ONE_NODE)
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


def test_a_session_ends_by_what_refuses_all_and_not_by_a_disturbed_run(tmp_path):
    runs, _ = session(tmp_path, {("virtual", 0): busy()})
    assert judging.find_refusals(session_of(runs, "esxi")) == ()
    runs[1] = run("virtual", 0, node("guest", **ONE_NODE), quiet())
    (reason,) = judging.find_refusals(session_of(runs[:2], "esxi"))
    assert reason.startswith("preflight: numa-hidden: ")


def test_emulated_only_reports_features_and_clock(tmp_path):
    guest = node("guest", **CASES["cpu-features"][0][1], **CASES["clock-source"][0][1])
    done = preflight(*files(tmp_path, node("bare"), guest), "--class", "emulated", "--json", code=0)
    found = {one["item"]: one["action"] for one in json.loads(done.output)["findings"]}
    assert found["cpu-features"] == found["clock-source"] == "report"


def test_what_cannot_be_seen_is_said_and_does_not_refuse(tmp_path):
    bare = node("bare", **{r"^/sys/devices/system/node/.*\n": ""})
    done = preflight(*files(tmp_path, bare, node("guest")), "--class", "esxi", "--json", code=0)
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
    done = preflight(*arguments, code=2)
    assert says in done.output
