"""Requests that a client sends at intended times, without waiting for answers: what it noted of one rate."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

MAX_LAG_SHARE = 0.1
"""The client's own delay, as a share of the latency that it measured."""
MAX_CLIENT_CORES = 0.5
DROPPED_S = 2.0
"""The first seconds of a load do not count: connecting makes their requests late."""


@dataclass(frozen=True)
class OfferedLoad:
    """The latencies of requests at one offered rate, from their intended times on; in ms.

    Attributes
    ----------
    p50, p99
        Latencies that half of the requests exceed, and one in 100.
    on_time
        Percentage of requests that found a free connection.
    client_lag
        How late one in 100 of these requests, or more, began because of the client itself.
    client_cores
        Cores that each thread of the client used; a thread has one at most.
    """

    p50: float
    p99: float
    on_time: float
    client_lag: float
    client_cores: float

    def find_client_limits(self, *, shares_core: bool = False) -> Iterator[str]:
        """Yield why the latencies are the client's rather than the server's.

        A client that `shares_core` with the server waits for the server there, so that its lag says nothing.
        """
        if self.client_lag > MAX_LAG_SHARE * self.p99 and not shares_core:
            yield (
                f"the client is the limit: it begins requests {self.client_lag:.3g} ms late (p99), more than "
                f"a tenth of their latency of {self.p99:.3g} ms"
            )
        yield from self.find_cpu_limit()

    def find_cpu_limit(self) -> Iterator[str]:
        """Yield that the client lacks CPU time, if it does."""
        if self.client_cores > MAX_CLIENT_CORES:
            yield (
                f"the client is the limit: each of its threads used {self.client_cores:.2f} of a core, more "
                f"than {MAX_CLIENT_CORES:g}"
            )


def find_critical_rate(
    steps: Mapping[int, OfferedLoad], limits: Sequence[float], *, shares_core: bool = False
) -> tuple[float, tuple[str, ...]]:
    """Return the rate up to which p99 is within its limits, and why it says nothing of the server.

    It is the geometric mean of the rates for each limit, in the manner of SPECjbb2015's critical-jOPS.  A
    step is above a limit if the next one is, too: a single stall decides nothing.  From there to the step
    before, the logarithm of p99 is taken as linear in the rate; below the first step, p99 itself.

    Parameters
    ----------
    steps
        `OfferedLoad` by rate, which rises.
    limits
        Limits of p99 in ms.
    shares_core
        As for `OfferedLoad.find_client_limits`.
    """
    tails = {rate: load.p99 for rate, load in steps.items()}
    critical = _compute_critical_rate(tails, limits)
    reasons = []
    last = list(steps.values())[-1]
    if last.p99 <= max(limits):
        reasons.append(
            f"p99 is {last.p99:.3g} ms at the highest offered rate: the rate is no limit of the server"
        )
    without_lag = _compute_critical_rate(
        {rate: max(load.p99 - load.client_lag, load.p50) for rate, load in steps.items()}, limits
    )
    if without_lag > (1 + MAX_LAG_SHARE) * critical and not shares_core:
        reasons.append(
            "the client is the limit: without its own lag, p99 would be within limits up to "
            f"{without_lag / critical - 1:.0%} higher rates"
        )
    kept = [load for rate, load in steps.items() if rate <= critical]
    for load in kept[-1:]:
        reasons += load.find_cpu_limit()
    return critical, tuple(reasons)


def _compute_critical_rate(tails: Mapping[int, float], limits: Sequence[float]) -> float:
    """Return the geometric mean over `limits` of the highest rates that keep them; p99 by rate in `tails`."""
    following = [*list(tails.values())[1:], math.inf]
    smoothed = [min(p99, after) for p99, after in zip(tails.values(), following, strict=True)]
    rates = []
    for limit in limits:
        kept, below = 0.0, 0.0
        for rate, p99 in zip(tails, smoothed, strict=True):
            if p99 > limit:
                share = math.log(limit / below) / math.log(p99 / below) if below else limit / p99
                kept += (rate - kept) * share
                break
            kept, below = rate, p99
        rates.append(kept)
    return statistics.geometric_mean(rates)
