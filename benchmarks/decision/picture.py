"""Draw docs/decision.svg: what the rule says of overheads of 4, 7 and 10 % on a quiet and on a noisy machine.

The pairs of each session have exactly the stated overhead after each look, and about the stated spread. The
rule of the commands judges them; their noise is known, and WITHIN takes four pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from virtqual.verdict.estimate import Noise
from virtqual.verdict.outcome import Outcome
from virtqual.verdict.overhead import Runs
from virtqual.verdict.places import recognise
from virtqual.verdict.rule import LOOKS, MIN_PAIRS_TO_QUALIFY, Batch, judge

PICTURE = Path(__file__).parents[2] / "docs" / "decision.svg"
BUDGET, MARGIN = 0.05, 0.03
MACHINES = {"Quiet machine: pairs vary by 0.2 %": 0.002, "Noisy machine: pairs vary by 2 %": 0.02}
OVERHEADS = (0.04, 0.07, 0.10)
#: Half of the standard normal deviates of the pairs; each is followed by its opposite.
DEVIATES = (0.7, 1.2, 1.0, 0.4, 1.6, 0.9, 1.1, 0.6, 0.9)
COLOURS = {Outcome.WITHIN: "#1e6b34", Outcome.OVER: "#b3261e", Outcome.UNDECIDED: "#755600"}
WIDTH, LEFT, PERCENT, TOP, ROW = 780, 90, 38, 56, 30
"""Sizes in user units of SVG: of the picture, of the place of 0 % and the width of 1 %, of the rows."""


@dataclass(frozen=True)
class Example:
    """A session of one metric at its end; the estimate and its interval are percentages."""

    overhead: float
    pairs: int
    outcome: Outcome
    mean: float
    low: float
    high: float


def judge_example(overhead: float, sd: float) -> Example:
    """Judge pairs of this overhead, a fraction, and this spread until there is an answer."""
    deviates = np.array([sign * deviate for deviate in DEVIATES for sign in (1, -1)])
    d = math.log1p(overhead) + sd * deviates
    pairs = judge_pairs(d, sd).used[0]
    batch = judge_pairs(d[:pairs], sd)
    (answer,) = batch.answers(LOOKS)
    return Example(overhead, int(pairs), answer.ruling.outcome, *(100 * np.expm1(answer.bounds[0])).tolist())


def judge_pairs(d: np.ndarray, sd: float) -> Batch:
    """Judge the differences of pairs, log units, whose known noise is `sd`, to their end."""
    here = ["host"] * len(d)
    logs = np.stack([np.zeros_like(d), d])[None, ..., None]
    limit, margin = math.log1p(BUDGET), math.log1p(BUDGET + MARGIN) - math.log1p(BUDGET)
    noise = Noise(np.array([sd]))
    batch = Batch(Runs(logs, recognise(here, here)), np.array([limit]), np.array([margin]), noise)
    judge([batch], min_pairs=MIN_PAIRS_TO_QUALIFY, stop=True)
    return batch


def draw_picture() -> str:
    """Return the picture as SVG."""
    lines, y = list[str](), TOP
    for machine, sd in MACHINES.items():
        lines.append(f'<text x="{LEFT - 80}" y="{y + 14}" font-weight="bold">{machine}</text>')
        for overhead in OVERHEADS:
            y += ROW
            lines += _draw_row(judge_example(overhead, sd), y + 10)
        y += ROW + 18
    height, budget, limit = y, _place(100 * BUDGET), _place(100 * (BUDGET + MARGIN))
    ticks = [
        f'<text x="{_place(value)}" y="{TOP - 10}" text-anchor="middle">{value} %</text>'
        for value in range(0, 13, 2)
    ]
    frame = [
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<rect x="{budget}" y="{TOP}" width="{limit - budget}" height="{height - TOP}" fill="#f3e6c4"/>',
        f'<text x="{budget}" y="18" text-anchor="end">budget 5 % </text>',
        f'<text x="{limit}" y="18"> budget + margin 8 %</text>',
    ]
    frame += [
        f'<line x1="{x}" x2="{x}" y1="{TOP - 4}" y2="{height}" stroke="#666666" stroke-dasharray="4 3"/>'
        for x in (budget, limit)
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="sans-serif" font-size="13" fill="#222222">'
    )
    return "\n".join([head, *frame, *ticks, *lines, "</svg>", ""])


def _place(percent: float) -> float:
    return round(LEFT + PERCENT * percent, 1)


def _draw_row(example: Example, y: float) -> list[str]:
    """Return the interval of a session with its estimate and what it came to."""
    colour, after = COLOURS[example.outcome], max(_place(example.high), _place(8)) + 12
    words = f"{example.outcome.value} after {example.pairs} pairs"
    return [
        f'<text x="{LEFT - 80}" y="{y + 4}">{100 * example.overhead:g} %</text>',
        f'<line x1="{_place(example.low)}" x2="{_place(example.high)}" y1="{y}" y2="{y}" stroke="{colour}" '
        'stroke-width="4"/>',
        f'<circle cx="{_place(example.mean)}" cy="{y}" r="5" fill="{colour}"/>',
        f'<text x="{after}" y="{y + 4}" fill="{colour}" font-weight="bold">{words}</text>',
    ]


if __name__ == "__main__":
    PICTURE.write_text(draw_picture(), encoding="utf-8")
