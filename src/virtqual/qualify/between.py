"""Between two rounds: VMs are created anew, and lost nodes come back, where the system file says so."""

from __future__ import annotations

import shlex
import shutil
import time

from virtqual.errors import InfrastructureError, UsageError
from virtqual.files import execute
from virtqual.qualify.allocations import release
from virtqual.qualify.state import Qualification
from virtqual.session.log import Returned
from virtqual.session.session import Loss, Round, Session
from virtqual.site.slurm import cancel
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
        code = execute.logged(command, log, seconds=RECREATED_WITHIN)
        if code:
            said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            last = said[-1] if said else "it printed nothing"
            raise InfrastructureError(f"{shown} ended with exit code {code}: {last} (its output: {log})")
        if lacking := job.watch.usable_again(RECREATED_WITHIN):
            raise InfrastructureError(
                f"{RECREATED_WITHIN} s after {shown} had ended, {'; '.join(lacking)} (its output: {log})"
            )
    return round(time.monotonic() - begun, 1)


def came_back(job: Qualification, part: Round, session: Session) -> bool:
    """Wait for the nodes that a round has lost, where the system file says that such nodes come back.

    Returns
    -------
    bool
        Whether they came back, so that the session goes on; else `job` knows why not.
    """
    within = job.system.virtual.node_returns_within
    lost = dict(job.watch.lost) or _lost_for_a_moment(session)
    if within is None or not lost or job.broken or not job.watch.may_return():
        return False
    if len(session.lost) == MOST_LOSSES:
        job.broken.append(
            f"{'; '.join(lost.values())}: nodes were lost {MOST_LOSSES} times before, and a session goes on "
            "no more often"
        )
        return False
    job.screen.note(f"{'; '.join(lost.values())}: waiting up to {within} s for it to come back")
    begun = time.monotonic()
    try:
        release(job)
        cancel(job.log.unfinished())
    except InfrastructureError as error:
        job.broken.append(str(error))
        return False
    if lacking := job.watch.returned(within):
        job.broken.append(f"after {within} s (extras.node_returns_within) {'; '.join(lacking)}")
        return False
    seconds = round(time.monotonic() - begun, 1)
    job.log.append(Returned(loss=Loss(round=part.number, nodes=lost, seconds=seconds)))
    job.screen.note(f"{', '.join(lost)} came back after {seconds:.0f} s: what was cut off is run again")
    return True


def _lost_for_a_moment(session: Session) -> dict[str, str]:
    """Return nodes that Slurm saw die, and that were back before they were missed, by the job on each."""
    return {
        f"a node of job {failure.job}": failure.reason
        for failure in session.failures
        if failure.kind == "infrastructure" and "NODE_FAIL" in failure.reason
    }
