"""One allocation of nodes of both sides, held for the whole session: asked for once, released at the end."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from virtqual.errors import UsageError
from virtqual.files.wording import pluralize
from virtqual.qualify.state import Qualification
from virtqual.session.log import Released, Submitted
from virtqual.site import slurm
from virtqual.site.hosts import are_separate, find_hosts
from virtqual.site.nodes import CONTROLLER_TIMEOUT_S, GLANCE_INTERVAL_S
from virtqual.site.systems import System
from virtqual.site.waiting import Wait
from virtqual.verdict.pairs import SIDES, Side

#: Time between two looks at the queue of a scheduler of our own.
OWN_QUEUE_INTERVAL_S = 0.5
#: Time between the first two looks at the queue of a site's scheduler; doubled up to `GLANCE_INTERVAL_S`.
QUEUE_INTERVAL_S = 4.0
#: Time between two attempts to reach a controller that does not answer.
RETRY_INTERVAL_S = 5.0


def hold_allocation(job: Qualification) -> None:
    """Ask for the nodes of both sides, unless they are held or each run is a job, and wait for them.

    Raises
    ------
    InfrastructureError
        The allocation was refused, has ended before it began, or did not begin in time.
    """
    for number in job.held.values():
        # Steps that a lost node, or a ReFrame that was killed, has left running.
        ask_patiently(partial(slurm.end_steps, number))
    is_missing = bool(job.system.native_extras.session_access) and not job.held
    if not job.held:
        _check_own_node(job)
    if is_missing:
        _request_nodes(job)
    _wait_for_nodes(job)
    if is_missing or not (job.held or job.rotated):
        nodes = {
            name: ask_patiently(partial(slurm.list_job_nodes, number)) for name, number in job.held.items()
        }
        job.rotated = _choose_rotated(job, nodes)
        # The watch leaves nodes aside on which others compute.
        for side in SIDES:
            name = job.system.partition(side).name
            if used := (job.rotated | nodes).get(name):
                job.watch.use(side, used, held=name in nodes)


def _request_nodes(job: Qualification) -> None:
    """Ask Slurm for the nodes of both sides, as one job."""
    ask_patiently(slurm.check_scheduler)
    # If the session goes on without nodes that do not work, they are left out.
    nodes = [
        (job.system.partition(side), _list_other_nodes(job, side)[: job.watch.working(side)])
        for side in SIDES
    ]
    number = slurm.allocate(nodes, job.head.session)
    # Until it is released, a later process finds it in the log, and cancels it.
    names = [partition.name for partition, _ in nodes]
    case = f"allocation of {' and '.join(names)}"
    job.log.append(Submitted(job=number, case=case, submitted=time.time(), held=True))
    job.held = dict(zip(names, ask_patiently(partial(slurm.list_components, number)), strict=True))


def _list_other_nodes(job: Qualification, side: Side) -> list[str]:
    """Return the nodes of a side without the one on which the session runs, if it is itself a job."""
    return [node for node in job.watch.nodes(side) if node != os.environ.get("SLURMD_NODENAME")]


def _check_own_node(job: Qualification) -> None:
    """Refuse to ask for all nodes of a partition if the session is itself a job on one of them."""
    for side in SIDES:
        count = job.watch.working(side)
        if len(_list_other_nodes(job, side)) < count:
            can_shrink = count > 1 and job.system.use_nodes(count - 1) is not job.system
            fewer = f", or --nodes {count - 1}" if can_shrink else ""
            own_node, name = os.environ["SLURMD_NODENAME"], job.system.partition(side).name
            raise UsageError(
                f"this session runs on {own_node}, and asks for every node ({count}) of partition {name}: it "
                f"would wait for itself. Start it on another partition{fewer} (docs/queues.md)"
            )


def _wait_for_nodes(job: Qualification) -> None:
    """Wait until the allocation has begun."""
    wait = Wait(job.request.wait_hours or job.system.native_extras.wait_hours, job.screen.note)
    names = {side: job.system.partition(side).name for side in SIDES}
    nodes = " and ".join(f"{pluralize(job.watch.working(side), 'node')} of {names[side]}" for side in SIDES)
    interval = QUEUE_INTERVAL_S / 2
    # A controller that is away for a while ends no waiting.
    while reasons := ask_patiently(lambda: slurm.list_waiting_jobs(job.held.values())):
        wait.note(nodes, reasons.values())
        # Free nodes are given within seconds; later the wait may take hours.
        longer = min(2 * interval, GLANCE_INTERVAL_S)
        interval = OWN_QUEUE_INTERVAL_S if job.system.native_extras.own_scheduler else longer
        time.sleep(interval)


def ask_patiently(ask: Callable[[], slurm.Answer]) -> slurm.Answer:
    """Ask Slurm again while its controller is silent; see `virtqual.site.slurm.retry_while_silent`."""
    return slurm.retry_while_silent(ask, CONTROLLER_TIMEOUT_S, RETRY_INTERVAL_S)


def _choose_rotated(job: Qualification, nodes: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return by partition the nodes over which runs rotate; none if they cannot. `nodes` are held."""
    if not can_rotate(job.system):
        return {}
    # If a site forbids long jobs, each run is a job that asks for its node by name, unless `access` already
    # names nodes: then Slurm chooses among them.
    if not nodes and any(job.system.partition(side).names_nodes for side in SIDES):
        return {}
    usable = {job.system.partition(side).name: _list_other_nodes(job, side) for side in SIDES}
    return choose_rotated_nodes(nodes or usable, job.system)


def can_rotate(system: System) -> bool:
    """Return whether the system file says enough for runs to rotate."""
    return system.nodes > 1 and bool(system.virtual_extras.nodes_of_hosts)


def min_nodes(system: System) -> int:
    """Return how many nodes of each side a session needs at least if its runs rotate."""
    return max(2, math.ceil(system.nodes / 2))


def choose_rotated_nodes(nodes: Mapping[str, Sequence[str]], system: System) -> dict[str, list[str]]:
    """Return as many of the nodes of either partition; none if they cannot all work at once.

    VMs are left out if the system file does not name their host.
    """
    of_vms, names = system.virtual_extras.nodes_of_hosts, [system.partition(side).name for side in SIDES]
    native, virtual = nodes[names[0]], list(find_hosts(of_vms, nodes[names[1]], "virtual"))
    count = min(system.nodes, len(native), len(virtual))
    native, virtual = list(native[:count]), virtual[:count]
    if count < 2 or not are_separate(system.native_extras.nodes_of_hosts, native, of_vms, virtual):
        return {}
    return dict(zip(names, (native, virtual), strict=True))


def release_allocation(job: Qualification) -> None:
    """Give the allocation back to the scheduler, if there is one; the next round asks anew."""
    if job.held:
        # All components end with the first.
        number = next(iter(job.held.values()))
        slurm.cancel_jobs({number: job.log.unfinished()[number]})
        job.log.append(Released(job=number))
        job.held = {}
