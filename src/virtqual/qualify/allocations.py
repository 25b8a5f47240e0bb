"""One allocation a side, held for the whole session: asked for once, and released at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from virtqual.errors import InfrastructureError
from virtqual.qualify.state import Qualification
from virtqual.session.log import Released, Submitted
from virtqual.site import slurm
from virtqual.site.hosts import separate
from virtqual.site.nodes import GLANCE
from virtqual.site.systems import SIDES, System

#: Seconds between two looks at the queue of a scheduler of our own.
OFTEN = 0.5
#: Seconds that both sides' allocations may have to be waited for, the first of them being held meanwhile.
PATIENCE = 24 * 3600.0


def hold(job: Qualification) -> None:
    """Ask for the allocations that are not held yet, where the system file says how, and wait for them.

    Raises
    ------
    InfrastructureError
        An allocation was refused, or has ended before it began.
    """
    known = [(side, job.system.partition(side)) for side in SIDES]
    anew = [(side, one) for side, one in known if one.extras.session_access and one.name not in job.held]
    for side, partition in anew:
        # Those that do not work are left out, where the session goes on without them.
        nodes = job.watch.working(side)
        number = slurm.allocate(partition, f"virtqual-{job.head.session}", nodes)
        # Until it is released, whoever comes after this process finds it in the log, and cancels it.
        case = f"allocation of {partition.name}"
        job.log.append(Submitted(job=number, case=case, submitted=time.time(), held=True))
        job.held[partition.name] = number
    until, told = time.monotonic() + PATIENCE, False
    while waiting := slurm.waiting(job.held.values()):
        if not told:
            job.screen.note(f"waiting for the allocation of {len(waiting)} of {len(job.held)} partitions")
            told = True
        if time.monotonic() > until:
            raise InfrastructureError(
                f"allocation {waiting[0]} has waited for {PATIENCE / 3600:.0f} h: giving up"
            )
        time.sleep(OFTEN if job.system.native.own_scheduler else GLANCE)
    if anew:
        job.rotated = _rotated(job)


def _rotated(job: Qualification) -> dict[str, list[str]]:
    """Return the nodes among which runs rotate by partition, as many of either; none where they cannot."""
    if not may_rotate(job.system):
        return {}
    return among({name: slurm.nodes_of(number) for name, number in job.held.items()}, job.system)


def may_rotate(system: System) -> bool:
    """Return whether the system file says enough for runs to rotate."""
    several = min(system.native.nodes, system.virtual.nodes) > 1
    return bool(several and system.native.session_access and system.virtual.nodes_of_hosts)


def enough(system: System) -> int:
    """Return how many nodes of each side are enough for a session whose runs rotate to go on."""
    return max(2, math.ceil(min(system.native.nodes, system.virtual.nodes) / 2))


def among(nodes: Mapping[str, Sequence[str]], system: System) -> dict[str, list[str]]:
    """Return as many of the nodes of either partition; none where they cannot all work at once."""
    most = min(system.native.nodes, system.virtual.nodes, *map(len, nodes.values()))
    first = {name: list(names[:most]) for name, names in nodes.items()}
    native, virtual = (first[system.partition(side).name] for side in SIDES)
    apart = separate(system.native.nodes_of_hosts, native, system.virtual.nodes_of_hosts, virtual)
    return first if apart else {}


def release(job: Qualification) -> None:
    """Give all that is held back to the scheduler; the next round asks anew."""
    submitted = job.log.unfinished()
    slurm.cancel({number: submitted[number] for number in job.held.values()})
    for number in job.held.values():
        job.log.append(Released(job=number))
    job.held.clear()
