"""Rules on two sessions of which only the virtual sides can be compared.

Where native cannot run a program, no native run cancels what another day of the machine does.  The native
nodes take the time of a fixed piece of work instead, between the virtual runs, and it must be what it was.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from virtqual.runs import Run
from virtqual.stack import same

Limits = Mapping[str, Any]
Runs = Sequence[Run]
Check = Callable[[Runs, Runs, Limits], Iterator[str]]


@dataclass(frozen=True)
class BetweenRule:
    """A rule on the runs that took the yardstick, now and in the earlier session, and the limits it takes."""

    check: Check
    limits: tuple[str, ...]


def node_speed(now: Runs, earlier: Runs, limits: Limits) -> Iterator[str]:
    """The native nodes themselves, by the median time of the same work."""
    seen = [(when, run.software) for when, runs in (("earlier", earlier), ("now", now)) for run in runs]
    for difference, sentence in same.among(seen):
        if difference.kind == "software":
            yield f"the work was not the same: {sentence}"
            return
    if len(works := {run.results[0].series for run in (*earlier, *now)}) > 1:
        yield f"the work was not the same: {' and '.join(sorted(works))}"
        return
    before, after = (statistics.median(run.results[0].values[0] for run in runs) for runs in (earlier, now))
    if abs(math.log(after / before)) > math.log1p(limits["share"]):
        yield (
            f"native nodes took {after:.4g} s for the same work, {before:.4g} s in the earlier session: "
            f"{after / before:.2f}x, and {limits['share']:.0%} are allowed"
        )


RULES: Mapping[str, BetweenRule] = {"node-speed": BetweenRule(node_speed, ("share",))}


def limits() -> dict[str, tuple[str, ...]]:
    """Return the names of the limits that each rule takes."""
    return {item: one.limits for item, one in RULES.items()}
