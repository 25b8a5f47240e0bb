"""Sessions that are drawn and then judged, by the rule itself: thousands at once.

Every metric has a history of its own, twenty sessions of four pairs, from which its noise is estimated as a
site would. Budget 5 %, margin 3 %, for curves 10 % and 10 %. Functions that draw take the overhead of each
metric in log units, of shape (n_metrics,).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import noise_models as models
import numpy as np

from virtqual import paths
from virtqual.history.pair_noise import estimate_noise, find_stalls, usual_noise
from virtqual.references import load_references
from virtqual.verdict.alternation import balance_order
from virtqual.verdict.budget import MAX_CHANGE_MARGIN
from virtqual.verdict.estimate import Floats, Noise, append_mean
from virtqual.verdict.noise import Prior
from virtqual.verdict.outcome import Outcome
from virtqual.verdict.overhead import Runs
from virtqual.verdict.pairs import MIN_FIRST_RUNS, Series
from virtqual.verdict.places import Places, recognise
from virtqual.verdict.rule import LOOKS, MIN_PAIRS_TO_QUALIFY, Batch, Ruling, judge
from virtqual.verdict.slow_runs import SLOW_ALPHA, p_value, slowness

BUDGET, MARGIN = 0.05, 0.03
LIMIT = float(np.log1p(BUDGET))
LOG_MARGIN = float(np.log1p(BUDGET + MARGIN)) - LIMIT
CURVE_LIMIT = float(np.log1p(0.10))
CURVE_MARGIN = float(np.log1p(0.20)) - CURVE_LIMIT
HISTORY_SESSIONS, HISTORY_PAIRS = 20, 4
MAX_PAIRS = LOOKS[-1]
OUTCOME_OF = np.array([ruling.outcome for ruling in Ruling])
Rng = np.random.Generator
Disturbance = Callable[[Rng, tuple[int, ...], np.ndarray], np.ndarray]


@cache
def stated(family: str = "memory") -> Prior:
    """Return what is stated of a family's noise, as shipped."""
    references = load_references(paths.references())
    metric = next(metric for metric in references.metrics.values() if metric.family == family)
    return references.prior(Series(metric, "here"))


class Simulated(NamedTuple):
    """Outcomes, and the pairs that they took, both of shape (n_sessions, n_metrics)."""

    outcome: np.ndarray
    pairs: np.ndarray


def simulate(
    batches: Sequence[Batch], *, stop: bool = True, looks: Sequence[int] = LOOKS, min_pairs: int = 0
) -> list[Simulated]:
    """Judge batches of the same sessions; with `stop` a series ends at its first answer, as in a session."""
    judge(batches, looks, stop=stop, min_pairs=min_pairs)
    return [Simulated(OUTCOME_OF[batch.ruling], batch.used) for batch in batches]


def measure_again(drawings: Iterable[Drawn], *, remembers: bool = True) -> Simulated:
    """Judge sessions that a site measures of one build, one after the other, each to its end.

    Returns arrays of shape (sessions, sites, metrics). The noise that is known is that of the first session.
    With `remembers`, a session knows how many before it could not pass a metric.
    """
    judged, noise, attempt = list[Simulated](), None, np.array(1)
    for drawn in drawings:
        noise = drawn.noise if noise is None else noise
        batch = replace(drawn, noise=noise).batch()
        batch = replace(batch, attempt=attempt)
        judged += simulate([batch], min_pairs=MIN_PAIRS_TO_QUALIFY)
        if remembers:
            attempt = np.where(judged[-1].outcome == Outcome.WITHIN, 1, attempt + 1)
    return Simulated(*(np.stack(values) for values in zip(*judged, strict=True)))


@dataclass(frozen=True)
class Drawn:
    """Runs of both sides, shape (n_sessions, n_metrics, n_pairs), of curves with a last axis of sizes.

    `earlier` is the session with which these are compared.
    """

    native: Floats
    virtual: Floats
    noise: Noise
    places: Places | None = None
    limit: float = LIMIT
    margin: float = LOG_MARGIN
    earlier: Drawn | None = None

    def judged(self, *, stop: bool = True, looks: tuple[int, ...] = LOOKS, min_pairs: int = 0) -> Simulated:
        return simulate([self.batch()], stop=stop, looks=looks, min_pairs=min_pairs)[0]

    def batch(self) -> Batch:
        earlier = self.earlier and self.earlier.runs
        sessions = np.arange(len(self.native))[:, None]
        widest = np.log1p(MAX_CHANGE_MARGIN)
        return Batch(self.runs, self.limit, self.margin, self.noise, sessions, earlier, widest)

    @property
    def runs(self) -> Runs:
        sides = [side.reshape(*side.shape[:3], -1) for side in (self.native, self.virtual)]
        return Runs(append_mean(np.stack(sides, axis=2)), self.all_places)

    @property
    def all_places(self) -> Places:
        unknown = [""] * self.native.shape[2]
        return self.places or recognise(unknown, unknown)

    @property
    def width(self) -> int:
        return self.places.width if self.places else 1

    def first(self, pairs: int) -> Drawn:
        """Return the first `pairs` pairs."""
        places = self.places and self.places.first(pairs)
        native, virtual = self.native[:, :, :pairs], self.virtual[:, :, :pairs]
        return replace(self, native=native, virtual=virtual, places=places)


def overheads(metrics: int, worst: float, rest: float = 0.0) -> np.ndarray:
    """Return log overheads of which the first metric's is `worst` (a fraction) and the others' `rest`."""
    values = np.full(metrics, np.log1p(rest))
    values[0] = np.log1p(worst)
    return values


def draw_runs(
    rng: Rng, name: str, shape: tuple[int, ...], virtual: np.ndarray, sd: float,
    disturbance: Disturbance | None = None,
) -> Floats:  # fmt: skip
    y = models.runs(rng, name, shape, virtual, sd)
    return y if disturbance is None else y + disturbance(rng, shape, virtual)


def record_noise(native: Floats, virtual: Floats, floor: float = 0.0) -> tuple[Floats, Floats]:
    """Return sigma and df of histories as `virtqual propose` writes them.

    The runs of each side have the shape (..., n_sessions, n_pairs).
    """
    d = virtual - native
    stalls = find_stalls(native, virtual, usual_noise(d, floor)[..., None])
    return estimate_noise(np.where(stalls, np.nan, d), floor)


@cache
def histories_of(name: str, sd: float, disturbance: Disturbance | None = None) -> tuple[Floats, Floats]:
    """Return sigma and df of 4,000 histories."""
    rng, shape = np.random.default_rng(7), (4000, HISTORY_SESSIONS)
    y = draw_runs(rng, name, shape, models.is_virtual(HISTORY_PAIRS), sd, disturbance)
    step = models.TIMERS.get(name, 0.0)
    return record_noise(*models.sides(models.round_to_timer(step, y)), step / np.sqrt(6))


def noise_of(rng: Rng, histories: tuple[Floats, Floats], shape: tuple[int, ...], **between: float) -> Noise:
    """Return the noise that each series is judged with, of one of the histories."""
    sigma, df = histories
    which = rng.integers(0, len(sigma), shape)
    return Noise(sigma[which][..., None], df[which][..., None], **between)


def scalars(
    rng: Rng, sessions: int, overhead: np.ndarray, *, name: str = "Gaussian", sd: float = 0.02, times: float =
    1.0, slow_first: float = 0.0, warm_up: bool = True, disturbance: Disturbance | None = None,
    history: str = "quiet", step: float = 0.0, pairs: int = MAX_PAIRS,
) -> Drawn:  # fmt: skip
    """Draw metrics of one noise model, `times` as noisy as their history.

    Parameters
    ----------
    slow_first
        By which fraction the first run of all is slower; a warm-up has it if there is one.
    disturbance
        What is added to the runs, and to those of a history that is ``recorded`` and not ``quiet``; another
        history is ``stated``.
    step
        Of the clock that shows the values, a fraction of the value.
    """
    shape = (sessions, len(overhead))
    virtual = models.is_virtual(pairs, warm_up)
    y = draw_runs(rng, name, shape, virtual, sd * times, disturbance)
    y[..., 0] += np.log1p(slow_first)
    y = y + np.where(virtual, overhead[:, None], 0)
    if step:
        y += step * rng.uniform(-0.5, 0.5, (*shape, 1))
    step = step or models.TIMERS.get(name, 0.0)
    native, runs_virtual = models.sides(models.round_to_timer(step, y[..., 2 * warm_up :]))
    histories = histories_of(name, sd, disturbance if history == "recorded" else None)
    noise = noise_of(rng, histories, shape)
    if history == "stated":
        noise = Noise(stated().sigma, stated().df)
    return Drawn(native, runs_virtual, noise)


def with_losses(
    rng: Rng, sessions: int, overhead: np.ndarray, *, lost: float, sd: float = 0.01,
    disturbance: Disturbance | None = None, history: str = "quiet",
) -> Drawn:  # fmt: skip
    """Draw the pairs that count of sessions that lose a share of the runs of both sides, from four on."""
    noise = scalars(rng, sessions, overhead, sd=sd, disturbance=disturbance, history=history).noise
    pairs = 3 * MAX_PAIRS
    y = draw_runs(rng, "Gaussian", (sessions, len(overhead)), models.is_virtual(pairs), sd, disturbance)
    is_lost = np.any(rng.random((*y.shape[:2], pairs, 2)) < lost, axis=-1)
    slots = np.array(
        [[_choose_slots(of_metric) for of_metric in of_session] for of_session in is_lost.tolist()]
    )
    native, virtual = (np.take_along_axis(y, slots[:, :, side], axis=-1) for side in range(2))
    return Drawn(native, virtual + overhead[:, None], noise)


def _choose_slots(is_lost: Sequence[bool]) -> tuple[list[int], list[int]]:
    """Return the places in time of the native and the virtual runs of the pairs that count.

    Lost pairs are replaced as the needs of a session say.
    """
    order, native, virtual, pair = "", list[int](), list[int](), 0
    for look in LOOKS[1:]:
        while len(order) < look:
            for first in balance_order(pair, look - len(order), order, look // MIN_FIRST_RUNS):
                if not is_lost[pair]:
                    order += first
                    native.append(2 * pair + (first == "V"))
                    virtual.append(2 * pair + (first == "N"))
                pair += 1
    return native, virtual


def resample(rng: Rng, sessions: int, overhead: np.ndarray, *, logs: list[np.ndarray]) -> Drawn:
    """Draw sessions whose metrics are resampled from measured runs; of which log is drawn for each."""
    shape = (sessions, len(overhead))
    native, virtual = np.empty((*shape, MAX_PAIRS)), np.empty((*shape, MAX_PAIRS))
    sigma, df = np.empty((*shape, 1)), np.empty((*shape, 1))
    which = np.stack([rng.permutation(np.arange(shape[1]) % len(logs)) for _ in range(sessions)])
    for index, y in enumerate(logs):
        is_log = which == index
        count = int(is_log.sum())
        if not count:
            continue
        native[is_log], virtual[is_log] = models.sides(models.resampled(rng, y, (count,), MAX_PAIRS))
        histories = models.resampled(rng, y, (500, HISTORY_SESSIONS), HISTORY_PAIRS)
        pick = rng.integers(0, 500, count)
        sigma[is_log, 0], df[is_log, 0] = (x[pick] for x in record_noise(*models.sides(histories)))
    return Drawn(native, virtual + overhead[:, None], Noise(sigma, df))


def exchanged(
    rng: Rng, sessions: int, overhead: np.ndarray, *, node_sd: float, planted: float | None = None
) -> Drawn:
    """Draw sessions of two hosts that exchange roles every two pairs; the second may be slower."""
    drawn = scalars(rng, sessions, overhead)
    shape = drawn.native.shape[:2]
    effect = rng.normal(0, node_sd, (*shape, 2)) if planted is None else np.full((*shape, 2), [0, planted])
    role = np.resize([0, 0, 1, 1], MAX_PAIRS)
    names = np.array(["node-a", "node-b"])
    return replace(
        drawn,
        native=drawn.native + effect[..., role],
        virtual=drawn.virtual + effect[..., 1 - role],
        places=recognise(names[role].tolist(), names[1 - role].tolist()),
    )


def rotated(
    rng: Rng, sessions: int, overhead: np.ndarray, *, node_sd: float = 0.0, sd: float = 0.02, hosts: int = 8,
    slow: tuple[float, float] = (0.0, 0.0), rounds: int = MAX_PAIRS,
) -> Drawn:  # fmt: skip
    """Draw sessions rotated over hosts of either side, in rounds of a pair each.

    `slow` says by how much the first native and the first virtual host are slower.
    """
    shape = (sessions, len(overhead))
    turn, native_host = np.divmod(np.arange(rounds * hosts), hosts)
    virtual_host = (native_host + turn) % hosts
    effects = rng.normal(0, node_sd, (2, *shape, hosts))
    effects[..., 0] += np.log1p(slow)[:, None, None]
    native, virtual = (
        effect[..., host] + rng.normal(0, sd / np.sqrt(2), (*shape, len(turn)))
        for effect, host in zip(effects, (native_host, virtual_host), strict=True)
    )
    places = recognise([f"n{i}" for i in native_host], [f"v{j}" for j in virtual_host])
    noise = noise_of(rng, histories_of("Gaussian", sd), shape)
    return Drawn(native, virtual + overhead[:, None], noise, places)


def boots_of(boots: int | str, pairs: int = MAX_PAIRS) -> np.ndarray:
    """Return the boot of each pair: ``each look``, ``two``, ``four, then two`` pairs, or so many in turn."""
    index = np.arange(pairs)
    if boots == "each look":
        return np.searchsorted(LOOKS, index, side="right")
    if boots == "four, then two":
        return np.maximum(index // 2 - 1, 0)
    return index // 2 if boots == "two" else index % int(boots)


def booted(
    rng: Rng, sessions: int, overhead: np.ndarray, *, boot_sd: float, boots: int | str = 1, between: float |
    None = None, df: float = np.inf, **options: float,
) -> Drawn:  # fmt: skip
    """Draw sessions whose virtual machine is booted anew.

    Parameters
    ----------
    boot_sd, between, df
        What boots vary by in truth, what is known of it (by default the truth), and how well.
    boots
        See `boots_of`.
    """
    drawn = scalars(rng, sessions, overhead, **options)
    boot = boots_of(boots)
    effect = rng.normal(0, boot_sd, (*drawn.virtual.shape[:2], boot.max() + 1))
    noise = replace(drawn.noise, between=boot_sd if between is None else between, between_df=df)
    host = ["host"] * len(boot)
    places = recognise(host, host, [f"boot {number}" for number in boot])
    return replace(drawn, virtual=drawn.virtual + effect[..., boot], noise=noise, places=places)


def as_shipped(
    rng: Rng, sessions: int, overhead: np.ndarray, *, family: str = "memory", hosts_known: bool = True,
    boot_sd: float | None = None, **options: float,
) -> Drawn:  # fmt: skip
    """Draw sessions judged with the noise and the boots that reviewed files state of a family.

    Boots vary in truth as stated, unless `boot_sd` says more.
    """
    prior = stated(family)
    between = prior.boots(hosts_known=hosts_known)
    boots = {"boot_sd": between if boot_sd is None else boot_sd, "between": between, "df": prior.between_df}
    drawn = booted(rng, sessions, overhead, **boots, **options)
    return replace(drawn, noise=replace(drawn.noise, sigma=prior.sigma, df=prior.df))


def spiked(
    rng: Rng, sessions: int, overhead: np.ndarray, *, native: float, virtual: float, pairs: int = MAX_PAIRS
) -> Drawn:
    """Draw sessions in which a share of the runs of either side take twice as long."""
    drawn = scalars(rng, sessions, overhead).first(pairs)
    n, v = (
        side + np.log(2) * (rng.random(side.shape) < share)
        for side, share in ((drawn.native, native), (drawn.virtual, virtual))
    )
    return replace(drawn, native=n, virtual=v)


def lossy(
    rng: Rng,
    sessions: int,
    overhead: np.ndarray,
    *,
    native: float,
    virtual: float,
    sd: float,
    times: float = 0.0,
) -> Drawn:
    """Draw sessions in which shares of the runs of either side are lost (NaN), or take `times` as long.

    They have twice as many pairs as the last look, to replace those of which a run was lost.
    """
    drawn = scalars(rng, sessions, overhead, sd=sd, pairs=2 * MAX_PAIRS)
    n, v = (
        side + np.where(rng.random(side.shape) < share, np.log(times) if times else np.nan, 0)
        for side, share in ((drawn.native, native), (drawn.virtual, virtual))
    )
    return replace(drawn, native=n, virtual=v)


def slow_runs(drawn: Drawn, pairs: np.ndarray | int) -> np.ndarray:
    """Return in which sessions slow runs are found after so many pairs of each metric, in runs of its own."""
    taken = np.broadcast_to(pairs, drawn.native.shape[:2])
    sigma = np.asarray(drawn.noise.sigma)[..., 0]
    events = np.zeros((2, len(taken)), dtype=np.int64)
    for number in np.unique(taken):
        native, virtual = (slowness(side[..., :number], sigma) > 0 for side in (drawn.native, drawn.virtual))
        events += np.where(taken == number, _count_events(native, virtual), 0).sum(axis=2)
    runs = taken.sum(axis=1)
    return p_value(events[1], runs, events[0], runs) <= SLOW_ALPHA


def shows_one_value(drawn: Drawn, pairs: np.ndarray) -> np.ndarray:
    """Return which series show one value in all runs of their first `pairs` pairs, of their shape."""
    values = np.stack([drawn.native, drawn.virtual], axis=-1)
    first = values[..., :1, :1]
    is_run = np.arange(values.shape[-2])[:, None] < pairs[..., None, None]
    return np.all(np.isclose(values, first, rtol=0, atol=1e-9) | ~is_run, axis=(-2, -1))


def _count_events(native: np.ndarray, virtual: np.ndarray) -> np.ndarray:
    """Count the slow runs of either side: neighbours in time are one, those of both sides none."""
    order = models.is_virtual(native.shape[-1])
    slow = np.zeros((*native.shape[:-1], len(order) + 1), dtype=np.bool_)
    slow[..., :-1][..., ~order], slow[..., :-1][..., order] = native, virtual
    counts, lasting = (
        np.zeros((2, *native.shape[:-1]), dtype=np.int64),
        np.zeros((2, *native.shape[:-1]), dtype=np.bool_),
    )
    for run, side in enumerate(order.astype(int)):
        lasting &= slow[..., run]
        lasting[side] |= slow[..., run]
        counts += lasting & ~lasting[::-1] & ~slow[..., run + 1]
    return counts


def curves(
    rng: Rng, sessions: int, overhead: np.ndarray, *, at_64: float = 0.0, run_spikes: float = 0.0,
    size_spikes: float = 0.0,
) -> Drawn:  # fmt: skip
    """Draw latency curves.

    Parameters
    ----------
    overhead
        Of each curve, at all of its sizes.
    at_64
        What is added to it at 64 B.
    run_spikes, size_spikes
        Shares of the runs, and of the single values, that take twice as long, on both sides.
    """
    shape = (sessions, len(overhead))
    native, virtual = models.curves(rng, shape, MAX_PAIRS)
    virtual = virtual + overhead[:, None, None] + at_64 * (np.array(models.SIZES) == 64.0)
    for side in (native, virtual):
        side += np.log(2) * (rng.random((*side.shape[:-1], 1)) < run_spikes)
        side += np.log(2) * (rng.random(side.shape) < size_spikes)
    sigma, df = _curve_histories()
    which = rng.integers(0, len(sigma), shape)
    # Sigma at each size and of the whole curve, with one weight for all of them.
    noise = Noise(sigma[which], np.median(df[which], axis=-1, keepdims=True))
    return Drawn(native, virtual, noise, limit=CURVE_LIMIT, margin=CURVE_MARGIN)


def curve_session(rng: Rng, sessions: int, overhead: float = 0.0, **options: float) -> Simulated:
    """Judge sessions of one curve and ten scalar metrics; return the answers on the curve."""
    curve = curves(rng, sessions, np.full(1, overhead), **options)
    return simulate([curve.batch(), scalars(rng, sessions, np.zeros(10)).batch()])[0]


@cache
def _curve_histories() -> tuple[Floats, Floats]:
    rng = np.random.default_rng(8)
    n, v = models.curves(rng, (300, HISTORY_SESSIONS), HISTORY_PAIRS)
    return estimate_noise(np.moveaxis(append_mean(v - n), -1, 1))


def against(
    rng: Rng, sessions: int, change: np.ndarray, *, allowed: float = 0.02, margin: float = 0.03,
    earlier_pairs: int = 12, sd: float = 0.01, boots: int = 1, boot_sd: float = 0.0, **options: float,
) -> Drawn:  # fmt: skip
    """Draw sessions of metrics that have changed since an earlier session of so many pairs."""
    options = {"sd": sd, "boots": boots, "boot_sd": boot_sd, **options}
    now = booted(rng, sessions, change, **options)
    before = booted(rng, sessions, np.zeros(len(change)), **options).first(earlier_pairs)
    limit = float(np.log1p(allowed))
    return replace(now, limit=limit, margin=float(np.log1p(allowed + margin)) - limit, earlier=before)


def sprt(rng: Rng, sessions: int, overhead: float, sd: float, alpha: float, beta: float = 0.05) -> Simulated:
    """Decide between budget and budget + margin by Wald's sequential test, which knows the spread exactly.

    No rule with the same error rates needs fewer pairs at these two overheads.
    """
    x = rng.normal(overhead, sd, (sessions, 200))
    log_ratio = np.cumsum((x - LIMIT - LOG_MARGIN / 2) * LOG_MARGIN / sd**2, axis=1)
    over, within = log_ratio >= np.log((1 - beta) / alpha), log_ratio <= np.log(beta / (1 - alpha))
    last = np.argmax(over | within, axis=1)
    is_over = over[np.arange(sessions), last]
    return Simulated(np.where(is_over, Outcome.OVER, Outcome.WITHIN)[:, None], last[:, None] + 1)


def chunks(total: int, metrics: int) -> Iterator[int]:
    """Yield sizes that add up to `total` sessions and take some 100 MB each, in a rotation over 8 hosts."""
    size = max(30_000 // metrics, 1)
    while total > 0:
        yield min(size, total)
        total -= size
