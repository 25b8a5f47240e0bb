"""Files in the formats that people have are read as a careful reader reads them."""

import math
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from virtqual.errors import UsageError
from virtqual.formats.found import Wanted, guess_better
from virtqual.formats.load import load_file, load_two
from virtqual.formats.recognise import read_path
from virtqual.formats.turns import Timed, find_pairs

FILES = Path(__file__).parents[2] / "outputs/formats"
OUTPUTS = FILES.parent
INDEX = YAML(typ="safe", pure=True).load(FILES / "index.yaml")
NOTHING = Wanted()
NONE = ("", "")


def values_of(series, side):
    runs = [run for (_, own), run in sorted(series.runs.items()) if own == side]
    return [run.values[None] for run in runs]


def same(read, expected):
    return len(read) == len(expected) and all(
        math.isclose(a, b) or (math.isnan(a) and math.isnan(b)) for a, b in zip(read, expected, strict=True)
    )


def test_the_index_has_each_file():
    assert {path.name for path in FILES.iterdir()} == {*INDEX, "index.yaml"}


@pytest.mark.parametrize("name", INDEX)
def test_a_file_is_read_as_a_careful_reader_reads_it(name):
    entry = INDEX[name]
    loaded = load_file(FILES / name, NONE, Wanted(**entry.get("options", {})))
    assert [next(iter(loaded.facts[side].values())) for side in ("native", "virtual")] == entry["sides"]
    (all_series,) = loaded.sessions.values()
    assert {f"{one.metric.name} {one.setting}" for one in all_series} == set(entry["series"])
    for one in all_series:
        expected = entry["series"][f"{one.metric.name} {one.setting}"]
        assert one.metric.unit == expected["unit"]
        assert one.metric.better == guess_better(expected["unit"])
        assert same(values_of(one, "native"), expected["reference"])
        assert same(values_of(one, "virtual"), expected["candidate"])
        assert expected["turns"] in one.not_in_turns
        assert bool(one.not_in_turns) == bool(expected["turns"])


def test_each_side_may_be_a_file_of_its_own(tmp_path):
    for number, side in enumerate(("reference", "candidate")):
        lines = (FILES / "perflog-4.log").read_text().splitlines()
        (tmp_path / side).write_text(f"{lines[0]}\n{lines[1 + number]}\n")
    loaded = load_two(tmp_path / "reference", tmp_path / "candidate", NOTHING)
    ((one,),) = loaded.sessions.values()
    assert (values_of(one, "native"), values_of(one, "virtual")) == ([21116.7], [20116.7])
    assert one.labels == ("reference", "candidate")
    assert "left out, on the reference side only: triad_bw stream_test" in loaded.notes
    assert any("a performance log says when each run ended" in note for note in loaded.notes)


def test_runs_that_found_no_partner_are_named(tmp_path):
    file, sides = tmp_path / "runs.csv", "abbaabbaa"
    rows = [f"{side},{1 + 0.01 * row},s,{1e9 + 60 * row}" for row, side in enumerate(sides)]
    file.write_text("\n".join(["side,value,unit,start", *rows]) + "\n")
    notes = load_file(file, NONE, NOTHING).notes
    assert "value: left out, 1 run without a neighbour of the other side" in notes


def test_sides_of_a_file_are_chosen_by_name():
    file = FILES / "hyperfine-1.json"
    ((one,),) = load_file(file, ("second", "bin first"), NOTHING).sessions.values()
    assert same(values_of(one, "native"), [12.0, 12.3, math.nan])
    for names, says in (
        (("third", "first"), "--reference: 'third' is not there"),
        (("cargo", "first"), "--reference: 'cargo' is in 2 names"),
        (("first", ""), "--reference and --candidate belong together"),
    ):
        with pytest.raises(UsageError, match=says) as error:
            load_file(file, names, NOTHING)
        assert "cargo run --release --bin second input.txt" in str(error.value)


def test_another_value_of_google_benchmark_is_chosen_by_its_key():
    file = FILES / "google-benchmark-1.9.json"
    ((one,),) = load_file(file, NONE, Wanted(metric="cpu_time")).sessions.values()
    assert same(values_of(one, "native"), [4.0, 4.1])
    with pytest.raises(UsageError, match=r"has no 'cpu' \(--metric\): it has real_time, cpu_time"):
        load_file(file, NONE, Wanted(metric="cpu"))


def write_outputs(folder, count, change=lambda text, run: text):
    folder.mkdir()
    text = (OUTPUTS / "osu.latency.out").read_text()
    for run in range(count):
        (folder / f"run-{run}.out").write_text(change(text, run))
    return folder


def test_two_directories_of_outputs_are_read(tmp_path):
    reference = write_outputs(tmp_path / "bare", 3)
    candidate = write_outputs(tmp_path / "vm", 2)
    (candidate / "notes.md").write_text("# Notes\n")
    loaded = load_two(reference, candidate, NOTHING)
    ((one,),) = loaded.sessions.values()
    assert (one.metric.name, len(one.runs), one.runs[0, "native"].values[1.0]) == ("osu_latency", 5, 0.52)
    assert "outputs" in loaded.kind
    assert [note for note in loaded.notes if "notes.md is not an output" in note]
    assert "do not say when" in one.not_in_turns


def test_an_output_that_is_refused_or_cut_short_is_a_lost_run(tmp_path):
    reference = write_outputs(tmp_path / "bare", 3)

    def damage(text, run):
        lines = text.splitlines(keepends=True)
        return {0: text, 1: text, 2: "".join(lines[:-1]), 3: text.replace("0.52\n", "-1.00\n")}[run]

    loaded = load_two(reference, write_outputs(tmp_path / "vm", 4, damage), NOTHING)
    ((one,),) = loaded.sessions.values()
    lost = [run for run in one.runs.values() if math.isnan(run.values[1.0])]
    assert [run.side for run in lost] == ["virtual", "virtual"]
    assert any("lost run: a virtual run lacks 4.1943e+06" in note for note in loaded.notes)
    assert any("is not above zero" in note for note in loaded.notes)


def test_several_runs_in_one_file_are_runs(tmp_path):
    text = (OUTPUTS / "stream.out").read_text()
    for side in ("a", "b"):
        (tmp_path / side).write_text(text * 3)
    loaded = load_two(tmp_path / "a", tmp_path / "b", NOTHING)
    (series,) = loaded.sessions.values()
    assert [(one.metric.name, len(one.runs)) for one in series] == [
        ("memory_copy", 6), ("memory_scale", 6), ("memory_add", 6), ("memory_triad", 6),
    ]  # fmt: skip


def test_a_column_of_names_says_what_a_row_measured(tmp_path):
    file = tmp_path / "wide.csv"
    file.write_text("name,janet,python,lua\nnbody,17.5,37.8,10.5\nregex,15.9,13.5,nan\n")
    with pytest.raises(UsageError, match=r"more than two sides.*\n.*\n  column: janet, python, lua"):
        load_file(file, NONE, Wanted(unit="s"))
    (series,) = load_file(file, ("janet", "python"), Wanted(unit="s")).sessions.values()
    assert [(one.setting, values_of(one, "virtual")) for one in series] == [
        ("nbody", [37.8]),
        ("regex", [13.5]),
    ]


def test_columns_of_sides_next_to_a_column_of_names(tmp_path):
    file = tmp_path / "realtime.csv"
    file.write_text("name,docker,native\nblast,33,54\nblast,62,24\nalign,653,630\nalign,894,178\n")
    with pytest.raises(
        UsageError,
        match=r"several columns of numbers \(docker, native\): say which one "
        r"is judged",
    ):
        load_file(file, NONE, Wanted(unit="ms"))
    (series,) = load_file(file, ("native", "docker"), Wanted(unit="ms")).sessions.values()
    assert [(one.setting, values_of(one, "virtual")) for one in series] == [
        ("blast", [33.0, 62.0]), ("align", [653.0, 894.0]),
    ]  # fmt: skip


def test_runs_of_other_sizes_are_not_one_sample(tmp_path):
    rows = [f"{m},{algo},{i},{100 * m + i}" for m in (1, 2) for algo in ("a", "b") for i in range(3)]
    file = tmp_path / "sizes.csv"
    file.write_text("\n".join(["m,algo,iter,gflops", *rows]) + "\n")
    (series,) = load_file(file, NONE, Wanted(metric="gflops", better="higher")).sessions.values()
    assert [(one.setting, values_of(one, "native")) for one in series] == [
        ("m 1", [100.0, 101.0, 102.0]), ("m 2", [200.0, 201.0, 202.0]),
    ]  # fmt: skip


def test_a_row_of_values_is_not_taken_for_a_header(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("C,fib,0.5\njulia,fib,0.6\n")
    with pytest.raises(UsageError, match="has the columns column 1, column 2, column 3"):
        load_file(file, NONE, NOTHING)


def test_runs_in_turns_are_pairs_and_blocks_are_not():
    def order(sides):
        return [Timed(float(i), "native" if side == "N" else "virtual") for i, side in enumerate(sides)]

    assert find_pairs(order("NVVNNVVN")) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    # A run of the third pair was lost.
    assert find_pairs(order("NVNVNNVNV")) == [(0, 1), (2, 3), (5, 6), (7, 8)]
    assert find_pairs(order("NNNNVVVV")) is None
    assert find_pairs(order("NNNVVVNNNVVV")) is None
    assert find_pairs(order("NNNN")) is None


@pytest.mark.parametrize(
    ("unit", "better"),
    [
        ("s", "lower"), ("us", "lower"), ("seconds", "lower"), ("MB/s", "higher"),
        ("Gflops/seconds", "higher"),
        ("GFLOPS", "higher"), ("it/s", "higher"), ("IOPS", "higher"), ("Messages/s", "higher"),
        ("ns/day", "higher"), ("s/step", None), ("", None), ("%", None),
    ],
)  # fmt: skip
def test_a_unit_says_what_is_better_or_does_not(unit, better):
    assert guess_better(unit) == better


ODD = {
    "empty": (b"", "is empty: write a column for each side"),
    "binary": (b"\x7fELF\0\1", "no table of pairs (a binary file"),
    "summary.csv": (
        b"command,mean,stddev,median,user,system,min,max\na,1,0.1,1,1,0,0.9,1.1\n",
        "is hyperfine's CSV, which has the mean of each command and not its runs: write the runs with "
        "hyperfine "
        "--export-json FILE",
    ),
    "one-side.json": (
        b'{"results": [{"command": "a", "mean": 1.0, "times": [1.0, 1.1]}]}',
        "is hyperfine's JSON, of one side only (a): name the files or directories of both sides",
    ),
    "negative.csv": (b"native,virtual\n1.0,-1.0\n", "value: -1 is not above zero"),
    "zero.csv": (b"native,virtual\n0,1.0\n", "value: 0 is not above zero: write nan"),
    "mixed-units.csv": (
        b"side,value,unit\nnative,1.0,GB/s\nvirtual,1000,MB/s\n",
        "value is in GB/s and in MB/s: convert the values to one unit",
    ),
    "text.csv": (b"native,virtual\nfast,slow\n", "'fast' is not a number"),
    "page.csv": (b"<!DOCTYPE html>\n<html><body>1</body></html>", "is a web page or XML, whatever its "
    "name says"),
    "other.json": (b'{"tests": [1, 2], "version": "3"}', "is JSON (tests, version) of a program that "
    "virtqual does not"),
    "huge.csv": (b"a,b,c\n" + b"1,2,3\n" * 200_000, "has the columns a, b, c: virtqual reads a table "
    "with one column"),
    "means.json": (
        b'{"context": {}, "benchmarks": [{"name": "a_mean", "run_type": "aggregate", "real_time": 1.0}]}',
        "is Google Benchmark's JSON with means alone: they cannot be judged",
    ),
    "no-unit.csv": (b"native,virtual\n1,2\n", "a value without a unit does not say what is better: add "
    "its unit, such as --unit ms"),
    "script": (b'#!/usr/bin/env python3\n"A small program"\nimport sys\nprint(1, 2)\n', "is not in a format "
    "that virtqual knows: it reads tables of numbers"),
    "date.csv": (b"side,value,unit,start\nnative,1,s,noon\n", "start: is 'noon': write seconds or "
    "milliseconds"),
    "typo.csv": (b"side,value,units\nnative,1,s\n", "units: is not a column of this file: did you mean "
    "unit?"),
    "three.csv": (b"side,value,unit\na,1,s\nb,1,s\nc,1,s\n", "with more than two sides: choose two by "
    "--reference"),
    "cut.json": (b'{"results": [{"command": "a", "times": [1.0', "is not JSON"),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_an_odd_file_is_refused_with_a_sentence_that_helps(tmp_path, name):
    content, says = ODD[name]
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(UsageError) as error:
        load_file(file, NONE, Wanted(unit="s") if name in ("negative.csv", "zero.csv") else NOTHING)
    message = str(error.value)
    assert says in message
    assert message.startswith(str(file))
    assert len(message) < 700


def test_a_report_without_performance_and_a_file_of_both_sides_say_what_to_do(tmp_path):
    report = tmp_path / "report.json"
    report.write_text(
        '{"session_info": {"data_version": "2.0"}, "runs": [{"testcases": [{"perfvars": null}]}]}'
    )
    with pytest.raises(
        UsageError, match="none of 1 tests has a performance value: a test needs performance functions"
    ):
        load_file(report, NONE, NOTHING)
    pairs = OUTPUTS.parents[1] / "docs/judge-your-own.csv"
    with pytest.raises(UsageError, match="which has both sides: give it alone"):
        read_path(pairs, NOTHING)
    with pytest.raises(UsageError, match="leave out --reference"):
        load_file(pairs, ("a", "b"), NOTHING)


def test_a_directory_is_one_side(tmp_path):
    with pytest.raises(UsageError, match="give those of both sides, --reference DIR --candidate DIR"):
        load_file(tmp_path, NONE, NOTHING)
    with pytest.raises(UsageError, match="has no files"):
        read_path(tmp_path, NOTHING)
    (tmp_path / "x").write_text("nothing\n")
    with pytest.raises(UsageError, match="none of 1 files is the output of a program that virtqual knows"):
        read_path(tmp_path, NOTHING)
