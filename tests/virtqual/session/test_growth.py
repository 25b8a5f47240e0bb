"""Judging grows linearly with the runs of a session: its steps are counted, no time is taken."""

import runpy
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from virtqual.session.judge import judge
from virtqual.verdict.estimate import Noise
from virtqual.verdict.overhead import Runs, estimate_overhead
from virtqual.verdict.places import recognise

make_session = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks/speed/judging.py"))["make_session"]


def steps_of_judging(session):
    """Return how many instructions of Python judging takes; those within comprehensions count, too."""
    steps = 0

    def count(frame, event, argument):
        nonlocal steps
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        steps += event == "opcode"
        return count

    judge(session)  # What is read once a process is read now.
    before = sys.gettrace()
    sys.settrace(count)
    try:
        judge(session)
    finally:
        sys.settrace(before)
    return steps


@pytest.mark.parametrize(
    "sizes_of",
    [
        lambda size: {"turns": 25 * size},
        lambda size: {"turns": 5, "nodes": 5 * size},
        lambda size: {"turns": 5 * size, "nodes": 5},
        lambda size: {"turns": 5, "nodes": 4 * size, "checks": 2},
        lambda size: {"turns": 5 * size, "checks": 5},
    ],
)
def test_judging_grows_linearly_with_the_runs(sizes_of):
    """100 runs after 100 add twice the steps of 50 after 50; a comparison of all with all adds four times."""
    few, more, many = (steps_of_judging(make_session(**sizes_of(size))) for size in (1, 2, 4))
    assert many - more < 2.1 * (more - few)


@pytest.mark.parametrize("with_hosts", [True, False])
@pytest.mark.parametrize(
    "sizes_of", [lambda size: {"turns": 5, "width": 8 * size}, lambda size: {"turns": 5, "nodes": 5 * size}]
)
def test_judging_grows_linearly_with_the_nodes(sizes_of, with_hosts):
    """Of a run that takes many nodes, and of many nodes in turn, whose hosts may be unknown."""
    few, more, many = (
        steps_of_judging(make_session(**sizes_of(size), with_hosts=with_hosts)) for size in (1, 2, 4)
    )
    assert many - more < 2.1 * (more - few)


def test_an_estimate_makes_no_matrix_of_pairs_by_pairs():
    pairs = 2000
    host, logs = [""] * pairs, np.random.default_rng(1).normal(0, 0.01, (1, 2, pairs, 1))
    runs = Runs(logs, recognise(host, host))
    tracemalloc.start()
    try:
        estimate_overhead(runs, Noise(np.array([0.01])), convict=True)
        assert tracemalloc.get_traced_memory()[1] < pairs**2
    finally:
        tracemalloc.stop()
