"""What follows from the selected system's partitions: how far a curve goes, and where a check can run."""

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


def both_with(feature, systems):
    """Return ReFrame's selectors with a feature added, or none at all where not both partitions have it."""
    partitions = rt.runtime().system.partitions
    having = {side for p in partitions if feature in p.features for side in p.features}
    return [f"{one} +{feature}" for one in systems] if {"native", "virtual"} <= having else []
