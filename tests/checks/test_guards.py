"""Each trap in which ReFrame lets a broken run pass, sprung on the real command.

Every test has a control: the same run without the fault passes, so a guard that always fails shows too.
"""

import re
from types import SimpleNamespace

import pytest
from site_runs import CHECKS, PLAIN_CHECK, ROOT, outcome, read_cases
from virtqual.checks.sampled import Sampled

from virtqual.job.notes import NotesError

LJ = ("-n", "lammps.*lj")
WARM_UPS = ["warm-up-N", "warm-up-V"]
# Enough to be judged, where the number of pairs is not the subject.
SHORT = {"VIRTQUAL_PAIRS": "0:1"}


def results(site) -> dict[str, str]:
    return {f"{case['display_name']}@{case['partition']}": case["result"] for case in read_cases(site)}


def submitted(site) -> list[str]:
    return site.submitted()


@pytest.mark.parametrize("policy", ["async", "serial"])
def test_control_a_good_run_passes(site, policy):
    done = site.reframe(*LJ, f"--exec-policy={policy}", code=0)
    assert "PASSED" in done.stdout
    assert "WITHIN lammps_loop_time@lj" in done.stdout
    assert set(results(site).values()) == {"pass"}
    # One boot qualifies nothing, and nor does one case of many.
    assert site.session()["qualified"].startswith("no (one boot of the virtual machines")
    # Four pairs are the default, and a later round has no warm-up.
    assert len(submitted(site)) == len(WARM_UPS) + 2 * 4
    listed = site.run("reframe", *CHECKS, "-LC", *LJ, VIRTQUAL_PAIRS="4:5")
    assert "%sample=4N" in listed.stdout
    assert "warm-up" not in listed.stdout


def test_partitions_that_do_not_run_the_same_software_are_refused(site):
    for partition, kernel in (("bare", "Haswell"), ("cloud", "SkylakeX")):
        site.fault(f"coretype.{partition}", kernel)
    done = site.lammps(**SHORT)
    assert done.returncode != 0
    assert "PASSED" not in done.stdout
    assert "not the same software: OPENBLAS_CORETYPE: Haswell on native node" in outcome(done)
    site.fault("coretype.cloud", "Haswell")
    assert site.lammps(**SHORT).returncode == 0


def test_nothing_selected_is_not_passed(site):
    done = site.reframe("-n", "no_such_check")
    assert done.returncode != 0
    assert "PASSED" not in done.stdout
    assert "nothing passed" in outcome(done)


def test_a_check_file_that_cannot_be_imported_stops_the_run_and_nested_ones_are_found(site):
    checks = site.path / "checks"
    checks.mkdir()
    (checks / "broken.py").write_text(PLAIN_CHECK.replace("@rfm", "import no_such_module\n@rfm"))
    nested = checks / "deep/deeper"
    nested.mkdir(parents=True)
    (nested / "good.py").write_text(PLAIN_CHECK)
    done = site.reframe(checks=str(checks))
    assert done.returncode != 0
    assert "PASSED" not in done.stdout
    assert "no_such_module" in outcome(done)
    (checks / "broken.py").unlink()
    done = site.reframe(checks=str(checks))
    assert done.returncode == 0
    assert "Ran 1/1" in done.stdout


def test_a_test_whose_dependency_is_not_there_stops_the_run(site):
    """ReFrame leaves it out with a warning."""
    (site.path / "checks").mkdir()
    file = site.path / "checks/plain.py"
    needy = "    @run_after('init')\n    def set_needs(self):\n        self.depends_on('{}')\n"
    for needs, code in (("misspelt", 1), ("plain", 0)):
        other = PLAIN_CHECK.replace("plain", "needy") + needy.format(needs)
        file.write_text(PLAIN_CHECK + other, encoding="utf-8")
        done = site.reframe(checks=str(file.parent), code=code)
        assert ("Ran 2/2" in done.stdout) == (needs == "plain")
        assert ("test needy depends on misspelt, which is not loaded" in outcome(done)) == (code == 1)


def test_an_unpaired_test_may_have_attributes_of_any_name(site):
    (site.path / "checks").mkdir()
    own = "    case, nodes, sample, feature, slot = 1, 'all', 2, 3, 'left'\n    executable"
    file = site.path / "checks/plain.py"
    file.write_text(PLAIN_CHECK.replace("    executable", own), encoding="utf-8")
    done = site.reframe(checks=str(file.parent), code=0)
    assert "Ran 1/1" in done.stdout
    assert "- plain\n" in site.run("reframe", "-c", str(file), "--system", "testsite", "-L").stdout


@pytest.mark.parametrize(
    "ours",
    [
        "from ..judged import judge\njudge('a.py:a')\n",
        "from virtqual.checks import judged\njudged.judge('a.py:a')\n",
        "import virtqual.checks.judged as j\nj.judge('a.py:a')\n",
    ],
)
def test_a_file_that_makes_tests_and_that_reframe_would_pass_over_stops_the_run(site, ours):
    """ReFrame leaves out, without a word, a file that does not import it."""
    checks = site.path / "checks"
    checks.mkdir()
    (checks / "good.py").write_text(PLAIN_CHECK)
    (checks / "ours.py").write_text(ours)
    done = site.reframe(checks=str(checks))
    assert done.returncode != 0
    assert "ours.py: ReFrame reads only files that import it" in " ".join(outcome(done).split())


def test_what_is_deprecated_is_still_said(site):
    """Where a check uses it: while ReFrame makes a test, it is not looked for who does."""
    (site.path / "checks").mkdir()
    old = "    @run_after('init')\n    def set_old(self):\n        self.variables = {'A': 'b'}\n"
    (site.path / "checks/old.py").write_text(PLAIN_CHECK + old)
    done = site.run("reframe", "-c", str(site.path / "checks"), *CHECKS[2:], "-l", code=0)
    assert re.search(r"old.py:\d+: WARNING: the use of 'variables' is deprecated", done.stderr)


@pytest.mark.parametrize(
    ("partition", "missing"), [("cloud", "no native sample"), ("bare", "no virtual sample")]
)
def test_one_partition_alone_judges_nothing_and_is_not_passed(site, partition, missing):
    """Fault U13: it took its time, judged nothing, and passed."""
    done = site.lammps("--system", f"testsite:{partition}", **SHORT)
    assert done.returncode != 0
    assert f"nothing was judged: this run has {missing} to compare with" in outcome(done)
    assert "0 valid pairs" in outcome(done) or "INVALID" in outcome(done)


@pytest.mark.parametrize(("slow", "code"), [("", 0), ("1.5", 1)])
def test_a_run_without_its_verdict_tests_is_judged_all_the_same(site, slow, code):
    """One judge: which tests were selected does not decide."""
    if slow:
        site.fault("slow.cloud", slow)
    done = site.lammps("--exclude-tag", "verdict", VIRTQUAL_PAIRS="0:5")
    assert done.returncode == code, outcome(done)
    assert ("KVM 6.1.0 is over the overhead budget" in outcome(done)) == bool(slow)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("fault.crash", "exit code"),
        ("fault.cut", "Loop time"),
        ("fault.physics", "total energy at step 0"),
        ("unbound", "not bound as asked"),
    ],
)
def test_a_broken_run_fails_and_skips_its_verdict(site, fault, says):
    """The first warm-up is enough: no sample is submitted after it."""
    site.fault(fault)
    done = site.lammps()
    assert done.returncode == 1, outcome(done)
    assert says in outcome(done)
    assert results(site)["lammps_overhead %problem=lj@cloud"] in ("fail", "skip")
    assert submitted(site) == WARM_UPS[:1]
    (failed,) = site.events("failed")
    assert "warm-up-N" in failed["failure"]["case"]


def test_foreign_load_leaves_the_verdict_open(site):
    site.fault("fault.load")
    done = site.lammps(**SHORT)
    assert done.returncode != 0
    assert "ranks went without a CPU" in " ".join(outcome(done).split())


REFERENCE = """
lammps:
  $index: [$system, problem]
  testsite:
    {problem}:
      lammps_loop_time: [{value}, null, 0.05, s]
"""


@pytest.mark.parametrize(
    ("problem", "value", "says", "verdict"),
    [
        pytest.param("lj", 0.5, "WITHIN lammps_loop_time@lj", ("pass",), id="within"),
        pytest.param("lj", 0.25, "expected 0.25", ("fail_deps", "skip", "fail"), id="missed"),
        pytest.param("ljj", 0.5, "no reference value found", ("fail_deps", "skip", "fail"), id="mistyped"),
    ],
)
def test_native_proves_the_hardware_by_its_absolute_reference(site, problem, value, says, verdict):
    site.add_reference("systems/testsite/lammps.yaml", REFERENCE.format(problem=problem, value=value))
    done = site.lammps(**SHORT)
    assert (done.returncode == 0) == ("pass" in verdict), outcome(done)
    assert says in outcome(done)
    assert results(site)["lammps_overhead %problem=lj@cloud"] in verdict
    # No warm-up is compared with a reference: the first sample misses it.
    assert submitted(site)[:3] == [*WARM_UPS, "0N"]
    assert (len(submitted(site)) == 3) == ("pass" not in verdict)


# A guarded check, whose only value is an expression.
GUARDED = """
    @performance_function("s")
    def value(self):
        return {value}
"""


def test_a_value_that_cannot_be_read_is_not_skipped(site):
    checks = site.path / "checks"
    checks.mkdir()
    (checks / "__init__.py").write_text("")
    (checks / "guarded.py").write_text((ROOT / "checks/guarded.py").read_text())
    head = PLAIN_CHECK.replace("import reframe as rfm", "import reframe as rfm\nfrom .guarded import Guarded")
    head = head.replace("RunOnlyRegressionTest", "RunOnlyRegressionTest, Guarded")
    for name, value in {"good": "1.0", "divided": "1 / 0", "endless": "float('nan')"}.items():
        text = head.replace("plain", name) + GUARDED.format(value=value)
        (checks / f"{name}.py").write_text(text)
    done = site.reframe(checks=str(checks))
    assert done.returncode != 0
    assert results(site) == {"good@bare": "pass", "divided@bare": "fail", "endless@bare": "fail"}
    assert "no value for value" in outcome(done)
    assert re.search("finite|nan", outcome(done))


def test_every_vm_has_the_cpus_of_the_system_file():
    """The second VM of a run may have been started with fewer."""
    processor = SimpleNamespace(num_cpus=2, num_cpus_per_core=1)
    check = SimpleNamespace(
        slot=SimpleNamespace(side="virtual"), current_partition=SimpleNamespace(processor=processor)
    )
    nodes = {name: SimpleNamespace(begin={"cpus_online": cpus}) for name, cpus in (("a", "0-1"), ("b", "0"))}
    with pytest.raises(NotesError, match=r"node b has 1 CPUs online, the system file says .* = 2"):
        Sampled.check_topology(check, SimpleNamespace(nodes=nodes, cores={}))
    nodes["b"].begin["cpus_online"] = "0,1"
    assert Sampled.check_topology(check, SimpleNamespace(nodes=nodes, cores={})) is None
    # Slurm may count cores where the VM shows two threads of each (CPUs=2 ThreadsPerCore=2 in slurm.conf).
    nodes["b"].begin["cpus_online"] = "0-3"
    first, second = frozenset({0, 2}), frozenset({1, 3})
    cores = {"b": {0: first, 1: second, 2: first, 3: second}}
    assert Sampled.check_topology(check, SimpleNamespace(nodes=nodes, cores=cores)) is None
    processor.num_cpus_per_core = 2
    with pytest.raises(NotesError, match="node b has 4 CPUs online"):
        Sampled.check_topology(check, SimpleNamespace(nodes=nodes, cores=cores))
