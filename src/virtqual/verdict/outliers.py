"""Hosts that differ from the others of their kind by more than those do among themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

ALPHA = 0.01
"""Error rate of all that is named in a table: where no host differs, one table in a hundred names one."""

FEWEST = 4
"""Of fewer hosts none is named: three say nothing of how far a fourth may lie."""


@dataclass(frozen=True)
class Outlier:
    """A host, and by how much it is slower than the others of its kind.

    Parameters
    ----------
    host
        Its name.
    metric
        The metric that shows it; empty for the mean of all metrics.
    log
        By how much, log units; negative where it is faster.
    """

    host: str
    metric: str
    log: float

    def __str__(self) -> str:
        word = "slower" if self.log > 0 else "faster"
        return f"{self.host} is {abs(math.expm1(self.log)):.1%} {word} than the others of its kind" + (
            f" in {self.metric}" if self.metric else ""
        )


def outliers(effects: Mapping[str, Mapping[str, float]], kinds: Sequence[frozenset[str]]) -> list[Outlier]:
    """Name the hosts that differ, each once: by the mean over all metrics, else by its most telling metric.

    A host is held against the mean and the spread of all others (Student's t of a single new value), over all
    metrics together and in each of them.  The most telling is named and taken out, until nothing is left to
    name: so one slow host does not hide a second one for long.

    Parameters
    ----------
    effects
        By metric and host: how much slower, log units.
    kinds
        The hosts of each kind: native ones, and those of VMs; the same once where hosts exchange roles.
    """
    columns = {name: dict(known) for name, known in effects.items()}
    if len(columns) > 1:
        everywhere = set.intersection(*(set(known) for known in columns.values()))
        means = {host: float(np.mean([known[host] for known in columns.values()])) for host in everywhere}
        columns = {"": means, **columns}
    found = []
    for kind in kinds:
        of_kind = {name: {h: known[h] for h in kind & known.keys()} for name, known in columns.items()}
        # Metrics, their mean and all hosts share the error rate.
        share = ALPHA / max(sum(map(len, of_kind.values())) * len(kinds), 1)
        while one := _worst(of_kind, share):
            found.append(one if len(effects) > 1 else Outlier(one.host, "", one.log))
            for known in of_kind.values():
                known.pop(one.host, None)
    return sorted(found, key=lambda one: -abs(one.log))


def _worst(columns: Mapping[str, Mapping[str, float]], share: float) -> Outlier | None:
    """Return the host that differs most clearly, where one does."""
    best, least = None, share
    for name, known in columns.items():
        for host, value in known.items():
            others = np.array([other for at, other in known.items() if at != host])
            if len(others) < FEWEST - 1:
                continue
            spread = float(others.std(ddof=1)) * math.sqrt(1 + 1 / len(others))
            apart = value - float(others.mean())
            p = (
                2 * float(stats.t.sf(abs(apart) / spread, len(others) - 1))
                if spread > 0
                else float(apart == 0)
            )
            if p <= least:
                best, least = Outlier(host, name, apart), p
    return best
