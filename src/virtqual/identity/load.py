"""The load of a node during a run: steal, foreign load, ballooning, paging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from virtqual.identity.cpus import cpu_list
from virtqual.identity.record import Count, NotObservable, Part, seen, unseen

Share = float | NotObservable
#: Counts of the kernel that a note may hold besides `cpu_ticks`.
COUNTERS = ("cpu_waiting_us", "memory_kib", "balloon_inflate", "balloon_deflate", "pswpin", "pswpout")


class Load(Part):
    """The load of one node between two notes of ``node.sh``."""

    #: Time between the notes, by the node's clock.
    seconds: float
    #: Share of CPU time that the hypervisor took away, 0 to 1.
    steal: Share
    #: Number of CPUs that were busy beyond those of the run, at least.
    foreign: Share
    #: Share of the time in which some task waited for a CPU (pressure stall information), 0 to 1.
    waiting: Share
    #: Pages that the balloon driver took or gave back.
    ballooned: Count
    #: Pages swapped in or out.
    swapped: Count
    #: Change of the memory that the node has.
    memory_drift_mib: Count


def between(begin: Mapping[str, str], end: Mapping[str, str], own_cpus: int) -> Load:
    """Return the load between two notes of ``node.sh`` on a node of which the run could use `own_cpus`."""
    seconds = max(float(end["time"]) - float(begin["time"]), 0.0)
    before, after = ([int(tick) for tick in note["cpu_ticks"].split()[:8]] for note in (begin, end))
    ticks = [b - a for a, b in zip(before, after, strict=True)]
    total, online = sum(ticks), begin.get("cpus_online")
    steal: Share = unseen("no CPU time passed")
    foreign: Share = steal
    if total > 0:
        steal = round(ticks[7] / total, 6)
        foreign = unseen("the note does not say how many CPUs there are")
    if total > 0 and online:
        # Interrupts do not count: messages of the run itself are handled where they arrive.
        busy = (total - sum(ticks[3:8])) / total * len(cpu_list(online))
        foreign = round(max(busy - own_cpus, 0.0), 6)
    waited = _count(begin, end, "cpu_waiting_us")
    waiting: Share = waited
    if seen(waited):
        waiting = round(min(waited / 1e6 / seconds, 1.0), 6) if seconds > 0 else unseen("no time passed")
    drift = _count(begin, end, "memory_kib")
    return Load(
        seconds=round(seconds, 6),
        steal=steal,
        foreign=foreign,
        waiting=waiting,
        ballooned=_count(begin, end, "balloon_inflate", "balloon_deflate"),
        swapped=_count(begin, end, "pswpin", "pswpout"),
        memory_drift_mib=drift // 1024 if seen(drift) else drift,
    )


def worst(loads: Sequence[Load]) -> Load:
    """Return the worst value of each field over nodes at the same time."""
    fields = {}
    for name in Load.model_fields:
        values = [getattr(load, name) for load in loads]
        fields[name] = max(filter(seen, values), key=abs, default=values[0])
    return Load(**fields)


def _count(begin: Mapping[str, str], end: Mapping[str, str], *keys: str) -> Count:
    """Return the sum of what some counters of the kernel counted."""
    for key in keys:
        if key not in begin or key not in end:
            return unseen(f"the kernel does not count {key}")
    return sum(int(end[key]) - int(begin[key]) for key in keys)
