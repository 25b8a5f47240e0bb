"""The numbers of threads, ranks, nodes and VMs of a scaling curve, by the selected system's nodes."""

import reframe.core.runtime as rt

from virtqual.programs import sizes
from virtqual.site import hosts as shared_hosts
from virtqual.verdict.pairs import SIDES

#: The study's largest cluster: strong scaling goes over so many nodes at most.
MAX_NODES = 8


def find_partition(side):
    """Return the partition of a side; None if it is not selected."""
    return next((p for p in rt.runtime().system.partitions if side in p.features), None)


def compared_partitions():
    """Return the selected partitions that are compared: a system file may have others."""
    return [partition for side in SIDES if (partition := find_partition(side))]


def explain_not_stated(key):
    """Return why storage cannot be measured: a partition states no directory under a key of its extras."""
    stated = all(partition.extras.get(key) for partition in compared_partitions())
    return None if stated else f"needs extras.{key} in both partitions"


def scales():
    """Return the scales of both partitions; they agree in a system file that is right."""
    return {partition.extras["scale"] for partition in compared_partitions()}


def stated_class():
    """Return the class that the system file states; empty if the virtual partition was not selected."""
    virtual = find_partition("virtual")
    return virtual.extras["hypervisor_class"] if virtual else ""


def cores_of(partition):
    """Return the physical cores of a node of a partition."""
    return partition.processor.num_cpus // partition.processor.num_cpus_per_core


def cores():
    """Return the physical cores that every node has."""
    return min(map(cores_of, compared_partitions()), default=1)


def up_to_cores(ranks):
    """Return the numbers of ranks that a node has cores for; the smallest of them at least."""
    return [count for count in ranks if count <= cores()] or [min(ranks)]


def nodes():
    """Return the number of nodes of strong scaling."""
    return min(MAX_NODES, min((p.extras["nodes"] for p in compared_partitions()), default=1))


def processes(*, small, most=None):
    """Return the numbers of processes of a strong scaling: doublings up to all cores of all nodes.

    The curve begins with one process a node, as in the study.  On small systems it begins with a single
    process, and ends with one a node: nodes that share a few cores would wait for each other only.
    """
    total = nodes() if small and nodes() > 1 else nodes() * cores()
    counts = [count for count in sizes.doublings(total, total) if small or count >= nodes()]
    if most is None:
        return counts
    # A number that is no power of two (all cores of an odd node) may have no division that fits.
    return [count for count in counts if count <= most and count & (count - 1) == 0] or [1]


def threads():
    """Return 1, 2, 4, ... all cores, all hardware threads."""
    return sizes.doublings(cores(), min((p.processor.num_cpus for p in compared_partitions()), default=1))


def ranks():
    """Return 1, 2, 4, ... all cores: no rank shares one."""
    return sizes.doublings(cores(), cores())


def several_nodes():
    """Return the numbers of nodes on which a program runs at once: 2, 4, ... all; at least 2."""
    return sizes.doublings(nodes(), nodes())[1:] or [2]


def vms():
    """Return the numbers of VMs of one host that run at once: 2, 4, ... all that share a host; at least 2."""
    virtual = find_partition("virtual")
    most = shared_hosts.count_max_nodes(virtual.extras.get("nodes_of_hosts", {})) if virtual else 0
    return sizes.doublings(most, most)[1:] if most > 1 else [2]


def layouts(ranks, node_counts, most):
    """Return how numbers of ranks are divided evenly among numbers of nodes, such as ``"2x4"``.

    Layouts of more than `most` nodes, or of more ranks a node than cores, are left out; the smallest layout
    is returned if no other is left.
    """
    pairs = [(nodes, count // nodes) for nodes in node_counts for count in ranks if count % nodes == 0]
    fitting = [(nodes, per_node) for nodes, per_node in pairs if nodes <= most and per_node <= cores()]
    return [f"{nodes}x{per_node}" for nodes, per_node in fitting or [min(pairs)]]


def vm_layouts(numbers):
    """Return layouts of so many VMs of one host with each of some numbers of ranks or threads."""
    return [f"{count}x{number}" for count in vms() for number in numbers]


def parse_layout(text):
    """Return nodes and ranks (or threads) a node of a layout such as ``2x4``."""
    return tuple(int(number) for number in text.split("x"))
