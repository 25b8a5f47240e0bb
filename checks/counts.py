"""Over how many threads or ranks a scaling curve goes, from what the selected system's nodes have."""

import reframe.core.runtime as rt

from virtqual import sizes


def _fewest():
    """Return physical cores and hardware threads that every node has."""
    found = [p.processor for p in rt.runtime().system.partitions if p.processor.num_cpus]
    cores = min((p.num_cpus // (p.num_cpus_per_core or 1) for p in found), default=1)
    return cores, min((p.num_cpus for p in found), default=1)


def threads():
    """Return 1, 2, 4, ... all cores, all hardware threads."""
    return sizes.doublings(*_fewest())


def ranks():
    """Return 1, 2, 4, ... all cores: no rank shares one."""
    cores, _ = _fewest()
    return sizes.doublings(cores, cores)
