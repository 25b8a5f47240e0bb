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
        ((FORMATS / "hyperfine-1.json", "--budget", "500%", "--margin", "3%"), "500% is no budget or "
        "margin: write 5%, from 0% to below 100%, which is twice"),
        ((FORMATS / "perflog-4.log", "--reader", "osv"), "unknown reader 'osv' (--reader): did you mean "
        "osu?"),
        ((FORMATS / "columns-with-order.csv",), "a value without a unit does not say what is better"),
        ((FORMATS / "perflog-2.log",), "nothing says what is allowed; state it by --budget 5% --margin 3%"),
    ],
)  # fmt: skip
def test_a_wrong_call_says_what_to_do(options, says):
    assert says in words(call("judge", *options, code=2))


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
