"""A check that knows nothing of virtqual, run and judged on the one-machine cluster: real Slurm, real VMs."""

import json
import re
import shutil

import pytest
from commands import ROOT, own_state, run

pytestmark = pytest.mark.cluster

TEN_LINES = """import reframe

from ..judged import judge

judge("{apps}/triad.py:triad", metrics={{"triad_bw": "memory_triad"}})
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A cluster and a state directory of this test run's own; nodes see them at the same path."""
    path = tmp_path_factory.mktemp("foreign")
    env = own_state(path)
    ignored = shutil.ignore_patterns("site", "__pycache__")
    shutil.copytree(ROOT / "checks", path / "checks", ignore=ignored)
    (path / "checks/site").mkdir()
    (path / "checks/site/__init__.py").touch()
    apps = shutil.copytree(ROOT / "tests/foreign", path / "apps")
    (path / "checks/site/triad.py").write_text(TEN_LINES.format(apps=apps), encoding="utf-8")
    up = run("vcluster", "up", "--hosts", "here", timeout=300, **env)
    assert up.returncode == 0, up.stderr
    yield path, env
    assert run("vcluster", "down", timeout=120, **env).returncode == 0


def test_a_plain_check_that_builds_its_program_is_paired_and_judged(place):
    path, env = place
    names = r"^triad(_overhead)?%.*elements=100000"
    done = run(
        "reframe", "-c", str(path / "checks"), "-r", "--system", "vcluster", "-n", names,
        timeout=900, VIRTQUAL_PAIRS="0:1", **env,
    )  # fmt: skip
    told = done.stdout + done.stderr
    # Whether it is within budget is the machine's affair; that it was judged is ours.
    assert re.search(r"(WITHIN|OVER|UNDECIDED|BASELINE) memory_triad@triad, elements=100000", told), told
    (report,) = (path / "state/reports").glob("run-*.json")
    cases = json.loads(report.read_text(encoding="utf-8"))["runs"][0]["testcases"]
    records = [json.loads(case["record"]) for case in cases if case.get("record")]
    assert [record["side"] for record in records] == ["native", "virtual", "virtual", "native"]
    assert len({record["software"][0]["files"]["binary"]["sha256"] for record in records}) == 1
