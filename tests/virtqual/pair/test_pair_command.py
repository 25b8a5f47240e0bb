"""`virtqual pair`: two commands are run in turns, judged, and gone on with."""

import csv
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from calling import call
from planted_commands import ALLOWED, METRIC, is_running, write_program
from virtqual.pair.table import first_order
from virtqual.session.measured import COLUMNS
from virtqual.verdict.alternation import list_standard_order

#: Values that vary by some 0.3 %, the first for the warm-up.
QUIET = (100.0, 100.2, 99.7, 100.1, 99.9, 100.3, 99.8, 100.0, 100.4, 99.6, 100.1, 99.9, 100.2, 99.8, 100.0)


def pair(*words, code=None, **env):
    return call("pair", *words, *ALLOWED, "--csv", "it.csv", code=code, **env)


def slower(percent):
    return tuple(round(value * (1 - percent / 100), 3) for value in QUIET[1:] + QUIET[:1])


def read_rows(file="it.csv"):
    return list(csv.DictReader(Path(file).read_text("utf-8").splitlines()))


def verdict_of(done):
    """Return the lines of --json: those of series, and that of the session."""
    *series, session = [json.loads(line) for line in done.stdout.splitlines()]
    return series, session


def start(*words, stdin=subprocess.DEVNULL):
    """Start the command as a program of its own."""
    code = "import sys; from virtqual.cli import app; sys.argv[0] = 'virtqual'; app()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "pair", *words],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def wait_for_pause(process, directory):
    """Wait until a planted run pauses; the command must not end before."""
    deadline = time.monotonic() + 60
    while not (directory / "paused").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_the_same_values_are_within(plant):
    done = pair(plant("a", *QUIET), plant("b", *slower(0)), *METRIC, code=0)
    assert "WITHIN" in done.stdout
    assert "pair 0   reference 100.2, then candidate" in done.stderr
    assert "pair 1   candidate" in done.stderr, "the candidate runs first in pair 1"
    rows = read_rows()
    assert tuple(rows[0]) == COLUMNS
    sides = "".join("NV"[row["side"] == "candidate"] for row in rows)
    first = sides[::2]
    assert first == list_standard_order(0, len(first) - 1)
    assert {row["value"] for row in rows[:2]} == {"100.2", "99.7"}, "the warm-up is not kept"
    assert json.loads(Path("it.json").read_text("utf-8"))["budget"] == 0.05


def test_the_order_is_that_of_sessions():
    assert first_order() == "NV"


def test_a_large_slowdown_is_over(plant):
    done = pair(plant("a", *QUIET), plant("b", *slower(12)), *METRIC, "--json", code=1)
    (series,), session = verdict_of(done)
    assert (series["outcome"], session["outcome"]) == ("OVER", "OVER")
    assert series["overhead"]["ratio"] == pytest.approx(0.88, abs=0.01)


def test_lower_is_better_for_a_time(plant):
    words = ("--metric", r"Triad: +(\S+)", "--unit", "s")
    pair(plant("a", *QUIET), plant("b", *slower(12)), *words, code=0)
    assert read_rows()[0]["better"] == "lower"


def test_two_pairs_never_pass(plant):
    words = (*METRIC, "--budget", "40%", "--margin", "30%", "--csv", "it.csv")
    done = call("pair", plant("a", *QUIET), plant("b", *slower(0)), *words, "--max-runs", 2, code=3)
    assert len(read_rows()) == 4
    assert "To go on: virtqual pair --resume it.csv" in done.stdout
    call("pair", "--resume", "it.csv", code=0)
    assert len(read_rows()) == 8


def test_judge_gives_the_same_numbers(plant):
    done = pair(plant("a", *QUIET), plant("b", *slower(2)), *METRIC, "--json", code=0)
    (series,), _ = verdict_of(done)
    again = call("judge", "it.csv", *ALLOWED, "--json")
    (judged,), _ = verdict_of(again)
    for key in ("overhead", "pairs", "spread", "native", "virtual", "limit", "margin"):
        assert judged[key] == series[key]


def test_runs_that_fail_or_say_nothing_are_lost(plant):
    a = plant("a", 100, 100.1, "fail", 99.9, 100.2, 100, 100.1, 99.9, 100)
    b = plant("b", 100, 99.9, 100.1, "silent", 100, "kill", 99.8, 100.1, 100)
    done = pair(a, b, *METRIC, "--json")
    (series,), session = verdict_of(done)
    reasons = {(run["side"], run["reason"]) for run in session["slow_runs"]["lost"]}
    assert ("native", "exit code 3") in reasons
    assert ("virtual", "ended by SIGSEGV") in reasons or ("virtual", "exit code 139 (SIGSEGV)") in reasons
    assert any("no match of" in reason for _, reason in reasons)
    assert session["slow_runs"]["virtual_lost"] == 2
    assert session["slow_runs"]["native_lost"] == 1
    assert session["outcome"] == "UNDECIDED", "a candidate that lost more runs does not pass"
    assert "out of memory" in done.stderr
    lost = [row for row in read_rows() if row["value"] == "nan"]
    assert len(lost) == 3
    again = call("judge", "it.csv", *ALLOWED, "--json")
    _, judged = verdict_of(again)
    assert judged["slow_runs"]["virtual_lost"] == 2
    assert series["pairs"] <= 18


def test_a_hanging_run_is_ended_with_all_its_processes(plant, tmp_path):
    began = time.monotonic()
    a, b = plant("a", *QUIET), plant("b", 100, 100, "hang", 100)
    done = pair(a, b, *METRIC, "--timeout", "0.5", "--max-runs", "4", "--json")
    assert time.monotonic() - began < 40
    _, session = verdict_of(done)
    assert [run["reason"] for run in session["slow_runs"]["lost"]] == ["no end after 0.5 s"]
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 3
    assert not any(map(is_running, pids)), "its child that ignores SIGTERM, and one that left its session"


def test_ignore_failure_takes_the_value_of_a_run_that_fails(plant, tmp_path):
    write_program(tmp_path / "failing", "#!/bin/sh\n./program $1; exit 1\n")
    plant("a", *QUIET)
    plant("b", *slower(0))
    pair("./failing a", "./failing b", *METRIC, code=5)
    assert not [*tmp_path.glob("it.*")], "the next attempt finds no files in its way"
    pair("./failing a", "./failing b", *METRIC, "--ignore-failure", code=0)


def test_a_warm_up_that_is_lost_counts_and_is_tried_again(plant):
    done = pair(
        plant("a", *QUIET), plant("b", "fail", *slower(0)), *METRIC, "--json", "--max-runs", 4, code=3
    )
    _, session = verdict_of(done)
    assert session["slow_runs"]["virtual_lost"] == 1
    rows = read_rows()
    assert [(row["pair"], row["side"], row["value"]) for row in rows[:1]] == [("0", "candidate", "nan")]
    assert [row["pair"] for row in rows[1:]].count("0") == 0


def test_a_command_that_never_works_ends_it_with_the_last_lines(plant):
    done = pair("./nowhere", plant("b", 100), *METRIC, code=5)
    assert "exit code 127 (command not found)" in done.stderr
    assert any(line.startswith("    ") and "nowhere" in line for line in done.stderr.splitlines())


def test_a_pattern_that_is_not_found_ends_it_with_the_closest_line(plant):
    words = ("--metric", r"Triad rate: +(\S+)", "--unit", "MB/s")
    done = pair(plant("a", 100), plant("b", 100), *words, code=2)
    assert "Triad rate" in done.stderr
    assert "Triad: 100 MB/s" in done.stderr


def test_values_on_standard_error_are_found(plant):
    words = ("--metric", r"Copy: +(\S+)", "--unit", "MB/s")
    pair(plant("a", *QUIET), plant("b", *slower(0)), *words, code=0)


def test_several_metrics_are_judged_together(plant):
    words = ("--metric", r"Copy: +(\S+)", "--metric", r"triad=Triad: +(\S+)", "--unit", "MB/s")
    done = pair(plant("a", *QUIET), plant("b", *slower(0)), *words, "--json", code=0)
    series, _ = verdict_of(done)
    assert [one["metric"] for one in series] == ["Copy", "triad"]


def test_wall_time_is_taken_without_a_metric(plant):
    done = pair("sleep 0.02", "sleep 0.06", "--max-runs", 2)
    assert "wall time" in done.stdout
    assert all(float(row["value"]) > 0.02 for row in read_rows())
    assert {(row["unit"], row["better"]) for row in read_rows()} == {("s", "lower")}
    assert "with the start of its shell and of ssh" in " ".join(done.stdout.split())


def test_commands_do_not_read_the_standard_input(plant, tmp_path):
    (tmp_path / "keys").write_text("typed\n" * 9)
    words = [f"read key && exit 9; {plant(name, *QUIET)}" for name in "ab"]
    with (tmp_path / "keys").open("rb") as keys:
        process = start(*words, *METRIC, *ALLOWED, "--csv", "it.csv", stdin=keys)
        _, stderr = process.communicate(timeout=60)
        assert keys.read() == b"typed\n" * 9
    assert process.returncode == 0, stderr


def test_prepare_runs_before_each_run_and_is_not_timed(plant, tmp_path):
    words = ("--prepare", "echo a >> prepared; sleep 0.05", "--prepare", "echo b >> prepared")
    pair("sleep 0.02", "sleep 0.02", *words, "--max-runs", 2)
    assert sorted((tmp_path / "prepared").read_text().split()) == ["a"] * 3 + ["b"] * 3
    assert all(float(row["end"]) > float(row["start"]) for row in read_rows())


def test_a_prepare_that_fails_ends_it(plant):
    done = pair(plant("a", 100), plant("b", 100), *METRIC, "--prepare", "echo no space >&2; exit 1", code=5)
    assert "--prepare" in done.stderr
    assert "no space" in done.stderr


def test_ctrl_c_keeps_what_there_is_and_resume_goes_on(plant, tmp_path):
    a, b = plant("a", *QUIET), plant("b", *slower(0)[:4], "pause", *slower(0)[4:])
    process = start(a, b, *METRIC, *ALLOWED, "--csv", "it.csv", "--min-runs", "8")
    wait_for_pause(process, tmp_path)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "Interrupted" in stdout
    assert "virtqual pair --resume it.csv" in stdout
    rows = read_rows()
    assert len(rows) == 6, "the run without its peer is not kept"
    done = call("pair", "--resume", "it.csv", "--min-runs", 8, code=0)
    assert read_rows()[:6] == rows
    assert len(read_rows()) == 16
    assert "warm-up reference" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_are_like_ctrl_c(plant, tmp_path, number):
    a, b = plant("a", *QUIET), plant("b", *slower(0)[:3], "pause", *slower(0)[3:])
    process = start(a, b, *METRIC, *ALLOWED, "--csv", "it.csv")
    wait_for_pause(process, tmp_path)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert len(read_rows()) == 4


def test_kill_9_loses_only_the_running_pair(plant, tmp_path):
    a, b = plant("a", *QUIET), plant("b", *slower(0)[:4], "pause", *slower(0)[4:])
    process = start(a, b, *METRIC, *ALLOWED, "--csv", "it.csv", "--min-runs", "8")
    wait_for_pause(process, tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    rows = read_rows()
    assert len(rows) == 6
    # What a crash of the whole machine may leave.
    with Path("it.csv").open("a", encoding="utf-8") as file:
        file.write("it,Triad,as run,,MB/s,hig")
    call("pair", "--resume", "it.csv", "--min-runs", 8, code=0)
    assert read_rows()[:6] == rows
    assert [row["pair"] for row in read_rows()] == [str(number) for number in range(8) for _ in "NV"]


def test_a_measurement_that_is_complete_is_only_shown(plant):
    pair(plant("a", *QUIET), plant("b", *slower(0)), *METRIC, code=0)
    rows = read_rows()
    done = call("pair", "--resume", "it.csv", code=0)
    assert "WITHIN" in done.stdout
    assert "nothing was run: the measurement is complete" in done.stderr
    assert read_rows() == rows


def test_the_same_command_line_resumes_and_another_is_refused(plant):
    a, b = plant("a", *QUIET), plant("b", *slower(0))
    pair(a, b, *METRIC, "--max-runs", 2, code=3)
    call("pair", a, "true", "--resume", "it.csv", code=2)
    done = call("pair", a, b, *METRIC, "--budget", "9%", "--resume", "it.csv", code=2)
    assert "--budget: 5% in it.json, and 9% here; leave it out" in done.stderr
    call("pair", a, b, *METRIC, *ALLOWED, "--resume", "it.csv", code=0)


@pytest.mark.parametrize("notes", [(), ("--note", "", "")], ids=["plain", "notes"])
def test_two_cannot_go_on_with_one_file(plant, tmp_path, notes):
    a, b = plant("a", *QUIET), plant("b", *slower(0)[:3], "pause", *slower(0)[3:])
    process = start(a, b, *METRIC, *ALLOWED, "--csv", "it.csv", *notes)
    try:
        wait_for_pause(process, tmp_path)
        done = call("pair", "--resume", "it.csv", code=2)
        assert "another virtqual pair" in done.stderr
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def test_a_lost_run_is_kept_when_its_pair_is_interrupted(plant, tmp_path):
    # Pair 1 begins with the candidate, which fails; the reference then pauses.
    a, b = plant("a", 100, 100, "pause", 100), plant("b", 100, 100, "fail", 100)
    process = start(a, b, *METRIC, *ALLOWED, "--csv", "it.csv")
    wait_for_pause(process, tmp_path)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert [(row["pair"], row["side"], row["value"]) for row in read_rows()[2:]] == [
        ("1", "candidate", "nan")
    ]
    done = call("pair", "--resume", "it.csv", "--max-runs", 4, "--json")
    _, session = verdict_of(done)
    assert [(run["pair"], run["reason"]) for run in session["slow_runs"]["lost"]] == [(1, "exit code 3")]


def test_the_report_has_the_commands_and_what_cannot_be_told_apart(plant, tmp_path):
    a, b = plant("a", *QUIET), plant("b", *slower(0))
    pair(a, b, *METRIC, "-o", "it.md", "--names", "bm1", "vm1", code=0)
    text = (tmp_path / "it.md").read_text()
    for part in ("WITHIN", "bm1", "vm1", a.removeprefix("./"), "cannot tell"):
        assert part in text
    call("pair", "--resume", "it.csv", "-o", "it.html", code=0)
    assert "vm1" in (tmp_path / "it.html").read_text()
    done = call("pair", "--resume", "it.csv", "-o", "it.pdf", code=2)
    assert ".html" in done.stderr


def test_resume_writes_the_report_again(plant, tmp_path):
    a, b = plant("a", *QUIET), plant("b", *slower(0)[:4], "pause", *slower(0)[4:])
    process = start(a, b, *METRIC, *ALLOWED, "--csv", "it.csv", "-o", "it.html")
    wait_for_pause(process, tmp_path)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    text = (tmp_path / "it.html").read_text()
    assert "Interrupted. To go on: virtqual pair --resume it.csv" in text
    assert "Exit code 130: interrupted" in text
    done = call("pair", "--resume", "it.csv", code=0)
    assert "report: it.html" in done.stdout
    text = (tmp_path / "it.html").read_text()
    assert "WITHIN" in text
    assert "nterrupted" not in text


def test_the_report_of_a_measurement_that_an_error_ended_says_so(plant):
    prepare = "echo >> prepared; [ $(wc -l < prepared) -lt 10 ]"
    done = pair(
        plant("a", *QUIET), plant("b", *slower(2)), *METRIC, "--prepare", prepare, "-o", "it.html", code=5
    )
    assert "--prepare" in done.stderr
    text = Path("it.html").read_text("utf-8")
    assert "Exit code 5: the infrastructure failed" in text
    assert "An error ended it. To go on: virtqual pair --resume it.csv" in text


def test_a_report_is_named_after_the_sides_or_the_commands(plant, tmp_path):
    a, b = plant("a", *QUIET), plant("b", *slower(0))
    pair(a, b, *METRIC, "-o", "it.md", code=0)
    text = (tmp_path / "it.md").read_text()
    assert text.startswith("# ./program b against ./program a\n")
    assert "--note" not in text
    call("pair", a, b, *METRIC, *ALLOWED, "--names", "bm1", "vm1", "-o", "two.md", code=0)
    assert (tmp_path / "two.md").read_text().startswith("# vm1 against bm1\n")


def test_a_metric_without_a_setting_is_shown_by_its_name(plant):
    done = pair(plant("a", *QUIET), plant("b", *slower(12)), *METRIC, "-o", "it.md", "--max-runs", 2)
    shown = done.stdout + Path("it.md").read_text("utf-8")
    assert "as run " not in shown
    assert "@" not in shown
    assert "Triad :" not in shown
    rows = read_rows()
    assert {row["setting"] for row in rows} == {"as run"}, "the column must not be empty"
    call("pair", "--resume", "it.csv", "--max-runs", 4)
    assert {row["setting"] for row in read_rows()} == {"as run"}
    assert len(read_rows()) > len(rows)


def test_advice_against_noise_is_for_commands(plant):
    noise = random.Random(4)
    values = [round(noise.gauss(100, 20), 1) for _ in range(45)]
    done = pair(plant("a", *values), plant("b", *values[22:]), *METRIC, code=3)
    text = " ".join(done.stdout.split())
    assert "a quieter machine, longer runs, or a larger margin" in text
    assert "propose" not in text


def test_a_first_run_that_takes_long_is_said_to_go_on(plant, monkeypatch):
    monkeypatch.setattr("virtqual.pair.progress.REMIND_S", 0.1)
    done = pair("sleep 0.3", "sleep 0.3", "--max-runs", 2)
    assert "reference is still running; Ctrl-C ends the measurement, --timeout TIME would" in done.stderr
    assert "candidate is still running; Ctrl-C ends the measurement, it is ended after 600 s" in done.stderr
    assert done.stderr.count("still running") == 2, "how long a pair takes is known then"


WRONG = {
    ("true",): "name two commands",
    (): "name two commands",
    ("true", "true", "--budget", "5%"): "--margin is missing",
    ("true", "true", "--margin", "5%"): "--budget is missing",
    ("true", "true", *ALLOWED, "--metric", "Triad"): "put parentheses",
    ("true", "true", *ALLOWED, "--metric", "(a)(b)", "--unit", "s"): "2 groups",
    ("true", "true", *ALLOWED, "--metric", "(a", "--unit", "s"): "not a regular expression",
    ("true", "true", *ALLOWED, "--metric", "a (b)"): "--unit",
    ("true", "true", *ALLOWED, "--metric", "a (b)", "--unit", "apples"): "--better",
    ("true", "true", *ALLOWED, "--metric", "a (b)", "--unit", "s", "--better", "more"): "lower",
    ("true", "true", *ALLOWED, "--unit", "s"): "goes with --metric",
    ("true", "true", *ALLOWED, "--reader", "strem"): "did you mean stream?",
    ("ssh", "bm1", "./app", "ssh", "vm1", "./app"): "quote each command",
    ("true", "true", *ALLOWED, "-o", "nowhere/x.html"): "there is no directory nowhere",
    ("--resume", "x.html"): "name the CSV file that pair wrote",
    ("true", "true", *ALLOWED, "--timeout", "soon"): "5m",
    ("true", "true", *ALLOWED, "--names", "a", "a"): "different",
    ("true", "true", *ALLOWED, "-o", "x.pdf"): ".html",
    ("true", "true", *ALLOWED, "--csv", "x.json"): ".csv",
    ("--resume", "none.csv"): "start again without --resume",
    ("true", "true", "--budget", "5%", "--margin", "0%"): "infinitely",
    ("true", "true", *ALLOWED, "--min-runs", "9", "--max-runs", "8"): "more than",
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_a_mistake_is_named_before_anything_runs(plant, tmp_path, words):
    done = call("pair", *words, code=2)
    assert WRONG[words] in done.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["program"]


def test_existing_files_are_not_written_over(plant, tmp_path):
    (tmp_path / "it.csv").write_text("mine\n")
    done = pair("true", "true", code=2)
    assert "--resume it.csv" in done.stderr
    assert (tmp_path / "it.csv").read_text() == "mine\n"


def test_sides_that_print_different_metrics_are_refused(plant, tmp_path):
    curve = "# OSU MPI Latency Test v7.5\n# Size          Latency (us)\n{}"
    (tmp_path / "one").write_text(curve.format("1 1.00\n2 1.10\n4 1.20\n"))
    (tmp_path / "two").write_text(curve.format("1 1.00\n2 1.10\n"))
    done = pair("cat one", "cat two", "--reader", "osu", code=2)
    assert "print different values" in done.stderr


def test_a_reader_finds_curves(plant, tmp_path):
    for name, factor in (("one", 1), ("two", 1.01)):
        write_program(
            tmp_path / name,
            "#!/bin/sh\nn=$(cat n 2> /dev/null || echo 0); echo $((n + 1)) > n\n"
            "printf '# OSU MPI Latency Test v7.5\\n# Size          Latency (us)\\n'\n"
            f"awk -v n=$n 'BEGIN {{ for (s = 1; s < 9; s *= 2) "
            f'printf "%d %.4f\\n", s, {factor} * (s + 10) * (1 + 0.001 * ((n * 7 + s) % 5)) }}\'\n',
        )
    done = pair("./one", "./two", "--reader", "osu", "--json", code=0)
    (series,), _ = verdict_of(done)
    assert [point["size"] for point in series["points"]] == [1, 2, 4, 8]
    assert call("judge", "it.csv", *ALLOWED, "--json").exit_code in (0, 3)


def test_numbers_of_pairs_rise(plant):
    pair(plant("a", *QUIET), plant("b", *slower(0)), *METRIC, code=0)
    numbers = [int(row["pair"]) for row in read_rows()]
    assert all(b - a in (0, 1) for a, b in itertools.pairwise(numbers))
