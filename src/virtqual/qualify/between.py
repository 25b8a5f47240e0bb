"""Between two rounds: VMs are created anew, and lost nodes are set aside."""

from __future__ import annotations

import shlex
import shutil
import time
from functools import partial

from virtqual import paths
from virtqual.errors import InfrastructureError, UsageError
from virtqual.files import execute
from virtqual.qualify import plan
from virtqual.qualify.allocations import ask_patiently, min_nodes, release_allocation
from virtqual.qualify.state import Qualification
from virtqual.session.log import Failed, SetAside
from virtqual.session.session import Failure, Loss, Round, Session
from virtqual.site.slurm import list_job_nodes
from virtqual.site.systems import System

#: A build that takes its hosts down must not be tried until it does not.
MAX_LOSSES = 3


def check_command(system: System) -> None:
    """Refuse a command of the system file that cannot be run, before anything is measured."""
    command = system.virtual_extras.recreate_vms
    paths.check_command(command)
    if command and shutil.which(command[0]) is None:
        raise UsageError(
            f"system {system.name!r}: extras.recreate_vms: {command[0]!r} is no program that can be run: "
            "name it by its absolute path, and make it executable"
        )


def recreate_vms(job: Qualification, number: int) -> float | None:
    """Create the VMs anew before a round, and return how many seconds that took.

    Returns None if the system file names no command, or the round is the first.
    """
    command = job.system.virtual_extras.recreate_vms
    if not command or number == 1:
        return None
    begun = time.monotonic()
    log = job.log.directory / f"round-{number}.recreate.log"
    shown, boot_seconds = shlex.join(command), job.system.virtual_extras.timeouts.boot
    job.screen.note(f"creating the VMs anew: {shown}")
    # An allocation of nodes that are gone is of no use.
    ask_patiently(partial(release_allocation, job))
    with job.watch.paused():
        execute.run_logged(command, log, seconds=boot_seconds)
        if lacking := job.watch.wait_until_usable(boot_seconds):
            raise InfrastructureError(
                f"{boot_seconds:.0f} s after {shown} had ended (extras.timeouts.boot), {'; '.join(lacking)} "
                f"(its output: {log})"
            )
    return round(time.monotonic() - begun, 1)


def set_lost_nodes_aside(job: Qualification, part: Round, session: Session) -> bool:
    """Set aside the nodes that a round has lost, and return whether the session goes on without them.

    If it does not, `job` has the reason. Only sessions whose runs rotate over nodes can go on.
    """
    if job.broken or not job.rotated:
        return False
    try:
        _note_removed_nodes(job)
    except InfrastructureError as error:
        job.broken.append(str(error))
        return False
    lost = dict(job.watch.lost)
    nodes_left = {name: [n for n in nodes if n not in lost] for name, nodes in job.rotated.items()}
    count = min(map(len, nodes_left.values()))
    if not lost or lost.keys() != job.watch.lost_nodes or count < min_nodes(job.system):
        return False
    if len(session.lost) == MAX_LOSSES:
        job.broken.append(f"nodes were lost {MAX_LOSSES} times before, and a session goes on no more often")
        return False
    job.log.append(SetAside(loss=Loss(round=part.number, nodes=lost)))
    # The failures that the lost nodes caused do not count any more.
    unfinished = plan.list_unfinished_turns(job, job.log.session(), part)
    job.watch.set_aside(lost)
    job.rotated = {name: nodes[:count] for name, nodes in nodes_left.items()}
    reason = "; ".join(lost.values())
    job.screen.note(
        f"{reason}: set aside; the session goes on with {count} nodes of each side, and what was cut off is "
        "run again"
    )
    for entry in job.entries:
        if (name := entry.case) in unfinished and not job.rotation(entry.nodes).places:
            why = f"takes {entry.nodes} nodes of each side, and {count} are left: {reason}"
            failure = Failure(
                check=name, case=name, pair=0, side="native", partition="all", kind="failed", reason=why
            )
            job.log.append(Failed(failure=failure))
    return True


def _note_removed_nodes(job: Qualification) -> None:
    """Count nodes as lost that Slurm has removed from the allocations: they failed, if only for a moment."""
    for name, number in job.held.items():
        if name in job.rotated:
            nodes = ask_patiently(partial(list_job_nodes, number))
            for node in set(job.rotated[name]).difference(nodes):
                reason = f"node {node} has failed, and Slurm removed it from the allocation"
                job.watch.lost.setdefault(node, reason)
                job.watch.stop.set()
