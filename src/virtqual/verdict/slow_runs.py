"""Runs that are slow now and then: their causes are counted by side, and compared by an exact test.

A guest that takes twice as long in one run of ten has about the mean of one that is always a little slower.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable
from operator import itemgetter

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel

from virtqual.verdict.case import Case
from virtqual.verdict.estimate import Floats, Ints, append_mean
from virtqual.verdict.notation import MAX_LOG
from virtqual.verdict.pairs import Machines, Sample, Side

SLOW = math.log(1.25)
"""How much longer than the typical run of its side a slow run takes: more than a budget with its margin."""

SLOW_SIGMAS = 5.0
"""Standard deviations of a run's noise that a slow run exceeds: less than one in a million Gaussian runs."""

SLOW_ALPHA = 0.002
"""Error rate of the test, a fifth of the session's 1 %: nine slow runs on one side, none on the other."""


def slowness(runs: Floats, sigma: ArrayLike) -> Floats:
    """Return how much longer than the typical run of its side each slow run took, log units; 0 for others.

    The typical run is the lower median: of four runs two may be slow. The noise is the wider of the known
    noise and that of the faster half of the runs.

    Parameters
    ----------
    runs
        Logarithms of the cost of each run, of a curve the mean over its sizes, shape (..., n_runs).
    sigma
        Standard deviation of a pair's difference, broadcastable to (...).
    """
    n = runs.shape[-1]
    ordered = np.sort(runs, axis=-1)
    typical = ordered[..., (n - 1) // 2 : (n - 1) // 2 + 1]
    # Below the median there are no slow runs, so that their own number does not hide them.
    below = np.sort(np.maximum(typical - runs, 0), axis=-1)[..., -((n + 3) // 4) : None]
    run_sigma = np.maximum(np.asarray(sigma)[..., None] / math.sqrt(2), below.mean(axis=-1, keepdims=True))
    excess: Floats = runs - typical
    return np.where(excess > np.maximum(SLOW, SLOW_SIGMAS * run_sigma), excess, 0.0)


def p_value(
    virtual: Ints | int, virtual_runs: Ints | int, native: Ints | int, native_runs: Ints | int
) -> Floats:
    """Return the p-value of "virtual runs are slow no more often than native ones" (Fisher, one-sided)."""
    from scipy import stats  # slow to import, and not needed by the processes of checks

    slow, runs = np.add(virtual, native), np.add(virtual_runs, native_runs)
    return np.asarray(stats.hypergeom.sf(np.subtract(virtual, 1), runs, virtual_runs, slow))


class SlowRuns(BaseModel, extra="forbid", frozen=True):
    """The slow runs of each side in one session or several."""

    #: How many times runs of the side were slow; see `count_events`.
    virtual: int = 0
    #: Number of all runs.
    virtual_runs: int = 0
    native: int = 0
    native_runs: int = 0
    #: How many times as long as a typical run a slow virtual run takes, the median; 0 if none is slow.
    factor: float = 0.0
    #: Number of boots in which virtual runs were slow.
    boots: int = 0
    #: True if virtual runs are slow more often than native ones.
    found: bool = False
    #: The same in words.
    text: str = ""

    def __add__(self, other: SlowRuns) -> SlowRuns:
        return SlowRuns(
            virtual=self.virtual + other.virtual,
            virtual_runs=self.virtual_runs + other.virtual_runs,
            native=self.native + other.native,
            native_runs=self.native_runs + other.native_runs,
            boots=self.boots + other.boots,
            factor=self.factor or other.factor,
        )

    @property
    def p(self) -> float:
        """The `p_value`."""
        return float(p_value(self.virtual, self.virtual_runs, self.native, self.native_runs))


NO_SLOW_RUNS = SlowRuns()


def slow_runs_of(cases: Iterable[Case]) -> SlowRuns:
    """Count how often runs of valid pairs are slow; a run is slow once, however many of its metrics are.

    `cases` has one case for each series.
    """
    slowest: dict[Hashable, tuple[Sample, float]] = {}
    for case in cases:
        pairs = case.series.valid
        runs = append_mean(case.series.costs(pairs))[..., -1]
        excesses = slowness(runs, case.sigma[-1]).T.tolist() if pairs else ()
        for pair, pair_excesses in zip(pairs, excesses, strict=True):
            for sample, excess in zip(pair.samples, pair_excesses, strict=True):
                # Without times it is unknown which samples are of one run.
                run = (case.series.id, *sample.run) if pair.untimed else sample.run
                slowest[run] = max(slowest.get(run, (sample, 0.0)), (sample, excess), key=itemgetter(1))
    slow = [run for run in slowest.values() if run[0].side == "virtual" and run[1] > 0]
    counts = Counter(sample.side for sample, _ in slowest.values())
    events = count_events(slowest.values())
    return SlowRuns(
        virtual=events["virtual"],
        virtual_runs=counts["virtual"],
        native=events["native"],
        native_runs=counts["native"],
        boots=len({sample.boot for sample, _ in slow}),
        factor=math.exp(min(float(np.median([excess for _, excess in slow])), MAX_LOG)) if slow else 0.0,
    )


def count_events(runs: Collection[tuple[Sample, float]]) -> Counter[Side]:
    """Count the events that made runs of one side slow; `runs` are those of a session with their `slowness`.

    Slow runs that follow each other on a machine, or overlap, are one event; one of both sides is left out.
    """
    # Runs without times cannot be ordered: each slow one is an event.
    events = [[sample] for sample, excess in runs if sample.untimed and excess > 0]
    lasting: list[list[Sample]] = []
    timed = [(sample.start, -excess, sample) for sample, excess in runs if not sample.untimed]
    machines = Machines(sample for _, _, sample in timed)
    for start, speed, sample in sorted(timed, key=itemgetter(0, 1)):
        near = [event for event in lasting if any(machines.meet(run, sample) for run in event)]
        if speed < 0 and near:
            near[0].append(sample)
        elif speed < 0:
            events.append([sample])
            lasting.append(events[-1])
        elif near:
            lasting = [event for event in lasting if event not in near or event[-1].end > start]
    sides = [{sample.side for sample in event} for event in events]
    return Counter(names.pop() for names in sides if len(names) == 1)
