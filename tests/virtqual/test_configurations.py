"""Two sessions make the study's four configurations."""

import re

import pytest
from made_runs import made_run
from typer.testing import CliRunner

from virtqual import paths
from virtqual.commands.configurations import app
from virtqual.errors import UsageError
from virtqual.identity.record import Host
from virtqual.report import configurations
from virtqual.runs import Result
from virtqual.session import store
from virtqual.site import systems

# Triad of the study (claims D01 to D04), native with node interleaving off as 100.
STUDY = {"BM-1": 100.0, "VM-1": 74.0, "BM-2": 82.23, "VM-2": 81.0}


def runs(native, virtual, *, interleaved, pairs=3):
    made = []
    for pair in range(pairs):
        for side, value in (("native", native), ("virtual", virtual)):
            result = Result.curve("memory_triad", "2 threads", {1: value * (1 + pair), 2: value / (1 + pair)})
            results = (configurations.named(result, interleaved=interleaved),)
            made.append(made_run(side, pair, results=results))
    return made


OFF = runs(STUDY["BM-1"], STUDY["VM-1"], interleaved=False)
ON = runs(STUDY["BM-2"], STUDY["VM-2"], interleaved=True)


def test_the_studys_ratios():
    (row,) = configurations.compare(OFF, ON)
    assert row.series == "memory_triad@2 threads"
    assert row.off == pytest.approx(0.74)
    assert row.on == pytest.approx(0.985, abs=1e-3)
    assert row.across == pytest.approx(0.81)
    assert row.native == pytest.approx(0.8223)


def test_sessions_that_are_not_the_two_are_refused():
    with pytest.raises(UsageError, match="the first session must be the one without"):
        configurations.compare(ON, OFF)
    with pytest.raises(UsageError, match="no series of both sides is in both sessions"):
        configurations.compare(OFF, OFF)
    lost = [run for run in ON if run.side == "native"]
    with pytest.raises(UsageError, match="no series of both sides"):
        configurations.compare(OFF, lost)
    invalid = [run.refusing(("disturbed",)) for run in ON]
    with pytest.raises(UsageError, match="no series of both sides"):
        configurations.compare(OFF, invalid)


def test_the_command_reads_two_sessions(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRTQUAL_STATE", str(tmp_path))
    for name, made in (("20260101-000000-off", OFF), ("20260102-000000-on", ON)):
        session = store.Session(
            session=name, created="", system="s", hypervisor_class="kvm", identity={}, stack={}, runs=made
        )
        directory = paths.sessions() / name
        directory.mkdir(parents=True)
        session.write(directory)
    done = CliRunner().invoke(app, ["20260101", "20260102"])
    assert done.exit_code == 0, done.output
    assert re.search(r"0\.740 +0\.985 +0\.810 +0\.822", done.output)
    assert CliRunner().invoke(app, ["20260102", "20260101"]).exit_code == 2
    other = store.load(paths.sessions() / "20260102-000000-on")
    other.model_copy(update={"stack": {"hash": "another"}}).write(paths.sessions() / "20260102-000000-on")
    done = CliRunner().invoke(app, ["20260101", "20260102"])
    assert (done.exit_code, "another software stack" in " ".join(done.output.split())) == (4, True)


def test_the_system_file_states_it_for_both_partitions_and_it_becomes_a_part_of_the_identity():
    known = {"nodes": 1, "memory_mib": 1024, "llc_bytes": 1, "scale": "small"}
    hypervisor = {"vendor": "KVM", "build": "1", "accelerator": "kvm"}
    virtual = {**known, "hypervisor": hypervisor, "hypervisor_class": "kvm", "node_interleaving": "on"}
    processor = {"num_cpus": 1, "num_cpus_per_core": 1, "num_sockets": 1}
    rest = {"scheduler": "slurm", "launcher": "srun", "processor": processor}

    def system(native):
        partitions = [
            {"name": "n", "features": ["native"], "access": ["-pn"], "extras": native, **rest},
            {"name": "v", "features": ["virtual"], "access": ["-pv"], "extras": virtual, **rest},
        ]
        return {"name": "s", "hostnames": ["s"], "prefix": "/x", "partitions": partitions}

    made = systems.check(system({**known, "node_interleaving": "on"}), "s.py")
    host = systems.host_of(made.virtual)
    assert isinstance(host, Host)
    assert host.node_interleaving is True
    with pytest.raises(UsageError, match=r"extras\.node_interleaving differs"):
        systems.check(system(known), "s.py")
