"""Which hosts are named: those that are slower than the others vary, and seldom any other."""

import math

import numpy as np
import pytest

from virtqual.verdict.outliers import Outlier, outliers

HOSTS = [f"host{k}" for k in range(8)]
KIND = [frozenset(HOSTS)]
METRICS = ("triad", "latency", "loop")


def drawn(rng, spread, slow=None, metrics=METRICS):
    """Return the effects of hosts that differ by chance, and of slow ones."""
    return {
        metric: {host: rng.normal(0, spread) + (slow or {}).get(host, 0) for host in HOSTS}
        for metric in metrics
    }


KINDS = [frozenset(HOSTS), frozenset(f"bare {host}" for host in HOSTS)]


def drawn_of_both_kinds(rng, slow=None):
    vms, bare = drawn(rng, 0.02, slow), drawn(rng, 0.02)
    return {m: {**vms[m], **{f"bare {host}": 0.3 + log for host, log in bare[m].items()}} for m in METRICS}


def test_where_no_host_differs_one_table_in_twenty_names_one():
    rng = np.random.default_rng(5)
    named = sum(bool(outliers(drawn_of_both_kinds(rng), KINDS)) for _ in range(400))
    assert 4 <= named <= 40  # of 400 at 5 %, twenty are expected


def test_a_host_that_is_slower_by_ten_percent_is_named_where_hosts_vary_by_two():
    rng = np.random.default_rng(6)
    slow = {"host3": math.log(1.10)}
    found = [outliers(drawn_of_both_kinds(rng, slow), KINDS) for _ in range(100)]
    assert sum(any(one.host == "host3" and one.log > 0.05 for one in each) for each in found) >= 95


def test_a_second_slow_host_is_found_behind_the_first():
    rng = np.random.default_rng(7)
    effects = drawn(rng, 0.005, {"host1": 0.3, "host6": 0.1})
    assert {one.host for one in outliers(effects, KIND)} == {"host1", "host6"}


def test_one_that_is_slow_in_one_metric_is_named_with_it():
    rng = np.random.default_rng(8)
    effects = drawn(rng, 0.002)
    effects["latency"]["host2"] += 0.05
    effects["triad"]["host2"] -= 0.05
    effects["triad"]["host1"] += 0.05
    effects["latency"]["host1"] -= 0.05
    found = {one.host: one.metric for one in outliers(effects, KIND)}
    assert found.keys() == {"host1", "host2"}
    assert set(found.values()) <= {"latency", "triad"}


def test_kinds_are_held_against_themselves():
    effects = {
        "triad": dict(zip([*"abcdefgh"], [0, 0.001, -0.001, 0.0005, 0.2, 0.201, 0.199, 0.2], strict=True))
    }
    assert outliers(effects, [frozenset("abcd"), frozenset("efgh")]) == []


@pytest.mark.parametrize("count", [2, 3])
def test_too_few_hosts_name_none(count):
    hosts = HOSTS[:count]
    effects = {"triad": {host: 0.5 * (host == "host0") for host in hosts}}
    assert outliers(effects, [frozenset(hosts)]) == []


def test_what_is_said():
    assert str(Outlier("n1", "triad", 0.05)) == "n1 is 5.1% slower than the others of its kind in triad"
    assert str(Outlier("n1", "", -0.05)) == "n1 is 4.9% faster than the others of its kind"
