"""Hosts that differ from the others of their kind by more than those do among themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

ALPHA = 0.05
"""Error rate of all that is named in a table: where no host differs, about one table in twenty names one. It
decides nothing: a person looks at what is named."""

FEWEST = 4
"""Of fewer hosts none is named: three say little of how far a fourth may lie."""


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
    """Name the hosts that differ, each once: by the mean of all metrics, else by the metric that says most.

    In each column, of a metric or of their mean, by Rosner's generalised extreme Studentised deviate
    (Technometrics 25, 1983): a quarter of the hosts at most, so that one that differs hides no second one.
    Every host is held against its own kind; how far hosts lie apart is taken to be the same for both kinds.

    Parameters
    ----------
    effects
        By metric and host: how much slower, log units.
    kinds
        The hosts of each kind: native ones, and those of VMs; the same once where hosts exchange roles.
    """
    kind_of = {host: number for number, kind in enumerate(kinds) for host in kind}
    columns = {name: {h: log for h, log in known.items() if h in kind_of} for name, known in effects.items()}
    share = dict.fromkeys(columns, ALPHA / max(len(columns), 1))
    if len(columns) > 1:
        everywhere = set.intersection(*(set(known) for known in columns.values()))
        means = {host: float(np.mean([known[host] for known in columns.values()])) for host in everywhere}
        # What is slow is mostly slow in all: half of the error rate is for the mean.
        share = {"": ALPHA / 2, **{name: part / 2 for name, part in share.items()}}
        columns = {"": means, **columns}
    found: dict[str, Outlier] = {}
    for name, known in columns.items():
        for one in _extreme(known, kind_of, name if len(effects) > 1 else "", share[name]):
            before = found.get(one.host)
            if before is None or (before.metric and abs(before.log) < abs(one.log)):
                found[one.host] = one
    return sorted(found.values(), key=lambda one: -abs(one.log))


def _extreme(
    known: Mapping[str, float], kind_of: Mapping[str, int], metric: str, alpha: float
) -> list[Outlier]:
    """Return the hosts of one column that differ from the others of their kind, the most extreme first."""
    left, looked, found = dict(known), list[str](), 0
    for _ in range(max(len(known) // 4, 1)):
        host = max(left, key=lambda at: abs(_apart(at, known, left.keys(), kind_of)), default="")
        if not host or len(left) < FEWEST:
            break
        del left[host]
        looked.append(host)
        # One new value held against all others, the farthest of as many as there are.
        rest = [_apart(at, known, left.keys(), kind_of) for at in left]
        beside = sum(kind_of[at] == kind_of[host] for at in left)
        df = len(left) - len({kind_of[at] for at in left})
        if df < 1 or not beside:
            break
        spread = math.sqrt(sum(one * one for one in rest) / df * (1 + 1 / beside))
        apart = abs(_apart(host, known, left.keys(), kind_of))
        p = 2 * float(special.stdtr(df, -apart / spread)) if spread > 0 else float(apart == 0)
        if p * (len(left) + 1) <= alpha:
            found = len(looked)
    named = looked[:found]
    typical = known.keys() - named
    return [Outlier(host, metric, _apart(host, known, typical, kind_of)) for host in named]


def _apart(host: str, known: Mapping[str, float], among: Iterable[str], kind_of: Mapping[str, int]) -> float:
    """Return how far a host lies from the mean of those of its kind."""
    same = [known[at] for at in among if kind_of[at] == kind_of[host]]
    return known[host] - float(np.mean(same)) if same else 0.0
