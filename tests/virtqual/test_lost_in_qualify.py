"""A run that is lost costs its pair and not its check, and says something of the build."""

import re

import pytest

ON = ("qualify", "--system", "testsite", "-n", "lj", "--max-pairs", "8")


def lost_jobs(site):
    """Return the jobs of the lost runs that count, and of those that do not."""
    lost = site.session()["slow_runs"]["lost"]
    numbers = {counts: [run["reason"] for run in lost if run["counts"] == counts] for counts in (True, False)}
    return [[re.findall(r"job (\d+)", reason)[0] for reason in numbers[counts]] for counts in (True, False)]


def test_a_virtual_run_that_times_out_is_replaced_and_leaves_the_session_undecided(site):
    # Jobs 1 and 2 are warm-ups, 3 and 4 pair 0, 5 the virtual run of pair 1.
    site.fault("ended.5", "TIMEOUT")
    done = site.virtqual(*ON, code=3)
    session = site.session()
    (verdict,) = session["verdicts"]
    assert (session["outcome"], verdict["outcome"]) == ("UNDECIDED", "WITHIN")
    assert [failure["pair"] for failure in session["failures"]] == [1]
    pairs = [run["pair"] for run in session["runs"]]
    # The pairs after it were run in the same round, and further ones show whether runs are lost.
    assert {0, 2, 3, 4} <= {pair for pair in pairs if pairs.count(pair) == 2}
    # Turns come two by two.
    assert verdict["pairs"] == 9
    assert lost_jobs(site) == [["5"], []]
    said = site.words(done)
    assert "1 of 10 virtual runs was lost, and no native one: a build that loses one run in twenty" in said
    assert "Lost runs: 1 virtual run, 0 native runs" in said
    assert "job 5 ended as TIMEOUT (it reached its time limit)" in said
    assert max(len(line) for line in done.stdout.splitlines() if "state/" not in line) <= 80
    # The next session of the build counts it.
    site.mend("ended.5")
    done = site.virtqual(*ON, code=3)
    assert "1 of 18 virtual runs was lost" in site.words(done)
    assert "with earlier sessions of this build" in site.words(done)


@pytest.mark.parametrize(
    ("job", "state", "counted"),
    [("6", "TIMEOUT", True), ("5", "CANCELLED", False)],
    ids=["a native run", "a person ended it"],
)
def test_other_losses_cost_a_pair_alone(site, job, state, counted):
    site.fault(f"ended.{job}", state)
    site.virtqual(*ON, code=0)
    session = site.session()
    assert (session["outcome"], session["refused"]) == ("WITHIN", {})
    assert session["verdicts"][0]["pairs"] == 5
    assert lost_jobs(site) == ([[job], []] if counted else [[], [job]])
    assert session["slow_runs"]["virtual_lost"] == 0


def test_a_warm_up_that_is_lost_is_repeated_once(site):
    site.fault("ended.2", "TIMEOUT")
    site.virtqual(*ON, code=3)
    session = site.session()
    assert [(failure["warm_up"], failure["side"]) for failure in session["failures"]] == [(True, "virtual")]
    assert session["slow_runs"]["virtual_lost"] == 1
    assert session["verdicts"][0]["outcome"] == "WITHIN"


def test_a_program_that_always_fails_in_vms_is_not_repeated_for_ever(site):
    site.fault("ended.cloud", "TIMEOUT")
    done = site.virtqual(*ON, code=4)
    session = site.session()
    assert (session["outcome"], len(session["rounds"])) == ("INVALID", 1)
    assert "ended as TIMEOUT" in site.words(done)


def test_a_node_of_vms_that_dies_counts_in_a_session_that_goes_on(site):
    """It was forgotten: a build that kills a VM now and then passed after `--resume`."""
    site.fault("die.5")
    site.virtqual(*ON, code=5)
    site.virtqual("qualify", "--resume", "last", "--system", "testsite", code=3)
    session = site.session()
    assert (session["outcome"], session["slow_runs"]["virtual_lost"]) == ("UNDECIDED", 1)
    assert lost_jobs(site)[0] == ["5"]
