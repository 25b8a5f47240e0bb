"""The metrics of a command: patterns that are searched in its output, and readers of known programs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import BaseModel

from virtqual.errors import UsageError
from virtqual.files.wording import suggest
from virtqual.programs.text import OutputError, single
from virtqual.verdict.notation import Direction

#: Units of which it is known which way is better.
_TIMES = frozenset(["s", "sec", "seconds", "ms", "us", "µs", "ns", "min", "h"])


class AskedMetric(BaseModel, extra="forbid", frozen=True):
    """A metric that a pattern finds in the output."""

    name: str
    #: A regular expression with one group around the number.
    pattern: str
    unit: str
    better: Direction

    def write(self) -> str:
        """Return it as --metric states it."""
        return self.pattern if split_name(self.pattern)[0] == self.name else f"{self.name}={self.pattern}"


class SeriesKey(NamedTuple):
    """What the rows of one series have in common."""

    metric: str
    #: Empty if it has none of its own.
    setting: str
    unit: str
    better: Direction


#: The values of a run by series and size; the size of a scalar is None.
Values = dict[SeriesKey, dict[float | None, float]]

WALL_TIME = SeriesKey("wall time", "", "s", "lower")


class UnreadError(Exception):
    """An output lacks a value, or has it in another form; the text says which."""


@dataclass(frozen=True)
class Output:
    """What a command printed."""

    stdout: str
    stderr: str


def parse_metrics(
    metrics: Sequence[str], units: Sequence[str], betters: Sequence[str]
) -> tuple[AskedMetric, ...]:
    """Return the metrics that --metric, --unit and --better state together.

    Raises
    ------
    UsageError
        They do not fit together, or a pattern is wrong.
    """
    if not metrics and (units or betters):
        given = "--unit" if units else "--better"
        raise UsageError(f"{given} goes with --metric, such as --metric 'Triad: +(\\S+)' --unit MB/s")
    units = _spread("--unit", units, len(metrics))
    betters = _spread("--better", betters, len(metrics))
    asked = []
    for index, text in enumerate(metrics):
        name, pattern = split_name(text)
        _check_pattern(text, pattern)
        if not units:
            raise UsageError(
                f"--metric '{text}' needs the unit of its number: add --unit, such as --unit MB/s"
            )
        unit = units[index].strip()
        better = betters[index] if betters else _guess_better(unit, text)
        if better not in ("lower", "higher"):
            raise UsageError(f"--better {better}: write lower (for a time) or higher (for a rate)")
        asked.append(AskedMetric(name=name, pattern=pattern, unit=unit, better=better))
    names = [metric.name for metric in asked]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(
            f"two metrics are called {twice[0]!r}: name them, such as --metric 'first=...(\\S+)'"
        )
    return tuple(asked)


def _spread(option: str, values: Sequence[str], count: int) -> list[str]:
    """Return one value for each metric: one is for all."""
    if any(not value.strip() for value in values):
        raise UsageError(f"{option} is empty")
    if len(values) in (0, count):
        return [*values]
    if len(values) == 1:
        return [*values] * count
    raise UsageError(
        f"{len(values)} times {option} for {count} times --metric: state it once for all, or once for each "
        "in the same order"
    )


def split_name(text: str) -> tuple[str, str]:
    r"""Return the name and the pattern of NAME=PATTERN, or of a pattern alone.

    What comes before ``=`` is only a name if the rest says by itself where to look: it has letters or digits
    before its group, or begins with ``^`` or ``.``.

    Examples
    --------
    >>> split_name(r"triad=Triad: +(\S+)"), split_name(r"Triad: +(\S+)")
    (('triad', 'Triad: +(\\S+)'), ('Triad', 'Triad: +(\\S+)'))
    >>> split_name(r"bw=(\d+)MiB/s"), split_name(r"gflops=^(\S+)$"), split_name(r"(\d+)")
    (('bw MiB s', 'bw=(\\d+)MiB/s'), ('gflops', '^(\\S+)$'), ('value', '(\\d+)'))
    """
    match = re.fullmatch(r"([A-Za-z_][\w.-]*)=(.+)", text, re.DOTALL)
    if match and (match[2][0] in "^." or _list_words(match[2].partition("(")[0])):
        return match[1], match[2]
    return " ".join(_list_words(text)[:3]) or "value", text


def _list_words(pattern: str) -> list[str]:
    """Return the words that a pattern has outside of its groups and classes."""
    plain = re.sub(r"\\[^\w\s]", " ", pattern)
    plain = re.sub(r"\\.|\[[^\]]*\]|\([^()]*\)|\{[^}]*\}", " ", plain)
    return re.findall(r"[^\W\d_][\w-]*|\d[\w-]*", plain)


def _check_pattern(text: str, pattern: str) -> None:
    try:
        groups = re.compile(pattern, re.MULTILINE).groups
    except re.error as error:
        raise UsageError(f"--metric '{text}' is not a regular expression: {error}") from None
    if groups != 1:
        number = "no group" if groups == 0 else f"{groups} groups"
        more = "" if groups == 0 else "; write (?:...) for groups that are not the number"
        raise UsageError(
            f"--metric '{text}' has {number}: put parentheses around the number alone, such as "
            f"'Triad: +(\\S+)'{more}"
        )


def _guess_better(unit: str, text: str) -> str:
    if unit.endswith(("/s", "/sec")) or re.fullmatch(r"[kMGTP]?(flops?|FLOPS?|Flops?|bit/s|ips)", unit):
        return "higher"
    if unit in _TIMES:
        return "lower"
    raise UsageError(
        f"--metric '{text}' in {unit}: add --better lower (for a time) or --better higher (for a rate)"
    )


def read_values(output: Output, metrics: Sequence[AskedMetric], readers: Sequence[str]) -> Values:
    """Return what the metrics and readers find in an output.

    Raises
    ------
    UnreadError
        A value is missing, appears more than once, or is not a positive number.
    """
    values: Values = {}
    for metric in metrics:
        key = SeriesKey(metric.name, "", metric.unit, metric.better)
        values[key] = {None: _find_number(output, metric)}
    for reader in readers:
        values |= _read_by_name(output, reader)
    return values


def _find_number(output: Output, metric: AskedMetric) -> float:
    # Both streams are searched: many programs print their times on standard error.
    text = f"{output.stdout}\n{output.stderr}"
    try:
        found = single(metric.name, metric.pattern, text, f"match of '{metric.pattern}'")[1]
    except OutputError as error:
        raise UnreadError(str(error).replace(" output: ", ": ", 1)) from None
    try:
        value = float((found or "").replace("D", "E") if re.search(r"\d", found or "") else "none")
    except ValueError:
        raise UnreadError(f"{metric.name}: '{metric.pattern}' finds {found!r}, not a number") from None
    if not (math.isfinite(value) and value > 0):
        raise UnreadError(f"{metric.name} is {found}, not a positive number")
    return value


def _read_by_name(output: Output, name: str) -> Values:
    from virtqual.programs.readers import read_output

    try:
        readings = read_output(output.stdout, name)
    except OutputError as error:
        raise UnreadError(str(error)) from None
    if not readings:
        raise UnreadError(f"{name}: the output has no values")
    values: Values = {}
    for reading in readings:
        key = SeriesKey(reading.metric, reading.setting, reading.unit, reading.better)
        values[key] = dict(reading.values)
    return values


def check_readers(names: Sequence[str]) -> None:
    """Raise a `UsageError` for a reader that does not exist."""
    if not names:
        return
    from virtqual.programs.readers import READERS

    for name in names:
        if name not in READERS:
            raise UsageError(f"--reader {name}: there is no such reader: {suggest(name, READERS)}")
