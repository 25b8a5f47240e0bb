"""The catalogue of metrics: name, unit, direction, family, scalar or curve.

The catalogue is reviewed data (``references/metrics/*.yaml``): a site adds the metrics of its own
applications by adding a file, and everything above speaks of metrics by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from virtqual.errors import UsageError
from virtqual.files.datafile import DataError, DataModel, Document, Problem, find_yaml_files, parse
from virtqual.files.wording import suggest

Direction = Literal["lower", "higher"]
Kind = Literal["scalar", "curve"]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
FamilyName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]

SCHEMA = "virtqual-metrics/1"


class Metric(DataModel):
    """A quantity that a program reports once per run.

    Parameters
    ----------
    name
        Name of the metric, ``lower_case_with_underscores``; no other metric has it.
    unit
        Unit of its values, as printed.
    better
        The better direction: ``higher`` or ``lower``.
    family
        Metrics of one family share budgets and noise where they have none of their own.
    kind
        ``scalar``, or ``curve``: one value for each of several sizes.
    axis, axis_unit
        Quantity and unit of a curve's sizes, such as message size in B.
    judged
        Whether it is judged by itself; a witness for others has neither budget nor noise.
    description
        One line for the reader of a report.
    """

    name: Name
    unit: Annotated[str, Field(min_length=1)]
    better: Direction
    family: FamilyName
    kind: Kind = "scalar"
    axis: str = ""
    axis_unit: str = ""
    judged: bool = True
    description: Annotated[str, Field(min_length=1)]

    @model_validator(mode="after")
    def _curves_have_an_axis(self) -> Self:
        if self.kind == "curve" and not (self.axis and self.axis_unit):
            raise ValueError("a curve needs `axis` and `axis_unit`: what it runs over, and in which unit.")
        if self.kind == "scalar" and (self.axis or self.axis_unit):
            raise ValueError("a scalar has no axis: remove `axis` and `axis_unit`, or make it a curve.")
        return self


class UnknownMetricError(UsageError, KeyError):
    """A metric that no catalogue file declares."""

    def __str__(self) -> str:
        return str(self.args[0])


class Metrics(Mapping[str, Metric]):
    """The catalogue: metrics by name.

    Raises
    ------
    UnknownMetricError
        From ``metrics[name]``, naming near matches, if no metric has that name.
    """

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = {metric.name: metric for metric in metrics}

    def __getitem__(self, name: str) -> Metric:
        try:
            return self._metrics[name]
        except KeyError:
            raise UnknownMetricError(f"unknown metric {name!r}: {suggest(name, self._metrics)}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._metrics

    def __iter__(self) -> Iterator[str]:
        return iter(self._metrics)

    def __len__(self) -> int:
        return len(self._metrics)

    @property
    def families(self) -> frozenset[str]:
        """Names of all families."""
        return frozenset(metric.family for metric in self._metrics.values())


class _File(DataModel):
    schema_: Annotated[Literal["virtqual-metrics/1"], Field(alias="schema")]
    metrics: list[Metric]


def load_metrics(directory: Path | str) -> Metrics:
    """Read every metric file of a directory.

    Parameters
    ----------
    directory
        Such as ``references/metrics``.

    Raises
    ------
    DataError
        Naming file, line and key of every mistake: a wrong kind of value, a metric declared twice, no
        metric at all.
    """
    directory = Path(directory)
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    metrics: list[Metric] = []
    for path in find_yaml_files(directory):
        try:
            document: Document = parse(path)
            entries = document.read(_File).metrics
        except DataError as error:
            problems.extend(error.problems)
            continue
        for index, metric in enumerate(entries):
            key = ("metrics", index, "name")
            if metric.name in seen:
                message = f"{metric.name!r} is declared already at {seen[metric.name]}."
                problems.append(document.problem(key, message))
            seen.setdefault(metric.name, document.where(key))
            metrics.append(metric)
    if not metrics and not problems:
        problems.append(Problem(str(directory), 1, "", "holds no metric file (*.yaml)."))
    if problems:
        raise DataError(problems)
    return Metrics(metrics)
