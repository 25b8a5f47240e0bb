"""Rules that compare a native node with a virtual one: pure, each under the name of its item.

A rule yields a sentence for each thing that differs, or :class:`NotObservable` for what it could not compare.
Its limits, remedy and the claims that it protects are data: ``references/preflight.yaml``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from virtqual.identity.record import Identity, NotObservable, seen

Limits = Mapping[str, Any]
Found = Iterator[str | NotObservable]
Compare = Callable[[Identity, Identity, Limits], Found]


class Studied(str):
    """A difference that the system file states because it is what is studied: reported, never refused."""


@dataclass(frozen=True)
class Rule:
    """A rule: the comparison, and the limits that it takes from the data."""

    compare: Compare
    limits: tuple[str, ...]


_RULES: dict[str, Rule] = {}


def rule(item: str, *limits: str) -> Callable[[Compare], Compare]:
    """Register a rule under the name of its item."""

    def register(compare: Compare) -> Compare:
        _RULES[item] = Rule(compare, limits)
        return compare

    return register


def rules() -> Mapping[str, Rule]:
    """Return all rules by item."""
    for room in ("processor", "locality", "devices", "system"):
        importlib.import_module(f"virtqual.admission.{room}")
    return _RULES


def limits() -> dict[str, tuple[str, ...]]:
    """Return the names of the limits that each rule takes."""
    return {item: one.limits for item, one in rules().items()}


def sides(native: Identity, virtual: Identity) -> Iterator[tuple[str, Identity]]:
    """Yield both nodes with the name of their side."""
    yield "native", native
    yield "virtual", virtual


def differs(what: str, native: Any, virtual: Any) -> Found:
    """Yield one sentence where two values differ, or why they could not be compared."""
    for side, value in (("native", native), ("virtual", virtual)):
        if isinstance(value, NotObservable):
            yield NotObservable(not_observable=f"{what} of {side}: {value.not_observable}")
    if seen(native) and seen(virtual) and native != virtual:
        yield f"{what} is {native} natively and {virtual} in the VM"
