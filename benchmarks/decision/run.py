"""Measure what the decision promises: goal, value, bound.

"<=" goals are held against the upper 95 % bound of the value, ">=" goals against the value itself, whose
lower 95 % bound is shown. By default at least 3,000 sessions a cell, half an hour on one core;
``--full`` takes five times as many. ``--data`` takes half as many of real series, and judges them by other
rules, too. Exits with 1 if a goal is missed. The output is Markdown.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import commands
import compare_rules
import noise_models as models
import numpy as np
import real_data
from scipy import stats

import sessions as draw
from virtqual.session.pairing import DECLARED_NOISE
from virtqual.verdict.estimate import Noise
from virtqual.verdict.outcome import Outcome
from virtqual.verdict.overhead import estimate_overhead
from virtqual.verdict.places import host_effects
from virtqual.verdict.rule import LOOKS
from virtqual.verdict.slow_runs import SLOW_ALPHA

WITHIN, OVER, UNDECIDED, INVALID = Outcome.WITHIN, Outcome.OVER, Outcome.UNDECIDED, Outcome.INVALID
CONFIDENCE = 0.95
BUDGET, MARGIN = draw.BUDGET, draw.MARGIN
FAMILIES = (1, 11, 200)
SINGLE = 13  # times as many sessions where a session is one metric
CLEAN = np.zeros(11)
WORSE = np.full(1, np.log1p(BUDGET + MARGIN))
ANY_HOST = 0.03  # SD of hosts


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
    def row(self) -> str:
        form = ".2%" if self.percent else ".3g"
        bound = f">= {self.low:{form}}" if self.least else f"<= {self.high:{form}}"
        goal = "" if self.goal is None else f"{'>=' if self.least else '<='} {self.goal:.4g}"
        mark = "" if self.goal is None else "holds" if self.holds else "**missed**"
        return f"| {self.name:70s} | {goal:8s} | {self.value:>8{form}} | {bound:>10s} | {mark} |"


class Table:
    """Draws sessions, judges them, and prints figures as they come."""

    def __init__(self, sessions: int) -> None:
        self.figures: list[Figure] = []
        self.sessions = sessions

    def begin(self, section: str) -> None:
        self.section = section
        print(f"\n### {section}\n\n| truth: counted | goal | value | 95 % bound | |\n|---|---|---|---|---|")

    def judge(
        self, drawing: Callable[..., draw.Drawn], overhead: np.ndarray = CLEAN, *, cells: float = 1,
        looks: tuple[int, ...] = LOOKS, min_pairs: int = 0, **options: object,
    ) -> draw.Simulated:  # fmt: skip
        """Judge sessions that are drawn, `cells` times as many as a cell has."""
        total = int(self.sessions * cells * (SINGLE if len(overhead) == 1 else 1))
        parts = []
        for count in draw.chunks(total, len(overhead)):
            drawn = drawing(self.rng, count, overhead, **options)
            pairs = drawn.first(looks[-1] * drawn.width)
            parts.append(pairs.judged(looks=looks, min_pairs=min_pairs))
        return draw.Simulated(*(np.concatenate(values) for values in zip(*parts, strict=True)))

    def rate(self, name: str, hits: np.ndarray, goal: float | None = None, *, least: bool = False) -> None:
        count, total = int(np.sum(hits)), int(np.size(hits))
        low = float(stats.beta.ppf(1 - CONFIDENCE, count, total - count + 1)) if count else 0.0
        high = float(stats.beta.ppf(CONFIDENCE, count + 1, total - count)) if count < total else 1.0
        self._add(name, count / total, low, high, total, goal, least)

    def worst(self, name: str, hits: dict[object, np.ndarray], goal: float | None = None) -> None:
        """Add the largest of several rates."""
        key = max(hits, key=lambda key: np.mean(hits[key]))
        self.rate(f"{name}, the worst of {len(hits)} ({key})", hits[key], goal)

    def find(self, name: str, judged: draw.Simulated, goal: float | None = None) -> None:
        """Add the share of sessions whose first metric is OVER."""
        self.rate(f"{name}: found", judged.outcome[:, 0] == OVER, goal, least=True)

    def power(
        self, name: str, judged: draw.Simulated, goal: float | None = None, pairs: float | None = None
    ) -> None:
        self.find(name, judged, goal)
        self.mean(f"{name}: pairs", judged.pairs[:, 0], pairs)

    def mean(self, name: str, values: np.ndarray, goal: float | None = None, percent: bool = False) -> None:
        value, reach = float(np.mean(values)), float(stats.norm.ppf(CONFIDENCE) * stats.sem(values, None, 0))
        self._add(name, value, value - reach, value + reach, np.size(values), goal, percent=percent)

    def _add(self, *values: object, **options: bool) -> None:
        self.figures.append(Figure(self.section, *values, **options))
        print(self.figures[-1].row, flush=True)


def is_over(judged: draw.Simulated) -> np.ndarray:
    return np.any(judged.outcome == OVER, axis=1)


def passes(judged: draw.Simulated) -> np.ndarray:
    return judged.outcome[:, 0] == WITHIN


def all_at_budget(metrics: int = 11) -> np.ndarray:
    return draw.overheads(metrics, BUDGET, BUDGET)


def one_over(excess: float, metrics: int = 11) -> np.ndarray:
    return draw.overheads(metrics, BUDGET + excess)


def compare_commands(table: Table) -> None:
    table.begin("sessions as the commands judge them: the same answers as the arrays have")
    for words, (is_same, outcomes) in commands.compare(table.rng).items():
        counts = ", ".join(f"{count} {name}" for name, count in outcomes.most_common())
        table.rate(f"{words} ({counts})", is_same, 1.0, least=True)


PERIODS = (1.33, 1.5, 1.8, 2.0, 2.2, 2.5, 3.0, 3.2, 3.8, 4.0, 4.2, 4.5, 5.0, 6.0, 8.0, 12.0, 16.0)


def loads(table: Table) -> None:
    table.begin("a load of 4 % half of the time, of any period from 1.33 to 16 runs; SD 1 %")
    for history in ("stated", "recorded"):
        over, passed = {}, {}
        for period in PERIODS:
            options = {"sd": 0.01, "disturbance": models.Load(period), "history": history}
            over[f"period {period:g}"] = is_over(table.judge(draw.scalars, all_at_budget(), **options))
            passed[f"period {period:g}"] = passes(table.judge(draw.scalars, WORSE, cells=0.25, **options))
        table.worst(f"noise {history}, 11 metrics at the budget: false OVER", over, 0.03)
        table.worst(f"noise {history}: budget + margin passes", passed, 0.06)
        table.rate(
            f"noise {history}: budget + margin passes, mean of periods", np.concatenate([*passed.values()])
        )


def order(table: Table) -> None:
    table.begin(
        "runs of both sides that are lost at random and replaced; 11 metrics, SD 1 %, from four pairs"
    )
    finished = partial(commands.finished_with_losses, table.rng, min_pairs=4)
    for lost in (0.01, 0.02, 0.05):
        words = f"{lost:.0%} of the runs lost"
        answers, judged = finished(table.sessions, CLEAN, lost=lost)
        outcomes = np.array([answer.outcome for answer in answers])
        table.rate(f"{words}, no overhead: INVALID", outcomes == INVALID, 0.005)
        table.rate(f"{words}, no overhead: UNDECIDED", outcomes == UNDECIDED)
        table.rate(f"{words}, no overhead: all WITHIN", outcomes == WITHIN, 0.99, least=True)
        table.mean(f"{words}, no overhead: pairs", judged.pairs)
        _, judged = finished(table.sessions // 5, WORSE.repeat(11), lost=lost)
        table.rate(f"{words}: budget + margin passes", judged.outcome == WITHIN, 0.05)
    table.begin("the same under a load of 4 % half of the time, of any period; as the arrays are judged")
    judge = partial(table.judge, draw.with_losses, min_pairs=4)
    for history, lost in product(("stated", "recorded"), (0.0, 0.05)):
        over, passed = {}, {}
        for period in PERIODS:
            options = {"lost": lost, "disturbance": models.Load(period), "history": history}
            over[f"period {period:g}"] = is_over(judge(all_at_budget(), **options))
            passed[f"period {period:g}"] = passes(judge(WORSE, cells=0.25, **options))
        words = f"{lost:.0%} of the runs lost, noise {history}"
        table.worst(f"{words}: false OVER", over, 0.03)
        table.worst(f"{words}: budget + margin passes", passed)
        table.rate(f"{words}: budget + margin passes, mean of periods", np.concatenate([*passed.values()]))


def clocks(table: Table) -> None:
    table.begin("a clock whose step is a share of the value, SD 2 %, 11 metrics")
    for step in (0.005, 0.026, 0.05, 0.10):
        words, least = f"step {step:.1%}", {"goal": 0.99, "least": True} if step >= 0.05 else {}
        drawn = draw.scalars(table.rng, table.sessions, all_at_budget(), step=step)
        _, judged = commands.finished(drawn)
        table.rate(f"{words}, at the budget: false OVER", is_over(judged), 0.01)
        # Equal values show a limit as well as a step: they are not INVALID.
        shows_step = ~draw.shows_one_value(drawn, judged.pairs)
        words = f"{words}, at the budget, where values differ"
        table.rate(f"{words}: INVALID", judged.outcome[shows_step] == INVALID, **least)
        words = f"step {step:.1%}"
        worse = WORSE.repeat(11)
        _, judged = commands.finished(draw.scalars(table.rng, table.sessions // 5, worse, step=step))
        table.rate(f"{words}, at budget + margin: passes", judged.outcome == WITHIN, 0.05)


def clocks_of_guests(table: Table) -> None:
    table.begin("a clock of the guest alone, whose step is a share of the value, SD 2 %, 11 metrics")
    for step in (0.02, 0.05, 0.10):
        for words, overhead in (("at the budget", all_at_budget()), ("at budget + margin", WORSE.repeat(11))):
            drawn = draw.scalars(table.rng, table.sessions // 5, overhead)
            level = step * table.rng.uniform(-0.5, 0.5, (*drawn.native.shape[:2], 1))
            shown = models.round_to_timer(step, drawn.virtual + level)
            _, judged = commands.finished(replace(drawn, native=drawn.native + level, virtual=shown))
            table.rate(f"step {step:.0%}, {words}: INVALID", judged.outcome == INVALID)
            table.rate(f"step {step:.0%}, {words}: a false OVER", is_over(judged))
            table.rate(f"step {step:.0%}, {words}: WITHIN", judged.outcome == WITHIN)


def beyond(table: Table) -> None:
    table.begin("noise for which nothing is promised; 11 metrics, WITHIN from four pairs")
    disturbances = {
        **{
            f"each side's own states, correlated by {part}": models.OwnStates(part)
            for part in (0.3, 0.5, 0.7)
        },
        "10 % of the virtual runs take 1.16x": models.SlowerVirtualRuns(0.1, 1.16),
        "10 % of them take 1.25x": models.SlowerVirtualRuns(0.1, 1.25),
        "70 % of them take 1.06x": models.SlowerVirtualRuns(0.7, 1.06),
        "70 % of them take 1.08x": models.SlowerVirtualRuns(0.7, 1.08),
    }
    for words, disturbance in disturbances.items():
        for history in ("stated", "recorded"):
            options = {"sd": 0.005, "disturbance": disturbance, "history": history}
            over = is_over(table.judge(draw.scalars, all_at_budget(), **options))
            passed = passes(table.judge(draw.scalars, WORSE, cells=0.25, min_pairs=4, **options))
            table.rate(f"{words}, noise {history}: false OVER", over)
            table.rate(f"{words}, noise {history}: budget + margin passes", passed)
    for sd in (0.05, 0.12, 0.20):
        for pairs in (2, 4):
            passed = passes(table.judge(declared, WORSE, cells=0.25, min_pairs=pairs, sd=sd))
            table.rate(f"`virtqual judge`, SD {sd:.0%}: budget + margin passes from {pairs} pairs", passed)
        table.rate(
            f"`virtqual judge`, SD {sd:.0%}: false OVER",
            is_over(table.judge(declared, all_at_budget(), sd=sd)),
        )


def declared(rng: draw.Rng, sessions: int, overhead: np.ndarray, *, sd: float) -> draw.Drawn:
    """Draw metrics that no reviewed file knows."""
    prior = DECLARED_NOISE["overhead"]
    drawn = draw.scalars(rng, sessions, overhead, sd=sd, history="stated")
    return replace(drawn, noise=Noise(prior.sigma, prior.df, prior.between))


def stalls(table: Table) -> None:
    table.begin("runs of both sides that stall now and then, noise as it is recorded from such sessions")
    for words, stalling, goals in (
        ("1 % take 10x", models.Stalls(0.01, 10.0), (0.92, 5.0, 0.95)),
        ("2 % take 2x", models.Stalls(0.02, 2.0), (None, None, None)),
    ):
        judge = partial(table.judge, draw.scalars, disturbance=stalling, history="recorded")
        judged = judge(CLEAN[:1])
        table.rate(f"{words}, no overhead: WITHIN", passes(judged), goals[0], least=True)
        table.mean(f"{words}, no overhead: pairs", judged.pairs, goals[1])
        table.power(f"{words}, budget + 5 %", judge(one_over(0.05)), goals[2])
        table.rate(f"{words}, 11 metrics at the budget: false OVER", is_over(judge(all_at_budget())), 0.01)
        table.rate(f"{words}: budget + margin passes", passes(judge(WORSE)), 0.05)
    table.begin("stalls of 2x over two neighbouring runs: slow runs found in vain, no overhead, 11 metrics")
    for share in (0.02, 0.05):
        for words, apart in (
            ("that share runs", 0.0),
            ("a second apart", 1.0),
            ("in runs of their own", 1e5),
        ):
            stalling = models.Stalls(share, 2.0, length=2, shared_by_metrics=apart < 60)
            drawn = draw.scalars(table.rng, table.sessions * 2, CLEAN, disturbance=stalling)
            slow = [answer.slow_runs for answer in commands.finished(drawn, apart=apart)[0]]
            words = f"in {share:.0%} of places, metrics {words}"
            table.rate(words, np.array([runs.found for runs in slow]), 0.003)
            is_found = []
            for runs, before in zip(slow, table.rng.integers(0, len(slow), (len(slow), 10)), strict=True):
                together = sum((slow[index] for index in before), start=runs)
                is_found.append(runs.virtual > 0 and together.p <= SLOW_ALPHA)
            table.rate(f"{words}, with ten earlier sessions", np.array(is_found), 0.003)


def hosts(table: Table) -> None:
    table.begin(
        "a rotation with one slow host, the others alike, 11 metrics, four rounds first; a quarter of a cell"
    )
    finished = partial(commands.finished, min_pairs=4)
    for count, slow in (
        (2, (0.0, 0.10)),
        (3, (0.0, 0.10)),
        (4, (0.0, 0.05)),
        (4, (0.0, 0.10)),
        (4, (0.10, 0.0)),
        (8, (0.0, 0.10)),
    ):
        side = "virtual" if slow[1] else "native"
        words, is_promised = f"{count} hosts, a {side} one {max(slow):.0%} slower", count >= 4
        drawing = partial(draw.rotated, table.rng, table.sessions // 4, hosts=count, slow=slow)
        answers, judged = finished(drawing(CLEAN))
        is_within = np.all(judged.outcome == WITHIN, axis=1)
        table.rate(f"{words}: all WITHIN", is_within, 0.95 if is_promised else None, least=True)
        table.mean(f"{words}: rounds", judged.pairs)
        named = [[outlier.host for outlier in answer.outliers] == [f"{side[0]}0"] for answer in answers]
        table.rate(f"{words}: this host is named, no other", np.array(named), least=True)
        _, judged = finished(drawing(one_over(0.05)))
        table.find(f"{words}, budget + 5 %", judged, 0.9 if is_promised else None)
        _, judged = finished(drawing(all_at_budget()))
        table.rate(f"{words}, all at the budget: false OVER", is_over(judged), 0.01)


def boots(table: Table) -> None:
    table.begin("boots of SD 1 %, 11 metrics at the budget: false OVER, and one at budget + 10 %: found")
    for noise, drawing in (
        ("as shipped", partial(draw.as_shipped, boot_sd=0.01)),
        ("recorded", commands.booted_as_recorded),
    ):
        for words, boots_of, options, goal in (
            ("one boot, none can be had", 1, {}, None),
            (
                "a boot of four pairs, then of every two",
                "four, then two",
                {"recreates_vms": True, "min_pairs": 4},
                0.01,
            ),
            ("a boot of every two pairs", "two", {"recreates_vms": True}, 0.01),
        ):
            draw_boots = partial(drawing, table.rng, boots=boots_of)
            _, judged = commands.finished(draw_boots(table.sessions, all_at_budget()), **options)
            table.rate(f"{noise}, {words}: false OVER", is_over(judged), goal)
            _, judged = commands.finished(draw_boots(table.sessions // 3, one_over(0.10)), **options)
            table.power(f"{noise}, {words}: budget + 10 %", judged)


def history(table: Table) -> None:
    table.begin("a mixed history of 20 sessions, SD 2 %, one boot, WITHIN from four pairs; 11 metrics")
    count = draw.HISTORY_SESSIONS
    places = {
        "none": (),
        "the first 2": (0, 1),
        "2 in the middle": (count // 2 - 1, count // 2),
        "the last 2": (count - 2, count - 1),
        "the first half": tuple(range(count // 2)),
    }
    cells = [("none", 0.0, 11)]
    cells += [(words, 0.10, metrics) for words in places if words != "none" for metrics in (11, 1)]
    cells += [("the first half", 0.03, metrics) for metrics in (11, 1)]
    for words, shift, metrics in cells:
        mixture = commands.Mixture(places[words], float(np.log1p(shift)), metrics)
        options = {"boots": 1, "boot_sd": 0.0, "mixture": mixture, "machines": 150, "min_pairs": 4}
        words = f"{words} by {shift:.0%} in {metrics}" if shift else "not mixed"
        judge = partial(table.judge, commands.booted_as_recorded, **options)
        table.power(f"{words}: the first metric at budget + 5 %", judge(one_over(0.05)), 0.95)
        judged = judge(CLEAN)
        table.rate(f"{words}: the first metric clean, WITHIN", passes(judged), 0.95, least=True)
        table.mean(f"{words}: pairs", judged.pairs[:, 0], 6)
    table.begin("a history of 20 sessions that is not mixed, boots recorded: false OVER of 11")
    for boot_sd in (0.0, 0.003, 0.005, 0.01):
        options = {"boots": 1, "boot_sd": boot_sd, "machines": 150}
        judged = table.judge(commands.booted_as_recorded, all_at_budget(), **options)
        table.rate(f"boots of {boot_sd:.1%}", is_over(judged), 0.01)
    table.begin("a history of 20 sessions that is not mixed: split in vain")
    for name in ("Gaussian", "t3", "AR(1) 0.9", "bursts", "two levels, sticky"):
        for boot_sd in (0.0, 0.003, 0.005, 0.01):
            is_split = commands.is_split(table.rng, table.sessions, name=name, boot_sd=boot_sd)
            table.rate(f"{name}, boots of {boot_sd:.1%}", is_split, 0.01)
    for words, options in (
        ("boots of 1 % that all metrics share", {"boot_sd": 0.01, "shared": True}),
        ("boots of 2 % of one metric, none of the others", {"boot_sd": np.array([0.02, *[0.0] * 10])}),
        ("boots of 0 to 2 %, by metric", {"boot_sd": np.linspace(0, 0.02, 11)}),
        ("a fifth of the nights twice as noisy", {"loud": 0.2}),
        ("the same, boots of 1 %", {"loud": 0.2, "boot_sd": 0.01}),
    ):
        table.rate(words, commands.is_split(table.rng, table.sessions, **options), 0.01)


REPEATED_NOISE = {
    **{f"SD {sd:.0%}": {"sd": sd} for sd in (0.01, 0.02, 0.03)},
    **{f"SD 2 %, {times:g} times the history's": {"times": times} for times in (1.5, 2.0, 3.0)},
    "SD 3 %, noise stated": {"sd": 0.03, "history": "stated"},
    "SD 2 %, AR(1) 0.9": {"name": "AR(1) 0.9"},
    "boots of 0.3 % as stated": {"boot_sd": 0.003},
    "boots of 1 %, stated as 0.3 %": {"boot_sd": 0.01},
}
REPEATED = (1, 3, 10, 30)
MEASURED_AGAIN = ("SD 1%", "SD 2%", "SD 3%", "SD 3 %, noise stated", "boots of 0.3 % as stated")


def again(table: Table) -> None:
    table.begin("a build that is measured again until it passes, WITHIN from four pairs, a boot each session")

    def draw_sites(overheads: list[np.ndarray], **options: object) -> Iterator[draw.Drawn]:
        drawing = draw.as_shipped if "boot_sd" in options else draw.scalars
        return (drawing(table.rng, table.sessions, overhead, **options) for overhead in overheads)

    def passes_within(sessions: int, judged: draw.Simulated) -> np.ndarray:
        return np.any(np.all(judged.outcome[:sessions] == WITHIN, axis=-1), axis=0)

    for words, options in REPEATED_NOISE.items():
        for kind, remembers in (("", True), (", each by itself", False)):
            judged = draw.measure_again(draw_sites([WORSE] * REPEATED[-1], **options), remembers=remembers)
            for count in REPEATED:
                goal = 0.05 if remembers and words in MEASURED_AGAIN and count > 1 else None
                name = f"{words}: budget + margin passes within {count}{kind}"
                table.rate(name, passes_within(count, judged), goal)
    one_worse = draw.overheads(11, BUDGET + MARGIN)
    judged = draw.measure_again(draw_sites([one_worse] * 10))
    table.rate(
        "11 metrics, one at budget + margin: all pass within 10 sessions", passes_within(10, judged), 0.05
    )
    for sd in (0.01, 0.02, 0.03):
        for faults in (0, 1, 2, 9):
            overheads = [one_over(0.07, 1)] * faults + [CLEAN[:1]]
            judged = draw.measure_again(draw_sites(overheads, sd=sd))
            words = f"SD {sd:.0%}, {faults} sessions at 12 %, then clean"
            table.rate(f"{words}: passes", judged.outcome[-1] == WITHIN, least=True)
            table.mean(f"{words}: pairs", judged.pairs[-1])


# Mean pairs of the rule with looks at 4, 8, 12 and 18, noise known: no overhead, at the budget, budget + 5 %.
BEFORE = {0.01: (4.0, 4.0, 8.0), 0.02: (4.0, 6.8, 8.5), 0.03: (4.1, 11.1, 11.1)}
GOALS = {(0.02, 0): (2.1, None, 6.9), (0.02, 4): (4.2, None, 8.5)}


def pairs(table: Table) -> None:
    table.begin("mean pairs to the answer, one metric of 11; a build qualifies from four pairs on")
    for sd, before in BEFORE.items():
        for index, truth in enumerate((0.0, BUDGET, BUDGET + 0.05)):
            words = f"SD {sd:.0%}, overhead {truth:.0%}"
            for min_pairs, kind in ((0, "from two pairs on"), (4, "from four")):
                options = {"sd": sd, "min_pairs": min_pairs}
                judged = table.judge(draw.scalars, draw.overheads(11, truth), **options)
                goal = GOALS.get((sd, min_pairs), [None] * 3)[index]
                table.mean(f"{words}, {kind} (before: {before[index]})", judged.pairs[:, 0], goal)
            judged = draw.sprt(table.rng, table.sessions, np.log1p(truth), sd, 0.01 / 11)
            table.mean(f"{words}: Wald's sequential test, spread known exactly", judged.pairs[:, 0])
        judged = table.judge(draw.scalars, WORSE, sd=sd)
        table.rate(f"SD {sd:.0%}: budget + margin passes", passes(judged), 0.05)
        judged = draw.sprt(table.rng, table.sessions, WORSE[0], sd, 0.01 / 11)
        table.rate(f"SD {sd:.0%}: budget + margin passes Wald's test", passes(judged))


ROWS = {"loads": loads, "clocks": clocks, "stalls": stalls, "hosts": hosts, "boots": boots, "pairs": pairs}


def false_over(table: Table) -> None:
    table.begin("false OVER a session, every true overhead at the budget")
    for name in models.NAMES:
        for metrics in FAMILIES:
            judged = table.judge(draw.scalars, all_at_budget(metrics), name=name)
            table.rate(f"{name}, {metrics} metrics", is_over(judged), 0.01)
    for name, disturbance in models.ORDER_EFFECTS.items():
        judged = table.judge(draw.scalars, all_at_budget(), disturbance=disturbance)
        table.rate(f"{name}, 11 metrics", is_over(judged), 0.01)
    for times in (1.5, 2.0, 3.0, 10.0):
        judged = table.judge(draw.scalars, all_at_budget(), times=times)
        table.rate(f"Gaussian, 11 metrics, noise {times:g} times the history's", is_over(judged))
    for words, drawing in PLACES.items():
        for metrics in FAMILIES:
            judged = table.judge(drawing, all_at_budget(metrics), cells=0.25 if metrics == 1 else 3)
            table.rate(f"{words}, {metrics} metrics", is_over(judged), 0.01)
    table.begin("false OVER a session, measured A/A runs resampled")
    for arm, words in (("prio", "raised priority"), ("norm", "loaded machine")):
        logs = {key[1]: y for key, y in sorted(models.measured().items()) if key[0] == arm}
        for name, y in logs.items():
            judged = table.judge(draw.resample, all_at_budget(1), logs=[y])
            table.rate(f"{words}, 1 metric: {name}", is_over(judged), 0.01)
        for metrics in FAMILIES[1:]:
            judged = table.judge(draw.resample, all_at_budget(metrics), logs=list(logs.values()))
            table.rate(f"{words}, {metrics} metrics of all kinds", is_over(judged), 0.01)


PLACES = {
    "roles exchanged, nodes SD 3 %": partial(draw.exchanged, node_sd=0.03),
    "rotated over 8, nodes SD 3 %": partial(draw.rotated, node_sd=0.03),
    "rotated over 8, nodes SD 1 %": partial(draw.rotated, node_sd=0.01),
    "3 boots SD 1 %, stated": partial(draw.booted, boot_sd=0.01, boots=3),
    "3 boots SD 1 %, of 6 degrees of freedom": partial(draw.booted, boot_sd=0.01, boots=3, df=6.0),
    "1 boot SD 1 %, stated": partial(draw.booted, boot_sd=0.01),
}


def margin_passes(table: Table) -> None:
    table.begin("budget + margin passes")
    for name in models.NAMES:
        for times, goal in ((1.0, 0.05), (1.5, 0.05), (2.0, 0.08)):
            judged = table.judge(draw.scalars, WORSE, name=name, times=times)
            table.rate(f"{name}, noise {times:g} times the history's", passes(judged), goal)
    for name, disturbance in models.ORDER_EFFECTS.items():
        judged = table.judge(draw.scalars, WORSE, disturbance=disturbance)
        table.rate(f"{name}, SD 2 %", passes(judged), None if disturbance is models.carry_over else 0.05)
    for words, warm_up, goal in (("a warm-up precedes", True, 0.05), ("nothing precedes it", False, None)):
        judged = table.judge(draw.scalars, WORSE, sd=0.01, slow_first=0.1, warm_up=warm_up)
        table.rate(f"SD 1 %, first native run 10 % slower, {words}", passes(judged), goal)
    for words, drawing in PLACES.items():
        table.rate(words, passes(table.judge(drawing, WORSE, cells=0.25)), 0.05)
    table.begin("budget + margin passes, measured A/A runs resampled")
    for (arm, name), y in sorted(models.measured().items()):
        judged = table.judge(draw.resample, WORSE, logs=[y])
        table.rate(f"{arm} {name}", passes(judged), 0.05 if arm == "prio" else None)


def power(table: Table) -> None:
    table.begin("one metric of 11 over budget, the others clean; a build qualifies from four pairs on")
    for excess, sd, goal, most in (
        (0.05, 0.02, 0.99, 8.5),
        (0.05, 0.028, 0.99, 11),
        (0.02, 0.02, 0.5, None),
        (0.02, 0.028, 0.3, None),
    ):
        for min_pairs, words in ((0, "from two pairs on"), (4, "from four")):
            judged = table.judge(draw.scalars, one_over(excess), sd=sd, cells=5, min_pairs=min_pairs)
            table.power(f"budget + {excess:.0%}, SD {sd:.1%}, {words}", judged, goal, most)
            judged = table.judge(draw.scalars, one_over(excess, 200), sd=sd, min_pairs=min_pairs)
            table.power(f"budget + {excess:.0%}, SD {sd:.1%}, {words}, of 200 metrics", judged)
    for name in models.NAMES[1:]:
        table.find(f"budget + 5%, SD 2.0%, {name}", table.judge(draw.scalars, one_over(0.05), name=name))


def practice(table: Table) -> None:
    for boots_of, words in ((1, "one boot"), ("each look", "the VM is created anew before each look")):
        for metrics in FAMILIES[1:]:
            table.begin(f"as shipped (memory on known hosts), {words}, {metrics} metrics")
            judge = partial(table.judge, draw.as_shipped, boots=boots_of)
            table.rate("every metric at the budget: false OVER", is_over(judge(all_at_budget(metrics))), 0.01)
            for excess, sd in ((0.05, 0.02), (0.05, 0.028), (0.02, 0.02), (0.02, 0.028)):
                judged = judge(one_over(excess, metrics), sd=sd)
                table.power(f"one at budget + {excess:.0%}, SD {sd:.1%}", judged)
            table.rate("budget + margin passes", passes(judge(WORSE)), 0.05)
            judged = judge(CLEAN[:1])
            table.rate("clean: UNDECIDED or INVALID", ~passes(judged), 0.01)
            table.mean("clean: pairs", judged.pairs, 4.2)
    table.begin("as shipped, one boot: where boots are not as stated")
    for metrics in FAMILIES[1:]:
        for sd in (0.0, 0.006, 0.01):
            judged = table.judge(draw.as_shipped, all_at_budget(metrics), boot_sd=sd)
            table.rate(f"boots SD {sd:.1%}, {metrics} metrics at the budget: false OVER", is_over(judged))


def shipped(table: Table) -> None:
    """Quiet and noisy machines, and boots that may change the host, as shipped; WITHIN from four pairs."""
    table.begin("as shipped (memory on known hosts), one boot: one of 11 metrics, WITHIN from four pairs")
    for sd in (0.005, 0.01, 0.02, 0.03):
        for overhead in (0.04, 0.07, 0.10):
            judged = table.judge(draw.as_shipped, draw.overheads(11, overhead), min_pairs=4, sd=sd)
            words = f"SD {sd:.1%}, overhead {overhead:.0%}"
            for outcome in (WITHIN, OVER, UNDECIDED):
                table.rate(f"{words}: {outcome.value}", judged.outcome[:, 0] == outcome)
            table.mean(f"{words}: pairs", judged.pairs[:, 0])
    for hosts_known, words in ((True, "hosts known"), (False, "hosts unknown, boots vary with them")):
        for family in ("memory", "memory-latency", "linpack"):
            for boots_of in (1, "two"):
                options = {"family": family, "hosts_known": hosts_known, "boots": boots_of, "sd": 0.01}
                table.begin(f"as shipped, {words}, {family}, boots {boots_of}; 11 metrics of SD 1 %")
                judge = partial(table.judge, draw.as_shipped, min_pairs=4, **options)
                judged = judge(CLEAN)
                table.rate("clean: WITHIN", judged.outcome == WITHIN)
                table.mean("clean: pairs", judged.pairs)
                table.power("one at budget + 5 %", judge(one_over(0.05)))
                table.rate("all at the budget: false OVER", is_over(judge(all_at_budget())), 0.01)
                table.rate("budget + margin passes", passes(judge(WORSE, cells=0.25)), 0.05)


def single_look(table: Table) -> None:
    table.begin("four pairs and a single look, as plain ReFrame runs have, boots as shipped, 11 metrics")
    for sd in (0.01, 0.02):
        judge = partial(table.judge, draw.as_shipped, sd=sd, looks=(4,))
        table.rate(
            f"SD {sd:.0%}, all at the budget: false OVER", is_over(judge(all_at_budget(), cells=2)), 0.01
        )
        table.rate(f"SD {sd:.0%}: budget + margin passes", passes(judge(WORSE)), 0.05)
        for excess in (0.05, 0.1, 0.2):
            table.find(f"SD {sd:.0%}, one at budget + {excess:.0%}", judge(one_over(excess)))
        table.rate(f"SD {sd:.0%}, clean: UNDECIDED or INVALID", judge(CLEAN).outcome != WITHIN)


def curves(table: Table) -> None:
    table.begin("a curve of 23 sizes (budget 10 %, margin 10 %) beside ten scalar metrics")
    judge = partial(draw.curve_session, table.rng, table.sessions * 3)
    judged = judge(at_64=np.log1p(0.20))
    table.find("64 B alone at budget + 10 %", judged, 0.98)
    table.rate("64 B alone at budget + 10 %: passes", passes(judged), 0.05)
    table.rate("every size at the budget: false OVER", is_over(judge(draw.CURVE_LIMIT)), 0.01)
    for words, spikes in (("runs", "run_spikes"), ("values", "size_spikes")):
        judged = judge(**{spikes: 0.02})
        table.rate(f"clean, 2 % of the {words} take 2x: INVALID", judged.outcome == INVALID, 0.02)
        table.rate(f"clean, 2 % of the {words} take 2x: UNDECIDED", judged.outcome == UNDECIDED)
    judged = judge()
    table.rate("clean: UNDECIDED or INVALID", ~passes(judged), 0.01)
    table.mean("clean: pairs", judged.pairs, 4.2)


def slow(table: Table) -> None:
    table.begin("virtual runs that take 2x now and then, 11 metrics")
    spiked = partial(draw.spiked, table.rng)
    for number, share, goal in (
        (4, 0.2, 0.999),
        (4, 0.1, 0.99),
        (4, 0.05, 0.85),
        (2, 0.2, None),
        (2, 0.1, None),
        (2, 0.05, None),
        (4, 0.0, None),
        (2, 0.0, None),
    ):
        passed_parts, slow_parts = [], []
        # With 10 % slow runs, 1 - 0.9^44 of the sessions have one at all, hardly more than the goal.
        for count in draw.chunks(table.sessions * (60 if goal else 5), 11):
            drawn = spiked(count, CLEAN, native=0.0, virtual=share).first(number)
            passed_parts.append(np.all(drawn.judged(stop=False).outcome == WITHIN, axis=1))
            slow_parts.append(np.any(drawn.virtual > np.log(1.5), axis=(1, 2)))
        passed, has_slow_run = np.concatenate(passed_parts), np.concatenate(slow_parts)
        words = f"{share:.0%} of them, {number} pairs: not WITHIN"
        table.rate(words, ~passed, goal, least=True)
        if share:
            words += f", where one of {11 * number} runs was slow"
            table.rate(words, ~passed[has_slow_run], least=True)
    count = table.sessions * 3
    for share, number in ((0.2, 8), (0.1, 12)):
        drawn = spiked(count, CLEAN, native=0.0, virtual=share)
        table.rate(
            f"{share:.0%} of {11 * number}: found as slow runs",
            draw.slow_runs(drawn, number),
            0.9,
            least=True,
        )
    for share in (0.02, 0.1, 0.2):
        for state, overheads in (("clean", CLEAN), ("at the budget", all_at_budget())):
            drawn = spiked(count * 4, overheads, native=share, virtual=share)
            for number in (4, 12, 18) if overheads is CLEAN else ():
                words = f"{share:.0%} of both sides, {number} pairs: found, falsely"
                table.rate(words, draw.slow_runs(drawn, number), SLOW_ALPHA)
            judged = drawn.judged()
            is_slow = draw.slow_runs(drawn, judged.pairs)
            words = f"{share:.0%} of both sides, {state}"
            table.rate(f"{words}, when the session ends: found", is_slow, SLOW_ALPHA)
            table.rate(
                f"{words}: OVER of any kind", is_over(judged) | is_slow, 0.01 if share <= 0.1 else None
            )
    for name in models.NAMES:
        drawn = draw.scalars(table.rng, table.sessions, CLEAN, name=name)
        table.rate(f"none, {name}, 18 pairs: found, falsely", draw.slow_runs(drawn, 18), SLOW_ALPHA)
    for arm in ("prio", "norm"):
        logs = [y for key, y in models.measured().items() if key[0] == arm]
        drawn = draw.resample(table.rng, table.sessions, CLEAN, logs=logs)
        table.rate(
            f"none, measured runs ({arm}), 18 pairs: found, falsely", draw.slow_runs(drawn, 18), SLOW_ALPHA
        )


#: By words the shares of native and virtual runs that are lost, or take so many times as long.
LOSSES = {
    "10 % of the virtual runs are lost": (0.0, 0.10, 0.0),
    "5 % of them are lost": (0.0, 0.05, 0.0),
    "10 % of them take 2x": (0.0, 0.10, 2.0),
    "5 % of them take 2x": (0.0, 0.05, 2.0),
    "1 % of the runs of both sides are lost": (0.01, 0.01, 0.0),
    "2 % of the runs of both sides are lost": (0.02, 0.02, 0.0),
    "5 % of the runs of both sides are lost": (0.05, 0.05, 0.0),
}


def lost(table: Table) -> None:
    table.begin("runs that are lost now and then, and replaced; 11 clean metrics, WITHIN from four pairs")
    for sd in (0.01, 0.02):
        for words, (native, virtual, times) in LOSSES.items():
            shares = {"native": native, "virtual": virtual, "times": times}
            drawn = draw.lossy(table.rng, table.sessions * 2 // 3, CLEAN, sd=sd, **shares)
            answers, judged = commands.finished(drawn, apart=1e5, min_pairs=4)
            outcomes = np.array([answer.outcome for answer in answers])
            goal = {(0.10, 0.0): 0.02, (0.05, 0.0): 0.15}.get((virtual, native)) if not times else None
            table.rate(f"SD {sd:.0%}, {words}: all WITHIN", outcomes == WITHIN, goal)
            for outcome in (OVER, UNDECIDED, INVALID):
                table.rate(f"SD {sd:.0%}, {words}: {outcome.value}", outcomes == outcome)
            table.mean(f"SD {sd:.0%}, {words}: pairs, those that are replaced included", judged.pairs.mean(1))


def clean(table: Table) -> None:
    table.begin("clean metrics: overhead 0")
    for name in models.NAMES:
        judged = table.judge(draw.scalars, CLEAN[:1], cells=0.5, name=name)
        table.rate(f"{name}: UNDECIDED or INVALID", ~passes(judged), 0.01)
        table.mean(f"{name}: pairs", judged.pairs, 4.2)
    judged = table.judge(draw.spiked, CLEAN[:1], cells=0.5, native=0.02, virtual=0.02)
    words = "2x spikes in 2 % of the runs of both sides"
    table.rate(f"{words}: UNDECIDED", judged.outcome == UNDECIDED, 0.10)
    table.rate(f"{words}: INVALID", judged.outcome == INVALID)
    judged = table.judge(draw.scalars, CLEAN - np.log(1.5))
    table.rate("virtual 1.5x faster than native: WITHIN", judged.outcome == WITHIN, 0.001)


def nodes(table: Table) -> None:
    table.begin("nodes and boots")
    far_over = one_over(0.10)
    table.find(
        "rotated over 8, SD 2 %: budget + 10 %", table.judge(draw.rotated, far_over, node_sd=0.02), 0.98
    )
    judged = table.judge(draw.rotated, CLEAN, node_sd=0.02)
    table.rate("rotated over 8, SD 2 %: overhead 0 WITHIN", judged.outcome == WITHIN, 0.95, least=True)
    judged = table.judge(draw.exchanged, one_over(0.05), node_sd=0.03)
    is_early = (judged.outcome[:, 0] == OVER) & (judged.pairs[:, 0] <= 12)
    table.rate("exchanged, SD 3 %: budget + 5 % found in 12 pairs", is_early, 0.95, least=True)
    planted = float(np.log(1.16))
    drawn = draw.exchanged(table.rng, table.sessions, CLEAN, node_sd=0.0, planted=planted).first(12)
    assert drawn.places is not None
    estimated = estimate_overhead(drawn.runs, drawn.noise, convict=False)
    assert estimated is not None
    bias = np.abs(np.mean(estimated.mean, axis=0))
    table.mean("exchanged, 16 % planted: bias of the overhead", bias, 0.005, percent=True)
    effects = host_effects(np.moveaxis(drawn.virtual - drawn.native, -1, 0), drawn.places)
    errors = np.abs(np.expm1(effects[1] - effects[0]) - 0.16).mean(axis=0)
    table.mean("exchanged, 16 % planted: what is said of it, off by", errors, 0.01, percent=True)
    for words, number, df, goal in (
        ("3 boots of SD 1 %, stated", 3, np.inf, 0.9),
        ("3 boots of SD 1 %, of 6 degrees of freedom", 3, 6.0, 0.9),
        ("1 boot of SD 1 %, stated", 1, np.inf, None),
    ):
        judged = table.judge(draw.booted, far_over, boot_sd=0.01, boots=number, df=df)
        table.find(f"{words}: budget + 10 %", judged, goal)


def against(table: Table) -> None:
    table.begin("--against: change of 11 metrics since a session of 12 pairs, history 1 %, 2 % allowed")
    allowed, worst = 0.02, draw.overheads(11, 0.02, 0.02)
    judge = partial(table.judge, draw.against)
    table.find("allowed + 5 %", judge(draw.overheads(11, allowed + 0.05)), 0.92)
    table.rate("allowed + 8 %: WITHIN", passes(judge(draw.overheads(11, allowed + 0.08))), 0.01)
    table.rate("every metric changed by what is allowed: false OVER", is_over(judge(worst)), 0.01)
    table.rate("allowed + margin: passes", passes(judge(draw.overheads(11, allowed + MARGIN))), 0.05)
    table.rate("unchanged: WITHIN", judge(CLEAN).outcome == WITHIN, least=True)
    for words, number, df in (("1 boot each, stated", 1, np.inf), ("3 boots each, of 10 df", 3, 10.0)):
        options = {"boot_sd": 0.02, "boots": number, "df": df}
        judged = judge(draw.overheads(11, allowed + 0.15), **options)
        table.find(f"boots SD 2 %, {words}: allowed + 15 %", judged, 0.9)
        table.rate(f"boots SD 2 %, {words}: false OVER", is_over(judge(worst, **options)), 0.01)
    judged = judge(worst, boot_sd=0.02, between=0.003)
    table.rate("boots SD 2 % where 0.3 % is stated, 1 boot each: false OVER", is_over(judged))
    judged = judge(worst, sd=0.03, earlier_pairs=4)
    table.rate("SD 3 %, 4 earlier pairs: UNDECIDED", judged.outcome == UNDECIDED, least=True)


PARTS = {
    "commands": compare_commands,
    **ROWS,
    "power": power,
    "practice": practice,
    "shipped": shipped,
    "single-look": single_look,
    "curves": curves,
    "slow": slow,
    "lost": lost,
    "clean": clean,
    "nodes": nodes,
    "against": against,
    "passes": margin_passes,
    "false-over": false_over,
    "guests-clocks": clocks_of_guests,
    "beyond": beyond,
    "history": history,
    "again": again,
    "order": order,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--full", action="store_true", help="five times as many sessions")
    parser.add_argument("--sessions", type=int, help="a cell; 3,000 by default, 15,000 with --full")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write every figure here")
    parser.add_argument("--data", type=Path, metavar="DIR", help="real series; with --only also other parts")
    choices = (*PARTS, "rows")
    parser.add_argument("--only", choices=choices, action="append", help="only this part; may be repeated")
    options = parser.parse_args()
    files = [options.data / name for name in real_data.FILES] if options.data else []
    if missing := [str(file) for file in files if not file.is_file()]:
        parser.error(f"no {', '.join(missing)}: benchmarks/decision/README.md says how to make them")
    table = Table(options.sessions or (15_000 if options.full else 3_000))
    names = options.only or ([] if options.data else [*PARTS])
    names += ROWS if "rows" in names else ()
    parts = dict(PARTS)
    if options.data:
        parts["real-data"] = partial(compare_rules.compare_rules, directory=options.data)
        names.append("real-data")
    for index, (name, measure) in enumerate(parts.items()):
        if name in names:
            table.rng = np.random.default_rng([options.seed, index])
            measure(table)
            print(f"{name}: {time.process_time():.0f} s", file=sys.stderr)
    missed = [figure for figure in table.figures if not figure.holds]
    goals = sum(figure.goal is not None for figure in table.figures)
    print(f"\n{goals - len(missed)} of {goals} goals hold (seed {options.seed}).\n")
    for figure in missed:
        print(f"- {figure.section}: {figure.row}")
    if options.json:
        figures = [asdict(figure) for figure in table.figures]
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
