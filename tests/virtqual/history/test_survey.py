"""A survey of hosts: native runs on both groups bound how much hosts in fixed roles differ."""

import numpy as np
import pytest
from made_recorded import make_recorded, write_proposals

from virtqual.errors import UsageError
from virtqual.history.noise_entries import NoHistoryError
from virtqual.history.propose import propose_hosts
from virtqual.history.survey import host_entry
from virtqual.references import load_references
from virtqual.verdict.pairs import Sample, pair_up


def measured(metric, hosts, rng, speed, sigma=0.01, night=0.0, points=()):
    """Return native runs of one session on these hosts in turn; `speed` is each host's log difference."""
    width = max(len(points), 1)
    shift = rng.normal(0, night)
    samples = []
    for number, host in enumerate(hosts):
        slow = np.mean([speed.get(name, 0.0) for name in host.split("+")])
        values = 10.0 * np.exp(slow + shift + rng.normal(0, sigma, width))
        samples.append(Sample("native", number, tuple(values), 10.0 * number, 10.0 * number + 5, host=host))
    return pair_up(metric, "here", points, samples)


def test_hosts_that_differ_are_bounded_by_what_they_differ_and_their_noise(metrics):
    rng = np.random.default_rng(1)
    series = [measured(metrics["hpl"], "abcd" * 6, rng, {"c": 0.05}, night=0.5) for _ in range(3)]
    entry = host_entry(series, {"c", "d"})
    assert (entry["native"], entry["virtual"]) == (["a", "b"], ["c", "d"])
    # c is 5 % from a and b; the groups' means differ by half of that.
    assert 0.05 < entry["bound"] < 0.07
    assert 0.025 < entry["means"] < 0.04


def test_a_night_that_was_slow_is_no_slow_host(metrics):
    """Each session was on one host: they differ by nights, which the runs of a night cannot tell."""
    rng = np.random.default_rng(2)
    series = [measured(metrics["hpl"], host * 8, rng, {}, sigma=0.001, night=0.02) for host in "acacacac"]
    entry = host_entry(series, {"c"})
    assert entry["source"] == "64 native runs, 6 degrees of freedom"
    assert entry["bound"] > 0.03
    with pytest.raises(NoHistoryError, match=r"4 sessions on a host .* leave 2 degrees of freedom, 4 are"):
        host_entry(series[:4], {"c"})


@pytest.mark.parametrize("points", [(), (1.0, 2.0, 4.0)], ids=["scalar", "curve"])
@pytest.mark.parametrize("alone", [False, True], ids=["both a session", "one a session"])
def test_the_true_difference_is_above_the_bound_in_one_survey_of_a_hundred_at_most(metrics, points, alone):
    rng = np.random.default_rng(3)
    metric = metrics["mpi_latency" if points else "hpl"]
    nights = ["aaaa", "cccc"] * 4 if alone else ["acacac"] * 2
    missed = 0
    for _ in range(400):
        series = [measured(metric, hosts, rng, {"c": 0.03}, night=0.01, points=points) for hosts in nights]
        missed += host_entry(series, {"c"})["bound"] < 0.03
    assert missed <= 10  # one in a hundred: more than 10 of 400 have a chance of 0.3 %


def test_runs_on_several_hosts_are_hosts_of_their_own_and_mixed_ones_do_not_count(metrics):
    rng = np.random.default_rng(4)
    series = [measured(metrics["hpl"], ["a+b", "c+d", "b+c"] * 4, rng, {"b": 0.5}) for _ in range(2)]
    entry = host_entry(series, {"c", "d"})
    assert (entry["native"], entry["virtual"]) == (["a+b"], ["c+d"])
    assert entry["source"].startswith("16 native runs")


def test_values_that_do_not_vary_are_bounded_by_their_digits(metrics):
    rng = np.random.default_rng(5)
    assert host_entry([measured(metrics["hpl"], "ac" * 6, rng, {}, sigma=0.0)], {"c"})["bound"] > 0.01


@pytest.mark.parametrize(
    ("hosts", "says"),
    [
        (["a"] * 8, "native runs on a: it takes some on the hosts of either side"),
        (["c"] * 8, "native runs on c: it takes some"),
        ([""] * 8, "native runs do not say on which hosts they were"),
        (["a", "c"], "2 native runs leave 0 degrees of freedom, 4 are the least"),
    ],
)
def test_what_is_no_survey_is_refused_with_the_reason(metrics, tmp_path, hosts, says):
    series = measured(metrics["hpl"], hosts, np.random.default_rng(6), {})
    with pytest.raises(NoHistoryError, match=says):
        host_entry([series], {"c"})
    with pytest.raises(
        UsageError, match=rf"no series has been surveyed \(hosts that carry .*: c\): .*{says}"
    ):
        propose_hosts([make_recorded(1, series)], tmp_path, {"c"})


def test_what_is_proposed_is_what_the_judge_asks_for(metrics, references_copy):
    rng = np.random.default_rng(7)
    points = (1.0, 2.0)
    sessions = [
        make_recorded(
            number,
            measured(metrics["hpl"], "abcd" * 4, rng, {}),
            measured(metrics["mpi_latency"], ["a+b", "c+d"] * 4, rng, {}, points=points),
        )
        for number in (1, 2)
    ]
    (proposal,) = propose_hosts(sessions, references_copy / "systems", {"c", "d"})
    assert proposal.diff.startswith("--- /dev/null")
    write_proposals([proposal])
    references = load_references(references_copy)
    hpl, mpi = (series for _, series in sessions[0].series)
    any_two = references.host_bound(hpl, "site", ["a", "a"], ["d", "d"])
    assert 0 < references.host_bound(hpl, "site", "abab", "cdcd", rotated=True) < any_two < 0.05
    assert references.host_bound(hpl, "site", "abab", "cdcd") == any_two
    assert references.host_bound(hpl, "site", "a", "c", rotated=True) == any_two
    assert references.host_bound(hpl, "site", "c", "a") == any_two
    assert 0 < references.host_bound(mpi, "site", ["a+b"], ["c+d"]) < 0.05
    for system, virtual in (("elsewhere", "c"), ("site", "e"), ("site", "b"), ("site", "")):
        assert references.host_bound(hpl, system, ["a"], [virtual]) == np.inf
    (again,) = propose_hosts(sessions, references_copy / "systems", {"c", "d"})
    assert again.diff == ""


def test_a_file_of_hosts_that_is_wrong_names_line_and_key(references_copy):
    file = references_copy / "systems" / "site" / "hosts.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(
        "schema: virtqual-hosts/1\n"
        "made_of: {sessions: [s1], date: '2026-01-01', cpu: Xeon, stack: abc}\n"
        "hosts:\n"
        "  - {family: memori, native: [a], virtual: [c], bound: 0.01, source: stated}\n",
        encoding="utf-8",
    )
    with pytest.raises(ValueError, match=r"hosts\.yaml:4: hosts\[0\]\.family: unknown family 'memori'"):
        load_references(references_copy)
    file.write_text(file.read_text(encoding="utf-8").replace("memori", "memory").replace("[c]", "[c, a]"))
    with pytest.raises(ValueError, match="a of both groups: hosts in both roles need no bound"):
        load_references(references_copy)
