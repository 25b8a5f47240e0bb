"""Measure what the decision promises: goal, value, interval.

"<=" goals are held against the upper 95 % bound of the value, ">=" goals against the value itself, whose
lower 95 % bound is shown. By default at least 3,000 sessions a cell, some five minutes on one core;
``--full`` takes five times as many. Exits with 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import json
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
from virtqual.verdict.overhead import overhead
from virtqual.verdict.places import host_effects
from virtqual.verdict.rule import LOOKS, earlier_pairs_needed
from virtqual.verdict.slow_runs import SLOW_ALPHA

OUTCOMES = (Outcome.WITHIN, Outcome.OVER, Outcome.UNDECIDED, Outcome.INVALID)
WITHIN, OVER, UNDECIDED, INVALID = (outcome.code for outcome in OUTCOMES)
CONFIDENCE = 0.95
BUDGET, MARGIN = draw.BUDGET, draw.MARGIN
FAMILIES = (1, 11, 200)
SINGLE = 13  # times as many decisions where a session is one metric
CLEAN = np.zeros(11)
WORSE = np.full(1, np.log1p(BUDGET + MARGIN))
Rng = np.random.Generator


@dataclass(frozen=True)
class Figure:
    """A figure with its one-sided 95 % bounds; `goal` is None if nothing is promised."""

    section: str
    name: str
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

    @property
    def text(self) -> str:
        form = ".2%" if self.percent else ".3g"
        bound = f">= {self.low:{form}}" if self.least else f"<= {self.high:{form}}"
        goal = "" if self.goal is None else f"goal {'>=' if self.least else '<='} {self.goal:.4g}"
        mark = "" if self.goal is None else "holds" if self.holds else "MISSED"
        return f"  {self.name:72s} {self.value:>8{form}} ({bound:>10s}) {goal:15s} {mark}"


class Table:
    """Draws sessions, judges them, and prints figures as they come."""

    def __init__(self, sessions: int) -> None:
        self.figures: list[Figure] = []
        self.section = ""
        self.sessions = sessions

    def begin(self, section: str) -> None:
        self.section = section
        print(f"\n{section}", flush=True)

    def judge(
        self,
        draw_sessions: Callable[[int], draw.Drawn],
        metrics: int = 11,
        *,
        times: int = 1,
        width: int = draw.MAX_PAIRS,
        looks: tuple[int, ...] = LOOKS,
    ) -> draw.Simulated:
        """Judge sessions that are drawn, `times` as many as a cell has."""
        return draw.collect(
            self.sessions * times, metrics, lambda count: draw_sessions(count).judged(looks=looks), width
        )

    def rate(self, name: str, hits: np.ndarray, goal: float | None = None, *, least: bool = False) -> None:
        count, total = int(np.sum(hits)), int(np.size(hits))
        low = float(stats.beta.ppf(1 - CONFIDENCE, count, total - count + 1)) if count else 0.0
        high = float(stats.beta.ppf(CONFIDENCE, count + 1, total - count)) if count < total else 1.0
        self._add(name, count / total, low, high, total, goal, least)

    def find(self, name: str, judged: draw.Simulated, goal: float | None = None) -> None:
        """Add the share of sessions whose first metric is OVER."""
        self.rate(name, judged.outcome[:, 0] == OVER, goal, least=True)

    def mean(self, name: str, values: np.ndarray, goal: float | None = None, percent: bool = False) -> None:
        value, reach = float(np.mean(values)), float(stats.norm.ppf(CONFIDENCE) * stats.sem(values, None, 0))
        self._add(name, value, value - reach, value + reach, np.size(values), goal, percent=percent)

    def _add(self, *values: object, **options: bool) -> None:
        self.figures.append(Figure(self.section, *values, **options))
        print(self.figures[-1].text, flush=True)


def is_over(judged: draw.Simulated) -> np.ndarray:
    return np.any(judged.outcome == OVER, axis=1)


def make_worst(metrics: int) -> np.ndarray:
    """Return overheads that are all exactly at the budget."""
    return draw.overheads(metrics, BUDGET, BUDGET)


def compare_commands(table: Table, rng: Rng) -> None:
    table.begin("sessions as the commands judge them: the same answers as the arrays have")
    for words, (is_same, outcomes) in commands.compare(rng).items():
        counts = ", ".join(f"{count} {name}" for name, count in outcomes.most_common())
        table.rate(f"{words} ({counts})", is_same, 1.0, least=True)


def false_over(table: Table, rng: Rng) -> None:
    table.begin("false OVER a session, every true overhead at the budget")
    for name in models.NAMES:
        for metrics in FAMILIES:
            judged = table.judge(
                lambda count, name=name, m=metrics: draw.scalars(rng, name, count, make_worst(m)),
                metrics,
                times=SINGLE if metrics == 1 else 1,
            )
            table.rate(f"{name}, {metrics} metrics", is_over(judged), 0.01)
    for times in (1.5, 2.0, 3.0, 10.0):
        judged = table.judge(
            lambda count, t=times: draw.scalars(rng, "Gaussian", count, make_worst(11), times=t)
        )
        table.rate(f"Gaussian, 11 metrics, noise {times:g} times the history's", is_over(judged))
    for words, drawing, width in PLACES:
        for metrics in FAMILIES:
            judged = table.judge(
                lambda count, d=drawing, m=metrics: d(rng, count, make_worst(m)),
                metrics,
                times=3,
                width=width,
            )
            table.rate(f"{words}, {metrics} metrics", is_over(judged), 0.01)
    table.begin("false OVER a session, measured A/A runs resampled")
    for arm, words in (("prio", "raised priority"), ("norm", "loaded machine")):
        logs = {key[1]: y for key, y in sorted(models.measured().items()) if key[0] == arm}
        for name, y in logs.items():
            judged = _judge_resampled(table, rng, [y], 1, draw.LIMIT)
            table.rate(f"{words}, 1 metric: {name}", is_over(judged), 0.01)
        for metrics in FAMILIES[1:]:
            judged = _judge_resampled(table, rng, list(logs.values()), metrics, draw.LIMIT)
            table.rate(f"{words}, {metrics} metrics of all kinds", is_over(judged), 0.01)


def _judge_resampled(
    table: Table, rng: Rng, logs: list[np.ndarray], metrics: int, overhead: float
) -> draw.Simulated:
    return table.judge(
        lambda count: draw.resample(rng, logs, count, metrics, overhead),
        metrics,
        times=10 if metrics == 1 else 1,
    )


ROTATED = draw.MAX_PAIRS * draw.NODES
PLACES: tuple[tuple[str, Callable[[Rng, int, np.ndarray], draw.Drawn], int], ...] = (
    ("roles exchanged, nodes SD 3 %", lambda *a: draw.exchanged(*a, 0.03), draw.MAX_PAIRS),
    ("rotated over 8, nodes SD 3 %", lambda *a: draw.rotated(*a, 0.03), ROTATED),
    ("rotated over 8, nodes SD 1 %", lambda *a: draw.rotated(*a, 0.01), ROTATED),
    ("3 boots SD 1 %, stated", lambda *a: draw.booted(*a, 0.01, 3), draw.MAX_PAIRS),
    ("3 boots SD 1 %, of 6 degrees of freedom", lambda *a: draw.booted(*a, 0.01, 3, df=6), draw.MAX_PAIRS),
    ("1 boot SD 1 %, stated", lambda *a: draw.booted(*a, 0.01, 1), draw.MAX_PAIRS),
)


def passes(table: Table, rng: Rng) -> None:
    table.begin("budget + margin passes")

    def add(words: str, judged: draw.Simulated, goal: float | None) -> None:
        table.rate(words, judged.outcome == WITHIN, goal)

    for name in models.NAMES:
        for times, goal in ((1.0, 0.05), (1.5, 0.05), (2.0, 0.08)):
            judged = table.judge(
                lambda count, name=name, t=times: draw.scalars(rng, name, count, WORSE, times=t),
                1,
                times=SINGLE,
            )
            add(f"{name}, noise {times:g} times the history's", judged, goal)
    for words, has_warm_up, goal in (
        ("a warm-up precedes", True, 0.05),
        ("nothing precedes it", False, None),
    ):
        options = {"sd": 0.01, "slow_first": 0.1, "warm_up": has_warm_up}
        judged = table.judge(
            lambda count, options=options: draw.scalars(rng, "Gaussian", count, WORSE, **options),
            1,
            times=SINGLE,
        )
        add(f"SD 1 %, first native run 10 % slower, {words}", judged, goal)
    for words, drawing, width in (
        ("roles exchanged, nodes SD 3 %", lambda c: draw.exchanged(rng, c, WORSE, 0.03), draw.MAX_PAIRS),
        ("rotated over 8, nodes SD 2 %", lambda c: draw.rotated(rng, c, WORSE, 0.02), ROTATED),
        ("3 boots SD 1 %, stated", lambda c: draw.booted(rng, c, WORSE, 0.01, 3), draw.MAX_PAIRS),
    ):
        add(words, table.judge(drawing, 1, times=3, width=width), 0.05)
    table.begin("budget + margin passes, measured A/A runs resampled")
    for (arm, name), y in sorted(models.measured().items()):
        judged = _judge_resampled(table, rng, [y], 1, float(WORSE[0]))
        add(f"{arm} {name}", judged, 0.05 if arm == "prio" else None)


def power(table: Table, rng: Rng) -> None:
    table.begin("one metric of 11 over budget, the others clean")
    for excess, sd, goal, pairs, times in (
        (0.05, 0.02, 0.99, 8.5, 30),
        (0.05, 0.028, 0.99, 11, 10),
        (0.02, 0.02, 0.5, None, 10),
        (0.02, 0.028, 0.3, None, 10),
    ):
        overheads = draw.overheads(11, BUDGET + excess)
        judged = table.judge(
            lambda count, o=overheads, sd=sd: draw.scalars(rng, "Gaussian", count, o, sd=sd), times=times
        )
        words = f"budget + {excess:.0%}, SD {sd:.1%}"
        table.find(f"{words}: found", judged, goal)
        table.mean(f"{words}: pairs", judged.pairs[:, 0], pairs)
    overheads = draw.overheads(11, BUDGET + 0.05)
    for name in models.NAMES[1:]:
        judged = table.judge(lambda count, name=name: draw.scalars(rng, name, count, overheads))
        table.find(f"budget + 5%, SD 2.0%, {name}: found", judged)
    overheads = draw.overheads(200, BUDGET + 0.05)
    judged = table.judge(lambda count: draw.scalars(rng, "Gaussian", count, overheads), 200)
    table.find("of 200 metrics: budget + 5%, SD 2.0%: found", judged)


def as_shipped(table: Table, rng: Rng) -> None:
    """Measure what noise as it is stated comes to: boots of 0.3 %, known with 4 degrees of freedom."""
    for boots, words in (("one", "one boot"), ("each look", "the VM is created anew before each look")):
        for metrics in FAMILIES[1:]:
            table.begin(f"as shipped (boots of 0.3 %, 4 degrees of freedom), {words}, {metrics} metrics")
            _measure_as_shipped(table, rng, boots, metrics)
    table.begin("as shipped, one boot: where boots are not as stated")
    for metrics in FAMILIES[1:]:
        for sd in (0.0, 0.006, 0.01):
            judged = table.judge(
                lambda c, m=metrics, sd=sd: draw.as_shipped(rng, c, make_worst(m), boot_sd=sd), metrics
            )
            table.rate(f"boots SD {sd:.1%}, {metrics} metrics at the budget: false OVER", is_over(judged))


def _measure_as_shipped(table: Table, rng: Rng, boots: str, metrics: int) -> None:
    def judge(overhead: np.ndarray, sd: float = 0.02, times: int = 1) -> draw.Simulated:
        return table.judge(
            lambda c: draw.as_shipped(rng, c, overhead, sd=sd, boots=boots), len(overhead), times=times
        )

    table.rate("every metric at the budget: false OVER", is_over(judge(make_worst(metrics))), 0.01)
    for excess, sd in ((0.05, 0.02), (0.05, 0.028), (0.02, 0.02), (0.02, 0.028)):
        judged = judge(draw.overheads(metrics, BUDGET + excess), sd)
        words = f"one at budget + {excess:.0%}, SD {sd:.1%}"
        table.find(f"{words}: found", judged)
        table.mean(f"{words}: pairs", judged.pairs[:, 0])
    table.rate("budget + margin passes", judge(WORSE, times=SINGLE).outcome == WITHIN, 0.05)
    judged = judge(CLEAN[:1], times=SINGLE)
    table.rate("clean: UNDECIDED or INVALID", judged.outcome != WITHIN, 0.01)
    table.mean("clean: pairs", judged.pairs, 4.2)


def single_look(table: Table, rng: Rng) -> None:
    """Measure plain runs of ReFrame: four pairs, fixed beforehand, and boots as in `as_shipped`."""
    table.begin("four pairs and a single look, as plain ReFrame runs have, 11 metrics")

    def judge(overhead: np.ndarray, sd: float, times: int = 1) -> draw.Simulated:
        return table.judge(
            lambda c: draw.as_shipped(rng, c, overhead, sd=sd).first(4),
            len(overhead),
            times=times,
            looks=(4,),
        )

    for sd in (0.01, 0.02):
        table.rate(f"SD {sd:.0%}, all at the budget: false OVER", is_over(judge(make_worst(11), sd, 2)), 0.01)
        judged = judge(WORSE, sd, SINGLE)
        table.rate(f"SD {sd:.0%}: budget + margin passes", judged.outcome == WITHIN, 0.05)
        for excess in (0.05, 0.1, 0.2):
            judged = judge(draw.overheads(11, BUDGET + excess), sd)
            table.find(f"SD {sd:.0%}, one at budget + {excess:.0%}: found", judged)
        table.rate(f"SD {sd:.0%}, clean: UNDECIDED or INVALID", judge(CLEAN, sd).outcome != WITHIN)


def curves(table: Table, rng: Rng) -> None:
    table.begin("a curve of 23 sizes (budget 10 %, margin 10 %) beside ten scalar metrics")

    def judge(at_64: float = 0.0, **options: float) -> draw.Simulated:
        return draw.curve_session(rng, table.sessions * 3, at_64, **options)

    judged = judge(0.20)
    table.find("64 B alone at budget + 10 %: found", judged, 0.98)
    table.rate("64 B alone at budget + 10 %: passes", judged.outcome == WITHIN, 0.05)
    judged = judge(0.10, everywhere=0.10)
    table.rate("every size at the budget: false OVER", judged.outcome == OVER, 0.01)
    for words, spikes in (("runs", "run_spikes"), ("values", "size_spikes")):
        judged = judge(**{spikes: 0.02})
        table.rate(f"clean, 2 % of the {words} take 2x: INVALID", judged.outcome == INVALID, 0.02)
        table.rate(f"clean, 2 % of the {words} take 2x: UNDECIDED", judged.outcome == UNDECIDED)
    judged = judge()
    table.rate("clean: UNDECIDED or INVALID", judged.outcome != WITHIN, 0.01)
    table.mean("clean: pairs", judged.pairs, 4.2)


def slow(table: Table, rng: Rng) -> None:
    table.begin("virtual runs that take 2x now and then, 11 metrics")
    count = table.sessions * 3
    for share, goal in ((0.2, 0.999), (0.1, 0.99), (0.05, 0.85)):
        passed_parts, slow_parts = [], []
        # With 10 % slow runs, 1 - 0.9^44 of the sessions have one at all, hardly more than the goal.
        for some in draw.chunks(table.sessions * 60, 11):
            drawn = draw.spiked(rng, draw.scalars(rng, "Gaussian", some, CLEAN), 0.0, share, pairs=4)
            passed_parts.append(np.all(drawn.judged(stop=False).outcome == WITHIN, axis=1))
            slow_parts.append(np.any(drawn.virtual > np.log(1.5), axis=(1, 2)))
        passed, has_slow_run = np.concatenate(passed_parts), np.concatenate(slow_parts)
        words = f"{share:.0%} of them, 4 pairs: not WITHIN"
        table.rate(words, ~passed, goal, least=True)
        table.rate(f"{words}, where one of 44 runs was slow", ~passed[has_slow_run], least=True)
    for share, pairs in ((0.2, 8), (0.1, 12)):
        drawn = draw.spiked(rng, draw.scalars(rng, "Gaussian", count, CLEAN), 0.0, share)
        words = f"{share:.0%} of {11 * pairs}: found as slow runs"
        table.rate(words, draw.slow_runs(drawn, pairs), 0.9, least=True)
    for share in (0.02, 0.1, 0.2):
        drawn = draw.spiked(rng, draw.scalars(rng, "Gaussian", count * 4, CLEAN), share, share)
        for pairs in (4, 12, 18):
            words = f"{share:.0%} of both sides, {pairs} pairs: found, falsely"
            table.rate(words, draw.slow_runs(drawn, pairs), SLOW_ALPHA)
    for share in (0.02, 0.1, 0.2):
        for state, overheads in (("clean", CLEAN), ("at the budget", make_worst(11))):
            drawn = draw.spiked(rng, draw.scalars(rng, "Gaussian", count * 4, overheads), share, share)
            judged = drawn.judged()
            is_slow = draw.slow_at_the_end(drawn, judged)
            words = f"{share:.0%} of both sides, {state}"
            table.rate(f"{words}, when the session ends: found", is_slow, SLOW_ALPHA)
            goal = 0.01 if share <= 0.1 else None
            table.rate(f"{words}: OVER of any kind", is_over(judged) | is_slow, goal)
    for name in models.NAMES:
        drawn = draw.scalars(rng, name, table.sessions, CLEAN)
        table.rate(f"none, {name}, 18 pairs: found, falsely", draw.slow_runs(drawn, 18), SLOW_ALPHA)
    for arm in ("prio", "norm"):
        logs = [y for key, y in models.measured().items() if key[0] == arm]
        is_slow = draw.slow_runs(draw.resample(rng, logs, table.sessions, 11, 0.0), 18)
        table.rate(f"none, measured runs ({arm}), 18 pairs: found, falsely", is_slow, SLOW_ALPHA)


def clean(table: Table, rng: Rng) -> None:
    table.begin("clean metrics: overhead 0")
    for name in models.NAMES:
        judged = table.judge(lambda count, name=name: draw.scalars(rng, name, count, CLEAN[:1]), 1, times=6)
        table.rate(f"{name}: UNDECIDED or INVALID", judged.outcome != WITHIN, 0.01)
        table.mean(f"{name}: pairs", judged.pairs, 4.2)
    drawn = draw.scalars(rng, "Gaussian", table.sessions * 6, CLEAN[:1])
    judged = draw.spiked(rng, drawn, 0.02, 0.02).judged()
    words = "2x spikes in 2 % of the runs of both sides"
    table.rate(f"{words}: UNDECIDED", judged.outcome == UNDECIDED, 0.10)
    table.rate(f"{words}: INVALID", judged.outcome == INVALID)
    judged = table.judge(lambda count: draw.scalars(rng, "Gaussian", count, CLEAN - np.log(1.5)))
    table.rate("virtual 1.5x faster than native: WITHIN", judged.outcome == WITHIN, 0.001)


def nodes(table: Table, rng: Rng) -> None:
    table.begin("nodes and boots")
    far_over = draw.overheads(11, BUDGET + 0.10)
    judged = table.judge(lambda c: draw.rotated(rng, c, far_over, 0.02), width=ROTATED)
    table.find("rotated over 8, SD 2 %: budget + 10 % found", judged, 0.98)
    judged = table.judge(lambda c: draw.rotated(rng, c, CLEAN, 0.02), width=ROTATED)
    table.rate("rotated over 8, SD 2 %: overhead 0 WITHIN", judged.outcome == WITHIN, 0.95, least=True)
    judged = table.judge(lambda c: draw.exchanged(rng, c, draw.overheads(11, BUDGET + 0.05), 0.03))
    is_early = (judged.outcome[:, 0] == OVER) & (judged.pairs[:, 0] <= 12)
    table.rate("exchanged, SD 3 %: budget + 5 % found in 12 pairs", is_early, 0.95, least=True)
    drawn = draw.exchanged(rng, table.sessions, CLEAN, 0.0, planted=float(np.log(1.16))).first(12)
    assert drawn.places is not None
    sides = (drawn.native[..., None], drawn.virtual[..., None])
    estimated = overhead(*sides, drawn.places, drawn.noise, convict=False)
    assert estimated is not None
    bias = np.abs(np.mean(estimated.mean, axis=0))
    table.mean("exchanged, 16 % planted: bias of the overhead", bias, 0.005, percent=True)
    effects = host_effects(np.moveaxis(drawn.virtual - drawn.native, -1, 0), drawn.places)
    errors = np.abs(np.expm1(effects[1] - effects[0]) - 0.16).mean(axis=0)
    table.mean("exchanged, 16 % planted: what is said of it, off by", errors, 0.01, percent=True)
    for words, boots, df, goal in (
        ("3 boots of SD 1 %, stated", 3, np.inf, 0.9),
        ("3 boots of SD 1 %, of 6 degrees of freedom", 3, 6.0, 0.9),
        ("1 boot of SD 1 %, stated", 1, np.inf, None),
    ):
        judged = table.judge(lambda c, b=boots, df=df: draw.booted(rng, c, far_over, 0.01, b, df=df))
        table.find(f"{words}: budget + 10 % found", judged, goal)


def against(table: Table, rng: Rng) -> None:
    table.begin("--against: change of 11 metrics since a session of 12 pairs, history 1 %, 2 % allowed")
    allowed = 0.02
    worst = draw.overheads(11, allowed, allowed)

    def judge(changes: np.ndarray, **options: float) -> draw.Simulated:
        return draw.against(rng, table.sessions, changes, **options)

    table.find("allowed + 5 %: found", judge(draw.overheads(11, allowed + 0.05)), 0.92)
    judged = judge(draw.overheads(11, allowed + 0.08))
    table.rate("allowed + 8 %: WITHIN", judged.outcome[:, 0] == WITHIN, 0.01)
    table.rate("every metric changed by what is allowed: false OVER", is_over(judge(worst)), 0.01)
    judged = judge(draw.overheads(11, allowed + MARGIN))
    table.rate("allowed + margin: passes", judged.outcome[:, 0] == WITHIN, 0.05)
    table.rate("unchanged: WITHIN", judge(CLEAN).outcome == WITHIN, least=True)
    for words, boots, df in (("1 boot each, stated", 1, np.inf), ("3 boots each, of 10 df", 3, 10.0)):
        options = {"boot_sd": 0.02, "boots": boots, "df": df}
        judged = judge(draw.overheads(11, allowed + 0.15), **options)
        table.find(f"boots SD 2 %, {words}: allowed + 15 % found", judged, 0.9)
        table.rate(f"boots SD 2 %, {words}: false OVER", is_over(judge(worst, **options)), 0.01)
    judged = judge(worst, boot_sd=0.02, between=0.003)
    table.rate("boots SD 2 % where 0.3 % is stated, 1 boot each: false OVER", is_over(judged))
    judged = judge(worst, sd=0.03, earlier_pairs=4)
    table.rate("SD 3 %, 4 earlier pairs: INVALID (margin)", judged.outcome == INVALID, least=True)
    needed = float(earlier_pairs_needed(Noise([0.03])))
    table.mean("SD 3 %: earlier pairs that it would take", np.full(2, needed))


def frontier(table: Table, rng: Rng) -> None:
    """Show what the constants trade against each other; nothing is promised."""

    def measure_power(looks: tuple[int, ...] = LOOKS) -> None:
        for excess, sd in ((0.05, 0.02), (0.05, 0.028), (0.02, 0.028)):
            overheads = draw.overheads(11, BUDGET + excess)
            judged = table.judge(
                lambda count, o=overheads, sd=sd: draw.scalars(rng, "Gaussian", count, o, sd=sd), looks=looks
            )
            words = f"budget + {excess:.0%}, SD {sd:.1%}"
            table.find(f"{words}: found", judged)
            table.mean(f"{words}: pairs", judged.pairs[:, 0])

    shipped_df = estimate.MAX_HISTORY_DF
    for max_df in (3.0, shipped_df, 12.0, 20.0):
        table.begin(f"history counts for {max_df:g} degrees of freedom at most")
        estimate.MAX_HISTORY_DF = max_df
        draw.histories_of.cache_clear()
        for times in (1.0, 1.5, 2.0, 3.0, 10.0):
            judged = table.judge(
                lambda count, t=times: draw.scalars(rng, "Gaussian", count, WORSE, times=t), 1, times=6
            )
            table.rate(f"budget + margin passes, noise {times:g} times", judged.outcome == WITHIN)
        measure_power()
    estimate.MAX_HISTORY_DF = shipped_df
    draw.histories_of.cache_clear()
    for looks in ((4, 6, 8, 12, 18), (4, 8, 18), (4, 8, 12, 18, 27)):
        table.begin(f"looks at {looks}")
        measure_power(looks)
    table.begin("boots in the error of an overhead, one boot, SD 2 %")
    overheads = draw.overheads(11, BUDGET + 0.05)
    for between in (0.003, 0.01):
        judged = table.judge(lambda count, b=between: draw.booted(rng, count, overheads, b, 1))
        table.find(f"boots SD {between:.1%}: budget + 5 % found", judged)
        table.mean(f"boots SD {between:.1%}: budget + 5 %, pairs", judged.pairs[:, 0])
    table.begin("--against, boots SD 2 % where 0.3 % is stated: false OVER a session of 11")
    worst = draw.overheads(11, 0.02, 0.02)
    for df in (np.inf, 4.0, 1.0):
        for boots in (1, 3, 6):
            options = {"boot_sd": 0.02, "between": 0.003, "boots": boots, "df": df}
            judged = draw.against(rng, table.sessions, worst, **options)
            table.rate(f"{boots} boots a session, stated with {df:g} degrees of freedom", is_over(judged))


PARTS = {
    "commands": compare_commands,
    "power": power,
    "practice": as_shipped,
    "single-look": single_look,
    "curves": curves,
    "slow": slow,
    "clean": clean,
    "nodes": nodes,
    "against": against,
    "passes": passes,
    "false-over": false_over,
    "frontier": frontier,
}
OPTIONAL = ("frontier",)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--full", action="store_true", help="five times as many sessions, and the frontier")
    parser.add_argument("--sessions", type=int, help="a cell; 3,000 by default, 15,000 with --full")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write every figure here")
    parser.add_argument("--only", choices=PARTS, action="append", help="run only this part (may be repeated)")
    options = parser.parse_args()
    table = Table(options.sessions or (15_000 if options.full else 3_000))
    names = options.only or [name for name in PARTS if options.full or name not in OPTIONAL]
    start = time.perf_counter()
    for index, (name, measure) in enumerate(PARTS.items()):
        if name in names:
            measure(table, np.random.default_rng([options.seed, index]))
    missed = [figure for figure in table.figures if not figure.holds]
    goals = sum(figure.goal is not None for figure in table.figures)
    print(f"\n{goals - len(missed)} of {goals} goals hold.")
    for figure in missed:
        print(f"MISSED: {figure.section}:\n{figure.text}")
    if options.json:
        figures = [asdict(figure) for figure in table.figures]
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
