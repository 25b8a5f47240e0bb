"""A series with all that is needed to judge it."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from virtqual.verdict.budget import Budget, BudgetError, Gate
from virtqual.verdict.estimate import Floats, append_mean
from virtqual.verdict.noise import Prior, sigma_of
from virtqual.verdict.overhead import Runs
from virtqual.verdict.pairs import Series
from virtqual.verdict.places import Places, places_of
from virtqual.verdict.rule import FLOOR


@dataclass(frozen=True, eq=False)
class Case:
    """A series with all that is needed to judge it."""

    series: Series
    #: If its gate is ``change`` and there is no `baseline`, the outcome is BASELINE.
    budget: Budget
    prior: Prior
    #: The series in an earlier session; if given, the change of the overhead is judged.
    baseline: Series | None = None
    #: Reasons for which the series cannot be judged, such as a native value that misses its reference.
    refused: tuple[str, ...] = ()
    #: The largest difference between the hosts of both sides in log units; infinite if unknown
    #: (`places.Places`).
    bound: float = math.inf
    #: The same in the earlier session.
    earlier_bound: float = math.inf
    #: n if this is the n-th session of the build in a row that tries to pass it.
    attempt: int = field(default=1, kw_only=True)

    @property
    def floor(self) -> float:
        """The overhead, in log units, below which the sides are not believed; see `rule.FLOOR`.

        A candidate that is not a virtual machine on the same hardware may be faster by any amount.
        """
        return FLOOR if self.series.labels.are_native_and_virtual else -math.inf

    @property
    def gate(self) -> Gate:
        """The quantity that is judged: a session may judge both the overhead and its change."""
        return self.budget.gate if self.baseline is None else "change"

    @cached_property
    def limits(self) -> tuple[Floats, Floats, Floats]:
        """See `Budget.limits`; NaN for a refused series without a budget."""
        series = self.series
        try:
            return self.budget.limits(series.metric, series.points, series.medians["native"])
        except BudgetError:
            if not self.refused:
                raise
            return (np.full(series.width, np.nan),) * 3

    @cached_property
    def runs(self) -> Runs:
        """The runs of this session."""
        return _runs_of(self.series, self.bound)

    @cached_property
    def earlier(self) -> Runs | None:
        """The runs of the earlier session."""
        return _runs_of(self.baseline, self.earlier_bound) if self.baseline else None

    @property
    def sigma(self) -> Floats:
        """The known standard deviation of a pair, for each size and for their mean."""
        return sigma_of(self.prior, self.series.width)

    @property
    def between(self) -> float:
        """The known standard deviation of a boot."""
        sessions = [runs.places for runs in (self.runs, self.earlier) if runs]
        return self.prior.boots(hosts_known=all(places.are_known for places in sessions))

    @property
    def clock_bias(self) -> Floats:
        """How far clocks may have moved the overhead or its change, in log units, shape (n_points,)."""
        return self.series.clock_bias + (self.baseline.clock_bias if self.baseline else 0.0)

    @property
    def places(self) -> Places:
        """The places of this session, or the earlier one's if a change is left to hosts by those alone."""
        places = self.runs.places
        earlier = self.earlier.places if self.earlier else places
        return places if places.confounded or not earlier.confounded or places.cancels(earlier) else earlier

    def choose_order(self, pairs: int | None) -> str:
        """Return which side runs first in each pair that is needed to have so many, N or V.

        Empty if none is needed, or if several hosts take turns.
        """
        return self.series.choose_order(pairs) if pairs and self.runs.places.width == 1 else ""

    @property
    def shape(self) -> Hashable:
        """Cases of equal shapes can stand in one batch."""
        earlier = self.earlier and (self.earlier.logs.shape, self.earlier.places)
        has_boots, boots_df = self.between > 0, self.prior.between_df
        return self.runs.logs.shape, self.runs.places, earlier, has_boots, boots_df


def _runs_of(series: Series, bound: float) -> Runs:
    """Return the runs of the pairs that are judged, of a rotation whole rounds."""
    runs = Runs(append_mean(series.costs(series.chosen)), places_of(series.chosen, bound))
    pairs = len(series.chosen)
    return runs.first(pairs - pairs % runs.places.width)
