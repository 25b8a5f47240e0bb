"""Before a round: the virtual machines are created anew, where the system file says how."""

from __future__ import annotations

import shlex
import shutil
import time

from virtqual.errors import InfrastructureError, UsageError
from virtqual.files import execute
from virtqual.qualify.state import Qualification
from virtqual.site.systems import System

RECREATED_WITHIN = 1800
"""Seconds that the site's command may take to create the VMs anew, and that Slurm may take afterwards to call
their nodes usable: a large VM boots in minutes, and one that has not after half an hour does not."""


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
    shown = f"extras.recreate_vms ({shlex.join(command)})"
    job.screen.note(f"creating the VMs anew: {shlex.join(command)}")
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
