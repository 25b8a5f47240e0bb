"""What both sides of a session are: their nodes, processors, kernels, and all facts in which they differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from virtqual.files.wording import list_names, node_sort_key, pluralize
from virtqual.identity import Identity
from virtqual.identity.cpus import cpu_list
from virtqual.identity.record import seen
from virtqual.report.identity import describe
from virtqual.session.session import Session
from virtqual.verdict.pairs import SIDES, Side

#: Two texts with more characters are shown by the words in which they differ.
MAX_COMPARED_CHARS = 160
MAX_NODES_SHOWN = 4


def describe_sides(session: Session) -> list[tuple[str, str, str]]:
    """Return what was compared, in rows: the name of a fact, and its text for each side."""
    nodes: dict[Side, dict[str, Identity | None]] = {side: {} for side in SIDES}
    hosts: dict[Side, set[str]] = {side: set() for side in SIDES}
    for run in session.runs:
        nodes[run.side] |= {node: run.identity.get(node) for node in run.nodes}
        hosts[run.side] |= set(run.hosts.values())
    for side, identity in session.probed.items():
        if not nodes[side]:
            nodes[side][str(identity.name)] = identity
    known = {side: [one for one in nodes[side].values() if one is not None] for side in SIDES}
    stated = " (stated)" if session.build_is_stated else ""
    accelerator = session.identity["virtual"].get("hypervisor", {}).get("accelerator", "")
    hypervisor = f"{session.hypervisor}{stated}{f', {accelerator}' if accelerator else ''}"
    rows = [
        ("hypervisor", [_join(map(_describe_below, known["native"])), hypervisor]),
        ("nodes", [_list_nodes(nodes[side]) for side in SIDES]),
        ("on hosts", [list_names(sorted(hosts[side]), MAX_NODES_SHOWN) for side in SIDES]),
        ("processor", [_join(one.cpu.model for one in known[side]) for side in SIDES]),
        ("CPUs and memory", [_join(map(_describe_size, known[side])) for side in SIDES]),
        ("kernel", [_join(one.kernel.release for one in known[side]) for side in SIDES]),
    ]
    return [(name, texts[0] or "-", texts[1] or "-") for name, texts in rows if any(texts)]


def _list_nodes(nodes: Iterable[str]) -> str:
    names = sorted(nodes, key=node_sort_key)
    count = f"{len(names)}: " if len(names) > MAX_NODES_SHOWN else ""
    return count + list_names(names, MAX_NODES_SHOWN)


def _describe_below(node: Identity) -> object:
    """Return what is below a native node, such as ``KVM (the node is itself a VM)``, or why it is unseen."""
    found = node.hypervisor
    if not seen(found.present):
        return found.present
    if not found.present:
        return "none (bare metal)"
    vendor = found.vendor if seen(found.vendor) else "an unknown hypervisor"
    if found.accelerator == "tcg":
        return f"emulated by {vendor}"
    return f"{vendor} (the node is itself a VM)"


def _describe_size(node: Identity) -> object:
    """Return such as ``64 CPUs, 251 GiB``, or why that is not observable."""
    cpus, memory = node.topology.cpus, node.memory.total_mib
    if not seen(cpus):
        return cpus
    return pluralize(len(cpu_list(cpus)), "CPU") + (f", {memory / 1024:.3g} GiB" if seen(memory) else "")


def _join(values: Iterable[object]) -> str:
    """Return the different values that were seen; why they were not if none was."""
    texts = dict.fromkeys(map(str, (value for value in values if seen(value))))
    return "; ".join(texts) or "not observable"


def compare_nodes(identities: Mapping[Side, Identity | None]) -> dict[str, Any]:
    """Return the facts of a node of either side: different, equal, and those of one side alone."""
    facts = {side: describe(identity) if identity else {} for side, identity in identities.items()}
    native, virtual = facts["native"], facts["virtual"]
    common = {section for section, _ in native} & {section for section, _ in virtual}
    different: list[tuple[str, str, str]] = []
    equal: list[tuple[str, str, str]] = []
    for key in dict.fromkeys((*native, *virtual)):
        if key[0] in common:
            old, new = native.get(key, "not there"), virtual.get(key, "not there")
            (equal if old == new else different).append((" ".join(key), *_shorten_difference(old, new)))
    only = []
    for side, facts_of_side in facts.items():
        rows = [(" ".join(key), text) for key, text in facts_of_side.items() if key[0] not in common]
        sections = list(dict.fromkeys(section for section, _ in facts_of_side if section not in common))
        only += [(side, sections, rows)] if rows else []
    return {"different": different, "equal": equal, "only": only}


def _shorten_difference(first: str, second: str) -> tuple[str, str]:
    """Return two texts, or the words in which they differ if they are long."""
    if first == second or len(first) + len(second) <= MAX_COMPARED_CHARS:
        return first, second
    words, other_words = first.split(), second.split()
    removed = " ".join(word for word in words if word not in set(other_words))
    added = " ".join(word for word in other_words if word not in set(words))
    before, after = (
        f"beside what both have: {text}" if text else "only what both have" for text in (removed, added)
    )
    return before, after
