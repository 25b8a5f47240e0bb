"""The list of checks that ``reframe -L`` prints, and the reasons why a check cannot run here.

ReFrame lists every sample with the samples that it depends on.  In this list a check is one entry.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, TypeAdapter, ValidationError

from virtqual.errors import UsageError
from virtqual.files import reading
from virtqual.files.records import write_file
from virtqual.files.wording import describe_first_mistake, suggest
from virtqual.harness.kinds import Judging, Measuring


class Missing(NamedTuple):
    """A reason why a check cannot run or observe something; `feature` is missing in the stack, if any."""

    reason: str
    feature: str | None = None


class Entry(BaseModel, extra="forbid", frozen=True):
    """A check, with its parameters and without the sample."""

    name: str
    description: str
    tags: tuple[str, ...]
    #: The feature that a stack must provide; empty for none.
    feature: str = ""
    #: The number of nodes that it needs on each side.
    nodes: int = 1
    #: A feature that both partitions must have, such as ``rdma``; empty for none.
    needs: str = ""
    #: Features that a stack may provide, each with what cannot be observed without it.
    optional: dict[str, str] = {}
    #: Why it cannot run on the system as it is set up, such as a missing input; empty if it can.
    lacks: str = ""
    #: By scale the least and the most seconds of a run, if repetitions do not decide them.
    run_seconds: dict[str, tuple[float, float]] = {}
    #: The hashes of its tests, for ``reframe -n /HASH``, by sample and ``verdict``.
    hashes: dict[str, str] = {}
    #: It runs on both sides; other tests of ReFrame's do not.
    paired: bool = True

    @property
    def case(self) -> str:
        """Its name in sessions."""
        return self.name.replace(" ", " %")

    @property
    def check(self) -> str:
        """Its name without parameters."""
        return self.name.split(" ")[0]

    def has_name(self, pattern: str) -> bool:
        """Return whether ReFrame's ``-n`` selects it: by its name without blanks, or by a hash."""
        if pattern.startswith("/"):
            return pattern[1:] in self.hashes.values()
        check, *parameters = self.name.split(" ")
        return bool(re.search(pattern, "%".join([check, "sample=0N", *parameters])))

    def explain_unfit(self, features: Collection[str], nodes: int) -> Missing | None:
        """Return why it cannot run with a stack of these features on so many nodes; None if it can."""
        if self.feature and self.feature not in features:
            return Missing("no program in the stack for", self.feature)
        if self.nodes > nodes:
            return Missing(f"needs {self.nodes} nodes on each side")
        return Missing(self.lacks) if self.lacks else None

    def find_missing(self, features: Collection[str], nodes: int) -> list[Missing]:
        """Return why it cannot run, or else cannot observe something; see `explain_unfit`."""
        if unfit := self.explain_unfit(features, nodes):
            return [unfit]
        return [
            Missing(f"{quantity} is not observable: no program with the feature {feature!r} in the stack")
            for feature, quantity in self.optional.items()
            if feature not in features
        ]

    def format(self, *, detailed: bool) -> str:
        """Return its lines in the list."""
        lines = [f"- {self.name}", f"    {self.description}"]
        if detailed:
            nodes = f"{self.nodes} nodes" if self.nodes > 1 else ""
            needs = filter(None, [self.feature and f"+{self.feature}", nodes, self.needs])
            lines.append(f"    tags: {', '.join(self.tags)}")
            lines.append(f"    asks for: {', '.join(needs) or 'nothing of a stack'}")
            lines.append("    hashes: " + ", ".join(f"/{sha} {test}" for test, sha in self.hashes.items()))
        if not self.paired:
            lines.append("    not paired, so not judged")
        return "\n".join(lines)


#: The name of the file of the entries in a session's directory.
FILE = "catalogue.json"
_ENTRIES = TypeAdapter(tuple[Entry, ...])


def make_entries(checks: Iterable[Any]) -> tuple[Entry, ...]:
    """Return one entry for all samples of a check; fixtures are left out."""
    entries: dict[str, Entry] = {}
    hashes: dict[str, dict[str, str]] = defaultdict(dict)
    for check in checks:
        if check.is_fixture():
            continue
        # A site's own test may have attributes of the same names.
        is_verdict, is_paired = isinstance(check, Judging), isinstance(check, Measuring)
        name = check.case if is_verdict or is_paired else check.display_name
        hashes[name]["verdict" if is_verdict else check.sample if is_paired else "test"] = check.hashcode
        # One side may need more nodes than the other: several VMs of one host against one native node.
        if is_verdict or (is_paired and name in entries and check.nodes >= entries[name].nodes):
            continue
        fields = ("feature", "nodes", "needs", "optional", "lacks", "run_seconds") if is_paired else ()
        entries[name] = Entry(
            name=name.replace(" %", " "),
            description=check.descr or name,
            tags=tuple(sorted(check.tags)),
            paired=is_paired,
            **{field: getattr(check, field) for field in fields if hasattr(check, field)},
        )
    return tuple(entry.model_copy(update={"hashes": hashes[name]}) for name, entry in entries.items())


def write(entries: Sequence[Entry], path: Path) -> None:
    """Write entries for the process that started ReFrame."""
    write_file(_ENTRIES.dump_json(tuple(entries), indent=1), path)


def read(path: Path) -> tuple[Entry, ...]:
    """Return the entries of a file, none if there is no such file.

    Raises
    ------
    UsageError
        The file cannot be read, or has no entries.
    """
    if not path.exists():
        return ()
    try:
        return _ENTRIES.validate_json(reading.read_bytes(path, links=False))
    except OSError as error:
        raise UsageError(f"{path}: no list of checks ({error.strerror})") from error
    except ValidationError as error:
        raise UsageError(f"{path}: no list of checks ({describe_first_mistake(error)})") from None


def cases_of(entries: Iterable[Entry], scope: str) -> list[str]:
    """Return the cases of a scope, also those that cannot run, by their names in sessions."""
    return [entry.case for entry in entries if scope in entry.tags]


def select(entries: Iterable[Entry], names: Sequence[str], tags: Sequence[str]) -> list[Entry]:
    """Return the entries that ReFrame's ``-n`` (one of `names`) and ``-t`` (each of `tags`) select."""
    return [
        entry
        for entry in entries
        if (not names or any(entry.has_name(name) for name in names))
        and all(any(re.search(pattern, tag) for tag in entry.tags) for pattern in tags)
    ]


def explain_unknown_words(entries: Sequence[Entry], names: Sequence[str], tags: Sequence[str]) -> str | None:
    """Return which pattern of ``-n`` or ``-t`` no check has, with similar names; None if all have one."""
    for name in names:
        if not select(entries, [name], ()):
            near = suggest(name, {entry.check for entry in entries})
            if same := next((entry for entry in entries if _is_name_alone(name, entry)), None):
                long = "%".join([same.check, "sample=0N", *same.name.split(" ")[1:]])
                near = f"a name has its parameters in it, such as {long}; write '^{same.check}(%|$)'"
            return f"no check has a name that matches {name!r}: {near}"
    for tag in tags:
        if not select(entries, (), [tag]):
            near = suggest(tag, {tag for entry in entries for tag in entry.tags})
            return f"no check has a tag that matches {tag!r}: {near}"
    return None


def _is_name_alone(pattern: str, entry: Entry) -> bool:
    """Return whether a pattern matches the name of a check, and not that of a case with its parameters."""
    return not pattern.startswith("/") and bool(re.search(pattern, entry.check))


def explain_empty_selection(
    entries: Sequence[Entry], names: Sequence[str], tags: Sequence[str], features: Collection[str], nodes: int
) -> str | None:
    """Return why ``-n`` and ``-t`` select no check that can run with a stack of these features and nodes.

    A pattern that no check has is a reason, too, although another pattern may select some.
    """
    if reason := explain_unknown_words(entries, names, tags):
        return reason
    selected = select(entries, names, tags)
    if any(entry.explain_unfit(features, nodes) is None for entry in selected):
        return None
    if selected:
        which = "the checks that -n and -t select" if names or tags else "the checks"
        return f"{which} cannot run here: {'; '.join(group_missing(selected, features, nodes))}"
    named = f"that matches -n {' or '.join(names)} " if names else ""
    return f"no check {named}has all of the tags: {', '.join(tags)}"


def format_list(
    selected: Sequence[Entry], loaded: Sequence[Entry], system: Any, reason: str, *, detailed: bool
) -> str:
    """Return the text that ``reframe -l`` and ``-L`` (`detailed`) print.

    `system` is ReFrame's, with the selected partitions and environments; `reason` says why none is selected.
    """
    text = [entry.format(detailed=detailed) for entry in selected]
    judged = sum(entry.paired for entry in selected)
    text.append(f"{len(selected)} checks, {judged} with a verdict of native against virtual (NAME_overhead)")
    if not selected:
        text.append(reason)
    if detailed and (missing := group_missing(loaded, *read_capacity(system))):
        text.append(f"\nNot on system {system.name!r} as it is set up:")
        text += [f"  {line}" for line in missing]
    return "\n".join(text) + "\n"


def read_capacity(system: Any) -> tuple[set[str], int]:
    """Return the features of the stacks of ReFrame's system, and how many nodes each side has."""
    features = {f for p in system.partitions for e in p.environs for f in e.features}
    return features, min((p.extras["nodes"] for p in system.partitions if "nodes" in p.extras), default=0)


def describe_system(config: Any, name: str) -> str:
    """Return which partitions and stacks ReFrame's configuration has for a system, selected or not."""
    (system,) = (entry for entry in config["systems"] if entry["name"] == name)
    partitions = system["partitions"]
    names = ", ".join(partition["name"] for partition in partitions)
    stacks = dict.fromkeys(stack for partition in partitions for stack in partition.get("environs", ()))
    return f"system {name!r} has the partitions {names} and the stacks {', '.join(stacks)}"


def group_missing(entries: Sequence[Entry], features: Collection[str], nodes: int) -> list[str]:
    """Return a line for each reason of `Entry.find_missing`, with the checks for which it holds."""
    totals = Counter(entry.check for entry in entries)
    counts = Counter((entry.check, *why) for entry in entries for why in entry.find_missing(features, nodes))
    checks: dict[str, list[str]] = defaultdict(list)
    for (check, reason, feature), count in counts.items():
        total, notes = totals[check], []
        if total > 1:
            notes.append(f"{count} cases" if count == total else f"{count} of {total} cases")
        # Many a check has the name of its feature.
        if feature and feature != check:
            notes.append(feature)
        checks[reason].append(f"{check} ({', '.join(notes)})" if notes else check)
    return [f"{reason}: {', '.join(names)}" for reason, names in checks.items()]
