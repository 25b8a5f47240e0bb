"""Whether runs of both sides took turns, and which of them are pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from virtqual.errors import UsageError
from virtqual.session.measured import FileSeries
from virtqual.verdict.alternation import is_reversed
from virtqual.verdict.labels import Labels
from virtqual.verdict.pairs import SIDES, Side

#: In turns, at most this share of the runs has no neighbour of the other side.
MAX_ALONE_SHARE = 0.25
_SHORT_S = 0.25


class Timed(NamedTuple):
    """A run with what orders it."""

    start: float
    side: Side


def find_pairs(runs: Sequence[Timed]) -> list[tuple[int, int]] | None:
    """Return the indices of neighbours of different sides, in the order of time; None if runs took no turns.

    Examples
    --------
    >>> find_pairs([Timed(1, "native"), Timed(2, "virtual"), Timed(3, "virtual"), Timed(4, "native")])
    [(0, 1), (2, 3)]
    >>> find_pairs([Timed(1, "native"), Timed(2, "native"), Timed(3, "virtual"), Timed(4, "virtual")])
    """
    order = sorted(range(len(runs)), key=lambda index: runs[index].start)
    pairs, place = [], 0
    while place + 1 < len(order):
        first, second = order[place], order[place + 1]
        if runs[first].side == runs[second].side:
            place += 1
            continue
        pairs.append((first, second))
        place += 2
    alone = len(runs) - 2 * len(pairs)
    return pairs if pairs and alone <= MAX_ALONE_SHARE * len(runs) else None


def describe_block(runs: Sequence[Timed], labels: Labels) -> str:
    """Return that one side ran before the other; empty if it did not."""
    for side, other in (SIDES, SIDES[::-1]):
        own = [run.start for run in runs if run.side == side]
        others = [run.start for run in runs if run.side == other]
        if len(own) > 1 and len(others) > 1 and max(own) < min(others):
            return f"not in turns: all {labels.of(side)} runs came before all {labels.of(other)} runs"
    return ""


def check_turns(series: FileSeries, *, paired: bool) -> None:
    """Note why the numbered pairs of a series do not take turns; with `paired`, runs without times do.

    Raises
    ------
    UsageError
        `paired` is stated, and the times show that one side ran before the other.
    """
    runs = list(series.runs.values())
    untimed = [run for run in runs if any(math.isnan(_seconds(time)) for time in run.shared[:2])]
    if untimed and paired:
        for run in runs:
            run.shared = (*make_times(run.pair, run.side), *run.shared[2:])
        series.has_made_times = True
    elif untimed:
        series.not_in_turns = "the runs have no start and end times, so nothing shows that they took turns"
    else:
        timed = [Timed(_seconds(run.shared[0]), run.side) for run in runs]
        series.not_in_turns = describe_block(timed, series.labels)
        if paired and series.not_in_turns:
            raise refuse_paired(f"its times say: {series.not_in_turns}")


def refuse_paired(why: str) -> UsageError:
    """Return the error about turns that were stated and did not happen."""
    return UsageError(
        f"--paired states that both sides ran in turns, and they did not: {why}. Leave --paired out for an "
        "estimate, or measure in turns (virtqual pair)"
    )


def make_times(pair: int, side: Side) -> tuple[float, float]:
    """Return times that runs of a pair have if sides take turns in the standard order."""
    is_second = (side == "virtual") != is_reversed(pair)
    start = 2.0 * pair + is_second
    return start, start + _SHORT_S


def _seconds(time: float | None) -> float:
    return math.nan if time is None else time
