"""Runs that are slow now and then: counted by side, and held against each other by an exact test.

A guest that takes twice as long in one run of ten has no other mean than one that is a little slower always,
and a very different user. Means are the wrong place to look: runs are counted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from virtqual.verdict.batches import costs, known_sigma
from virtqual.verdict.estimate import Bools, Floats, Ints, with_whole
from virtqual.verdict.outcome import Case
from virtqual.verdict.pairs import SIDES, Series, Side

SLOW = math.log(1.25)
#: The largest logarithm of a factor that is shown: a float holds no larger factor.
LARGEST_LOG = 700.0
"""How much longer than its side's typical run a slow run takes: more than a budget with its margin allows."""

SLOW_SIGMAS = 5.0
"""And how many standard deviations of a run's noise: of a million Gaussian runs less than one is slow."""

SLOW_ALPHA = 0.002
"""Error rate of the finding, a fifth of the session's 1 %: nine slow runs on one side, none on the other."""


def slow(values: Floats, sigma: ArrayLike) -> Bools:
    """Return which runs of one side were slow, shape (..., n_runs); see `slowness`."""
    found: Bools = slowness(values, sigma) > 0
    return found


def slowness(values: Floats, sigma: ArrayLike) -> Floats:
    """Return how much longer than its side's typical run each slow run took; 0 for others.

    A run is held against the typical run of its own side and series, so that a steady overhead makes no run
    slow. Typical is the lower median: of four runs two may be slow and two typical. The noise is the wider of
    what is known and what half of the runs show.

    Parameters
    ----------
    values
        Logarithms of what each run cost, shape (..., n_runs, n_columns). Of a curve the last column is its
        mean over the sizes (`virtqual.verdict.estimate.with_whole`), and it alone is looked at: a run is
        slow, not a message size.
    sigma
        Standard deviation of a pair's difference, shape (..., n_columns).

    Returns
    -------
    ndarray
        Log units, shape (..., n_runs). A run that yields several metrics is slow where any of them is.
    """
    run = np.asarray(values[..., -1], dtype=np.float64)
    known = np.asarray(sigma, dtype=np.float64)[..., -1:] / math.sqrt(2)
    n = run.shape[-1]
    ordered = np.sort(run, axis=-1)
    typical = ordered[..., (n - 1) // 2 : (n - 1) // 2 + 1]
    # Down from the median there are no slow runs, so that their own number does not hide them.
    below = np.sort(np.maximum(typical - run, 0), axis=-1)[..., -((n + 3) // 4) : None]
    seen = below.mean(axis=-1, keepdims=True)
    excess: Floats = run - typical
    return np.where(excess > np.maximum(SLOW, SLOW_SIGMAS * np.maximum(known, seen)), excess, 0.0)


@dataclass(frozen=True)
class SlowRuns:
    """How many runs of each side were slow, over a session, and over earlier sessions where they are added.

    Parameters
    ----------
    virtual, native
        Slow runs: integers, or arrays of one shape.
    virtual_runs, native_runs
        All runs, same shape.
    factor
        By how much longer than a typical one a slow virtual run takes, the median; 0 where none is slow.
    """

    virtual: Ints | int
    virtual_runs: Ints | int
    native: Ints | int
    native_runs: Ints | int
    factor: float = 0.0

    def __add__(self, other: SlowRuns) -> SlowRuns:
        return SlowRuns(
            np.add(self.virtual, other.virtual),
            np.add(self.virtual_runs, other.virtual_runs),
            np.add(self.native, other.native),
            np.add(self.native_runs, other.native_runs),
            self.factor or other.factor,
        )

    @property
    def p(self) -> Floats:
        """Return the p-value of "virtual runs are slow no more often than native ones" (Fisher, one-sided).

        Given how many runs were slow in all, how many of them were virtual is hypergeometric, whatever the
        rate is; no assumption is made but that runs are slow independently of each other.
        """
        # Only judging needs it: every ReFrame process imports this module, and scipy.stats takes 0.4 s.
        from scipy import stats

        virtual, virtual_runs = np.asarray(self.virtual), np.asarray(self.virtual_runs)
        slow_in_all, runs = virtual + self.native, virtual_runs + self.native_runs
        p = stats.hypergeom.sf(virtual - 1, runs, virtual_runs, slow_in_all)
        return np.asarray(p, dtype=np.float64)

    @property
    def found(self) -> Bools:
        """Whether the virtual side has slow runs more often than the native one."""
        found: Bools = self.p <= SLOW_ALPHA
        return np.asarray(found)

    @property
    def text(self) -> str:
        """Return such as ``1 in 5 virtual runs takes 1.9x as long (12 of 60); natively 0 of 60``."""
        often = f"1 in {round(int(self.virtual_runs) / int(self.virtual))}" if self.virtual else "none"
        return (
            f"{often} virtual runs takes {self.factor:.1f}x as long ({self.virtual} of {self.virtual_runs}); "
            f"natively {self.native} of {self.native_runs}"
        )


NONE = SlowRuns(0, 0, 0, 0)


def slow_runs_of(cases: Iterable[Case]) -> SlowRuns:
    """Count the slow runs of a session: a run once, however many of its metrics are slow.

    Parameters
    ----------
    cases
        One for each series; the runs of its valid pairs count.
    """
    seen: dict[Side, dict[Hashable, float]] = {side: {} for side in SIDES}
    alike: dict[tuple[int, int], list[Case]] = defaultdict(list)
    for case in cases:
        if case.series.valid:
            alike[len(case.series.valid), case.series.width].append(case)
    for members in alike.values():
        sigma = np.array([known_sigma(case.prior, case.series.width) for case in members])
        both = [costs(case.series, case.series.valid) for case in members]
        for side, values in zip(SIDES, zip(*both, strict=True), strict=True):
            slower = slowness(with_whole(np.array(values)), sigma).tolist()
            for case, excesses in zip(members, slower, strict=True):
                _note(seen[side], case.series, side, excesses)
    slow_ones = {side: [excess for excess in runs.values() if excess > 0] for side, runs in seen.items()}
    factor = (
        math.exp(min(float(np.median(slow_ones["virtual"])), LARGEST_LOG)) if slow_ones["virtual"] else 0.0
    )
    return SlowRuns(
        len(slow_ones["virtual"]), len(seen["virtual"]), len(slow_ones["native"]), len(seen["native"]), factor
    )


def _note(runs: dict[Hashable, float], series: Series, side: Side, excesses: Iterable[float]) -> None:
    """Note how slow each run of one side was: the most that any of its metrics says."""
    for pair, excess in zip(series.valid, excesses, strict=True):
        sample = pair.native if side == "native" else pair.virtual
        assert sample is not None  # of a valid pair
        # Nobody says which samples without times are of one run.
        run = (series.id, *sample.run) if pair.untimed else sample.run
        if excess or run not in runs:
            runs[run] = max(runs.get(run, 0.0), excess)
