"""One node of each partition is looked at before anything is measured."""

import subprocess
from types import SimpleNamespace

import pytest

from virtqual.errors import InfrastructureError
from virtqual.site import probe


@pytest.mark.parametrize(("own", "hours"), [(True, 0.25), (False, 24)])
def test_a_full_queue_is_waited_for_by_srun_which_takes_its_job_out_when_it_gives_up(monkeypatch, own, hours):
    asked = []

    def run(line, *, env, seconds):
        asked.append((line, seconds))
        return subprocess.CompletedProcess(
            line, 1, "", "srun: error: Unable to allocate resources: timed out\n"
        )

    monkeypatch.setattr(probe.execute, "run", run)
    partition = SimpleNamespace(
        name="native", options=["-pnative"], processor={"num_cpus": 64}, own_scheduler=own
    )
    system = SimpleNamespace(native=partition, partition=lambda side: partition)
    with pytest.raises(InfrastructureError, match="partition native: srun: error: Unable to allocate"):
        probe.probe_node(system, "native")
    ((line, seconds),) = asked
    assert f"--immediate={hours * 3600:.0f}" in line
    assert "-pnative" in line
    assert seconds > hours * 3600 + 300
