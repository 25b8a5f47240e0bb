"""A session that has ended too early goes on, on a stand-in for Slurm: no run is measured twice."""

import json
import os
import random
import signal
import subprocess
import time

import pytest
from test_held_allocations import HELD

from virtqual.verdict.alternation import list_standard_order

ON = ("qualify", "--system", "testsite", "-n", "lj")


def interrupted(site, moment, number=signal.SIGINT):
    """Begin a session, end it, and return its id."""
    # Long enough that the end comes in time on a machine with other work.
    process = site.start(*ON, FAKE_SECONDS="0.5")
    site.until(process, moment)
    os.kill(process.pid, number)
    process.communicate(timeout=60)
    return site.directory().name


def finished(site):
    """Return the jobs whose runs are in the session's log."""
    return [event["run"]["job"] for event in site.events("finished")]


def test_it_goes_on_with_the_pairs_that_are_left(site):
    name = interrupted(site, " 6/10")
    assert f"`virtqual qualify --resume {name}` goes on with it" in site.session()["next_step"]
    before = finished(site)
    assert len(before) >= 3
    done = site.virtqual("qualify", "--resume", name, code=0)
    assert f"Runs of it that count: {len(before)}. Interrupted" in site.words(done)
    session = site.session()
    assert session["outcome"] == "WITHIN"
    assert [one["ended"] for one in session["resumed"]] == ["Interrupted: nothing is concluded."]
    # Every run is there once, those from before among them; each pair has its runs one after the other.
    assert set(before) <= set(finished(site))
    assert len(finished(site)) == len(set(finished(site)))
    runs = sorted((run["start"], run["pair"], run["side"]) for run in session["runs"])
    pairs = [pair for _, pair, _ in runs]
    whole = {pair for pair in pairs if pairs.count(pair) == 2}
    assert len(whole) == 4
    assert all(abs(pairs.index(pair) - (len(pairs) - 1 - pairs[::-1].index(pair))) == 1 for pair in whole)
    order = [next(side[0].upper() for _, number, side in runs if number == pair) for pair in sorted(whole)]
    assert sorted(order) == sorted(list_standard_order(0, 3))


def test_a_conviction_takes_the_pairs_that_it_takes_without_an_interruption(site):
    # 12 % would be convicted in the first round: the machine is quiet.
    site.fault("slow.cloud", "1.08")
    process = site.start(*ON)
    site.until(process, "round 2")
    site.until(process, " 1/")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    site.virtqual("qualify", "--resume", site.directory().name, code=1)
    (verdict,) = site.session()["verdicts"]
    assert (verdict["outcome"], verdict["pairs"]) == ("OVER", 8)


def test_after_a_kill(site):
    name = interrupted(site, " 4/10", signal.SIGKILL)
    before = finished(site)
    site.virtqual("qualify", "--resume", name[:15], code=0)
    assert set(before) <= set(finished(site))
    assert len({(run["pair"], run["side"]) for run in site.session()["runs"]}) >= 8


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_before_its_first_run_it_is_none(site, number):
    site.fault("allocation", "PENDING")
    process = site.start(*ON, **HELD)
    site.until(process, "waiting for")
    name = site.directory().name
    os.kill(process.pid, number)
    said = " ".join(process.communicate(timeout=60)[0].split())
    killed = number == signal.SIGKILL
    assert ("No run had ended after the warm-ups: the session does not count" in said) == (not killed)
    assert [path.name for path in (site.path / "state/sessions").glob("2*")] == [name] * killed
    done = site.virtqual("qualify", "--resume", name)
    why = "has no run: there is nothing to go on with" if killed else "one without a run is not kept"
    assert (done.returncode, why in site.words(done)) == (2, True), site.words(done)
    site.mend("allocation")
    done = site.virtqual(*ON, code=0, **HELD)
    assert ("had ended before its first run, and was removed" in site.words(done)) == killed
    assert [path.name for path in (site.path / "state/sessions").glob("2*")] != [name]
    assert len(site.session()["runs"]) == 8


@pytest.mark.slow
def test_ten_random_moments(site):
    draw = random.Random(14)
    options: tuple[str, ...] = ON
    for _ in range(10):
        process = site.start(*options)
        try:
            process.communicate(timeout=draw.uniform(0.5, 5))
        except subprocess.TimeoutExpired:
            process.send_signal(draw.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL]))
            process.communicate(timeout=60)
        # Without a run there is no session yet.
        logs = (site.path / "state/sessions").glob("2*/log.jsonl")
        begun = [log.parent.name for log in logs if '"event":"finished"' in log.read_text("utf-8")]
        options = ("qualify", "--resume", *begun) if begun else ON
        if process.returncode == 0:
            break
        time.sleep(0.1)
    else:
        site.virtqual(*options, code=0)
    runs = site.session()["runs"]
    assert len({run["job"] for run in runs}) == len(runs)
    pairs = [run["pair"] for run in runs]
    assert sum(pairs.count(pair) == 2 for pair in set(pairs)) == 4


def test_the_last_session_goes_on_though_all_its_runs_failed(site):
    site.fault("fault.crash")
    done = site.virtqual(*ON, code=5)
    assert "exit code 1: lmp: crashed; " in site.words(done)
    site.mend("fault.crash")
    site.virtqual("qualify", "--system", "testsite", "--resume", "last", code=0)
    assert site.session()["outcome"] == "WITHIN"


def test_what_cannot_go_on_is_said(site):
    done = site.virtqual(*ON)
    assert done.returncode == 0, site.words(done)
    done = site.virtqual("qualify", "--resume", site.directory().name)
    assert done.returncode == 2
    assert "is concluded (WITHIN): there is nothing left of it to run" in site.words(done)
    done = site.virtqual("qualify", "--resume", site.directory().name, "--full")
    assert done.returncode == 2
    assert "--resume takes no option but --system and --wait" in site.words(done)
    done = site.virtqual("qualify", "--resume", site.directory().name, "--system", "other")
    assert done.returncode == 2
    assert "is of system 'testsite', not of 'other'" in site.words(done)
    assert site.virtqual("qualify").returncode == 2


def test_another_build_is_no_part_of_it(site):
    name = interrupted(site, " 4/10")
    other = {"hypervisor": {"vendor": "KVM", "build": "9.9", "accelerator": "kvm", "machine": None}}
    done = site.virtqual("qualify", "--resume", name, FAKE_EXTRAS_cloud=json.dumps(other))
    assert done.returncode == 4, site.words(done)
    assert "the system file states another hypervisor of the virtual partition" in site.words(done)
    assert site.session()["outcome"] == "INTERRUPTED"


def test_a_plain_run_of_reframe_is_none(site):
    site.lammps(code=0)
    done = site.virtqual("qualify", "--resume", site.directory().name, code=2)
    assert "was a plain ReFrame run" in site.words(done)
