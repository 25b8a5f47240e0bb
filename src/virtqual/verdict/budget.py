"""The overhead that is allowed, for which class of hypervisor, and why."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from virtqual.errors import UsageError
from virtqual.files.datafile import DataModel, Text
from virtqual.verdict.estimate import Floats
from virtqual.verdict.metric import Metric, NotNegative, Positive, Target
from virtqual.verdict.notation import (
    PERCENT,
    format_percent,
    format_size,
    format_sizes,
    format_value,
    sign_of,
)

Gate = Literal["overhead", "change"]
Fraction = Annotated[float, Field(gt=0, lt=1), PERCENT]

MAX_CHANGE_MARGIN = 0.05
"""Widest margin of a change, a fraction, unless a file states another one."""


class BudgetError(UsageError):
    """A budget that cannot be applied to the values it is for."""


class Quantity(DataModel):
    """A number with its unit."""

    value: Positive
    unit: Text

    def __str__(self) -> str:
        return f"{self.value:.15g} {self.unit}"


class Sizes(DataModel, populate_by_name=True):
    """A range of sizes, ends included."""

    low: Annotated[NotNegative, Field(alias="from")]
    high: Annotated[NotNegative, Field(alias="to")]

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"sizes run from {self.low:.15g} down to {self.high:.15g}: swap them.")
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


class HypervisorClass(DataModel):
    """A kind of virtualisation that budgets are for."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    #: The quantity that decides: the ``overhead`` itself, or its ``change`` since an earlier session.
    gate: Gate
    #: False if no build may be called qualified.
    qualifies: bool
    #: Why none may, in a few words; None if the name says it.
    because: Text | None = None
    #: Accelerators that the class allows, as system files name them.
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
        """Return whether VMs of the class that a system file states may be judged as this one."""
        return self.name == stated.name or (self.qualifies and stated.qualifies)


class Term(Target):
    """The overhead that is allowed over a range of sizes."""

    sizes: Sizes | None = None
    #: Allowed fraction of the native value (``5%`` or 0.05).
    relative: Annotated[NotNegative, PERCENT]
    #: Difference in the metric's unit that is allowed where it is more than `relative`.
    absolute: Quantity | None = None
    #: The largest fraction of the native value that `absolute` may come to.
    at_most: Fraction | None = None
    #: Distance above the budget at which an overhead may hide, a fraction.
    margin: Annotated[Positive, PERCENT]
    #: Widest margin of a change, a fraction, if noise and the earlier session's pairs do not resolve
    #: `margin`; None for `MAX_CHANGE_MARGIN`.
    margin_up_to: Annotated[Positive | None, PERCENT] = None
    reason: BudgetReason

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        if (self.absolute is None) != (self.at_most is None):
            raise ValueError("`absolute` and `at_most` go together: which fraction may `absolute` come to?")
        if self.at_most is not None and self.at_most <= self.relative:
            raise ValueError("`at_most` must be larger than `relative`, or `absolute` never counts.")
        if self.margin_up_to is not None and self.margin_up_to <= self.margin:
            raise ValueError("`margin_up_to` goes with a smaller `margin`.")
        return self

    @property
    def max_margin(self) -> float:
        """The widest margin of a change, a fraction."""
        return max(self.margin, MAX_CHANGE_MARGIN) if self.margin_up_to is None else self.margin_up_to

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest size."""
        return (-math.inf, math.inf) if self.sizes is None else (self.sizes.low, self.sizes.high)

    def covers(self, point: float) -> bool:
        """Return whether a size lies in its range."""
        low, high = self.bounds
        return low <= point <= high

    def describe_sizes(self, unit: str) -> str:
        """Return its range such as ``from 1 B to 2 MiB`` or ``above 2 MiB, up to 32 MiB``."""
        if self.sizes is None:
            return "at other sizes"
        low, high = self.sizes.low, self.sizes.high
        if low > 1 and low % 1024 == 1:
            return f"above {format_size(low - 1, unit)}, up to {format_size(high, unit)}"
        return f"from {format_sizes(low, high, unit)}"

    def contradicts(self, term: Term) -> bool:
        """Return whether both hold for the same results, both at sizes that they name or both at all."""
        has_same_target = (self.metric, self.setting) == (term.metric, term.setting) and (
            self.metric is not None or not set(self.family).isdisjoint(term.family)
        )
        overlaps = self.bounds[0] <= term.bounds[1] and term.bounds[0] <= self.bounds[1]
        return has_same_target and (self.sizes is None) == (term.sizes is None) and overlaps

    def fraction(self, native: float) -> float:
        """Return the budget as a fraction of a native value."""
        if self.absolute is None or self.at_most is None:
            return self.relative
        return max(self.relative, min(self.absolute.value / native, self.at_most))

    def text(self, metric: Metric) -> str:
        """Return the budget with its margin as people read it."""
        slow = f"{1 + self.relative:g}x as slow"
        budget = f"at most {slow if self.relative >= 1 else f'{format_percent(self.relative)} slower'}"
        if metric.better == "higher" and 0.9 <= self.relative < 1:
            # Results near it are shown as factors.
            budget += f", that is {1 / (1 - self.relative):.3g}x as slow"
        if self.absolute is not None and self.at_most is not None:
            word = "more" if metric.better == "lower" else "less"
            budget += f" or {self.absolute} {word}, whichever is larger, up to {format_percent(self.at_most)}"
        margin = format_percent(self.margin)
        if self.margin_up_to is not None:
            margin += f" to {format_percent(self.margin_up_to)}"
        return f"{budget} (margin {margin})"


class Budget(DataModel):
    """The budget of one metric in one setting under one class; the first term that covers a size counts."""

    terms: tuple[Term, ...]
    gate: Gate = "overhead"

    @classmethod
    def build(cls, relative: float, *, margin: float, gate: Gate = "overhead") -> Budget:
        """Return a relative budget for all sizes."""
        term = Term(relative=relative, margin=margin, reason=BudgetReason(policy="stated by the caller"))
        return cls(terms=(term,), gate=gate)

    def term(self, point: float | None) -> Term:
        """Return the term for a size, None for a scalar; `BudgetError` if there is none."""
        for term in self.terms:
            if point is None or term.covers(point):
                return term
        raise BudgetError(f"no budget covers size {point:.15g}.")

    def limits(
        self, metric: Metric, points: tuple[float, ...], native: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Return budget, margin and widest margin of a change at each point, in log units.

        The native value at each point turns a part with a unit into a ratio.

        Raises
        ------
        BudgetError
            A size has no budget, or a bandwidth could fall to zero.
        """
        terms = [self.term(point) for point in points or (None,)]
        fraction = np.array([term.fraction(value) for term, value in zip(terms, native, strict=True)])
        margin = np.array([term.margin for term in terms])
        # The margin of an overhead does not widen.
        max_margin = np.array([term.max_margin for term in terms]) if self.gate == "change" else margin
        if metric.better == "higher" and np.any(fraction + max_margin >= 1):
            worst = int(np.argmax(fraction + max_margin))
            size = f" at {format_size(points[worst], metric.axis_unit)}" if points else ""
            raise BudgetError(
                f"{metric.name}{size}: budget plus margin allow everything to be lost "
                f"({fraction[worst] + max_margin[worst]:.0%} of {format_value(native[worst])} {metric.unit})."
            )
        sign = sign_of(metric.better)
        allowed = np.stack([fraction, fraction + margin, fraction + max_margin])
        limit, with_margin, widest = sign * np.log1p(sign * allowed)
        return limit, with_margin - limit, widest - limit
