"""Metrics, and what an entry of the reviewed data is about: one metric, or a family of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from virtqual.errors import UsageError
from virtqual.files.datafile import DataModel, Text
from virtqual.files.wording import suggest
from virtqual.verdict.notation import Direction

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Metric(DataModel):
    """A quantity that a program reports once per run; a curve has a value for each of several sizes."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    unit: Text
    better: Direction
    #: Metrics of one family share budgets and noise if they have none of their own.
    family: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    kind: Literal["scalar", "curve"] = "scalar"
    #: Quantity and unit of a curve's sizes, such as message size in B.
    axis: str = ""
    axis_unit: str = ""
    #: The largest size that is judged; values at larger sizes are only reported. None: all are judged.
    judged_up_to: NotNegative | None = None
    description: Text

    @model_validator(mode="after")
    def _check_axis(self) -> Self:
        if self.kind == "curve" and not (self.axis and self.axis_unit):
            raise ValueError("a curve needs `axis` and `axis_unit`: what it runs over, and in which unit.")
        if self.kind == "scalar" and (self.axis or self.axis_unit or self.judged_up_to is not None):
            raise ValueError("a scalar has no axis: remove its keys, or make it a curve.")
        return self


class UnknownMetricError(UsageError, KeyError):
    """A metric that no catalogue file declares."""

    def __str__(self) -> str:
        return str(self.args[0])


class Metrics(dict[str, Metric]):
    """The catalogue by name; an unknown name is an `UnknownMetricError` that suggests similar ones."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        super().__init__((metric.name, metric) for metric in metrics)

    def __missing__(self, name: str) -> Metric:
        raise UnknownMetricError(f"unknown metric {name!r}: {suggest(name, self)}")

    @property
    def families(self) -> frozenset[str]:
        """Names of all families."""
        return frozenset(metric.family for metric in self.values())


def _make_list(value: object) -> object:
    return [value] if isinstance(value, str) else () if value is None else value


class Target(DataModel):
    """Base of entries that are about one metric or some families, in one setting or in all."""

    metric: Text | None = None
    #: A family, or a list of families.
    family: Annotated[
        tuple[Text, ...],
        Field(strict=False),
        BeforeValidator(_make_list, json_schema_input_type=Text | list[Text] | None),
    ] = ()
    setting: Text | None = None

    @model_validator(mode="after")
    def _check_target(self) -> Self:
        if self.metric is not None and self.family:
            raise ValueError("name either a `metric` or a `family`.")
        return self

    def applies_to(self, metric: Metric, setting: str | None) -> bool:
        """Return whether the entry is about a metric in a setting."""
        if self.setting not in (None, setting):
            return False
        return metric.name == self.metric if self.metric is not None else metric.family in self.family

    @property
    def rank(self) -> tuple[bool, ...]:
        """Sort key: entries for a metric before those for a family, with a setting before without."""
        return self.metric is None, self.setting is None
