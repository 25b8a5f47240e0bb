"""Several VMs of one host against one native node, on the stand-in site."""

import json
import os
import re
import shutil

import pytest
from site_runs import (
    OUTPUTS,
    SITE_OF_VMS,
    SMALL_VM,
    copy_stand_in,
    make_program,
    make_stack,
    outcome,
    read_runs,
)

ONE_PAIR = {**SITE_OF_VMS, "VIRTQUAL_PAIRS": "0:0"}
STREAM, NAMD = r"^stream_vms.*layout=2x1\b", r"^namd_water_vms"


@pytest.fixture
def equipped(site):
    if os.cpu_count() < 2:
        pytest.skip("two VMs need two CPUs")
    programs = [
        make_program(copy_stand_in(site, "apps", "stream"), "stream", "5.10"),
        make_program(copy_stand_in(site, "apps", "namd2"), "namd", "2.12"),
    ]
    make_stack(site, "apps", *programs)
    shutil.copy(OUTPUTS / "namd.water.out", site.path / "site/stacks/apps")
    site.stand_in("grep", SMALL_VM, "cloud")
    return site


# The VMs of the host that has two; not the first two VMs.
NODES = {"native": ["bare-1"], "virtual": ["cloud-2", "cloud-3"]}


def test_vms_of_one_host_are_compared_with_one_node_of_as_many_cores(equipped):
    again = {**SITE_OF_VMS, "FAKE_RUN_SECONDS": "2.2", "VIRTQUAL_PAIRS": "0:1"}
    done = equipped.reframe(
        "--mode=full", "-n", STREAM, "--keep-stage-files", checks="stream.py", **again, code=0
    )
    assert "WITHIN memory_triad@STREAM, 2 VMs of one host, 1 thread each" in done.stdout
    runs = read_runs(equipped)
    assert {run["side"]: run["nodes"] for run in runs} == NODES
    # Two threads on the native node, and one in each VM.
    rates = {
        run["side"]: result["values"]
        for run in runs
        for result in run["results"]
        if result["metric"] == "memory_triad"
    }
    assert rates == {side: [pytest.approx(40e3, rel=0.02)] for side in NODES}
    # In each repetition all nodes begin together, anew: a start lasts a second and a bit.
    (number,) = {run["repetitions"] for run in runs}
    assert number in (2, 3)
    # Each meeting left its own notes, and each node its own output.
    stages = [path.parents[1] for path in equipped.path.rglob(f"repetition-{number}/task.1.out")]
    assert stages
    for stage in stages:
        rooms = [stage, *stage.glob("repetition-*")]
        assert len({begins(room) for room in rooms}) == number
        assert not any((room / "task.1.out").is_symlink() for room in rooms)


def begins(directory):
    """Return when the second task began in a directory, as it noted."""
    note = (directory / "virtqual.together.1").read_text()
    return re.search(r"begin (\S+)", note)[1]


def test_the_record_of_a_node_delays_no_task(equipped):
    """One of the two VMs takes longer to be recorded than its program runs."""
    slow = '[ "$(cat /proc/sys/kernel/hostname)" != cloud-3 ] || sleep 1\n'
    equipped.stand_in("grep", SMALL_VM.replace("set -o", f"{slow}set -o"), "cloud")
    done = equipped.reframe("--mode=full", "-n", STREAM, checks="stream.py", **ONE_PAIR)
    assert len(read_runs(equipped)) == 2, done.stdout
    assert not any(result["invalid"] for run in read_runs(equipped) for result in run["results"])


def test_vms_that_are_not_of_one_host_are_refused(equipped):
    equipped.fault("elsewhere")
    done = equipped.reframe(
        "--mode=full", "-n", STREAM, "--system", "testsite:cloud", checks="stream.py", **ONE_PAIR
    )
    assert "the VMs cloud-1, cloud-2 are not of one host" in outcome(done)


def test_ranks_in_vms_that_show_more_than_their_host_has_are_left_out(equipped):
    # Now each VM shows all CPUs of the machine.
    (equipped.path / "slurm/bin.cloud/grep").unlink()
    done = equipped.reframe("--mode=full", "-n", NAMD, checks="namd.py", **ONE_PAIR)
    assert re.search(r"host-share: 2 VMs have (\d+) cores together, their host", done.stdout)
    assert "INVALID namd_elapsed@water 10125 atoms, 2 ranks, 2 VMs of one host" in done.stdout
    assert {run["side"]: run["nodes"] for run in read_runs(equipped)} == NODES


def test_a_case_of_two_nodes_takes_vms_of_two_hosts(equipped):
    hosts = {"bare-4": ["cloud-1", "cloud-2"], "bare-5": ["cloud-3"]}
    extras = json.dumps({"nodes_of_hosts": hosts, "memory_mib": 1024})
    site = {**ONE_PAIR, "FAKE_NODES": "3", "FAKE_EXTRAS_cloud": extras}
    equipped.reframe("--mode=full", "-n", r"^namd_water_nodes.*count=2\b", checks="namd.py", **site)
    nodes = {run["side"]: run["nodes"] for run in read_runs(equipped)}
    assert nodes == {"native": ["bare-1", "bare-2"], "virtual": ["cloud-1", "cloud-3"]}
