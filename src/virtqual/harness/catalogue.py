"""The list of what can be measured, which ``reframe -L`` prints, and why a check cannot run here.

ReFrame lists every case with the cases it depends on, which for paired samples is the same check again and
again.  Here a check is one entry, whatever the number of its samples.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from virtqual.errors import UsageError
from virtqual.files import reading
from virtqual.files.records import write_file
from virtqual.files.wording import suggest
from virtqual.harness.kinds import VERDICT


class Entry(BaseModel):
    """A check.

    Attributes
    ----------
    name
        With its parameters, without the sample.
    description
        One line.
    tags
        By which it is selected; sorted.
    feature
        What a stack must provide for it; empty for nothing.
    nodes
        How many nodes it needs on each side.
    needs
        What partitions must have, such as the feature ``rdma``; empty for nothing.
    optional
        Features that a stack may provide, each with what cannot be observed without it.
    lacks
        Why it cannot run on the system as it is set up, such as an input that was not fetched; empty if it
        can.
    hashes
        By which ``reframe -n /HASH`` selects one of its tests: by sample, and ``verdict``.
    paired
        Whether it runs on both sides; a test of ReFrame's that was not made a judged one does not.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    description: str
    tags: tuple[str, ...]
    feature: str = ""
    nodes: int = 1
    needs: str = ""
    optional: dict[str, str] = {}
    lacks: str = ""
    hashes: dict[str, str] = {}
    paired: bool = True

    @property
    def case(self) -> str:
        """Its name as sessions have it."""
        return self.name.replace(" ", " %")

    def has_name(self, pattern: str) -> bool:
        """Return whether ReFrame's ``-n`` selects it: by its name without blanks, or by a hash."""
        if pattern.startswith("/"):
            return pattern[1:] in self.hashes.values()
        name, *parameters = self.name.split(" ")
        return bool(re.search(pattern, "%".join([name, "sample=0N", *parameters])))

    def absent(self, features: Iterable[str], nodes: int) -> str | None:
        """Return why it cannot run with a stack of these features on so many nodes; None if it can."""
        if self.feature and self.feature not in features:
            return f"no program with the feature {self.feature!r} in the stack"
        if self.nodes > nodes:
            return f"needs {self.nodes} nodes on each side"
        return self.lacks or None

    def unobserved(self, features: Iterable[str]) -> Iterator[str]:
        """Yield what cannot be observed where it runs with a stack of these features."""
        for feature, what in self.optional.items():
            if feature not in features:
                yield f"{what} is not observable: no program with the feature {feature!r} in the stack"

    def text(self, *, detailed: bool) -> str:
        """Return it as it is listed."""
        lines = [f"- {self.name}", f"    {self.description}"]
        if detailed:
            lines += [f"    tags: {', '.join(self.tags)}", f"    asks for: {self._needs()}"]
            lines.append("    hashes: " + ", ".join(f"/{sha} {what}" for what, sha in self.hashes.items()))
        if not self.paired:
            lines.append("    not paired, so not judged")
        return "\n".join(lines)

    def _needs(self) -> str:
        wanted = [f"+{self.feature}" if self.feature else "", self.needs]
        wanted.insert(1, f"{self.nodes} nodes" if self.nodes > 1 else "")
        return ", ".join(filter(None, wanted)) or "nothing of a stack"


#: Name of the file in a session's directory that has them.
FILE = "catalogue.json"
_ENTRIES = TypeAdapter(tuple[Entry, ...])


def of_checks(checks: Iterable[Any]) -> tuple[Entry, ...]:
    """Return an entry for each check, whatever the number of its samples; fixtures are left aside."""
    found: dict[str, Entry] = {}
    hashes: dict[str, dict[str, str]] = defaultdict(dict)
    for check in checks:
        if check.is_fixture():
            continue
        name = getattr(check, "run_group", "") or getattr(check, "case", check.display_name)
        verdict = VERDICT in check.tags
        hashes[name]["verdict" if verdict else getattr(check, "sample", "test")] = check.hashcode
        # One side may need more nodes than the other: several VMs of one host against one native node.
        if verdict or (name in found and getattr(check, "nodes", 1) >= found[name].nodes):
            continue
        found[name] = Entry(
            name=name.replace(" %", " "),
            description=check.descr or name,
            tags=tuple(sorted(check.tags)),
            feature=getattr(check, "feature", ""),
            nodes=getattr(check, "nodes", 1),
            needs=getattr(check, "needs", ""),
            optional=getattr(check, "optional", {}),
            lacks=getattr(check, "lacks", ""),
            paired=hasattr(check, "run_group"),
        )
    return tuple(entry.model_copy(update={"hashes": hashes[name]}) for name, entry in found.items())


def write(entries: Sequence[Entry], path: Path) -> None:
    """Write entries for whoever started ReFrame."""
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
        raise UsageError(f"{path}: no list of checks ({error.errors()[0]['msg']})") from None


def cases(entries: Iterable[Entry], scope: str) -> list[str]:
    """Return the cases of a scope, whether they can run or not, as sessions name them."""
    return [entry.case for entry in entries if scope in entry.tags]


def selected(entries: Iterable[Entry], names: Sequence[str], tags: Sequence[str]) -> list[Entry]:
    """Return the entries that ReFrame's ``-n`` (one of `names`) and ``-t`` (each of `tags`) select."""
    return [
        entry
        for entry in entries
        if (not names or any(entry.has_name(name) for name in names))
        and all(any(re.search(tag, own) for own in entry.tags) for tag in tags)
    ]


def nothing_selected(
    entries: Sequence[Entry], names: Sequence[str], tags: Sequence[str], features: Iterable[str], nodes: int
) -> str:
    """Return why ``-n`` and ``-t`` select no check that can run with a stack of these features and nodes."""
    known = {entry.name.split(" ")[0] for entry in entries}, {tag for entry in entries for tag in entry.tags}
    for name in names:
        if not selected(entries, [name], ()):
            return f"no check has a name that matches {name!r}: {suggest(name, known[0])}"
    for tag in tags:
        if not selected(entries, (), [tag]):
            return f"no check has a tag that matches {tag!r}: {suggest(tag, known[1])}"
    chosen = selected(entries, names, tags)
    if chosen and (why := missing(chosen, features, nodes)):
        return f"what -n and -t select cannot run here: {'; '.join(why)}"
    return "no check that can run here has all that -n and -t ask for"


def listing(
    here: Sequence[Entry], every: Sequence[Entry], system: Any, config: Any, *, detailed: bool
) -> str:
    """Return what ``reframe -l`` and ``-L`` print.

    Parameters
    ----------
    here
        What was selected and can run.
    every
        All that was loaded.
    system
        ReFrame's, with its selected partitions and environments.
    config
        ReFrame's site configuration, with all of them.
    detailed
        With tags, and with what cannot run here.
    """
    text = [entry.text(detailed=detailed) for entry in here]
    judged = sum(entry.paired for entry in here)
    text.append(f"{len(here)} checks, {judged} with a verdict of native against virtual (NAME_overhead)")
    if not here:
        text.append(f"-n, -t or -p select none of them; {describe_system(config, system.name)}")
    if detailed:
        features = {f for p in system.partitions for e in p.environs for f in e.features}
        nodes = min((p.extras["nodes"] for p in system.partitions if "nodes" in p.extras), default=0)
        if lines := missing(every, features, nodes):
            text.append(
                "\n".join(
                    ["", f"Not on system {system.name!r} as it is set up:", *(f"  {line}" for line in lines)]
                )
            )
    return "\n".join(text) + "\n"


def describe_system(config: Any, name: str) -> str:
    """Return which partitions and stacks ReFrame's configuration has for a system, whatever was selected."""
    (system,) = (entry for entry in config["systems"] if entry["name"] == name)
    partitions = ", ".join(partition["name"] for partition in system["partitions"])
    stacks = dict.fromkeys(
        stack for partition in system["partitions"] for stack in partition.get("environs", ())
    )
    return f"system {name!r} has the partitions {partitions} and the stacks {', '.join(stacks)}"


def missing(entries: Iterable[Entry], features: Iterable[str], nodes: int) -> list[str]:
    """Return one line for each check that cannot run or observe something, and why; cases are counted."""
    features = frozenset(features)
    every: Counter[str] = Counter()
    counted: Counter[tuple[str, str]] = Counter()
    for entry in entries:
        name = entry.name.split(" ")[0]
        every[name] += 1
        absent = entry.absent(features, nodes)
        for reason in [absent] if absent else entry.unobserved(features):
            counted[name, reason] += 1
    return [f"{name}{_share(count, every[name])}: {reason}" for (name, reason), count in counted.items()]


def _share(count: int, of: int) -> str:
    """Return how many cases of a check these are, in brackets; nothing for a check's only one."""
    if of == 1:
        return ""
    return f" ({count} cases)" if count == of else f" ({count} of {of} cases)"
