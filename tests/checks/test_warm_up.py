"""The run on each side before the first pair: it must pass, and nothing of it is kept."""

import json

import pytest

from made_runs import read_session

LJ = ("-n", "lammps.*lj")
WARM = ["warm-up-N", "warm-up-V"]


def outcome(done) -> str:
    return done.stdout + done.stderr


def events(site):
    (log,) = (site.path / "state/sessions").glob("*/log.jsonl")
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def submitted(events):
    return [event["case"].split("sample=")[1].split(" ")[0] for event in events if "submitted" in event]


def test_it_precedes_the_first_pair_and_is_in_no_record(site):
    done = site.reframe(*LJ, VIRTQUAL_PAIRS="0:1")
    assert done.returncode in (0, 1), outcome(done)
    said = events(site)
    assert submitted(said) == [*WARM, "0N", "0V", "1V", "1N"]
    (log,) = (site.path / "state/sessions").glob("*/log.jsonl")
    runs = [(run["side"], run["pair"]) for run in read_session(log.parent)["runs"]]
    assert runs == [("native", 0), ("virtual", 0), ("virtual", 1), ("native", 1)]
    ended = [event["case"] for event in said if event["event"] == "warmed-up"]
    assert [any(slot in case for case in ended) for slot in WARM] == [True, True]
    # ReFrame says that it ran, and neither its report nor its perf log has a value of it.
    assert all(f"%sample={slot} " in done.stdout for slot in WARM)
    (report,) = (site.path / "state/reports").glob("run-*.json")
    cases = json.loads(report.read_text(encoding="utf-8"))["runs"][0]["testcases"]
    kept = {case["display_name"]: (bool(case["perfvalues"]), bool(case.get("record"))) for case in cases}
    warm = [both for name, both in kept.items() if "warm-up" in name]
    assert warm == [(False, False)] * 2
    assert kept["lammps %sample=0N %problem=lj"] == (True, True)
    logs = [path.read_text(encoding="utf-8") for path in site.path.rglob("lammps.log")]
    assert logs
    entries = [line.split("|") for text in logs for line in text.splitlines()[1:]]
    cases_with_a_value = {case for _, case, _, _, _, value, *_ in entries if value != "null"}
    assert len(cases_with_a_value) == 4
    assert not any("warm-up" in case for case in cases_with_a_value)


def test_four_pairs_are_the_default_and_a_later_round_has_no_warm_up(site):
    assert site.reframe(*LJ).returncode == 0
    assert len(submitted(events(site))) == 2 + 2 * 4
    listed = site.run(
        "reframe", "-c", f"{site.env['VIRTQUAL_ROOT']}/checks", "-LC", "--system", "testsite", *LJ,
        VIRTQUAL_PAIRS="4:5",
    )  # fmt: skip
    assert "%sample=4N" in listed.stdout
    assert "warm-up" not in listed.stdout


@pytest.mark.parametrize(("fault", "code"), [("fault.physics", 1), ("fault.crash", 1)])
def test_one_that_fails_fails_the_case(site, fault, code):
    site.fault(fault)
    done = site.reframe(*LJ)
    assert done.returncode == code, outcome(done)
    said = events(site)
    assert submitted(said) == WARM[:1]
    (failed,) = (event["failure"] for event in said if event["event"] == "failed")
    assert "warm-up-N" in failed["case"]


def test_it_is_held_against_no_absolute_reference(site):
    directory = site.path / "references/systems/testsite"
    directory.mkdir(parents=True)
    (directory / "lammps.yaml").write_text(
        "lammps:\n  $index: [$system, problem]\n  testsite:\n    lj:\n"
        "      lammps_loop_time: [0.25, null, 0.05, s]\n",
        encoding="utf-8",
    )
    assert site.reframe(*LJ).returncode != 0
    # The first sample is the one that misses it.
    assert submitted(events(site)) == [*WARM, "0N"]


def test_a_dry_run_has_it_too(site):
    checks = f"{site.env['VIRTQUAL_ROOT']}/checks"
    done = site.run("reframe", "-c", checks, "--dry-run", "--system", "testsite", *LJ)
    assert done.returncode == 0, outcome(done)
    assert "warm-up-N" in done.stdout


def test_a_session_of_virtqual_has_it_in_its_round_with_pair_0(site):
    done = site.virtqual("qualify", "--system", "testsite", "-n", "lj", "--pairs", "2")
    assert done.returncode in (0, 1, 3, 4), outcome(done)
    said = events(site)
    slots = submitted(said)
    assert slots[:3] == [*WARM, "0N"]
    assert not any("warm-up" in slot for slot in slots[2:])
