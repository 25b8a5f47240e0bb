"""Later commands load the proposals of `virtqual propose`, which have the noise of the sessions."""

import math
from dataclasses import replace

import numpy as np
import pytest
from made_recorded import make_recorded, write_proposals
from made_series import samples_of

from virtqual.errors import UsageError
from virtqual.history.noise_entries import noise_entry
from virtqual.history.propose import propose
from virtqual.references import load_references
from virtqual.verdict.noise import sigma_of
from virtqual.verdict.pairs import Series, pair_up

SESSIONS = (2, 3, 7, 30)
KINDS = ("constant", "two levels", "quantised", "computed", "Gaussian", "one quiet size", "large")


def values_of(kind, rng, shape):
    """Return values of runs of one kind, shape (n_pairs, 2, n_points)."""
    noise = rng.normal(0, 0.03, shape) + rng.normal(0, 0.02, (*shape[:2], 1))
    typical = np.exp(np.arange(shape[-1]) / 3)
    if kind == "constant":
        return np.full(shape, 0.39)
    if kind == "two levels":
        return np.where(rng.random(shape) < 0.2, 2.0, 1.0)
    if kind == "quantised":
        return np.round(0.4 * typical * np.exp(noise), 2)
    if kind == "computed":
        return np.full(shape, 1 / 3)
    if kind == "one quiet size":
        noise[..., 0] = 0
    return (1e9 if kind == "large" else 1.0) * typical * np.exp(noise)


def series_of(metric, setting, kind, rng, pairs, points=()):
    """Return a series of so many pairs, all in one boot."""
    values = values_of(kind, rng, (pairs, 2, max(len(points), 1)))
    boot = rng.bytes(8).hex()
    runs = [
        replace(run, values=tuple(values[run.number, int(run.side == "virtual")]), boot=boot)
        for run in samples_of(metric, np.zeros((pairs, values.shape[-1])))
    ]
    return pair_up(metric, setting, points, runs)


def record_all_kinds(metrics, number, rng):
    """Return a session that measured a scalar and curves of each kind."""
    curves = [tuple(2.0**i for i in range(width)) for width in (1, 2, 3, 4, 23)]
    series = [
        series_of(metrics[name], f"{kind}, {len(points)}", kind, rng, int(rng.integers(4, 9)), points)
        for kind in KINDS
        for name, points in [("hpl", ()), *(("mpi_latency", points) for points in curves)]
    ]
    return make_recorded(number, *series, check="Case %of=all")


@pytest.mark.parametrize("sessions", SESSIONS)
def test_every_proposal_is_loaded(metrics, references_copy, sessions):
    rng = np.random.default_rng(sessions)
    stored = [record_all_kinds(metrics, number, rng) for number in range(sessions)]
    proposals = propose(stored, references_copy / "systems")
    assert not any(proposal.notes for proposal in proposals)
    write_proposals(proposals)
    references = load_references(references_copy)
    for _, series in stored[0].series:
        prior = references.prior(series, "kvm", "site")
        assert f"{sessions} sessions, s0 to s{sessions - 1}, build 9.2" in prior.source
        assert 0 < prior.df <= 6
        assert prior.between_df == (sessions - 1 if sessions > 2 else 4)
        width = series.width
        sigma = sigma_of(prior, width)
        assert sigma.shape == (width + (width > 1),)
        assert np.all(sigma[:width] >= 1e-4)
        # A mean varies no more than its loudest size.
        assert 0 < sigma[-1] <= sigma[:width].max()
    _, hpl = stored[0].series[0]
    assert references.prior(hpl, "kvm", "elsewhere").sigma == 0.03
    assert propose(stored, references_copy / "systems") == []


def test_a_timer_of_few_digits_is_never_taken_for_exact(metrics):
    rng = np.random.default_rng(1)
    points = (1.0, 2.0)
    series = [series_of(metrics["mpi_latency"], "here", "constant", rng, 4, points) for _ in range(4)]
    entry = noise_entry(series, "test")
    assert entry["sigma"] == pytest.approx([0.01 / 0.39 / math.sqrt(6)] * 2, rel=0.1)


@pytest.mark.parametrize("points", [(), (1.0, 2.0, 4.0)])
def test_stalled_runs_are_left_out_of_an_entry(metrics, points):
    rng = np.random.default_rng(4)
    metric = metrics["mpi_latency" if points else "hpl"]
    d = rng.normal(0, 0.02, (20, 4, max(len(points), 1)))
    calm = [pair_up(metric, "here", points, samples_of(metric, values)) for values in d]
    d[[2, 9], [1, 3]] += np.log(10)
    stalled = [pair_up(metric, "here", points, samples_of(metric, values)) for values in d]
    expected, entry = (noise_entry(series, "test") for series in (calm, stalled))
    assert entry["source"] == "test; 2 of 80 pairs had stalled runs, left out"
    assert expected["source"] == "test"
    assert np.allclose(entry["sigma"], expected["sigma"], rtol=0.15)
    assert entry["between"] == pytest.approx(expected["between"], abs=0.005)


def test_metrics_of_a_system_are_recorded_with_one_spread_of_boots(metrics, references_copy):
    rng = np.random.default_rng(5)
    stored = []
    for number in range(5):
        boots = rng.normal(0, 0.01, 8)
        d = boots[:, None, None] + rng.normal(0, 0.02, (8, 4, 1))
        series = [
            pair_up(metrics["hpl"], str(index), (), samples_of(metrics["hpl"], d[index]))
            for index in range(8)
        ]
        stored.append(make_recorded(number, *series, check="Case %of=all"))
    write_proposals(propose(stored, references_copy / "systems"))
    references = load_references(references_copy)
    pooled = [references.prior(series, "kvm", "site").between for _, series in stored[0].series]
    alone = [
        noise_entry([session.series[index][1] for session in stored], "test")["between"] for index in range(8)
    ]
    assert np.std(pooled) < 0.8 * np.std(alone)
    assert np.median(pooled) == pytest.approx(0.01, rel=0.5)


def test_the_mean_of_a_curve_has_the_noise_that_it_showed(metrics):
    points = tuple(2.0**i for i in range(12))
    for shared, own in ((0.03, 0.01), (0.0, 0.03), (0.01, 0.03)):
        rng = np.random.default_rng(7)
        d = rng.normal(0, own, (40, 8, 12)) + rng.normal(0, shared, (40, 8, 1))
        metric = metrics["mpi_latency"]
        series = [pair_up(metric, "here", points, samples_of(metric, values)) for values in d]
        entry = noise_entry(series, "test")
        assert entry["points"] == list(points)
        assert np.mean(entry["sigma"]) == pytest.approx(np.hypot(shared, own), rel=0.15)
        # Numbers of a file are rounded up.
        assert 0.9 < entry["mean"] / np.sqrt(shared**2 + own**2 / 12) < 1.2


@pytest.mark.parametrize(
    ("boots", "degrees"),
    [
        (lambda night, pair: f"{night}", 9),
        (lambda night, pair: f"{night}{pair // 3}", 19),
        (lambda night, pair: f"{night // 5}", None),
        (lambda night, pair: f"{night} {pair}", None),
        (lambda night, pair: "", 9),
    ],
    ids=["one a session", "two a session", "two in all", "one a pair", "nobody says"],
)
def test_only_boots_that_were_told_apart_measure_what_boots_change(metrics, boots, degrees):
    rng = np.random.default_rng(3)
    drawn = {}
    series = []
    for night in range(10):
        names = [boots(night, pair) for pair in range(6)]
        d = [drawn.setdefault(name or night, rng.normal(0, 0.05)) + rng.normal(0, 0.01) for name in names]
        runs = samples_of(metrics["hpl"], np.array(d)[:, None])
        runs = [replace(run, boot=names[run.number] if run.side == "virtual" else "") for run in runs]
        series.append(pair_up(metrics["hpl"], "here", (), runs))
    entry = noise_entry(series, "test")
    assert entry.get("between_df") == degrees
    if degrees:
        assert entry["between"] == pytest.approx(0.05, rel=0.5)


def test_a_file_says_whether_boots_are_bounded_measured_or_guessed(metrics, references_copy):
    file = references_copy / "systems" / "site" / "noise.yaml"
    file.parent.mkdir(parents=True)
    hpl = Series(metrics["hpl"], "here")
    line = "{{metric: hpl, sigma: 0.02, df: 6, between: 0.01, {}source: test}}"
    for stated, means in (("", 4), ("between_df: 7, ", 7), ("between_df: bound, ", np.inf)):
        file.write_text(f"schema: virtqual-noise/1\nnoise:\n  - {line.format(stated)}\n", encoding="utf-8")
        assert load_references(references_copy).prior(hpl, system="site").between_df == means
    file.write_text(f"schema: virtqual-noise/1\nnoise:\n  - {line.format('between_df: none, ')}\n")
    with pytest.raises(UsageError, match="between_df"):
        load_references(references_copy)
