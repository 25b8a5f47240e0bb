"""Times as people write them: seconds or milliseconds since 1970, or dates."""

from __future__ import annotations

import math
from datetime import UTC, datetime

#: From these numbers on, a time is in milliseconds, microseconds or nanoseconds: as seconds, the year 5138.
_MS, _US, _NS = 1e11, 1e14, 1e17


def read_time(value: object) -> float:
    """Return a time in seconds since 1970 from seconds, milliseconds (us, ns) or an ISO 8601 date.

    A date without a zone is taken for UTC. Raises ValueError for other texts.

    Examples
    --------
    >>> read_time("1700000000.5"), read_time(1700000000500), read_time("2023-11-14T22:13:20Z")
    (1700000000.5, 1700000000.5, 1700000000.0)
    """
    if value is None or value == "":
        return math.nan
    text = str(value).strip()
    try:
        number = float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(number):
        return math.nan
    for limit, factor in ((_NS, 1e9), (_US, 1e6), (_MS, 1e3)):
        if abs(number) >= limit:
            return number / factor
    return number
