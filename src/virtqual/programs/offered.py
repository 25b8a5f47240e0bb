"""Requests that a client sends at intended times, without waiting for answers: what it noted of one rate."""

from __future__ import annotations

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
        if self.client_cores > MAX_CLIENT_CORES:
            yield (
                f"the client is the limit: each of its threads used {self.client_cores:.2f} of a core, more "
                f"than {MAX_CLIENT_CORES:g}"
            )


def find_critical_rate(
    steps: Mapping[int, OfferedLoad], limits: Sequence[float]
) -> tuple[float, tuple[str, ...]]:
    """Return the rate up to which p99 stays within its limits, and the reasons for which it is the client's.

    It is the geometric mean of the rates for each limit (SPECjbb2015, critical-jOPS). Between two steps, and
    below the first one, p99 is taken to rise in a straight line; the last step counts if p99 is within a
    limit there.

    Parameters
    ----------
    steps
        `OfferedLoad` by rate, which rises.
    limits
        Limits of p99 in ms.
    """
    rates: list[float] = []
    client_limits: tuple[str, ...] = ()
    for limit in sorted(limits):
        kept, p99 = 0.0, 0.0
        for rate, load in steps.items():
            if load.p99 > limit:
                kept += (rate - kept) * (limit - p99) / (load.p99 - p99)
                break
            kept, p99, client_limits = rate, load.p99, tuple(load.find_client_limits())
        rates.append(kept)
    return statistics.geometric_mean(rates), client_limits
