"""Repetitions of the program inside a run, on the stand-in site."""

import re

import pytest
from site_runs import outcome

from virtqual.harness.repetitions import MAX_STARTS
from virtqual.runs import typical_value

# Of three starts in a row one takes four times as long as it should.
FACTORS = (0.2, 0.9, 0.22)
# So long that each run has `MAX_STARTS`, however busy the machine is.
LONG = {"FAKE_SECONDS": "0.01", "FAKE_RUN_SECONDS": "600", "FAKE_FACTORS": ",".join(map(str, FACTORS))}
# A step of 4 % and a margin of 3 %: as often as the clock needs, however long a start takes.
COARSE = {"FAKE_STEP": "0.02", "FAKE_FACTORS": "1,1.04"}
ONE_PAIR = {**LONG, "VIRTQUAL_PAIRS": "0:0"}


def starts(site) -> set[int]:
    return {run["repetitions"] for run in site.session()["runs"]}


def test_a_plain_run_repeats_as_the_warm_ups_say_and_a_later_session_does_the_same(site):
    site.lammps("--keep-stage-files", **ONE_PAIR)
    first = site.session()
    assert [run["side"] for run in first["runs"]] == ["native", "virtual"]
    (number,) = starts(site)
    assert number == MAX_STARTS
    for run in first["runs"]:
        printed = [FACTORS[start % 3] / 2 for start in range(number)]
        (result,) = run["results"]
        assert result["values"][0] == pytest.approx(typical_value(printed), rel=0.02)
        assert run["seconds"] > 0.01 * number
    # A warm-up starts it once more where the first start was short, and no third time.
    assert len(list((site.path / "slurm").rglob("repetition-2"))) == 4
    assert len(list((site.path / "slurm").rglob("repetition-3"))) == 2

    # Where it would be started once: what the earlier session measured is measured again.
    quick = {**ONE_PAIR, "FAKE_RUN_SECONDS": "0"}
    site.lammps("-S", f"against={first['session']}", **quick)
    assert site.session()["session"] != first["session"]
    assert starts(site) == {number}
    assert site.session()["repetitions"] == {"lammps %problem=lj": number}


def test_a_coarse_clock_is_seen_in_the_warm_ups_and_takes_more_starts(site):
    site.lammps(**COARSE, FAKE_SECONDS="0.1", FAKE_RUN_SECONDS="0.2", VIRTQUAL_PAIRS="0:0")
    # For its length alone a run takes two starts.
    (number,) = starts(site)
    assert number >= 4
    for run in site.session()["runs"]:
        (value,) = run["results"][0]["values"]
        assert value == pytest.approx(0.51, abs=0.01 / number + 1e-6)


def test_later_rounds_repeat_as_the_first_one(site):
    # Slower than the budget, so that a second round follows. A start takes as long as it says.
    site.fault("slow.cloud", "1.1")
    seconds = {"FAKE_SECONDS": "0.5", "FAKE_RUN_SECONDS": "2"}
    done = site.qualify("-n", "lj", "--pairs", "2", "--max-pairs", "4", **seconds)
    assert done.returncode in (0, 1, 3, 4), outcome(done)
    session = site.session()
    assert len(session["rounds"]) > 1, session["rounds"]
    assert max(run["pair"] for run in session["runs"]) >= 2
    (number,) = starts(site)
    assert number >= 2


@pytest.mark.parametrize(
    ("fault", "says"),
    [("physics", r"repetition 2 of \d+: LAMMPS output: total energy at step 0"), ("crash", "exit code 1")],
)
def test_one_broken_repetition_fails_the_run(site, fault, says):
    for name in (fault, "once"):
        site.fault(f"fault.{name}")
    site.lammps(code=1, **ONE_PAIR)
    failures = site.session()["failures"]
    # A run that fails costs its pair only: the other side runs as well.
    assert ["sample=0N" in failure["case"] for failure in failures] == [True, False]
    assert all(re.search(says, failure["reason"]) for failure in failures), failures
    assert site.session()["runs"] == []


def test_one_disturbed_repetition_makes_the_run_invalid(site):
    for name in ("load", "once"):
        site.fault(f"fault.{name}")
    site.lammps(**ONE_PAIR)
    runs = site.session()["runs"]
    reasons = [reason for run in runs for result in run["results"] for reason in result["invalid"]]
    assert len(runs) == len(reasons) == 2
    assert all("1 of " in reason and "ranks went without a CPU" in reason for reason in reasons), reasons
