"""`virtqual qualify` from the command line: every exit code, on a site with a stand-in for Slurm."""

import json
import re
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from made_runs import keep
from virtqual.runs import Run
from virtqual.session.session import Session
from virtqual.stack import manifest

ROOT = Path(__file__).parents[2]
ON = ("qualify", "--system", "testsite")


def test_within_budget(site):
    done = site.virtqual(*ON, "-n", "lj", code=0)
    found = site.session()
    assert (found["schema"], found["outcome"]) == ("virtqual-session/3", "WITHIN")
    assert len(found["provenance"]["commit"]) in (0, 40)
    assert found["basis"]["provenance"] == found["provenance"]
    assert re.fullmatch(r"\d{8}-\d{6}-testsite", found["session"])
    begun = datetime.strptime(found["session"][:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    assert abs((begun - datetime.fromisoformat(found["created"])).total_seconds()) <= 1
    assert found["identity"]["virtual"]["features"] == ["virtual"]
    assert found["identity"]["virtual"]["hypervisor"]["build"] == "6.1.0"
    assert "KVM 6.1.0 (stated)" in done.stdout
    order = [f"{run['pair']} {run['side']}" for run in found["runs"][:4]]
    assert order == ["0 native", "0 virtual", "1 virtual", "1 native"]
    starts = [run["start"] for run in found["runs"]]
    assert starts == sorted(starts)
    assert {one["state"] for one in found["canaries"]} == {"unknown"}
    assert len(found["canaries"]) == 2
    assert max(len(line) for line in done.stdout.splitlines() if "state/" not in line) <= 80


def test_the_default_stack_is_the_one_with_the_most_features(site):
    stacks = site.path / "site/stacks"
    fake = manifest.load(stacks / "fake/manifest.json")
    (stacks / "spack").mkdir()
    # As `ci/build-stack virtqual-programs` registers a few programs beside a centre's stack.
    fake.model_copy(update={"name": "spack", "programs": ()}).write(stacks / "spack")
    done = site.virtqual(*ON, "-n", "lj", "--pairs", "4", code=0)
    assert site.session()["stack"]["name"] == "fake"
    assert "Stack fake has the most features; --stack names another: spack." in site.words(done)
    fake.model_copy(update={"name": "spack"}).write(stacks / "spack")
    (stacks / "fake2").mkdir()
    (stacks / "fake2/manifest.json").write_text("{}")
    assert list(manifest.find_stacks(stacks)) == ["spack", "fake", "fake2"]


QUALIFIED = """schema: virtqual-qualification/1
classes: [kvm]
scope: quick
reason: one check is enough for the tests
checks:
  - {check: lammps %problem=lj}
"""


@pytest.mark.parametrize(
    ("options", "extras", "says"),
    [
        ((), {}, "no (one boot of the virtual machines: another one may differ)"),
        ((), {"nodes_of_hosts": {}}, "no (it is not stated which hosts carry the virtual machines)"),
        (("--fast",), {}, "no (--fast: two pairs can lack rare slow runs)"),
    ],
    ids=["one boot", "hosts are not known", "two pairs"],
)
def test_a_build_is_not_qualified_by_one_boot_nor_on_unknown_hosts_nor_by_two_pairs(
    site, options, extras, says
):
    site.add_reference("qualifications/own.yaml", QUALIFIED)
    done = site.virtqual(*ON, "-n", "lj", *options, FAKE_EXTRAS_cloud=json.dumps(extras), code=0)
    assert site.session()["qualified"] == says
    assert f"qualified: {says}" in done.stdout


def test_a_site_directory_that_several_people_share_is_only_read(site):
    shared = site.path / "site"
    before = sorted(shared.rglob("*"))
    site.virtqual(*ON, "-n", "lj", code=0)
    assert sorted(shared.rglob("*")) == before


def test_over_budget_names_the_metric_and_by_how_much(site):
    site.fault("slow.cloud", "1.5")
    done = site.virtqual(*ON, "-n", "lj")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "OVER lammps_loop_time@lj: virtual is " in done.stdout
    found = site.session()
    assert found["qualified"] == "no (over)"
    # What two pairs flag is OVER by the two after them.
    assert [(one["first"], one["last"]) for one in found["rounds"]] == [(0, 3)]


def test_a_reference_that_native_misses_refuses_the_verdict(site):
    site.add_reference(
        "systems/testsite/lammps.yaml",
        "lammps:\n  $index: [$system, problem]\n  testsite:\n    lj:\n"
        "      lammps_loop_time: [0.25, null, 0.05, s]\n",
    )
    done = site.virtqual(*ON, "-n", "lj")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "expected 0.25" in done.stdout


def test_a_program_that_fails_is_infrastructure(site):
    site.fault("fault.crash")
    done = site.virtqual(*ON, "-n", "lj")
    assert done.returncode == 5
    assert "exit code" in done.stdout
    assert site.session()["outcome"] == "BROKEN"


def test_a_scheduler_that_fails_is_named(site):
    site.fault("fault.sacct")
    done = site.virtqual(*ON, "-n", "lj")
    assert done.returncode == 5, done.stdout + done.stderr
    said = site.words(done)
    assert "ReFrame gave up: " in said
    assert "accounting storage is disabled" in said


def test_a_node_that_is_down_is_named_before_anything_runs(site):
    site.fault("down.cloud", "VM cloud-1 died")
    done = site.virtqual(*ON, "-n", "lj")
    assert done.returncode == 5
    assert "cloud-1 is down (VM cloud-1 died)" in done.stderr


def test_a_class_that_does_not_fit_the_accelerator_is_refused(site):
    done = site.virtqual(*ON, "--class", "emulated")
    assert done.returncode == 4
    assert "classes for this accelerator: kvm" in done.stderr


def test_kvm_on_emulated_hosts_is_judged_by_overhead_and_never_qualified(site):
    on = {"FAKE_CLASS": "kvm-on-emulated-hosts"}
    done = site.virtqual(*ON, "-n", "lj", code=0, **on)
    found = site.session()
    assert (found["outcome"], found["qualified"]) == ("WITHIN", "no (emulated hosts)")
    assert "Under class kvm-on-emulated-hosts no build is qualified" in site.words(done)
    for options in (("--class", "kvm"), ("--class", "production")):
        done = site.virtqual(*ON, "-n", "lj", *options, code=4, **on)
        assert "stands for no other" in site.words(done)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--class", "kvn"), "unknown class 'kvn'"),
        (("--against", "nosuch"), "no session begins with 'nosuch'"),
        (("--stack", "nosuch"), "no stack 'nosuch'"),
    ],
)
def test_usage_errors_say_what_there_is(site, options, says):
    done = site.virtqual(*ON, *options)
    assert done.returncode == 2
    assert says in done.stderr


def test_no_check_selected_is_not_a_pass_and_leaves_no_session(site):
    done = site.virtqual(*ON, "-n", "lamps")
    assert done.returncode == 2
    assert "no check has a name that matches 'lamps': did you mean lammps" in done.stderr
    assert not list((site.path / "state/sessions").glob("2*"))


def test_options_are_checked_before_the_system_is_there(site):
    for options, code, says in (
        (("--system", "vcluster"), 0, ""),
        (("--system", "vcluster", "--against", "last"), 2, "there is no 'last'"),
        (("--system", "vcluster", "--class", "kvn"), 2, "unknown class 'kvn'"),
        (("--system", "vclustr"), 2, "did you mean vcluster"),
        ((*ON[1:], "--against", "2026"), 2, "no session begins with '2026'"),
        ((*ON[1:], "--class", "emulated"), 4, "classes for this accelerator: kvm"),
    ):
        done = site.virtqual("qualify", "--only-check", *options)
        assert (done.returncode, done.stdout) == (code, "")
        assert says in done.stderr
    assert not (site.path / "state/sessions").exists()


# What the stand-ins' times differ by, and more. Unknown noise takes 17 pairs to be compared with.
QUIET = """schema: virtqual-noise/1
noise:
  - {family: application, sigma: 0.005, df: 20, between: 0.001, between_df: 20, source: the tests}
"""


def test_against_an_earlier_session(site):
    site.add_reference("systems/testsite/noise.yaml", QUIET)
    assert site.virtqual(*ON, "-n", "lj").returncode == 0
    first = site.session()["session"]
    time.sleep(1.1)
    site.fault("slow.cloud", "1.5")
    # "last" is the session before this one, in every round: never this one itself.
    done = site.virtqual(*ON, "-n", "lj", "--against", "last")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"last session of testsite that measured these checks is {first}." in site.words(done)
    assert "change of the overhead since the earlier session: " in done.stdout
    # Two answers: over its budget, and worse than before.
    assert "OVER lammps_loop_time@lj: virtual is " in done.stdout
    assert f"over the allowed change since session {first}" in site.words(done)
    assert {v["gate"] for v in site.session()["verdicts"]} == {"overhead", "change"}
    # A person states the build here, and may have forgotten to state the new one.
    assert f"The hypervisor is the one of {first}: so the system file states" in site.words(done)
    site.mend("slow.cloud")
    time.sleep(1.1)
    done = site.virtqual(*ON, "-n", "lj", "--against", first)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("before", "now", "named"),
    [
        ({"prefer_ht": False}, {"prefer_ht": True}, "prefer_ht was no, is yes"),
        (
            {"virtual_switches": "one"},
            {"virtual_switches": "one a VM"},
            "virtual_switches was one, is one a VM",
        ),
        # It follows from the system file.
        ({"vms_per_host": 4}, {}, "vms_per_host was 4, is 1"),
        ({"numa_hidden": True}, {}, "numa_hidden was yes, is no"),
        ({"node_interleaving": True}, {}, "node_interleaving was yes, is no"),
    ],
)
def test_another_placement_of_the_vms_is_another_partition(site, before, now, named):
    """Like ESX 4.1's preferHT: no build may be credited with what it did."""
    measured = {"start": 0, "end": 1, "clock": "", "job": "1", "nodes": (), "seconds": 1}
    made = {"stack": "fake", "stack_hash": "0", "reference": "none", "results": ()}
    earlier = Session(
        session="20260101-000000-testsite",
        created="2026-01-01T00:00:00+00:00",
        system="testsite",
        hypervisor_class="kvm",
        identity={"native": {}, "virtual": {"placement": {**before, "vcpus_pinned": True}}},
        stack={"name": "fake", "hash": "0", "programs": []},
        runs=[Run(check="lammps", pair=0, side="native", **measured, **made)],
    )
    keep(earlier, site.path / "state/sessions")
    done = site.virtqual(*ON, "-n", "lj", "--against", earlier.session, FAKE_HOST=json.dumps(now))
    assert done.returncode == 4, done.stdout + done.stderr
    assert f"placed otherwise ({named})" in site.words(done)


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (
            '[Result.scalar("lammps_loop_time", setting, float("nan"))]',
            "no finite number for lammps_loop_time",
        ),
        (
            'self.answers.append(Answer(name="energy", value=float("nan"), tolerance=0.1)) or []',
            "value: nan is no finite number",
        ),
    ],
    ids=["a value", "an answer"],
)
def test_a_number_that_is_none_makes_its_check_invalid_and_not_the_session_broken(site, returned, says):
    """A site's own check may compute anything."""
    root = site.path / "root"
    root.mkdir()
    for entry in ROOT.iterdir():
        if entry.name not in ("checks", ".git"):
            (root / entry.name).symlink_to(entry)
    shutil.copytree(ROOT / "checks", root / "checks", ignore=shutil.ignore_patterns("__pycache__"))
    check = root / "checks/lammps.py"
    text = check.read_text()
    line = 'return [Result.scalar("lammps_loop_time", setting, run.loop_time, invalid)]'
    assert line in text
    text = text.replace(line, f"return {returned}").replace("import Result", "import Answer, Result")
    check.write_text(text)
    done = site.virtqual(*ON, "-n", "lj", VIRTQUAL_ROOT=str(root))
    assert done.returncode == 4, done.stdout + done.stderr
    assert site.session()["outcome"] == "INVALID"
    failures = site.session()["failures"]
    assert {failure["kind"] for failure in failures} == {"refused"}
    assert all(says in failure["reason"] for failure in failures)
