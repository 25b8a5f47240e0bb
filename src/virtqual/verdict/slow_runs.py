"""Runs that are slow now and then: counted by side, and compared by an exact test.

A guest that takes twice as long in one run of ten has about the mean of a guest that is always a little
slower, and a very different user. A mean does not tell them apart, so that slow runs are counted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict

from virtqual.verdict.batches import Case, costs, sigma_of
from virtqual.verdict.estimate import Floats, Ints, append_mean
from virtqual.verdict.pairs import SIDES, Side

SLOW = math.log(1.25)
"""How much longer than the typical run of its side a slow run takes: more than a budget with its margin."""

SLOW_SIGMAS = 5.0
"""Standard deviations of a run's noise that a slow run exceeds: less than one in a million Gaussian runs."""

SLOW_ALPHA = 0.002
"""Error rate of the test, a fifth of the session's 1 %: nine slow runs on one side, none on the other."""

MAX_LOG = 700.0
"""The largest logarithm of a factor that a float holds."""


def slowness(values: Floats, sigma: ArrayLike) -> Floats:
    """Return how much longer than the typical run of its side each slow run took, log units; 0 for others.

    A run is compared with its own side and series, so that a steady overhead makes no run slow. The typical
    run is the lower median: of four runs two may be slow. The noise is the wider of the known noise and that
    of the faster half of the runs.

    Parameters
    ----------
    values
        Logarithms of the cost of each run, shape (..., n_runs, n_columns). Only the last column counts, of a
        curve its mean over the sizes: a run is slow, not a message size.
    sigma
        Standard deviation of a pair's difference, shape (..., n_columns).
    """
    run = np.asarray(values[..., -1], dtype=np.float64)
    run_sigma = np.asarray(sigma, dtype=np.float64)[..., -1:] / math.sqrt(2)
    n = run.shape[-1]
    ordered = np.sort(run, axis=-1)
    typical = ordered[..., (n - 1) // 2 : (n - 1) // 2 + 1]
    # Below the median there are no slow runs, so that their own number does not hide them.
    below = np.sort(np.maximum(typical - run, 0), axis=-1)[..., -((n + 3) // 4) : None]
    observed = below.mean(axis=-1, keepdims=True)
    excess: Floats = run - typical
    return np.where(excess > np.maximum(SLOW, SLOW_SIGMAS * np.maximum(run_sigma, observed)), excess, 0.0)


def p_value(
    virtual: Ints | int, virtual_runs: Ints | int, native: Ints | int, native_runs: Ints | int
) -> Floats:
    """Return the p-value of "virtual runs are slow no more often than native ones" (Fisher, one-sided).

    Given the number of slow runs on both sides, the number of virtual ones is hypergeometric at any rate.
    The only assumption is that runs are slow independently of each other.
    """
    from scipy import stats  # slow to import, and not needed by the processes of checks

    slow, runs = np.add(virtual, native), np.add(virtual_runs, native_runs)
    return np.asarray(stats.hypergeom.sf(np.subtract(virtual, 1), runs, virtual_runs, slow))


class SlowRuns(BaseModel):
    """The slow runs of each side in one session or several.

    Attributes
    ----------
    virtual, native, virtual_runs, native_runs
        Number of slow runs, and of all runs.
    factor
        How many times as long as a typical run a slow virtual run takes, the median; 0 if none is slow.
    found
        Virtual runs are slow more often than native ones, in this session and earlier ones of its build.
    text
        The finding in words; empty if there is none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    virtual: int = 0
    virtual_runs: int = 0
    native: int = 0
    native_runs: int = 0
    factor: float = 0.0
    found: bool = False
    text: str = ""

    def __add__(self, other: SlowRuns) -> SlowRuns:
        return SlowRuns(
            virtual=self.virtual + other.virtual,
            virtual_runs=self.virtual_runs + other.virtual_runs,
            native=self.native + other.native,
            native_runs=self.native_runs + other.native_runs,
            factor=self.factor or other.factor,
        )

    @property
    def p(self) -> float:
        """The `p_value`."""
        return float(p_value(self.virtual, self.virtual_runs, self.native, self.native_runs))

    def describe(self) -> str:
        """Return such as ``1 in 5 virtual runs takes 1.9x as long (12 of 60); natively 0 of 60``."""
        rate = f"1 in {round(self.virtual_runs / self.virtual)}" if self.virtual else "none"
        return (
            f"{rate} virtual runs takes {self.factor:.1f}x as long ({self.virtual} of {self.virtual_runs}); "
            f"natively {self.native} of {self.native_runs}"
        )


NO_SLOW_RUNS = SlowRuns()


def slow_runs_of(cases: Iterable[Case]) -> SlowRuns:
    """Count the slow runs of valid pairs: a run once, however many of its metrics are slow.

    `cases` has one case for each series.
    """
    slowest: dict[Side, dict[Hashable, float]] = {side: {} for side in SIDES}
    shapes: dict[tuple[int, int], list[Case]] = defaultdict(list)
    for case in cases:
        if case.series.valid:
            shapes[len(case.series.valid), case.series.width].append(case)
    for members in shapes.values():
        sigma = np.array([sigma_of(case.prior, case.series.width) for case in members])
        sides = zip(*(costs(case.series, case.series.valid) for case in members), strict=True)
        native, virtual = (slowness(append_mean(np.array(side)), sigma) for side in sides)
        excesses = np.stack([native, virtual], axis=-1).tolist()
        for case, case_excesses in zip(members, excesses, strict=True):
            for pair, pair_excesses in zip(case.series.valid, case_excesses, strict=True):
                is_untimed = pair.untimed
                for sample, excess in zip(pair.samples, pair_excesses, strict=True):
                    # Without times it is unknown which samples are of one run.
                    run = (case.series.id, *sample.run) if is_untimed else sample.run
                    runs = slowest[sample.side]
                    runs[run] = max(runs.get(run, 0.0), excess)
    slow = {side: [excess for excess in runs.values() if excess > 0] for side, runs in slowest.items()}
    factor = math.exp(min(float(np.median(slow["virtual"])), MAX_LOG)) if slow["virtual"] else 0.0
    return SlowRuns(
        virtual=len(slow["virtual"]),
        virtual_runs=len(slowest["virtual"]),
        native=len(slow["native"]),
        native_runs=len(slowest["native"]),
        factor=factor,
    )
