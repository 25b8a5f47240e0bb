"""The numbers of threads, ranks, nodes and VMs of a scaling curve, by the selected system's nodes."""

import reframe.core.runtime as rt

from virtqual.programs import sizes
from virtqual.site import hosts as shared_hosts

#: The study's largest cluster: strong scaling goes over so many nodes at most.
MAX_NODES = 8


def compared_partitions():
    """Return the partitions that are compared: a system file may have others."""
    return [p for p in rt.runtime().system.partitions if {"native", "virtual"} & set(p.features)]


def explain_no_scratch():
    """Return why storage cannot be measured: a partition states no directory."""
    stated = all(partition.extras.get("scratch") for partition in compared_partitions())
    return None if stated else "needs extras.scratch in both partitions"


def scales():
    """Return the scales of both partitions; they agree in a system file that is right."""
    return {partition.extras["scale"] for partition in compared_partitions()}


def stated_class():
    """Return the class that the system file states; empty if the virtual partition was not selected."""
    stated = (p.extras["hypervisor_class"] for p in compared_partitions() if "virtual" in p.features)
    return next(stated, "")


def _processors():
    return [p.processor for p in compared_partitions() if p.processor.num_cpus]


def cores():
    """Return the physical cores that every node has."""
    return min((p.num_cpus // (p.num_cpus_per_core or 1) for p in _processors()), default=1)


def up_to_cores(ranks):
    """Return the numbers of ranks that a node has cores for; the smallest of them at least."""
    return [count for count in ranks if count <= cores()] or [min(ranks)]


def nodes():
    """Return the number of nodes of strong scaling."""
    partitions = compared_partitions()
    return min([MAX_NODES, *(p.extras["nodes"] for p in partitions)]) if partitions else 1


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
    return sizes.doublings(cores(), min((p.num_cpus for p in _processors()), default=1))


def ranks():
    """Return 1, 2, 4, ... all cores: no rank shares one."""
    return sizes.doublings(cores(), cores())


def several_nodes():
    """Return the numbers of nodes on which a program runs at once: 2, 4, ... all; at least 2."""
    return sizes.doublings(nodes(), nodes())[1:] or [2]


def vms():
    """Return the numbers of VMs of one host that run at once: 2, 4, ... all that share a host; at least 2."""
    hosts = [p.extras.get("nodes_of_hosts", {}) for p in compared_partitions() if "virtual" in p.features]
    most = max(map(shared_hosts.count_max_nodes, hosts), default=0)
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
