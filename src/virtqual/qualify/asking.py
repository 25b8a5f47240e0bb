"""Before a session: the hosts of the VMs are asked what they are, and must be of one build."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

from virtqual import paths
from virtqual.errors import InfrastructureError, RefusedError
from virtqual.files import execute
from virtqual.site import host_records
from virtqual.site.configuration import load_system
from virtqual.site.systems import NOT_ASKED, System

WITHIN = 600
"""Seconds that the site's command may take."""
SLACK = 60
"""Seconds by which a file server's clock may be behind."""


def with_hosts(system: System) -> System:
    """Return a system with what its hosts say now, where the system file names their records.

    Raises
    ------
    InfrastructureError
        The site's command failed, or left a record as it was.
    RefusedError
        The hosts run different builds: what is measured on them is of no single one.
    """
    directory, command = system.virtual.host, system.virtual.ask_hosts
    if command:
        begun = time.time()
        log = paths.make(paths.state() / "log") / f"ask-hosts-{system.name}.log"
        try:
            execute.run_logged(command, log, seconds=WITHIN)
        except InfrastructureError as error:
            raise InfrastructureError(f"extras.ask_hosts: {error}") from error
        system = load_system(system.name)
        brought = f"extras.ask_hosts: {shlex.join(command)}"
        if isinstance(directory, Path) and not directory.exists():
            raise InfrastructureError(f"{brought} brought nothing: {directory} (extras.host) is not there")
        if system.virtual.hypervisor.build == NOT_ASKED:
            raise InfrastructureError(f"{brought} brought no build of the hypervisor (extras.host)")
        if old := _older(system, begun - SLACK):
            raise InfrastructureError(
                f"{brought} brought no new record of host {', '.join(old)} to {directory}"
            )
    if isinstance(directory, Path) and directory.is_dir():
        records = host_records.read(directory, system.virtual.nodes_of_hosts)
        if differences := host_records.mixed(records):
            raise RefusedError(
                f"the hosts of {system.name} run different builds: {'; '.join(differences)}. "
                "Bring all to one build, or leave the others' nodes out"
            )
    return system


def _older(system: System, time_of: float) -> list[str]:
    directory = system.virtual.host
    if not isinstance(directory, Path):
        return []
    named = host_records.files(directory) if directory.is_dir() else {directory.name: directory}
    return [name for name, file in named.items() if file.stat().st_mtime < time_of]
