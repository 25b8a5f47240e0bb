"""The form of the files under ``references/``: keys, values, and what one entry alone can get wrong."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from virtqual.files.datafile import DataModel
from virtqual.references.noise import STATED_BETWEEN_DF

Text = Annotated[str, Field(min_length=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class QuantityEntry(DataModel):
    """A number with its unit."""

    value: Positive
    unit: Text


class SizesEntry(DataModel):
    """A range of sizes, ends included."""

    low: Annotated[NotNegative, Field(alias="from")]
    high: Annotated[NotNegative, Field(alias="to")]

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"sizes run from {self.low:g} down to {self.high:g}: swap them.")
        return self


class ReasonEntry(DataModel):
    """A reason: a published claim by its id, or a policy of ours in a sentence."""

    claim: Text | None = None
    policy: Text | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.claim is None) == (self.policy is None):
            raise ValueError("give either `claim` (id of a published claim) or `policy` (a sentence).")
        return self


class TargetEntry(DataModel):
    """Base of entries that are about one metric or one family."""

    metric: Text | None = None
    family: Text | None = None
    setting: Text | None = None

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if (self.metric is None) == (self.family is None):
            raise ValueError("name either a `metric` or a `family`.")
        return self


class BudgetEntry(TargetEntry):
    """Allowed overhead of a metric or family."""

    sizes: SizesEntry | None = None
    relative: NotNegative | None = None
    absolute: QuantityEntry | None = None
    both: Literal["larger", "smaller"] | None = None
    at_most: Fraction | None = None
    margin: Positive | QuantityEntry
    margin_up_to: Positive | None = None
    reason: ReasonEntry

    @model_validator(mode="after")
    def _some_part(self) -> Self:
        if self.relative is None and self.absolute is None:
            raise ValueError("a budget needs `relative` or `absolute`, or both.")
        if (self.relative is not None and self.absolute is not None) != (self.both is not None):
            raise ValueError("`both: larger` or `both: smaller` goes with a relative and an absolute part.")
        if self.margin_up_to is not None and (
            isinstance(self.margin, QuantityEntry) or self.margin_up_to <= self.margin
        ):
            raise ValueError("`margin_up_to` goes with a smaller `margin` that is a fraction.")
        return self


class ClassEntry(DataModel):
    """A kind of virtualisation."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    gate: Literal["overhead", "change"]
    qualifies: bool
    because: Text | None = None
    accelerators: Annotated[list[Text], Field(min_length=1)]
    description: Text
    reason: Text

    @model_validator(mode="after")
    def _because_of_what(self) -> Self:
        if self.qualifies and self.because:
            raise ValueError("`because` says why no build is qualified: it goes with `qualifies: false`.")
        return self


class BudgetsFile(DataModel):
    """``references/budgets/*.yaml``: one class with its budgets.

    `budgets` limit the overhead, `changes` its change since an earlier session.
    """

    schema_: Annotated[Literal["virtqual-budgets/1"], Field(alias="schema")]
    class_: Annotated[ClassEntry, Field(alias="class")]
    budgets: Annotated[list[BudgetEntry], Field(default_factory=list)]
    changes: Annotated[list[BudgetEntry], Field(default_factory=list)]


class NoiseEntry(TargetEntry):
    """Noise of one pair's log difference."""

    sigma: Positive | Annotated[list[Positive], Field(min_length=1)]
    points: list[NotNegative] | None = None
    df: Positive
    correlation: Annotated[float, Field(ge=0, lt=1)] = 0.5
    common: NotNegative = 0.0
    between: NotNegative = 0.0
    between_df: Positive | Literal["bound"] = STATED_BETWEEN_DF
    source: Text

    @model_validator(mode="after")
    def _points(self) -> Self:
        if isinstance(self.sigma, list) != (self.points is not None):
            raise ValueError("a list of `sigma` goes with a list of `points`.")
        if isinstance(self.sigma, list) and self.points is not None and len(self.sigma) != len(self.points):
            raise ValueError(f"{len(self.sigma)} values of `sigma` for {len(self.points)} `points`.")
        return self


class NoiseFile(DataModel):
    """``references/noise/*.yaml`` and ``references/systems/<system>/noise.yaml``."""

    schema_: Annotated[Literal["virtqual-noise/1"], Field(alias="schema")]
    class_: Annotated[Text | None, Field(alias="class")] = None
    noise: list[NoiseEntry]


class HostsEntry(TargetEntry):
    """How much two groups of hosts differ at most, in log units (0.01 is 1 %)."""

    native: Annotated[list[Text], Field(min_length=1)]
    virtual: Annotated[list[Text], Field(min_length=1)]
    bound: Positive
    means: Positive | None = None
    source: Text

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if both := sorted(set(self.native) & set(self.virtual)):
            raise ValueError(f"{', '.join(both)} of both groups: hosts in both roles need no bound.")
        return self


class SurveyEntry(DataModel):
    """The sessions that a survey of hosts is made of, for the person who reviews it."""

    sessions: Annotated[list[Text], Field(min_length=1)]
    date: Text
    cpu: Text
    stack: Text


class HostsFile(DataModel):
    """``references/systems/<system>/hosts.yaml``."""

    schema_: Annotated[Literal["virtqual-hosts/1"], Field(alias="schema")]
    made_of: SurveyEntry
    hosts: list[HostsEntry]


class WaiverEntry(DataModel):
    """An accepted OVER, up to a ratio."""

    metric: Text
    setting: Text | None = None
    gate: Literal["overhead", "change"]
    up_to: Positive
    class_: Annotated[Text, Field(alias="class")]
    build: Text
    owner: Text
    reason: Text
    expires: date


class WaiversFile(DataModel):
    """``references/waivers.yaml``."""

    schema_: Annotated[Literal["virtqual-waivers/1"], Field(alias="schema")]
    waivers: list[WaiverEntry]


class AskedEntry(DataModel):
    """A check that must be judged, with its parameters as sessions name them, or by its name alone."""

    check: Annotated[str, Field(pattern=r"^\w+( %\w+=\S+)*$")]
    # Of any other word nobody could tell whether it is misspelt, and what it asks for would never be missed.
    where: Literal["multinode", "numa", "rdma"] | None = None


class QualificationFile(DataModel):
    """``references/qualifications/*.yaml``: without these checks no build is qualified."""

    schema_: Annotated[Literal["virtqual-qualification/1"], Field(alias="schema")]
    classes: Annotated[list[Text], Field(min_length=1)]
    scope: Literal["quick", "full"]
    reason: Text
    checks: Annotated[list[AskedEntry], Field(min_length=1)]
