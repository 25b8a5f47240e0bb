"""Noise of native and virtual runs: ten models, and measured A/A runs.

Everything is ln(cost), worse is larger. Runs are in the order N V, V N, N V ...; `MODELS` give runs whose
pair differences have a standard deviation of 1.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

NOISE = Path(__file__).with_name("noise.csv")
SIZES = tuple(2.0**i for i in range(23))
Rng = np.random.Generator
Model = Callable[[Rng, tuple[int, ...], int], np.ndarray]


def gaussian(rng: Rng, shape: tuple[int, ...], runs: int) -> np.ndarray:
    return rng.standard_normal((*shape, runs))


def skewed(rng: Rng, shape: tuple[int, ...], runs: int) -> np.ndarray:
    """Mostly near the best, with a long tail: a gamma of shape 2."""
    return rng.standard_gamma(2.0, (*shape, runs))


def student3(rng: Rng, shape: tuple[int, ...], runs: int) -> np.ndarray:
    return rng.standard_t(3, (*shape, runs))


def wandering(rng: Rng, shape: tuple[int, ...], runs: int) -> np.ndarray:
    """AR(1) with 0.9 from run to run."""
    y = rng.standard_normal((*shape, runs))
    for i in range(1, runs):
        y[..., i] = 0.9 * y[..., i - 1] + np.sqrt(1 - 0.81) * y[..., i]
    return y


def bursts(rng: Rng, shape: tuple[int, ...], runs: int) -> np.ndarray:
    """Load from outside: it starts at one run in twenty, lasts three on average and costs five sigma."""
    return rng.standard_normal((*shape, runs)) + 5.0 * _states(rng, shape, runs, 0.05, 1 / 3)


def two_levels(rng: Rng, shape: tuple[int, ...], runs: int) -> np.ndarray:
    """Every run draws one of two speeds, three in ten the slower one."""
    return 4.0 * (rng.random((*shape, runs)) < 0.3) + 0.5 * rng.standard_normal((*shape, runs))


def two_levels_sticky(rng: Rng, shape: tuple[int, ...], runs: int) -> np.ndarray:
    """Two speeds that last ten runs on average."""
    return 4.0 * _states(rng, shape, runs, 0.1, 0.1) + 0.3 * rng.standard_normal((*shape, runs))


def exponential(rng: Rng, shape: tuple[int, ...], runs: int) -> np.ndarray:
    return rng.standard_exponential((*shape, runs))


def _states(rng: Rng, shape: tuple[int, ...], runs: int, begin: float, end: float) -> np.ndarray:
    """Return a chain of zeros and ones in its steady state."""
    u = rng.random((*shape, runs))
    states = np.empty((*shape, runs))
    states[..., 0] = u[..., 0] < begin / (begin + end)
    for i in range(1, runs):
        on = states[..., i - 1] > 0
        states[..., i] = np.where(on, u[..., i] > end, u[..., i] < begin)
    return states


MODELS: dict[str, Model] = {
    "Gaussian": gaussian,
    "skewed": skewed,
    "t3": student3,
    "AR(1) 0.9": wandering,
    "bursts": bursts,
    "two levels": two_levels,
    "two levels, sticky": two_levels_sticky,
    "exponential": exponential,
}
# Timer steps over the value that they show: OSU's 0.01 us of 0.39 us and of 1.25 us.
TIMERS = {"timer 0.01 of 0.39": 0.01 / 0.39, "timer 0.01 of 1.25": 0.01 / 1.25}
NAMES = (*MODELS, *TIMERS)


@cache
def _unit(name: str) -> float:
    """Return the standard deviation of a model's pair differences, from a large sample."""
    if name == "t3":
        return float(np.sqrt(6.0))
    return float(differences(MODELS[name](np.random.default_rng(1), (200_000,), 8)).std())


def runs(rng: Rng, name: str, shape: tuple[int, ...], pairs: int, sd: float) -> np.ndarray:
    """Return runs in order, shape (*shape, 2 * pairs), whose pairs have the standard deviation `sd`.

    A quantised timer's runs are not yet rounded: `round_to_timer` does that, once the overhead is added.
    """
    if name in TIMERS:
        rest = max(sd**2 - TIMERS[name] ** 2 / 6, (0.3 * sd) ** 2)
        phase = rng.uniform(-0.5, 0.5, (*shape, 1)) * TIMERS[name]
        return gaussian(rng, shape, 2 * pairs) * np.sqrt(rest / 2) + phase
    return MODELS[name](rng, shape, 2 * pairs) * (sd / _unit(name))


def round_to_timer(name: str, y: np.ndarray) -> np.ndarray:
    """Return what a timer of the model's resolution shows of ln(cost)."""
    if name not in TIMERS:
        return y
    step = TIMERS[name]
    return np.log(np.maximum(np.round(np.exp(y) / step), 1) * step)


def virtual_mask(pairs: int) -> np.ndarray:
    """Return which of 2 * pairs runs in a row are virtual."""
    return np.resize([False, True, True, False], 2 * pairs)


def sides(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the native and the virtual runs of runs in order, each of shape (..., pairs)."""
    mask = virtual_mask(y.shape[-1] // 2)
    return y[..., ~mask], y[..., mask]


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
