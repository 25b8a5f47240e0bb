"""Over how many threads or ranks a scaling curve goes, from what the selected system's nodes have."""

import reframe.core.runtime as rt

from virtqual.programs import sizes
from virtqual.site import hosts as shared_hosts


def compared():
    """Return the partitions that are compared: a system file may have others."""
    return [p for p in rt.runtime().system.partitions if {"native", "virtual"} & set(p.features)]


def _fewest():
    """Return physical cores and hardware threads that every node has."""
    found = [p.processor for p in compared() if p.processor.num_cpus]
    cores = min((p.num_cpus // (p.num_cpus_per_core or 1) for p in found), default=1)
    return cores, min((p.num_cpus for p in found), default=1)


#: The study's largest cluster: strong scaling goes over so many nodes at most.
MOST_NODES = 8


def cores():
    """Return the physical cores that every node has."""
    return _fewest()[0]


def up_to_cores(ranks):
    """Return the numbers of ranks that a node has cores for; the smallest of them at least."""
    return [count for count in ranks if count <= cores()] or [min(ranks)]


def nodes():
    """Return over how many nodes strong scaling goes."""
    found = [p.extras["nodes"] for p in compared()]
    return min([MOST_NODES, *found]) if found else 1


def processes(*, small, most=None):
    """Return the numbers of processes of a strong scaling: doublings up to all cores of all nodes.

    It begins with one process a node, as in the study.  On small systems it begins with a single one, and
    ends with one a node: nodes that share a few cores would wait for each other only.
    """
    every = nodes() if small and nodes() > 1 else nodes() * cores()
    counts = [count for count in sizes.doublings(every, every) if small or count >= nodes()]
    if most is None:
        return counts
    # What is no power of two (all cores of an odd node) may be divided in no way that fits.
    return [count for count in counts if count <= most and count & (count - 1) == 0] or [1]


def threads():
    """Return 1, 2, 4, ... all cores, all hardware threads."""
    return sizes.doublings(*_fewest())


def ranks():
    """Return 1, 2, 4, ... all cores: no rank shares one."""
    return sizes.doublings(cores(), cores())


def layouts(ranks, among, most):
    """Return how numbers of ranks are divided evenly among numbers of nodes, as far as there are both.

    Parameters
    ----------
    ranks, among
        The numbers.
    most
        Number of nodes that there are.

    Returns
    -------
    list of str
        Nodes and ranks of each, such as ``"2x4"``; the smallest of all at least.
    """
    every = [(number, count // number) for number in among for count in ranks if count % number == 0]
    fitting = [(number, each) for number, each in every if number <= most and each <= cores()]
    return [f"{number}x{each}" for number, each in fitting or [min(every)]]


def of_layout(layout):
    """Return nodes and ranks (or threads) of each, of a layout such as ``2x4``."""
    return tuple(int(number) for number in layout.split("x"))


def vms():
    """Return how many VMs of one host run at once: 2, 4, ... all that share one; 2 where none do."""
    found = [p.extras.get("nodes_of_hosts", {}) for p in compared() if "virtual" in p.features]
    most = max(map(shared_hosts.most, found), default=0)
    return sizes.doublings(most, most)[1:] if most > 1 else [2]


def vms_each(numbers):
    """Return layouts of so many VMs of one host with each of some numbers of ranks or threads."""
    return [f"{count}x{each}" for count in vms() for each in numbers]


def at_once():
    """Return on how many nodes at once a program runs: 2, 4, ... all; 2 where there are fewer."""
    return sizes.doublings(nodes(), nodes())[1:] or [2]
