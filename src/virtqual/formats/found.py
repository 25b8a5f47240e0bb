"""Runs as a file has them, before it is known which side they belong to."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from virtqual.errors import UsageError
from virtqual.verdict.notation import Direction
from virtqual.verdict.pairs import Side

_TIME_UNITS = frozenset(
    [
        "s",
        "sec",
        "secs",
        "second",
        "seconds",
        "ms",
        "msec",
        "us",
        "usec",
        "µs",
        "ns",
        "nsec",
        "min",
        "minute",
        "minutes",
        "h",
        "hour",
        "hours",
        "d",
        "day",
        "days",
    ]
)
_RATE = re.compile(
    r"(?i)/ ?(?:s|sec|secs|second|seconds|h|hour|day|d|min)\b|flops?\b|\b[kmgt]?i?bps\b|\bi?ops\b|per "
    r"(?:s|day)"
    r"|\b[kmgtp]flop|\b(?:mups|gups|teps|lups|fps|rps|qps|tps|ns/day)\b"
)


@dataclass(frozen=True)
class Wanted:
    """What the options say where a file does not: empty for nothing."""

    metric: str = ""
    unit: str = ""
    better: str = ""
    #: Names of the reference and the candidate.
    sides: tuple[str, str] = ("", "")


@dataclass(slots=True)
class FoundRun:
    """A value, or the values by size, that one run gave for one metric.

    Attributes
    ----------
    labels
        What tells runs of a file apart, such as its command; the first ones name a side.
    values
        By size; a scalar has the size None, and a lost run is not a number.
    parameters
        Numbers that may say what was measured, such as a size, or be measured as well.
    start, end
        Seconds since 1970; NaN if unknown.
    number
        Of the pair; None if the file has none.
    has_made_times
        The times stand for the order that the file states.
    """

    line: int
    metric: str
    unit: str
    values: dict[float | None, float]
    labels: dict[str, str] = field(default_factory=dict)
    better: Direction | None = None
    side: Side | None = None
    start: float = math.nan
    end: float = math.nan
    number: int | None = None
    node: str = ""
    host: str = ""
    boot: str = ""
    axis_unit: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    has_made_times: bool = False


@dataclass(frozen=True)
class Found:
    """The runs of a file.

    Attributes
    ----------
    kind
        The format, in words.
    sides
        Names of the labels that may name a side, the most likely first.
    why_not_in_turns
        What the format does not have, or how its program runs: why nothing shows that runs took turns.
    are_pairs
        The file itself says that rows are pairs and which side ran first.
    notes
        What was chosen or left out.
    are_blocks
        The program runs all of one side, then all of the other, so `--paired` is refused.
    has_chosen_metric
        `Wanted.metric` chose a column, whose name may have the unit as well.
    """

    kind: str
    runs: Sequence[FoundRun]
    sides: tuple[str, ...] = ()
    why_not_in_turns: str = ""
    are_pairs: bool = False
    notes: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    are_blocks: bool = False
    has_chosen_metric: bool = False

    @property
    def described(self) -> str:
        """The format in words that follow the name of the file."""
        return f"{'holds' if self.kind.startswith('output') else 'is'} {self.kind}"


def guess_better(unit: str) -> Direction | None:
    """Return whether less or more of a unit is better; None if its name does not tell.

    Examples
    --------
    >>> guess_better("ms"), guess_better("MB/s"), guess_better("Gflop/s"), guess_better("iterations")
    ('lower', 'higher', 'higher', None)
    """
    if _RATE.search(unit):
        return "higher"
    return "lower" if unit.strip().lower() in _TIME_UNITS else None


def choose_better(file: str, metric: str, unit: str, wanted: Wanted) -> Direction:
    """Return the direction of a metric, by the option or else by its unit.

    Raises
    ------
    UsageError
        The unit does not tell.
    """
    chosen = wanted.better or guess_better(unit)
    if chosen == "lower":
        return "lower"
    if chosen == "higher":
        return "higher"
    shown = f"the unit {unit!r}" if unit else "a value without a unit"
    unit_option = "" if unit else "its unit, such as --unit ms or --unit MB/s; or "
    raise UsageError(
        f"{file}: {metric}: {shown} does not say what is better: add {unit_option}--better lower (a time) or "
        "--better higher (a rate)"
    )
