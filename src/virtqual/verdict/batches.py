"""Cases as the arrays that the rule judges: series of one shape stand in one batch."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from virtqual.verdict.budget import Budget, Gate
from virtqual.verdict.estimate import Floats, Noise
from virtqual.verdict.noise import Prior
from virtqual.verdict.outcome import OUTCOMES, Outcome
from virtqual.verdict.pairs import Pair, Series, Side
from virtqual.verdict.places import Places, places_of
from virtqual.verdict.rule import SHARED_BOOT, Batch, BatchState, Cause


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

    `limit`, `margin` and `max_margin` are in log units, shape (n_points,). The rule's answer is a row of a
    batch, which `virtqual.verdict.judge` sets.
    """

    case: Case
    limit: Floats
    margin: Floats
    max_margin: Floats
    is_change: bool = False
    state: BatchState = field(init=False)
    row: int = field(init=False)

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs that count."""
        return self.case.series.chosen

    @cached_property
    def places(self) -> Places:
        """The hosts and boots of the pairs."""
        return places_of(self.pairs, self.case.bound)

    @cached_property
    def costs(self) -> tuple[Floats, Floats]:
        """Native and virtual costs of the pairs; see `costs`."""
        return costs(self.case.series, self.pairs)

    @cached_property
    def earlier(self) -> tuple[Floats, Floats, Places] | None:
        """Costs and places of the earlier session; None unless the change is judged."""
        series = self.case.baseline
        if series is None or not self.is_change:
            return None
        pairs = series.chosen
        return *costs(series, pairs), places_of(pairs, self.case.earlier_bound)

    @property
    def deciding_places(self) -> Places:
        """The places of this session, or the earlier one's if a change is left to hosts by those alone."""
        earlier = self.places if self.earlier is None else self.earlier[2]
        if self.places.confounded or not earlier.confounded or self.places.cancels(earlier):
            return self.places
        return earlier

    @cached_property
    def sigma(self) -> Floats:
        """Known standard deviation of a pair; see `sigma_of`."""
        return sigma_of(self.case.prior, self.case.series.width)

    @property
    def key(self) -> Hashable:
        """Questions with equal keys can stand in one batch."""
        earlier = None
        if self.earlier is not None:
            # Hosts cancel if they have the same names.
            earlier = (len(self.earlier[0]), self.earlier[2].key, self.earlier[2].hosts, self.places.hosts)
        prior = self.case.prior
        # A batch has one answer to whether boots vary, and by much; see `rule.SHARED_BOOT`.
        boots = (prior.between > 0, prior.between > SHARED_BOOT * self.sigma[-1], prior.between_df)
        return (self.costs[0].shape, self.places.key, earlier, boots)

    @property
    def outcome(self) -> Outcome:
        """The answer of the rule."""
        return OUTCOMES[int(self.state.outcome[self.row])]

    @property
    def cause(self) -> Cause:
        """Why the answer is UNDECIDED or INVALID."""
        return Cause(int(self.state.cause[self.row]))

    @property
    def used_pairs(self) -> int:
        """Pairs at the look that decided; 0 before the first look."""
        return int(self.state.used[self.row]) * self.places.width

    @property
    def next_pairs(self) -> int | None:
        """Pairs that the next look needs, in a rotation whole rounds; None if there is no next look."""
        return int(self.state.next_pairs[self.row]) * self.places.width or None

    @property
    def used_margin(self) -> Floats:
        """The margin that was used, shape (n_points,)."""
        margin: Floats = self.state.margin[self.row, : self.state.points]
        return margin

    @property
    def bounds(self) -> list[tuple[float, float, float]]:
        """Mean, lower and upper bound of each size and of the whole; infinite before the first look."""
        arrays = (self.state.mean, self.state.low, self.state.high)
        mean, low, high = (values[self.row].tolist() for values in arrays)
        if not self.used_pairs:
            return [(value, -math.inf, math.inf) for value in mean]
        return list(zip(mean, low, high, strict=True))


@lru_cache(maxsize=4096)
def sigma_of(prior: Prior, width: int) -> Floats:
    """Return the known standard deviation of a pair, for each size and for their mean."""
    covariance = prior.covariance(width)
    sigma = np.sqrt(np.diagonal(covariance))
    return sigma if width == 1 else np.append(sigma, math.sqrt(float(covariance.mean())))


def costs(series: Series, pairs: Sequence[Pair]) -> tuple[Floats, Floats]:
    """Return the logarithms of native and virtual values, larger is worse, each (n_pairs, n_points)."""
    sign = 1.0 if series.metric.better == "lower" else -1.0
    if pairs is series.valid:
        native, virtual = series.values("native"), series.values("virtual")
    else:
        native, virtual = (
            np.array([getattr(pair, side).values for pair in pairs]) for side in ("native", "virtual")
        )
    return sign * np.log(native), sign * np.log(virtual)


def batch_of(sessions: Sequence[Sequence[Question]], looks: Sequence[int], alpha: float) -> Batch:
    """Return questions of one key as a batch: a row for each session, with as many questions each."""
    first = sessions[0][0]

    def stack(attribute: str) -> Floats:
        return np.array([[getattr(question, attribute) for question in row] for row in sessions])

    def stack_prior(attribute: str) -> Floats:
        return np.array([[[getattr(question.case.prior, attribute)] for question in row] for row in sessions])

    def count_refused(side: Side) -> Floats:
        return np.array([[question.case.series.refused(side) for question in row] for row in sessions])

    now = stack("costs")
    earlier = None
    if first.earlier is not None:
        before = np.array([[question.earlier[:2] for question in row] for row in sessions])  # type: ignore[index]
        earlier = (before[:, :, 0], before[:, :, 1])
    noise = Noise(stack("sigma"), stack_prior("df"), stack_prior("between"), first.case.prior.between_df)
    return Batch(
        native=now[:, :, 0],
        virtual=now[:, :, 1],
        limit=stack("limit"),
        margin=stack("margin"),
        noise=noise,
        places=first.places,
        refused_native=count_refused("native"),
        refused_virtual=count_refused("virtual"),
        earlier=earlier,
        earlier_places=None if first.earlier is None else first.earlier[2],
        max_margin=stack("max_margin"),
        looks=looks,
        alpha=alpha,
    )
