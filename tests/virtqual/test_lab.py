"""The lab of `ci/evidence`: which experiments are done, what is old, and the pages that the results give."""

import gzip
import hashlib
import json
import subprocess
import sys
import threading

import pytest

from virtqual import paths
from virtqual.errors import UsageError

LAB = paths.root() / "benchmarks/lab"
sys.path.insert(0, str(LAB))
import logs  # noqa: E402
import run as lab  # noqa: E402
import tables  # noqa: E402
from experiments import Experiment, load_experiments  # noqa: E402

METRIC = {"outcome": "WITHIN", "log": 0.1, "sd_of_a_pair": 0.05, "over_from": 0.2, "pairs": 4}
METRIC |= {"native": 4.0, "virtual": 6.0, "unit": "us", "seconds_a_run": [1.5, 2.0]}
NOTHING = {"name": "nothing", "class": "same build", "answer": "WITHIN", "exit_code": [0], "over": []}


def make_line(experiment, number=1, **changes):
    line = {
        "experiment": experiment.name,
        "number": number,
        "definition": experiment.digest(),
        "commit": "0" * 40,
        "date": "2026-11-25",
        "machine": {"cpu": "a processor", "cores": 2, "kernel": "6.1"},
        "noise": {"steal": 0.01, "load": 1.5},
        "seconds": 400.0,
        "exit_code": 0,
        "metrics": {"fork_time@one core": METRIC},
    }
    return line | changes


def test_the_committed_results_give_the_committed_pages():
    """Edits between the marks of a page are lost: edit what makes the tables; `ci/evidence --page` writes."""
    lines = lab.read_lines(lab.RESULTS)
    made = tables.make_tables(tables.match_results(load_experiments(), lines), logs.judge_all(lines))
    for name in lab.PAGES:
        text = (paths.root() / name).read_text(encoding="utf-8")
        assert tables.fill_page(text, made, name) == text, f"{name}: run `ci/evidence --page`"
        edited = text.replace("| class |", "| kind |")
        assert tables.fill_page(edited, made, name) == text != edited


def test_a_place_for_a_table_that_is_not_there_is_named():
    with pytest.raises(UsageError, match=r"a\.md: there is no table 'none'"):
        tables.fill_page("<!-- ci/evidence: none --><!-- end of none -->", {}, "a.md")


@pytest.mark.parametrize(
    ("change", "is_expected"),
    [
        ({}, True),
        ({"exit_code": 3}, False),
        ({"metrics": {"fork_time@one core": METRIC | {"outcome": "OVER"}}}, False),
    ],
)
def test_a_result_that_is_not_as_expected_stays_and_comes_first(change, is_expected):
    experiment = Experiment(**NOTHING)
    results = tables.match_results([experiment], [make_line(experiment, **change)])
    made = tables.make_tables(results)
    assert len(made["differed"].rows) == (not is_expected)
    assert next(iter(made)) == "differed"


def test_a_session_that_only_slow_runs_made_over_counts_as_over():
    experiment = Experiment(**NOTHING)
    lines = [make_line(experiment, outcome="OVER", exit_code=1), make_line(experiment, 2, outcome="WITHIN")]
    (row,) = tables.make_tables(tables.match_results([experiment], lines))["same build"].entries
    assert row["OVER"].startswith("1 ")
    assert row["metrics OVER"] == "0 of 2"


def test_slow_runs_of_a_planted_fault_are_no_earlier_runs_of_another_experiment():
    build = NOTHING | {"class": "history of builds"}
    nothing, fault, *builds = (
        lab.choose_state(Experiment(**fields))
        for fields in (NOTHING, NOTHING | {"name": "a fault"}, build, build | {"name": "build 2"})
    )
    assert len({nothing, fault, *builds}) == 3


def test_the_program_of_one_virtual_run_in_a_period_crashes(monkeypatch):
    """It gets the signal until it is gone, since scancel does not say whether it has had it."""
    ended, runs, signals = threading.Event(), [], []

    def list_runs():
        # Each run is there for three looks, and its program for the last two.
        runs.append(f"1.{len(runs) // 3}")
        (ended.set if len(runs) == 75 else ended.clear)()
        return runs[-1:]

    monkeypatch.setattr(lab.planted, "SQUEUE_INTERVAL_S", 0)
    monkeypatch.setattr(lab.planted, "list_virtual_runs", list_runs)
    monkeypatch.setattr(
        lab.planted, "list_virtual_programs", lambda: [f"{runs[-1]}0"] if len(runs) % 3 != 1 else []
    )
    monkeypatch.setattr(lab.planted.subprocess, "run", lambda line, **_: signals.append(line[-1]))
    lab.planted.crash_some_programs(10)(ended)
    assert signals == ["1.40", "1.40", "1.140", "1.140", "1.240", "1.240"]


def test_steps_of_programs_are_told_from_those_of_their_job_scripts(monkeypatch):
    answer = "1.batch batch\n1.2 rfm_storage\n1.3 1.1-1\n1.4 a name\n"
    done = subprocess.CompletedProcess("squeue", 0, answer)
    monkeypatch.setattr(lab.planted.subprocess, "run", lambda *_, **__: done)
    assert lab.planted.list_virtual_runs() == ["1.2"]
    assert lab.planted.list_virtual_programs() == ["1.3"]


def test_what_changed_since_is_old_and_is_run_again(monkeypatch, tmp_path):
    before, now = Experiment(**NOTHING), Experiment(**NOTHING | {"exit_code": [0, 3]})
    (result,) = tables.match_results([now], [make_line(before)])
    assert (len(result.lines), len(result.old_lines)) == (0, 1)
    faulty = Experiment(**NOTHING, fault=["stop_guests", 0.25])
    digest = faulty.digest()
    monkeypatch.setattr(lab.planted, "stop_guests", lambda share: None)
    assert faulty.digest() != digest

    out = tmp_path / "results.jsonl"
    out.write_text(json.dumps(make_line(before)) + "\n")
    monkeypatch.setattr(lab, "run_session", make_line)
    lab.run_experiments([before], out)
    assert len(lab.read_lines(out)) == 1
    lab.run_experiments([now], out)
    assert [line["definition"] for line in lab.read_lines(out)] == [before.digest(), now.digest()]


def test_it_goes_on_after_a_stop_in_turns(monkeypatch, tmp_path):
    experiments = [Experiment(**NOTHING | {"name": name, "sessions": 2}) for name in "ab"]
    out, runs = tmp_path / "results.jsonl", []

    def stop_at_third(experiment, number):
        runs.append((experiment.name, number))
        if len(runs) == 3:
            raise KeyboardInterrupt
        return make_line(experiment, number)

    monkeypatch.setattr(lab, "run_session", stop_at_third)
    with pytest.raises(KeyboardInterrupt):
        lab.run_experiments(experiments, out)
    lab.run_experiments(experiments, out)
    assert runs == [("a", 1), ("b", 1), ("a", 2), ("a", 2), ("b", 2)]


def test_a_session_that_was_stopped_stays_in_the_results(monkeypatch, tmp_path):
    """However it ends: a session whose result one does not like must not be lost."""
    experiment, out = Experiment(**NOTHING), tmp_path / "results.jsonl"

    def stop(experiment, number):
        with lab.noting_a_stop({"experiment": experiment.name, "number": number}):
            raise KeyboardInterrupt

    monkeypatch.setattr(lab, "run_session", stop)
    with pytest.raises(KeyboardInterrupt):
        lab.run_experiments([experiment], out)
    monkeypatch.setattr(lab, "run_session", make_line)
    lab.run_experiments([experiment], out)
    lines = lab.read_lines(out)
    assert [line.get("is_stopped") for line in lines] == [True, None]
    (result,) = tables.match_results([experiment], lines)
    assert (result.done, result.stopped) == (1, 1)
    assert "1 of 1, 1 stopped" in tables.list_experiments([result])
    lab.run_experiments([experiment], out)
    assert len(lab.read_lines(out)) == 2


def test_a_session_that_the_cluster_ended_does_not_count(monkeypatch):
    codes = iter([5, 5, 0])
    monkeypatch.setattr(lab, "run_session", lambda e, n: make_line(e, n, exit_code=next(codes), why="lost"))
    line = lab.run_until_it_counts(Experiment(**NOTHING), 1)
    assert (line["exit_code"], line["ended_by_the_cluster"]) == (0, ["lost", "lost"])


def test_tests_are_counted_by_name_with_their_cases(monkeypatch):
    """A test that is skipped is not done, and one that fails is not as expected."""
    kind = NOTHING | {"class": "harness lies"}
    passed = "tests/virtqual/test_small_parts.py::test_a_job_that_did_not_end"
    case = "tests/virtqual/preflight/test_rules.py::test_the_rule_finds_its_load[steal]"
    experiments = [Experiment(**kind | {"name": test, "test": test}) for test in (passed, case)]
    lines = list(lab.run_tests(experiments))
    made = tables.make_tables(tables.match_results(experiments, lines))
    assert [row[3] for row in made["differed"].rows] == []
    assert [(line["experiment"], line["failed"]) for line in lines] == [(case, 0), (passed, 0)]
    assert lines[0]["cases"] == 1
    before = tables.match_results(experiments, [lines[0], lines[1] | {"test": "another"}])
    assert [result.has_changed_test for result in before] == [True, False]
    assert [result.has_changed_test for result in tables.match_results(experiments, lines)] == [False, False]
    assert experiments[0].is_as_expected(lines[1])
    assert not experiments[0].is_as_expected(lines[1] | {"failed": 1})


@pytest.mark.parametrize("failed", [0, 1])
def test_a_test_that_failed_is_run_again_and_its_line_stays(monkeypatch, tmp_path, failed):
    experiment = Experiment(**NOTHING, test="tests/virtqual/test_lab.py::test_bounds_are_exact")
    line = make_line(experiment, test=experiment.digest_of_test(), cases=1, failed=failed)
    out, runs = tmp_path / "results.jsonl", []
    out.write_text(json.dumps(line) + "\n")

    def run_tests(chosen):
        runs.append(chosen)
        return [line | {"failed": 0}] * failed

    monkeypatch.setattr(lab, "run_tests", run_tests)
    lab.run_experiments([experiment], out)
    assert runs == [[experiment] * failed]
    (result,) = tables.match_results([experiment], lab.read_lines(out))
    assert (len(result.lines), len(result.differing)) == (1 + failed, failed)


def test_bounds_are_exact():
    """With no error in n sessions the bound is 1 - 0.05^(1/n)."""
    assert tables.bound_rate(0, 60) == pytest.approx(1 - 0.05 ** (1 / 60))
    assert tables.bound_rate(3, 3) == 1


def test_the_power_is_that_of_the_sessions_own_noise():
    dose = Experiment(**NOTHING | {"class": "dose", "dose": "fork_time", "over": None})
    metrics = [METRIC | {"log": log, "outcome": "OVER" if log > 0.2 else "UNDECIDED"} for log in (0.15, 0.25)]
    lines = [make_line(dose, k, metrics={"fork_time@one core": each}) for k, each in enumerate(metrics, 1)]
    (row,) = tables.make_tables(tables.match_results([dose], lines))["doses"].rows
    # The mean overhead lies where OVER begins.
    assert row[6:] == ["1 of 2", "1% to 99%", "50%", "yes"]


def test_the_same_build_says_how_far_it_is_from_over_and_what_a_dose_should_show():
    same = Experiment(**NOTHING | {"name": "same build"})
    dose = Experiment(**NOTHING | {"class": "dose", "dose": "fork_time", "fault": ["limit_vcpus", 0.2]})
    logs = (0.0, 0.2)
    metrics = [METRIC | {"log": log, "within_below": 0.5 - log} for log in logs]
    lines = [make_line(same, k, metrics={"fork_time@x": metric}) for k, metric in enumerate(metrics)]
    made = tables.make_tables(tables.match_results([same, dose], [*lines, make_line(dose)]))
    # exp(0) to exp(0.2); exp(0.3); exp(0.2); the variance 0.02 less that of four pairs of SD 5 %.
    factors = ["1 to 1.22", "1.35", "1.22", "4", "5.0%", "13.9%"]
    assert made["margins"].rows == [["fork_time, x", "2", "4", "6", "us", "1.5, 2", *factors]]
    assert made["doses"].rows[0][4] == "1.38"


def test_slowdowns_that_were_missed_are_counted_and_doses_have_none_to_find():
    fault = Experiment(**NOTHING | {"class": "hypervisor slow", "exit_code": [1]})
    dose = Experiment(**NOTHING | {"name": "dose", "class": "dose", "exit_code": [0, 1, 3]})
    lines = [make_line(fault, k, exit_code=code) for k, code in enumerate((0, 1, 1))]
    table = tables.make_tables(tables.match_results([fault, dose], [*lines, make_line(dose)]))["differed"]
    assert "3 sessions had to find a slowdown: 2 found it, 1 were WITHIN." in table.text


def test_sessions_that_had_too_few_boots_to_call_a_metric_over_are_counted():
    few = Experiment(**NOTHING | {"qualify": ["--max-pairs", "4"]})
    many = Experiment(**NOTHING | {"name": "many"})
    lines = [make_line(few), make_line(few, 2), make_line(many)]
    table = tables.make_tables(tables.match_results([few, many], lines))["same build"]
    assert "0 (at most 95%) of 1 sessions without a limit of pairs were OVER" in table.text
    assert "2 more sessions had 4 pairs at most" in table.text
    # Sessions of two boots cannot be OVER, and have no bound of how often they are.
    assert [row["OVER"] for row in table.entries] == [0, "0 (at most 95%)"]


def test_a_result_that_was_not_as_expected_stays_when_its_experiment_changes():
    experiment = Experiment(**NOTHING | {"class": "hypervisor slow"})
    line = make_line(experiment, exit_code=4) | {"definition": "another"}
    table = tables.make_tables(tables.match_results([experiment], [line]))["differed"]
    assert "1 of 1 of these sessions were not as expected" in table.text
    assert table.rows[0][4].endswith(", old")
    later = make_line(experiment, 2, exit_code=experiment.exit_code[0])
    for lines, is_mended in (([line], False), ([line, later], True)):
        (row,) = tables.make_tables(tables.match_results([experiment], lines))["differed"].rows
        assert row[3].endswith("; as expected since") == is_mended


def test_the_page_of_html_has_all_tables_and_no_script():
    experiment = Experiment(**NOTHING | {"name": "<script>nothing"})
    html = tables.render_html(tables.make_tables(tables.match_results([experiment], [make_line(experiment)])))
    assert "&lt;script&gt;nothing" in html
    assert "<script" not in html


@pytest.fixture
def example(tmp_path):
    """A session's directory, and the line of its result."""
    name, log = "20261129-120000-s", gzip.decompress((paths.examples() / "over.jsonl.gz").read_bytes())
    directory = tmp_path / name
    directory.mkdir()
    (directory / "log.jsonl").write_bytes(log)
    line = {"session": name, "log": hashlib.sha256(log).hexdigest(), "outcome": "OVER", "exit_code": 1}
    return directory, line


def test_a_log_that_is_kept_is_judged_again(example, tmp_path):
    directory, line = example
    assert logs.keep(directory, tmp_path / "logs")
    assert list(logs.find_problems([line], tmp_path / "logs")) == []
    (kept,) = logs.judge_all([line, {"experiment": "a test"}], tmp_path / "logs")
    assert (kept.outcome, kept.exit_code, kept.is_as_recorded) == ("OVER", 1, True)
    (kept,) = logs.judge_all([line | {"outcome": "WITHIN", "exit_code": 0}], tmp_path / "logs")
    assert not kept.is_as_recorded


def test_a_log_that_is_not_that_of_its_result_is_named(example, tmp_path):
    directory, line = example
    logs.keep(directory, tmp_path / "logs")
    (problem,) = logs.find_problems([line | {"log": "0" * 64}], tmp_path / "logs")
    assert problem.endswith("s.jsonl.gz: its SHA-256 is not the one in the results")
    (problem,) = logs.find_problems([], tmp_path / "logs")
    assert problem.endswith("no result is of this session")


def test_logs_are_kept_as_long_as_there_is_room(example, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(logs, "MAX_LOGS_BYTES", 1000)
    assert not logs.keep(example[0], tmp_path / "logs")
    assert "is not kept" in capsys.readouterr().out
    assert not (tmp_path / "logs").exists()


def test_the_committed_logs_are_those_of_their_results():
    assert list(logs.find_problems(lab.read_lines(lab.RESULTS))) == []
    assert sum(file.stat().st_size for file in logs.LOGS.glob("*.gz")) <= logs.MAX_LOGS_BYTES


@pytest.mark.parametrize(("out", "is_kept"), [("results.jsonl", True), ("trial.jsonl", False)])
def test_a_session_of_a_trial_leaves_no_log(example, tmp_path, monkeypatch, out, is_kept):
    experiment = Experiment(**NOTHING, sessions=1, qualify=["-n", "lj"])
    kept = []
    monkeypatch.setattr(logs, "keep", kept.append)
    monkeypatch.setattr(lab, "RESULTS", tmp_path / "results.jsonl")
    monkeypatch.setattr(lab, "run_until_it_counts", lambda experiment, number: {"session": "s1"})
    lab.run_experiments([experiment], tmp_path / out)
    assert [path.name for path in kept] == ["s1"] * is_kept
    assert lab.read_lines(tmp_path / out) == [{"session": "s1"}]
