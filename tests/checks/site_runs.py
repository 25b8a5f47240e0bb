"""Stacks of stand-ins for programs, and what a run of ReFrame leaves behind."""

import json
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
