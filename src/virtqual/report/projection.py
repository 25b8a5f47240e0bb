"""The cost of one node's noise for a synchronous program on many nodes: a projection, and no verdict.

A program that waits for all of its ranks after each piece of work is as slow as the slowest of them. The
pieces are drawn from the times that one node showed, for each core of each node by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from virtqual.identity.cpus import cpu_list
from virtqual.identity.record import seen
from virtqual.runs import Run
from virtqual.verdict.estimate import Floats
from virtqual.verdict.pairs import SIDES, Series, Side

METRIC = "work_tail"
NODES = (16, 128, 1024, 8192)
STEPS = 4000
"""Pieces of the simulated program."""


@dataclass(frozen=True)
class Slowdown:
    """The share by which a program on `nodes` nodes would take longer: mean, and bounds.

    The bounds are those of all runs, and of what the times between two measured ones may be.
    `is_bound`: a piece that is rarer than those that were measured decides, so that the slowdown is larger.
    """

    nodes: int
    mean: float
    low: float
    high: float
    is_bound: bool


def project(one_in: Floats, times: Floats, ranks: int, nodes: int) -> Slowdown:
    """Return the slowdown of a program of `ranks` ranks.

    `times` are those that one piece in so many exceeds, shape (n_runs, n_points). `one_in` has the shape
    (n_points,) and rises from 1.
    """
    rng = np.random.default_rng(0)
    # The largest of n uniform numbers is one such number to the power of 1/n; this is how rare its piece is.
    rarity = -1 / np.expm1(np.log(rng.random(STEPS)) / ranks)
    slowest = [np.interp(np.log(rarity), np.log(one_in), run).mean() for run in times]
    below = np.searchsorted(one_in, rarity, side="right") - 1
    above = np.minimum(below + 1, len(one_in) - 1)
    costs = [slowest, times[:, below].mean(axis=1), times[:, above].mean(axis=1)]
    mean, low, high = np.array(costs) / times[:, 0] - 1
    return Slowdown(nodes, float(mean.mean()), float(low.min()), float(high.max()), ranks > one_in[-1])


def project_noise(series: Series, run: Run) -> list[dict[Side, Slowdown]]:
    """Return the slowdowns of both sides by number of nodes like those of the run; none if it is no noise."""
    topology = next((identity.topology for identity in run.identity.values()), None)
    is_noise = series.metric.name == METRIC and len(series.valid) > 0
    if not (is_noise and topology and seen(topology.used) and seen(topology.threads_used)):
        return []
    cores = max(len(cpu_list(topology.used)) // topology.threads_used, 1)
    one_in = np.array(series.points)
    return [
        {side: project(one_in, series.values[side], nodes * cores, nodes) for side in SIDES}
        for nodes in NODES
    ]
