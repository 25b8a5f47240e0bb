"""The placement of VMs on their hosts: sessions with different placements are not compared."""

from __future__ import annotations

from collections.abc import Mapping

from virtqual.site.host_records import format_setting
from virtqual.site.systems import System

Placement = Mapping[str, bool | int | str]
# Values of fields that are not stated.
DEFAULT_PLACEMENT: Placement = {"node_interleaving": False, "numa_hidden": False}
PLACEMENT_FIELDS = {
    # ESX 4.1's preferHT alone decided whether a VM had 0.5 or 0.7 of its host's bandwidth (claims S24, S25).
    "prefer_ht",
    "vcpus_pinned",
    "memory_pinned",
    "memory_reserved",
    "memory_backing",
    "virtual_numa_nodes",
    "numa_hidden",
    "vms_per_host",
    # The firmware's setting changes the machine of both sides.
    "node_interleaving",
    "latency_sensitivity",
    # Messages of ESX 4.1's VMs took 12 % more time over the wire than over one switch (claims N21, N24).
    "virtual_switches",
}


def read_placement(system: System) -> Placement:
    """Return the stated placement of a system's VMs."""
    return system.virtual_extras.read_host().model_dump(mode="json", include=PLACEMENT_FIELDS)


def find_differences(earlier: Placement, now: Placement) -> list[str]:
    """Return a clause for each field that both placements state differently.

    Examples
    --------
    >>> find_differences({"prefer_ht": False, "vcpus_pinned": True}, {"prefer_ht": True})
    ['prefer_ht was no, is yes']
    >>> find_differences({"numa_hidden": True}, {})
    ['numa_hidden was yes, is no']
    """
    earlier, now = {**DEFAULT_PLACEMENT, **earlier}, {**DEFAULT_PLACEMENT, **now}
    return [
        f"{key} was {format_setting(earlier[key])}, is {format_setting(now[key])}"
        for key in sorted(earlier.keys() & now.keys())
        if earlier[key] != now[key]
    ]
