"""How a run is ended, and how metrics are named."""

import doctest
import threading
import time

import pytest

import virtqual.pair.metrics
import virtqual.pair.progress
import virtqual.pair.runner
from planted_commands import is_running
from virtqual.errors import UsageError
from virtqual.pair.metrics import AskedMetric, Output, UnreadError, parse_metrics, read_values, split_name
from virtqual.pair.plan import read_seconds
from virtqual.pair.runner import Clock, read_output, run_command


@pytest.mark.parametrize("module", [virtqual.pair.metrics, virtqual.pair.progress, virtqual.pair.runner])
def test_examples(module):
    assert doctest.testmod(module).failed == 0


def test_times_are_in_order_and_output_is_kept(tmp_path):
    clock = Clock()
    runs = [run_command("echo a; echo b >&2", tmp_path / f"{i}", clock, 60) for i in range(2)]
    assert runs[0].start < runs[0].end <= runs[1].start < runs[1].end
    assert (read_output(runs[0].stdout), read_output(runs[0].stderr)) == ("a\n", "b\n")


def test_output_without_a_reader_does_not_block(tmp_path):
    run = run_command("head -c 5000000 /dev/zero | tr '\\0' x", tmp_path / "it", Clock(), 60)
    assert run.stdout.stat().st_size == 5_000_000


def test_processes_in_the_background_do_not_hold_up_the_run(tmp_path):
    began = time.monotonic()
    run = run_command("sleep 30 & echo $!", tmp_path / "it", Clock(), 60)
    assert time.monotonic() - began < 25
    assert run.lost == ""
    assert is_running(int(read_output(run.stdout))), "it may be meant to go on"


def test_no_threads_are_left(tmp_path):
    run_command("true", tmp_path / "it", Clock(), 60)
    assert threading.active_count() == 1 or all(
        not isinstance(thread, threading.Timer) or thread.finished.is_set()
        for thread in threading.enumerate()
    )


def test_metrics_are_read_where_they_stand():
    asked = AskedMetric(name="time", pattern=r"^Time: +(\S+)", unit="s", better="lower")
    for text, value in (("x\nTime: 1.5\n", 1.5), ("Time: 2.5D-3", 2.5e-3), ("Time: 7", 7.0)):
        assert [*read_values(Output(text, ""), [asked], []).values()] == [{None: value}]
        assert [*read_values(Output("", text), [asked], []).values()] == [{None: value}]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Time: 1\nTime: 2\n", "appears 2 times"),
        ("Tim: 1\n", "no match of"),
        ("Time: nan\n", "not a number"),
        ("Time: 0\n", "not a positive number"),
        ("Time: -3\n", "not a positive number"),
        ("Time: 1,234.5\n", "finds '1,234.5', not a number"),
        ("", "no match of"),
    ],
)
def test_an_output_without_the_value_is_unread(text, why):
    asked = AskedMetric(name="time", pattern=r"^Time: +(\S+)", unit="s", better="lower")
    with pytest.raises(UnreadError, match=why):
        read_values(Output(text, ""), [asked], [])


#: Patterns that people write, and the name of their metric.
NAMES = {
    r"Triad: +(\S+)": "Triad",
    r"^Triad:\s+([\d.]+)": "Triad",
    r"real\s+(\d+\.\d+)": "real",
    r"Loop time of (\S+)": "Loop time of",
    r"Time in seconds = +(\S+)": "Time in seconds",
    r"bw=(\d+)MiB/s": "bw MiB s",
    r"events per second: +([\d.]+)": "events per second",
    r"tps = ([\d.]+) \(without": "tps without",
    r"WR\S+ +\d+ +\d+ +\d+ +\d+ +\S+ +(\S+)": "WR",
    r"([\d.]+) ns/day": "ns day",
    r"(\d+)": "value",
}


@pytest.mark.parametrize("pattern", NAMES)
def test_a_pattern_names_its_metric(pattern):
    assert split_name(pattern) == (NAMES[pattern], pattern)


def test_units_and_directions_go_with_metrics():
    both = parse_metrics([r"A (\d)", r"B (\d)"], ["s", "MB/s"], [])
    assert [(metric.unit, metric.better) for metric in both] == [("s", "lower"), ("MB/s", "higher")]
    assert [metric.unit for metric in parse_metrics([r"A (\d)", r"B (\d)"], ["s"], [])] == ["s", "s"]
    with pytest.raises(UsageError, match="2 times --unit for 3 times --metric"):
        parse_metrics([r"A (\d)", r"B (\d)", r"C (\d)"], ["s", "s"], [])
    with pytest.raises(UsageError, match="two metrics are called 'A'"):
        parse_metrics([r"A (\d)", r"A: (\d)"], ["s"], [])


def test_durations():
    assert [read_seconds(text) for text in ("90", "90s", "1.5m", "2h", "10 min")] == [90, 90, 90, 7200, 600]
    for text in ("", "soon", "0", "-5", "5d"):
        with pytest.raises(UsageError, match="5m, 2h"):
            read_seconds(text)
