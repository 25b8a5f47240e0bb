"""CSV that is less than a file of pairs: a column for each side, or columns `side` and `value`."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Hashable, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from virtqual.errors import UsageError
from virtqual.files.times import read_time
from virtqual.formats.found import Found, FoundRun, Wanted, guess_better
from virtqual.formats.hyperfine import CSV_HEADER
from virtqual.verdict.pairs import Side

#: Names of sides that need no option.
SIDE_NAMES: Mapping[str, Side] = {
    **dict.fromkeys(
        ("native", "reference", "baseline", "base", "bare", "bare-metal", "baremetal", "before"), "native"
    ),
    **dict.fromkeys(("virtual", "candidate", "vm", "guest", "virt", "after"), "virtual"),
}
#: Columns beside two columns of numbers that say what a row is.
_PAIR, _ORDER = (
    ("pair", "row", "#", "run", "no", "nr", "index", "iter", "iteration", "rep", "repetition", "trial"),
    ("order", "first"),
)
_KNOWN = frozenset(
    (
        *("side", "value", "pair", "start", "end", "time", "metric", "setting", "unit", "better", "size"),
        *("node", "host", "boot", "session"),
    )
)
#: How similar a name is to that of a column that it was meant for.
_SIMILAR = 0.75
_WHY = "the table does not say when each run began and ended"
_TIME_COLUMN = re.compile(r"(?:(?:start|end)(?:_?time)?(?:_(?:ns|us|ms|s))?|timestamp|date|datetime)")
_UNIT_SUFFIX = re.compile(r"^(?P<name>.+)_(?P<unit>ns|us|ms|s|sec|seconds|mbps|gflops)$", re.IGNORECASE)
_UNIT = re.compile(r"^(?P<name>.+?)\s*[\[(](?:in )?(?P<unit>[^\])]+)[\])]$")


class Table:
    """The rows of a CSV file with their header, whatever separates the fields."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        first = next((line for line in text.splitlines() if line.strip()), "")
        self.separator = max((";", "\t", ",", "|"), key=lambda mark: (first.count(mark), mark == ","))
        if not first.count(self.separator) and " " in first.strip():
            text = re.sub(r"[ \t]+", " ", re.sub(r"(?m)^[ \t]+|[ \t]+$", "", text))
            self.separator = " "
        try:
            rows = list(
                csv.reader(io.StringIO(text, newline=""), delimiter=self.separator, skipinitialspace=True)
            )
        except csv.Error as error:
            raise UsageError(f"{file}: is not CSV: {error}") from error
        lines = [(line, [cell.strip() for cell in row]) for line, row in enumerate(rows, start=1) if any(row)]
        self.header, self.rows = (lines[0][1], lines[1:]) if lines else ([], [])
        # A name of a column is not a number.
        if lines and any(_is_number(cell, self.separator) for cell in self.header):
            self.header, self.rows = [], lines

    def number(self, cell: str) -> float:
        """Return a number; a decimal comma is one where commas do not separate fields. Raises ValueError."""
        if self.separator != "," and re.fullmatch(r"[-+]?\d+,\d+(?:[eE][-+]?\d+)?", cell):
            cell = cell.replace(",", ".")
        if not re.fullmatch(r"(?i)[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan", cell):
            raise ValueError(cell)
        return float(cell)


def _has_numbers(table: Table) -> bool:
    """Return whether half of a column at least is numbers, as in a table with some mistakes."""
    width = max(len(cells) for _, cells in table.rows)
    columns = [_list_cells(table, index) for index in range(width)]
    return any(
        2 * sum(_is_number(cell, table.separator) for cell in cells) >= len(table.rows) for cells in columns
    )


def _is_number(cell: str, separator: str) -> bool:
    comma = r"|\d+,\d+" if separator != "," else ""
    return bool(re.fullmatch(rf"(?i)[-+]?(?:\d+\.?\d*|\.\d+{comma})(?:e[-+]?\d+)?", cell))


def read(file: str, text: str, wanted: Wanted) -> Found:
    """Return the runs of a table of one of the two forms.

    Raises
    ------
    UsageError
        It is neither, with what it has.
    """
    table = Table(file, text)
    header = [name.lower() for name in table.header]
    if header[:8] == CSV_HEADER.split(","):
        raise UsageError(
            f"{file}: is hyperfine's CSV, which has the mean of each command and not its runs: write the "
            "runs "
            "with hyperfine --export-json FILE"
        )
    if "side" in header and "value" in header:
        return _read_long(table, header, wanted)
    if table.rows and not _has_numbers(table) and SIDE_NAMES.keys().isdisjoint(header):
        raise UsageError(
            f"{file}: is not in a format that virtqual knows: it reads tables of numbers, hyperfine "
            "--export-json, Google Benchmark, ReFrame and outputs of known programs "
            "(docs/judge-your-own.md)"
        )
    return _read_named(table, wanted) or _read_two_columns(table, wanted)


def _read_long(table: Table, header: Sequence[str], wanted: Wanted) -> Found:
    """Read a row a value: `side` and `value`, and what else there is."""
    _check_header(table.file, header)
    runs: list[FoundRun] = []
    sizes: dict[Hashable, FoundRun] = {}
    for line, cells in table.rows:
        if len(cells) != len(header):
            raise UsageError(f"{table.file}:{line}: has {len(cells)} fields, the header {len(header)}")
        row = dict(zip(header, cells, strict=True))
        run = _read_long_row(table, line, row, wanted)
        key = (run.metric, tuple(run.labels.items()), run.number, run.start, run.node)
        if (
            None not in run.values
            and (earlier := sizes.get(key))
            and earlier.values.keys().isdisjoint(run.values)
        ):
            earlier.values |= run.values
        else:
            sizes[key] = run
            runs.append(run)
    if not runs:
        raise UsageError(f"{table.file}: has a header and no row")
    others = tuple(f"the column {name!r} is not read" for name in header if name not in _KNOWN)
    why = "" if any(not math.isnan(run.start) for run in runs) else _WHY
    return Found("a table with a row for each value", runs, ("side",), why, notes=others)


def _check_header(file: str, header: Sequence[str]) -> None:
    """Raise UsageError for names that are there twice, and for those that are nearly the name of a column."""
    problems = []
    for name in dict.fromkeys(header):
        if header.count(name) > 1:
            problems.append(f"{file}:1: {name}: appears twice in the header: remove one.")
        elif name not in _KNOWN and (similar := get_close_matches(name, _KNOWN, n=1, cutoff=_SIMILAR)):
            problems.append(f"{file}:1: {name}: is not a column of this file: did you mean {similar[0]}?")
    if problems:
        raise UsageError("\n".join(problems))


def _read_long_row(table: Table, line: int, row: Mapping[str, str], wanted: Wanted) -> FoundRun:
    place = f"{table.file}:{line}"
    unit = row.get("unit") or wanted.unit
    better = row.get("better", "").lower()
    if better not in ("", "lower", "higher"):
        raise UsageError(f"{place}: better: is {better!r}: write lower (for a time) or higher (for a rate)")
    times = {}
    for name in ("start", "end"):
        text = row.get(name) or (row.get("time", "") if name == "start" else "")
        try:
            times[name] = read_time(text)
        except ValueError:
            raise UsageError(
                f"{place}: {name}: is {text!r}: write seconds or milliseconds since 1970, or a date such as "
                "2026-11-29T14:03:05Z"
            ) from None
    start, end = times["start"], times["end"]
    number = row.get("pair", "")
    if number and not re.fullmatch(r"\d{1,9}", number):
        raise UsageError(f"{place}: pair: is {number!r}: write a whole number from 0")
    size = _read_cell(table, place, "size", row["size"]) if row.get("size") else None
    value = _read_cell(table, place, "value", row["value"]) if row["value"] else math.nan
    if not row["side"]:
        raise UsageError(f"{place}: side: is empty: write native or virtual, or reference or candidate")
    labels = {"side": row["side"]} | {key: row[key] for key in ("session", "setting") if row.get(key)}
    return FoundRun(
        line,
        row.get("metric") or wanted.metric or "value",
        unit,
        {size: value},
        labels,
        "lower" if better == "lower" else "higher" if better == "higher" else guess_better(unit),
        start=start,
        end=start if math.isnan(end) else end,
        number=int(number) if number else None,
        node=row.get("node", ""),
        host=row.get("host", ""),
        boot=row.get("boot", ""),
    )


def _read_cell(table: Table, place: str, name: str, cell: str) -> float:
    try:
        return table.number(cell)
    except ValueError:
        raise UsageError(f"{place}: {name}: {cell!r} is not a number") from None


def _read_named(table: Table, wanted: Wanted) -> Found | None:
    """Read a row a value in which columns of names tell runs apart; None if the table has no such columns.

    Of several columns of numbers, the option says which one is judged.
    """
    width = len(table.header)
    rows = [(line, cells) for line, cells in table.rows if len(cells) == width]
    if not table.header or len(rows) < len(table.rows) or not rows:
        return None
    columns = {name: [cells[index] for _, cells in rows] for index, name in enumerate(table.header) if name}
    numbers = [name for name, cells in columns.items() if _are_numbers(cells, table.separator)]
    times = {name.lower(): name for name in columns if _TIME_COLUMN.fullmatch(name.lower())}
    names = [name for name in columns if name not in numbers and name not in times.values()]
    sides = [name for name in names if 1 < len(set(columns[name])) < len(rows)]
    values = [name for name in numbers if name not in times.values() and name.lower() not in _PAIR]
    if not sides or not values or table.header[0].lower() in _ORDER:
        return None
    if all(wanted.sides) and all(any(side in name for name in values) for side in wanted.sides):
        # The names are those of columns.
        return None
    if len(values) > 1 and wanted.metric not in values:
        raise UsageError(
            f"{table.file}: has several columns of numbers ({', '.join(values)}): say which one is judged, "
            "--metric NAME, or which two are the sides, --reference NAME --candidate NAME"
        )
    chosen = wanted.metric if wanted.metric in values else values[0]
    runs = [
        _make_named_run(
            table, line, dict(zip(table.header, cells, strict=True)), chosen, sides, times, wanted
        )
        for line, cells in rows
    ]
    why = "" if any(not math.isnan(run.start) for run in runs) else _WHY
    kind = f"a table with the values in {chosen}"
    return Found(kind, runs, tuple(sides), why, has_chosen_metric=chosen == wanted.metric)


def _are_numbers(cells: Sequence[str], separator: str) -> bool:
    return all(_is_number(cell, separator) or cell.lower() == "nan" for cell in cells if cell)


def _make_named_run(
    table: Table,
    line: int,
    row: Mapping[str, str],
    chosen: str,
    names: Sequence[str],
    times: Mapping[str, str],
    wanted: Wanted,
) -> FoundRun:
    match = _UNIT.match(chosen) or _UNIT_SUFFIX.match(chosen)
    metric, unit = (match["name"], match["unit"]) if match else (chosen, "")
    unit = wanted.unit or unit
    place = f"{table.file}:{line}"
    moments = {}
    for begin in ("start", "end"):
        cell = next((row[name] for key, name in times.items() if _is_time_of(begin, key)), "")
        try:
            moments[begin] = read_time(cell)
        except ValueError:
            raise UsageError(
                f"{place}: {cell!r} is not a time: write seconds since 1970, or a date"
            ) from None
    value = _read_cell(table, place, chosen, row[chosen]) if row[chosen] else math.nan
    end = moments["start"] if math.isnan(moments["end"]) else moments["end"]
    labels = {name: row[name] for name in names}
    parameters = {
        name: cell
        for name, cell in row.items()
        if name not in (*labels, *times.values(), chosen) and name.lower() not in _PAIR
    }
    return FoundRun(
        line,
        metric,
        unit,
        {None: value},
        labels,
        guess_better(unit),
        start=moments["start"],
        end=end,
        parameters=parameters,
    )


def _is_time_of(begin: str, column: str) -> bool:
    """Return whether a column of times has those of the start, or of the end."""
    return column.startswith(begin) or (begin == "start" and not column.startswith("end"))


class _Columns(NamedTuple):
    """Places of the columns: of both sides or more, of the pair, of the order, and of what a row measured."""

    values: list[int]
    pair: int | None
    order: int | None
    setting: int | None


def _read_two_columns(table: Table, wanted: Wanted) -> Found:
    """Read a column for each side; a row is a pair if a column says which side ran first."""
    file, header = table.file, table.header
    if not table.rows:
        what = f"has the columns {', '.join(header)} and no row" if header else "is empty"
        raise UsageError(f"{file}: {what}: write a column for each side, and a row for each run")
    width = max(len(cells) for _, cells in table.rows)
    names = header or [f"column {number}" for number in range(1, width + 1)]
    columns = _choose_columns(table, names)
    runs: list[FoundRun] = []
    for line, cells in table.rows:
        cells = [*cells, *[""] * (len(names) - len(cells))]
        if len(cells) > len(names):
            raise UsageError(f"{file}:{line}: has {len(cells)} fields, the header {len(names)}")
        number = (
            line
            if columns.pair is None
            else _read_number(file, line, names[columns.pair], cells[columns.pair])
        )
        for index in columns.values:
            if cells[index]:
                runs.append(_make_cell_run(table, line, names[index], cells[index], wanted))
                runs[-1].number = number
                if columns.setting is not None:
                    runs[-1].labels["setting"] = cells[columns.setting]
    if columns.order is not None:
        _order_pairs(table, runs, names, columns.order)
    return Found(
        "a table with a column for each side",
        runs,
        ("column",),
        _WHY,
        are_pairs=columns.order is not None,
        notes=() if header else ("the file has no header: the first column is the reference",),
    )


def _choose_columns(table: Table, names: Sequence[str]) -> _Columns:
    """Return the columns of a table by what is in them; more than two sides are chosen by name later."""
    lower = [name.lower() for name in names]
    pair = next((index for index, name in enumerate(lower) if name in _PAIR), None)
    order = next((index for index, name in enumerate(lower) if name in _ORDER), None)
    values = [index for index in range(len(names)) if index not in (pair, order) and names[index]]
    texts = [index for index in values if not _are_numbers(_list_cells(table, index), table.separator)]
    has_setting = bool(table.header) and len(texts) == 1 and len(values) > 2
    if has_setting:
        values.remove(texts[0])
    if len(values) < 2 or (len(values) > 2 and not has_setting):
        raise UsageError(_describe_other(table.file, names))
    return _Columns(values, pair, order, texts[0] if has_setting else None)


def _read_number(file: str, line: int, name: str, cell: str) -> int:
    if not re.fullmatch(r"\d{1,9}", cell):
        raise UsageError(f"{file}:{line}: {name}: {cell!r} is not a whole number")
    return int(cell)


def _list_cells(table: Table, index: int) -> list[str]:
    return [cells[index] for _, cells in table.rows if index < len(cells)]


def _make_cell_run(table: Table, line: int, name: str, cell: str, wanted: Wanted) -> FoundRun:
    match = _UNIT.match(name)
    label, unit = (match["name"], match["unit"]) if match else (name, "")
    value = _read_cell(table, f"{table.file}:{line}", name, cell)
    unit = wanted.unit or unit
    return FoundRun(
        line, wanted.metric or "value", unit, {None: value}, {"column": label}, guess_better(unit)
    )


def _order_pairs(table: Table, runs: Sequence[FoundRun], names: Sequence[str], order: int) -> None:
    """Give the runs of a row times by which the side ran first that the column names."""
    first = {line: cells[order].lower() for line, cells in table.rows if len(cells) > order}
    known = {run.labels["column"].lower() for run in runs}
    for run in runs:
        said = first.get(run.line, "")
        hits = [name for name in known if said and (name == said or name.startswith(said))]
        if len(hits) != 1:
            raise UsageError(
                f"{table.file}:{run.line}: {names[order]}: is {said!r}: write which side ran first, "
                f"{' or '.join(sorted(known))}"
            )
        run.start = 2.0 * run.line + (run.labels["column"].lower() != hits[0])
        run.end = run.start + 0.5
        run.has_made_times = True


def _describe_other(file: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return (
        f"{file}: has the columns {shown}: virtqual reads a table with one column for each side (such as "
        "native,virtual), with a row for each value and the columns side and value, or with those of a "
        "file of "
        "pairs (docs/judge-your-own.md)"
    )
