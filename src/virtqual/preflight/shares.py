"""Several VMs of one host against a native node: each is a share of it, and together they must fit it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from virtqual.identity.cpus import cpu_list, cpu_text
from virtqual.identity.record import Identity, seen
from virtqual.preflight.rules import rule
from virtqual.site.hosts import Size, find_overcommitment


def size(node: Identity) -> Size:
    """Return the cores and the memory that a node shows."""
    topology, memory = node.topology, node.memory.total_mib
    cores = None
    if seen(topology.cpus) and seen(topology.threads_per_core):
        cores = len(cpu_list(topology.cpus)) // topology.threads_per_core
    return Size(cores, memory if seen(memory) else None)


@rule("shares", "host-share")
def host_share(virtual: Sequence[Identity], native: Identity) -> Iterator[str]:
    """VMs that ran together on a host of which they are said to be shares."""
    yield from find_overcommitment([size(node) for node in virtual], size(native))


def divided(native: Identity, count: int) -> list[Identity]:
    """Return a native node `count` times, each with an equal share of the CPUs that the run used there.

    Shares are cut NUMA node by NUMA node, as VMs of one host can lie: a VM of half of a host with two NUMA
    nodes has its CPUs in one of them, and is compared with that one.
    """
    topology = native.topology
    if not seen(topology.used):
        return [native] * count
    used, nodes = cpu_list(topology.used), topology.numa.values() if seen(topology.numa) else ()
    # CPUs of no node that is seen come last.
    node_of = {cpu: place for place, cpus in enumerate(nodes) for cpu in cpu_list(cpus)}
    ordered = sorted(used, key=lambda cpu: (node_of.get(cpu, len(nodes)), cpu))
    cuts = [len(ordered) * number // count for number in range(count + 1)]
    return [
        native.model_copy(
            update={"topology": topology.model_copy(update={"used": cpu_text(ordered[first:last])})}
        )
        for first, last in pairwise(cuts)
    ]
