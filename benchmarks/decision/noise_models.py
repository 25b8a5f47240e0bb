"""Noise of native and virtual runs: simulated, and resampled from measured A/A runs.

Everything is ln(metric), worse is larger. Runs are in the order N V, V N, N V ...
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np

# Shares of the run-to-run variance: what both sides of a session share, what drifts, what is each run's own.
SHARED, DRIFTING, OWN = 0.40, 0.20, 0.40
DRIFT_MEMORY, RAMP = 0.8, 0.5
OUTLIER_SHARE, OUTLIER_MEAN = 0.02, 0.10

SIZES = tuple(2.0**i for i in range(23))
SMALL = np.array(SIZES) <= 8192
NEIGHBOURS, COMMON = 0.5, 0.01


def virtual_mask(pairs: int) -> np.ndarray:
    """Return which of 2 * pairs runs in a row are virtual."""
    return np.resize([False, True, True, False], 2 * pairs)


def runs(rng: np.random.Generator, decisions: int, pairs: int, cv: float) -> np.ndarray:
    """Return runs of `decisions` sessions, shape (decisions, 2 * pairs): drift, ramp and outliers."""
    count = 2 * pairs
    drift = np.empty((decisions, count))
    scale = cv * np.sqrt(DRIFTING)
    drift[:, 0] = rng.normal(0, scale, decisions)
    for i in range(1, count):
        step = rng.normal(0, scale * np.sqrt(1 - DRIFT_MEMORY**2), decisions)
        drift[:, i] = DRIFT_MEMORY * drift[:, i - 1] + step
    ramp = rng.normal(0, RAMP * cv, (decisions, 1)) * np.linspace(-0.5, 0.5, count)
    own = rng.normal(0, cv * np.sqrt(OWN), (decisions, count))
    outliers = (rng.random((decisions, count)) < OUTLIER_SHARE) * np.log1p(
        rng.exponential(OUTLIER_MEAN, (decisions, count))
    )
    day = rng.normal(0, cv * np.sqrt(SHARED), (decisions, 1))
    return day + drift + ramp + own + outliers


def differences(y: np.ndarray) -> np.ndarray:
    """Return the pair differences of runs in order, shape (decisions, pairs)."""
    mask = virtual_mask(y.shape[1] // 2)
    return y[:, mask] - y[:, ~mask]


def curves(
    rng: np.random.Generator, decisions: int, pairs: int, neighbours: float = NEIGHBOURS
) -> np.ndarray:
    """Return A/A differences of latency curves, shape (decisions, pairs, 23)."""
    noise = np.empty((decisions, pairs, len(SIZES)))
    noise[..., 0] = rng.normal(size=(decisions, pairs))
    for i in range(1, len(SIZES)):
        fresh = rng.normal(size=(decisions, pairs))
        noise[..., i] = neighbours * noise[..., i - 1] + np.sqrt(1 - neighbours**2) * fresh
    sigma = np.where(SMALL, 0.03, 0.015) * np.sqrt(2)
    return noise * sigma + rng.normal(0, COMMON, (decisions, pairs, 1))


def measured(path: Path) -> dict[tuple[str, str], np.ndarray]:
    """Read measured A/A runs: ln(metric), worse is larger, in the order in which they ran.

    Keys are (arm, "program metric"): arm ``prio`` ran with raised priority, ``norm`` without, both on
    a machine where others worked.
    """
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found[row["arm"], f"{row['bench']} {row['metric']}"].append(float(row["value"]))
    higher = ("MBs", "Gflops", "pct")
    return {
        key: np.log(values) * (-1 if key[1].endswith(higher) else 1)
        for key, values in found.items()
        if not key[1].endswith("pct")
    }


def resampled(
    rng: np.random.Generator, y: np.ndarray, decisions: int, pairs: int, block: int = 4
) -> np.ndarray:
    """Return block-resampled A/A differences, shape (decisions, pairs).

    Blocks of `block` neighbouring runs (two pairs) are drawn with replacement, so that what is close in
    time stays close. The log is closed to a ring: every run is native as often as virtual, and the true
    overhead is exactly none.
    """
    blocks = -(-2 * pairs // block)
    starts = rng.integers(0, len(y), (decisions, blocks))
    drawn = y[(starts[..., None] + np.arange(block)).reshape(decisions, -1) % len(y)]
    return differences(drawn[:, : 2 * pairs])
