"""Noise of native and virtual runs: models, disturbances, and measured A/A runs.

Everything is ln(cost), worse is larger. Runs are in the order in which sessions run them. `MODELS` give runs
whose pair differences have one standard deviation; disturbances, such as `Load`, are added to them.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from virtqual.verdict.alternation import is_reversed

NOISE = Path(__file__).with_name("noise.csv")
SIZES = tuple(2.0**i for i in range(23))
Rng = np.random.Generator
Model = Callable[[Rng, tuple[int, ...], np.ndarray], np.ndarray]


def is_virtual(pairs: int, warm_up: bool = False) -> np.ndarray:
    """Return which runs in a row are virtual: two of a warm-up if there is one, then those of the pairs."""
    reversed_turns = [*([False] if warm_up else []), *(is_reversed(turn) for turn in range(pairs))]
    return np.array([second != turn for turn in reversed_turns for second in (False, True)])


def gaussian(rng: Rng, shape: tuple[int, ...], virtual: np.ndarray) -> np.ndarray:
    return rng.standard_normal((*shape, len(virtual)))


def lognormal(rng: Rng, shape: tuple[int, ...], virtual: np.ndarray) -> np.ndarray:
    return np.exp(0.7 * gaussian(rng, shape, virtual))


def skewed(rng: Rng, shape: tuple[int, ...], virtual: np.ndarray) -> np.ndarray:
    """Mostly near the best, with a long tail: a gamma of shape 2."""
    return rng.standard_gamma(2.0, (*shape, len(virtual)))


def exponential(rng: Rng, shape: tuple[int, ...], virtual: np.ndarray) -> np.ndarray:
    return rng.standard_exponential((*shape, len(virtual)))


def student3(rng: Rng, shape: tuple[int, ...], virtual: np.ndarray) -> np.ndarray:
    return rng.standard_t(3, (*shape, len(virtual)))


def wandering(rng: Rng, shape: tuple[int, ...], virtual: np.ndarray) -> np.ndarray:
    """AR(1) with 0.9 from run to run."""
    y = gaussian(rng, shape, virtual)
    for i in range(1, len(virtual)):
        y[..., i] = 0.9 * y[..., i - 1] + np.sqrt(1 - 0.81) * y[..., i]
    return y


def bursts(rng: Rng, shape: tuple[int, ...], virtual: np.ndarray) -> np.ndarray:
    """Load from outside: it starts at one run in twenty, lasts three on average and costs five sigma."""
    return gaussian(rng, shape, virtual) + 5.0 * _states(rng, shape, virtual, 0.05, 1 / 3)


def two_levels(rng: Rng, shape: tuple[int, ...], virtual: np.ndarray) -> np.ndarray:
    """Every run draws one of two speeds, three in ten the slower one."""
    return 4.0 * (rng.random((*shape, len(virtual))) < 0.3) + 0.5 * gaussian(rng, shape, virtual)


def two_levels_sticky(rng: Rng, shape: tuple[int, ...], virtual: np.ndarray) -> np.ndarray:
    """Two speeds that last ten runs on average."""
    return 4.0 * _states(rng, shape, virtual, 0.1, 0.1) + 0.3 * gaussian(rng, shape, virtual)


def two_levels_of_pairs(rng: Rng, shape: tuple[int, ...], virtual: np.ndarray) -> np.ndarray:
    """In half of the pairs the virtual run is slower, in the others the native one."""
    is_slow = np.repeat(rng.random((*shape, len(virtual) // 2)) < 0.5, 2, axis=-1)
    return 3.0 * (is_slow == virtual) + gaussian(rng, shape, virtual)


def unlike_sides(rng: Rng, shape: tuple[int, ...], virtual: np.ndarray) -> np.ndarray:
    """Virtual runs vary three times as much as native ones."""
    return gaussian(rng, shape, virtual) * np.where(virtual, 3.0, 1.0)


def _states(rng: Rng, shape: tuple[int, ...], virtual: np.ndarray, begin: float, end: float) -> np.ndarray:
    """Return a chain of zeros and ones in its steady state."""
    u = rng.random((*shape, len(virtual)))
    states = np.empty_like(u)
    states[..., 0] = u[..., 0] < begin / (begin + end)
    for i in range(1, len(virtual)):
        on = states[..., i - 1] > 0
        states[..., i] = np.where(on, u[..., i] > end, u[..., i] < begin)
    return states


MODELS: dict[str, Model] = {
    "Gaussian": gaussian,
    "lognormal": lognormal,
    "skewed": skewed,
    "t3": student3,
    "AR(1) 0.9": wandering,
    "bursts": bursts,
    "two levels": two_levels,
    "two levels, sticky": two_levels_sticky,
    "two levels of pairs": two_levels_of_pairs,
    "exponential": exponential,
    "unlike sides": unlike_sides,
}
# Timer steps over the value that they show: OSU's 0.01 us of 0.39 us and of 1.25 us.
TIMERS = {"timer 0.01 of 0.39": 0.01 / 0.39, "timer 0.01 of 1.25": 0.01 / 1.25}
NAMES = (*MODELS, *TIMERS)


@dataclass(frozen=True)
class Load:
    """Half of the time all runs are slower by `cost`; its period is so many runs, its phase any."""

    period: float
    cost: float = 0.04

    def __call__(self, rng: Rng, shape: tuple[int, ...], virtual: np.ndarray) -> np.ndarray:
        phase = np.arange(len(virtual)) / self.period + rng.random((*shape, 1))
        return np.log1p(self.cost) * (phase % 1 < 0.5)


@dataclass(frozen=True)
class Stalls:
    """A share of the places in a row of runs has a stall: its runs take `factor` times as long."""

    share: float
    factor: float
    length: int = 1
    shared_by_metrics: bool = False

    def __call__(self, rng: Rng, shape: tuple[int, ...], virtual: np.ndarray) -> np.ndarray:
        rows = (shape[0], *np.ones_like(shape[1:])) if self.shared_by_metrics else shape
        begins = rng.random((*rows, len(virtual) + self.length - 1)) < self.share
        stalled = np.lib.stride_tricks.sliding_window_view(begins, self.length, axis=-1).any(axis=-1)
        return np.log(self.factor) * np.broadcast_to(stalled, (*shape, len(virtual)))


@dataclass(frozen=True)
class OwnStates:
    """Each side has a state of its own, which has this `correlation` from one of its runs to its next."""

    correlation: float
    sd: float = 0.02

    def __call__(self, rng: Rng, shape: tuple[int, ...], virtual: np.ndarray) -> np.ndarray:
        y = gaussian(rng, shape, virtual)
        for side in (virtual, ~virtual):
            runs_of_side = np.flatnonzero(side)
            for before, run in pairwise(runs_of_side):
                y[..., run] = (
                    self.correlation * y[..., before] + np.sqrt(1 - self.correlation**2) * y[..., run]
                )
        return self.sd / np.sqrt(2) * y


@dataclass(frozen=True)
class SlowerVirtualRuns:
    """A share of the virtual runs takes `factor` times as long; the mean of all is that of native runs."""

    share: float
    factor: float

    def __call__(self, rng: Rng, shape: tuple[int, ...], virtual: np.ndarray) -> np.ndarray:
        is_slow = rng.random((*shape, len(virtual))) < self.share
        return np.log(self.factor) * np.where(virtual, is_slow - self.share, 0)


def carry_over(rng: Rng, shape: tuple[int, ...], virtual: np.ndarray) -> np.ndarray:
    """A native run is slower by 1 % after a virtual one."""
    return np.log(1.01) * np.broadcast_to(~virtual & np.append(False, virtual[:-1]), (*shape, len(virtual)))


def drift(rng: Rng, shape: tuple[int, ...], virtual: np.ndarray) -> np.ndarray:
    """Everything gets slower by 10 % an hour; a run takes a minute."""
    return np.broadcast_to(np.log(1.10) / 60 * np.arange(len(virtual)), (*shape, len(virtual)))


def guest_warms_up(rng: Rng, shape: tuple[int, ...], virtual: np.ndarray) -> np.ndarray:
    """The first virtual run is slower by 4 %, and each later one by half as much as the one before."""
    return np.log(1.04) * np.where(virtual, 0.5 ** (np.cumsum(virtual) - 1.0), 0) + np.zeros((*shape, 1))


def first_of_pair(rng: Rng, shape: tuple[int, ...], virtual: np.ndarray) -> np.ndarray:
    """The first run of a pair is slower by 2 %."""
    return np.log(1.02) * (np.arange(len(virtual)) % 2 == 0) + np.zeros((*shape, 1))


ORDER_EFFECTS = {
    "native slower by 1 % after a virtual run": carry_over,
    "drift of 10 % an hour": drift,
    "a guest that warms up": guest_warms_up,
    "first run of a pair slower by 2 %": first_of_pair,
}


@cache
def _unit(name: str) -> float:
    """Return the standard deviation of a model's pair differences, from a large sample."""
    if name == "t3":
        return float(np.sqrt(6.0))
    return float(differences(MODELS[name](np.random.default_rng(1), (200_000,), is_virtual(4))).std())


def runs(rng: Rng, name: str, shape: tuple[int, ...], virtual: np.ndarray, sd: float) -> np.ndarray:
    """Return runs in order, shape (*shape, n_runs), whose pairs have the standard deviation `sd`.

    A quantised timer's runs are not yet rounded: `round_to_timer` does that, once the overhead is added.
    """
    if name in TIMERS:
        rest = max(sd**2 - TIMERS[name] ** 2 / 6, (0.3 * sd) ** 2)
        phase = rng.uniform(-0.5, 0.5, (*shape, 1)) * TIMERS[name]
        return gaussian(rng, shape, virtual) * np.sqrt(rest / 2) + phase
    return MODELS[name](rng, shape, virtual) * (sd / _unit(name))


def round_to_timer(step: float, y: np.ndarray) -> np.ndarray:
    """Return what a timer shows of ln(cost); `step` is a fraction of the value, 0 for none."""
    return np.log(np.maximum(np.round(np.exp(y) / step), 1) * step) if step else y


def sides(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the native and the virtual runs of the pairs in order, each of shape (..., pairs)."""
    virtual = is_virtual(y.shape[-1] // 2)
    return y[..., ~virtual], y[..., virtual]


def differences(y: np.ndarray) -> np.ndarray:
    """Return the pair differences of runs in order, shape (..., pairs)."""
    native, virtual = sides(y)
    return virtual - native


def curves(rng: Rng, shape: tuple[int, ...], pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return A/A latency curves of both sides, shape (*shape, pairs, 23).

    A pair varies by 4.4 % at small sizes and 2.3 % at large ones; half of neighbours' noise is common, and 1
    % is that of the whole curve.
    """
    sigma = curve_sigma()
    y = np.empty((*shape, 2, pairs, len(SIZES)))
    y[..., 0] = rng.standard_normal((*shape, 2, pairs))
    for i in range(1, len(SIZES)):
        y[..., i] = 0.5 * y[..., i - 1] + np.sqrt(0.75) * rng.standard_normal((*shape, 2, pairs))
    y = (y * sigma + 0.01 * rng.standard_normal((*shape, 2, pairs, 1))) / np.sqrt(2)
    return y[..., 0, :, :], y[..., 1, :, :]


def curve_sigma() -> np.ndarray:
    return np.where(np.array(SIZES) <= 8192, 0.03, 0.015) * np.sqrt(2)


def curve_columns() -> np.ndarray:
    """Return the standard deviation of a pair at each size and of the whole curve."""
    sigma, index = curve_sigma(), np.arange(len(SIZES))
    covariance = np.outer(sigma, sigma) * 0.5 ** np.abs(index[:, None] - index) + 0.01**2
    return np.sqrt(np.append(np.diagonal(covariance), covariance.mean()))


def measured() -> dict[tuple[str, str], np.ndarray]:
    """Read measured A/A runs: ln(cost) in the order in which they ran.

    Keys are (arm, "program metric"): arm ``prio`` ran with raised priority, ``norm`` without, both on
    a machine where others worked.
    """
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    with NOISE.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            values[row["arm"], f"{row['bench']} {row['metric']}"].append(float(row["value"]))
    higher = ("MBs", "Gflops", "pct")
    return {
        key: np.log(runs_of_key) * (-1 if key[1].endswith(higher) else 1)
        for key, runs_of_key in values.items()
        if not key[1].endswith("pct")
    }


def resampled(rng: Rng, y: np.ndarray, shape: tuple[int, ...], pairs: int, block: int = 4) -> np.ndarray:
    """Return block-resampled A/A runs in order, shape (*shape, 2 * pairs).

    Blocks of `block` neighbouring runs (two pairs) are drawn with replacement, so that what is close in
    time stays close. The log is closed to a ring: every run is native as often as virtual, and the true
    overhead is exactly none.
    """
    blocks = -(-2 * pairs // block)
    starts = rng.integers(0, len(y), (*shape, blocks))
    drawn = y[(starts[..., None] + np.arange(block)).reshape(*shape, -1) % len(y)]
    return drawn[..., : 2 * pairs]
