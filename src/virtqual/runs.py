"""One run of one check: its values, times and places, and the identity of its nodes.

A check writes this record into a variable of its ReFrame test, from where it goes into the session's log at
once, and into ReFrame's own run report and results database.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, FiniteFloat, model_validator

from virtqual.identity import Identity, Load
from virtqual.identity.record import NotObservable, seen
from virtqual.stack.loaded import LoadedSoftware
from virtqual.verdict.notation import PERCENT, Direction, read_budget
from virtqual.verdict.pairs import Side

T = TypeVar("T")

#: The share of the median by which repetitions differ that do not stall; a slow run differs by as much.
NEAR_SHARE = 0.25
#: Names from outside: text that is safe in a path, a command line and a terminal.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}$")]
#: The name of a host or VM, which may hold blanks.
HostName = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f-\x9f/]{1,255}$")]


def typical_value(values: Sequence[float]) -> float:
    """Return the mean of the values near their median: within a quarter of it, and at least half of them.

    A mean has finer steps than the clock, which a median has not; a stalled repetition does not move it.

    Examples
    --------
    >>> typical_value([0.2, 0.21, 0.2, 0.2, 0.9])
    0.2025
    """
    middle = statistics.median(values)
    distances = sorted(abs(value - middle) for value in values)
    reach = max(NEAR_SHARE * middle, distances[max(len(values) // 2 - 1, 0)])
    return statistics.fmean(value for value in values if abs(value - middle) <= reach)


class Declared(BaseModel, extra="forbid", frozen=True):
    """A metric that its check declares, because no file under ``references/`` does."""

    unit: str = Field(min_length=1)
    better: Direction
    #: 1 + the fraction by which virtual may be slower than native; ``5%`` and 0.05 are read as 1.05.
    budget: Annotated[float, Field(ge=1, lt=2), BeforeValidator(lambda value: 1 + read_budget(value))]
    #: How far above its budget an overhead may hide, as a fraction; ``3%`` is read as 0.03.
    margin: Annotated[float, Field(gt=0, lt=1), PERCENT]


class Result(BaseModel, extra="forbid", frozen=True):
    """Values of one metric."""

    #: Name in ``references/metrics/``, or the name of a metric that `declared` describes.
    metric: Name
    #: The conditions, e.g. ``1 thread`` or ``two nodes``.
    setting: str
    #: Sizes of a curve in its axis unit, rising; empty for a scalar.
    points: tuple[float, ...] = ()
    #: One for each point, or the only one of a scalar, in the metric's unit.
    values: tuple[float, ...]
    #: Reasons for which the values are refused; empty if they count.
    invalid: tuple[str, ...] = ()
    declared: Declared | None = None
    #: Ticks of the program's clock in the time of a value, if they are so few that values repeat by chance.
    ticks: float | None = Field(None, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _a_value_for_each_size(self) -> Result:
        if len(self.values) != max(len(self.points), 1):
            raise ValueError(f"{self.series}: {len(self.values)} values for {len(self.points)} sizes")
        return self

    @classmethod
    def scalar(
        cls,
        metric: str,
        setting: str,
        value: float,
        invalid: tuple[str, ...] = (),
        declared: Declared | None = None,
        ticks: float | None = None,
    ) -> Result:
        """Return the result of a metric that has one value."""
        values = (value,)
        return cls(
            metric=metric, setting=setting, values=values, invalid=invalid, declared=declared, ticks=ticks
        )

    @classmethod
    def curve(
        cls, metric: str, setting: str, values: dict[float, float], invalid: tuple[str, ...] = ()
    ) -> Result:
        """Return the result of a metric that has a value for each size."""
        points = tuple(sorted(values))
        in_order = tuple(values[point] for point in points)
        return cls(metric=metric, setting=setting, points=points, values=in_order, invalid=invalid)

    @classmethod
    def average(cls, repetitions: Sequence[Result]) -> Result:
        """Return the typical value of a metric over the repetitions of a run, of a curve size by size.

        It is invalid if a repetition is, for the reasons of the first invalid repetition.

        Raises
        ------
        ValueError
            The repetitions are not of one metric, setting and sizes.
        """
        first, count = repetitions[0], len(repetitions)
        if count == 1:
            return first
        kind = first.series, first.points, first.declared
        for number, repetition in enumerate(repetitions, 1):
            if (repetition.series, repetition.points, repetition.declared) != kind:
                raise ValueError(
                    f"repetition {number} measured {repetition._described}, the first one {first._described}"
                )
        columns = zip(*(repetition.values for repetition in repetitions), strict=True)
        refusals = [repetition.invalid for repetition in repetitions if repetition.invalid]
        invalid: tuple[str, ...] = ()
        if refusals:
            invalid = tuple(f"{len(refusals)} of {count} repetitions: {reason}" for reason in refusals[0])
        return first.model_copy(update={"values": tuple(map(typical_value, columns)), "invalid": invalid})

    def up_to(self, largest: float | None) -> Result:
        """Return the part of a curve up to a size; it may be empty."""
        if largest is None or self.points[-1] <= largest:
            return self
        count = sum(point <= largest for point in self.points)
        return self.model_copy(update={"points": self.points[:count], "values": self.values[:count]})

    @property
    def _described(self) -> str:
        """The series, and the sizes of a curve."""
        return self.series + (f" at {', '.join(f'{p:g}' for p in self.points)}" if self.points else "")

    @property
    def series(self) -> str:
        """The id of the series: ``metric@setting``."""
        return f"{self.metric}@{self.setting}"

    def variables(self) -> dict[str, float]:
        """Return the values by name of ReFrame performance variable."""
        if not self.points:
            return {self.metric: self.values[0]}
        return {f"{self.metric}_{p:g}": v for p, v in zip(self.points, self.values, strict=True)}


class Answer(BaseModel, extra="forbid", frozen=True):
    """A number that the program computed, such as ``RMS of U``; both sides must agree on it."""

    name: str
    value: float = Field(allow_inf_nan=False)
    #: Largest difference between two runs, as a fraction of the larger value.
    tolerance: float = Field(gt=0, lt=1)

    def agrees(self, other: Answer) -> bool:
        """Return whether another run has the same answer."""
        return abs(self.value - other.value) <= self.tolerance * max(abs(self.value), abs(other.value))


@dataclass(frozen=True)
class MeasuredValues:
    """Results and answers of one repetition of a program, or of a run; see `Run`."""

    results: tuple[Result, ...]
    answers: tuple[Answer, ...] = ()
    communication: float | NotObservable | None = None

    @classmethod
    def average(cls, repetitions: Sequence[MeasuredValues]) -> MeasuredValues:
        """Return the values of a run from its repetitions.

        Raises
        ------
        ValueError
            The repetitions have other metrics, or other answers.
        """
        results = _columns([repetition.results for repetition in repetitions], "results")
        for answers in _columns([repetition.answers for repetition in repetitions], "answers"):
            low, high = (find(answers, key=lambda answer: answer.value) for find in (min, max))
            if {answer.name for answer in answers} != {low.name} or not low.agrees(high):
                raise ValueError(
                    f"repetitions differ: {low.name} is {low.value:g}, {high.name} is {high.value:g}, "
                    f"{low.tolerance:g} is allowed"
                )
        noted = [part.communication for part in repetitions if part.communication is not None]
        shares = [share for share in noted if seen(share)]
        return cls(
            tuple(map(Result.average, results)),
            repetitions[0].answers,
            statistics.median(shares) if shares else next(iter(noted), None),
        )


def _columns(rows: Sequence[Sequence[T]], what: str) -> list[tuple[T, ...]]:
    """Return the items that the repetitions have at each position."""
    if len(counts := {len(row) for row in rows}) > 1:
        raise ValueError(f"repetitions have {' or '.join(map(str, sorted(counts)))} {what}")
    return list(zip(*rows, strict=True))


class Run(BaseModel, extra="forbid", frozen=True):
    """One run of one check on one side."""

    schema_: Literal["virtqual-run/1"] = Field(alias="schema", default="virtqual-run/1")
    #: Name of the check and its parameters without the sample, e.g. ``lammps %problem=lj``.
    check: str
    pair: int = Field(ge=0)
    #: The turn of its pair: pairs of one turn are on places of their own. None: the pair is a turn.
    turn: int | None = None
    side: Side
    #: Seconds since the epoch by the clock that `clock` names.
    start: FiniteFloat
    end: FiniteFloat
    clock: str
    #: Id of the scheduler's job.
    job: str
    nodes: tuple[Name, ...]
    #: The machine of each node, as the system file states it; without unknown machines.
    hosts: dict[Name, HostName] = {}
    results: tuple[Result, ...]
    answers: tuple[Answer, ...] = ()
    #: SHA-256 by name of inputs that were downloaded.
    inputs: dict[str, str] = {}
    #: Share of the program's time in communication, 0 to 1, by its own account or its profiler's, or why that
    #: is not observable; None if the check does not measure it.
    communication: Annotated[float, Field(ge=0, le=1)] | NotObservable | None = None
    #: The program and its libraries as each node loaded them.
    software: tuple[LoadedSoftware, ...] = ()
    #: The identity of each node, by name; with the CPUs that the run used there.
    identity: dict[str, Identity] = {}
    #: The largest load of any of its nodes while the program ran; None if it was not noted.
    load: Load | None = None
    #: Wall time of the program on the first node, of all repetitions together.
    seconds: FiniteFloat
    #: Wall time of the job script before the program, on the first node: a login shell, modules.
    shell_seconds: FiniteFloat = 0.0
    #: Number of times that the program was started; see `typical_value`.
    repetitions: int = Field(default=1, ge=1)
    stack: str
    stack_hash: str
    #: ``held`` if native values were compared with absolute references.
    reference: Literal["held", "none"]

    def dump(self) -> str:
        """Return the record as one line of JSON."""
        return self.model_dump_json(by_alias=True)

    def refusing(self, reasons: tuple[str, ...]) -> Run:
        """Return the run with reasons for which none of its results counts."""
        results = tuple(
            result.model_copy(update={"invalid": (*result.invalid, *reasons)}) for result in self.results
        )
        return self.model_copy(update={"results": results})
