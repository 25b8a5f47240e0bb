"""Hosts of a rotation that differ from the others of their kind, and are set aside: their pairs do not count.

Two tests must agree, since either alone names hosts in vain:

- The host lies farther from its kind than the spread of all other hosts explains (Rosner's generalised
  extreme Studentised deviate, Technometrics 25, 1983): hosts differ a little.
- It differs in each round alike (Student's t): a few slow runs make no slow host.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel
from scipy import special

from virtqual.verdict.case import Case
from virtqual.verdict.estimate import Floats
from virtqual.verdict.overhead import Runs
from virtqual.verdict.pairs import Series, host_names, split_turn
from virtqual.verdict.places import host_effects

OUTLIER_ALPHA = 0.005
"""Level of the test that a host lies too far from its kind: 1 % of sessions at most name a host although all
are alike, since Rosner's test names one up to twice as often as its level says if hosts are few."""

ROUND_ALPHA = 0.001
"""Level of the test that a host differs in each round alike: slow runs of one host must pass it seldom, even
if they come in bursts or one side is much noisier than the other."""

MIN_ERROR = 1e-12
"""Smallest standard error of a distance, log units: runs may show equal numbers."""


class Outlier(BaseModel, extra="forbid", frozen=True):
    """A host that is slower than the others of its kind by `log`, log units; faster if `log` is negative.

    `metric` shows it; it is empty for the mean of all metrics.
    """

    host: str
    metric: str
    log: float

    def __str__(self) -> str:
        word, where = "slower" if self.log > 0 else "faster", f" in {self.metric}" if self.metric else ""
        return f"{self.host} is {abs(math.expm1(self.log)):.1%} {word} than the others of its kind{where}"


class HostLogs(NamedTuple):
    """Logarithms of the costs of one metric, or of their mean, shape (2, rounds, hosts).

    `sigma` is the known standard deviation of a run.
    """

    logs: Floats
    sigma: float


def set_aside_hosts(cases: Sequence[Case]) -> tuple[list[Case], list[Outlier]]:
    """Return the cases without the pairs of outlying hosts, and these hosts.

    Metrics that were measured on the same hosts are tested together.
    """
    tables: dict[tuple[tuple[str, ...], ...], dict[str, HostLogs]] = defaultdict(dict)
    for case in cases:
        if case.runs.places.kind == "rotated" and not case.refused:
            sigma = float(case.sigma[-1]) / math.sqrt(2)
            tables[case.runs.places.roles][case.series.id] = HostLogs(_arrange(case.runs), sigma)
    answers, outliers = list(cases), dict[str, Outlier]()
    for roles, table in tables.items():
        named = find_outliers(table, roles)
        outliers = {outlier.host: outlier for outlier in named} | outliers
        for index, case in enumerate(answers if named else ()):
            if case.series.id in table:
                series, baseline = case.series, case.baseline
                if baseline and host_names(baseline.valid) == host_names(series.valid):
                    baseline = without_hosts(baseline, named)
                answers[index] = replace(case, series=without_hosts(series, named), baseline=baseline)
    return answers, list(outliers.values())


def _arrange(runs: Runs) -> Floats:
    """Return the costs of a rotation by side, round and host, with hosts in the order of their names."""
    hosts = np.array([runs.places.native, runs.places.virtual]).reshape(2, -1, runs.places.width)
    return np.take_along_axis(runs.logs[..., -1].reshape(hosts.shape), hosts.argsort(axis=2), axis=2)


def host_factors(runs: Runs, outliers: Set[str]) -> dict[str, float]:
    """Return how much slower each host is than the mean of its kind; empty if the pairs cannot tell.

    In an exchange all hosts are of one kind. Outliers do not count in the mean.
    """
    places = runs.places
    if places.kind == "rotated":
        kinds = list(zip(places.roles, _arrange(runs).mean(axis=1), strict=True))
    elif places.kind == "exchanged":
        kinds = [(places.hosts, host_effects(runs.differences[:, -1], places))]
    else:
        return {}
    factors = dict[str, float]()
    for hosts, effects in kinds:
        typical = [effect for host, effect in zip(hosts, effects, strict=True) if host not in outliers]
        mean = np.mean(typical or effects)
        factors |= dict(zip(hosts, np.exp(effects - mean).tolist(), strict=True))
    return factors


def without_hosts(series: Series, outliers: Sequence[Outlier]) -> Series:
    """Return a series in which the pairs of some hosts do not count, and as many of the other side."""
    hosts = {outlier.host for outlier in outliers}
    sides = [sorted(names, key=lambda name: (name not in hosts, name)) for names in host_names(series.valid)]
    count = max(len(hosts.intersection(names)) for names in sides)
    native, virtual = (set(names[count:]) for names in sides)
    reason = "; ".join(f"set aside, since host {outlier}" for outlier in outliers)
    pairs, set_aside = {pair.number: pair for pair in series.pairs}, set()
    for turn in series.turns:
        chosen_pairs, other_pairs = split_turn(turn, native, virtual)
        set_aside |= {pair.number for pair in other_pairs}
        for pair in (*chosen_pairs, *(replace(pair, invalid=(reason,)) for pair in other_pairs)):
            pairs[pair.number] = pair
    return replace(series, pairs=tuple(pairs.values()), set_aside=frozenset(set_aside))


def find_outliers(table: Mapping[str, HostLogs], roles: Sequence[Sequence[str]]) -> list[Outlier]:
    """Return the hosts that differ: by the mean of all metrics, else by the first metric that shows it.

    Half of the error rate is for the mean. `table` has the costs of each metric, in the order of the hosts in
    `roles`, which are the names of the native hosts, and of those of VMs.
    """
    alpha = OUTLIER_ALPHA if len(table) == 1 else OUTLIER_ALPHA / 2
    tests = [("", _average(list(table.values())), alpha)]
    if len(table) > 1:
        tests += [(metric, column, alpha / len(table)) for metric, column in table.items()]
    named: dict[str, Outlier] = {}
    for metric, column, level in tests:
        for (side, index), log in _find_extremes(column, level).items():
            host = roles[side][index]
            named.setdefault(host, Outlier(host=host, metric=metric, log=log))
    return sorted(named.values(), key=lambda outlier: -abs(outlier.log))


def _average(columns: Sequence[HostLogs]) -> HostLogs:
    """Return the mean of metrics in each round; a metric that is decided has no later rounds."""
    means, variances = [], []
    for index in range(max(column.logs.shape[1] for column in columns)):
        measured = [column for column in columns if column.logs.shape[1] > index]
        means.append(np.mean([_centre(column.logs[:, index]) for column in measured], axis=0))
        variances.append(sum(column.sigma**2 for column in measured) / len(measured) ** 2)
    return HostLogs(np.stack(means, axis=1), math.sqrt(float(np.mean(variances))))


def _centre(logs: Floats) -> Floats:
    """Return costs less the median of their side in the round: a disturbed round slows all of its hosts."""
    return np.asarray(logs - np.median(logs, axis=-1, keepdims=True))


def _find_extremes(column: HostLogs, alpha: float) -> dict[tuple[int, int], float]:
    """Return side and index of the hosts that differ, with how much slower each is than the typical hosts.

    A quarter of the hosts may differ, and more than half of each kind stay: three are needed to name one.
    """
    logs = _centre(column.logs)
    rounds, hosts = logs.shape[1:]
    effects, is_typical = np.median(logs, axis=1), np.ones((2, hosts), dtype=np.bool_)
    removed, count = list[tuple[int, int]](), 0
    while len(removed) < hosts // 2:
        distances = effects - effects.mean(axis=1, keepdims=True, where=is_typical)
        side, index = divmod(int(np.argmax(np.where(is_typical, np.abs(distances), -1.0))), hosts)
        is_typical[side, index] = False
        removed.append((side, index))
        # The farthest of the hosts that are left is tested as a new value beside the others.
        distances = effects - effects.mean(axis=1, keepdims=True, where=is_typical)
        peers, df = int(is_typical[side].sum()), int(is_typical.sum()) - 2
        if 2 * peers <= hosts:
            break
        # A coarse timer shows the same number on all hosts: the known noise is the smallest spread.
        variance = max(float(np.sum(distances[is_typical] ** 2)) / df, column.sigma**2 / rounds)
        t = abs(float(distances[side, index])) / math.sqrt(variance * (1 + 1 / peers))
        if 2 * float(special.stdtr(df, -t)) * (df + 3) <= alpha:
            count = len(removed)
    named = {}
    for side, index in removed[:count] if rounds > 1 else ():
        typical = [k for k in range(hosts) if (side, k) not in removed[:count]]
        distances = logs[side, :, index] - np.median(logs[side][:, typical], axis=-1)
        error = max(float(distances.std(ddof=1)) / math.sqrt(rounds), MIN_ERROR)
        if special.stdtr(rounds - 1, -abs(distances.mean()) / error) <= ROUND_ALPHA:
            named[side, index] = float(effects[side, index] - effects[side, typical].mean())
    return named
