"""What virtqual's rule promises, on real series; and the same figures for the rules of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import real_data
from other_rules import FROM_TWO, RULES, Rule
from scipy import stats

import sessions as draw
from virtqual.verdict.estimate import Floats
from virtqual.verdict.outcome import Outcome

CLEAN = np.zeros(real_data.METRICS)
AT_BUDGET = draw.overheads(real_data.METRICS, draw.BUDGET, draw.BUDGET)
BETWEEN = draw.overheads(real_data.METRICS, *[draw.BUDGET + 0.02] * 2)
AT_MARGIN = draw.overheads(real_data.METRICS, *[draw.BUDGET + draw.MARGIN] * 2)
ONE_OVER = draw.overheads(real_data.METRICS, draw.BUDGET + 0.05)


HEADINGS = (
    "rule",
    "false OVER of 11, all at the budget",
    "budget + margin passes from 4 pairs",
    "from 2",
    "clean: WITHIN, in pairs",
    "clean: sessions with an OVER",
    "budget + 2 %: WITHIN, OVER",
    "budget + 5 %: found, in pairs",
)


class Table(Protocol):
    """What prints the figures: that of `run.py`."""

    sessions: int
    rng: draw.Rng
    begin: Callable[[str], None]
    rate: Callable[..., None]
    mean: Callable[..., None]


class Measured(NamedTuple):
    """What a rule answers in sessions of one data set, each an array.

    Attributes
    ----------
    false_over
        Sessions with an OVER though every metric is at the budget.
    passed, passed_from_2
        Metrics at budget + margin that are WITHIN, from four and from two pairs on.
    clean, pairs, rejected
        Metrics without an overhead that are WITHIN, the pairs they take; sessions of them with an OVER.
    between
        Outcomes of metrics at budget + 2 %.
    found, found_pairs
        Sessions whose one metric at budget + 5 % is OVER; the pairs it takes.
    """

    false_over: np.ndarray
    passed: np.ndarray
    passed_from_2: np.ndarray
    clean: np.ndarray
    pairs: np.ndarray
    rejected: np.ndarray
    between: np.ndarray
    found: np.ndarray
    found_pairs: np.ndarray


def measure(rule: Rule, from_two: Rule, sessions: real_data.Sessions) -> Measured:
    clean, one_over = rule(sessions, CLEAN), rule(sessions, ONE_OVER)
    passed, passed_from_2 = (how(sessions, AT_MARGIN).outcome == Outcome.WITHIN for how in (rule, from_two))
    return Measured(
        np.any(rule(sessions, AT_BUDGET).outcome == Outcome.OVER, axis=1),
        passed.ravel(),
        passed_from_2.ravel(),
        (clean.outcome == Outcome.WITHIN).ravel(),
        clean.pairs.ravel(),
        np.any(clean.outcome == Outcome.OVER, axis=1),
        rule(sessions, BETWEEN).outcome.ravel(),
        one_over.outcome[:, 0] == Outcome.OVER,
        one_over.pairs[:, 0],
    )


def virtqual(
    sessions: real_data.Sessions, overhead: Floats, *, noise: str = "recorded", min_pairs: int = 4
) -> draw.Simulated:
    return sessions.with_overhead(overhead, getattr(sessions, noise)).judged(min_pairs=min_pairs)


def all_rules() -> dict[str, tuple[Rule, Rule]]:
    """Return each rule, and the one that may pass a metric after two pairs."""
    own = {
        f"virtqual, noise {noise}": (
            partial(virtqual, noise=noise),
            partial(virtqual, noise=noise, min_pairs=2),
        )
        for noise in ("recorded", "stated")
    }
    return own | {name: (rule, FROM_TWO.get(name, rule)) for name, rule in RULES.items()}


def compare_rules(table: Table, directory: Path) -> None:
    """Print the figures of each data set, and a table of all."""
    columns: list[dict[str, Measured]] = []
    names = []
    for data_set in real_data.read_data_sets(directory):
        chunks = [data_set.draw(table.rng, n) for n in draw.chunks(table.sessions // 2, real_data.METRICS)]
        table.begin(f"{data_set.name}: 11 metrics, {data_set.independent} independent sessions")
        measured = {}
        for words, rules in all_rules().items():
            parts = [measure(*rules, sessions) for sessions in chunks]
            measured[words] = Measured(*(np.concatenate(values) for values in zip(*parts, strict=True)))
            _print_figures(table, words, measured[words])
        columns.append(measured)
        names.append(data_set.name)
    print(f"\n### {'; '.join(names)}: all in per cent, with upper 95 % bounds\n")
    print(f"| {' | '.join(HEADINGS)} |\n{'|---' * len(HEADINGS)}|")
    for words in all_rules():
        print(_format_row(words, [measured[words] for measured in columns]))


def _print_figures(table: Table, words: str, measured: Measured) -> None:
    false_over, passes = (0.01, 0.05) if words.startswith("virtqual") else (None, None)
    table.rate(f"{words}: false OVER", measured.false_over, false_over)
    table.rate(f"{words}: budget + margin passes from 4", measured.passed, passes)
    table.rate(f"{words}: budget + margin passes from 2", measured.passed_from_2, passes)
    table.rate(f"{words}: clean WITHIN", measured.clean, least=True)
    table.mean(f"{words}: clean, pairs", measured.pairs)
    table.rate(f"{words}: clean, sessions with an OVER", measured.rejected)
    for outcome in (Outcome.WITHIN, Outcome.OVER):
        table.rate(f"{words}: budget + 2 % {outcome.name}", measured.between == outcome)
    table.rate(f"{words}: budget + 5 % found", measured.found, least=True)
    table.mean(f"{words}: budget + 5 %, pairs", measured.found_pairs)


def _format_row(words: str, measured: Sequence[Measured]) -> str:
    can_pass_early = any(np.any(one.passed != one.passed_from_2) for one in measured)
    columns = [
        [_with_bound(one.false_over) for one in measured],
        [_with_bound(one.passed) for one in measured],
        [_with_bound(one.passed_from_2) for one in measured] if can_pass_early else ["the same"],
        [f"{100 * one.clean.mean():.1f} in {one.pairs.mean():.1f}" for one in measured],
        [_with_bound(one.rejected) for one in measured],
        [_shares(one.between, Outcome.WITHIN, Outcome.OVER) for one in measured],
        [f"{100 * one.found.mean():.0f} in {one.found_pairs.mean():.1f}" for one in measured],
    ]
    return f"| {words} | {' | '.join('; '.join(column) for column in columns)} |"


def _shares(outcomes: np.ndarray, *counted: Outcome) -> str:
    return ", ".join(f"{100 * np.mean(outcomes == outcome):.0f}" for outcome in counted)


def _with_bound(hits: np.ndarray) -> str:
    """Return a rate and its exact upper 95 % bound in per cent; without one from 10 % on."""
    count, total = int(np.sum(hits)), int(np.size(hits))
    high = float(stats.beta.ppf(0.95, count + 1, total - count)) if count < total else 1.0
    rate = 100 * count / total
    return f"{rate:.2g} ({100 * high:.2g})" if rate < 10 else f"{rate:.0f}"
