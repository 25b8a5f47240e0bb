"""Hosts of a rotation that differ from the others of their kind by more than those do among themselves.

A host that is named is set aside: its pairs do not count, and the other hosts are judged without it. The rule
is the same in a sweep and in a session, and asks for two things, since either alone names hosts in vain:

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
from pydantic import BaseModel, ConfigDict
from scipy import special

from virtqual.verdict.batches import Case, costs, sigma_of
from virtqual.verdict.estimate import Floats, append_mean
from virtqual.verdict.pairs import Series
from virtqual.verdict.places import choose_pairs, host_effects, host_names, places_of, split_turn, turns_of

OUTLIER_ALPHA = 0.01
"""Share of sessions that may name a host although all hosts are alike."""

ROUND_ALPHA = 0.001
"""Level of the test that a host differs in each round alike: slow runs of one host must pass it seldom, even
if they come in bursts or one side is much noisier than the other."""


class Outlier(BaseModel):
    """A host that is slower than the others of its kind by `log`, log units; faster if `log` is negative.

    `metric` shows it; it is empty for the mean of all metrics.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

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
        series = case.series
        if case.refused or not _has_two_places(series):
            continue
        pairs = choose_pairs(series)
        places = places_of(series, pairs)
        if places.kind == "rotated":
            whole = len(pairs) - len(pairs) % places.width
            order = (
                np.stack([places.native, places.virtual])[:, :whole].reshape(2, -1, places.width).argsort(2)
            )
            logs = np.stack([side.mean(axis=-1)[:whole] for side in costs(series, pairs)])
            logs = np.take_along_axis(logs.reshape(order.shape), order, axis=2)
            sigma = float(sigma_of(case.prior, series.width)[-1]) / math.sqrt(2)
            tables[places.roles][series.id] = HostLogs(logs, sigma)
    outliers, answers = [], list(cases)
    for roles, table in tables.items():
        named = find_outliers(table, roles)
        outliers += named
        if reason := "; ".join(f"set aside, since host {outlier}" for outlier in named):
            hosts = frozenset(outlier.host for outlier in named)
            for index, case in enumerate(answers):
                if case.series.id in table:
                    series, baseline = case.series, case.baseline
                    if baseline and host_names(baseline.valid) == host_names(series.valid):
                        baseline = without_hosts(baseline, hosts, reason)
                    series = without_hosts(series, hosts, reason)
                    answers[index] = replace(case, series=series, baseline=baseline)
    return answers, outliers


def _has_two_places(series: Series) -> bool:
    """Return whether the first pair ran on two places: if it did not, no host can be told from another."""
    pair = next(iter(series.valid), None)
    places = [sample.place for sample in pair.samples] if pair else []
    return all(places) and len(set(places)) == 2


def host_factors(series: Series, outliers: Set[str]) -> dict[str, float]:
    """Return how much slower each host is than the mean of its kind; empty if the pairs cannot tell.

    Outliers do not count in the mean.
    """
    if not _has_two_places(series):
        return {}
    pairs = choose_pairs(series)
    places = places_of(series, pairs)
    if places.kind not in ("exchanged", "rotated"):
        return {}
    native, virtual = map(append_mean, costs(series, pairs))
    effects = dict(zip(places.hosts, host_effects(native, virtual, places)[:, -1].tolist(), strict=True))
    factors = dict[str, float]()
    for kind in places.roles if places.kind == "rotated" else (places.hosts,):
        mean = np.mean([effects[host] for host in kind if host not in outliers] or [0.0])
        factors |= {host: math.exp(effects[host] - mean) for host in kind}
    return factors


def without_hosts(series: Series, hosts: frozenset[str], reason: str) -> Series:
    """Return a series in which the pairs of some hosts do not count for a reason.

    As many hosts of the other side, the first by name, go with them: a rotation has as many of both.
    """
    sides = host_names(series.valid)
    count = max(len(names & hosts) for names in sides)
    kept = [names - set(sorted(names, key=lambda name: (name not in hosts, name))[:count]) for names in sides]
    pairs = {pair.number: pair for pair in series.pairs}
    set_aside = set()
    for turn in turns_of(series):
        chosen, others = split_turn(turn, *kept)
        pairs |= {pair.number: pair for pair in chosen}
        pairs |= {pair.number: replace(pair, invalid=(reason,)) for pair in others}
        set_aside |= {pair.number for pair in others}
    return replace(series, pairs=tuple(pairs.values()), set_aside=frozenset(set_aside))


def find_outliers(table: Mapping[str, HostLogs], roles: Sequence[Sequence[str]]) -> list[Outlier]:
    """Return the hosts that differ, each once: by the mean of all metrics, else by the most extreme metric.

    A slow host is mostly slow in all metrics: half of the error rate is for the mean.

    Parameters
    ----------
    table
        The costs of each metric, in the order of the hosts in `roles`.
    roles
        Names of the native hosts, and of those of VMs.
    """
    alphas, columns = dict.fromkeys(table, OUTLIER_ALPHA), dict(table)
    if len(table) > 1:
        rounds = min(column.logs.shape[1] for column in table.values())
        mean = np.mean([_centre(column.logs[:, :rounds]) for column in table.values()], axis=0)
        sigma = math.sqrt(sum(column.sigma**2 for column in table.values())) / len(table)
        alphas = {"": OUTLIER_ALPHA / 2, **dict.fromkeys(table, OUTLIER_ALPHA / 2 / len(table))}
        columns = {"": HostLogs(mean, sigma), **columns}
    named: dict[str, Outlier] = {}
    for metric, column in columns.items():
        for (side, index), log in _find_extremes(column, alphas[metric]).items():
            shown_metric = metric if len(table) > 1 else ""
            outlier = Outlier(host=roles[side][index], metric=shown_metric, log=log)
            before = named.get(outlier.host)
            if before is None or (before.metric and abs(before.log) < abs(log)):
                named[outlier.host] = outlier
    return sorted(named.values(), key=lambda outlier: -abs(outlier.log))


def _centre(logs: Floats) -> Floats:
    """Return costs less the median of their side in the round: a disturbed round slows all of its hosts."""
    centred: Floats = logs - np.median(logs, axis=-1, keepdims=True)
    return centred


def _find_extremes(column: HostLogs, alpha: float) -> dict[tuple[int, int], float]:
    """Return side and index of the hosts that differ, with how much slower each is than the typical hosts.

    Three hosts of a kind are needed to name one, and more than half of them stay.
    """
    logs = _centre(column.logs)
    rounds, hosts = logs.shape[1:]
    effects, is_typical = np.median(logs, axis=1), np.ones((2, hosts), dtype=np.bool_)
    min_spread = column.sigma / math.sqrt(rounds)  # a coarse timer shows the same number on all hosts
    removed, count = list[tuple[int, int]](), 0
    for _ in range(max(hosts // 2, 1)):
        means = effects.mean(axis=1, keepdims=True, where=is_typical)
        side, index = divmod(int(np.argmax(np.where(is_typical, np.abs(effects - means), -1.0))), hosts)
        is_typical[side, index] = False
        removed.append((side, index))
        peers = int(is_typical[side].sum())
        if 2 * peers <= hosts:
            break
        # The farthest of the hosts that are left is tested as a new value beside the others.
        rest = effects - effects.mean(axis=1, keepdims=True, where=is_typical)
        df = int(is_typical.sum()) - 2
        spread = max(math.sqrt(float(np.sum(rest[is_typical] ** 2)) / df), min_spread)
        t = abs(float(rest[side, index])) / (spread * math.sqrt(1 + 1 / peers))
        if 2 * float(special.stdtr(df, -t)) * (df + 3) <= alpha:
            count = len(removed)
    named = {}
    for side, index in removed[:count]:
        typical = [k for k in range(hosts) if (side, k) not in removed[:count]]
        distances = logs[side, :, index] - np.median(logs[side][:, typical], axis=-1)
        if _differs_in_each_round(distances):
            named[side, index] = float(effects[side, index] - effects[side, typical].mean())
    return named


def _differs_in_each_round(distances: Floats) -> bool:
    """Return whether the distances of a host from its kind, one a round, differ from 0 by Student's t."""
    rounds = len(distances)
    if rounds < 2:
        return False
    error = float(distances.std(ddof=1)) / math.sqrt(rounds)
    t = abs(float(distances.mean())) / max(error, 1e-12)
    return float(special.stdtr(rounds - 1, -t)) <= ROUND_ALPHA
