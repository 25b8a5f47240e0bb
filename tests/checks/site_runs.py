"""Stacks of stand-ins for programs, and what a run of ReFrame leaves behind."""

import json
import os
import shutil
from pathlib import Path

from virtqual.stack.manifest import Manifest, Program

ROOT = Path(__file__).parents[2]
FAKE, OUTPUTS = ROOT / "tests/fakeslurm", ROOT / "tests/outputs"
#: Options of `reframe` that read the project's checks on the stand-in site.
CHECKS = ("-c", str(ROOT / "checks"), "--system", "testsite")
#: A check that is not paired, and whose program does nothing.
PLAIN_CHECK = """
import reframe as rfm
import reframe.utility.sanity as sn
@rfm.simple_test
class plain(rfm.RunOnlyRegressionTest):
    valid_systems = ["+native"]
    valid_prog_environs = ["*"]
    executable = "true"
    sanity_patterns = sn.assert_true(1)
"""

#: The native node carries the VMs in turn, as a site's machines should.
HOSTS = {"bare-2": ["cloud-1"], "bare-1": ["cloud-2", "cloud-3"]}
#: VMs of one core, by the system file: all CPUs are said to be hardware threads of one.
SITE_OF_VMS = {
    "FAKE_NODES": "2",
    "FAKE_SMT_cloud": str(os.cpu_count()),
    "FAKE_SCALE": "small",
    "FAKE_EXTRAS_cloud": json.dumps({"nodes_of_hosts": HOSTS, "memory_mib": 1024}),
    "FAKE_SECONDS": "1",
}
#: A stand-in for `grep` on the VMs: they show one CPU and a GiB of memory.
SMALL_VM = r"""#!/bin/bash
set -o pipefail
/usr/bin/env PATH=/usr/bin:/bin grep "$@" |
    sed 's|^\(/sys/devices/system/cpu/online\):.*|\1:0|; s|^\(/proc/meminfo:MemTotal: *\)[0-9]*|\11048576|'
"""


def make_stack(site, name, *programs):
    """Set up another stack on the site."""
    stack = site.path / "site/stacks" / name
    stack.mkdir(exist_ok=True)
    Manifest(name=name, programs=programs).write(stack)


def make_program(path, name, version, **fields):
    """Return a program of a stack, by default with its name as its feature."""
    fields = {"features": (name,), "origin": "the tests", **fields}
    return Program.from_files(path, name=name, version=version, **fields)


def copy_stand_in(site, stack, stand_in, name=""):
    """Copy a stand-in into the directory of a stack."""
    directory = site.path / "site/stacks" / stack
    directory.mkdir(exist_ok=True)
    return Path(shutil.copy(FAKE / stand_in, directory / (name or stand_in)))


def outcome(done) -> str:
    return done.stdout + done.stderr


def read_cases(site) -> list[dict]:
    """Return the test cases of the newest run, as ReFrame's report has them."""
    report = max((site.path / "state/reports").glob("run-*.json"), key=lambda path: path.stat().st_mtime)
    return json.loads(report.read_text(encoding="utf-8"))["runs"][0]["testcases"]


def read_runs(site) -> list[dict]:
    """Return what the cases of the newest run have measured."""
    return [json.loads(case["record"]) for case in read_cases(site) if case.get("record")]
