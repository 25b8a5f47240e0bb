"""Sessions as the commands judge them, held against the arrays that the rest of the benchmark judges.

A few tens of sessions with scalars and a curve, on one host, with roles exchanged, rotated, in a few boots,
after one look, and against an earlier session. Each is written as `Case`s for `judge_sessions`, and as
`Batch`es for `judge`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import noise_models as models
import numpy as np

import sessions as draw
from virtqual.verdict.batches import Case
from virtqual.verdict.budget import MAX_CHANGE_MARGIN, Budget
from virtqual.verdict.estimate import Floats, Noise
from virtqual.verdict.metric import Metric
from virtqual.verdict.noise import Prior
from virtqual.verdict.outcome import OUTCOMES
from virtqual.verdict.pairs import SIDES, Sample, Series, pair_up
from virtqual.verdict.places import recognise
from virtqual.verdict.rule import LOOKS, Batch, judge
from virtqual.verdict.session import judge_sessions

SESSIONS, SCALARS, SD = 8, 6, 0.02
PRIOR = Prior(sigma=SD, df=6, source="drawn", between=0.003)
CURVE_PRIOR = Prior(
    sigma=tuple(models.curve_sigma()), df=6, source="drawn", correlation=0.5, common=0.01, between=0.003
)
SCALAR = Metric(
    name="scalar", unit="s", better="lower", family="drawn", description="A scalar that is drawn."
)
CURVE = Metric(
    name="curve", unit="us", better="lower", family="drawn", kind="curve", axis="size", axis_unit="B",
    description="A curve that is drawn.",
)  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """Hosts and boots of the pairs of a session."""

    native: Sequence[str]
    virtual: Sequence[str]
    boot: Sequence[str]
    looks: tuple[int, ...] = LOOKS
    earlier: bool = False


def layouts() -> dict[str, Layout]:
    host, no_boot = ["a"] * 18, [""] * 18
    role = np.resize([0, 0, 1, 1], 18)
    exchanged = [np.array(["a", "b"])[side].tolist() for side in (role, 1 - role)]
    turn, node = np.divmod(np.arange(32), 4)
    rotated = [f"n{i}" for i in node], [f"v{j}" for j in (node + turn) % 4]
    return {
        "one host, 18 pairs": Layout(host, host, no_boot),
        "one host, 5 pairs": Layout(host[:5], host[:5], no_boot[:5]),
        "one host, 4 pairs, one look": Layout(host[:4], host[:4], no_boot[:4], looks=(4,)),
        "one host, 12 pairs, a boot each look": Layout(host[:12], host[:12], [*"aaaabbbbcccc"]),
        "one host, 8 pairs against 8": Layout(host[:8], host[:8], no_boot[:8], earlier=True),
        "roles exchanged, 12 pairs": Layout(exchanged[0][:12], exchanged[1][:12], no_boot[:12]),
        "rotated over 4, 8 rounds": Layout(*rotated, [""] * 32),
        "other hosts in fixed roles, 8 pairs": Layout(host[:8], ["b"] * 8, no_boot[:8]),
    }


def compare(rng: draw.Rng) -> dict[str, tuple[np.ndarray, Counter[str]]]:
    """Return by layout which answers are the same, and how often each outcome came out."""
    comparisons = {}
    for words, layout in layouts().items():
        scalars, curves = _drawn(rng, layout), _drawn(rng, layout, curve=True)
        earlier = (_drawn(rng, layout), _drawn(rng, layout, curve=True)) if layout.earlier else (None, None)
        kinds = (
            _Kind(SCALAR, (), Budget.build(draw.BUDGET, margin=draw.MARGIN), PRIOR, scalars, earlier[0]),
            _Kind(CURVE, models.SIZES, Budget.build(0.10, margin=0.10), CURVE_PRIOR, curves, earlier[1]),
        )
        cases = [
            [case for kind in kinds for case in kind.cases(session, layout)] for session in range(SESSIONS)
        ]
        verdicts = [
            [verdict.outcome.name for verdict in answer.verdicts]
            for answer in judge_sessions(cases, looks=layout.looks)
        ]
        judged = judge([kind.batch(layout) for kind in kinds])
        answers = np.concatenate([state.outcome.reshape(state.shape) for state in judged], axis=1)
        names = [[OUTCOMES[code].name for code in row] for row in answers]
        comparisons[words] = np.array(names) == np.array(verdicts), Counter(np.ravel(names).tolist())
    return comparisons


def _drawn(rng: draw.Rng, layout: Layout, curve: bool = False) -> tuple[Floats, Floats]:
    """Return native and virtual logarithms, shape (sessions, series, pairs, points), of any overheads."""
    shape, pairs = (SESSIONS, 1 if curve else SCALARS), len(layout.native)
    if curve:
        native, virtual = models.curves(rng, shape, pairs)
    else:
        native, virtual = rng.normal(0, SD / np.sqrt(2), (2, *shape, pairs, 1))
    # The commands refuse a change of an overhead that is too good to be true; arrays do not.
    overheads = [0.0, 0.05, 0.08, 0.12, 0.25, *([] if layout.earlier else [-0.2])]
    return native, virtual + rng.choice(overheads, (*shape, 1, 1))


@dataclass(frozen=True)
class _Kind:
    """Series of one metric in all sessions, as cases and as a batch."""

    metric: Metric
    points: tuple[float, ...]
    budget: Budget
    prior: Prior
    sides: tuple[Floats, Floats]
    earlier: tuple[Floats, Floats] | None

    def cases(self, session: int, layout: Layout) -> list[Case]:
        return [
            Case(
                self._series(self.sides, session, index, layout),
                self.budget,
                self.prior,
                self.earlier and self._series(self.earlier, session, index, layout),
            )
            for index in range(self.sides[0].shape[1])
        ]

    def _series(self, sides: tuple[Floats, Floats], session: int, index: int, layout: Layout) -> Series:
        samples = []
        for pair, hosts in enumerate(zip(layout.native, layout.virtual, strict=True)):
            for which, side in enumerate(SIDES):
                start = 20.0 * pair + 10 * ((which + pair) % 2)
                values = tuple(np.exp(sides[which][session, index, pair]).tolist())
                labels = {"host": hosts[which], "boot": layout.boot[pair] if which else ""}
                samples.append(Sample(side, pair, values, start, start + 5, **labels))
        return pair_up(self.metric, str(index), self.points, samples)

    def batch(self, layout: Layout) -> Batch:
        places = recognise(layout.native, layout.virtual, layout.boot)
        curve = bool(self.points)
        noise = Noise(
            models.curve_columns() if curve else np.array([SD]), 6, self.prior.between, self.prior.between_df
        )
        limit, margin = (draw.CURVE_LIMIT, draw.CURVE_MARGIN) if curve else (draw.LIMIT, draw.LOG_MARGIN)
        most = float(np.log1p(np.expm1(limit) + (0.10 if curve else MAX_CHANGE_MARGIN))) - limit
        return Batch(
            *self.sides, limit, margin, noise, places, earlier=self.earlier, earlier_places=places,
            max_margin=most, looks=layout.looks,
        )  # fmt: skip
