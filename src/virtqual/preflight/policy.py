"""The policy of preflight: the consequence of each item for each class (``references/preflight.yaml``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from virtqual.files.datafile import DataError, DataModel, Document, Problem, Text, parse
from virtqual.files.wording import Key, suggest
from virtqual.identity.record import NotObservable, seen

# They define the rules.
from virtqual.preflight import (  # noqa: F401
    devices,
    during,
    impossible,
    locality,
    processor,
    shares,
    system,
)
from virtqual.preflight.finding import Action, Finding
from virtqual.preflight.rules import RULES, Studied
from virtqual.references import References
from virtqual.verdict.metric import Metrics

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

    def finding(self, item: str, what: str | NotObservable, hypervisor_class: str) -> Finding:
        """Return a finding of what a rule yielded; its class decides what follows from a difference."""
        entry = self.items[item]
        action: Action = entry.actions.get(hypervisor_class, entry.actions["default"])
        if isinstance(what, Studied):
            action = "report"
        elif not seen(what):
            action, what = "unseen", what.not_observable
        return Finding(
            item=item, action=action, reason=what, remedy=entry.remedy, protects=tuple(entry.protects)
        )

    def without(self, *names: str) -> Policy:
        """Return the policy without some items, to see what each of them catches."""
        items = {name: entry for name, entry in self.items.items() if name not in names}
        return Policy(items, self.metrics)


def load_policy(file: Path, references: References, site_file: Path | None = None) -> Policy:
    """Read ``references/preflight.yaml``, with classes, claims and metrics from the references.

    Items of `site_file`, which may not exist, replace those of the same name.

    Raises
    ------
    DataError
        The message has every mistake, such as an item without a rule or an unknown class.
    """
    document = parse(file)
    items, problems = _read_items(document, references)
    for name in sorted(RULES.keys() - items.keys()):
        problems.append(document.problem(("items",), f"no entry for the rule {name!r}: it would be silent."))
    if site_file is not None and site_file.exists():
        items_of_site, problems_of_site = _read_items(parse(site_file), references)
        items |= items_of_site
        problems += problems_of_site
    if problems:
        raise DataError(problems)
    return Policy(items, references.metrics)


def _read_items(document: Document, references: References) -> tuple[dict[str, ItemEntry], list[Problem]]:
    """Return the items of a file by name, and the mistakes in them."""
    items: dict[str, ItemEntry] = {}
    problems = []
    for index, entry in enumerate(document.read(PolicyFile).items):
        mistakes = list(_check_item(entry, references))
        if entry.item in items:
            mistakes.append((("item",), f"{entry.item!r} stands here twice."))
        problems += [document.problem(("items", index, *key), message) for key, message in mistakes]
        items[entry.item] = entry
    return items, problems


def _check_item(entry: ItemEntry, references: References) -> Iterator[tuple[Key, str]]:
    """Yield the key and the message of each mistake in an item."""
    if entry.item not in RULES:
        yield ("item",), f"no rule {entry.item!r}: {suggest(entry.item, RULES)}"
        return
    limits_of_rule = RULES[entry.item].limits
    if sorted(entry.limits) != sorted(limits_of_rule):
        yield ("limits",), f"the rule takes these limits: {', '.join(limits_of_rule) or 'none'}."
    if "default" not in entry.actions:
        yield ("actions",), "needs `default: refuse` or `report`."
    for key, names in (("actions", entry.actions), ("limits_by_class", entry.limits_by_class)):
        for name in names:
            if name not in references.classes and (key, name) != ("actions", "default"):
                yield (key, name), f"unknown class {name!r}: {suggest(name, references.classes)}"
    for name, limits in entry.limits_by_class.items():
        for limit in limits.keys() - entry.limits.keys():
            message = f"no limit {limit!r} of this item: {suggest(limit, entry.limits)}"
            yield ("limits_by_class", name, limit), message
    for claim in entry.protects:
        if references.claims and claim not in references.claims:
            yield ("protects",), f"unknown claim {claim!r}: {suggest(claim, references.claims)}"
