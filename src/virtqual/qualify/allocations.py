"""One allocation a side, held for the whole session: asked for once, and released at the end."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from virtqual.errors import InfrastructureError
from virtqual.files.records import write_file
from virtqual.files.wording import pluralize
from virtqual.qualify.state import Qualification
from virtqual.session.log import Released, Submitted
from virtqual.site import slurm
from virtqual.site.hosts import are_separate, find_hosts
from virtqual.site.nodes import CONTROLLER_TIMEOUT_S, GLANCE_INTERVAL_S
from virtqual.site.systems import SIDES, System
from virtqual.site.waiting import Wait, explain_reason

#: Time between two looks at the queue of a scheduler of our own.
OWN_QUEUE_INTERVAL_S = 0.5
#: Time between the first two looks at the queue of a site's scheduler; doubled up to `GLANCE_INTERVAL_S`.
QUEUE_INTERVAL_S = 4.0
#: Time between two attempts to reach a controller that does not answer.
RETRY_INTERVAL_S = 5.0
#: Time that the nodes of one side may stand idle, held, while the session waits for those of the other.
MAX_IDLE_S = 3600.0
#: Slurm's reasons of jobs that wait for a limit of the account or its QOS begin with these words.
LIMIT_REASONS = ("QOS", "Assoc")
#: A file that is written every minute while the session lives: without it allocations end by themselves.
ALIVE_FILE = "alive"


def give_signs_of_life(job: Qualification) -> Callable[[], None]:
    """Write a sign of life for the session's allocations every minute, until the returned function is called.

    See `virtqual.site.slurm.ABANDONED_MINUTES`.
    """
    file, ended = job.log.directory / ALIVE_FILE, threading.Event()

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


def hold_allocations(job: Qualification) -> None:
    """Ask for the allocations that are not held yet, if the system file says how, and wait for them.

    Raises
    ------
    InfrastructureError
        An allocation was refused, or has ended before it began.
    """
    for number in job.held.values():
        # Steps that a lost node, or a ReFrame that was killed, has left running.
        ask_patiently(partial(slurm.end_steps, number))
    partitions = {side: job.system.partition(side) for side in SIDES}
    missing = [side for side, p in partitions.items() if p.extras.session_access and p.name not in job.held]
    for side in missing:
        _request(job, side)
    _wait(job)
    if missing or not (job.held or job.rotated):
        nodes = {
            name: ask_patiently(partial(slurm.list_job_nodes, number)) for name, number in job.held.items()
        }
        job.rotated = _choose_rotated(job, nodes)
        # The watch leaves nodes aside on which others compute.
        for side, partition in partitions.items():
            if used := (job.rotated | nodes).get(partition.name):
                job.watch.use(side, used, held=partition.name in nodes)


def _wait(job: Qualification) -> None:
    """Wait until all allocations have begun."""
    wait = Wait(job.request.wait_hours or job.system.native.wait_hours, job.screen.note)
    idle, interval = 0.0, QUEUE_INTERVAL_S / 2
    # A controller that is away for a while ends no waiting.
    while reasons := ask_patiently(lambda: slurm.list_waiting_jobs(job.held.values())):
        nodes = _describe_nodes(job, reasons)
        wait.note(nodes, reasons.values())
        # Free nodes are given within seconds; later the wait may take hours.
        interval = (
            OWN_QUEUE_INTERVAL_S if job.system.native.own_scheduler else min(2 * interval, GLANCE_INTERVAL_S)
        )
        idle = idle + interval if len(reasons) < len(job.held) else 0.0
        if idle > MAX_IDLE_S and any(reason.startswith(LIMIT_REASONS) for reason in reasons.values()):
            limits = "; ".join(sorted(map(explain_reason, reasons.values())))
            raise InfrastructureError(
                f"{nodes} cannot be held beside those of the other partition. Slurm says {limits} "
                "(extras.session_access)."
            )
        if idle > MAX_IDLE_S:
            _request_again(job, reasons)
            idle = 0.0
        time.sleep(interval)


def _describe_nodes(job: Qualification, waiting: Container[str]) -> str:
    """Return the nodes of the allocations that wait, such as ``8 nodes of bare and 8 of vm``."""
    counts = {
        partition.name: job.watch.working(side)
        for side, partition in ((side, job.system.partition(side)) for side in SIDES)
        if job.held.get(partition.name) in waiting
    }
    first, *others = counts.items()
    return " and ".join([f"{pluralize(first[1], 'node')} of {first[0]}", *(f"{n} of {p}" for p, n in others)])


def ask_patiently(ask: Callable[[], slurm.Answer]) -> slurm.Answer:
    """Ask Slurm again while its controller is silent; see `virtqual.site.slurm.retry_while_silent`."""
    return slurm.retry_while_silent(ask, CONTROLLER_TIMEOUT_S, RETRY_INTERVAL_S)


def _request(job: Qualification, side: str) -> None:
    partition = job.system.partition(side)
    # If the session goes on without nodes that do not work, they are left out.
    nodes = job.watch.working(side)
    number = slurm.allocate(partition, f"virtqual-{job.head.session}", nodes, job.log.directory / ALIVE_FILE)
    # Until it is released, a later process finds it in the log, and cancels it.
    case = f"allocation of {partition.name}"
    job.log.append(Submitted(job=number, case=case, submitted=time.time(), held=True))
    job.held[partition.name] = number


def _request_again(job: Qualification, waiting: Container[str]) -> None:
    """Give back the allocation that has begun, and ask for it anew: others compute meanwhile."""
    for side in SIDES:
        name = job.system.partition(side).name
        if (number := job.held.get(name)) and number not in waiting:
            job.screen.note(
                f"the nodes of partition {name} have stood idle for {MAX_IDLE_S / 60:.0f} min, held while "
                "those of the other are waited for: released, and asked for anew"
            )
            _release(job, [name])
            _request(job, side)


def _choose_rotated(job: Qualification, nodes: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return by partition the nodes over which runs rotate; none if they cannot. `nodes` are held."""
    if not can_rotate(job.system):
        return {}
    # If a site forbids long jobs, each run is a job that asks for its node by name, unless `access` already
    # names nodes: then Slurm chooses among them.
    if not nodes and any(slurm.names_nodes(job.system.partition(side)) for side in SIDES):
        return {}
    usable = {job.system.partition(side).name: job.watch.nodes(side) for side in SIDES}
    return choose_rotated_nodes(nodes or usable, job.system)


def can_rotate(system: System) -> bool:
    """Return whether the system file says enough for runs to rotate."""
    return bool(min(system.native.nodes, system.virtual.nodes) > 1 and system.virtual.nodes_of_hosts)


def min_nodes(system: System) -> int:
    """Return how many nodes of each side a session needs at least if its runs rotate."""
    return max(2, math.ceil(min(system.native.nodes, system.virtual.nodes) / 2))


def choose_rotated_nodes(nodes: Mapping[str, Sequence[str]], system: System) -> dict[str, list[str]]:
    """Return as many of the nodes of either partition; none if they cannot all work at once.

    VMs are left out if the system file does not name their host.
    """
    of_vms, names = system.virtual.nodes_of_hosts, [system.partition(side).name for side in SIDES]
    native, virtual = nodes[names[0]], list(find_hosts(of_vms, nodes[names[1]], "virtual"))
    count = min(system.native.nodes, system.virtual.nodes, len(native), len(virtual))
    native, virtual = list(native[:count]), virtual[:count]
    if count < 2 or not are_separate(system.native.nodes_of_hosts, native, of_vms, virtual):
        return {}
    return dict(zip(names, (native, virtual), strict=True))


def release_allocations(job: Qualification) -> None:
    """Give all allocations back to the scheduler; the next round asks anew."""
    _release(job, list(job.held))


def _release(job: Qualification, partitions: Iterable[str]) -> None:
    submitted = job.log.unfinished()
    numbers = [job.held[name] for name in partitions]
    slurm.cancel_jobs({number: submitted[number] for number in numbers})
    for number in numbers:
        job.log.append(Released(job=number))
    job.held = {name: number for name, number in job.held.items() if number not in numbers}
