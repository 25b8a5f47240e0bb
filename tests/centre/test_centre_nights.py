"""Nights on the rehearsed centre: jobs of a real Slurm that go on after a requeue, and tell what is new."""

import json
import time

import pytest
from at_centre import ROOT, nothing_left

from in_a_browser import assert_fit_for_people

pytestmark = pytest.mark.centre
#: Seconds in which a night ends; Slurm lets two minutes pass before a requeued job begins again.
PATIENCE = 600
ON = ("-n", "^paging%.*=pages")


def submit(site, *options):
    """Submit a night to the partition beside those that are compared; returns its job."""
    line = ["env", "-C", str(ROOT), "sbatch", "--parsable", "--partition=gpu", "--time=1:00:00"]
    line += [f"--output={site.state}/night.out", "ci/nightly.sbatch", "centre", *options]
    done = site.centre.run(*line, **site.env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def tell(site):
    """Have every notice written to a file."""
    notify = "schema: virtqual-notify/1\nexpected_within_hours: 30\n"
    notify += f'command: echo "$VIRTQUAL_NOTICE_KIND $VIRTQUAL_NOTICE_SUBJECT" >> {site.state}/told\n'
    (site.directory / "notify.yaml").write_text(notify, encoding="utf-8")


def said(site):
    file = site.state / "night.out"
    return file.read_text("utf-8") if file.exists() else ""


def wait(site, true, what):
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"{what}:\n{said(site)}"
        time.sleep(1)


def finished(site):
    """Return how many runs have ended."""
    return sum(
        json.loads(line)["event"] == "finished"
        for file in site.state.glob("sessions/*/log.jsonl")
        for line in file.read_text("utf-8").splitlines()
    )


def ended(site, job):
    line = ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job}", "--format=state,exitcode"]
    return [row.split("|") for row in site.slurm(*line).split()][-1:]


def test_a_night_goes_on_where_a_requeue_has_ended_it(site, browser):
    """Expected: one session, no run lost, code 0, a report, and nobody is told anything."""
    site.plant()
    tell(site)
    job = submit(site, *ON)
    wait(site, lambda: finished(site) >= 30, "no run has ended")
    site.slurm("scontrol", "requeue", job)
    kept = finished(site)
    wait(site, lambda: "COMPLETED" in str(ended(site, job)), "the night has not ended")
    found = site.session()
    assert found["outcome"] == "WITHIN"
    assert len(found["resumed"]) == 1
    assert len(found["runs"]) >= kept
    assert not (site.state / "told").exists(), "nothing has changed"
    nothing_left(site)
    (directory,) = (site.state / "sessions").glob("2*")
    assert_fit_for_people(browser, directory / "report.html")


def test_a_night_that_finds_something_tells_it_once(site):
    site.plant()
    done, _ = site.qualify(*ON)
    assert done.returncode == 0, done.stdout + done.stderr
    tell(site)
    # What was before the first `--notify` is no news.
    assert site.centre.run("virtqual", "status", "--notify", **site.env).returncode == 0
    site.plant(overhead={"stress-ng": 1.5})
    for _ in range(2):
        job = submit(site, *ON)
        wait(site, lambda: "FAILED" in str(ended(site, job)), "the night has not ended")  # noqa: B023
        assert ended(site, job)[0][1].startswith("1:")
    told = (site.state / "told").read_text("utf-8").splitlines()
    assert [line.split()[0] for line in told] == ["over", "over"], "the build and the metric, once"
