"""The table of pairs: a CSV file that `virtqual judge` reads, and the state of a measurement."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from virtqual.errors import InfrastructureError, UsageError
from virtqual.pair.metrics import SeriesKey, Values
from virtqual.session.measured import COLUMNS, read_series
from virtqual.session.pairing import DECLARED_NOISE
from virtqual.verdict import SessionVerdict, judge_sessions
from virtqual.verdict.alternation import list_standard_order
from virtqual.verdict.budget import Budget
from virtqual.verdict.case import Case
from virtqual.verdict.labels import REFERENCE_AND_CANDIDATE, Labels
from virtqual.verdict.pairs import SIDES, Sample, Series, Side
from virtqual.verdict.rule import LOOKS, MIN_PAIRS_TO_QUALIFY

#: Sizes of the values of each series; a scalar has the size None.
Shapes = dict[SeriesKey, tuple[float | None, ...]]
#: Why runs were lost, by number of the pair and side.
Reasons = Mapping[tuple[int, Side], str]

#: The sides in files: `Side` has their names in sessions.
ROLES: dict[Side, str] = {side: REFERENCE_AND_CANDIDATE.of(side) for side in SIDES}
#: What the file has for a series without a setting of its own: its column must not be empty.
NO_SETTING = "as run"


@dataclass(frozen=True)
class Measured:
    """A run with its values."""

    side: Side
    start: float
    end: float
    values: Values = field(default_factory=dict)
    #: Why it was lost; empty if it has all values.
    lost: str = ""
    node: str = ""
    host: str = ""
    boot: str = ""


def shapes_of(values: Values) -> Shapes:
    """Return the series and sizes that values have."""
    return {key: tuple(by_size) for key, by_size in values.items()}


class Table:
    """The file of pairs, to which whole pairs are added."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.session = file.stem

    def begin(self) -> None:
        """Make the file, or remove what a crash of the machine left of an unfinished last line."""
        try:
            with self.file.open("ab+") as opened:
                opened.seek(0)
                text = opened.read()
                opened.truncate(text.rfind(b"\n") + 1)
                if not text.rfind(b"\n") + 1:
                    opened.write(f"{','.join(COLUMNS)}\n".encode())
        except OSError as error:
            raise UsageError(f"{self.file} cannot be written: {error.strerror}") from error

    def append(self, number: int, runs: Iterable[Measured], shapes: Shapes) -> None:
        """Add the runs of a pair by one write, which is on the disk when this returns.

        A run without values gets ``nan`` for each value that it lacks.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        for run in runs:
            shared = (f"{run.start:.6f}", f"{run.end:.6f}", run.node, run.host, run.boot)
            for key, sizes in shapes.items():
                setting = key.setting or NO_SETTING
                for size in sizes:
                    value = run.values.get(key, {}).get(size, math.nan)
                    shown = "" if size is None else repr(size)
                    writer.writerow(
                        [
                            *(self.session, key.metric, setting, shown, key.unit, key.better),
                            *(number, ROLES[run.side], repr(value), *shared),
                        ]
                    )
        try:
            descriptor = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                os.write(descriptor, text.getvalue().encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise InfrastructureError(f"{self.file}: {error.strerror}; --resume goes on") from error

    def read(self, reasons: Reasons, labels: Labels) -> list[Series]:
        """Return the series with their pairs; none if there is no row yet.

        Raises
        ------
        DataError
            Somebody has changed the file, so that it cannot be read.
        """
        if self.file.read_bytes().count(b"\n") < 2:
            return []
        (all_series,) = read_series(self.file).values()
        for series in all_series:
            series.labels = labels
            series.setting = "" if series.setting == NO_SETTING else series.setting
        return [_prepare(series.pair_runs(series.metric), reasons, labels) for series in all_series]


def _prepare(series: Series, reasons: Reasons, labels: Labels) -> Series:
    """Return a series with the reasons of its lost runs, and without hosts.

    The commands are judged, wherever they ran.
    """

    def prepare(sample: Sample | None) -> Sample | None:
        if sample is None:
            return None
        reason = reasons.get((sample.number, sample.side), "")
        return replace(sample, host="", boot="", invalid=(reason,) if reason and sample.refused else ())

    pairs = []
    for pair in series.pairs:
        pair = replace(pair, native=prepare(pair.native), virtual=prepare(pair.virtual))
        lost = [
            f"{labels.of(run.side)} run lost: {'; '.join(run.invalid)}" for run in pair.samples if run.invalid
        ]
        pairs.append(replace(pair, invalid=tuple(lost)) if lost else pair)
    return replace(series, pairs=tuple(pairs))


def read_shapes(series: Sequence[Series]) -> Shapes:
    """Return the series and sizes that a table has."""
    return {
        SeriesKey(one.metric.name, one.setting, one.metric.unit, one.metric.better): one.points or (None,)
        for one in series
    }


@dataclass(frozen=True)
class Answer:
    """The verdict on what was measured, and which pairs come next."""

    series: tuple[Series, ...]
    verdict: SessionVerdict
    #: Number of the next pair, and the side that runs first in each pair up to the next look (N or V).
    number: int
    order: str

    @property
    def attempted(self) -> int:
        """How many pairs were begun."""
        return len({pair.number for series in self.series for pair in series.pairs if len(pair.samples) == 2})

    @property
    def valid(self) -> int:
        """How many pairs count, of the series with the fewest."""
        return min(len(series.valid) for series in self.series)


def judge_series(
    series: Sequence[Series], budget: float, margin: float, min_runs: int, max_runs: int | None
) -> Answer:
    """Judge series by the rule of sessions, with the noise that is stated where there is no history.

    Four pairs are needed to pass, since the noise is not known; two can flag.
    """
    allowed = Budget.build(budget, margin=margin, gate="overhead")
    cases = [Case(one, allowed, DECLARED_NOISE["overhead"]) for one in series]
    (verdict,) = judge_sessions([cases], min_pairs=MIN_PAIRS_TO_QUALIFY)
    number = max(one.next_number for one in series)
    order = max((need.order for need in verdict.needs), key=len, default="")
    fewest = min(series, key=lambda one: len(one.valid))
    if not order and len(fewest.valid) < min_runs and not _is_refused(verdict):
        order = fewest.choose_order(min_runs)
    answer = Answer(tuple(series), verdict, number, order)
    # As in a session, lost runs do not make it last for ever.
    most = max(2 * LOOKS[-1], 2 * min_runs) if max_runs is None else max_runs
    return replace(answer, order=order[: max(most - answer.attempted, 0)])


def _is_refused(verdict: SessionVerdict) -> bool:
    return any(one.native is None for one in verdict.verdicts)


def first_order() -> str:
    """Return which side runs first in each pair up to the first look."""
    return list_standard_order(0, LOOKS[0] - 1)
