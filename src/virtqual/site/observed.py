"""The values of a system file as Slurm and a node of each partition show them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from virtqual.identity import Identity, seen
from virtqual.identity.cpus import cpu_list
from virtqual.site.hosts import shorten
from virtqual.site.partitions import SlurmPartition

#: The share of a node's memory that is left to its system, the page cache and Slurm.
SYSTEM_MEMORY_SHARE = 0.1
#: Partitions with fewer cores a node take the checks' small sizes.
MIN_STANDARD_CORES = 8
_UNIT_BYTES = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True)
class Fact:
    """A value of a system file, and what shows it, such as ``sinfo: CPUS of n1``; empty for a TODO."""

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

    @property
    def cores_used(self) -> int:
        """The cores of the node that runs use."""
        return int(self.processor["num_cpus"].value // self.processor["num_cpus_per_core"].value)


def observe(partition: SlurmPartition, identity: Identity) -> Observed:
    """Return what Slurm says of a partition and a node of itself."""
    node = shorten(identity.node) if seen(identity.node) else partition.name
    size = partition.sizes.get(node, partition.common_size)
    # Slurm may leave out threads, or whole cores.
    cpus_per_core = max(1, size.cpus // size.cores)
    processor = {
        "num_cpus": Fact(size.cpus, f"sinfo: CPUS of {node}"),
        "num_cpus_per_core": Fact(cpus_per_core, f"sinfo: CPUS and cores of {node}"),
    }
    if seen(sockets := identity.topology.sockets):
        processor["num_sockets"] = Fact(sockets, f"sockets in /sys of {node}")
    scale = "standard" if size.cores >= MIN_STANDARD_CORES else "small"
    extras = {
        "nodes": Fact(len(partition.common_nodes), f"sinfo: nodes of {partition.name}"),
        **_observe_memory(identity, node, size.memory_mib),
        "scale": Fact(scale, f"{size.cores} cores of {node}"),
        **_observe_rdma(identity, node),
    }
    return Observed(partition, node, identity, processor, extras, _observe_hypervisor(identity, node))


def _observe_memory(identity: Identity, node: str, slurm_mib: int | None) -> dict[str, Fact]:
    facts, topology = {}, identity.topology
    if seen(total := identity.memory.total_mib):
        # Slurm's configuration may give jobs less than there is.
        usable, share = min(total, slurm_mib or total), 1 - SYSTEM_MEMORY_SHARE
        origin = f"{share:.0%} of the {usable} MiB of {node}; its system keeps {SYSTEM_MEMORY_SHARE:.0%}"
        facts["memory_mib"] = Fact(int(usable * share), origin)
    if seen(topology.numa):
        facts["numa_nodes"] = Fact(len(topology.numa), f"NUMA nodes in /sys of {node}")
    if seen(cache := topology.last_level_cache) and seen(topology.cpus):
        size, sharing_cpus = cache
        if match := re.fullmatch(r"(\d+)([KMG])", size):
            count = max(1, len(cpu_list(topology.cpus)) // max(1, len(cpu_list(sharing_cpus))))
            cache_bytes = count * int(match[1]) * _UNIT_BYTES[match[2]]
            facts["llc_bytes"] = Fact(cache_bytes, f"last-level caches in /sys of {node}")
    return facts


def _observe_rdma(identity: Identity, node: str) -> dict[str, Fact]:
    """Return the fastest active port of the RDMA devices."""
    ports = [(port.gbit, hca.name) for hca in identity.hcas for port in hca.ports if port.is_active]
    if not ports:
        return {}
    gbit, device = max(ports, key=lambda port: port[0])
    facts = {"rdma_options": Fact(["-d", device], f"fastest active RDMA port of {node}")}
    if gbit:
        rate = int(gbit) if gbit == int(gbit) else gbit
        facts["link_gbit"] = Fact(rate, f"rate of {device} on {node}")
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
        fact = Fact(cpus, f"sinfo: CPUS of {sides[smaller].node}; {note}")
        sides[larger] = replace(sides[larger], processor={**facts, "num_cpus": fact})
    common = {}
    if caches := native.extras.get("llc_bytes", virtual.extras.get("llc_bytes")):
        common["llc_bytes"] = caches
    links = [side.extras["link_gbit"] for side in sides if "link_gbit" in side.extras]
    if len(links) == len(sides):
        common["link_gbit"] = max(links, key=lambda fact: float(fact.value))
    first, second = (replace(side, extras={**side.extras, **common}) for side in sides)
    return first, second
