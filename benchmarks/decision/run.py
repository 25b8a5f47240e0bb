"""Measure what the decision promises: goal, value, interval.

"<=" goals are held against the upper 95 % bound of the value, ">=" goals against the value itself, whose
lower 95 % bound is shown. By default at least 3,000 sessions a cell, some five minutes on one core;
``--full`` takes five times as many. Exits with 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import commands
import noise_models as models
import numpy as np
from scipy import stats

import sessions as draw
from virtqual.verdict import estimate
from virtqual.verdict.estimate import Noise
from virtqual.verdict.outcome import Outcome
from virtqual.verdict.places import host_effects, overhead
from virtqual.verdict.rule import LOOKS, Batch, earlier_pairs_needed, judge
from virtqual.verdict.slow_runs import SLOW_ALPHA

WITHIN, OVER, UNDECIDED, INVALID = (
    outcome.code for outcome in (Outcome.WITHIN, Outcome.OVER, Outcome.UNDECIDED, Outcome.INVALID)
)
CONFIDENCE = 0.95
BUDGET, MARGIN = draw.BUDGET, draw.MARGIN
FAMILIES = (1, 11, 200)
SINGLE = 13  # times as many decisions where a session is one metric


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    Parameters
    ----------
    low, high
        Its one-sided 95 % bounds.
    goal
        None where nothing is promised.
    """

    section: str
    what: str
    value: float
    low: float
    high: float
    count: int
    goal: float | None
    least: bool = False
    percent: bool = True

    @property
    def holds(self) -> bool:
        if self.goal is None:
            return True
        return self.value >= self.goal if self.least else self.high <= self.goal

    def text(self) -> str:
        def number(x: float) -> str:
            return f"{x:.2%}" if self.percent else f"{x:.3g}"

        bound = f">= {number(self.low)}" if self.least else f"<= {number(self.high)}"
        goal = "" if self.goal is None else f"goal {'>=' if self.least else '<='} {self.goal:.4g}"
        mark = "" if self.goal is None else "holds" if self.holds else "MISSED"
        return f"  {self.what:72s} {number(self.value):>8s} ({bound:>10s}) {goal:15s} {mark}"


class Table:
    """Figures, printed as they come."""

    def __init__(self, sessions: int) -> None:
        self.figures: list[Figure] = []
        self.section = ""
        self.sessions = sessions

    def begin(self, section: str) -> None:
        self.section = section
        print(f"\n{section}", flush=True)

    def rate(self, what: str, hits: np.ndarray, goal: float | None = None, *, least: bool = False) -> None:
        count, total = int(np.sum(hits)), int(np.size(hits))
        low = float(stats.beta.ppf(1 - CONFIDENCE, count, total - count + 1)) if count else 0.0
        high = float(stats.beta.ppf(CONFIDENCE, count + 1, total - count)) if count < total else 1.0
        self._add(Figure(self.section, what, count / total, low, high, total, goal, least))

    def mean(
        self, what: str, values: np.ndarray, goal: float | None = None, *, percent: bool = False
    ) -> None:
        value = float(np.mean(values))
        reach = float(stats.norm.ppf(CONFIDENCE) * np.std(values) / np.sqrt(np.size(values)))
        self._add(
            Figure(
                self.section,
                what,
                value,
                value - reach,
                value + reach,
                np.size(values),
                goal,
                percent=percent,
            )
        )

    def value(self, what: str, value: float, goal: float | None = None) -> None:
        self._add(Figure(self.section, what, value, value, value, 1, goal, percent=False))

    def _add(self, figure: Figure) -> None:
        self.figures.append(figure)
        print(figure.text(), flush=True)


def same_as_commands(table: Table, rng: np.random.Generator) -> None:
    table.begin("sessions as the commands judge them: the same answers as the arrays have")
    for words, (same, outcomes) in commands.alike(rng).items():
        often = ", ".join(f"{count} {name}" for name, count in outcomes.most_common())
        table.rate(f"{words} ({often})", same, 1.0, least=True)


def over(judged: draw.Simulated) -> np.ndarray:
    return np.any(judged.outcome == OVER, axis=1)


def at_budget(metrics: int) -> np.ndarray:
    return draw.overheads(metrics, BUDGET, BUDGET)


def false_over(table: Table, rng: np.random.Generator) -> None:
    table.begin("false OVER a session, every true overhead at the budget")
    for name in models.NAMES:
        for metrics in FAMILIES:
            judged = draw.collect(
                table.sessions * (SINGLE if metrics == 1 else 1),
                metrics,
                lambda count, name=name, m=metrics: draw.scalars(rng, name, count, at_budget(m)).judged(),
            )
            table.rate(f"{name}, {metrics} metrics", over(judged), 0.01)
    for times in (1.5, 2.0, 3.0, 10.0):
        judged = draw.collect(
            table.sessions,
            11,
            lambda count, t=times: draw.scalars(rng, "Gaussian", count, at_budget(11), times=t).judged(),
        )
        table.rate(f"Gaussian, 11 metrics, noise {times:g} times the history's", over(judged))
    for words, drawing, width in PLACES:
        for metrics in FAMILIES:
            judged = draw.collect(
                table.sessions * 3,
                metrics,
                lambda count, d=drawing, m=metrics: d(rng, count, m).judged(),
                width,
            )
            table.rate(f"{words}, {metrics} metrics", over(judged), 0.01)
    table.begin("false OVER a session, measured A/A runs resampled")
    for arm, words in (("prio", "raised priority"), ("norm", "loaded machine")):
        logs = {key[1]: y for key, y in sorted(models.measured().items()) if key[0] == arm}
        for name, y in logs.items():
            judged = _measured(table, rng, [y], 1, draw.LIMIT)
            table.rate(f"{words}, 1 metric: {name}", over(judged), 0.01)
        for metrics in FAMILIES[1:]:
            judged = _measured(table, rng, list(logs.values()), metrics, draw.LIMIT)
            table.rate(f"{words}, {metrics} metrics of all kinds", over(judged), 0.01)


def _measured(
    table: Table, rng: np.random.Generator, logs: list[np.ndarray], metrics: int, overhead: float
) -> draw.Simulated:
    return draw.collect(
        table.sessions * (10 if metrics == 1 else 1),
        metrics,
        lambda count: draw.of_measured(rng, logs, count, metrics, overhead).judged(),
    )


Drawing = Callable[[np.random.Generator, int, int], draw.Drawn]
PLACES: tuple[tuple[str, Drawing, int], ...] = (
    (
        "roles exchanged, nodes SD 3 %",
        lambda rng, c, m: draw.exchanged(rng, c, at_budget(m), 0.03),
        draw.MOST,
    ),
    (
        "rotated over 8, nodes SD 3 %",
        lambda rng, c, m: draw.rotated(rng, c, at_budget(m), 0.03),
        draw.MOST * draw.NODES,
    ),
    (
        "rotated over 8, nodes SD 1 %",
        lambda rng, c, m: draw.rotated(rng, c, at_budget(m), 0.01),
        draw.MOST * draw.NODES,
    ),
    ("3 boots SD 1 %, stated", lambda rng, c, m: draw.booted(rng, c, at_budget(m), 0.01, 3), draw.MOST),
    (
        "3 boots SD 1 %, of 6 degrees of freedom",
        lambda rng, c, m: draw.booted(rng, c, at_budget(m), 0.01, 3, df=6),
        draw.MOST,
    ),
    ("1 boot SD 1 %, stated", lambda rng, c, m: draw.booted(rng, c, at_budget(m), 0.01, 1), draw.MOST),
)


def passes(table: Table, rng: np.random.Generator) -> None:
    table.begin("budget + margin passes")
    worse = np.full(1, np.log1p(BUDGET + MARGIN))
    for name in models.NAMES:
        for times, goal in ((1.0, 0.05), (1.5, 0.05), (2.0, 0.08)):
            judged = draw.collect(
                table.sessions * SINGLE,
                1,
                lambda count, name=name, t=times: draw.scalars(rng, name, count, worse, times=t).judged(),
            )
            table.rate(f"{name}, noise {times:g} times the history's", judged.outcome == WITHIN, goal)
    for warm, goal in ((True, 0.05), (False, None)):
        judged = draw.collect(
            table.sessions * SINGLE,
            1,
            lambda count, w=warm: draw.scalars(
                rng, "Gaussian", count, worse, sd=0.01, slow_first=0.1, warm_up=w
            ).judged(),
        )
        words = "a warm-up precedes" if warm else "nothing precedes it"
        table.rate(f"SD 1 %, first native run 10 % slower, {words}", judged.outcome == WITHIN, goal)
    for words, drawing, width in (
        ("roles exchanged, nodes SD 3 %", lambda c: draw.exchanged(rng, c, worse, 0.03), draw.MOST),
        ("rotated over 8, nodes SD 2 %", lambda c: draw.rotated(rng, c, worse, 0.02), 8 * draw.MOST),
        ("3 boots SD 1 %, stated", lambda c: draw.booted(rng, c, worse, 0.01, 3), draw.MOST),
    ):
        judged = draw.collect(table.sessions * 3, 1, lambda count, d=drawing: d(count).judged(), width)
        table.rate(words, judged.outcome == WITHIN, 0.05)
    table.begin("budget + margin passes, measured A/A runs resampled")
    for (arm, name), y in sorted(models.measured().items()):
        judged = _measured(table, rng, [y], 1, float(worse[0]))
        goal = 0.05 if arm == "prio" else None
        table.rate(f"{arm} {name}", judged.outcome == WITHIN, goal)


def power(table: Table, rng: np.random.Generator) -> None:
    table.begin("one metric of 11 over budget, the others clean")
    goals = {(0.05, 0.02): (0.99, 8.5), (0.05, 0.028): (0.99, 11), (0.02, 0.02): (0.5, None)}
    goals[0.02, 0.028] = (0.3, None)
    for (excess, sd), (goal, pairs) in goals.items():
        judged = draw.collect(
            table.sessions * (30 if pairs == 8.5 else 10),
            11,
            lambda count, e=excess, sd=sd: draw.scalars(
                rng, "Gaussian", count, draw.overheads(11, BUDGET + e), sd=sd
            ).judged(),
        )
        words = f"budget + {excess:.0%}, SD {sd:.1%}"
        table.rate(f"{words}: found", judged.outcome[:, 0] == OVER, goal, least=True)
        table.mean(f"{words}: pairs", judged.pairs[:, 0], pairs)
    for name in models.NAMES[1:]:
        judged = draw.collect(
            table.sessions,
            11,
            lambda count, name=name: draw.scalars(
                rng, name, count, draw.overheads(11, BUDGET + 0.05)
            ).judged(),
        )
        table.rate(f"budget + 5%, SD 2.0%, {name}: found", judged.outcome[:, 0] == OVER, least=True)
    judged = draw.collect(
        table.sessions,
        200,
        lambda count: draw.scalars(rng, "Gaussian", count, draw.overheads(200, BUDGET + 0.05)).judged(),
    )
    table.rate("of 200 metrics: budget + 5%, SD 2.0%: found", judged.outcome[:, 0] == OVER, least=True)


def practice(table: Table, rng: np.random.Generator) -> None:
    """Measure what noise as it is stated comes to: boots of 0.3 %, known with 4 degrees of freedom."""
    for boots, words in (("one", "one boot"), ("each look", "the VM is created anew before each look")):
        for metrics in FAMILIES[1:]:
            table.begin(f"as shipped (boots of 0.3 %, 4 degrees of freedom), {words}, {metrics} metrics")
            _in_practice(table, rng, boots, metrics)
    table.begin("as shipped, one boot: where boots are not as stated")
    for metrics in FAMILIES[1:]:
        for sd in (0.0, 0.006, 0.01):
            judged = draw.collect(
                table.sessions,
                metrics,
                lambda c, m=metrics, sd=sd: draw.in_practice(rng, c, at_budget(m), boot_sd=sd).judged(),
            )
            table.rate(f"boots SD {sd:.1%}, {metrics} metrics at the budget: false OVER", over(judged))


def _in_practice(table: Table, rng: np.random.Generator, boots: str, metrics: int) -> None:
    def judged(overhead: np.ndarray, sd: float = 0.02, times: int = 1) -> draw.Simulated:
        return draw.collect(
            table.sessions * times,
            len(overhead),
            lambda c: draw.in_practice(rng, c, overhead, sd=sd, boots=boots).judged(),
        )

    table.rate("every metric at the budget: false OVER", over(judged(at_budget(metrics))), 0.01)
    for excess, sd in ((0.05, 0.02), (0.05, 0.028), (0.02, 0.02), (0.02, 0.028)):
        answer = judged(draw.overheads(metrics, BUDGET + excess), sd)
        words = f"one at budget + {excess:.0%}, SD {sd:.1%}"
        table.rate(f"{words}: found", answer.outcome[:, 0] == OVER, least=True)
        table.mean(f"{words}: pairs", answer.pairs[:, 0])
    answer = judged(np.full(1, np.log1p(BUDGET + MARGIN)), times=SINGLE)
    table.rate("budget + margin passes", answer.outcome == WITHIN, 0.05)
    answer = judged(np.zeros(1), times=SINGLE)
    table.rate("clean: UNDECIDED or INVALID", answer.outcome != WITHIN, 0.01)
    table.mean("clean: pairs", answer.pairs, 4.2)


def single_look(table: Table, rng: np.random.Generator) -> None:
    """Measure plain runs of ReFrame: four pairs, fixed beforehand, and boots as in `practice`."""
    table.begin("four pairs and a single look, as plain ReFrame runs have, 11 metrics")

    def judged(overhead: np.ndarray, sd: float, times: int = 1) -> draw.Simulated:
        return draw.collect(
            table.sessions * times,
            len(overhead),
            lambda c: draw.in_practice(rng, c, overhead, sd=sd).first(4).judged(looks=(4,)),
        )

    for sd in (0.01, 0.02):
        answer = judged(at_budget(11), sd, 2)
        table.rate(f"SD {sd:.0%}, all at the budget: false OVER", over(answer), 0.01)
        answer = judged(np.full(1, np.log1p(BUDGET + MARGIN)), sd, SINGLE)
        table.rate(f"SD {sd:.0%}: budget + margin passes", answer.outcome == WITHIN, 0.05)
        for excess in (0.05, 0.1, 0.2):
            answer = judged(draw.overheads(11, BUDGET + excess), sd)
            words = f"SD {sd:.0%}, one at budget + {excess:.0%}: found"
            table.rate(words, answer.outcome[:, 0] == OVER, least=True)
        answer = judged(np.zeros(11), sd)
        table.rate(f"SD {sd:.0%}, clean: UNDECIDED or INVALID", answer.outcome != WITHIN)


def curves(table: Table, rng: np.random.Generator) -> None:
    table.begin("a curve of 23 sizes (budget 10 %, margin 10 %) beside ten scalar metrics")
    count = table.sessions * 3
    judged, _ = draw.curve_session(rng, count, 0.20)
    table.rate("64 B alone at budget + 10 %: found", judged.outcome == OVER, 0.98, least=True)
    table.rate("64 B alone at budget + 10 %: passes", judged.outcome == WITHIN, 0.05)
    judged, _ = draw.curve_session(rng, count, 0.10, everywhere=0.10)
    table.rate("every size at the budget: false OVER", judged.outcome == OVER, 0.01)
    for words, spikes in (("runs", {"run_spikes": 0.02}), ("values", {"size_spikes": 0.02})):
        judged, _ = draw.curve_session(rng, count, **spikes)
        table.rate(f"clean, 2 % of the {words} take 2x: INVALID", judged.outcome == INVALID, 0.02)
        table.rate(f"clean, 2 % of the {words} take 2x: UNDECIDED", judged.outcome == UNDECIDED)
    judged, _ = draw.curve_session(rng, count)
    table.rate("clean: UNDECIDED or INVALID", judged.outcome != WITHIN, 0.01)
    table.mean("clean: pairs", judged.pairs, 4.2)


def slow(table: Table, rng: np.random.Generator) -> None:
    table.begin("virtual runs that take 2x now and then, 11 metrics")
    count = table.sessions * 3
    for share, goal in ((0.2, 0.999), (0.1, 0.99), (0.05, 0.85)):
        passed, met = [], []
        for some in draw.chunks(table.sessions * 60, 11):  # 10 % is close to what is there at all: 1 - 0.9^44
            drawn = draw.spiked(rng, draw.scalars(rng, "Gaussian", some, np.zeros(11)), 0.0, share, pairs=4)
            passed.append(np.all(drawn.judged(stop=False).outcome == WITHIN, axis=1))
            met.append(np.any(drawn.virtual > np.log(1.5), axis=(1, 2)))
        words = f"{share:.0%} of them, 4 pairs"
        table.rate(f"{words}: not WITHIN", ~np.concatenate(passed), goal, least=True)
        table.rate(
            f"{words}: not WITHIN, where one of 44 runs was slow",
            ~np.concatenate(passed)[np.concatenate(met)],
            least=True,
        )
    for share, pairs in ((0.2, 8), (0.1, 12)):
        drawn = draw.spiked(rng, draw.scalars(rng, "Gaussian", count, np.zeros(11)), 0.0, share)
        table.rate(
            f"{share:.0%} of {11 * pairs}: found as slow runs", draw.slow_runs(drawn, pairs), 0.9, least=True
        )
    for share in (0.02, 0.1, 0.2):
        drawn = draw.spiked(rng, draw.scalars(rng, "Gaussian", count * 4, np.zeros(11)), share, share)
        for pairs in (4, 12, 18):
            found = draw.slow_runs(drawn, pairs)
            table.rate(f"{share:.0%} of both sides, {pairs} pairs: found, falsely", found, SLOW_ALPHA)
    for share in (0.02, 0.1, 0.2):
        for words, overhead_ in (("clean", np.zeros(11)), ("at the budget", at_budget(11))):
            drawn = draw.spiked(rng, draw.scalars(rng, "Gaussian", count * 4, overhead_), share, share)
            judged = drawn.judged()
            slow_found = draw.slow_at_the_end(drawn, judged)
            table.rate(
                f"{share:.0%} of both sides, {words}, when the session ends: found", slow_found, SLOW_ALPHA
            )
            goal = 0.01 if share <= 0.1 else None
            table.rate(
                f"{share:.0%} of both sides, {words}: OVER of any kind", over(judged) | slow_found, goal
            )
    for name in models.NAMES:
        drawn = draw.scalars(rng, name, table.sessions, np.zeros(11))
        table.rate(f"none, {name}, 18 pairs: found, falsely", draw.slow_runs(drawn, 18), SLOW_ALPHA)
    for arm in ("prio", "norm"):
        logs = [y for key, y in models.measured().items() if key[0] == arm]
        drawn = draw.of_measured(rng, logs, table.sessions, 11, 0.0)
        table.rate(
            f"none, measured runs ({arm}), 18 pairs: found, falsely", draw.slow_runs(drawn, 18), SLOW_ALPHA
        )


def clean(table: Table, rng: np.random.Generator) -> None:
    table.begin("clean metrics: overhead 0")
    for name in models.NAMES:
        judged = draw.scalars(rng, name, table.sessions * 6, np.zeros(1)).judged()
        table.rate(f"{name}: UNDECIDED or INVALID", judged.outcome != WITHIN, 0.01)
        table.mean(f"{name}: pairs", judged.pairs, 4.2)
    drawn = draw.scalars(rng, "Gaussian", table.sessions * 6, np.zeros(1))
    judged = draw.spiked(rng, drawn, 0.02, 0.02).judged()
    table.rate(
        "2x spikes in 2 % of the runs of both sides: UNDECIDED",
        judged.outcome == UNDECIDED,
        0.10,
    )
    table.rate("2x spikes in 2 % of the runs of both sides: INVALID", judged.outcome == INVALID)
    judged = draw.scalars(rng, "Gaussian", table.sessions, np.full(11, -np.log(1.5))).judged()
    table.rate("virtual 1.5x faster than native: WITHIN", judged.outcome == WITHIN, 0.001)


def nodes(table: Table, rng: np.random.Generator) -> None:
    table.begin("nodes and boots")
    count, width = table.sessions, draw.MOST * draw.NODES
    judged = draw.collect(
        count, 11, lambda c: draw.rotated(rng, c, draw.overheads(11, BUDGET + 0.10), 0.02).judged(), width
    )
    table.rate(
        "rotated over 8, SD 2 %: budget + 10 % found",
        judged.outcome[:, 0] == OVER,
        0.98,
        least=True,
    )
    judged = draw.collect(count, 11, lambda c: draw.rotated(rng, c, np.zeros(11), 0.02).judged(), width)
    table.rate("rotated over 8, SD 2 %: overhead 0 WITHIN", judged.outcome == WITHIN, 0.95, least=True)
    judged = draw.collect(
        count, 11, lambda c: draw.exchanged(rng, c, draw.overheads(11, BUDGET + 0.05), 0.03).judged()
    )
    found = (judged.outcome[:, 0] == OVER) & (judged.pairs[:, 0] <= 12)
    table.rate("exchanged, SD 3 %: budget + 5 % found in 12 pairs", found, 0.95, least=True)
    drawn = draw.exchanged(rng, count, np.zeros(11), 0.0, planted=float(np.log(1.16)))
    assert drawn.places is not None
    places = drawn.places.first(12)
    sides = (drawn.native[..., :12, None], drawn.virtual[..., :12, None])
    found_overhead = overhead(*sides, places, drawn.noise, convict=False)
    assert found_overhead is not None
    bias = np.abs(np.mean(found_overhead.mean, axis=0))
    table.mean("exchanged, 16 % planted: bias of the overhead", bias, 0.005, percent=True)
    effects, _ = host_effects(*sides, places)
    named = np.expm1(effects[..., 1, 0] - effects[..., 0, 0])
    table.mean(
        "exchanged, 16 % planted: what is said of it, off by",
        np.abs(named - 0.16).mean(axis=0),
        0.01,
        percent=True,
    )
    for words, boots, df, goal in (
        ("3 boots of SD 1 %, stated", 3, np.inf, 0.9),
        ("3 boots of SD 1 %, of 6 degrees of freedom", 3, 6.0, 0.9),
        ("1 boot of SD 1 %, stated", 1, np.inf, None),
    ):
        judged = draw.collect(
            count,
            11,
            lambda c, b=boots, df=df: draw.booted(
                rng, c, draw.overheads(11, BUDGET + 0.10), 0.01, b, df=df
            ).judged(),
        )
        table.rate(f"{words}: budget + 10 % found", judged.outcome[:, 0] == OVER, goal, least=True)


def against(table: Table, rng: np.random.Generator) -> None:
    table.begin("--against: change of 11 metrics since a session of 12 pairs, history 1 %, 2 % allowed")
    count, allowed = table.sessions, 0.02
    judged = draw.against(rng, count, draw.overheads(11, allowed + 0.05))
    table.rate("allowed + 5 %: found", judged.outcome[:, 0] == OVER, 0.92, least=True)
    judged = draw.against(rng, count, draw.overheads(11, allowed + 0.08))
    table.rate("allowed + 8 %: WITHIN", judged.outcome[:, 0] == WITHIN, 0.01)
    judged = draw.against(rng, count, draw.overheads(11, allowed, allowed))
    table.rate("every metric changed by what is allowed: false OVER", over(judged), 0.01)
    judged = draw.against(rng, count, draw.overheads(11, allowed + MARGIN))
    table.rate("allowed + margin: passes", judged.outcome[:, 0] == WITHIN, 0.05)
    judged = draw.against(rng, count, np.zeros(11))
    table.rate("unchanged: WITHIN", judged.outcome == WITHIN, least=True)
    for words, boots, df in (("1 boot each, stated", 1, np.inf), ("3 boots each, of 10 df", 3, 10.0)):
        change = draw.overheads(11, allowed + 0.15)
        judged = draw.against(rng, count, change, boot_sd=0.02, boots=boots, df=df)
        table.rate(
            f"boots SD 2 %, {words}: allowed + 15 % found",
            judged.outcome[:, 0] == OVER,
            0.9,
            least=True,
        )
        judged = draw.against(
            rng, count, draw.overheads(11, allowed, allowed), boot_sd=0.02, boots=boots, df=df
        )
        table.rate(f"boots SD 2 %, {words}: false OVER", over(judged), 0.01)
    judged = draw.against(rng, count, draw.overheads(11, allowed, allowed), boot_sd=0.02, between=0.003)
    table.rate("boots SD 2 % where 0.3 % is stated, 1 boot each: false OVER", over(judged))
    judged = draw.against(rng, count, draw.overheads(11, allowed, allowed), sd=0.03, earlier_pairs=4)
    table.rate("SD 3 %, 4 earlier pairs: INVALID (margin)", judged.outcome == INVALID, least=True)
    table.value("SD 3 %: earlier pairs that it would take", earlier_pairs_needed(Noise([0.03])))


def speed(table: Table, rng: np.random.Generator) -> None:
    table.begin("speed")
    for words, shape, goal in (
        ("200 metrics of 18 pairs, seconds", (1, 200, 18), 1.0),
        ("a million samples (27,778 series of 18 pairs), seconds", (1, 27_778, 18), 10.0),
        ("100,000 series of 12 pairs in 500 sessions, seconds", (500, 200, 12), 60.0),
    ):
        native, virtual = rng.normal(0, 0.014, (2, *shape, 1))
        batch = Batch(native, virtual, draw.LIMIT, draw.LOG_MARGIN, Noise([0.02]))
        start = time.perf_counter()
        judge([batch])
        table.value(words, time.perf_counter() - start, goal)


def frontier(table: Table, rng: np.random.Generator) -> None:
    """Show what the constants trade against each other; nothing is promised."""
    kept = estimate.MAX_HISTORY_DF
    passing, single = np.full(1, np.log1p(BUDGET + MARGIN)), table.sessions * 6
    for most in (3.0, kept, 12.0, 20.0):
        table.begin(f"history counts for {most:g} degrees of freedom at most")
        estimate.MAX_HISTORY_DF = most
        draw.known.cache_clear()
        for times in (1.0, 1.5, 2.0, 3.0, 10.0):
            judged = draw.scalars(rng, "Gaussian", single, passing, times=times).judged()
            table.rate(f"budget + margin passes, noise {times:g} times", judged.outcome == WITHIN)
        _power(table, rng)
    estimate.MAX_HISTORY_DF = kept
    draw.known.cache_clear()
    for looks in ((4, 6, 8, 12, 18), (4, 8, 18), (4, 8, 12, 18, 27)):
        table.begin(f"looks at {looks}")
        _power(table, rng, looks)
    table.begin("boots in the error of an overhead, one boot, SD 2 %")
    for between in (0.003, 0.01):
        judged = draw.booted(rng, table.sessions, draw.overheads(11, BUDGET + 0.05), between, 1).judged()
        table.rate(
            f"boots SD {between:.1%}: budget + 5 % found",
            judged.outcome[:, 0] == OVER,
            least=True,
        )
        table.mean(f"boots SD {between:.1%}: budget + 5 %, pairs", judged.pairs[:, 0])
    table.begin("--against, boots SD 2 % where 0.3 % is stated: false OVER a session of 11")
    for df in (np.inf, 4.0, 1.0):
        for boots in (1, 3, 6):
            judged = draw.against(
                rng,
                table.sessions,
                draw.overheads(11, 0.02, 0.02),
                boot_sd=0.02,
                between=0.003,
                boots=boots,
                df=df,
            )
            table.rate(f"{boots} boots a session, stated with {df:g} degrees of freedom", over(judged))


def _power(table: Table, rng: np.random.Generator, looks: tuple[int, ...] = LOOKS) -> None:
    for excess, sd in ((0.05, 0.02), (0.05, 0.028), (0.02, 0.028)):
        drawn = draw.scalars(rng, "Gaussian", table.sessions, draw.overheads(11, BUDGET + excess), sd=sd)
        judged = drawn.judged(looks=looks)
        words = f"budget + {excess:.0%}, SD {sd:.1%}"
        table.rate(f"{words}: found", judged.outcome[:, 0] == OVER, least=True)
        table.mean(f"{words}: pairs", judged.pairs[:, 0])


PARTS = {
    "commands": same_as_commands,
    "power": power,
    "practice": practice,
    "single-look": single_look,
    "curves": curves,
    "slow": slow,
    "clean": clean,
    "nodes": nodes,
    "against": against,
    "speed": speed,
    "passes": passes,
    "false-over": false_over,
    "frontier": frontier,
}
OPTIONAL = ("frontier",)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="five times as many sessions, and the frontier")
    parser.add_argument("--sessions", type=int, help="a cell; 3,000 by default, 15,000 with --full")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write every figure here")
    parser.add_argument("--only", choices=PARTS, action="append", help="run only this part (may be repeated)")
    options = parser.parse_args()
    table = Table(options.sessions or (15_000 if options.full else 3_000))
    start = time.perf_counter()
    for index, name in enumerate(PARTS):
        wanted = options.full or name not in OPTIONAL
        if name in (options.only or ()) or (not options.only and wanted):
            PARTS[name](table, np.random.default_rng([options.seed, index]))
    missed = [figure for figure in table.figures if not figure.holds]
    goals = sum(figure.goal is not None for figure in table.figures)
    print(f"\n{goals - len(missed)} of {goals} goals hold.")
    for figure in missed:
        print(f"MISSED: {figure.section}:\n{figure.text()}")
    if options.json:
        options.json.write_text(
            json.dumps([asdict(f) for f in table.figures], indent=1) + "\n", encoding="utf-8"
        )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{time.perf_counter() - start:.0f} s, {memory:.2f} GiB", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
