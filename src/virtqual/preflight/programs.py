"""Rules on what a program, or its profiler, says of a run: whether it can show at all what it is for."""

from __future__ import annotations

from virtqual.identity.record import NotObservable, seen
from virtqual.preflight.rules import Found, Limits, rule
from virtqual.runs import Run


@rule("run", "communication", "share")
def communication(run: Run, limits: Limits) -> Found:
    """Little communication: a case that hardly waits for messages cannot see that they are late."""
    if run.side != "native" or run.communication is None:
        return
    if not seen(run.communication):
        why = run.communication.not_observable
        yield NotObservable(not_observable=f"{run.check}, share of communication: {why}")
    elif run.communication <= limits["share"]:
        yield (
            f"{run.check} spent {run.communication:.1%} of its time in communication; more than "
            f"{limits['share']:.0%} are asked for"
        )
