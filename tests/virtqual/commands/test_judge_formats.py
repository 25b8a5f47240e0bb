"""`virtqual judge` on files of other programs, as a person would call it, and the loop of its page."""

import csv
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from calling import call
from virtqual.verdict.alternation import list_standard_order

ROOT = Path(__file__).parents[3]
FORMATS = ROOT / "tests/outputs/formats"
STATED = ("--budget", "5%", "--margin", "3%")


def words(done):
    return " ".join(done.output.split())


def test_an_answer_without_turns_names_what_would_give_a_verdict():
    done = call("judge", FORMATS / "hyperfine-2.json", code=3)
    assert "candidate is 19.1% slower" in words(done)
    assert "no verdict: hyperfine runs all of one command, then all of the next" in words(done)
    assert "virtqual pair bare guest --budget 5% --margin 3%" in words(done)
    assert "is taken for" not in words(done)
    done = call("judge", FORMATS / "hyperfine-1-without-codes.json", code=3)
    assert "note: 'a' is taken for the reference and 'b' for the candidate" in words(done)


def make_log(file, candidate, count=8, hosts=("n1", "v1")):
    """Write a performance log of two partitions whose runs take turns in the standard order."""
    names = (
        "job_completion_time",
        "info",
        "bw_value",
        "bw_unit",
        "display_name",
        "system",
        "partition",
        "environ",
    )
    rows, minute = ["|".join((*names, "job_nodelist"))], 0
    for pair, first in enumerate(list_standard_order(0, count - 1)):
        for side in "NV" if first == "N" else "VN":
            partition, node = ("bare", hosts[0]) if side == "N" else ("vm", hosts[1])
            value = (1.0 if side == "N" else candidate) * 1000 * (1 + 0.001 * ((7 * pair + minute) % 5))
            date = f"2026-11-01T{10 + minute // 60}:{minute % 60:02}:00"
            rows.append(f"{date}|bw @c:{partition}+gnu|{value:.2f}|MB/s|bw|c|{partition}|gnu|{node}")
            minute += 1
    file.write_text("\n".join(rows) + "\n")
    return file


@pytest.mark.parametrize(("candidate", "code", "outcome"), [(1.0, 0, "WITHIN"), (0.8, 1, "OVER")])
def test_a_log_whose_runs_took_turns_is_judged_if_the_host_is_the_same(tmp_path, candidate, code, outcome):
    log = make_log(tmp_path / "bw.log", candidate)
    done = call("judge", log, *STATED, code=3)
    assert "say --same-host if it was one machine" in words(done)
    done = call("judge", log, *STATED, "--same-host", "--json", code=code)
    series = json.loads(done.stdout.splitlines()[0])
    assert (series["outcome"], series["pairs"]) == (outcome, 8 if outcome == "WITHIN" else 4)


def test_a_log_of_one_side_after_the_other_has_no_verdict(tmp_path):
    log = make_log(tmp_path / "bw.log", 0.8)
    head, *rows = log.read_text().splitlines()
    for name, partition in (("a", "bare"), ("b", "vm")):
        own = [row for row in rows if f"|{partition}|" in row]
        day = {"a": "01", "b": "02"}[name]
        text = "\n".join([head, *own]).replace("2026-11-01", f"2026-11-{day}")
        (tmp_path / name).write_text(f"{text}\n")
    both = ("--reference", tmp_path / "a", "--candidate", tmp_path / "b", "--same-host")
    done = call("judge", *both, *STATED, "--json", code=3)
    series = json.loads(done.stdout.splitlines()[0])
    assert (series["outcome"], series["pairs"], series["next_pairs"]) == ("UNDECIDED", 0, None)
    assert series["overhead"]["low"] < 0.8 < series["overhead"]["high"]
    assert "not in turns: all reference runs came before all candidate runs" in series["reasons"][1]


@pytest.mark.parametrize("suffix", ["html", "md"])
def test_a_report_is_written(tmp_path, suffix):
    report = tmp_path / f"report.{suffix}"
    call("judge", FORMATS / "hyperfine-1.json", "-o", report, code=3)
    text = report.read_text("utf-8")
    assert "UNDECIDED" in text
    assert "hyperfine runs all of one command" in text
    done = call("judge", FORMATS / "hyperfine-1.json", "-o", tmp_path / "report.pdf", code=2)
    assert "the name has to end with .html or .md" in words(done)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "name a file, or both sides: virtqual judge FILE, or virtqual judge --reference PATH "
        "--candidate PATH"),
        (("--reference", "x"), "name a file, or both sides"),
        (("--reference", "/no/where", "--candidate", "/no/where"), "/no/where: there is no such file or "
        "directory"),
        ((FORMATS / "hyperfine-1.json", "--budget", "500%", "--margin", "3%"), "500% is not a budget or "
        "margin: write a percentage from 0% to below 100%"),
        ((FORMATS / "perflog-4.log", "--reader", "osv"), "unknown reader 'osv' (--reader): did you mean "
        "osu?"),
        ((FORMATS / "hyperfine-1.json", "--budget", "5", "--margin", "3%"), "did you mean 5%?"),
        (("bare/", "vm/"), "--reference PATH --candidate PATH"),
        (("--reference", FORMATS, "--candidate", ROOT / "docs", "--reader", "steam"), "virtqual: unknown "
        "reader 'steam' (--reader): did you mean stream?"),
        ((FORMATS / "perflog-4.log", "--reader", "stream"), "this is not the output of STREAM 5"),
        ((FORMATS / "columns-with-order.csv",), "a value without a unit does not say what is better"),
        ((FORMATS / "perflog-2.log",), "nothing says what is allowed; state it by --budget 5% --margin 3%"),
    ],
)  # fmt: skip
def test_a_wrong_call_says_what_to_do(options, says):
    assert says in words(call("judge", *options, code=2))


def make_outputs(folder, candidate=1.0, count=8):
    """Write outputs of STREAM into a directory for each side, and return the options that name them."""
    output = (ROOT / "tests/outputs/stream.out").read_text()
    for side, level in (("bare", 1.0), ("vm", candidate)):
        (folder / side).mkdir()
        for run in range(count):
            factor = level * (1 + 0.001 * ((3 * run) % 5))

            def scale(match, factor=factor):
                return f"{match[1]}{float(match[2]) * factor:.1f}"

            text = re.sub(r"(?m)^((?:Copy|Scale|Add|Triad): +)([\d.]+)", scale, output)
            (folder / side / f"{run}.out").write_text(text)
    return ("--reference", folder / "bare", "--candidate", folder / "vm")


KERNELS = ["memory_copy", "memory_scale", "memory_add", "memory_triad"]
AS_STATED = ("--paired", "--same-host")


def test_every_metric_of_outputs_is_judged_whatever_is_stated(tmp_path):
    both = make_outputs(tmp_path)
    for options, outcome in ((AS_STATED, "WITHIN"), ((), "UNDECIDED")):
        done = call("judge", *both, *STATED, *options, "--json")
        series = [json.loads(line) for line in done.stdout.splitlines()[:-1]]
        assert [(line["metric"], line["outcome"]) for line in series] == [(name, outcome) for name in KERNELS]


def test_one_of_several_metrics_is_chosen(tmp_path):
    both = make_outputs(tmp_path)
    page = ROOT / "docs/judge-your-own.csv"
    for what, name in ((both, "memory_triad"), ((page, *STATED), "pipe")):
        done = call("judge", *what, "--metric", name, "--json", code=3)
        assert [json.loads(line).get("metric") for line in done.stdout.splitlines()] == [name, None]
        done = call("judge", *what, "--metric", "tried", code=2)
        assert "has no metric 'tried' (--metric)" in words(done)
        assert name in words(done)


def test_what_the_options_state_is_printed_as_stated_and_no_times_are_made_up(tmp_path):
    both, report = make_outputs(tmp_path), tmp_path / "report.html"
    says = "as you state: runs in turns, one host"
    done = call("judge", *both, *STATED, *AS_STATED, "-o", report, code=0)
    assert f"WITHIN; {says}" in words(done)
    page = report.read_text("utf-8")
    assert says in page
    assert "memory_copy" in page
    assert "pair,side,second" not in page
    # One is in the legend.
    assert page.count('href="#first-virtual"') <= 1
    done = call("judge", *both, *STATED, *AS_STATED, "--json")
    assert json.loads(done.stdout.splitlines()[-1])["reasons"] == [says]
    assert "as you state" not in call("judge", *both, *STATED, code=3).output


def test_turns_are_not_stated_of_what_is_known_to_have_taken_none(tmp_path):
    hyperfine = FORMATS / "hyperfine-2.json"
    done = call("judge", hyperfine, *STATED, *AS_STATED, code=2)
    assert "they did not: hyperfine runs all of one command, then all of the next" in words(done)
    assert "--paired" not in call("judge", hyperfine, *STATED, code=3).output
    bench = FORMATS / "google-benchmark-1.9.json"
    (tmp_path / "other.json").write_bytes(bench.read_bytes())
    both = ("--reference", bench, "--candidate", tmp_path / "other.json")
    assert "each file is of one process" in words(call("judge", *both, *STATED, "--paired", code=2))
    rows = [f"{side},{1 + 0.01 * row},s,{1e9 + 60 * row + (side == 'vm') * 600}" for row in range(4)
            for side in ("bare", "vm")]  # fmt: skip
    table = tmp_path / "timed.csv"
    table.write_text("\n".join(["side,value,unit,start", *rows]) + "\n")
    done = call("judge", table, *STATED, "--paired", code=2)
    assert "all reference runs came before all candidate runs" in words(done)
    assert "--paired" not in call("judge", table, *STATED, code=3).output


def test_reasons_that_metrics_share_are_said_once_and_the_class_only_with_a_class(tmp_path):
    both = make_outputs(tmp_path)
    done = call("judge", *both, code=3)
    assert [words(done).count(f"UNDECIDED {name}: ") for name in KERNELS] == [1, 1, 1, 1]
    assert words(done).count("no verdict: files do not say when each run began and ended") == 1
    assert words(done).count("8 reference runs and 8 candidate runs") == 1
    assert "not qualified" not in words(done)
    assert "not qualified: a file of pairs" in words(call("judge", *both, "--class", "kvm", code=3))


def test_names_of_columns_come_before_files_of_these_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_outputs(tmp_path, count=1)
    (tmp_path / "two.csv").write_text("bare,vm\n1.0,1.1\n1.01,1.1\n")
    done = call(
        "judge", "two.csv", "--reference", "vm", "--candidate", "bare", "--unit", "ms", "--json", code=3
    )
    assert json.loads(done.stdout.splitlines()[0])["overhead"]["ratio"] < 1
    (tmp_path / "app").touch()
    done = call("judge", "two.csv", "--reference", "vm", "--candidate", "app", code=2)
    assert "'app' is not there" in words(done)
    assert "vm and app are files or directories, too: to judge those, leave two.csv out" in words(done)


def test_one_path_is_not_both_sides(tmp_path):
    make_outputs(tmp_path, count=1)
    done = call("judge", "--reference", tmp_path / "bare", "--candidate", tmp_path / "vm/../bare", code=2)
    assert "are the same: name another path for one of the sides" in words(done)


def test_a_directory_of_one_side_is_said_to_hold_its_outputs(tmp_path):
    output = ROOT / "tests/outputs/stream.out"
    assert "stream.out: holds output of STREAM 5, of one side only" in words(call("judge", output, code=2))


def run_loop(folder, change=lambda text: text):
    """Run the loop of the page with programs that print made values at once, and return its rows."""
    page = (ROOT / "docs/judge-your-own.md").read_text("utf-8")
    (loop,) = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    programs = {
        "openssl": 'echo "sha256 $((1800000 + RANDOM % 2000)).5k"',
        "perf": 'echo "0.3$((1000 + RANDOM % 90))"; echo more',
        "hostname": 'echo "${HOST:-n1}"',
    }
    for name, text in programs.items():
        file = folder / name
        file.write_text(f"#!/bin/bash\n{text}\n")
        file.chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", change(loop)], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    (folder / "pairs.csv").write_text(done.stdout)
    return list(csv.DictReader(done.stdout.splitlines()))


def test_the_loop_of_the_page_runs_in_the_order_of_the_rule_and_is_judged(tmp_path):
    rows = run_loop(tmp_path)
    own = [row for row in rows if row["metric"] == "pipe"]
    first = "".join(own[2 * pair]["side"][0].upper() for pair in range(8))
    assert first == list_standard_order(0, 7)
    assert {row["host"] for row in rows} == {"n1"}
    done = call("judge", tmp_path / "pairs.csv", *STATED, "--json")
    series = [json.loads(line) for line in done.stdout.splitlines()[:-1]]
    assert [(line["outcome"], line["pairs"], line["confounded"]) for line in series] == [
        ("WITHIN", 8, False)
    ] * 2


def test_who_edits_only_how_a_side_is_reached_claims_no_common_host(tmp_path):
    def reach_another_machine(loop):
        changed = re.sub(
            r'^virtual\(\) \{ "\$@"; \}', 'virtual() { HOST=vm1 "$@"; }', loop, flags=re.MULTILINE
        )
        assert changed != loop
        return changed

    rows = run_loop(tmp_path, reach_another_machine)
    assert {(row["side"], row["host"]) for row in rows} == {("native", "n1"), ("virtual", "vm1")}
    done = call("judge", tmp_path / "pairs.csv", *STATED, code=3)
    assert "no verdict on the build: native ran on n1 and virtual on vm1" in words(done)
