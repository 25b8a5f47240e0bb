"""Sessions made of real series of repeated runs, which `convert_data.py` writes.

Consecutive values of a series take the places of native and virtual runs in the order of a session. Nothing
in the data differs between the two, so the true overhead is what is added. The metrics of a session come from
the same machine at the same time, where that machine has enough series. A history, the first 40 % of each
series, precedes all sessions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import noise_models as models
import numpy as np
import yaml

import sessions as draw
from virtqual import paths
from virtqual.verdict.estimate import Floats, Noise
from virtqual.verdict.noise import STATED_BETWEEN_DF, Prior, sigma_of

METRICS = 11
RUNS = 2 * draw.MAX_PAIRS
HISTORY_SHARE = 0.4
LIMITED_SHARE = 0.5
FILES = ("cloudlab.npz", "cloud_noise.npz", "azure_long_values.npz")
_RATES = ("MB/s", "MiB_s", "MiB_sec", "GB_sec", "IOPS", "TPS", "Requests Per Second", "Bogo Ops_s",
          "ops_sec", "Events Per Second")  # fmt: skip
# Metrics that show the runs of another one, in another unit.
_REPEATED = ("MiB_s of Flexible_IO_Tester", "msec of Flexible_IO_Tester", "Average_Latency")
# The family of a metric by a part of its key, the first that fits; "application" if none does.
_FAMILIES = {
    "stream": "memory",
    "Memory_Latency_Checker|Test:_Idle": "memory-latency",
    "Memory_Latency_Checker": "memory",
    "RAM__Memory": "memory",
    "Memory_Copying": "memory",
    "Memcpy": "memory",
    "Memset": "memory",
    "perf-bench": "kernel",
    "OSBench": "kernel",
    "Flexible_IO_Tester": "storage",
    "PostgreSQL": "service-peak",
    "Redis": "service-peak",
    "mpi_lat": "mpi-latency",
    "mpi_bw": "mpi-bandwidth",
}


class Series(NamedTuple):
    """The runs of one metric on one machine, as ln(cost), in the order of time."""

    data_set: str
    machine: str
    family: str
    logs: Floats


def read_series(directory: Path) -> list[Series]:
    """Read the three files of a directory.

    Left out are series that are too short for a session, metrics that show the same runs in another unit,
    and metrics that a limit holds (half of the values equal the one before): no rule has difficulty there.
    """
    series = []
    for name in FILES:
        with np.load(directory / name) as arrays:
            for key in arrays.files:
                values = np.asarray(arrays[key], dtype=np.float64)
                series.append(_read_one(name, key, values[:, 3] if values.ndim == 2 else values))
    return [
        one for one in series
        if one is not None and _start_of(one.logs) + RUNS <= len(one.logs)
        and np.mean(np.diff(one.logs) == 0) < LIMITED_SHARE
    ]  # fmt: skip


def _read_one(file: str, key: str, values: Floats) -> Series | None:
    """Return the series of a key, or None if its metric shows the runs of another one."""
    fields = key.split("|")
    if file == "cloudlab.npz":
        data_set, machine, unit = "CloudLab", "|".join(fields[:3]), "MB/s" if "stream" in key else "s"
    elif file == "cloud_noise.npz":
        data_set, machine, unit = "MPI", "", "us"
    else:
        data_set, machine, unit = f"Azure {fields[3]}", "|".join((*fields[2:4], fields[5])), fields[4]
        if any(name in f"{unit} of {fields[0]}|{fields[1]}" for name in _REPEATED):
            return None
    family = next((family for part, family in _FAMILIES.items() if part in key), "application")
    logs = np.log(values)
    return Series(data_set, machine, family, -logs if unit in _RATES else logs)


def _start_of(logs: Floats) -> int:
    """Return where the history of a series ends, after whole pairs."""
    return int(HISTORY_SHARE * len(logs)) // 2 * 2


def split_history(logs: Floats) -> Floats:
    """Return the history of a series as sessions, spread over it, shape (n_sessions, 2 * n_pairs)."""
    runs = 2 * draw.HISTORY_PAIRS
    whole = _start_of(logs) // runs
    chosen = np.unique(np.linspace(0, whole - 1, min(whole, draw.HISTORY_SESSIONS)).astype(int))
    return logs[: whole * runs].reshape(whole, runs)[chosen]


@dataclass(frozen=True)
class Sessions:
    """Runs that take the places of a session's, without an overhead yet.

    Attributes
    ----------
    logs
        ln(cost) in the order of time, shape (n_sessions, n_metrics, 2 * MAX_PAIRS).
    reference
        ln of the mean cost in the history, shape (n_sessions, n_metrics).
    recorded, stated
        The noise by the history, and by references/noise for the family of each metric.
    """

    logs: Floats
    reference: Floats
    recorded: Noise
    stated: Noise

    def with_overhead(self, overhead: Floats, noise: Noise | None = None) -> draw.Drawn:
        """Return the pairs, with the log overhead of each metric on the virtual runs."""
        native, virtual = models.sides(self.logs)
        return draw.Drawn(native, virtual + overhead[:, None], noise or self.recorded)


class DataSet:
    """The series of one data set, and what their histories say."""

    def __init__(self, series: list[Series]) -> None:
        self.name = series[0].data_set
        self._flat = np.concatenate([one.logs for one in series])
        lengths = np.array([len(one.logs) for one in series])
        self._end = np.cumsum(lengths)
        self._start = self._end - lengths + [_start_of(one.logs) for one in series]
        machines = np.array([one.machine for one in series])
        groups = [np.flatnonzero(machines == machine) for machine in np.unique(machines)]
        self._groups = [group for group in groups if len(group) >= METRICS]
        windows = (self._end - self._start) // RUNS
        #: How many sessions there are that have no run in common.
        self.independent = sum(int(windows[group].sum()) // METRICS for group in self._groups)
        self._learn(series)

    def _learn(self, series: list[Series]) -> None:
        """Estimate the noise of each series by its history, as `virtqual propose` does."""
        histories = [split_history(one.logs) for one in series]
        self._reference = np.array([np.log(np.mean(np.exp(history))) for history in histories])
        recorded = [draw.record_noise(*models.sides(history)) for history in histories]
        self._sigma, self._df = (np.array(values) for values in zip(*recorded, strict=True))
        stated = _stated_noise()
        self._stated = np.array([stated[one.family] for one in series])

    def draw(self, rng: draw.Rng, sessions: int) -> Sessions:
        """Draw sessions: of each a machine, 11 of its metrics, and a time."""
        sizes = np.array([len(group) for group in self._groups], dtype=float)
        which = rng.choice(len(sizes), sessions, p=sizes / sizes.sum())
        metrics = np.stack([rng.choice(self._groups[group], METRICS, replace=False) for group in which])
        last = self._end[metrics] - RUNS - self._start[metrics]
        first = self._start[metrics] + np.floor(rng.random((sessions, 1)) * (last + 1)).astype(int)
        sigma, df, between = np.moveaxis(self._stated[metrics], -1, 0)[..., None]
        return Sessions(
            self._flat[first[..., None] + np.arange(RUNS)],
            self._reference[metrics],
            Noise(self._sigma[metrics][..., None], self._df[metrics][..., None]),
            Noise(sigma, df, between, STATED_BETWEEN_DF),
        )


@cache
def _stated_noise() -> Mapping[str, tuple[float, float, float]]:
    """Return sigma, its weight and the spread of boots of each family."""
    text = (paths.root() / "references/noise/default.yaml").read_text(encoding="utf-8")
    stated = {}
    for entry in yaml.safe_load(text)["noise"]:
        prior = Prior(**{key: value for key, value in entry.items() if key != "family"})
        stated[entry["family"]] = float(sigma_of(prior, 1)[0]), prior.df, prior.between
    return stated


def read_data_sets(directory: Path) -> Iterator[DataSet]:
    """Yield the data sets of a directory in a fixed order; `read_series` describes the files."""
    by_name = defaultdict(list)
    for one in read_series(directory):
        by_name[one.data_set].append(one)
    yield from (DataSet(series) for series in by_name.values())
