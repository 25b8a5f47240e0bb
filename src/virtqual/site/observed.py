"""The values of a system file as Slurm and a node of each partition show them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from virtqual.files.wording import node_sort_key, pluralize
from virtqual.identity import Identity, fabric, seen
from virtqual.identity.cpus import cpu_list
from virtqual.identity.fabric import RdmaPort
from virtqual.identity.readers import CACHE_UNIT_BYTES
from virtqual.site.hosts import shorten
from virtqual.site.partitions import NodeSize, SlurmPartition

#: The share of a node's memory that is left to its system, the page cache and Slurm.
SYSTEM_MEMORY_SHARE = 0.1
#: Partitions with fewer cores a node take the checks' small sizes.
MIN_STANDARD_CORES = 8


@dataclass(frozen=True)
class Fact:
    """A value of a system file, and what shows it, such as ``Slurm's CPUs of n1``; empty for a TODO."""

    value: Any
    origin: str = ""


@dataclass(frozen=True)
class Observed:
    """A partition and one of its nodes: facts by key of a system file, as far as they can be seen."""

    partition: SlurmPartition
    node: str
    identity: Identity
    processor: Mapping[str, Fact]
    extras: Mapping[str, Fact]
    #: Those of `extras.hypervisor`, as a guest shows them.
    hypervisor: Mapping[str, Fact]
    #: Sentences for people who read a drafted file.
    notes: Sequence[str] = ()

    @property
    def size(self) -> NodeSize:
        """What Slurm gives jobs of the node; that of most nodes if Slurm does not know its name."""
        return self.partition.sizes.get(self.node, self.partition.common_size)

    @property
    def cores_used(self) -> int:
        """The cores of the node that runs use."""
        return int(self.processor["num_cpus"].value // self.processor["num_cpus_per_core"].value)


def observe(partition: SlurmPartition, identity: Identity) -> Observed:
    """Return what Slurm says of a partition and a node of itself."""
    names = [shorten(name) for name in (identity.slurm_node, identity.node) if seen(name)]
    node = partition.find_node(names) or next(iter(names), partition.name)
    size = partition.sizes.get(node, partition.common_size)
    # Slurm may leave out threads, or whole cores.
    cpus_per_core = max(1, size.cpus // size.cores)
    processor = {
        "num_cpus": Fact(size.cpus, f"Slurm's CPUs of {node}{partition.explain_cpus(node)}"),
        "num_cpus_per_core": Fact(cpus_per_core, f"Slurm's CPUs and cores of {node}"),
    }
    if seen(sockets := identity.topology.sockets):
        processor["num_sockets"] = Fact(sockets, f"sockets in /sys of {node}")
    scale = "standard" if size.cores >= MIN_STANDARD_CORES else "small"
    extras = {
        "nodes": Fact(len(partition.common_nodes), f"Slurm's nodes of {partition.name}"),
        **_observe_memory(identity, node, partition),
        "scale": Fact(scale, f"{size.cores} cores of {node}"),
        **_observe_rdma(fabric.list_active_ports(identity), node),
    }
    notes = [f"{node} has {clause}." for clause in fabric.name_other_fabrics(identity)]
    if node not in partition.sizes:
        example = min(partition.sizes, key=node_sort_key)
        notes.append(
            f"The node calls itself {node}, which is no name in Slurm: there it is one such as {example}."
        )
    hypervisor = _observe_hypervisor(identity, node)
    observed = Observed(partition, node, identity, processor, extras, hypervisor, notes)
    return replace(observed, notes=[*notes, *(f"{wrong}." for wrong in find_contradictions(observed))])


def _observe_memory(identity: Identity, node: str, partition: SlurmPartition) -> dict[str, Fact]:
    facts, topology = {}, identity.topology
    if seen(total := identity.memory.total_mib):
        # Slurm's configuration may give jobs less than there is, and nodes of one kind differ a little.
        least, share = partition.common_size.memory_mib, 1 - SYSTEM_MEMORY_SHARE
        usable = min(total, least or total)
        own = partition.sizes.get(node, partition.common_size).memory_mib
        place = node if usable in (total, own) else f"the smallest node like {node}"
        origin = f"{share:.0%} of the {usable} MiB of {place}; its system keeps {SYSTEM_MEMORY_SHARE:.0%}"
        facts["memory_mib"] = Fact(int(usable * share), origin)
    if seen(topology.numa):
        facts["numa_nodes"] = Fact(len(topology.numa), f"NUMA nodes in /sys of {node}")
    cache_bytes = topology.last_level_bytes
    if not seen(cache_bytes) and seen(cache := topology.last_level_cache) and seen(topology.cpus):
        # All caches are taken to be as that of the first CPU.
        size, sharing_cpus = cache
        if match := re.fullmatch(r"(\d+)([KMG])", size):
            count = max(1, len(cpu_list(topology.cpus)) // max(1, len(cpu_list(sharing_cpus))))
            cache_bytes = count * int(match[1]) * CACHE_UNIT_BYTES[match[2]]
    if seen(cache_bytes):
        facts["llc_bytes"] = Fact(cache_bytes, f"last-level caches in /sys of {node}")
    return facts


def _observe_rdma(ports: Sequence[RdmaPort], node: str, rejected: Sequence[RdmaPort] = ()) -> dict[str, Fact]:
    """Return the facts of the first of the ports that MPI would use, and of their network's rate."""
    ports = [port for port in ports if not port.is_efa]
    if not ports:
        return {}
    kind = fabric.rank_kinds(ports)[0]
    port, *rails = (port for port in ports if port.kind == kind)
    layer, gbit = kind
    origin = f"{layer or 'RDMA'}{f' at {gbit:g} Gbit/s' if gbit else ''} on {node}"
    if rails:
        origin += f", the first of {len(rails) + 1} such ports ({', '.join(rail.name for rail in rails)})"
    others = [other for other in [*ports, *rejected] if other.kind != kind]
    if others:
        shown = (f"{o.name} ({o.layer or 'RDMA'} at {o.port.gbit:g})" for o in dict.fromkeys(others))
        origin += f"; not {', '.join(shown)}"
    facts = {"rdma_options": Fact(port.options, origin)}
    if gbit:
        facts["link_gbit"] = Fact(_format_rate(gbit), f"rate of {port.name} on {node}")
    return facts


def _observe_hypervisor(identity: Identity, node: str) -> dict[str, Fact]:
    hypervisor, facts = identity.hypervisor, {}
    if seen(hypervisor.accelerator):
        facts["accelerator"] = Fact(hypervisor.accelerator, f"clock and firmware of {node}")
    if seen(hypervisor.build) and (match := re.search(r"(\d+\.\d+\.\d+) build-(\d+)", hypervisor.build)):
        facts["build"] = Fact(f"{match[1]}-{match[2]}", f"VMware's tools on {node}")
    return facts


def reconcile(native: Observed, virtual: Observed) -> tuple[Observed, Observed]:
    """Return both sides with one value for what must be the same for both.

    VMs of at most half of a native node's cores are taken for several VMs a host: both numbers stay.
    """
    sides = [native, virtual]
    if 2 * virtual.cores_used > native.cores_used != virtual.cores_used:
        larger, smaller = (0, 1) if native.cores_used > virtual.cores_used else (1, 0)
        facts = sides[larger].processor
        note = f"{sides[larger].node} has {facts['num_cpus'].value}, and both use what both have"
        cpus = sides[smaller].cores_used * facts["num_cpus_per_core"].value
        fact = Fact(cpus, f"{sides[smaller].processor['num_cpus'].origin}; {note}")
        sides[larger] = replace(sides[larger], processor={**facts, "num_cpus": fact})
    sides = _choose_common_fabric(*sides)
    common = {}
    if caches := native.extras.get("llc_bytes", virtual.extras.get("llc_bytes")):
        common["llc_bytes"] = caches
    links = [side.extras["link_gbit"] for side in sides if "link_gbit" in side.extras]
    if len(links) == len(sides):
        common["link_gbit"] = max(links, key=lambda fact: float(fact.value))
    first, second = (replace(side, extras={**side.extras, **common}) for side in sides)
    return first, second


def _choose_common_fabric(native: Observed, virtual: Observed) -> list[Observed]:
    """Return both sides with ports of one network, or with none if they have none in common."""
    sides, chosen = (native, virtual), fabric.select_common_ports(native.identity, virtual.identity)
    settled = []
    for side, ports in zip(sides, chosen, strict=True):
        extras = {key: fact for key, fact in side.extras.items() if key not in ("rdma_options", "link_gbit")}
        active = fabric.list_active_ports(side.identity)
        facts = _observe_rdma(ports, side.node, [port for port in active if port not in ports])
        settled.append(replace(side, extras={**extras, **facts}))
    if not chosen[0] and all("rdma_options" in side.extras for side in sides):
        layers = [fabric.list_active_ports(side.identity)[0] for side in sides]
        shown = " and ".join(
            f"{side.node} {port.layer} ({port.name})" for side, port in zip(sides, layers, strict=True)
        )
        note = f"No RDMA network is on both sides: {shown}."
        settled = [replace(side, notes=[*side.notes, note]) for side in settled]
    return settled


def observe_link_rate(observed: Observed, rdma_options: Sequence[str]) -> Fact | None:
    """Return the rate of the active port that options of perftest name, if there is one."""
    port = fabric.find_port(observed.identity, rdma_options)
    if not port or not port.port.is_active or not port.port.gbit:
        return None
    return Fact(_format_rate(port.port.gbit), f"rate of {port.name} on {observed.node}")


def _format_rate(gbit: float) -> float:
    return int(gbit) if gbit == int(gbit) else gbit


def find_contradictions(observed: Observed) -> Iterator[str]:
    """Yield a sentence if Slurm's configuration has other cores or threads of a node than /sys.

    Slurm binds tasks by its own topology: one that is wrong counts threads as cores, or gives two tasks the
    threads of one core. Sockets may be NUMA nodes or caches to Slurm, and it may leave out threads.
    """
    size, topology = observed.size, observed.identity.topology
    if not (seen(topology.cpus) and seen(topology.threads_per_core)):
        return
    online, threads = len(cpu_list(topology.cpus)), topology.threads_per_core
    cores, slurm_threads = online // threads, max(1, size.cpus // size.cores)
    if size.cores > cores or size.cpus > online or slurm_threads > threads:
        reason = ": it counts hardware threads as cores" if size.cores == online > cores else ""
        yield (
            f"Slurm has {pluralize(size.cores, 'core')} of {pluralize(slurm_threads, 'thread')} for "
            f"{observed.node}, but /sys of the node shows {pluralize(cores, 'core')} of "
            f"{pluralize(threads, 'thread')}{reason}. Correct its line in slurm.conf, as `slurmd -C` on the "
            "node prints it"
        )
