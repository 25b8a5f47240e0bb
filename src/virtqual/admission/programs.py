"""Rules on what a program, or its profiler, says of a run: whether it can show at all what it is for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from virtqual.identity.record import NotObservable
from virtqual.runs import Run

Limits = Mapping[str, Any]


@dataclass(frozen=True)
class RunRule:
    """A rule on one run, and the limits that it takes from the data."""

    check: Callable[[Run, Limits], Iterator[str | NotObservable]]
    limits: tuple[str, ...]


def communication(run: Run, limits: Limits) -> Iterator[str | NotObservable]:
    """Little communication: a case that hardly waits for messages cannot see that they are late."""
    if run.side != "native" or run.communication is None:
        return
    if isinstance(run.communication, NotObservable):
        why = run.communication.not_observable
        yield NotObservable(not_observable=f"{run.check}, share of communication: {why}")
    elif run.communication <= limits["share"]:
        yield (
            f"{run.check} spent {run.communication:.1%} of its time in communication; more than "
            f"{limits['share']:.0%} are asked for"
        )


RULES: Mapping[str, RunRule] = {"communication": RunRule(communication, ("share",))}


def limits() -> dict[str, tuple[str, ...]]:
    """Return the names of the limits that each rule takes."""
    return {item: one.limits for item, one in RULES.items()}
