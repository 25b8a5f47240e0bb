"""Which hosts are named and set aside: those that differ in every round by more than the others vary."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from made_series import CHANGE, FIVE, KVM, PRIOR, at, judge_session, samples_of
from rich.console import Console
from scipy import special

from made_runs import session_of as made_session
from virtqual.preflight.admit import Admitted
from virtqual.report import rows
from virtqual.report.terminal import Terminal
from virtqual.session.conclusion import conclude
from virtqual.session.judge import Judged
from virtqual.verdict import Case, Outcome
from virtqual.verdict.outliers import HostLogs, Outlier, find_outliers, without_hosts
from virtqual.verdict.pairs import host_names, pair_up

METRICS = ("triad", "latency", "loop")


def drawn(rng, *, hosts=8, rounds=4, host_sd=0.02, slow=None, metrics=METRICS, sigma=0.002):
    """Return the table of hosts that differ by chance; `slow` is by index of the host of VMs."""
    differences = rng.normal(0, host_sd, (2, 1, hosts)) + np.array([[[0.3]], [[0.0]]])
    for index, log in (slow or {}).items():
        differences[1, :, index] += log
    return {name: HostLogs(differences + rng.normal(0, 0.01, (2, rounds, hosts)), sigma) for name in metrics}


def names_of(table):
    hosts = next(iter(table.values())).logs.shape[-1]
    roles = [[f"{side}{k}" for k in range(hosts)] for side in ("bare", "host")]
    return {outlier.host: outlier for outlier in find_outliers(table, roles)}


def stalled(rng, table, share):
    """Return a table in which a share of the runs takes twice as long, in all metrics."""
    hit = math.log(2) * (rng.random(table["triad"].logs.shape) < share)
    return {name: HostLogs(column.logs + hit, column.sigma) for name, column in table.items()}


def noisy_vms(rng, table):
    """Return a table in which the runs of VMs are three times as noisy."""
    more = np.array([0.0, 0.028])[:, None, None]
    noise = {name: more * rng.normal(0, 1, column.logs.shape) for name, column in table.items()}
    return {name: HostLogs(column.logs + noise[name], column.sigma) for name, column in table.items()}


@pytest.mark.parametrize("hosts", [4, 8])
@pytest.mark.parametrize(
    ("host_sd", "disturb"),
    [
        (0.0, lambda rng, table: table),
        (0.02, lambda rng, table: table),
        (0.0, lambda rng, table: stalled(rng, table, 0.1)),
        (0.0, noisy_vms),
    ],
    ids=["alike", "of SD 2 %", "slow runs", "VMs noisier"],
)
def test_where_no_host_differs_one_session_in_a_hundred_names_one(hosts, host_sd, disturb):
    rng = np.random.default_rng(5)
    tables = (disturb(rng, drawn(rng, hosts=hosts, host_sd=host_sd)) for _ in range(300))
    assert sum(bool(names_of(table)) for table in tables) <= 7  # of 300 at 1 %, three are expected


@pytest.mark.parametrize(
    ("hosts", "host_sd", "slow"), [(3, 0.0, 0.1), (4, 0.0, 0.05), (8, 0.01, 0.08), (8, 0.02, 0.2)]
)
def test_a_host_that_is_slower_in_all_metrics_is_named(hosts, host_sd, slow):
    rng = np.random.default_rng(6)
    tables = [drawn(rng, hosts=hosts, host_sd=host_sd, slow={2: slow}) for _ in range(50)]
    named = [names_of(table).get("host2") for table in tables]
    assert sum(outlier is not None and outlier.log > slow / 2 for outlier in named) >= 45


@pytest.mark.parametrize("is_timer", [False, True])
@pytest.mark.parametrize(
    ("logs", "level"), [((1.0,), 0.005), ((1.0, 1.0), 0.0025), ((1.0, -1.0), 0.00125), ((1.0,) * 3, 0.0025)]
)
def test_a_host_is_named_at_the_level_of_the_test(logs, level, is_timer):
    """Of two rounds that are alike; metrics that point to both sides are each tested for themselves."""
    spread, sigma, df, peers = (0.0, 0.01, 7, 4) if is_timer else (0.01, 0.0, 7, 4)
    effects = spread * np.array([[-2.0, -1.0, 0.0, 1.0, 2.0], [-1.5, -0.5, 0.0, 0.5, 1.5]])
    tested = len(logs) if sum(logs) else 1
    variance = max((10 + 5) * spread**2 / df, sigma**2 / tested / 2)
    critical = -special.stdtrit(df, level / (2 * (df + 3))) * math.sqrt(variance * (1 + 1 / peers))
    for share, names in ((0.99, []), (1.01, ["host2"])):
        table = {}
        for number, log in enumerate(logs):
            costs = np.stack([effects, effects], axis=1)
            costs[1, :, 2] += log * share * critical
            table[str(number)] = HostLogs(costs, sigma)
        assert list(names_of(table)) == names


def test_a_host_is_said_to_be_slower_than_the_mean_of_the_others():
    effects = np.array([[0.0, 0.01, 0.02, 0.03, 0.04], [0.0, 0.0, 0.3, 0.02, 0.04]])
    (outlier,) = names_of({"loop": HostLogs(np.stack([effects, effects], axis=1), 0.0)}).values()
    assert outlier.log == pytest.approx(0.3 - 0.015)


def test_half_of_a_kind_are_no_outliers():
    table = drawn(np.random.default_rng(12), hosts=4, rounds=8, host_sd=0.0, slow={1: 0.5, 2: 0.6})
    assert names_of(table) == {}


def test_rounds_of_some_metrics_alone_count_too():
    """Two metrics were decided after two rounds, which name no host."""
    rng = np.random.default_rng(11)
    table = drawn(rng, rounds=12, host_sd=0.0, slow={2: 0.05})
    few = {name: HostLogs(column.logs[:, :2], column.sigma) for name, column in table.items()}
    assert names_of(few) == {}
    assert names_of(few | {"loop": table["loop"]}).keys() == {"host2"}


def test_a_second_slow_host_is_found_behind_the_first():
    table = drawn(np.random.default_rng(7), host_sd=0.005, slow={1: 0.3, 6: 0.1})
    assert list(names_of(table)) == ["host1", "host6"]


def test_a_host_that_is_slow_in_one_metric_is_named_with_it():
    table = drawn(np.random.default_rng(8), rounds=8, host_sd=0.002)
    table["latency"].logs[1, :, 2] += 0.15
    table["triad"].logs[1, :, 2] -= 0.15
    (outlier,) = names_of(table).values()
    assert (outlier.host, outlier.metric in ("latency", "triad")) == ("host2", True)


@pytest.mark.parametrize("rounds", [1, 2, 3, 8])
def test_slow_rounds_of_a_host_do_not_name_it(rounds):
    table = drawn(np.random.default_rng(9), rounds=rounds, host_sd=0.0)
    for column in table.values():
        column.logs[1, : (rounds + 1) // 2, 2] += 0.5
    assert names_of(table) == {}


@pytest.mark.parametrize(("hosts", "named"), [(2, set()), (3, {"host0"})])
def test_three_hosts_of_a_kind_are_needed_to_name_one(hosts, named):
    table = drawn(np.random.default_rng(10), hosts=hosts, host_sd=0.0, slow={0: 0.5})
    assert names_of(table).keys() == named


def test_a_coarse_timer_names_no_host():
    """All hosts show 0.39 us and one always 0.40 us: it may be a hair slower."""
    logs = np.zeros((2, 4, 4))
    logs[1, :, 0] = math.log(0.40 / 0.39)
    assert names_of({"loop": HostLogs(logs, 0.015)}) == {}
    assert names_of({"loop": HostLogs(logs, 0.0001)}).keys() == {"host0"}


def test_what_is_said():
    slower, faster = (Outlier(host="n1", metric=m, log=log) for m, log in (("triad", 0.05), ("", -0.05)))
    assert str(slower) == "n1 is 5.1% slower than the others of its kind in triad"
    assert str(faster) == "n1 is 4.9% faster than the others of its kind"


# -- a session that has such a host ----------------------------------------------------------------------


def rotation(metric, *, rounds=4, slow=0.1, overhead=0.0, refused=(), seed=1):
    """Return a series rotated over four hosts of either side, of which w of the VMs' is slow."""
    virtual = "".join("wxyz"[turn % 4 :] + "wxyz"[: turn % 4] for turn in range(rounds))
    noise = np.random.default_rng(seed).normal(0, 0.01, len(virtual))
    d = [[overhead + slow * (host == "w") + e] for host, e in zip(virtual, noise, strict=True)]
    runs = samples_of(metric, d, hosts=at("abcd" * rounds, virtual))
    runs = [replace(run, invalid=("loud",)) if (run.side, run.number) in refused else run for run in runs]
    return pair_up(metric, "here", (), runs)


@pytest.fixture
def session_of(metrics):
    def build(*, budget=FIVE, baseline=None, bound=0.01, **more):
        names = ("hpl", "lammps_loop_time")
        series = [rotation(metrics[name], seed=seed, **more) for seed, name in enumerate(names)]
        before = [None if baseline is None else rotation(metrics[name], seed=7, **baseline) for name in names]
        return judge_session(
            [
                Case(s, budget, PRIOR, b, bound=bound, earlier_bound=bound)
                for s, b in zip(series, before, strict=True)
            ],
            hypervisor_class=KVM,
        )

    return build


@pytest.mark.parametrize(("overhead", "outcome"), [(0.0, Outcome.WITHIN), (0.15, Outcome.OVER)])
def test_the_other_hosts_answer_without_it(session_of, overhead, outcome):
    session = session_of(overhead=overhead, rounds=8)
    assert [outlier.host for outlier in session.outliers] == ["w"]
    for verdict in session.verdicts:
        assert (verdict.outcome, verdict.pairs % 3) == (outcome, 0)
        assert "host w is 10" in verdict.reasons[-1]
        assert "a" not in verdict.native_hosts  # as many of either side
        assert verdict.hosts.keys() == set("abcdwxyz")
        assert verdict.hosts["w"] == pytest.approx(math.exp(0.1), abs=0.02)
    assert session.slow_runs.virtual == 0


@pytest.mark.parametrize("slow", [0.0, 0.1])
def test_a_session_that_set_a_host_aside_does_not_qualify(session_of, slow):
    session = session_of(slow=slow)
    assert session.outcome is Outcome.WITHIN
    assert session.qualified[0] == (not slow)
    assert ("host w is 10" in session.qualified[1]) == bool(slow)


def test_the_host_is_shown(session_of):
    verdict = session_of()
    console = Console(width=100, record=True)
    Terminal(console).hosts(verdict.verdicts, verdict.outliers)
    shown = console.export_text()
    assert re.search(r"host w is (9|1[01])\.\d% slower than the others of its kind; it was set aside", shown)
    near = r"7 other hosts: [a-z] differs from the mean of its kind by [0-3]\.\d% at most, each other one by"
    assert re.search(near, shown)
    session = made_session(
        [], identity={"virtual": {"hypervisor": {"vendor": "QEMU", "build": "9"}}, "native": {}}
    )
    conclude(session, Judged(Admitted((), {}, ()), verdict), check_set=None, cases=())
    assert "Set aside: host w is 1" in session.conclusion
    assert session.outliers == list(verdict.outliers)


def test_pairs_that_are_needed_are_whole_turns_of_all_hosts(session_of):
    session = session_of(overhead=0.065)
    assert {(need.first, need.last) for need in session.needs} == {(16, 31)}


def test_a_host_that_is_set_aside_is_no_refused_run(session_of):
    """With nine refused pairs less than half of all 32 count, but more than half of those of other hosts."""
    refused = [("native", number) for number in (20, 21, 22, 24, 25, 27, 28, 30, 31)]
    session = session_of(rounds=8, refused=refused)
    assert [outlier.host for outlier in session.outliers] == ["w"]
    assert {verdict.outcome for verdict in session.verdicts} == {Outcome.WITHIN}


def test_the_hosts_that_are_set_aside_are_those_that_are_named(metrics):
    series = without_hosts(rotation(metrics["hpl"]), [Outlier(host="y", metric="", log=0.1)])
    assert host_names(series.valid) == (set("bcd"), set("wxz"))
    assert (len(series.valid), len(series.set_aside)) == (12, 4)


def test_the_report_draws_the_pairs_that_were_judged(metrics, monkeypatch):
    series = rotation(metrics["hpl"])
    monkeypatch.setattr(rows, "series_of", lambda *_, **__: {"hpl": series})
    assert rows.find_series([], []) == {"hpl": series}
    drawn_series = rows.find_series([], [Outlier(host="w", metric="", log=0.1)])["hpl"]
    assert len(drawn_series.valid) == 12
    assert {pair.invalid for pair in drawn_series.pairs if pair.invalid} == {
        ("set aside, since host w is 10.5% slower than the others of its kind",)
    }


def test_the_report_draws_all_pairs_of_a_series_on_one_place(metrics, monkeypatch):
    """Only rotations are judged without a host."""
    runs = samples_of(metrics["hpl"], [[0.1]] * 4, hosts=at("aaaa", "wwww"))
    series = pair_up(metrics["hpl"], "here", (), runs)
    monkeypatch.setattr(rows, "series_of", lambda *_, **__: {"hpl": series})
    assert rows.find_series([], [Outlier(host="w", metric="", log=0.1)]) == {"hpl": series}
    assert len(series.valid) == 4


@pytest.mark.parametrize("slow", [0.0, 0.3])
def test_an_earlier_session_is_compared_without_it_too(session_of, slow):
    session = session_of(budget=CHANGE, baseline={"rounds": 8, "slow": slow}, rounds=8, bound=math.inf)
    assert [outlier.host for outlier in session.outliers] == ["w"]
    assert {verdict.outcome for verdict in session.verdicts} == {Outcome.WITHIN}
    for verdict in session.verdicts:
        assert verdict.change.log == pytest.approx(0.0, abs=0.02)
