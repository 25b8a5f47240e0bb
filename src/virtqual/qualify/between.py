"""Between two rounds: VMs are created anew, and lost nodes come back, where the system file says so."""

from __future__ import annotations

import re
import shlex
import shutil
import time
from collections.abc import Container, Mapping
from functools import partial

from virtqual.errors import InfrastructureError, UsageError
from virtqual.files import execute
from virtqual.qualify import plan
from virtqual.qualify.allocations import enough, patiently, release
from virtqual.qualify.state import Qualification
from virtqual.session.log import Failed, Returned
from virtqual.session.session import Failure, Loss, Round, Session
from virtqual.site.slurm import cancel, nodes_of
from virtqual.site.systems import System

RECREATED_WITHIN = 1800
"""Seconds that the site's command may take to create the VMs anew, and that Slurm may take afterwards to call
their nodes usable: a large VM boots in minutes, and one that has not after half an hour does not."""

MOST_LOSSES = 3
"""So many times may nodes be lost and come back in a session: a build that takes its host down must not be
tried until it does not."""


def check_command(system: System) -> None:
    """Find the site's command now, and not after hours of measuring.

    Raises
    ------
    UsageError
        There is no such program.
    """
    command = system.virtual.recreate_vms
    if command and shutil.which(command[0]) is None:
        raise UsageError(
            f"system {system.name!r}: extras.recreate_vms: {command[0]!r} is no program that can be run: "
            "name it by its absolute path, and make it executable"
        )


def recreate(job: Qualification, number: int) -> float | None:
    """Create the VMs anew before the round of this number.

    Returns
    -------
    float or None
        Seconds that it took, until nodes were usable again; None where the system file names no command.

    Raises
    ------
    InfrastructureError
        The command failed or took too long, or a node did not become usable again.
    """
    command = job.system.virtual.recreate_vms
    if not command or number == 1:
        return None
    begun = time.monotonic()
    log = job.log.directory / f"round-{number}.recreate.log"
    shown = shlex.join(command)
    job.screen.note(f"creating the VMs anew: {shown}")
    # An allocation of nodes that are gone is of no use.
    release(job)
    with job.watch.paused():
        execute.run_logged(command, log, seconds=RECREATED_WITHIN)
        if lacking := job.watch.usable_again(RECREATED_WITHIN):
            raise InfrastructureError(
                f"{RECREATED_WITHIN} s after {shown} had ended, {'; '.join(lacking)} (its output: {log})"
            )
    return round(time.monotonic() - begun, 1)


def goes_on(job: Qualification, part: Round, session: Session) -> bool:
    """See whether a session goes on after a round that has lost nodes: with them again, or without them.

    Returns
    -------
    bool
        Whether it does; else `job` knows why not.
    """
    if job.broken:
        return False
    try:
        gone = {**_taken_out(job), **job.watch.lost}
    except InfrastructureError as error:
        job.broken.append(str(error))
        return False
    lost = gone or _lost_for_a_moment(session)
    within = job.system.virtual.node_returns_within
    if not lost or not job.watch.may_return() or (within is None and not job.rotated):
        return False
    if len(session.lost) == MOST_LOSSES:
        job.broken.append(
            f"{'; '.join(lost.values())}: nodes were lost {MOST_LOSSES} times before, and a session goes on "
            "no more often"
        )
        return False
    begun = time.monotonic()
    lacking = [*gone.values()] if within is None else _waited_for(job, lost, within)
    if job.broken:
        return False
    if lacking and _enough_left(job, lost):
        _set_aside(job, part, session, lost)
    elif lacking:
        for_how_long = f"after {within} s (extras.node_returns_within) " * (within is not None)
        job.broken.append(f"{for_how_long}{'; '.join(lacking)}")
    else:
        seconds = round(time.monotonic() - begun, 1)
        job.log.append(Returned(loss=Loss(round=part.number, nodes=lost, seconds=seconds)))
        job.screen.note(f"{', '.join(lost)} came back after {seconds:.0f} s: what was cut off is run again")
    return not job.broken


def _taken_out(job: Qualification) -> dict[str, str]:
    """Return the nodes that Slurm has taken out of the allocations: they failed, if only for a moment.

    Raises
    ------
    InfrastructureError
        An allocation has ended.
    """
    held = {name: number for name, number in job.held.items() if name in job.rotated}
    now = {name: patiently(partial(nodes_of, number)) for name, number in held.items()}
    return {
        node: f"node {node} has failed, and Slurm took it out of the allocation"
        for name, nodes in now.items()
        for node in job.rotated[name]
        if node not in nodes
    }


def _waited_for(job: Qualification, lost: Mapping[str, str], within: int) -> list[str]:
    """Wait for lost nodes; return a sentence for each that cannot run jobs after so many seconds."""
    job.screen.note(f"{'; '.join(lost.values())}: waiting up to {within} s for it to come back")
    try:
        release(job)
        cancel(job.log.unfinished())
    except InfrastructureError as error:
        job.broken.append(str(error))
        return []
    return job.watch.returned(within)


def _left(job: Qualification, lost: Container[str]) -> dict[str, list[str]]:
    """Return the nodes that are not lost, of those over which runs rotate."""
    return {name: [n for n in nodes if n not in lost] for name, nodes in job.rotated.items()}


def _enough_left(job: Qualification, lost: Container[str]) -> bool:
    left = min(map(len, _left(job, lost).values()), default=0)
    return left > 0 and left >= enough(job.system)


def _set_aside(job: Qualification, part: Round, session: Session, lost: Mapping[str, str]) -> None:
    """Go on without lost nodes, with as many of either side."""
    left = _left(job, lost)
    wanted, nodes = plan.unfinished(job, session, part), min(map(len, left.values()))
    job.watch.set_aside(lost)
    job.rotated = {name: names[:nodes] for name, names in left.items()}
    job.log.append(Returned(loss=Loss(round=part.number, nodes=dict(lost))))
    why = "; ".join(lost.values())
    job.screen.note(
        f"{why}: set aside; the session goes on with {nodes} nodes of each side, and what was cut off is run "
        "again"
    )
    for check, takes in plan.too_large(job, wanted).items():
        reason = f"takes {takes} nodes of each side, and {nodes} are left: {why}"
        failure = Failure(
            check=check, case=check, pair=0, side="native", partition="all", kind="failed", reason=reason
        )
        job.log.append(Failed(failure=failure))


def _lost_for_a_moment(session: Session) -> dict[str, str]:
    """Return nodes that died or did not answer, and were back before they were missed, by the job on each."""
    return {
        f"a node of job {failure.job}": failure.reason
        for failure in session.failures
        if failure.kind == "infrastructure" and re.search("NODE_FAIL|LAUNCH_FAILED", failure.reason)
    }
