"""The overhead that is allowed, for which class of hypervisor, and why."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from virtqual.references.metrics import Direction, Metric

Floats = NDArray[np.float64]
Gate = Literal["overhead", "change"]

MOST_MARGIN = 0.05
"""Widest margin of a change, a fraction, where no file states another one: with a wider one "not
worse" would mean too little for anybody to act upon."""


class BudgetError(ValueError):
    """A budget that cannot be applied to the values it is for."""


@dataclass(frozen=True)
class Quantity:
    """A number with its unit."""

    value: float
    unit: str

    def __str__(self) -> str:
        return f"{self.value:g} {self.unit}"


@dataclass(frozen=True)
class Reason:
    """The reason for a budget.

    Parameters
    ----------
    kind
        ``claim``: a published claim, by id; ``policy``: ours.
    text
        The claim's id, or the policy in a sentence.
    """

    kind: Literal["claim", "policy"]
    text: str

    def __str__(self) -> str:
        return f"published claim {self.text}" if self.kind == "claim" else f"policy: {self.text}"


@dataclass(frozen=True)
class HypervisorClass:
    """A kind of virtualisation that budgets are for.

    Parameters
    ----------
    name
        ``kvm``, ``esxi``, ``emulated`` ...
    gate
        The quantity that decides: the ``overhead`` itself, or its ``change`` since an earlier session.
    qualifies
        Whether a result may ever be called qualified for production.
    description
        One line.
    reason
        Why it is judged so.
    accelerators
        Accelerators that the class allows, as system files name them; empty in records that do not say.
    because
        Why no build is qualified under it, in a few words; empty where its name says it.
    """

    name: str
    gate: Gate
    qualifies: bool
    description: str
    reason: str
    accelerators: tuple[str, ...] = ()
    because: str = ""

    @property
    def unqualified(self) -> str:
        """Why no build is ever qualified under it, in a few words; empty where a build may be."""
        return "" if self.qualifies else self.because or self.name

    def fits(self, stated: HypervisorClass) -> bool:
        """Return whether VMs of the class that a system file states may be judged as this one.

        What qualifies no build is no more and no less than the system file says, whatever runs the VMs.
        """
        return self.name == stated.name or (self.qualifies and stated.qualifies)


@dataclass(frozen=True)
class Term:
    """The overhead that is allowed over a range of sizes.

    Parameters
    ----------
    relative
        Allowed fraction: 0.05 is latency <= 1.05x, bandwidth >= 0.95x.
    absolute
        Allowed difference, in the metric's unit.
    margin
        Distance above the budget at which an overhead may hide: a fraction, or a difference in the unit.
    reason
        Why.
    both
        Where relative and absolute are given: whether the ``larger`` or the ``smaller`` is allowed.
    low, high
        Range of sizes, ends included.
    where
        ``file:line`` it was read from.
    margin_up_to
        How wide the margin of a change may become, a fraction, where noise and the earlier session's pairs do
        not resolve `margin`. None: as wide as `MOST_MARGIN`.
    at_most
        The fraction that a number with a unit (`absolute`, `margin`) comes to at most, however small native
        is. Files must give it where nothing else bounds such a number; None: not bounded.
    """

    relative: float | None
    absolute: Quantity | None
    margin: float | Quantity
    reason: Reason
    both: Literal["larger", "smaller"] = "larger"
    low: float = -math.inf
    high: float = math.inf
    where: str = ""
    margin_up_to: float | None = None
    at_most: float | None = None

    def covers(self, point: float) -> bool:
        """Return whether `point` lies in its range."""
        return self.low <= point <= self.high

    def allowed(self, native: Floats) -> tuple[Floats, Floats]:
        """Return allowed fraction and margin as a fraction, where native values are `native`."""
        parts = []
        if self.relative is not None:
            parts.append(np.full_like(native, self.relative))
        if self.absolute is not None:
            parts.append(self._fraction(self.absolute, native))
        choose = np.maximum if self.both == "larger" else np.minimum
        margin = self._fraction(self.margin, native) if isinstance(self.margin, Quantity) else self.margin
        return choose.reduce(parts), np.broadcast_to(margin, native.shape)

    @property
    def of_ratios(self) -> bool:
        """Whether it is a ratio whatever native is: no part of it has a unit."""
        return self.absolute is None and not isinstance(self.margin, Quantity)

    def _fraction(self, quantity: Quantity, native: Floats) -> Floats:
        """Return a number with a unit as a fraction of native values, as far as `at_most` lets it."""
        return np.minimum(quantity.value / native, math.inf if self.at_most is None else self.at_most)

    def text(self, metric: Metric) -> str:
        """Return the budget with its margin as people read it."""
        lower = metric.better == "lower"
        sign = 1 if lower else -1
        parts = []
        if self.relative is not None:
            parts.append(f"{'<=' if lower else '>='} {1 + sign * self.relative:g}x")
        if self.absolute is not None:
            parts.append(f"{'+' if lower else '-'}{self.absolute}")
            if self.at_most is not None:
                parts[-1] += f" {'up' if lower else 'down'} to {1 + sign * self.at_most:g}x"
        joined = f" or {'more' if self.both == 'larger' else 'less'}, ".join(parts)
        margin = str(self.margin) if isinstance(self.margin, Quantity) else f"{self.margin:g}"
        if isinstance(self.margin, Quantity) and self.at_most is not None:
            margin += f", {self.at_most:g} at most"
        if self.margin_up_to is not None:
            margin += f" to {self.margin_up_to:g}"
        return f"{joined} (margin {margin})"


@dataclass(frozen=True)
class Budget:
    """The budget of one metric in one setting under one class.

    Parameters
    ----------
    terms
        For a scalar one; for a curve one or more that cover its sizes. The first that covers a size
        holds for it.
    hypervisor_class
        Name of the class it is for.
    gate
        The quantity that the budget limits: the ``overhead`` or its ``change``.
    """

    terms: tuple[Term, ...]
    hypervisor_class: str = ""
    gate: Gate = "overhead"

    @classmethod
    def of(
        cls,
        relative: float | None = None,
        *,
        margin: float | Quantity,
        absolute: Quantity | None = None,
        reason: str = "stated by the caller",
        both: Literal["larger", "smaller"] = "larger",
        at_most: float | None = None,
        hypervisor_class: str = "",
        gate: Gate = "overhead",
    ) -> Budget:
        """Return a budget of one term for all sizes."""
        if relative is None and absolute is None:
            raise BudgetError("a budget needs a relative or an absolute part, or both.")
        term = Term(relative, absolute, margin, Reason("policy", reason), both, at_most=at_most)
        return cls((term,), hypervisor_class, gate)

    def term(self, point: float | None) -> Term:
        """Return the term that holds at `point` (None for a scalar).

        Raises
        ------
        BudgetError
            If none covers it.
        """
        for term in self.terms:
            if point is None or term.covers(point):
                return term
        raise BudgetError(f"no budget covers size {point:g}.")

    def limits(
        self,
        metric: Metric,
        points: tuple[float, ...],
        native: Floats,
    ) -> tuple[Floats, Floats, Floats]:
        """Return budget, margin and widest margin of a change at each point, in log units.

        Parameters
        ----------
        metric
            The metric whose values they limit.
        points
            Sizes of a curve; empty for a scalar.
        native
            Native value at each point, shape (n_points,), by which absolute parts are turned into
            ratios.

        Returns
        -------
        limit, margin, most : ndarray
            Shape (n_points,). A difference d above `limit` is over budget; d of ``limit + margin``
            passes in beta of all cases at most.

        Raises
        ------
        BudgetError
            If a part is in another unit, a size has no budget, or a bandwidth could fall to zero.
        """
        if all(term.of_ratios for term in self.terms):
            with suppress(BudgetError):  # which is told with the values
                return _limits_of_ratios(self, metric.better, points)
        return self._limits(metric, points, native)

    def _limits(
        self, metric: Metric, points: tuple[float, ...], native: Floats
    ) -> tuple[Floats, Floats, Floats]:
        terms = [self.term(point) for point in points or (None,)]
        fraction, extra, most = (np.empty(len(native)) for _ in range(3))
        for term in dict.fromkeys(terms):
            for part in (term.absolute, term.margin):
                if isinstance(part, Quantity) and part.unit != metric.unit:
                    raise BudgetError(f"{metric.name} is in {metric.unit}, its budget in {part.unit}.")
            here = np.array([other is term for other in terms])
            fraction[here], extra[here] = term.allowed(native[here])
            widest = np.maximum(extra[here], MOST_MARGIN)
            most[here] = widest if term.margin_up_to is None else term.margin_up_to
        if metric.better == "higher" and np.any(fraction + most >= 1):
            worst = int(np.argmax(fraction + most))
            where = f" at {points[worst]:g} {metric.axis_unit}" if points else ""
            raise BudgetError(
                f"{metric.name}{where}: budget plus margin allow everything to be lost "
                f"({fraction[worst] + most[worst]:.0%} of {native[worst]:g} {metric.unit})."
            )
        sign = 1 if metric.better == "lower" else -1
        limit: Floats = sign * np.log1p(sign * fraction)
        margin: Floats = sign * np.log1p(sign * (fraction + extra)) - limit
        return limit, margin, sign * np.log1p(sign * (fraction + most)) - limit


@lru_cache(maxsize=4096)
def _limits_of_ratios(
    budget: Budget, better: Direction, points: tuple[float, ...]
) -> tuple[Floats, Floats, Floats]:
    """Return the limits that are the same whatever native is: worked out once for all series alike."""
    metric = Metric.model_construct(name="", unit="", better=better, family="", description="")
    found = budget._limits(metric, points, np.ones(max(len(points), 1)))
    for limit in found:
        limit.flags.writeable = False
    return found
