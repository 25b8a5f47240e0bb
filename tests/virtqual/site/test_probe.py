"""One node of each partition is looked at before anything is measured."""

import subprocess
from types import SimpleNamespace

import pytest

from following import ended
from virtqual.errors import InfrastructureError
from virtqual.site import probe
from virtqual.site.extras import Timeouts


@pytest.mark.parametrize(("asked_hours", "hours"), [(None, 24), (0.25, 0.25)])
def test_a_full_queue_is_waited_for_by_srun_which_takes_its_job_out_when_it_gives_up(
    monkeypatch, asked_hours, hours
):
    asked = []

    def run(line, *, env, seconds):
        asked.append((line, seconds))
        return subprocess.CompletedProcess(
            line, 1, "", "srun: error: Say why.\nsrun: error: Unable to allocate resources: timed out\n"
        )

    monkeypatch.setattr(probe.execute, "run", run)
    extras = SimpleNamespace(own_scheduler=False, wait_hours=24, timeouts=Timeouts())
    partition = SimpleNamespace(
        name="native", access=["-pnative"], processor={"num_cpus_per_core": 2}, extras=extras
    )
    system = SimpleNamespace(
        native_extras=extras, partition=lambda side: partition, cores={"native": 64, "virtual": 32}.get
    )
    with pytest.raises(InfrastructureError, match=r"native: srun: error: Say why\. error: Unable"):
        probe.probe_node(system, "native", print, wait_hours=asked_hours)
    ((line, seconds),) = asked
    assert f"--immediate={hours * 3600:.0f}" in line
    assert "-pnative" in line
    assert "--cpus-per-task=64" in line
    assert seconds > hours * 3600 + 300


def test_preflight_says_for_what_it_waits(site):
    site.fault("queued.cloud", "Priority")
    process = site.start("preflight", "--system", "testsite", "--wait", "1")
    said = site.until(process, "waiting for 1 node of cloud since")
    assert "of bare" not in said
    site.mend("queued.cloud")
    assert ended(process)[0] == 0
    site.fault("queued.bare", "QOSMaxJobsPerUserLimit")
    done = site.virtqual("preflight", "--system", "testsite", "--wait", "0.0005", code=5)
    assert "cannot examine a node of partition bare: srun: error: Unable to allocate" in site.words(done)
    done = site.virtqual("preflight", "--system", "testsite", "--wait", "0", code=2)
    assert "--wait 0: name hours, more than 0" in site.words(done)
