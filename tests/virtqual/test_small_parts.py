"""Sizes, looks, notes and nodes: the pure parts under the checks."""

import doctest
import importlib
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from virtqual.errors import UsageError
from virtqual.harness import order
from virtqual.identity import gather, readers
from virtqual.job import notes
from virtqual.programs import sizes
from virtqual.site import nodes

SOURCE = Path(__file__).parents[2] / "src"


@pytest.mark.parametrize(
    "name",
    [
        ".".join(file.relative_to(SOURCE).with_suffix("").parts)
        for file in sorted(SOURCE.rglob("virtqual/**/*.py"))
        if ">>> " in file.read_text("utf-8")
    ],
)
def test_worked_examples(name):
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert (failed, tried > 0) == (0, True)


def test_arrays_that_do_not_exceed_the_caches_are_not_called_memory():
    assert sizes.arrays(4 * 2**20, 8 * 2**30, small=True).family == "memory"
    assert sizes.arrays(64 * 2**20, 8 * 2**30, small=True).family == "cache"
    assert sizes.arrays(64 * 2**20, 2**30, small=False).family == "cache"
    assert sizes.arrays(64 * 2**20, 8 * 2**30, small=False).bytes_each >= 4 * 64 * 2**20


@pytest.mark.parametrize("small", [True, False])
def test_three_arrays_take_half_of_the_memory_at_most(small):
    assert sizes.arrays(2**20, 60_000_000, small=small) == sizes.Arrays(10_000_000, "memory")
    assert sizes.arrays(64 * 2**20, 60_005_994, small=small) == sizes.Arrays(10_000_000, "cache")


def test_a_grid_of_processes_is_no_higher_than_wide():
    assert [sizes.process_grid(count) for count in (1, 2, 6, 12)] == [(1, 1), (1, 2), (2, 3), (3, 4)]


def test_wrf_takes_ranks_with_ten_points_in_each_direction():
    assert [sizes.ranks_of_conus(cores) for cores in (1, 31, 900)] == [1, 30, 900]


def test_npb_on_the_studys_machine_and_on_others():
    """128 GB and 20 cores ran class D (claim D05), where the arrays of all but FT leave half of it."""
    chosen = {name: sizes.npb_class(name, 128 * 10**9, 20, small=False) for name in sizes.NPB}
    large, slow = ("is", "cg", "mg", "ep"), ("lu", "bt", "sp")
    assert chosen == {**dict.fromkeys(large, "D"), "ft": "C", **dict.fromkeys(slow, "C")}
    assert [sizes.npb_class("bt", 2**40, cores, small=False) for cores in (128, 256)] == ["C", "D"]
    assert [sizes.npb_class("is", 2**40, cores, small=False) for cores in (1, 7, 8)] == ["C", "C", "D"]
    # A node of little memory takes what fits.
    assert [sizes.npb_class("is", gb * 10**9, 64, small=False) for gb in (77, 78, 4, 1)] == [
        "C",
        "D",
        "B",
        "A",
    ]
    bytes_of_element, counts = sizes.NPB["ft"]
    assert bytes_of_element * counts["D"] == pytest.approx(3 * 16 * 2**31 + 8 * 2**31)


@pytest.mark.parametrize("text", ["3:1", "a:b", "0", "-1:2", "4:6:NNX", "4:6:"])
def test_broken_pair_numbers_are_refused(monkeypatch, text):
    monkeypatch.setenv("VIRTQUAL_PAIRS", text)
    with pytest.raises(UsageError, match="state how many"):
        order.parse_pairs()


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("6", (0, 5, False, "")),
        ("warm-up,4:7", (4, 7, True, "")),
        ("4:6:VNV", (4, 6, False, "VNV")),
        ("warm-up,4:4:V", (4, 4, True, "V")),
    ],
)
def test_pairs_are_stated_by_their_number_or_one_by_one(monkeypatch, text, pairs):
    monkeypatch.setenv("VIRTQUAL_PAIRS", text)
    assert order.parse_pairs() == pairs
    assert text == "6" or order.format_pairs(*pairs) == text


@pytest.mark.parametrize("text", ["4:6:NV", "warm-up,4:4:NN"])
def test_an_order_has_a_letter_for_each_pair(monkeypatch, text):
    monkeypatch.setenv("VIRTQUAL_PAIRS", text)
    with pytest.raises(UsageError, match="state N or V for each"):
        order.parse_pairs()


SEEN = (
    "program /a/lmp\nflags avx2\ncoretype \nenvironment\nldd\nsha256\n"
    + "0" * 64
    + "  /a/lmp\nreal\n/a/lmp\nsays\n"
)


NODE_FILES = "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list:0\nvirtqual-look/1\n"


def write_notes(path, tasks):
    for rank, (node, cpus) in enumerate(tasks):
        (path / f"virtqual.task.{rank}").write_text(f"{rank} {node} {cpus} 7\n")
        (path / f"virtqual.seen.{node}").write_text(SEEN)
        (path / f"virtqual.node.{node}").write_text(NODE_FILES)
    for node in {"n1", *(node for node, _ in tasks)}:
        own = "" if node == "n1" else f".{node}"
        begin = f"time=1.5\njob=7\ncpu_ticks=10 0 0 90 0 0 0 0 0 0\nnode={node}\n"
        (path / f"virtqual.begin{own}").write_text(begin)
        (path / f"virtqual.end{own}").write_text("time=4.0\njob=7\ncpu_ticks=100 0 0 180 0 0 0 20 0 0\n")


def test_notes_of_a_good_run(tmp_path):
    write_notes(tmp_path, [("n1", "0"), ("n1", "1")])
    read = notes.read(tmp_path, 2, "7")
    notes.check_binding(read.tasks, cpus_per_task=1, nodes=1, cores=read.cores)
    assert read.node_seconds == 2.5


def test_nodes_that_are_one_machine_have_one_load(tmp_path):
    """Both tasks are the run's own where both nodes have the same kernel, and one is foreign where not."""
    write_notes(tmp_path, [("n1", "0"), ("n2", "1")])
    read = notes.read(tmp_path, 2, "7")
    first = read.first_node
    begin = {**first.begin, "cpus_online": "0-1"}
    first = notes.NodeNotes(begin, {**first.end, "cpu_ticks": "110 0 0 90 0 0 0 0 0 0"})
    read = replace(read, nodes={"n1": first})
    empty = readers.read(gather.NodeFiles({}, {}))
    one, other = (empty.model_copy(update={"boot": boot}) for boot in ("a", "b"))
    assert read.compute_load({"n1": one, "n2": one}).foreign == 0.0
    assert read.compute_load({"n1": one, "n2": other}).foreign == 1.0


def test_what_any_node_had_to_bear_counts(tmp_path):
    write_notes(tmp_path, [("n1", "0"), ("n2", "0")])
    identities = dict.fromkeys(("n1", "n2"), readers.read(gather.NodeFiles({}, {})))
    assert notes.read(tmp_path, 2, "7").compute_load(identities).steal == 0.1
    (tmp_path / "virtqual.end.n2").write_text("time=4.0\njob=7\ncpu_ticks=60 0 0 180 0 0 0 60 0 0\n")
    assert notes.read(tmp_path, 2, "7").compute_load(identities).steal == 0.3
    (tmp_path / "virtqual.end.n2").unlink()
    with pytest.raises(notes.NotesError, match="the first task on n2 did not reach its end"):
        notes.read(tmp_path, 2, "7")


@pytest.mark.parametrize(
    ("tasks", "says"),
    [
        ([("n1", "0-1"), ("n1", "1")], "not bound as asked"),
        ([("n1", "0"), ("n1", "0")], "share CPU 0"),
        ([("n1", "0"), ("n2", "0")], "ran on 2 nodes"),
    ],
)
def test_a_binding_that_was_not_asked_for(tmp_path, tasks, says):
    write_notes(tmp_path, tasks)
    with pytest.raises(notes.NotesError, match=says):
        notes.check_binding(notes.read(tmp_path, 2, "7").tasks, cpus_per_task=1, nodes=1, cores={})


SMT = {"n1": {cpu: frozenset({cpu % 4, cpu % 4 + 4}) for cpu in range(8)}}


@pytest.mark.parametrize(
    ("bound", "asked", "whole_cores", "says"),
    [
        # Slurm binds to whole cores, or to one thread of each: both are one core a rank.
        (["0,4", "1,5"], 1, True, ""),
        (["0", "1"], 1, True, ""),
        (["0", "4"], 1, True, r"tasks 0 and 1 on n1 share the core of CPUs \[0, 4\]"),
        # Four of Slurm's CPUs are two cores.
        (["0-1,4-5"], 4, True, "which are 2 cores, not 4 of its own"),
        (["0-3"], 4, True, ""),
        (["0-7"], 8, False, ""),
        (["0-3"], 8, False, "which are 4 CPUs, not 8 of its own"),
    ],
)
def test_two_hardware_threads_are_one_core(bound, asked, whole_cores, says):
    tasks = [notes.Task(rank, "n1", notes.parse_cpu_list(cpus)) for rank, cpus in enumerate(bound)]
    with pytest.raises(notes.NotesError, match=says) if says else nullcontext():
        notes.check_binding(tasks, asked, 1, SMT, whole_cores=whole_cores)


def test_singletons_instead_of_one_mpi_job(tmp_path):
    write_notes(tmp_path, [("n1", "0")])
    with pytest.raises(notes.NotesError, match="2 tasks were asked for"):
        notes.read(tmp_path, 2, "7")


def test_a_job_that_did_not_end(tmp_path):
    write_notes(tmp_path, [("n1", "0")])
    (tmp_path / "virtqual.end").unlink()
    with pytest.raises(notes.NotesError, match="did not reach its end"):
        notes.read(tmp_path, 1, "7")


def test_the_notes_of_another_job_are_refused(tmp_path):
    """Fault H9: two sessions shared a directory, and each took the other's output for its own."""
    write_notes(tmp_path, [("n1", "0")])
    with pytest.raises(
        notes.NotesError, match=r"virtqual\.task\.0 was written by job 7, and this run is job 8"
    ):
        notes.read(tmp_path, 1, "8")
    (tmp_path / "virtqual.task.0").write_text("0 n1 0 8\n")
    with pytest.raises(notes.NotesError, match=r"virtqual\.begin was written by job 7"):
        notes.read(tmp_path, 1, "8")


def test_a_program_that_ends_before_it_begins_is_refused(tmp_path):
    write_notes(tmp_path, [("n1", "0")])
    (tmp_path / "virtqual.end").write_text("time=1.4\njob=7\ncpu_ticks=1 0 0 0 0 0 0 0 0 0\n")
    with pytest.raises(notes.NotesError, match=r"ended 0\.1 s before it began"):
        _ = notes.read(tmp_path, 1, "7").node_seconds


@pytest.mark.parametrize(
    ("state", "good"),
    [
        *(("idle", True), ("mixed", True), ("mixed-", True), ("idle~", True), ("allocated#", True)),
        # Booted or switched off when its job has ended; some of its jobs are completing.
        *(("allocated@", True), ("mixed!", True), ("allocated+", True), ("idle^", False), ("idle%", False)),
        *(("down*", False), ("idle*", False), ("drained", False), ("idle~*", False), ("draining", False)),
    ],
)
def test_which_nodes_can_run_jobs(state, good):
    assert nodes.is_usable(state) is good


@pytest.mark.parametrize("state", ["maint", "reserved", "idle$", "mixed$", "maint*"])
def test_nodes_of_a_reservation_run_the_jobs_that_ask_for_it(state):
    assert not nodes.is_usable(state)
    assert nodes.is_usable(state, reserved=True) is not state.endswith("*")
