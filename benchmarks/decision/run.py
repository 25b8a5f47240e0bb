"""Error rates and power of virtqual's decision, and of the rules it replaces.

    python benchmarks/decision/run.py [--decisions 100000] [--seed 1] [--json results.json]

Every line is simulated with the code that judges (`virtqual.verdict.decision`). Bounds are one-sided
95 % (Clopper and Pearson). Each goal is printed beside its figure with `holds` or `MISSED`; the exit
code is the number of goals missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import against
import numpy as np
from noise_models import COMMON, NEIGHBOURS, SIZES, curves, differences, measured, resampled, runs
from rules import INVALID, OVER, UNDECIDED, WITHIN, Decided, plain_t, sequential, static_reference
from scipy import stats
from virtqual.verdict.design import Design

from sessions import SCREEN, check, draw
from sessions import run as run_sessions
from virtqual.references.noise import sigma_of_history
from virtqual.verdict import Outcome

DESIGN = Design()
HISTORY = 21  # A/A pairs of history: 20 degrees of freedom
NOISE = Path(__file__).with_name("noise.csv")


@dataclass
class Figure:
    """One number of the table, with its goal where it has one."""

    section: str
    what: str
    value: float
    bound: float | None = None
    goal: float | None = None
    at_least: bool = False

    @property
    def holds(self) -> bool:
        judged = self.value if self.bound is None else self.bound
        if self.goal is None:
            return True
        return judged >= self.goal if self.at_least else judged <= self.goal

    def __str__(self) -> str:
        unit = "" if self.value > 1 else f"{self.value:8.2%}"
        text = f"  {self.what:66s} {unit or f'{self.value:8.2f}'}"
        if self.bound is not None:
            text += f"  (95 % bound {self.bound:.2%})"
        if self.goal is not None:
            goal = f"{self.goal:.0%}" if self.goal <= 1 else f"{self.goal:g}"
            text += f"  goal {'>=' if self.at_least else '<='} {goal}: {'holds' if self.holds else 'MISSED'}"
        return text


def upper(rate: float, n: int) -> float:
    """Return the upper 95 % confidence bound of a rate seen in n decisions."""
    k = round(rate * n)
    return float(stats.beta.ppf(0.95, k + 1, n - k)) if k < n else 1.0


class Table:
    """Figures in the order in which they were found, printed at once."""

    def __init__(self) -> None:
        self.figures: list[Figure] = []

    def section(self, name: str) -> None:
        self.name = name
        print(f"\n{name}", flush=True)

    def add(self, what: str, value: float, n: int | None = None, **goal: float | bool) -> None:
        bound = None if n is None else upper(value, n)
        figure = Figure(self.name, what, value, bound, **goal)  # type: ignore[arg-type]
        self.figures.append(figure)
        print(figure, flush=True)


def scalar(rng: np.random.Generator, n: int, cv: float, margin: float, overhead: float) -> Decided:
    d = differences(runs(rng, n, DESIGN.max_pairs, cv)) + np.log1p(overhead)
    history = sigma_of_history(differences(runs(rng, n, HISTORY, cv))) ** 2
    return sequential(
        d[..., None], np.zeros(1), np.array([np.log1p(margin)]), history[:, None, None], HISTORY - 1, DESIGN
    )


def scalars(table: Table, rng: np.random.Generator, n: int) -> None:
    goals = {(0.01, 0.02): (6, 0.90), (0.02, 0.05): (4, 0.92)}
    for cv, margin in ((0.01, 0.02), (0.02, 0.05), (0.01, 0.05), (0.03, 0.05), (0.03, 0.10), (0.05, 0.10)):
        table.section(
            f"one metric, run-to-run CV {cv:.0%}, margin {margin:.0%} (overhead counted from the budget)"
        )
        clean = scalar(rng, n, cv, margin, 0.0)
        table.add("virtqual: false alarms", clean.rate(OVER), n, goal=0.01)
        table.add("virtqual: UNDECIDED when clean", clean.rate(UNDECIDED), n, goal=0.02)
        table.add("virtqual: INVALID when clean", clean.rate(INVALID))
        table.add("virtqual: mean pairs when clean", float(clean.pairs.mean()))
        worse = scalar(rng, n, cv, margin, margin)
        pairs, power = goals.get((cv, margin), (DESIGN.max_pairs, None))
        goal = {} if power is None else {"goal": power, "at_least": True}
        table.add(
            f"virtqual: budget + {margin:.0%} found in {pairs} pairs or fewer",
            worse.rate(OVER, pairs),
            **goal,
        )
        table.add("virtqual: budget + margin passes", worse.rate(WITHIN), n, goal=0.05)
        table.add("virtqual: mean pairs at budget + margin", float(worse.pairs.mean()))
        for name, extra in (("false alarms", 0.0), (f"+{margin:.0%} found", margin)):
            one = differences(runs(rng, n, 1, cv))[:, 0] * 0
            virtual = runs(rng, n, 1, cv)[:, 1] + np.log1p(extra) + one
            table.add(
                f"static reference +-5 %, 1 run: {name}",
                float(np.mean(static_reference(rng, virtual, cv, 0.05))),
            )
            d = differences(runs(rng, n, 5, cv)) + np.log1p(extra)
            table.add(f"paired t-test at 1 %, 5 pairs: {name}", float(np.mean(plain_t(d))))


def curve_prior(rng: np.random.Generator, n: int, neighbours: float) -> np.ndarray:
    """Return each decision's prior covariance, from a history of its own; shape (n, 23, 23)."""
    history = sigma_of_history(np.swapaxes(curves(rng, n, HISTORY, neighbours), 1, 2))
    sigma = np.sqrt(np.maximum(history**2 - COMMON**2, 1e-6))
    index = np.arange(len(SIZES))
    correlation = NEIGHBOURS ** np.abs(index[:, None] - index[None, :])
    return sigma[:, :, None] * sigma[:, None, :] * correlation + COMMON**2


def curve(rng: np.random.Generator, n: int, extra: np.ndarray, neighbours: float) -> Decided:
    outcomes, pairs = [], []
    for start in range(0, n, 5000):
        count = min(5000, n - start)
        d = curves(rng, count, DESIGN.max_pairs, neighbours) + extra
        margin = np.full(len(SIZES), np.log1p(0.20))
        prior = curve_prior(rng, count, neighbours)
        part = sequential(d, np.zeros(len(SIZES)), margin, prior, HISTORY - 1, DESIGN, batch=1000)
        outcomes.append(part.outcome)
        pairs.append(part.pairs)
    return Decided(np.concatenate(outcomes), np.concatenate(pairs))


def curve_table(table: Table, rng: np.random.Generator, n: int) -> None:
    bump = np.array([16 <= size <= 128 for size in SIZES])
    single = np.array([size == 64 for size in SIZES])
    for neighbours in (0.5, 0.8):
        stated = "" if neighbours == NEIGHBOURS else f", stated as {NEIGHBOURS} (wrong on purpose)"
        table.section(
            f"latency curve, 23 sizes, CV 3 % / 1.5 %, neighbours correlate {neighbours}{stated}, margin 20 %"
        )
        clean = curve(rng, n, np.zeros(len(SIZES)), neighbours)
        table.add("virtqual: curves with a false alarm", clean.rate(OVER), n, goal=0.01)
        table.add("virtqual: UNDECIDED when clean", clean.rate(UNDECIDED), n, goal=0.02)
        table.add("virtqual: mean pairs when clean", float(clean.pairs.mean()))
        worse = curve(rng, n, bump * np.log1p(0.20), neighbours)
        goal = {"goal": 0.99, "at_least": True} if neighbours == NEIGHBOURS else {}
        table.add("virtqual: +20 % at 16-128 B found in 2 pairs", worse.rate(OVER, 2), **goal)
        one = curve(rng, n, single * np.log1p(0.20), neighbours)
        table.add("virtqual: budget + margin at one size only passes", one.rate(WITHIN), n, goal=0.05)
        d = curves(rng, n, 2, neighbours)
        eight = d[:, 0, SIZES.index(8.0)]
        table.add("static +-10 % at 8 B, 1 run: false alarms", float(np.mean(eight > np.log(1.1))))
        table.add("static +-10 % at 8 B, 1 run: +20 % at 16-128 B found", float(np.mean(eight > np.log(1.1))))
        every = np.max(d[:, 0], axis=1)
        table.add(
            "static +-10 % at every size, 1 run: curves with a false alarm",
            float(np.mean(every > np.log(1.1))),
        )


def session_table(table: Table, rng: np.random.Generator, n: int) -> None:
    table.section("session of 204 metrics in 12 tests that share their runs, CV 2 %, margin 5 %")
    disagreeing = check(draw(rng, 60, 0.06, 1), 0.05, DESIGN)
    table.add("sessions of 60 that judge_session decides otherwise than the array", disagreeing, goal=0)
    clean = _sessions(rng, n, 0.0, 0)
    table.add("virtqual: sessions with a false alarm", float(np.mean(clean["alarmed"])), n, goal=0.01)
    table.add("virtqual: mean runs when clean", float(np.mean(clean["runs"])), goal=65)
    table.add(
        "virtqual: 95 % of clean sessions need at most this many runs",
        float(np.quantile(clean["runs"], 0.95)),
    )
    table.add(
        "virtqual: sessions with anything UNDECIDED at the end",
        float(np.mean(clean["undecided"])),
        n,
        goal=0.02,
    )
    small = max(n // 10, 1000)
    for worse, metrics in ((0.05, 1), (0.10, 1), (0.05, 17)):
        part = _sessions(rng, small, worse, metrics)
        what = f"+{worse:.0%} in {metrics} metric{'s of one test' if metrics > 1 else ''}"
        table.add(f"virtqual: {what} found", float(np.mean(part["found"])))
        table.add(f"virtqual: {what}, mean runs", float(np.mean(part["runs"])))
    d = rng.normal(0, 0.02 * np.sqrt(1.24), (min(n, 20000), 204))
    table.add(
        "static reference +-5 %, 1 run: sessions with a false alarm",
        float(np.mean((d > np.log(1.05)).any(1))),
    )


def _sessions(rng: np.random.Generator, n: int, worse: float, metrics: int) -> dict[str, np.ndarray]:
    parts = []
    for start in range(0, n, 1000):
        part = run_sessions(draw(rng, min(1000, n - start), worse, metrics), 0.05, DESIGN)
        found = part.found[:, : max(metrics, 1)].any(axis=1)
        parts.append((part.alarmed, found, part.undecided, part.runs))
    names = ("alarmed", "found", "undecided", "runs")
    return {
        name: np.concatenate(column) for name, column in zip(names, zip(*parts, strict=True), strict=True)
    }


def against_table(table: Table, rng: np.random.Generator, n: int) -> None:
    table.section(
        "sessions judged by the change since an earlier one of 4 pairs, allowed 2 %, margin 3 % to 12 %"
    )
    small = against.Site(20, 0.01, 20)
    differing = against.check(*against.draw(rng, small, 40, 0.05), small, DESIGN)
    table.add("sessions of 40 that judge_session decides otherwise than the array", differing, goal=0)
    for site in (against.Site(200, 0.01, 20), against.Site(60, 0.01, 50, between=0.0)):
        sessions = max(n // 10, 1000)
        alarms = 0
        for start in range(0, sessions, 500):
            count = min(500, sessions - start)
            every = against.outcomes(*against.draw(rng, site, count, against.ALLOWED), site, DESIGN)
            alarms += int((every == Outcome.OVER).any(axis=1).sum())
        table.add(
            f"{site.metrics} metrics, CV of a pair 1 %, all changed by what is allowed: a false alarm",
            alarms / sessions,
            sessions,
            goal=0.01,
        )
    for words, site, noise in (
        ("kvm, stated noise, 11 metrics", against.Site(11, 0.03, 6, questions=2), 1.0),
        ("the same, true noise half of it", against.Site(11, 0.03, 6, questions=2), 0.5),
        ("a history that says 1 %, 11 metrics", against.Site(11, 0.01, 20, questions=2), 1.0),
        ("a history that says 1 %, 200 metrics", against.Site(200, 0.01, 20, questions=2), 1.0),
    ):
        every = against.outcomes(*against.draw(rng, site, max(n // 20, 200), 0.0, noise), site, DESIGN)
        table.add(f"{words}: margin", float(np.expm1(site.limits(DESIGN)[1][0])))
        same = (every == Outcome.WITHIN).all(axis=1).mean()
        table.add(f"{words}: the same build is WITHIN in all", float(same))
        table.add(f"{words}: change found in 80 %", against.found_at(rng, site, DESIGN, noise))


def measured_table(table: Table, rng: np.random.Generator, n: int) -> None:
    arms = {"prio": "protected (raised priority)", "norm": "loaded (others at work, no priority)"}
    # The main job judges sessions; one flagged metric is the case in which it is convicted most easily.
    designs = {"in a session": DESIGN.in_session(SCREEN, 1), "alone": DESIGN}
    for arm, words in arms.items():
        table.section(f"measured A/A runs, block-resampled: {words}")
        pooled: dict[str, list[float]] = {name: [] for name in designs}
        for (name, metric), y in sorted(measured(NOISE).items()):
            if name != arm:
                continue
            margin = 0.10 if metric.startswith("osu") else 0.05
            for judged, design in designs.items():
                clean = _measured(rng, n, y, margin, 0.0, design)
                worse = _measured(rng, n, y, margin, 0.20, design)
                pooled[judged].append(clean.rate(OVER))
                table.add(
                    f"{metric}, {judged}: false alarms",
                    clean.rate(OVER),
                    n,
                    **({"goal": 0.01} if judged == "in a session" else {}),
                )
                print(
                    f"      WITHIN {clean.rate(WITHIN):6.1%}  INVALID {clean.rate(INVALID):6.1%}  "
                    f"UNDECIDED {clean.rate(UNDECIDED):5.2%}  pairs {clean.pairs.mean():4.1f} | +20 %: "
                    f"OVER {worse.rate(OVER):6.1%}  WITHIN {worse.rate(WITHIN):6.2%}  "
                    f"INVALID {worse.rate(INVALID):6.1%}",
                    flush=True,
                )
        for judged, rates in pooled.items():
            table.add(
                f"all metrics together, {judged}: false alarms",
                float(np.mean(rates)),
                n * len(rates),
                goal=0.01,
            )


def _measured(
    rng: np.random.Generator, n: int, y: np.ndarray, margin: float, overhead: float, design: Design
) -> Decided:
    d = resampled(rng, y, n, design.max_pairs) + np.log1p(overhead)
    history = sigma_of_history(resampled(rng, y, n, HISTORY)) ** 2
    return sequential(
        d[..., None], np.zeros(1), np.array([np.log1p(margin)]), history[:, None, None], HISTORY - 1, design
    )


PARTS = {
    "scalars": scalars,
    "curves": curve_table,
    "session": session_table,
    "measured": measured_table,
    "against": against_table,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--decisions", type=int, default=100_000, help="per cell")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write every figure here")
    parser.add_argument("--only", choices=PARTS, action="append", help="run only this part (may be repeated)")
    options = parser.parse_args()
    table = Table()
    start = time.perf_counter()
    for index, name in enumerate(PARTS):
        if not options.only or name in options.only:
            PARTS[name](table, np.random.default_rng([options.seed, index]), options.decisions)
    missed = [figure for figure in table.figures if not figure.holds]
    goals = sum(figure.goal is not None for figure in table.figures)
    print(f"\n{goals - len(missed)} of {goals} goals hold; {options.decisions} decisions a cell.")
    for figure in missed:
        print(
            f"MISSED: {figure.section}: {figure.what}: {figure.bound or figure.value:.4g} for {figure.goal:g}"
        )
    if options.json:
        options.json.write_text(
            json.dumps([asdict(figure) for figure in table.figures], indent=1) + "\n", encoding="utf-8"
        )
    print(
        f"{time.perf_counter() - start:.0f} s; screen of {SCREEN} pairs; looks {DESIGN.looks}",
        file=sys.stderr,
    )
    return len(missed)


if __name__ == "__main__":
    sys.exit(main())
