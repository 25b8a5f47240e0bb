"""Cases as the arrays that the rule judges: series of one shape stand in one batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import attrgetter

import numpy as np

from virtqual.verdict.budget import Budget, Gate
from virtqual.verdict.clock import clock_bias
from virtqual.verdict.estimate import Floats, Noise
from virtqual.verdict.noise import Prior
from virtqual.verdict.outcome import OUTCOMES, Outcome
from virtqual.verdict.overhead import Runs
from virtqual.verdict.pairs import SIDES, Pair, Series, Side
from virtqual.verdict.places import Places, places_of
from virtqual.verdict.rule import Batch, Cause


@dataclass(frozen=True, eq=False)
class Case:
    """A series with all that is needed to judge it.

    Parameters
    ----------
    budget
        If its gate is ``change`` and there is no `baseline`, the outcome is BASELINE.
    baseline
        The series in an earlier session; if given, the change of the overhead is judged.
    refused
        Reasons for which the series cannot be judged, such as a native value that misses its reference.
    bound, earlier_bound
        The largest difference between the hosts of both sides in log units, here and in the earlier session;
        infinite if unknown. See `virtqual.verdict.places.Places`.
    """

    series: Series
    budget: Budget
    prior: Prior
    baseline: Series | None = None
    refused: tuple[str, ...] = ()
    bound: float = math.inf
    earlier_bound: float = math.inf

    @property
    def gate(self) -> Gate:
        """The quantity that is judged: a session may judge both the overhead and its change."""
        return self.budget.gate if self.baseline is None else "change"


@dataclass(eq=False)
class Question:
    """A case with a valid pair as the rule takes it: its overhead, or the change since the earlier session.

    `limit`, `margin` and `max_margin` are in log units, shape (n_points,). `batch_of` sets the batch and the
    row of it that has the answer.
    """

    case: Case
    limit: Floats
    margin: Floats
    max_margin: Floats
    is_change: bool = False
    batch: Batch = field(init=False)
    row: tuple[int, int] = field(init=False)

    @cached_property
    def runs(self) -> Runs:
        """The runs of the pairs that count."""
        return runs_of(self.case.series, self.case.bound)

    @cached_property
    def earlier(self) -> Runs | None:
        """The runs of the earlier session; None unless the change is judged."""
        series = self.case.baseline
        return runs_of(series, self.case.earlier_bound) if self.is_change and series else None

    @property
    def clock_bias(self) -> Floats:
        """How far clocks may have moved the overhead or its change, in log units, shape (n_points,)."""
        bias = clock_bias(self.case.series)
        return bias + clock_bias(self.case.baseline) if self.is_change and self.case.baseline else bias

    @property
    def pairs(self) -> int:
        """Number of pairs that count."""
        return len(self.runs.native)

    @property
    def deciding_places(self) -> Places:
        """The places of this session, or the earlier one's if a change is left to hosts by those alone."""
        places = self.runs.places
        earlier = self.earlier.places if self.earlier else places
        return places if places.confounded or not earlier.confounded or places.cancels(earlier) else earlier

    @property
    def key(self) -> Hashable:
        """Questions with equal keys can stand in one batch."""
        places, earlier = self.runs.places, None
        if self.earlier is not None:
            # Hosts cancel if they have the same names.
            before = self.earlier.places
            earlier = (len(self.earlier.native), before.key, before.hosts, places.hosts)
        prior = self.case.prior
        return (self.runs.native.shape, places.key, earlier, prior.between > 0, prior.between_df)

    @property
    def outcome(self) -> Outcome:
        """The answer of the rule."""
        return OUTCOMES[int(self.batch.outcome[self.row])]

    @property
    def cause(self) -> Cause:
        """Why the answer is UNDECIDED or INVALID."""
        return Cause(int(self.batch.cause[self.row]))

    @property
    def used_pairs(self) -> int:
        """Pairs at the look that decided; 0 before the first look."""
        return int(self.batch.used[self.row]) * self.batch.width

    @property
    def next_pairs(self) -> int | None:
        """Pairs that the next look needs, in a rotation whole rounds; None if there is no next look."""
        return int(self.batch.next_pairs[self.row]) * self.batch.width or None

    @property
    def used_margin(self) -> Floats:
        """The margin that was used, shape (n_points,)."""
        margin: Floats = np.asarray(self.batch.margin)[self.row][: self.batch.points]
        return margin

    @property
    def bounds(self) -> list[tuple[float, float, float]]:
        """Mean, lower and upper bound of each size and of the whole; infinite before the first look."""
        mean, low, high = (
            values[self.row].tolist() for values in (self.batch.mean, self.batch.low, self.batch.high)
        )
        if not self.used_pairs:
            return [(value, -math.inf, math.inf) for value in mean]
        return list(zip(mean, low, high, strict=True))


@lru_cache(maxsize=4096)
def sigma_of(prior: Prior, width: int) -> Floats:
    """Return the known standard deviation of a pair, for each size and for their mean."""
    covariance = prior.covariance(width)
    sigma = np.sqrt(np.diagonal(covariance))
    return sigma if width == 1 else np.append(sigma, prior.mean or math.sqrt(float(covariance.mean())))


def costs(series: Series, pairs: Sequence[Pair]) -> tuple[Floats, Floats]:
    """Return the logarithms of native and virtual values, larger is worse, each (n_pairs, n_points)."""
    sign = 1.0 if series.metric.better == "lower" else -1.0
    if pairs is series.valid:
        native, virtual = series.values["native"], series.values["virtual"]
    else:
        native, virtual = (
            np.array([getattr(pair, side).values for pair in pairs]) for side in ("native", "virtual")
        )
    return sign * np.log(native), sign * np.log(virtual)


def runs_of(series: Series, bound: float) -> Runs:
    """Return the runs of the pairs of a series that count."""
    return Runs(*costs(series, series.chosen), places_of(series.chosen, bound))


def batch_of(sessions: Sequence[Sequence[Question]], min_boots: int) -> Batch:
    """Return questions of one key as a batch: a row for each session, with as many questions each.

    The questions get the batch, and their place in it.
    """

    def stack(value: Callable[[Question], object]) -> Floats:
        return np.array([[value(question) for question in row] for row in sessions])

    def refused(side: Side) -> Floats:
        return stack(lambda question: question.case.series.refused(side))

    def stack_runs(name: str) -> Runs:
        native, virtual = (stack(attrgetter(f"{name}.{side}")) for side in SIDES)
        return Runs(native, virtual, getattr(sessions[0][0], name).places)

    first = sessions[0][0]
    noise = Noise(
        stack(lambda question: sigma_of(question.case.prior, question.case.series.width)),
        stack(lambda question: [question.case.prior.df]),
        stack(lambda question: [question.case.prior.between]),
        first.case.prior.between_df,
    )
    batch = Batch(
        stack_runs("runs"),
        stack(attrgetter("limit")),
        stack(attrgetter("margin")),
        noise,
        earlier=None if first.earlier is None else stack_runs("earlier"),
        max_margin=stack(attrgetter("max_margin")),
        refused_native=refused("native"),
        refused_virtual=refused("virtual"),
        bias=stack(lambda question: question.clock_bias),
        min_boots=min_boots,
    )
    for index, questions in enumerate(sessions):
        for column, question in enumerate(questions):
            question.batch, question.row = batch, (index, column)
    return batch
