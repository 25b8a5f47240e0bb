"""The overhead that is allowed, for which class of hypervisor, and why."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, model_validator

from virtqual.files.datafile import DataModel
from virtqual.verdict.metric import Metric, NotNegative, Positive, Target, Text
from virtqual.verdict.notation import PERCENT, format_percent

Floats = NDArray[np.float64]
Gate = Literal["overhead", "change"]
Fraction = Annotated[float, Field(gt=0, lt=1), PERCENT]
WhichPart = Literal["larger", "smaller"]

MAX_CHANGE_MARGIN = 0.05
"""Widest margin of a change, a fraction, unless a file states another one. With a wider margin "not worse"
would mean too little to act upon."""


class BudgetError(ValueError):
    """A budget that cannot be applied to the values it is for."""


class Quantity(DataModel):
    """A number with its unit."""

    value: Positive
    unit: Text

    def __str__(self) -> str:
        return f"{self.value:g} {self.unit}"


class Sizes(DataModel):
    """A range of sizes, ends included."""

    model_config = ConfigDict(populate_by_name=True)

    low: Annotated[NotNegative, Field(alias="from")]
    high: Annotated[NotNegative, Field(alias="to")]

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"sizes run from {self.low:g} down to {self.high:g}: swap them.")
        return self


class BudgetReason(DataModel):
    """The reason for a budget: the id of a published claim, or our policy in a sentence."""

    claim: Text | None = None
    policy: Text | None = None

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if (self.claim is None) == (self.policy is None):
            raise ValueError("give either `claim` (id of a published claim) or `policy` (a sentence).")
        return self

    def __str__(self) -> str:
        return f"policy: {self.policy}" if self.claim is None else f"published claim {self.claim}"


class HypervisorClass(DataModel):
    """A kind of virtualisation that budgets are for.

    Attributes
    ----------
    gate
        The quantity that decides: the ``overhead`` itself, or its ``change`` since an earlier session.
    qualifies, because
        False if no build may be called qualified, and the reason in a few words; None if the name says it.
    accelerators
        Accelerators that the class allows, as system files name them.
    """

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    gate: Gate
    qualifies: bool
    because: Text | None = None
    accelerators: Annotated[tuple[Text, ...], Field(min_length=1, strict=False)]
    description: Text
    reason: Text

    @model_validator(mode="after")
    def _check_because(self) -> Self:
        if self.qualifies and self.because:
            raise ValueError("`because` says why no build is qualified: it goes with `qualifies: false`.")
        return self

    @property
    def unqualified(self) -> str | None:
        """Why no build is ever qualified under the class, in a few words; None if a build may be."""
        return None if self.qualifies else self.because or self.name

    def fits(self, stated: HypervisorClass) -> bool:
        """Return whether VMs of the class that a system file states may be judged as this one.

        A class that qualifies no build fits only itself.
        """
        return self.name == stated.name or (self.qualifies and stated.qualifies)


class Term(Target):
    """The overhead that is allowed over a range of sizes.

    Attributes
    ----------
    relative, absolute
        Allowed fraction of native's value (``5%`` or 0.05), and difference in the metric's unit.
    both
        Whether the larger or the smaller of a relative and an absolute part is allowed.
    at_most
        Fraction that a number with a unit (`absolute`, `margin`) never exceeds, however small native is.
    margin
        Distance above the budget at which an overhead may hide: a fraction, or a difference in the unit.
    margin_up_to
        Widest margin of a change, a fraction, if noise and the earlier session's pairs do not resolve
        `margin`; None for `MAX_CHANGE_MARGIN`.
    """

    sizes: Sizes | None = None
    relative: Annotated[NotNegative | None, PERCENT] = None
    absolute: Quantity | None = None
    both: WhichPart | None = None
    at_most: Fraction | None = None
    margin: Annotated[Positive | Quantity, PERCENT]
    margin_up_to: Annotated[Positive | None, PERCENT] = None
    reason: BudgetReason

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        if self.relative is None and self.absolute is None:
            raise ValueError("a budget needs `relative` or `absolute`, or both.")
        if (self.relative is not None and self.absolute is not None) != (self.both is not None):
            raise ValueError("`both: larger` or `both: smaller` goes with a relative and an absolute part.")
        if self.margin_up_to is not None and (
            isinstance(self.margin, Quantity) or self.margin_up_to <= self.margin
        ):
            raise ValueError("`margin_up_to` goes with a smaller `margin` that is a fraction.")
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest size."""
        return (-math.inf, math.inf) if self.sizes is None else (self.sizes.low, self.sizes.high)

    @property
    def rank(self) -> tuple[bool, ...]:
        """Sort key as of `Target`, then entries with sizes before entries without."""
        return *super().rank, self.sizes is None

    def covers(self, point: float) -> bool:
        """Return whether a size lies in its range."""
        low, high = self.bounds
        return low <= point <= high

    def contradicts(self, term: Term) -> bool:
        """Return whether both have the same rank and hold for the same results."""
        has_same_target = (self.metric, self.family, self.setting) == (term.metric, term.family, term.setting)
        overlaps = self.bounds[0] <= term.bounds[1] and term.bounds[0] <= self.bounds[1]
        return has_same_target and self.rank == term.rank and overlaps

    def fractions(self, native: float) -> tuple[float, float, float]:
        """Return budget, margin and widest margin of a change as fractions of a native value."""

        def fraction_of(part: float | Quantity) -> float:
            if not isinstance(part, Quantity):
                return part
            return min(part.value / native, math.inf if self.at_most is None else self.at_most)

        parts = [fraction_of(part) for part in (self.relative, self.absolute) if part is not None]
        margin = fraction_of(self.margin)
        max_margin = max(margin, MAX_CHANGE_MARGIN) if self.margin_up_to is None else self.margin_up_to
        return min(parts) if self.both == "smaller" else max(parts), margin, max_margin

    def text(self, metric: Metric) -> str:
        """Return the budget with its margin as people read it."""
        parts = []
        if self.relative is not None:
            factor = f"{1 + self.relative:g}x as slow"
            parts.append(factor if self.relative >= 1 else f"{format_percent(self.relative)} slower")
        if self.absolute is not None:
            parts.append(f"{self.absolute} {'more' if metric.better == 'lower' else 'less'}")
        budget = f"at most {' or '.join(parts)}"
        if self.both is not None:
            budget += f", whichever is {self.both}"
        if self.absolute is not None and self.at_most is not None:
            budget += f", up to {format_percent(self.at_most)}"
        if not isinstance(self.margin, Quantity):
            margin = format_percent(self.margin)
        elif self.at_most is not None:
            margin = f"{self.margin}, up to {format_percent(self.at_most)}"
        else:
            margin = str(self.margin)
        if self.margin_up_to is not None:
            margin += f" to {format_percent(self.margin_up_to)}"
        return f"{budget} (margin {margin})"


class Budget(DataModel):
    """The budget of one metric in one setting under one class.

    The first term that covers a size of a curve counts. The class is empty if the budget was stated by hand.
    """

    terms: tuple[Term, ...]
    hypervisor_class: str = ""
    gate: Gate = "overhead"

    @classmethod
    def build(
        cls,
        relative: float,
        *,
        margin: float,
        reason: str = "stated by the caller",
        hypervisor_class: str = "",
        gate: Gate = "overhead",
    ) -> Budget:
        """Return a relative budget for all sizes."""
        term = Term(relative=relative, margin=margin, reason=BudgetReason(policy=reason))
        return cls(terms=(term,), hypervisor_class=hypervisor_class, gate=gate)

    def term(self, point: float | None) -> Term:
        """Return the term for a size (None for a scalar).

        Raises
        ------
        BudgetError
            No term covers the size.
        """
        for term in self.terms:
            if point is None or term.covers(point):
                return term
        raise BudgetError(f"no budget covers size {point:g}.")

    def limits(
        self, metric: Metric, points: tuple[float, ...], native: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Return budget, margin and widest margin of a change at each point, in log units.

        A difference above the budget is over it; a difference of budget plus margin passes in 5 % of all
        cases at most. The native value at each point turns parts with a unit into ratios.

        Raises
        ------
        BudgetError
            A part has another unit than the metric, a size has no budget, or a bandwidth could fall to zero.
        """
        terms = [self.term(point) for point in points or (None,)]
        for part in (part for term in terms for part in (term.absolute, term.margin)):
            if isinstance(part, Quantity) and part.unit != metric.unit:
                raise BudgetError(f"{metric.name} is in {metric.unit}, its budget in {part.unit}.")
        fractions = [term.fractions(value) for term, value in zip(terms, native.tolist(), strict=True)]
        fraction, margin, max_margin = np.array(fractions).T
        if metric.better == "higher" and np.any(fraction + max_margin >= 1):
            worst = int(np.argmax(fraction + max_margin))
            size = f" at {points[worst]:g} {metric.axis_unit}" if points else ""
            raise BudgetError(
                f"{metric.name}{size}: budget plus margin allow everything to be lost "
                f"({fraction[worst] + max_margin[worst]:.0%} of {native[worst]:g} {metric.unit})."
            )
        sign = 1 if metric.better == "lower" else -1
        limit: Floats = sign * np.log1p(sign * fraction)
        return (
            limit,
            sign * np.log1p(sign * (fraction + margin)) - limit,
            sign * np.log1p(sign * (fraction + max_margin)) - limit,
        )
