"""Rules on two sessions of which only the virtual sides can be compared.

Where native cannot run a program, no native run cancels what another day of the machine does.  The native
nodes take the time of a fixed piece of work instead, between the virtual runs, and it must be what it was.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from virtqual.preflight.rules import Limits, rule
from virtqual.runs import Run
from virtqual.stack import same

Runs = Sequence[Run]


@rule("sessions", "node-speed", "share")
def node_speed(now: Runs, earlier: Runs, limits: Limits) -> Iterator[str]:
    """The native nodes themselves, by the median time of the same work."""
    ran = [(when, run.software) for when, runs in (("earlier", earlier), ("now", now)) for run in runs]
    for difference, sentence in same.among(ran):
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
