"""The load of a node during a run: steal, foreign load, ballooning, paging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from virtqual.identity.cpus import cpu_list
from virtqual.identity.record import NotObservable, Part, seen

Share = float | NotObservable
#: Counts of the kernel that a note may hold besides `cpu_ticks`.
COUNTERS = ("cpu_waiting_us", "memory_kib", "balloon_inflate", "balloon_deflate", "pswpin", "pswpout")


class Load(Part):
    """Between two notes of ``node.sh`` on one node.

    Attributes
    ----------
    seconds
        Time between the notes, by the node's clock.
    steal
        Share of CPU time that the hypervisor took away, 0 to 1.
    foreign
        CPUs' worth of time spent beyond what those of the run could spend: at least so much ran besides.
    waiting
        Share of the time in which some task waited for a CPU (pressure stall information), 0 to 1.
    ballooned
        Pages that the balloon driver took or gave back.
    swapped
        Pages swapped in or out.
    memory_drift_mib
        Change of the memory that the node has, MiB.
    """

    seconds: float
    steal: Share
    foreign: Share
    waiting: Share
    ballooned: int | NotObservable
    swapped: int | NotObservable
    memory_drift_mib: int | NotObservable


def between(begin: Mapping[str, str], end: Mapping[str, str], own_cpus: int) -> Load:
    """Return what happened between two notes.

    Parameters
    ----------
    begin, end
        Keys as ``node.sh`` writes them: ``time`` (s), ``cpu_ticks`` (``/proc/stat``), ``cpus_online``,
        ``cpu_waiting_us`` (``/proc/pressure/cpu``), ``memory_kib`` and the counters of ``/proc/vmstat``.
    own_cpus
        CPUs of this node that the run could use; 0 when nothing of ours ran.
    """
    seconds = max(float(end["time"]) - float(begin["time"]), 0.0)
    before, after = ([int(tick) for tick in note["cpu_ticks"].split()[:8]] for note in (begin, end))
    spent = [b - a for a, b in zip(before, after, strict=True)]
    total = sum(spent)
    steal: Share = spent[7] / total if total > 0 else _no("no CPU time passed")
    foreign: Share = _no("the note does not say how many CPUs there are")
    if total <= 0:
        foreign = _no("no CPU time passed")
    elif online := begin.get("cpus_online"):
        # Interrupts are nobody's: messages of the run itself are worked on where they arrive.
        idle = sum(spent[3:8])
        foreign = max((total - idle) / total * len(cpu_list(online)) - own_cpus, 0.0)
    waited = _difference(begin, end, "cpu_waiting_us")
    waiting: Share = waited
    if seen(waited):
        waiting = min(waited / 1e6 / seconds, 1.0) if seconds > 0 else _no("no time passed")
    drift = _difference(begin, end, "memory_kib")
    return Load(
        seconds=round(seconds, 6),
        steal=_rounded(steal),
        foreign=_rounded(foreign),
        waiting=_rounded(waiting),
        ballooned=_sum(begin, end, "balloon_inflate", "balloon_deflate"),
        swapped=_sum(begin, end, "pswpin", "pswpout"),
        memory_drift_mib=drift // 1024 if seen(drift) else drift,
    )


def worst(loads: Sequence[Load]) -> Load:
    """Return of each thing the worst that any of some nodes had to bear at the same time."""
    found: dict[str, Any] = {}
    for name in Load.model_fields:
        values = [getattr(load, name) for load in loads]
        found[name] = max(filter(seen, values), key=abs, default=values[0])
    return Load(**found)


def _rounded(share: Share) -> Share:
    return round(share, 6) if seen(share) else share


def _no(reason: str) -> NotObservable:
    return NotObservable(not_observable=reason)


def _difference(begin: Mapping[str, str], end: Mapping[str, str], key: str) -> int | NotObservable:
    if key not in begin or key not in end:
        return _no(f"the kernel does not count {key}")
    return int(end[key]) - int(begin[key])


def _sum(begin: Mapping[str, str], end: Mapping[str, str], *keys: str) -> int | NotObservable:
    total = 0
    for key in keys:
        part = _difference(begin, end, key)
        if not seen(part):
            return part
        total += part
    return total
