"""The policy of preflight: the consequence of each item for each class (``references/preflight.yaml``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from virtqual.files.datafile import DataError, DataModel, parse
from virtqual.files.wording import suggest

# They define the rules.
from virtqual.preflight import (  # noqa: F401
    devices,
    during,
    impossible,
    locality,
    processor,
    programs,
    shares,
    system,
)
from virtqual.preflight.finding import Action, Finding
from virtqual.preflight.rules import RULES
from virtqual.references import References
from virtqual.verdict.metric import Metrics

Text = Annotated[str, Field(min_length=1)]
Limit = float | list[Text]


class ItemEntry(DataModel):
    """One item: what it protects, what to do, its limits, and what follows by class."""

    item: Text
    protects: Annotated[list[Text], Field(min_length=1)]
    remedy: Text
    limits: dict[str, Limit] = Field(default_factory=dict)
    limits_by_class: dict[str, dict[str, Limit]] = Field(default_factory=dict)
    actions: dict[str, Literal["refuse", "report"]]

    def limits_of(self, hypervisor_class: str) -> dict[str, Limit]:
        """Return the limits that hold under a class."""
        return {**self.limits, **self.limits_by_class.get(hypervisor_class, {})}


class PolicyFile(DataModel):
    """``references/preflight.yaml``."""

    schema_: Annotated[Literal["virtqual-preflight/1"], Field(alias="schema")]
    items: list[ItemEntry]


@dataclass(frozen=True)
class Policy:
    """The items, by name, in the order in which they are shown."""

    items: Mapping[str, ItemEntry]
    metrics: Metrics

    def finding(
        self, name: str, reason: str, hypervisor_class: str, *, action: Action | None = None
    ) -> Finding:
        """Return a finding of an item; its action is that of the class if none is passed."""
        entry = self.items[name]
        return Finding(
            item=name,
            action=action or entry.actions.get(hypervisor_class, entry.actions["default"]),
            reason=reason,
            remedy=entry.remedy,
            protects=tuple(entry.protects),
        )

    def without(self, *names: str) -> Policy:
        """Return the policy without some items, to see what each of them catches."""
        items = {name: entry for name, entry in self.items.items() if name not in names}
        return Policy(items, self.metrics)


def load_policy(file: Path, references: References) -> Policy:
    """Read the policy.

    Parameters
    ----------
    file
        ``references/preflight.yaml``.
    references
        Names of classes and ids of claims; metrics for the rules.

    Raises
    ------
    DataError
        With every mistake: an item without a rule or a rule without an item, an unknown class or claim, no
        default action, a limit that a rule needs and does not find.
    """
    document = parse(file)
    content = document.read(PolicyFile)
    problems = []
    items: dict[str, ItemEntry] = {}
    for index, entry in enumerate(content.items):
        key = ("items", index)
        if entry.item not in RULES:
            problems.append(
                document.problem((*key, "item"), f"no rule {entry.item!r}: {suggest(entry.item, RULES)}")
            )
            continue
        if entry.item in items:
            problems.append(document.problem((*key, "item"), f"{entry.item!r} stands here twice."))
        items[entry.item] = entry
        if sorted(entry.limits) != sorted(RULES[entry.item].limits):
            limits_of_rule = ", ".join(RULES[entry.item].limits) or "none"
            problems.append(
                document.problem((*key, "limits"), f"the rule takes these limits: {limits_of_rule}.")
            )
        if "default" not in entry.actions:
            problems.append(document.problem((*key, "actions"), "needs `default: refuse` or `report`."))
        named = [("actions", name) for name in entry.actions if name != "default"]
        named += [("limits_by_class", name) for name in entry.limits_by_class]
        for where, name in named:
            if name not in references.classes:
                message = f"unknown class {name!r}: {suggest(name, references.classes)}"
                problems.append(document.problem((*key, where, name), message))
        for name, limits in entry.limits_by_class.items():
            for limit in limits.keys() - entry.limits.keys():
                message = f"no limit {limit!r} of this item: {suggest(limit, entry.limits)}"
                problems.append(document.problem((*key, "limits_by_class", name, limit), message))
        for claim in entry.protects:
            if references.claims and claim not in references.claims:
                message = f"unknown claim {claim!r}: {suggest(claim, references.claims)}"
                problems.append(document.problem((*key, "protects"), message))
    for name in sorted(RULES.keys() - items.keys()):
        problems.append(document.problem(("items",), f"no entry for the rule {name!r}: it would be silent."))
    if problems:
        raise DataError(problems)
    return Policy(items, references.metrics)
