"""Hosts that differ from the others of their kind by more than those do among themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

OUTLIER_ALPHA = 0.05
"""Error rate of all that is named in a table: if no host differs, one table in twenty names a host.

It decides nothing: a person looks at the host.
"""

MIN_HOSTS = 4
"""Hosts that are needed to name one: three do not show how far a fourth may lie."""


@dataclass(frozen=True)
class Outlier:
    """A host that is slower than the others of its kind by `log`, log units; faster if `log` is negative.

    `metric` shows it; it is empty for the mean of all metrics.
    """

    host: str
    metric: str
    log: float

    def __str__(self) -> str:
        word, where = "slower" if self.log > 0 else "faster", f" in {self.metric}" if self.metric else ""
        return f"{self.host} is {abs(math.expm1(self.log)):.1%} {word} than the others of its kind{where}"


def outliers(effects: Mapping[str, Mapping[str, float]], kinds: Sequence[frozenset[str]]) -> list[Outlier]:
    """Return the hosts that differ, each once: by the mean of all metrics, else by the most extreme metric.

    Each column, of a metric or of the mean, is tested by Rosner's generalised extreme Studentised deviate
    (Technometrics 25, 1983) for a quarter of the hosts at most. A host is compared with its own kind; the
    spread of hosts is taken to be the same for both kinds.

    Parameters
    ----------
    effects
        How much slower each host is, log units, by metric and host.
    kinds
        The hosts of each kind: native ones, and those of VMs; one set if hosts exchange roles.
    """
    kind_of = {host: number for number, kind in enumerate(kinds) for host in kind}
    columns = {
        metric: {host: log for host, log in logs.items() if host in kind_of}
        for metric, logs in effects.items()
    }
    alphas = dict.fromkeys(columns, OUTLIER_ALPHA / max(len(columns), 1))
    if len(columns) > 1:
        common = set.intersection(*(set(logs) for logs in columns.values()))
        means = {host: float(np.mean([logs[host] for logs in columns.values()])) for host in common}
        # A slow host is mostly slow in all metrics: half of the error rate is for the mean.
        alphas = {"": OUTLIER_ALPHA / 2, **{metric: alpha / 2 for metric, alpha in alphas.items()}}
        columns = {"": means, **columns}
    named: dict[str, Outlier] = {}
    for metric, logs in columns.items():
        for outlier in _find_extremes(logs, kind_of, metric if len(effects) > 1 else "", alphas[metric]):
            before = named.get(outlier.host)
            if before is None or (before.metric and abs(before.log) < abs(outlier.log)):
                named[outlier.host] = outlier
    return sorted(named.values(), key=lambda outlier: -abs(outlier.log))


def _find_extremes(
    logs: Mapping[str, float], kind_of: Mapping[str, int], metric: str, alpha: float
) -> list[Outlier]:
    """Return the hosts of one column that differ from the others of their kind, the most extreme first."""
    remaining, removed, count = dict(logs), list[str](), 0
    for _ in range(max(len(logs) // 4, 1)):
        distances = {host: _distance(host, logs, remaining, kind_of) for host in remaining}
        host = max(distances, key=lambda name: abs(distances[name]), default="")
        if not host or len(remaining) < MIN_HOSTS:
            break
        del remaining[host]
        removed.append(host)
        # The farthest of all remaining hosts is tested as a new value beside the others.
        rest = [_distance(name, logs, remaining, kind_of) for name in remaining]
        peers = sum(kind_of[name] == kind_of[host] for name in remaining)
        df = len(remaining) - len({kind_of[name] for name in remaining})
        if df < 1 or not peers:
            break
        spread = math.sqrt(sum(distance**2 for distance in rest) / df * (1 + 1 / peers))
        distance = abs(_distance(host, logs, remaining, kind_of))
        p = 2 * float(special.stdtr(df, -distance / spread)) if spread > 0 else float(distance == 0)
        if p * (len(remaining) + 1) <= alpha:
            count = len(removed)
    extremes = removed[:count]
    typical = logs.keys() - extremes
    return [Outlier(host, metric, _distance(host, logs, typical, kind_of)) for host in extremes]


def _distance(
    host: str, logs: Mapping[str, float], hosts: Iterable[str], kind_of: Mapping[str, int]
) -> float:
    """Return how far a host lies from the mean of some hosts of its kind."""
    peers = [logs[name] for name in hosts if kind_of[name] == kind_of[host]]
    return logs[host] - float(np.mean(peers)) if peers else 0.0
