"""Sessions that are drawn, judged as the commands judge them: as `Case`s by `judge_sessions`, to their end.

Hosts that are set aside, clocks, slow runs and boots matter only there. `compare` shows that `judge_sessions`
gives the same answers as the arrays that the rest of the benchmark judges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import noise_models as models
import numpy as np

import sessions as draw
from virtqual.history.boots import MIN_RECORDED_BOOTS, compare_boots, moderate, pool_metrics, shrink_variances
from virtqual.history.mixed import Means, find_shifts
from virtqual.history.noise_entries import round_up
from virtqual.verdict.alternation import is_reversed, list_standard_order
from virtqual.verdict.budget import Budget
from virtqual.verdict.case import Case
from virtqual.verdict.estimate import Floats, Noise
from virtqual.verdict.metric import Metric
from virtqual.verdict.noise import Prior
from virtqual.verdict.pairs import SIDES, Pair, Sample, Series, pair_up
from virtqual.verdict.rule import LOOKS
from virtqual.verdict.session import SessionVerdict, judge_sessions

CURVE_PRIOR = Prior(
    sigma=tuple(models.curve_sigma()), df=6, source="drawn", correlation=0.5, common=0.01, between_df="bound"
)
METRICS = 11
SCALAR = Metric(
    name="scalar", unit="s", better="lower", family="drawn", description="A scalar that is drawn."
)
CURVE = Metric(
    name="curve", unit="us", better="lower", family="drawn", kind="curve", axis="size", axis_unit="B",
    description="A curve that is drawn.",
)  # fmt: skip


def compare(rng: draw.Rng, sessions: int = 40) -> dict[str, tuple[np.ndarray, Counter[str]]]:
    """Return by design which answers are the same, and how often each outcome came out."""
    overhead = np.log1p([0.0, 0.05, 0.08, 0.12, 0.25, -0.35])
    designs: dict[str, draw.Drawn] = {
        "one host": draw.scalars(rng, sessions, overhead),
        "a boot each look": draw.as_shipped(rng, sessions, overhead, boots="each look"),
        "roles exchanged": draw.exchanged(rng, sessions, overhead, node_sd=0.03),
        "rotated over 4": draw.rotated(rng, sessions, overhead, hosts=4),
        "against 12 pairs": draw.against(rng, sessions, overhead[:4]),
        "curves": replace(draw.curves(rng, sessions, overhead), noise=Noise(models.curve_columns())),
    }
    comparisons = {}
    for words, drawn in designs.items():
        for looks in (LOOKS, (4,)):
            by_arrays = (drawn.first(4 * drawn.width) if looks != LOOKS else drawn).judged(
                looks=looks, min_pairs=4
            )
            by_commands = finished(drawn, looks=looks, min_pairs=4)[1]
            counts = Counter(outcome.name for outcome in by_arrays.outcome.ravel())
            is_same = by_arrays.outcome == by_commands.outcome
            comparisons[f"{words}, looks at {looks}"] = is_same, counts
    return comparisons


def finished(
    drawn: draw.Drawn, *, apart: float = 0.0, looks: Sequence[int] = LOOKS, min_pairs: int = 0,
    **options: object,
) -> tuple[list[SessionVerdict], draw.Simulated]:  # fmt: skip
    """Judge sessions to their end, as `virtqual qualify` does.

    `options` are those of `judge_sessions`; `apart` is that of `_series`.
    """
    sessions, metrics, total = drawn.native.shape[:3]
    priors = _priors(drawn)
    budget = _budget(drawn)
    taken = np.full((sessions, metrics), max(looks[0], min_pairs) * drawn.width)
    answers: dict[int, SessionVerdict] = {}
    unfinished = range(sessions)

    def build(session: int) -> Iterator[Case]:
        for metric in range(metrics):
            series = _series(drawn, session, metric, taken[session, metric], apart)
            before = drawn.earlier and _series(drawn.earlier, session, metric)
            yield Case(series, budget, priors[session][metric], before)

    while unfinished:
        cases = [build(session) for session in unfinished]
        judged = judge_sessions(cases, looks=looks, min_pairs=min_pairs, **options)
        answers |= zip(unfinished, judged, strict=True)
        needs = {
            session: [need for need in answers[session].needs if need.first < total] for session in unfinished
        }
        for session, own_needs in needs.items():
            for need in own_needs:
                taken[session, int(need.series.partition("@")[2])] = min(need.last + 1, total)
        unfinished = [session for session, own_needs in needs.items() if own_needs]
    verdicts = [answers[session] for session in range(sessions)]
    outcomes = [[verdict.outcome for verdict in answer.verdicts] for answer in verdicts]
    return verdicts, draw.Simulated(np.array(outcomes), taken // drawn.width)


def finished_with_losses(
    rng: draw.Rng, sessions: int, overhead: np.ndarray, *, lost: float, sd: float = 0.01,
    disturbance: draw.Disturbance | None = None, history: str = "quiet", **options: object,
) -> tuple[list[SessionVerdict], draw.Simulated]:  # fmt: skip
    """Judge sessions to their end that lose a share of the runs of both sides at random.

    The pair of a lost run is replaced as the needs say, in twice the pairs of the last look at most.
    `options` are those of `judge_sessions`.
    """
    known = draw.scalars(rng, sessions, overhead, sd=sd, disturbance=disturbance, history=history)
    priors, budget, slots = _priors(known), _budget(known), models.is_virtual(2 * draw.MAX_PAIRS)
    y = draw.draw_runs(rng, "Gaussian", known.native.shape[:2], slots, sd, disturbance)
    # The two runs of each pair in the order in which they run, whichever their sides.
    y = y.reshape(*y.shape[:2], -1, 2)
    is_lost = np.any(rng.random(y.shape) < lost, axis=-1)
    orders = [[list_standard_order(0, 3)] * len(overhead) for _ in range(sessions)]
    answers: dict[int, SessionVerdict] = {}
    unfinished = [*range(sessions)]

    def build(session: int) -> Iterator[Case]:
        for metric, order in enumerate(orders[session]):
            runs = y[session, metric].tolist(), is_lost[session, metric].tolist()
            samples = _list_samples(order, *runs, overhead[metric])
            yield Case(pair_up(SCALAR, str(metric), (), samples), budget, priors[session][metric])

    while unfinished:
        answers |= zip(unfinished, judge_sessions(map(build, unfinished), **options), strict=True)
        for session in unfinished:
            for need in answers[session].needs:
                orders[session][int(need.series.partition("@")[2])] += need.order
        unfinished = [
            session
            for session in unfinished
            if any(need.first < y.shape[2] for need in answers[session].needs)
        ]
    verdicts = [answers[session] for session in range(sessions)]
    outcomes = [[verdict.outcome for verdict in answer.verdicts] for answer in verdicts]
    pairs = [[len(order) for order in of_session] for of_session in orders]
    return verdicts, draw.Simulated(np.array(outcomes), np.minimum(pairs, y.shape[2]))


def _list_samples(
    order: str, costs: list[list[float]], is_lost: list[bool], overhead: float
) -> Iterator[Sample]:
    """Yield the samples of pairs, in which runs of these costs follow each other; lost pairs are refused."""
    for pair, (first, runs, lost) in enumerate(zip(order, costs, is_lost, strict=False)):
        for which, side in enumerate(SIDES if first == "N" else SIDES[::-1]):
            value, start = (
                float(np.exp(runs[which] + overhead * (side == "virtual"))),
                100.0 * pair + 50 * which,
            )
            yield Sample(side, pair, (value,), start, start + 40, ("lost",) * lost, host="host")


def _budget(drawn: draw.Drawn) -> Budget:
    """Return the budget by which sessions are judged."""
    return Budget.build(
        float(np.expm1(drawn.limit)),
        margin=float(np.exp(drawn.limit + drawn.margin) - np.exp(drawn.limit)),
        gate="overhead" if drawn.earlier is None else "change",
    )


def _priors(drawn: draw.Drawn) -> list[list[Prior]]:
    """Return what is known of the noise of each metric in each session."""
    shape = drawn.native.shape[:2]
    if drawn.native.ndim > 3:
        return [[CURVE_PRIOR] * shape[1]] * shape[0]
    noise = (drawn.noise.sigma, drawn.noise.df, drawn.noise.between, drawn.noise.between_df)
    parameters = np.concatenate([np.broadcast_to(values, (*shape, 1)) for values in noise], axis=-1)
    return [[_prior(*values) for values in metrics] for metrics in parameters.tolist()]


@cache
def _prior(sigma: float, df: float, between: float, between_df: float) -> Prior:
    return Prior(sigma=sigma, df=df, between=between, between_df=between_df, source="drawn")


def _series(
    drawn: draw.Drawn, session: int, metric: int, pairs: int | None = None, apart: float = 0.0
) -> Series:
    """Return the first pairs of a metric; its runs begin `apart` seconds after those of the last one.

    Runs of value NaN were lost; the pair that replaces theirs begins with the same side.
    """
    sides = [np.exp(side[session, metric, :pairs]) for side in (drawn.native, drawn.virtual)]
    places = drawn.all_places
    width, has_boots = places.width, len(set(places.boot)) > 1
    pairs_drawn: list[Pair] = []
    for pair, values in enumerate(
        zip(*(side.reshape(len(side), -1).tolist() for side in sides), strict=True)
    ):
        turn, samples = pair // width, []
        lost = sum(bool(drawn_pair.invalid) for drawn_pair in pairs_drawn)
        is_virtual_first = is_reversed(turn - lost)
        for which, (side, host) in enumerate(zip(SIDES, (places.native, places.virtual), strict=True)):
            start = 100.0 * turn + 50 * (which != is_virtual_first) + apart * metric
            labels = {"host": host[pair], "boot": places.boot[pair] if which and has_boots else ""}
            samples.append(Sample(side, pair, tuple(values[which]), start, start + 40, turn=turn, **labels))
        invalid = ("lost",) if any(sample.refused for sample in samples) else ()
        pairs_drawn.append(Pair(pair, *samples, invalid))
    kind, points = (CURVE, models.SIZES) if drawn.native.ndim > 3 else (SCALAR, ())
    return Series(kind, str(metric), points, tuple(pairs_drawn))


@dataclass(frozen=True)
class Mixture:
    """Sessions of a history that met another machine: their `log` is shifted in so many metrics."""

    sessions: tuple[int, ...]
    log: float
    metrics: int = METRICS


@cache
def _recorded(boot_sd: float, mixture: Mixture | None = None, machines: int = 30) -> Floats:
    """Return what `virtqual propose` writes of the noise and the boots of 11 metrics of each machine."""
    rng, count = np.random.default_rng(9), draw.HISTORY_SESSIONS
    drawn = draw.booted(rng, machines * count, np.zeros(METRICS), boot_sd=boot_sd).first(draw.HISTORY_PAIRS)
    if mixture:
        is_shifted = np.isin(np.arange(machines * count) % count, mixture.sessions)
        drawn.virtual[is_shifted, : mixture.metrics] += mixture.log
    native, virtual = (
        np.moveaxis(side.reshape(machines, count, METRICS, -1), 1, 2)
        for side in (drawn.native, drawn.virtual)
    )
    return np.array([_propose(*sides) for sides in zip(native, virtual, strict=True)])


def _propose(native: Floats, virtual: Floats) -> list[tuple[float, ...]]:
    """Return sigma, df, and those of boots of each metric; runs have the shape (metrics, sessions, pairs)."""
    d = virtual - native
    shifts = find_shifts(_measure_sessions(d))
    chosen = sorted({*range(d.shape[1])} - {number for numbers in shifts.values() for number in numbers})
    if len(chosen) < MIN_RECORDED_BOOTS:
        prior = draw.stated()
        return [(prior.sigma, prior.df, prior.between, prior.between_df)] * METRICS
    sigma, df = draw.record_noise(native[:, chosen], virtual[:, chosen])
    spreads = [compare_boots(list(own[chosen])) for own in d]
    pooled = pool_metrics(spreads)
    return [
        (round_up(sigma[index]), df[index], round_up(moderate(spread, pooled)), spread.df)
        for index, spread in enumerate(spreads)
    ]


def _measure_sessions(d: Floats) -> dict[str, Means]:
    """Return what sessions show of each metric; `d` has the shape (metrics, sessions, pairs)."""
    numbers, pairs = np.arange(d.shape[1]), np.full(d.shape[1], d.shape[2])
    return {
        str(index): Means(numbers, own.mean(axis=1), shrink_variances(own.var(axis=1, ddof=1), pairs) / pairs)
        for index, own in enumerate(d)
    }


def booted_as_recorded(
    rng: draw.Rng, sessions: int, overhead: np.ndarray, *, boots: int | str, boot_sd: float = 0.01,
    mixture: Mixture | None = None, machines: int = 30,
) -> draw.Drawn:  # fmt: skip
    """Draw sessions of 11 metrics that are judged with what `virtqual propose` wrote of noise and boots."""
    noise = rng.choice(_recorded(boot_sd, mixture, machines), sessions)
    sigma, df, between, between_df = np.moveaxis(noise[..., None], 2, 0)
    drawn = draw.booted(rng, sessions, overhead, boot_sd=boot_sd, boots=boots)
    return replace(drawn, noise=Noise(sigma, df, between, float(np.median(between_df))))


def is_split(
    rng: draw.Rng, machines: int, *, name: str = "Gaussian", boot_sd: float | Floats = 0.0,
    shared: bool = False, loud: float = 0.0,
) -> np.ndarray:  # fmt: skip
    """Return of which machines an unmixed history is split.

    Parameters
    ----------
    boot_sd
        Of each metric, or of all.
    shared
        All metrics of a session have the draw of its boot in common.
    loud
        Share of the sessions that are twice as noisy.
    """
    shape = (machines, METRICS, draw.HISTORY_SESSIONS)
    virtual_runs = models.is_virtual(draw.HISTORY_PAIRS)
    native, virtual = models.sides(models.runs(rng, name, shape, virtual_runs, 0.02))
    d = (virtual - native) * np.where(rng.random((machines, 1, shape[2], 1)) < loud, 2.0, 1.0)
    boots = rng.standard_normal((machines, 1, shape[2]) if shared else shape)
    d += (boots * np.broadcast_to(boot_sd, METRICS)[:, None])[..., None]
    return np.array([bool(find_shifts(_measure_sessions(own))) for own in d])
