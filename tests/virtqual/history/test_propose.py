from dataclasses import replace

import numpy as np
import pytest
from made_recorded import make_recorded
from made_series import samples_of
from reframe.utility import ScopedDict
from ruamel.yaml import YAML

from virtqual.errors import UsageError
from virtqual.history.native import reference_entries
from virtqual.history.noise_entries import NoHistoryError, noise_entry
from virtqual.history.propose import propose
from virtqual.verdict.pairs import Sample, pair_up

SIZES = tuple(2.0**i for i in range(12))


def noisy(metric, rng, sigma, pairs, points=(), native=0.02, overhead=0.3):
    """Return a series whose native runs vary by `native` and whose pairs vary by `sigma`."""
    runs = samples_of(metric, overhead + rng.normal(0, sigma, (pairs, max(len(points), 1))))
    speeds = np.exp(rng.normal(0, native, pairs))
    runs = [replace(run, values=tuple(v * speeds[run.number] for v in run.values)) for run in runs]
    return pair_up(metric, "here", points, runs)


@pytest.fixture
def sessions(metrics):
    rng = np.random.default_rng(1)
    sessions = []
    for number in (1, 2, 3):
        hpl = make_recorded(number, noisy(metrics["hpl"], rng, 0.03, 4), check="Hpl")
        mpi = noisy(metrics["mpi_latency"], rng, 0.05, 4, SIZES)
        recorded = make_recorded(number, mpi, check="Mpi %nodes=2").series
        sessions.append(replace(hpl, series=hpl.series + recorded))
    return sessions


def test_noise_does_not_depend_on_the_overhead(metrics):
    rng = np.random.default_rng(2)
    overheads = [0.0, 1.0, 5.0] * 8
    entry = noise_entry([noisy(metrics["hpl"], rng, 0.03, 6, overhead=over) for over in overheads], "test")
    assert entry["sigma"] == pytest.approx(0.03, rel=0.15)
    assert entry["df"] == 6


def test_a_few_pairs_are_no_history(metrics, make):
    series = [make(metrics["hpl"], [0.0, 0.1, 0.2]), make(metrics["hpl"], [0.0])]
    with pytest.raises(NoHistoryError, match="2 degrees of freedom, 6 are the least"):
        noise_entry(series, "test")


def test_a_sound_machine_misses_its_references_as_rarely_as_is_said(metrics):
    rng = np.random.default_rng(6)
    missed = 0
    for _ in range(400):
        series = noisy(metrics["hpl"], rng, 0.01, 12, native=0.03)
        (entry,) = reference_entries([series], false_alarms=0.05)
        fresh = 10 * np.exp(rng.normal(0, 0.03, 50)) / entry.value - 1
        missed += np.sum((fresh < entry.lower) | (fresh > entry.upper))
    assert 0.03 < missed / (400 * 50) < 0.06
    assert entry.lower < 0 < entry.upper
    assert (entry.variable, entry.unit, entry.runs) == ("hpl", "GFLOP/s", 12)


def test_the_sizes_of_a_curve_share_the_false_alarm_rate(metrics):
    rng = np.random.default_rng(7)
    entries = reference_entries([noisy(metrics["mpi_latency"], rng, 0.01, 12, SIZES)])
    (scalar,) = reference_entries([noisy(metrics["hpl"], np.random.default_rng(7), 0.01, 12)])
    assert [entry.variable for entry in entries[:3]] == ["mpi_latency_1", "mpi_latency_2", "mpi_latency_4"]
    assert entries[0].upper / entries[0].spread > scalar.upper / scalar.spread


def test_three_runs_are_no_reference(metrics, make):
    with pytest.raises(NoHistoryError, match="3 native runs, 4 are the least for a reference"):
        reference_entries([make(metrics["hpl"], [0.0] * 3)])


def test_a_proposal_is_a_diff_and_writes_nothing(sessions, tmp_path):
    proposals = propose(sessions, tmp_path)
    assert [p.path.name for p in proposals] == ["Hpl.yaml", "Mpi.yaml", "noise.yaml"]
    assert list(tmp_path.iterdir()) == []
    assert all(p.diff.startswith("--- /dev/null") for p in proposals)


def test_reference_files_are_what_reframe_reads(sessions, tmp_path):
    files = {p.path.name: YAML(typ="safe").load(p.after) for p in propose(sessions, tmp_path)}
    # A site calls its native partition as it likes.
    value, lower, upper, unit = ScopedDict(files["Hpl.yaml"]["Hpl"])["site:bare:hpl"]
    assert value == pytest.approx(10, rel=0.05)
    assert lower < 0 < upper
    assert unit == "GFLOP/s"
    assert files["Mpi.yaml"]["Mpi"]["$index"] == ["nodes"]
    assert len(files["Mpi.yaml"]["Mpi"][2]) == 12
    origin = {"sessions": ["s1", "s2", "s3"], "date": "2026-01-03", "cpu": "Xeon", "stack": "abc"}
    assert files["Hpl.yaml"]["made_of"] == origin
    assert files["Hpl.yaml"]["provenance"][0]["runs"] == 12


def test_a_change_shows_what_was_there_before(sessions, tmp_path):
    (hpl, *_) = propose(sessions, tmp_path)
    hpl.path.parent.mkdir(parents=True)
    hpl.path.write_text(hpl.after.replace("GFLOP/s", "TFLOP/s"))
    (again, *_) = propose(sessions, tmp_path)
    assert "-" in again.diff
    assert "TFLOP/s" in again.before
    assert [line for line in again.diff.splitlines() if line.startswith("+ ")]


def test_noise_of_another_build_is_not_mixed_in(sessions, tmp_path):
    older = [replace(s, build="8.0") for s in sessions[:2]]
    (*_, noise) = propose([*older, sessions[2]], tmp_path)
    assert noise.diff == ""
    assert any("hpl@here: 3 degrees of freedom" in note for note in noise.notes)


@pytest.mark.parametrize("what", ["system", "stack", "cpu"])
def test_sessions_must_be_of_one_system_stack_and_cpu(sessions, tmp_path, what):
    other = replace(sessions[0], **{what: "other"})
    with pytest.raises(UsageError, match=f"with one {what}; found"):
        propose([*sessions, other], tmp_path)
    with pytest.raises(UsageError, match="found none"):
        propose([], tmp_path)


def test_invalid_pairs_are_left_out(metrics):
    runs = samples_of(metrics["hpl"], [[0.0]] * 8)
    runs[0] = Sample("native", 0, (1e9,), runs[0].start, runs[0].end, invalid=("loud",))
    (entry,) = reference_entries([pair_up(metrics["hpl"], "here", (), runs)])
    assert (entry.runs, entry.value) == (7, 10)


def test_a_session_that_is_named_twice_counts_once(sessions, tmp_path):
    once, twice = (propose(some, tmp_path) for some in (sessions[:2], sessions[:2] * 2))
    assert twice == once
    assert "runs: 8," in once[0].after


def test_sessions_with_other_sizes_are_named(metrics, sessions, tmp_path):
    rng = np.random.default_rng(2)
    other = make_recorded(4, noisy(metrics["mpi_latency"], rng, 0.05, 4, SIZES[:3]), check="Mpi %nodes=2")
    says = r"sessions s1 and s4 measured mpi_latency@here at other sizes \(12 from 1 to 2048; 3 from 1 to 4\)"
    with pytest.raises(UsageError, match=says):
        propose([*sessions, other], tmp_path)
