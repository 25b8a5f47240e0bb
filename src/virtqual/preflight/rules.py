"""The registry of preflight's rules, each under the name of its item, and what rules on two nodes share.

A rule yields a sentence for each thing that speaks against a comparison, or `NotObservable` for a value that
it could not see. Its limits, which are its keyword arguments, its remedy and the claims that it protects are
data: ``references/preflight.yaml``.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import getfullargspec
from typing import Any, Literal, TypeVar

from virtqual.identity.record import Identity, NotObservable, seen, unseen
from virtqual.runs import Run

Found = Iterator[str | NotObservable]
#: The arguments of a rule: a native and a virtual node; both and the targets of a stack; the load of a node
#: during a run; a run, the `RunsOfCheck` and the metrics; a run whose partition has RDMA; VMs of one host
#: and the native node of their peer.
Scope = Literal["nodes", "stack", "load", "run", "rdma", "shares"]
T = TypeVar("T")
CheckT = TypeVar("CheckT", bound=Callable[..., Found])


class RunsOfCheck:
    """The runs of a check, and what is computed once for all of them."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs

    @cached_property
    def _by_values(self) -> dict[tuple[object, ...], list[Run]]:
        by_values = defaultdict(list)
        for run in self.runs:
            by_values[_list_values(run)].append(run)
        return by_values

    def copies_of(self, run: Run) -> list[Run]:
        """Return the runs of the same side that have the same values, the run itself among them."""
        return self._by_values[_list_values(run)]

    @cached_property
    def seconds_around(self) -> dict[tuple[str, int], float]:
        """The part of a job before its shell and after its program, s, by side and pair."""
        # A span from submission on holds the time in the queue.
        timed = [run for run in self.runs if run.clock != "submission"]
        timed.sort(key=lambda run: run.start)
        return {(run.side, run.pair): run.end - run.start - run.shell_seconds - run.seconds for run in timed}

    @cached_property
    def usual_native_seconds(self) -> float | None:
        """The median of `seconds_around` of native jobs; None if there is none."""
        native_seconds = [seconds for (side, _), seconds in self.seconds_around.items() if side == "native"]
        return statistics.median(native_seconds) if native_seconds else None


def _list_values(run: Run) -> tuple[object, ...]:
    # No reason of a refusal: the first of two copies may have been refused.
    return run.side, *((result.series, result.points, result.values) for result in run.results)


class UnseenError(Exception):
    """A rule ends because a value that it needs, its argument, was not observed."""


def require(value: T | NotObservable) -> T:
    """Return a value that was observed; UnseenError ends the rule otherwise."""
    if not seen(value):
        raise UnseenError(value)
    return value


class Studied(str):
    """A difference that the system file states because it is what is studied: reported, never refused."""


@dataclass(frozen=True)
class Rule:
    """A rule: its scope and its function."""

    scope: Scope
    check: Callable[..., Found]

    @property
    def limits(self) -> list[str]:
        """The names of the limits that it takes from the data."""
        return getfullargspec(self.check).kwonlyargs


#: Every rule by its item, once the modules that define them are imported, as `policy` does.
RULES: dict[str, Rule] = {}


def rule(scope: Scope, item: str) -> Callable[[CheckT], CheckT]:
    """Register a rule under the name of its item."""

    def register(check: CheckT) -> CheckT:
        if item in RULES:
            raise ValueError(f"two rules have the item {item!r}")
        RULES[item] = Rule(scope, check)
        return check

    return register


def sides(native: Identity, virtual: Identity) -> Iterator[tuple[str, Identity]]:
    """Yield both nodes with the name of their side."""
    yield "native", native
    yield "virtual", virtual


def report_unseen(what: str, native: object, virtual: object) -> Iterator[NotObservable]:
    """Yield the reason for each value of the two sides that was not observed."""
    for side, value in (("native", native), ("virtual", virtual)):
        if not seen(value):
            yield unseen(f"{what} of {side}: {value.not_observable}")


def differs(what: str, native: Any, virtual: Any) -> Found:
    """Yield one sentence if two values differ, or why they could not be compared."""
    yield from report_unseen(what, native, virtual)
    if seen(native) and seen(virtual) and native != virtual:
        yield f"{what} is {native} natively and {virtual} in the VM"
