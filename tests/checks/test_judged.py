"""Checks that know nothing of virtqual, judged: docs/add-a-benchmark.md, run from the page."""

import json
import re
import shutil

import pytest
from site_runs import ROOT, outcome, read_cases, read_runs

from made_programs import write_program

FOREIGN = ROOT / "tests/foreign"
PAGE = (ROOT / "docs/add-a-benchmark.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`([\w./]+)`\n\n```python\n(.*?)```$", PAGE, re.M | re.S))
TEN_LINES = FILES["site/checks/memory.py"]


@pytest.fixture
def own(site):
    """The site with the page's check beside a program for it, and a directory of its own checks."""
    (site.path / "site/checks").mkdir()
    shutil.copytree(FOREIGN, site.path / "apps")
    (site.path / "apps/memory_test.py").write_text(FILES["/apps/checks/memory_test.py"], encoding="utf-8")
    return site


def judged(site, text: str) -> None:
    text = text.replace("/apps/checks/", f"{site.path}/apps/")
    (site.path / "site/checks/memory.py").write_text(text, encoding="utf-8")


def call_judge(site, arguments: str) -> None:
    judged(site, f"import reframe\nfrom virtqual.checks.judged import judge\n\njudge({arguments})\n")


def by_metric(site, check: str, options: str = "", name: str = "triad_bw") -> None:
    call_judge(site, f'"{site.path}/apps/{check}", metrics={{"{name}": "memory_triad"}}{options}')


def reframe(site, *options: str, **env: str):
    return site.reframe(*options, checks=site.path / "site/checks", **env)


def test_ten_lines_make_a_plain_check_a_paired_one(own):
    assert len(TEN_LINES.splitlines()) <= 10
    judged(own, TEN_LINES)
    done = reframe(own, "-n", "^memory_test", code=0)
    assert "WITHIN memory_test_triad_bw@memory_test" in outcome(done)
    runs = read_runs(own)
    assert len(runs) == 8
    order = [f"{run['pair']} {run['side']}" for run in runs[:4]]
    assert order == ["0 native", "0 virtual", "1 virtual", "1 native"]
    for run in runs:
        (result,) = run["results"]
        assert (result["metric"], result["setting"]) == ("memory_test_triad_bw", "memory_test")
        assert result["declared"] == {"unit": "MB/s", "better": "higher", "budget": 1.05, "margin": 0.03}
        assert result["values"] == [pytest.approx(20e3, rel=0.01)]
        # What a session asks of every run.
        assert run["identity"]
        assert run["load"]
        assert run["software"][0]["program"].endswith("/triad.sh")
        assert run["end"] >= run["start"]


def test_it_is_judged_by_a_metric_of_the_references(own):
    by_metric(own, "memory_test.py:memory_test")
    done = reframe(own, "-n", "^memory_test", VIRTQUAL_PAIRS="0:1", code=0)
    assert "WITHIN memory_triad@memory_test" in outcome(done)
    own.fault("slow.cloud", "1.5")
    done = reframe(own, "-n", "^memory_test", VIRTQUAL_PAIRS="0:1", code=1)
    assert "OVER memory_triad@memory_test: virtual is 33.3% slower" in outcome(done)


def test_its_own_sanity_stands(own):
    by_metric(own, "memory_test.py:memory_test")
    own.fault("fault.valid")
    done = reframe(own, "-n", "^memory_test", VIRTQUAL_PAIRS="0:0", code=1)
    assert "Solution Validates" in outcome(done)
    assert read_runs(own) == []
    assert "WITHIN" not in outcome(done)


def test_its_build_parameters_and_late_values_are_its_own(own):
    """The binary is built from the sources beside its own file, once a sample, and is the same each time."""
    by_metric(own, "triad.py:triad")
    done = reframe(own, "-n", r"^triad%.*elements=100000", "-S", "time_limit=3m", VIRTQUAL_PAIRS="0:0")
    assert "(0 failure(s)" in done.stdout, outcome(done)
    runs = read_runs(own)
    assert {run["check"] for run in runs} == {"triad %elements=100000"}
    assert {run["results"][0]["setting"] for run in runs} == {"triad, elements=100000"}
    assert len({run["software"][0]["files"]["binary"]["sha256"] for run in runs}) == 1


def test_a_fixture_builds_its_program_once_a_partition(own):
    by_metric(own, "triad.py:triad_built_once", name="Triad")
    done = reframe(own, "-n", "^triad_built_once%", VIRTQUAL_PAIRS="0:1")
    assert "(0 failure(s)" in done.stdout, outcome(done)
    assert len(re.findall(r"OK.*build_triad ", done.stdout)) == 2
    assert [run["side"] for run in read_runs(own)] == ["native", "virtual", "virtual", "native"]


def test_a_fixture_that_does_not_build_is_no_silence(own):
    """ReFrame skips its cases; the verdict says it."""
    by_metric(own, "triad.py:triad_built_once", name="Triad")
    for source in (own.path / "apps").rglob("*.c"):
        source.write_text("no C", encoding="utf-8")
    done = reframe(own, "-n", "^triad_built_once", code=1)
    # Either side's build may be the first that fails.
    assert re.search(r"Reason: sanity error: (bare|cloud): dependencies failed", done.stdout)
    assert "cc triad.c" in done.stdout
    # Nothing was run, so that no session is kept.
    assert list((own.path / "state/sessions").glob("2*")) == []


def test_patterns_and_names_of_other_systems_give_way(own):
    """Its environment is no stack, which is said; its references are of another machine, and native's."""
    by_metric(own, "triad.py:triad_by_patterns")
    line = ("reframe", "-c", str(own.path / "site/checks"), "--system", "testsite", "-L")
    listed = own.run(*line).stdout
    reason = "no native partition and stack fit its valid_systems.*: triad_by_patterns$"
    assert re.search(reason, listed, re.MULTILINE), listed
    by_metric(own, "triad.py:triad_by_patterns", ', environments=["*"]')
    assert "- triad_by_patterns\n" in own.run(*line).stdout
    done = reframe(own, "-n", "^triad_by_patterns", VIRTQUAL_PAIRS="0:0")
    results = {case["partition"]: case["result"] for case in read_cases(own) if case.get("record")}
    assert "triad_bw" in outcome(done)
    assert results["bare"] == "fail"
    # The reference of another machine, by the name of none, is a million times what this one has.
    assert "failed to meet reference" in outcome(done)


MISTAKES = {
    "CHECK": "name the performance variables that are judged",
    'CHECK, better={"triad_bw": "higher"}': "need `budget`",
    'CHECK, better={"triad_bw": "more"}, budget=1.05, margin=0.03': "key better: 'more' is not 'lower' or",
    'CHECK, better={"triad_bw": "higher"}, budget=0.95, margin=0.03': "0.95 is not a budget or",
    'CHECK, metrics={"triad_bw": "memory_tried"}': "unknown metric 'memory_tried'",
    'CHECK, metrics={"triad": "memory_triad"}': "the check has no performance variable triad",
    'CHECK, metrics={"triad_bw": "osu_latency"}': "osu_latency is in 'us', but the check's value in 'MB/s'",
    '"nowhere.py:memory_test", metrics={"triad_bw": "memory_triad"}': "there is no file",
    'CHECK + "s", metrics={"triad_bw": "memory_triad"}': "has no class memory_tests",
}


@pytest.mark.parametrize(("arguments", "says"), MISTAKES.items(), ids=range(len(MISTAKES)))
def test_a_mistake_in_the_ten_lines_is_named(own, arguments, says):
    call_judge(own, arguments.replace("CHECK", f'"{own.path}/apps/memory_test.py:memory_test"'))
    done = reframe(own, "-n", "^memory_test%", VIRTQUAL_PAIRS="0:0", code=1)
    assert says in " ".join(outcome(done).split()), outcome(done)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("    local = True\n", "it runs on this machine (local)"),
        ("    record = variable(str, value='')\n", "memory_test and the pairing both define record"),
        ("    num_tasks = 0\n", "its number of tasks is that of the free nodes: state one"),
        ("    num_tasks = 2\n    num_tasks_per_node = 1\n", "take 2 nodes: judge(..., nodes=2) says so"),
    ],
)
def test_what_cannot_be_paired_says_why(own, line, says):
    file = own.path / "apps/memory_test.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("    executable", line + "    executable"), encoding="utf-8")
    by_metric(own, "memory_test.py:memory_test")
    done = reframe(own, "-n", "^memory_test%", VIRTQUAL_PAIRS="0:0", code=1)
    assert says in outcome(done)


def hold_nodes(count):
    """Return an environment in which a session holds so many nodes of each side."""
    hosts = {f"host-{k}": [f"cloud-{k}"] for k in range(1, count + 1)}
    extras = {"bare": {}, "cloud": {"nodes_of_hosts": hosts}}
    held = {
        f"FAKE_EXTRAS_{name}": json.dumps({"session_access": [f"--partition={name}"], **more})
        for name, more in extras.items()
    }
    return {"FAKE_NODES": str(count), **held}


def test_in_a_session_of_several_nodes_it_meets_each_of_them(own):
    judged(own, TEN_LINES)
    own.fault("nodes", "2")
    own.qualify("-n", "^memory_test", code=0, **hold_nodes(2))
    runs = own.session()["runs"]
    where = {(run["pair"], run["side"]): run["nodes"][0] for run in runs}
    pairs = {(where[pair, "native"], where[pair, "virtual"]) for pair in range(8)}
    assert len(pairs) == 4
    (verdict,) = own.session()["verdicts"]
    assert verdict["outcome"] == "WITHIN"


def test_its_tasks_are_spread_over_the_nodes_that_are_stated(own):
    by_metric(own, "memory_test.py:memory_test", ", nodes=2")
    own.fault("nodes", "2")
    reframe(own, "-n", "^memory_test", VIRTQUAL_PAIRS="0:1", FAKE_NODES="1", code=1)
    file = own.path / "apps/memory_test.py"
    text = file.read_text(encoding="utf-8").replace("    executable", "    num_tasks = 2\n    executable")
    file.write_text(text, encoding="utf-8")
    own.qualify("-n", "^memory_test", **hold_nodes(2))
    assert {tuple(run["nodes"]) for run in own.session()["runs"]} == {
        ("bare-1", "bare-2"),
        ("cloud-1", "cloud-2"),
    }


def test_options_of_a_job_that_a_step_would_lose_are_refused(own):
    """ReFrame asks by them for GPUs, for instance."""
    file = own.path / "apps/memory_test.py"
    ask = "    @run_after('setup')\n    def ask(self):\n        self.job.options += ['--gres=gpu:1']\n\n"
    text = file.read_text(encoding="utf-8").replace("    @sanity_function", ask + "    @sanity_function")
    file.write_text(text, encoding="utf-8")
    judged(own, TEN_LINES)
    done = own.qualify("-n", "^memory_test", code=4, **hold_nodes(1))
    assert "--gres=gpu:1: a step of the session's job takes no options" in own.words(done)
    done = reframe(own, "-n", "^memory_test", VIRTQUAL_PAIRS="0:1", code=0)


def test_a_parameter_is_named_as_the_check_formats_it(own):
    """Later rounds select the case by this name."""
    line = "    kind = parameter([('a', 1)], fmt=lambda value: value[0])\n    executable"
    file = own.path / "apps/memory_test.py"
    file.write_text(file.read_text("utf-8").replace("    executable", line), encoding="utf-8")
    judged(own, TEN_LINES)
    own.qualify("-n", "^memory_test", code=0)
    assert {run["check"] for run in own.session()["runs"]} == {"memory_test %kind=a"}


GPU_PAGE = (ROOT / "docs/gpu.md").read_text(encoding="utf-8")
#: Own text in the format of the programs, which were not at hand.
GPU_OUTPUTS = {
    "nvbandwidth": "Running host_to_device_memcpy_ce.\n"
    "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n           0\n 0     55.3\n\n"
    "SUM host_to_device_memcpy_ce 55.3",
    "all_reduce_perf": "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 220.9 \n#",
}


def test_the_checks_of_the_page_about_gpus_read_both_formats(own):
    for name, output in GPU_OUTPUTS.items():
        write_program(own.path / "programs" / name, f"#!/bin/sh\ncat << 'END'\n{output}\nEND\n")
    (text,) = re.findall(r"^`site/checks/gpu.py`\n\n```python\n(.*?)```$", GPU_PAGE, re.M | re.S)
    (own.path / "site/checks/gpu.py").write_text(text, encoding="utf-8")
    env = {"FAKE_FEATURES_bare": "gpu", "FAKE_FEATURES_cloud": "gpu"}
    env["PATH"] = f"{own.path}/programs:{own.env['PATH']}"
    reframe(own, "--mode=full", "-n", "^(nvbandwidth|nccl)", VIRTQUAL_PAIRS="0:0", **env)
    values = {run["results"][0]["metric"]: run["results"][0]["values"] for run in read_runs(own)}
    assert values == {"nvbandwidth_copy_rate": [55.3], "nccl_allreduce_bus_rate": [220.9]}
