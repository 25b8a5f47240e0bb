"""The noise of a metric, as far as it is known before the first pair."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Annotated, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from virtqual.files.datafile import Text
from virtqual.verdict.estimate import Floats
from virtqual.verdict.metric import NotNegative, Positive, Target

STATED_BETWEEN_DF = 4.0
"""Weight of a stated spread of boots, in degrees of freedom, if its origin is not stated: the boots of a few
sessions soon outweigh it. "Boots that were not measured" in docs/decision-statistics.md has other weights."""


class Prior(Target):
    """Noise of one pair's log difference, from A/A history or stated."""

    #: Standard deviation of the difference at one point, beyond `common`: one number, or one for each size.
    sigma: Positive | Annotated[tuple[Positive, ...], Field(min_length=1, strict=False)]
    #: The sizes of `sigma`.
    points: Annotated[tuple[NotNegative, ...], Field(strict=False)] | None = None
    #: Standard deviation of the mean over `points`, if it was measured; else `correlation` and `common` state
    #: it.
    mean: Positive | None = None
    #: Degrees of freedom that this knowledge counts for against the session's own pairs.
    df: Positive
    source: Text
    #: The correlation of neighbouring points of a curve; it falls as a power with their distance.
    correlation: Annotated[float, Field(ge=0, lt=1)] = 0.5
    #: Standard deviation that a pair's whole curve shares.
    common: NotNegative = 0.0
    #: Standard deviation that a new boot of the virtual machine makes on the same host.
    between: NotNegative = 0.0
    #: The same where a boot may change the host, because the hosts of virtual machines are unknown. If it is
    #: missing, `between` counts: a system's own history has what its boots do, wherever they are.
    between_hosts: NotNegative | None = None
    #: Its degrees of freedom: boots less one if it was measured, `STATED_BETWEEN_DF` if it is an opinion,
    #: infinite (in files ``bound``) if boots do not exceed it.
    between_df: Annotated[
        float, Field(gt=0), BeforeValidator(lambda value: math.inf if value == "bound" else value)
    ] = STATED_BETWEEN_DF

    @model_validator(mode="after")
    def _check_mean(self) -> Self:
        stated = self.model_fields_set & {"correlation", "common"}
        if self.mean is not None and (self.points is None or stated):
            raise ValueError("`mean` goes with `points`, and without `correlation` and `common`.")
        return self

    def boots(self, *, hosts_known: bool) -> float:
        """Return the standard deviation of a boot; of hosts that are known, a session's design takes care."""
        return self.between if hosts_known or self.between_hosts is None else self.between_hosts

    def covariance(self, width: int) -> Floats:
        """Return the covariance of one pair's differences, shape (width, width), unless `mean` states it."""
        sigma = np.broadcast_to(np.asarray(self.sigma, dtype=np.float64), (width,))
        index = np.arange(width)
        distance = np.abs(index[:, None] - index[None, :])
        covariance: Floats = np.outer(sigma, sigma) * self.correlation**distance + self.common**2
        return covariance


@lru_cache(maxsize=4096)
def sigma_of(prior: Prior, width: int) -> Floats:
    """Return the known standard deviation of a pair, for each size and for their mean."""
    covariance = prior.covariance(width)
    sigma = np.sqrt(np.diagonal(covariance))
    return sigma if width == 1 else np.append(sigma, prior.mean or math.sqrt(float(covariance.mean())))
