"""Pairs that anybody measured, with any harness, read from a file: CSV, or JSON lines with the same keys.

One row is one value. Rows of one session, metric, setting, pair and side are one sample: one row for a
scalar, a row for each size of a curve. Every mistake is told by file, line and column; no row is left aside.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Collection, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from virtqual.errors import UsageError
from virtqual.files.datafile import DataError, Problem
from virtqual.files.records import read_record_text
from virtqual.files.wording import suggest
from virtqual.references.metrics import Metric
from virtqual.verdict.pairs import SIDES, Sample, Series, pair_up

COLUMNS = (
    "session",
    "metric",
    "setting",
    "size",
    "unit",
    "better",
    "pair",
    "side",
    "value",
    "start",
    "end",
    "node",
    "host",
    "boot",
)
#: What a row may leave empty, and a line of JSON leave out.
OPTIONAL = ("size", "start", "end", "node", "host", "boot")
DIRECTIONS = ("lower", "higher")

#: So many mistakes are told; of the others only their number is.
SHOWN = 20
#: After so many rows whoever waits is told.
EVERY = 20_000
#: Digits of the largest pair number.
_DIGITS = 9
#: Sessions of one file at most: a thousand of them are judged in about three seconds.
MAX_SESSIONS = 10_000
#: The least and the largest amount of a value, in any unit: ratios of such values are numbers.
SMALLEST, LARGEST = 1e-100, 1e100
#: The largest time, s: in the year 5138. Milliseconds since 1970 are beyond it.
MAX_TIME_S = 1e11
#: Characters of a message at most, which may repeat a field of the file.
MAX_MESSAGE_CHARS = 400

_Number = float | None


class _Labels(NamedTuple):
    """When and where one run was: common to all rows of a sample."""

    start: _Number
    end: _Number
    node: str
    host: str
    boot: str


class _Run(NamedTuple):
    """One sample as far as it was read: its values by size, which is None for a scalar."""

    line: int
    labels: _Labels
    values: dict[_Number, float]

    @property
    def sizes(self) -> tuple[float, ...]:
        """Its sizes, rising."""
        return tuple(sorted(size for size in self.values if size is not None))


@dataclass(eq=False, slots=True)
class FileSeries:
    """One series of a file.

    Attributes
    ----------
    line
        Where it is named first.
    session, metric, setting, unit, better
        As the file says.
    curve
        Whether its rows have sizes.
    runs
        By twice the pair number, plus 1 for the virtual side.
    """

    line: int
    session: str
    metric: str
    setting: str
    unit: str
    better: str
    curve: bool
    runs: dict[int, _Run] = field(default_factory=dict)

    @property
    def points(self) -> tuple[float, ...]:
        """The sizes of its first sample."""
        return next(iter(self.runs.values())).sizes if self.curve else ()

    def series(self, metric: Metric) -> Series:
        """Return it as pairs, and forget its rows.

        Raises
        ------
        PairingError
            See `virtqual.verdict.pairs.pair_up`.
        """
        points, runs = self.points, self.runs
        self.runs = {}
        return pair_up(metric, self.setting, points, [_sample(key, run) for key, run in runs.items()])


def _sample(key: int, run: _Run) -> Sample:
    labels, side = run.labels, SIDES[key % 2]
    # A node that is no virtual machine is a host itself.
    host = labels.host or (labels.node if side == "native" else "")
    values = run.values
    if len(values) > 1:
        values = dict(sorted(values.items()))
    return Sample(
        side,
        key // 2,
        tuple(values.values()),
        math.nan if labels.start is None else labels.start,
        math.nan if labels.end is None else labels.end,
        node=labels.node,
        host=host,
        boot=labels.boot if side == "virtual" else "",
    )


def read(file: Path, progress: Callable[[int], None] = lambda rows: None) -> dict[str, list[FileSeries]]:
    """Read a file of measured pairs.

    Parameters
    ----------
    file
        CSV with the header `COLUMNS` in any order, or JSON lines with these keys; UTF-8. A pipe will do.
    progress
        Is told now and then how many rows were read.

    Returns
    -------
    dict
        Series by session, both in the order in which the file names them first.

    Raises
    ------
    UsageError
        The file cannot be read, or is no text.
    DataError
        With file, line and column of the first `SHOWN` mistakes.
    """
    text = read_record_text(file, "table of pairs", pipes=True).removeprefix("\ufeff")
    if "\0" in text:
        raise UsageError(f"{file}: no table of pairs (a binary file: byte 0 is in it)")
    if not text.strip():
        raise UsageError(f"{file}: is empty: write {','.join(COLUMNS)} and a row for each value")
    reader = _Reader(str(file))
    rows = _json_rows if text.lstrip().startswith("{") else _csv_rows
    for count, (line, cells) in enumerate(rows(text, reader.problem), start=1):
        reader.row(line, cells)
        if count % EVERY == 0:
            progress(count)
    return reader.sessions()


_Complain = Callable[[int, str, str], None]
_Row = tuple[int, Sequence[str]]


def _lines(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        stop = text.find("\n", start) + 1 or len(text)
        yield text[start:stop]
        start = stop


def _csv_rows(text: str, problem: _Complain) -> Iterator[_Row]:
    reader = csv.reader(_lines(text), strict=True, skipinitialspace=True)
    order: list[int] = []
    line = 1
    try:
        for row in reader:
            line, first = reader.line_num + 1, line
            if not row:
                continue
            if not order:
                order = _header(first, [name.strip() for name in row], problem)
                if not order:
                    return
            elif len(row) != len(COLUMNS):
                told = f"has {len(row)} fields, the header {len(COLUMNS)}: quote a field that has a comma."
                problem(first, "", told)
            else:
                yield first, [row[index].strip() for index in order]
    except csv.Error as error:
        problem(line, "", f"is no CSV: {error}.")


def _header(line: int, names: list[str], problem: _Complain) -> list[int]:
    """Return where each of `COLUMNS` stands; nothing where a header has mistakes, which are told."""
    if _too_many(line, names, problem):
        return []
    wrong = False
    for name in dict.fromkeys(names):
        if name not in COLUMNS:
            wrong = True
            problem(line, name, f"is no column of this file: {suggest(name, COLUMNS)}")
        elif names.count(name) > 1:
            wrong = True
            problem(line, name, "stands twice in the header: remove one.")
    for name in COLUMNS:
        if name not in names:
            wrong = True
            may = "; its fields may be empty" if name in OPTIONAL else ""
            problem(line, name, f"is missing in the header: add this column{may}.")
    return [] if wrong else [names.index(name) for name in COLUMNS]


def _too_many(line: int, names: Sized, problem: _Complain) -> bool:
    """Return whether a row has so many fields that none of their names is looked at."""
    if len(names) <= 10 * len(COLUMNS):
        return False
    problem(line, "", f"has {len(names)} fields: a row has {len(COLUMNS)}.")
    return True


class _KeyTwiceError(ValueError):
    """A JSON object that has a key twice, of which `json` keeps the last."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object of which each key stands once."""
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise _KeyTwiceError(next(name for name in content if names.count(name) > 1))
    return content


def _json_rows(text: str, problem: _Complain) -> Iterator[_Row]:
    for line, content in enumerate(_lines(text), start=1):
        if not content.strip():
            continue
        try:
            found = json.loads(content, object_pairs_hook=_unique)
        except _KeyTwiceError as error:
            problem(line, str(error), "stands twice in this line: remove one.")
            continue
        except (ValueError, RecursionError) as error:
            problem(line, "", f"is no JSON: {getattr(error, 'msg', 'a number or nesting is too large')}.")
            continue
        if not isinstance(found, dict):
            problem(line, "", "is no JSON object: write one object with the keys of a row on each line.")
            continue
        cells = _cells(line, found, problem)
        if cells:
            yield line, cells


def _cells(line: int, found: dict[str, Any], problem: _Complain) -> list[str]:
    """Return the fields of a JSON object in the order of `COLUMNS`, as a CSV file would have them."""
    if _too_many(line, found, problem):
        return []
    wrong = False
    for name, value in found.items():
        if name not in COLUMNS:
            wrong = True
            problem(line, name, f"is no key of a row: {suggest(name, COLUMNS)}")
        elif isinstance(value, bool | dict | list):
            wrong = True
            problem(line, name, f"is {json.dumps(value)[:40]}: write text, a number or null.")
    for name in COLUMNS:
        if name not in found and name not in OPTIONAL:
            wrong = True
            problem(line, name, "is missing: add this key.")
    if wrong:
        return []
    values = map(found.get, COLUMNS)
    return [v.strip() if isinstance(v, str) else "" if v is None else repr(v) for v in values]


class _Reader:
    """Takes rows one by one, and collects what is wrong with them."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._series: dict[tuple[str, str, str], FileSeries] = {}
        self._metrics: dict[str, FileSeries] = {}
        self._sessions: dict[str, None] = {}
        self._problems: list[Problem] = []
        self._mistakes = 0
        self._kept: dict[str, str] = {}

    def problem(self, line: int, column: str, message: str) -> None:
        """Note a mistake."""
        self._mistakes += 1
        if len(self._problems) < SHOWN:
            message = message if len(message) <= MAX_MESSAGE_CHARS else f"{message[:MAX_MESSAGE_CHARS]} ..."
            self._problems.append(Problem(self._file, line, column[:60], message))

    def row(self, line: int, cells: Sequence[str]) -> None:
        """Take one row, its fields in the order of `COLUMNS`."""
        session, metric, setting, size, unit, better, pair, side, value, start, end, node, host, boot = cells
        before = self._mistakes
        series = self._series.get((session, metric, setting))
        if series is None or series.unit != unit or series.better != better or series.curve != bool(size):
            series = self._named(line, session, metric, setting, size, unit, better)
        number = self._pair(line, pair)
        if side not in SIDES:
            self.problem(line, "side", f"is {side!r}: write native or virtual.")
        labels = _Labels(
            self._time(line, "start", start), self._time(line, "end", end),
            self._same(node), self._same(host), self._same(boot),
        )  # fmt: skip
        measured = self._value(line, value)
        point = self._size(line, size) if size else None
        if series is None or self._mistakes > before:
            return
        key = 2 * number + (side == "virtual")
        run = series.runs.get(key)
        if run is None:
            series.runs[key] = _Run(line, labels, {point: measured})
        else:
            self._more(line, run, labels, point, measured, f"{side} run of pair {number}")

    def _more(
        self, line: int, run: _Run, labels: _Labels, point: _Number, measured: float, what: str
    ) -> None:
        """Take one more row of a sample."""
        if point in run.values:
            at = "" if point is None else f" at size {point:g}"
            column = "pair" if point is None else "size"
            self.problem(
                line, column, f"the {what} has a value{at} already, in line {run.line}: remove one row."
            )
            return
        for column, mine, theirs in zip(labels._fields, labels, run.labels, strict=True):
            if mine != theirs:
                self.problem(
                    line,
                    column,
                    f"is {_shown(mine)}, and {_shown(theirs)} in line {run.line}: the rows of one run (the "
                    f"{what}) have one start, end, node, host and boot.",
                )
        run.values[point] = measured

    def _named(
        self, line: int, session: str, metric: str, setting: str, size: str, unit: str, better: str
    ) -> FileSeries | None:
        """Return the series of a row that is the first one of its series, or does not agree with it."""
        before = self._mistakes
        for column, text in zip(
            ("session", "metric", "setting", "unit"), (session, metric, setting, unit), strict=True
        ):
            if not text:
                self.problem(line, column, "is empty: fill it in.")
        if "@" in metric:
            self.problem(line, "metric", f"is {metric!r}: a name has no @, which stands before its setting.")
        if better not in DIRECTIONS:
            self.problem(line, "better", f"is {better!r}: write lower (for a time) or higher (for a rate).")
        if self._mistakes > before:
            return None
        made = FileSeries(line, session, metric, setting, unit, better, bool(size))
        other = self._metrics.setdefault(metric, made)
        if other.curve != made.curve:
            this, that = ("has a size", "none") if made.curve else ("has no size", "one")
            self.problem(
                line, "size",
                f"{metric} {this} here and {that} in line {other.line}: a metric is a scalar, without sizes, "
                "or a curve, with one in each row.",
            )  # fmt: skip
        self._sessions.setdefault(session)
        if len(self._sessions) > MAX_SESSIONS:
            message = f"is one of more than {MAX_SESSIONS} sessions: split the file."
            raise DataError([*self._problems, Problem(self._file, line, "session", message)])
        series = self._series.setdefault((session, metric, setting), made)
        for column in ("unit", "better"):
            mine, theirs = getattr(made, column), getattr(series, column)
            if mine != theirs:
                self.problem(
                    line,
                    column,
                    f"is {mine!r}, and {theirs!r} in line {series.line}: a series has one {column}.",
                )
        return series

    def _same(self, text: str) -> str:
        """Return an equal text that is kept once: a file names a node a hundred thousand times."""
        return self._kept.setdefault(text, text)

    def _pair(self, line: int, text: str) -> int:
        if text.isdecimal() and text.isascii() and len(text) <= _DIGITS:
            return int(text)
        self.problem(line, "pair", f"is {text!r}: write a whole number from 0, one for both runs of a pair.")
        return 0

    def _value(self, line: int, text: str) -> float:
        try:
            value = float(text) if "_" not in text else float("x")
        except ValueError:
            self.problem(line, "value", f"is {text!r}: write a number, or nan where a run gave none.")
            return math.nan
        if math.isfinite(value) and value != 0 and not SMALLEST <= abs(value) <= LARGEST:
            self.problem(
                line, "value", f"is {text!r}, beyond {SMALLEST:g} to {LARGEST:g}: write it in another unit."
            )
        return value

    def _time(self, line: int, column: str, text: str) -> _Number:
        if not text:
            return None
        value = _finite(text)
        if value is None or abs(value) > MAX_TIME_S:
            self.problem(
                line,
                column,
                f"is {text!r}: write seconds as a number, below {MAX_TIME_S:g}, or leave it empty.",
            )
        return value

    def _size(self, line: int, text: str) -> float:
        value = _finite(text)
        if value is None or value < 0:
            self.problem(line, "size", f"is {text!r}: write a number from 0, or leave it empty for a scalar.")
            return 0.0
        return value

    def sessions(self) -> dict[str, list[FileSeries]]:
        """Return what was read.

        Raises
        ------
        DataError
            Where there was a mistake.
        """
        for series in self._series.values():
            if series.curve and not self._mistakes:
                self._check_sizes(series)
        if not self._series and not self._mistakes:
            self.problem(1, "", "has a header and no row.")
        if self._problems:
            raise _error(self._file, self._problems, self._mistakes)
        found: dict[str, list[FileSeries]] = {}
        for series in self._series.values():
            found.setdefault(series.session, []).append(series)
        return found

    def _check_sizes(self, series: FileSeries) -> None:
        (first, one), *others = series.runs.items()
        for key, other in others:
            if other.values.keys() != one.values.keys():
                here, there = (", ".join(f"{size:g}" for size in run.sizes) for run in (other, one))
                self.problem(
                    other.line, "size",
                    f"the {SIDES[key % 2]} run of pair {key // 2} has the sizes {here}; the "
                    f"{SIDES[first % 2]} run of pair {first // 2} in line {one.line} has {there}: all runs "
                    "of a series have the same.",
                )  # fmt: skip


def _shown(value: _Number | str) -> str:
    return "empty" if value in (None, "") else repr(value)


def _finite(text: str) -> _Number:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None


def _error(file: str, problems: Collection[Problem], mistakes: int) -> DataError:
    error = DataError(problems)
    if mistakes > len(problems):
        error.args = (f"{error.args[0]}\n{file}: {mistakes - len(problems)} more mistakes like these",)
    return error
