"""Files of measured pairs from any harness: CSV, or JSON lines with the same keys.

A row is one value. The rows of one run have a value each for the sizes of a curve. A mistake is an error with
file, line and column, and no row is left out.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from virtqual.errors import UsageError
from virtqual.files.datafile import DataError, Problem, Text
from virtqual.files.records import read_record_text
from virtqual.files.times import read_time
from virtqual.files.wording import suggest
from virtqual.verdict.estimate import Floats
from virtqual.verdict.labels import NATIVE_AND_VIRTUAL, REFERENCE_AND_CANDIDATE, Labels
from virtqual.verdict.metric import Metric, NotNegative
from virtqual.verdict.notation import Direction
from virtqual.verdict.pairs import Sample, Series, Side, pair_up

MAX_MISTAKES_SHOWN = 20
PROGRESS_ROWS = 20_000
#: A thousand sessions are judged in about three seconds.
MAX_SESSIONS = 10_000
#: Ratios of such amounts are numbers, in any unit.
MIN_AMOUNT, MAX_AMOUNT = 1e-100, 1e100
#: The year 5138.
MAX_TIME_S = 1e11
#: A message repeats a field of the file.
MAX_MESSAGE_CHARS = 400


def _refuse_python_number(value: object) -> object:
    """Refuse numbers of Python that are none in files: true, and 1_000."""
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):
        raise ValueError
    return value


def _check_amount(value: float) -> float:
    if math.isfinite(value) and value != 0 and not MIN_AMOUNT <= abs(value) <= MAX_AMOUNT:
        raise ValueError
    return value


def _convert_time(value: object) -> object:
    """Return seconds since 1970 of milliseconds or of a date; anything else is checked as a number."""
    if isinstance(value, bool) or value is None:
        return value
    try:
        seconds = read_time(value)
    except (ValueError, OverflowError):
        return value
    return value if math.isnan(seconds) else seconds


def _name_side(value: object) -> object:
    """Return the side of the words for any comparison."""
    return (
        {"reference": "native", "candidate": "virtual"}.get(value, value) if isinstance(value, str) else value
    )


_Number = BeforeValidator(_refuse_python_number)
_TimeS = Annotated[float, Field(ge=-MAX_TIME_S, le=MAX_TIME_S, allow_inf_nan=False)]
_Time = Annotated[_TimeS | None, BeforeValidator(_convert_time), _Number]
_TIME_DESCRIPTION = (
    "seconds or milliseconds since 1970, or a date such as 2026-11-29T14:03:05Z (or leave it empty, and "
    "get no "
    "verdict)"
)
_NAME_DESCRIPTION = "a name, or leave it empty"


class SampleRow(BaseModel, extra="forbid", coerce_numbers_to_str=True):
    """A row of a file of pairs; the descriptions complete "write ..." in messages."""

    session: Text = Field(description="a name")
    metric: Annotated[Text, Field(pattern="^[^@]*$")] = Field(description="a name without @")
    setting: Text = Field(description="a name")
    size: Annotated[NotNegative | None, _Number] = Field(
        default=None, description="a number from 0, or leave it empty for a scalar"
    )
    unit: Text = Field(description="the unit of the values")
    better: Direction = Field(description="lower (for a time) or higher (for a rate)")
    pair: Annotated[int, _Number, Field(ge=0, lt=10**9)] = Field(
        description="a whole number from 0, one for both runs of a pair"
    )
    side: Annotated[Side, BeforeValidator(_name_side)] = Field(
        description="native or virtual, or reference or candidate"
    )
    value: Annotated[float, _Number, AfterValidator(_check_amount)] = Field(
        description=f"a number from {MIN_AMOUNT:g} to {MAX_AMOUNT:g} (in another unit if need be), or nan if "
        "the run gave none"
    )
    start: _Time = Field(default=None, description=_TIME_DESCRIPTION)
    end: _Time = Field(default=None, description=_TIME_DESCRIPTION)
    node: str | None = Field(default=None, description=_NAME_DESCRIPTION)
    host: str | None = Field(default=None, description=_NAME_DESCRIPTION)
    boot: str | None = Field(default=None, description=_NAME_DESCRIPTION)


COLUMNS = tuple(SampleRow.model_fields)
#: The columns that the rows of a run have in common.
RUN_COLUMNS = ("start", "end", "node", "host", "boot")


@dataclass(slots=True)
class FileRun:
    """A run: the line of its first row, the columns that its rows share, and its values by size."""

    line: int
    side: Side
    pair: int
    #: The values of `RUN_COLUMNS`.
    shared: tuple[float | None, float | None, str, str, str]
    #: A scalar has the size None.
    values: dict[float | None, float] = field(default_factory=dict)

    @classmethod
    def begin(cls, line: int, row: SampleRow) -> FileRun:
        """Return the run of a row, without its value."""
        # A native node is no virtual machine: it is its own host and has no boot.
        is_native, node = row.side == "native", row.node or ""
        host, boot = row.host or (node if is_native else ""), "" if is_native else row.boot or ""
        return cls(line, row.side, row.pair, (row.start, row.end, node, host, boot))

    @property
    def name(self) -> str:
        """The run in words."""
        return f"{self.side} run of pair {self.pair}"

    @property
    def sizes(self) -> tuple[float, ...]:
        """The sizes in rising order."""
        return tuple(sorted(size for size in self.values if size is not None))

    def make_sample(self) -> Sample:
        """Return the run as a sample."""
        start, end, node, host, boot = self.shared
        return Sample(
            self.side,
            self.pair,
            tuple(self.values[size] for size in self.sizes or (None,)),
            math.nan if start is None else start,
            math.nan if end is None else end,
            node=node,
            host=host,
            boot=boot,
        )


@dataclass(eq=False, slots=True)
class FileSeries:
    """A series of a file, with the line where it begins."""

    line: int
    metric: Metric
    setting: str
    runs: dict[tuple[int, Side], FileRun] = field(default_factory=dict)
    #: Why the runs did not take turns, or do not say so: they get an estimate. Empty if they are pairs.
    not_in_turns: str = ""
    #: The times of the runs stand for their order, as it was stated, and were not measured.
    has_made_times: bool = False
    labels: Labels = NATIVE_AND_VIRTUAL

    def values_of(self, side: Side) -> Floats:
        """Return the values of all runs of a side, shape (n_runs, n_points)."""
        runs = [run for run in self.runs.values() if run.side == side]
        rows = [[run.values[size] for size in run.sizes or (None,)] for run in runs]
        width = len(next(iter(self.runs.values())).values)
        return np.array(rows, dtype=float).reshape(-1, width)

    def pair_runs(self, metric: Metric) -> Series:
        """Return the runs as pairs, and forget them."""
        runs, self.runs = list(self.runs.values()), {}
        samples = [run.make_sample() for run in runs]
        return pair_up(metric, self.setting, runs[0].sizes, samples, labels=self.labels)


def read_series(
    file: Path, report_progress: Callable[[int], None] = lambda rows: None
) -> dict[str, list[FileSeries]]:
    """Return the series of a file by session, both in the order of the file.

    Parameters
    ----------
    file
        CSV with a header, or JSON lines; UTF-8. Pipes can be read.
    report_progress
        Is called with the number of rows, every `PROGRESS_ROWS` rows.

    Raises
    ------
    UsageError
        The file cannot be read, or is no text.
    DataError
        The file has mistakes; the first `MAX_MISTAKES_SHOWN` are shown with file, line and column, each once.
    """
    return read_series_of(str(file), read_table_text(file), report_progress)


def read_table_text(file: Path) -> str:
    """Return the text of a file or pipe; UsageError if it cannot be read, or is no text."""
    text = read_record_text(file, "table of pairs", pipes=True).removeprefix("\ufeff")
    if "\0" in text:
        raise UsageError(f"{file}: no table of pairs (a binary file: byte 0 is in it)")
    if not text.strip():
        raise UsageError(
            f"{file}: is empty: write a column for each side, such as native,virtual, and a row for each run"
        )
    return text


def read_series_of(
    file: str, text: str, report_progress: Callable[[int], None] = lambda rows: None
) -> dict[str, list[FileSeries]]:
    """Return the series in the text of a file; see `read_series`."""
    reader = _Reader(file)
    read_rows = reader.read_json if text.lstrip().startswith("{") else reader.read_csv
    for count, (line, cells) in enumerate(read_rows(io.StringIO(text, newline="")), start=1):
        reader.add(line, cells)
        if count % PROGRESS_ROWS == 0:
            report_progress(count)
    return reader.collect_series()


def _refuse_double_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; `json` would keep the last of two equal keys."""
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise KeyError(next(name for name in content if names.count(name) > 1))
    return content


class _Reader:
    """Collects rows into series, and the mistakes of the rows."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._series: dict[tuple[str, str, str], FileSeries] = {}
        self._first_series: dict[str, FileSeries] = {}
        self._sessions: dict[str, list[FileSeries]] = {}
        self._problems: list[Problem] = []
        self._mistakes = 0

    def _add_problem(self, line: int, column: str, message: str) -> None:
        self._mistakes += 1
        if len(message) > MAX_MESSAGE_CHARS:
            message = f"{message[:MAX_MESSAGE_CHARS]} ..."
        # The same mistake in each row is shown once.
        is_shown = any((problem.key, problem.message) == (column[:60], message) for problem in self._problems)
        if len(self._problems) < MAX_MISTAKES_SHOWN and not is_shown:
            self._problems.append(Problem(self._file, line, column[:60], message))

    def read_csv(self, lines: io.StringIO) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the line and the fields of each row of a CSV file."""
        rows = csv.DictReader(lines, strict=True, skipinitialspace=True)
        try:
            rows.fieldnames = [name.strip() for name in rows.fieldnames or ()]
            if not self._check_header(rows.line_num, rows.fieldnames):
                return
            for row in rows:
                if None in row or None in row.values():
                    count = sum(value is not None for value in row.values()) + len(row.get(None, [0])) - 1
                    message = f"has {count} fields, the header {len(rows.fieldnames)}: "
                    self._add_problem(rows.line_num, "", f"{message}quote a field that has a comma.")
                else:
                    yield rows.line_num, row
        except csv.Error as error:
            self._add_problem(rows.reader.line_num, "", f"is not CSV: {error}.")

    def _check_header(self, line: int, names: list[str]) -> bool:
        """Return whether a header has no mistakes, and note them."""
        if self._has_too_many_fields(line, len(names)):
            return False
        for separator, shown in ((";", ";"), ("\t", "tabs")):
            if len(names) == 1 and separator in names[0]:
                self._add_problem(line, "", f"fields are separated by {shown}: save the file with commas.")
                return False
        if not set(names) & set(COLUMNS):
            self._add_problem(line, "", f"has none of the columns of a table of pairs: {', '.join(COLUMNS)}.")
            return False
        for name in dict.fromkeys(names):
            if name not in COLUMNS:
                self._add_problem(line, name, f"is not a column of this file: {suggest(name, COLUMNS)}")
            elif names.count(name) > 1:
                self._add_problem(line, name, "appears twice in the header: remove one.")
        for name, column in SampleRow.model_fields.items():
            if name not in names and column.is_required():
                self._add_problem(line, name, "is missing in the header: add this column.")
        return not self._mistakes

    def _has_too_many_fields(self, line: int, count: int) -> bool:
        """Return whether a row is none of this kind of file, so that its names are not looked at."""
        if count <= 10 * len(COLUMNS):
            return False
        self._add_problem(line, "", f"has {count} fields: a row has {len(COLUMNS)}.")
        return True

    def read_json(self, lines: io.StringIO) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the line and the keys of each JSON object."""
        for line, content in enumerate(lines, start=1):
            if not content.strip():
                continue
            try:
                row = json.loads(content, object_pairs_hook=_refuse_double_keys)
            except KeyError as error:
                self._add_problem(line, error.args[0], "appears twice in this line: remove one.")
            except (ValueError, RecursionError) as error:
                why = getattr(error, "msg", "a number or nesting is too large")
                self._add_problem(line, "", f"is not JSON: {why}.")
            else:
                if not isinstance(row, dict):
                    message = "is not a JSON object: write one object with the keys of a row on each line."
                    self._add_problem(line, "", message)
                elif not self._has_too_many_fields(line, len(row)):
                    yield line, row

    def add(self, line: int, cells: dict[str, Any]) -> None:
        """Check a row, and add it to its series."""
        cells = {
            name: cell.strip() or None if isinstance(cell, str) else cell for name, cell in cells.items()
        }
        try:
            row = SampleRow.model_validate(cells)
        except ValidationError as error:
            for mistake in error.errors():
                column = str(mistake["loc"][0])
                self._add_problem(line, column, _describe_mistake(column, mistake["type"], mistake["input"]))
            return
        series = self._series.get((row.session, row.metric, row.setting))
        if series is None:
            series = self._add_series(line, row)
        else:
            metric, first_line = series.metric, series.line
            self._compare(line, "unit", row.unit, metric.unit, first_line, "a series has one unit.")
            self._compare(line, "better", row.better, metric.better, first_line, "a series has one better.")
            self._check_kind(line, row, series)
        if cells["side"] in REFERENCE_AND_CANDIDATE:
            series.labels = REFERENCE_AND_CANDIDATE
        run = FileRun.begin(line, row)
        earlier_run = series.runs.setdefault((row.pair, row.side), run)
        if row.size in earlier_run.values:
            column, size = ("pair", "") if row.size is None else ("size", f" at size {row.size:g}")
            message = f"the {run.name} has a value{size} already, in line {earlier_run.line}: remove one row."
            self._add_problem(line, column, message)
            return
        if run.shared != earlier_run.shared:
            rule = f"the rows of one run (the {run.name}) have one start, end, node, host and boot."
            for column, value, earlier in zip(RUN_COLUMNS, run.shared, earlier_run.shared, strict=True):
                self._compare(line, column, value, earlier, earlier_run.line, rule)
        earlier_run.values[row.size] = row.value

    def _add_series(self, line: int, row: SampleRow) -> FileSeries:
        """Begin the series of a row."""
        if row.session not in self._sessions and len(self._sessions) == MAX_SESSIONS:
            message = f"is one of more than {MAX_SESSIONS} sessions: split the file."
            raise DataError([*self._problems, Problem(self._file, line, "session", message)])
        series = FileSeries(
            line,
            make_stated_metric(row.metric, row.unit, row.better, is_curve=row.size is not None),
            row.setting,
        )
        self._check_kind(line, row, self._first_series.setdefault(row.metric, series))
        self._sessions.setdefault(row.session, []).append(series)
        self._series[row.session, row.metric, row.setting] = series
        return series

    def _check_kind(self, line: int, row: SampleRow, series: FileSeries) -> None:
        """Note it if a metric is a scalar in one row and a curve in another."""
        if (row.size is None) == (series.metric.kind == "scalar"):
            return
        kind, other_kind = ("no size", "one") if row.size is None else ("a size", "none")
        message = f"{row.metric} has {kind} here and {other_kind} in line {series.line}: a metric is a scalar"
        self._add_problem(line, "size", f"{message}, without sizes, or a curve, with one in each row.")

    def _compare(
        self, line: int, column: str, value: object, earlier: object, earlier_line: int, rule: str
    ) -> None:
        """Note a value that differs from the one in an earlier line, with the rule that forbids it."""
        if value != earlier:
            shown, earlier_shown = ("empty" if v in (None, "") else repr(v) for v in (value, earlier))
            self._add_problem(line, column, f"is {shown}, and {earlier_shown} in line {earlier_line}: {rule}")

    def collect_series(self) -> dict[str, list[FileSeries]]:
        """Return all series by session, or raise a `DataError` if there was a mistake."""
        if not self._mistakes:
            if not self._series:
                self._add_problem(1, "", "has a header and no row.")
            for series in self._series.values():
                self._check_sizes(series)
        if self._problems:
            error = DataError(self._problems)
            if more := self._mistakes - len(self._problems):
                error.args = (f"{error}\n{self._file}: {more} more mistakes like these",)
            raise error
        return self._sessions

    def _check_sizes(self, series: FileSeries) -> None:
        """Check that all runs of a series have the same sizes."""
        first, *runs = series.runs.values()
        for run in runs:
            if run.values.keys() != first.values.keys():
                sizes, first_sizes = (", ".join(f"{size:g}" for size in r.sizes) for r in (run, first))
                message = f"the {run.name} has the sizes {sizes}; the {first.name} in line {first.line} has "
                self._add_problem(
                    run.line, "size", f"{message}{first_sizes}: all runs of a series have the same."
                )


def make_stated_metric(
    name: str, unit: str, better: Direction, *, is_curve: bool, axis_unit: str = ""
) -> Metric:
    """Return a metric as a file states it; the catalogue's rules for names do not hold for it.

    Many files do not say in which unit their sizes are.
    """
    return Metric.model_construct(
        name=name,
        unit=unit,
        better=better,
        family="measured",
        kind="curve" if is_curve else "scalar",
        axis="size" if is_curve else "",
        axis_unit=axis_unit if is_curve else "",
        description="as a file states it",
    )


def _describe_mistake(column: str, kind: str, value: object) -> str:
    if kind == "extra_forbidden":
        return f"is not a key of a row: {suggest(column, COLUMNS)}"
    if kind == "missing":
        return "is missing: add this key."
    shown = "empty" if value is None else repr(value)
    return f"is {shown}: write {SampleRow.model_fields[column].description}."
