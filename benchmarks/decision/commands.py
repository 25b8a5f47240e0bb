"""Sessions that are drawn, judged as the commands judge them: as `Case`s by `judge_sessions`, to their end.

Hosts that are set aside, clocks, slow runs and boots matter only there. `compare` shows that `judge_sessions`
gives the same answers as the arrays that the rest of the benchmark judges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import noise_models as models
import numpy as np

import sessions as draw
from virtqual.harness.order import is_reversed
from virtqual.history.boots import measure_boots, pool_metrics
from virtqual.history.noise_entries import noise_entry
from virtqual.verdict.budget import Budget
from virtqual.verdict.case import Case
from virtqual.verdict.estimate import Floats, Noise
from virtqual.verdict.metric import Metric
from virtqual.verdict.noise import Prior
from virtqual.verdict.pairs import SIDES, Pair, Sample, Series
from virtqual.verdict.rule import LOOKS
from virtqual.verdict.session import SessionVerdict, judge_sessions

CURVE_PRIOR = Prior(
    sigma=tuple(models.curve_sigma()), df=6, source="drawn", correlation=0.5, common=0.01, between_df="bound"
)
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
    budget = Budget.build(
        float(np.expm1(drawn.limit)),
        margin=float(np.exp(drawn.limit + drawn.margin) - np.exp(drawn.limit)),
        gate="overhead" if drawn.earlier is None else "change",
    )
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


@cache
def _recorded(boot_sd: float, machines: int = 30) -> Floats:
    """Return what `virtqual propose` writes of the noise and the boots of 11 metrics of each machine."""
    rng, metrics, count = np.random.default_rng(9), 11, draw.HISTORY_SESSIONS
    drawn = draw.booted(rng, machines * count, np.zeros(metrics), boot_sd=boot_sd).first(draw.HISTORY_PAIRS)
    entries = []
    for machine in range(machines):
        sessions = range(machine * count, (machine + 1) * count)
        histories = [[_series(drawn, session, metric) for session in sessions] for metric in range(metrics)]
        pooled = pool_metrics([measure_boots(series) for series in histories])
        noises = [noise_entry(series, "drawn", pooled) for series in histories]
        entries.append([[noise[key] for key in ("sigma", "df", "between", "between_df")] for noise in noises])
    return np.array(entries)


def booted_as_recorded(
    rng: draw.Rng, sessions: int, overhead: np.ndarray, *, boots: int | str, boot_sd: float = 0.01
) -> draw.Drawn:
    """Draw sessions of 11 metrics that are judged with what `virtqual propose` wrote of noise and boots."""
    noise = rng.choice(_recorded(boot_sd), sessions)
    sigma, df, between, between_df = np.moveaxis(noise[..., None], 2, 0)
    drawn = draw.booted(rng, sessions, overhead, boot_sd=boot_sd, boots=boots)
    return replace(drawn, noise=Noise(sigma, df, between, float(between_df.max())))
