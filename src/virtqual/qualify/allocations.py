"""One allocation a side, held for the whole session: asked for once, and released at the end."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from virtqual.errors import InfrastructureError
from virtqual.files.records import write_file
from virtqual.qualify.state import Qualification
from virtqual.session.log import Released, Submitted
from virtqual.site import slurm
from virtqual.site.hosts import hosts_of, separate
from virtqual.site.nodes import GLANCE, SILENCE
from virtqual.site.systems import SIDES, System

#: Seconds between two looks at the queue of a scheduler of our own.
OFTEN = 0.5
#: Half of the seconds between the first two looks at the queue of one that others use, too.
SOON = 2.0
#: Seconds that allocations are waited for.
PATIENCE = 24 * 3600.0
#: Seconds that the nodes of one side may stand idle, held, while those of the other are waited for.
IDLE = 3600.0
#: Holds something new every minute as long as the session lives: allocations of a dead one end by themselves.
ALIVE = "alive"


def give_signs_of_life(job: Qualification) -> Callable[[], None]:
    """Give the session's allocations a sign of life every minute, until what is returned is called.

    See `virtqual.site.slurm.ABANDONED`.
    """
    file, ended = job.log.directory / ALIVE, threading.Event()

    def live() -> None:
        while True:
            # A full disk ends no session; an allocation waits for many signs.
            with suppress(OSError):
                write_file(f"{time.time():.0f}\n", file)
            if ended.wait(60):
                return

    def end() -> None:
        ended.set()
        thread.join()
        file.unlink(missing_ok=True)

    thread = threading.Thread(target=live, daemon=True)
    thread.start()
    return end


def hold(job: Qualification) -> None:
    """Ask for the allocations that are not held yet, where the system file says how, and wait for them.

    Raises
    ------
    InfrastructureError
        An allocation was refused, or has ended before it began.
    """
    for number in job.held.values():
        # What a node that was lost, or a ReFrame that was killed, has left running.
        ask_patiently(partial(slurm.end_steps, number))
    anew = [
        side
        for side in SIDES
        if (one := job.system.partition(side)).extras.session_access and one.name not in job.held
    ]
    for side in anew:
        _ask_for(job, side)
    began, told, idle, wait = time.monotonic(), "", 0.0, SOON
    # A controller that is away for a while ends no waiting.
    while waiting := ask_patiently(lambda: slurm.waiting(job.held.values())):
        # Slurm needs a moment to find out why a job waits, and one may wait for what never comes.
        why = ", ".join(sorted({reason for reason in waiting.values() if reason != "None"}))
        note = f"waiting for the allocation of {len(waiting)} of {len(job.held)} partitions"
        if told != (note := f"{note} (Slurm says: {why})" if why else note):
            job.screen.note(told := note)
        if time.monotonic() - began > PATIENCE:
            raise InfrastructureError(f"{note} for {PATIENCE / 3600:.0f} h: giving up")
        # Free nodes are given within seconds; whoever still waits then may wait for hours.
        wait = OFTEN if job.system.native.own_scheduler else min(2 * wait, GLANCE)
        idle = idle + wait if len(waiting) < len(job.held) else 0.0
        if idle > IDLE and re.match("QOS|Assoc", why):
            raise InfrastructureError(
                f"{note}: the limits of the account or its QOS do not allow an allocation of each side at "
                "once; ask for fewer nodes (extras.nodes), or by another QOS (extras.session_access)"
            )
        if idle > IDLE:
            _queue_again(job, waiting)
            idle = 0.0
        time.sleep(wait)
    if anew or not (job.held or job.rotated):
        nodes = {name: ask_patiently(partial(slurm.nodes_of, number)) for name, number in job.held.items()}
        job.rotated = _rotated(job, nodes)
        # What becomes of nodes that others compute on is no loss.
        for side in SIDES:
            name = job.system.partition(side).name
            if used := (job.rotated | nodes).get(name):
                job.watch.use(side, used, held=name in nodes)


def ask_patiently(ask: Callable[[], slurm.Answer]) -> slurm.Answer:
    """Ask Slurm again while its controller is silent; see `virtqual.site.slurm.patiently`."""
    return slurm.patiently(ask, SILENCE, OFTEN * 10)


def _ask_for(job: Qualification, side: str) -> None:
    partition = job.system.partition(side)
    # Nodes that do not work are left out, where the session goes on without them.
    nodes = job.watch.working(side)
    number = slurm.allocate(partition, f"virtqual-{job.head.session}", nodes, job.log.directory / ALIVE)
    # Until it is released, whoever comes after this process finds it in the log, and cancels it.
    case = f"allocation of {partition.name}"
    job.log.append(Submitted(job=number, case=case, submitted=time.time(), held=True))
    job.held[partition.name] = number


def _queue_again(job: Qualification, waiting: Container[str]) -> None:
    """Give back what is held already, and ask for it anew: others compute meanwhile."""
    for side in SIDES:
        name = job.system.partition(side).name
        if (number := job.held.get(name)) and number not in waiting:
            job.screen.note(
                f"the nodes of partition {name} have stood idle for {IDLE / 60:.0f} min, held while those of "
                "the other are waited for: released, and asked for anew"
            )
            _release(job, [name])
            _ask_for(job, side)


def _rotated(job: Qualification, nodes: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return those nodes over which runs rotate by partition, as many of either; none where they cannot.

    Parameters
    ----------
    job
        Of which session.
    nodes
        Those that are held, by partition.
    """
    if not may_rotate(job.system):
        return {}
    # Where a site forbids long jobs, each run is one, and asks for its node by name; where `access` already
    # says which nodes, Slurm chooses among them.
    if not nodes and any(slurm.names_nodes(job.system.partition(side)) for side in SIDES):
        return {}
    return among(nodes or {job.system.partition(s).name: job.watch.nodes(s) for s in SIDES}, job.system)


def may_rotate(system: System) -> bool:
    """Return whether the system file says enough for runs to rotate."""
    return bool(min(system.native.nodes, system.virtual.nodes) > 1 and system.virtual.nodes_of_hosts)


def min_nodes(system: System) -> int:
    """Return how many nodes of each side a session needs at least if its runs rotate."""
    return max(2, math.ceil(min(system.native.nodes, system.virtual.nodes) / 2))


def among(nodes: Mapping[str, Sequence[str]], system: System) -> dict[str, list[str]]:
    """Return as many of the nodes of either partition; none where they cannot all work at once.

    Of VMs they are those of which the system file names the host.
    """
    of_vms, names = system.virtual.nodes_of_hosts, [system.partition(side).name for side in SIDES]
    native, virtual = nodes[names[0]], list(hosts_of(of_vms, nodes[names[1]], "virtual"))
    most = min(system.native.nodes, system.virtual.nodes, len(native), len(virtual))
    native, virtual = list(native[:most]), virtual[:most]
    if most < 2 or not separate(system.native.nodes_of_hosts, native, of_vms, virtual):
        return {}
    return dict(zip(names, (native, virtual), strict=True))


def release(job: Qualification) -> None:
    """Give all that is held back to the scheduler; the next round asks anew."""
    _release(job, list(job.held))


def _release(job: Qualification, partitions: Iterable[str]) -> None:
    submitted = job.log.unfinished()
    numbers = [job.held[name] for name in partitions]
    slurm.cancel({number: submitted[number] for number in numbers})
    for number in numbers:
        job.log.append(Released(job=number))
    job.held = {name: number for name, number in job.held.items() if number not in numbers}
