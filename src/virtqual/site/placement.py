"""The placement of a partition's VMs on their hosts: with another placement it is another partition.

What is told of it (``extras.host`` of the virtual partition, docs/preflight.md) stands in every session, and
an earlier session with another placement is nothing to compare a hypervisor's build with.
"""

from __future__ import annotations

from collections.abc import Mapping

from virtqual.site.systems import System, host_of

Placement = Mapping[str, bool | int | str]
# What holds where nothing is said, because it must be said to be so.
UNSAID: Placement = {"node_interleaving": False, "numa_hidden": False}
# ESX 4.1's preferHT alone decided whether a VM had 0.5 or 0.7 of its host's bandwidth (claims S24, S25).
FIELDS = {
    "prefer_ht",
    "vcpus_pinned",
    "memory_pinned",
    "memory_reserved",
    "memory_backing",
    "virtual_numa_nodes",
    "numa_hidden",
    "vms_per_host",
    # The firmware's setting, which is another machine to both sides.
    "node_interleaving",
    "latency_sensitivity",
    # Messages of ESX 4.1's VMs took 12 % more time over the wire than over one switch (claims N21, N24).
    "virtual_switches",
}


def of(system: System) -> Placement:
    """Return what is told of the placement of a system's VMs; what is not told is not there."""
    return host_of(system.virtual).model_dump(mode="json", include=FIELDS)


def differences(earlier: Placement, now: Placement) -> list[str]:
    """Return a clause for each thing that both say, and differently.

    Examples
    --------
    >>> differences({"prefer_ht": False, "vcpus_pinned": True}, {"prefer_ht": True})
    ['prefer_ht was no, is yes']
    >>> differences({"numa_hidden": True}, {})
    ['numa_hidden was yes, is no']
    """
    earlier, now = {**UNSAID, **earlier}, {**UNSAID, **now}
    return [
        f"{key} was {word(earlier[key])}, is {word(now[key])}"
        for key in sorted(earlier.keys() & now.keys())
        if earlier[key] != now[key]
    ]


def word(value: bool | int | str) -> str:
    """Return a value as people read it."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
