"""Sessions that are drawn and then judged, by the rule itself: thousands at once.

Every metric has a history of its own, twenty sessions of four pairs, from which its noise is estimated as a
site would. Budget 5 %, margin 3 %, for curves 10 % and 10 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import noise_models as models
import numpy as np

from virtqual.history.pair_noise import estimate_noise, find_stalls, usual_noise
from virtqual.verdict.estimate import Floats, Noise, append_mean
from virtqual.verdict.noise import STATED_BETWEEN_DF
from virtqual.verdict.outcome import Outcome
from virtqual.verdict.places import Places, recognise
from virtqual.verdict.rule import LOOKS, Batch, BatchState, decide
from virtqual.verdict.slow_runs import SLOW_ALPHA, p_value, slowness

BUDGET, MARGIN = 0.05, 0.03
LIMIT = float(np.log1p(BUDGET))
LOG_MARGIN = float(np.log1p(BUDGET + MARGIN)) - LIMIT
CURVE_LIMIT = float(np.log1p(0.10))
CURVE_MARGIN = float(np.log1p(0.20)) - CURVE_LIMIT
HISTORY_SESSIONS, HISTORY_PAIRS = 20, 4
MAX_PAIRS = LOOKS[-1]
NODES = 8
STATED_BOOTS = 0.003  # `between` of most families in references/noise
Rng = np.random.Generator


class Simulated(NamedTuple):
    """Codes of outcomes, and the pairs that they took, both of shape (n_sessions, n_metrics)."""

    outcome: np.ndarray
    pairs: np.ndarray


def simulate(batches: Sequence[Batch], *, stop: bool = True) -> list[Simulated]:
    """Judge batches of the same sessions; with `stop` a series ends at its first answer, as in a session."""
    states = [BatchState(batch) for batch in batches]
    for index in range(len(batches[0].looks)):
        decide(states, index)
        for state in states if stop else ():
            state.running &= state.outcome == Outcome.UNDECIDED.code
    return [
        Simulated(state.outcome.reshape(state.shape), state.used.reshape(state.shape)) for state in states
    ]


@dataclass(frozen=True)
class Drawn:
    """Runs of both sides, shape (n_sessions, n_metrics, n_pairs), with the noise that is known of them."""

    native: Floats
    virtual: Floats
    noise: Noise
    places: Places | None = None

    def judged(self, *, stop: bool = True, looks: tuple[int, ...] = LOOKS) -> Simulated:
        return simulate([self.batch(looks)], stop=stop)[0]

    def batch(self, looks: tuple[int, ...] = LOOKS) -> Batch:
        sides = (self.native[..., None], self.virtual[..., None])
        return Batch(*sides, LIMIT, LOG_MARGIN, self.noise, self.places, looks=looks)

    def first(self, pairs: int) -> Drawn:
        """Return the first `pairs` pairs."""
        places = self.places and self.places.first(pairs)
        return Drawn(self.native[..., :pairs], self.virtual[..., :pairs], self.noise, places)


def overheads(metrics: int, worst: float, rest: float = 0.0) -> np.ndarray:
    """Return log overheads of which the first metric's is `worst` (a fraction) and the others' `rest`."""
    values = np.full(metrics, np.log1p(rest))
    values[0] = np.log1p(worst)
    return values


def record_noise(native: Floats, virtual: Floats, floor: float = 0.0) -> tuple[Floats, Floats]:
    """Return sigma and df of histories as `virtqual record` writes them.

    The runs of each side have the shape (..., n_sessions, n_pairs).
    """
    d = virtual - native
    stalls = find_stalls(native, virtual, usual_noise(d, floor)[..., None])
    return estimate_noise(np.where(stalls, np.nan, d), floor)


@cache
def histories_of(name: str, sd: float) -> tuple[Floats, Floats]:
    """Return sigma and df of 4,000 histories."""
    rng = np.random.default_rng(7)
    y = models.runs(rng, name, (4000, HISTORY_SESSIONS), HISTORY_PAIRS, sd)
    floor = models.TIMERS.get(name, 0.0) / np.sqrt(6)
    return record_noise(*models.sides(models.round_to_timer(name, y)), floor)


def noise_of(rng: Rng, histories: tuple[Floats, Floats], shape: tuple[int, ...], **between: float) -> Noise:
    """Return the noise that each series is judged with, of one of the histories."""
    sigma, df = histories
    which = rng.integers(0, len(sigma), shape)
    return Noise(sigma[which][..., None], df[which][..., None], **between)


def scalars(
    rng: Rng, name: str, sessions: int, overhead: np.ndarray, *, sd: float = 0.02, times: float = 1.0,
    slow_first: float = 0.0, warm_up: bool = True,
) -> Drawn:  # fmt: skip
    """Draw metrics of one noise model, `times` as noisy as their history."""
    shape = (sessions, len(overhead))
    first = int(warm_up)
    y = models.runs(rng, name, shape, MAX_PAIRS + first, sd * times)
    y[..., 0] += np.log1p(slow_first)
    native, virtual = models.sides(y)
    virtual = virtual + overhead[:, None]
    native, virtual = (
        models.round_to_timer(name, native[..., first:]),
        models.round_to_timer(name, virtual[..., first:]),
    )
    return Drawn(native, virtual, noise_of(rng, histories_of(name, sd), shape))


def resample(rng: Rng, logs: list[np.ndarray], sessions: int, metrics: int, overhead: float) -> Drawn:
    """Draw sessions whose metrics are resampled from measured runs; of which log is drawn for each."""
    shape = (sessions, metrics)
    native, virtual = np.empty((*shape, MAX_PAIRS)), np.empty((*shape, MAX_PAIRS))
    sigma, df = np.empty((*shape, 1)), np.empty((*shape, 1))
    which = np.stack([rng.permutation(np.arange(metrics) % len(logs)) for _ in range(sessions)])
    for index, y in enumerate(logs):
        is_log = which == index
        count = int(is_log.sum())
        if not count:
            continue
        native[is_log], virtual[is_log] = models.sides(models.resampled(rng, y, (count,), MAX_PAIRS))
        histories = models.resampled(rng, y, (500, HISTORY_SESSIONS), HISTORY_PAIRS)
        s, d0 = record_noise(*models.sides(histories))
        pick = rng.integers(0, 500, count)
        sigma[is_log], df[is_log] = s[pick, None], d0[pick, None]
    return Drawn(native, virtual + overhead, Noise(sigma, df))


def exchanged(
    rng: Rng, sessions: int, overhead: np.ndarray, node_sd: float, sd: float = 0.02, planted: float | None =
    None
) -> Drawn:  # fmt: skip
    """Draw sessions of two hosts that exchange roles every two pairs."""
    shape = (sessions, len(overhead))
    effect = (
        rng.normal(0, node_sd, (*shape, 2)) if planted is None else np.broadcast_to([0, planted], (*shape, 2))
    )
    role = np.resize([0, 0, 1, 1], MAX_PAIRS)
    native, virtual = models.sides(models.runs(rng, "Gaussian", shape, MAX_PAIRS, sd))
    native, virtual = native + effect[..., role], virtual + effect[..., 1 - role] + overhead[:, None]
    names = np.array(["node-a", "node-b"])
    places = recognise(names[role].tolist(), names[1 - role].tolist())
    return Drawn(native, virtual, noise_of(rng, histories_of("Gaussian", sd), shape), places)


def rotated(rng: Rng, sessions: int, overhead: np.ndarray, node_sd: float, sd: float = 0.02) -> Drawn:
    """Draw sessions rotated over eight native hosts and eight others, in rounds of eight pairs at a time."""
    shape = (sessions, len(overhead))
    rounds, native_node = np.divmod(np.arange(MAX_PAIRS * NODES), NODES)
    virtual_node = (native_node + rounds) % NODES
    n, v = rng.normal(0, node_sd, (2, *shape, NODES))
    native = n[..., native_node] + rng.normal(0, sd / np.sqrt(2), (*shape, len(rounds)))
    virtual = v[..., virtual_node] + rng.normal(0, sd / np.sqrt(2), (*shape, len(rounds)))
    virtual = virtual + overhead[:, None]
    places = recognise([f"n{i}" for i in native_node], [f"v{j}" for j in virtual_node])
    return Drawn(native, virtual, noise_of(rng, histories_of("Gaussian", sd), shape), places)


def _one_host(boots: np.ndarray) -> Places:
    hosts = ["host"] * len(boots)
    return recognise(hosts, hosts, [f"boot {boot}" for boot in boots])


def booted(
    rng: Rng, sessions: int, overhead: np.ndarray, boot_sd: float, boots: int, sd: float = 0.02,
    df: float = np.inf, name: str = "Gaussian",
) -> Drawn:  # fmt: skip
    """Draw sessions whose virtual machine is booted anew from pair to pair, in turns of `boots` boots."""
    drawn = scalars(rng, name, sessions, overhead, sd=sd)
    boot = np.arange(MAX_PAIRS) % boots
    effect = rng.normal(0, boot_sd, (*drawn.virtual.shape[:2], boots))
    noise = noise_of(rng, histories_of(name, sd), drawn.virtual.shape[:2], between=boot_sd, between_df=df)
    places = _one_host(boot)
    return Drawn(drawn.native, drawn.virtual + effect[..., boot], noise, places)


def as_shipped(
    rng: Rng, sessions: int, overhead: np.ndarray, *, sd: float = 0.02, boot_sd: float = STATED_BOOTS,
    boots: str = "one",
) -> Drawn:  # fmt: skip
    """Draw sessions judged with boots as reviewed files state them: of 0.3 %, with 4 degrees of freedom.

    Parameters
    ----------
    boot_sd
        What boots vary by in truth.
    boots
        ``one`` for the session, or one for ``each look``.
    """
    drawn = scalars(rng, "Gaussian", sessions, overhead, sd=sd)
    boot = np.searchsorted(LOOKS, np.arange(MAX_PAIRS), side="right") * (boots == "each look")
    effect = rng.normal(0, boot_sd, (*drawn.virtual.shape[:2], len(LOOKS)))
    noise = replace(drawn.noise, between=STATED_BOOTS, between_df=STATED_BETWEEN_DF)
    places = _one_host(boot)
    return Drawn(drawn.native, drawn.virtual + effect[..., boot], noise, places)


def spiked(rng: Rng, drawn: Drawn, native: float, virtual: float, pairs: int = MAX_PAIRS) -> Drawn:
    """Make a share of the runs of either side take twice as long; keep the first `pairs` pairs."""
    drawn = drawn.first(pairs)
    n, v = drawn.native, drawn.virtual
    return replace(
        drawn,
        native=n + np.log(2) * (rng.random(n.shape) < native),
        virtual=v + np.log(2) * (rng.random(v.shape) < virtual),
    )


def slow_runs(drawn: Drawn, pairs: int) -> np.ndarray:
    """Return in which sessions slow runs are found after so many pairs of every metric."""
    sigma = np.asarray(drawn.noise.sigma)[..., 0]
    counts = [
        np.count_nonzero(slowness(side[..., :pairs], sigma), axis=(1, 2))
        for side in (drawn.virtual, drawn.native)
    ]
    runs = drawn.native.shape[1] * pairs
    return (
        p_value(counts[0], np.full_like(counts[0], runs), counts[1], np.full_like(counts[1], runs))
        <= SLOW_ALPHA
    )


def slow_at_the_end(drawn: Drawn, judged: Simulated) -> np.ndarray:
    """Return in which sessions slow runs are found when nothing is left to run, whenever that is."""
    counts, sigma = [], np.asarray(drawn.noise.sigma)[..., 0]
    for side in (drawn.virtual, drawn.native):
        count = np.zeros(len(side), dtype=np.int64)
        for pairs in LOOKS:
            slow = np.count_nonzero(slowness(side[..., :pairs], sigma), axis=-1)
            count += np.where(judged.pairs == pairs, slow, 0).sum(axis=1)
        counts.append(count)
    runs = judged.pairs.sum(axis=1)
    return p_value(counts[0], runs, counts[1], runs) <= SLOW_ALPHA


def curve_session(
    rng: Rng, sessions: int, at_64: float = 0.0, *, run_spikes: float = 0.0, size_spikes: float = 0.0,
    everywhere: float = 0.0,
) -> Simulated:  # fmt: skip
    """Judge sessions of one curve and ten scalar metrics; return the answers on the curve.

    Parameters
    ----------
    at_64
        Overhead at 64 B, a fraction.
    run_spikes, size_spikes
        Shares of the runs, and of the single values, that take twice as long, on both sides.
    everywhere
        Overhead at all other sizes, a fraction.
    """
    native, virtual = models.curves(rng, (sessions, 1), MAX_PAIRS)
    overhead = np.full(native.shape[-1], np.log1p(everywhere))
    overhead[models.SIZES.index(64.0)] = np.log1p(at_64)
    virtual = virtual + overhead
    for side in (native, virtual):
        side += np.log(2) * (rng.random((*side.shape[:-1], 1)) < run_spikes)
        side += np.log(2) * (rng.random(side.shape) < size_spikes)
    sigma, df = _curve_histories()
    which = rng.integers(0, len(sigma), (sessions, 1))
    # Sigma at each size and of the whole curve, with one weight for all of them.
    noise = Noise(sigma[which], np.median(df[which], axis=-1, keepdims=True))
    curve = Batch(native, virtual, CURVE_LIMIT, CURVE_MARGIN, noise)
    return simulate([curve, scalars(rng, "Gaussian", sessions, np.zeros(10)).batch()])[0]


@cache
def _curve_histories() -> tuple[Floats, Floats]:
    rng = np.random.default_rng(8)
    n, v = models.curves(rng, (300, HISTORY_SESSIONS), HISTORY_PAIRS)
    return estimate_noise(np.moveaxis(append_mean(v - n), -1, 1))


def against(
    rng: Rng, sessions: int, change: np.ndarray, *, sd: float = 0.01, allowed: float = 0.02, margin: float =
    0.03, earlier_pairs: int = 12, boot_sd: float = 0.0, df: float = np.inf, between: float | None = None,
    boots: int = 1,
) -> Simulated:  # fmt: skip
    """Judge by how much metrics have changed since an earlier session of so many pairs."""
    shape = (sessions, len(change))
    now = models.sides(models.runs(rng, "Gaussian", shape, MAX_PAIRS, sd))
    before = models.sides(models.runs(rng, "Gaussian", shape, earlier_pairs, sd))
    boot, boot0 = np.arange(MAX_PAIRS) % boots, np.arange(earlier_pairs) % boots
    native, virtual = now[0], now[1] + change[:, None] + rng.normal(0, boot_sd, (*shape, boots))[..., boot]
    before = (before[0], before[1] + rng.normal(0, boot_sd, (*shape, boots))[..., boot0])
    between = boot_sd if between is None else between
    noise = noise_of(rng, histories_of("Gaussian", sd), shape, between=between, between_df=df)
    limit = float(np.log1p(allowed))
    batch = Batch(
        native[..., None], virtual[..., None], limit, float(np.log1p(allowed + margin)) - limit, noise,
        _one_host(boot),
        earlier=(before[0][..., None], before[1][..., None]),
        earlier_places=_one_host(boot0),
    )  # fmt: skip
    return simulate([batch])[0]


def chunks(total: int, metrics: int, pairs: int = MAX_PAIRS) -> Iterator[int]:
    """Yield sizes that add up to `total` sessions and take some 100 MB each."""
    size = max(4_000_000 // (metrics * pairs), 1)
    while total > 0:
        yield min(size, total)
        total -= size


def collect(total: int, metrics: int, draw: Callable[[int], Simulated], pairs: int = MAX_PAIRS) -> Simulated:
    """Judge `total` sessions chunk by chunk."""
    parts = [draw(count) for count in chunks(total, metrics, pairs)]
    return Simulated(*(np.concatenate(values) for values in zip(*parts, strict=True)))
