"""Rules on where work and memory lie: NUMA, sockets, hyperthreads, caches, and the VM on its host."""

from __future__ import annotations

import re
from collections.abc import Iterator

from virtqual.files.wording import pluralize
from virtqual.identity.cpus import cpu_list
from virtqual.identity.record import Identity, NotObservable, Topology, seen, unseen
from virtqual.preflight import shares
from virtqual.preflight.rules import Found, Studied, differs, report_unseen, require, rule
from virtqual.site.hosts import find_overcommitment


def _count_spanned(topology: Topology) -> tuple[int, int] | NotObservable:
    """Return the number of sockets, and of NUMA nodes, that the CPUs in use lie in."""
    sockets, nodes = topology.spanned(topology.packages), topology.spanned(topology.numa)
    if not seen(sockets):
        return sockets
    return (len(sockets), len(nodes)) if seen(nodes) else nodes


def _is_stated_hidden(virtual: Identity) -> bool:
    """Return whether the system file states that the VM shows fewer NUMA nodes."""
    return seen(virtual.host) and virtual.host.numa_hidden is True


def _mark_studied(virtual: Identity, reason: str) -> str:
    """Return a reason, which refuses nothing if the system file states that the VM shows fewer nodes."""
    if _is_stated_hidden(virtual):
        return Studied(f"{reason}; this is studied, as extras.numa_hidden states")
    return reason


def _shows_all_nodes(native: Identity, virtual: Identity) -> bool:
    """Return whether a VM shows as many NUMA nodes as its CPUs fill of the hardware's."""
    real, shown, cpus = native.topology.numa, virtual.topology.numa, virtual.topology.cpus
    if not (seen(real) and seen(shown) and seen(cpus)):
        return False
    return len(cpu_list(cpus)) <= len(shown) * max(len(cpu_list(node)) for node in real.values())


@rule("nodes", "numa-hidden")
def numa_hidden(native: Identity, virtual: Identity) -> Found:
    """A guest that sees fewer nodes than its CPUs lie in cannot place memory beside them.

    It is reported instead of refused if the system file states it. The statement must be true.
    """
    yield from report_unseen("NUMA nodes", *map(_count_spanned, (native.topology, virtual.topology)))
    for reason in _find_hidden_nodes(native, virtual):
        yield _mark_studied(virtual, reason)
    real, shown = native.topology.numa, virtual.topology.numa
    if _is_stated_hidden(virtual) and seen(real) and seen(shown) and len(shown) >= max(2, len(real)):
        yield f"extras.numa_hidden says that NUMA nodes are hidden; the VM shows {len(shown)}, as native does"


def _find_hidden_nodes(native: Identity, virtual: Identity) -> Iterator[str]:
    native_counts, virtual_counts = _count_spanned(native.topology), _count_spanned(virtual.topology)
    if not seen(virtual_counts):
        return
    sockets, shown = virtual_counts
    if not seen(native_counts):
        if shown < sockets:
            yield f"the VM shows {sockets} sockets but {shown} NUMA node"
    elif shown < native_counts[1] and not _shows_all_nodes(native, virtual):
        yield (
            f"the CPUs in use lie in {native_counts[1]} NUMA nodes natively, the VM shows {shown}: "
            "it cannot place memory beside them"
        )
    host, online, nodes = virtual.host, virtual.topology.cpus, virtual.topology.numa
    if seen(host) and seen(host.numa_nodes) and seen(host.cpus_per_node) and seen(online) and seen(nodes):
        cpus = len(cpu_list(online))
        if host.numa_nodes > 1 and len(nodes) == 1 and cpus > host.cpus_per_node:
            yield f"the VM shows one NUMA node of {cpus} CPUs, a node of its host has {host.cpus_per_node}"


@rule("nodes", "numa-spread")
def numa_spread(native: Identity, virtual: Identity) -> Found:
    """Native CPUs of more nodes have more memory controllers than a VM that was sized to one: no overhead."""
    native_counts, virtual_counts = _count_spanned(native.topology), _count_spanned(virtual.topology)
    if seen(native_counts) and seen(virtual_counts):
        real, shown = native_counts[1], virtual_counts[1]
        if shown < real and _shows_all_nodes(native, virtual):
            natively = f"the CPUs in use lie in {real} NUMA nodes natively"
            yield _mark_studied(virtual, f"{natively} and in {shown} of a VM that hides none")


@rule("nodes", "numa-false")
def numa_false(native: Identity, virtual: Identity) -> Found:
    """A guest that shows nodes which the hardware does not have, or of another size."""
    native_counts, virtual_counts = _count_spanned(native.topology), _count_spanned(virtual.topology)
    yield from report_unseen("NUMA nodes", native_counts, virtual_counts)
    if seen(native_counts) and seen(virtual_counts):
        real, shown = native_counts[1], virtual_counts[1]
        if shown > real:
            yield f"the CPUs in use lie in {real} NUMA nodes natively, the VM shows {shown}"
        elif shown == real > 1:
            sizes = [_count_numa_cpus(node.topology) for node in (native, virtual)]
            shares = [[round(size / sum(of_side), 1) for size in of_side] for of_side in sizes]
            if shares[0] != shares[1]:
                yield f"NUMA nodes have {sizes[0]} CPUs natively and {sizes[1]} in the VM"
    nodes_of_cache = _list_nodes_of_cache(virtual.topology)
    # Sub-NUMA clusters share one on the hardware, too.
    if len(nodes_of_cache) > max(1, len(_list_nodes_of_cache(native.topology))):
        yield f"in the VM one last-level cache spans the NUMA nodes {', '.join(nodes_of_cache)}"


def _list_nodes_of_cache(topology: Topology) -> list[str]:
    """Return the NUMA nodes that the first CPU's last-level cache spans; none if it is not seen."""
    last, numa = topology.last_level_cache, topology.numa
    if not (seen(last) and seen(numa)):
        return []
    shared = cpu_list(last[1])
    return [node for node, cpus in numa.items() if shared & cpu_list(cpus)]


def _count_numa_cpus(topology: Topology) -> list[int]:
    """Return how many CPUs in use each NUMA node has that has any, the fewest first."""
    assert seen(topology.numa)
    used = cpu_list(topology.used) if seen(topology.used) else None
    nodes = [cpu_list(cpus) for cpus in topology.numa.values()]
    counts = (len(cpus if used is None else cpus & used) for cpus in nodes)
    return sorted(count for count in counts if count)


@rule("nodes", "numa-interleaved")
def numa_interleaved(native: Identity, virtual: Identity) -> Found:
    """Node interleaving in the firmware slows native runs: a VM then seems fast beside them.

    It is allowed if the system file states it. The statement must be true.
    """
    sockets, nodes = require(_count_spanned(native.topology))
    interleaved = nodes < sockets and native.hypervisor.present is not True
    stated = seen(virtual.host) and virtual.host.node_interleaving is True
    if interleaved and not stated:
        yield f"native shows {sockets} sockets but {nodes} NUMA node: interleaved memory"
    if stated and not interleaved and sockets > 1:
        yield f"the system file says that memory is interleaved; native shows {nodes} NUMA nodes"


@rule("nodes", "smt")
def smt(native: Identity, virtual: Identity) -> Found:
    """Hyperthreads that one side does not show make two ranks share a core there."""
    used = native.topology.threads_used, virtual.topology.threads_used
    yield from differs("the number of threads in use of one core", *used)
    host = virtual.host
    if seen(host) and host.smt == "on" and virtual.topology.threads_per_core == 1:
        vcpus, node_cpus, nodes = host.vcpus, host.cpus_per_node, host.numa_nodes
        if seen(vcpus) and seen(node_cpus) and seen(nodes) and vcpus > (cores := node_cpus * nodes // 2):
            yield f"the VM has {vcpus} vCPUs as cores, its host {cores} cores with hyperthreads"


@rule("nodes", "caches")
def caches(native: Identity, virtual: Identity) -> Found:
    """Programs size their blocks by the caches that they are told of."""
    last = (node.topology.last_level_cache for node in (native, virtual))
    yield from differs("the last-level cache", *(cache[0] if seen(cache) else cache for cache in last))


@rule("nodes", "vm-size")
def vm_size(native: Identity, virtual: Identity) -> Found:
    """A VM that does not fit one node of its host, and is not shown the nodes, runs half remote."""
    host = require(virtual.host)
    numa = virtual.topology.numa
    shown = len(numa) if seen(numa) else 1
    for what, of_vm, of_node in (
        ("vCPUs", host.vcpus, host.cpus_per_node),
        ("MiB of memory", host.memory_mib, host.memory_mib_per_node),
    ):
        if not seen(of_vm) or not seen(of_node):
            yield unseen(f"{what} of the VM and of a host node: {host.source} lacks one")
        elif of_vm > of_node * shown:
            size = f"{of_vm} {what} in {pluralize(shown, 'NUMA node')}"
            yield _mark_studied(virtual, f"the VM has {size}, a node of its host has {of_node}")


@rule("nodes", "placement")
def placement(native: Identity, virtual: Identity) -> Found:
    """A host may move each vCPU and each page of memory that is not pinned."""
    host = require(virtual.host)
    one_node = host.numa_nodes == 1
    for what, pinned, may_move in (
        ("vCPUs are", host.vcpus_pinned, False),
        ("memory is", host.memory_pinned, one_node),
    ):
        if not seen(pinned):
            yield unseen(f"whether the {what} pinned: {pinned.not_observable}")
        elif not pinned and not may_move:
            yield f"{host.source}: the VM's {what} not pinned"


@rule("nodes", "overcommit")
def overcommit(native: Identity, virtual: Identity) -> Found:
    """Memory that is not reserved may be taken away, and neighbours take CPU time and bandwidth.

    VMs of the partition do the same if those of one host have more together than the host has.
    """
    host = require(virtual.host)
    if host.memory_reserved is False:
        yield f"{host.source}: the VM's memory is not reserved"
    if seen(host.other_vms) and host.other_vms:
        yield f"{host.source}: {pluralize(host.other_vms, 'other VM')} on the host"
    if seen(host.vms_per_host):
        # Its host is taken to be what native nodes are.
        together = [shares.size(virtual)] * host.vms_per_host
        yield from (f"of one host, {clause}" for clause in find_overcommitment(together, shares.size(native)))


@rule("nodes", "memory-pages")
def memory_pages(native: Identity, virtual: Identity) -> Found:
    """Large pages on both levels, or irregular access pays for two walks of page tables."""
    modes = (node.memory.transparent_huge_pages for node in (native, virtual))
    yield from differs("the mode of transparent huge pages", *modes)
    host = virtual.host
    if not seen(host):
        return
    if seen(host.memory_backing) and not re.search("huge|large|2 ?M|1 ?G", host.memory_backing):
        yield f"{host.source}: the VM's memory is backed by {host.memory_backing}"
    if host.iommu_large_pages is False:
        yield f"{host.source}: the IOMMU maps the VM's memory by 4 KiB pages"
