"""Several VMs of one host against one native node, on the stand-in site."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from made_runs import read_session
from virtqual.stack import manifest
from virtqual.stack.manifest import Manifest, Program

TESTS = Path(__file__).parents[1]
# The native node carries the VMs in turn, as a site's machines should.
HOSTS = {"bare-2": ["cloud-1"], "bare-1": ["cloud-2", "cloud-3"]}
# A VM has one core here, by the system file: all CPUs are said to be hardware threads of one.
SITE = {
    "FAKE_NODES": "2",
    "FAKE_SMT_cloud": str(os.cpu_count()),
    "FAKE_SCALE": "small",
    "FAKE_EXTRAS_cloud": json.dumps({"nodes_of_hosts": HOSTS, "memory_mib": 1024}),
    "FAKE_SECONDS": "1",
}
ONE_PAIR = {**SITE, "VIRTQUAL_PAIRS": "0:0"}
# A stand-in for `grep` on the VMs: they show one CPU and a GiB of memory.
SMALL_VM = r"""#!/bin/sh
/usr/bin/env PATH=/usr/bin:/bin grep "$@" |
    sed 's|^\(/sys/devices/system/cpu/online\):.*|\1:0|; s|^\(/proc/meminfo:MemTotal: *\)[0-9]*|\11048576|'
"""
STREAM, NAMD = r"^stream_vms.*layout=2x1\b", r"^namd_water_vms"


@pytest.fixture
def equipped(site):
    if os.cpu_count() < 2:
        pytest.skip("two VMs need two CPUs")
    stack = site.path / "state/stack/apps"
    stack.mkdir()
    shutil.copy(TESTS / "outputs/namd.water.out", stack)
    programs = tuple(
        Program(
            name=name,
            version=version,
            origin="the tests",
            path=path,
            sha256=manifest.sha256(path),
            features=(name,),
        )
        for name, stand_in, version in (("stream", "stream", "5.10"), ("namd", "namd2", "2.12"))
        for path in [Path(shutil.copy(TESTS / "fakeslurm" / stand_in, stack))]
    )
    Manifest(name="apps", pins="none", programs=programs).write(stack)
    grep = site.path / "slurm/bin.cloud/grep"
    grep.parent.mkdir()
    grep.write_text(SMALL_VM)
    grep.chmod(0o755)
    return site


def records(site):
    """Return the records of what ran last."""
    report = max((site.path / "state/reports").glob("run-*.json"), key=lambda path: path.stat().st_mtime)
    cases = json.loads(report.read_text())["runs"][0]["testcases"]
    return [json.loads(case["record"]) for case in cases if case.get("record")]


def runs(site):
    """Yield side, nodes and results by metric of what ran last."""
    for run in records(site):
        yield run["side"], run["nodes"], {one["metric"]: one for one in run["results"]}


# The VMs of the host that has two; not the first two VMs.
NODES = {"native": ["bare-1"], "virtual": ["cloud-2", "cloud-3"]}


def test_vms_of_one_host_are_compared_with_one_node_of_as_many_cores(equipped):
    again = {**SITE, "FAKE_RUN_SECONDS": "2.2", "VIRTQUAL_PAIRS": "0:1"}
    done = equipped.reframe("--mode=full", "-n", STREAM, **again)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WITHIN memory_triad@STREAM, 2 VMs of one host, 1 thread each" in done.stdout
    found = {side: (nodes, results["memory_triad"]["values"][0]) for side, nodes, results in runs(equipped)}
    assert {side: nodes for side, (nodes, _) in found.items()} == NODES
    # In each repetition all nodes begin together, anew: a start lasts a second and a bit.
    (number,) = {run["repetitions"] for run in records(equipped)}
    assert number in (2, 3)
    # Two threads on the native node, and one in each VM.
    rates = {side: rate for side, (_, rate) in found.items()}
    assert rates == pytest.approx({"native": 40e3, "virtual": 40e3}, rel=0.02)


def test_in_each_repetition_all_nodes_begin_together_anew(equipped):
    again = {**ONE_PAIR, "FAKE_SECONDS": "0.3", "FAKE_RUN_SECONDS": "60", "FAKE_TIME_LIMIT": "12s"}
    equipped.reframe("--mode=full", "-n", STREAM, "--keep-stage-files", **again)
    (file,) = (equipped.path / "state/sessions").glob("*/session.json")
    found = read_session(file.parent)["runs"]
    assert [run["side"] for run in found] == ["native", "virtual"]
    (number,) = {run["repetitions"] for run in found}
    assert number > 1
    # Each meeting left its own notes, and each node its own output.
    stages = [path.parents[1] for path in equipped.path.rglob(f"repetition-{number}/stream.1.out")]
    assert stages
    for stage in stages:
        rooms = [stage, *stage.glob("repetition-*")]
        assert len({begins(room) for room in rooms}) == number
        assert not any((room / "stream.1.out").is_symlink() for room in rooms)
    assert {len(result["values"]) for run in found for result in run["results"]} == {1}


def begins(directory):
    """Return when the second task began in a directory, as it noted."""
    note = (directory / "virtqual.together.1").read_text()
    return re.search(r"begin (\S+)", note)[1]


def test_vms_that_are_not_of_one_host_are_refused(equipped):
    equipped.fault("elsewhere")
    done = equipped.reframe("--mode=full", "-n", STREAM, "--system", "testsite:cloud", **ONE_PAIR)
    assert "the VMs cloud-1, cloud-2 are not of one host" in done.stdout + done.stderr


def test_ranks_in_vms_that_show_more_than_their_host_has_are_left_out(equipped):
    # Now each VM shows all CPUs of the machine.
    (equipped.path / "slurm/bin.cloud/grep").unlink()
    done = equipped.reframe("--mode=full", "-n", NAMD, **ONE_PAIR)
    assert re.search(r"host-share: 2 VMs have (\d+) cores together, their host", done.stdout)
    assert "UNDECIDED namd_elapsed@water 10125 atoms, 2 ranks, 2 VMs of one host" in done.stdout
    assert {side: nodes for side, nodes, _ in runs(equipped)} == NODES
