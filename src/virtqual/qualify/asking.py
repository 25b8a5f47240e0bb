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
from virtqual.site.extras import BUILD_NOT_ASKED
from virtqual.site.systems import System

ASK_HOSTS_TIMEOUT_S = 600
#: A file server's clock may be behind by so much.
MAX_CLOCK_LAG_S = 60


def ask_hosts(system: System) -> System:
    """Return a system with the present facts of its hosts, if the system file names their records.

    Raises
    ------
    InfrastructureError
        Others can change the site's command, or it failed, or left a record as it was.
    RefusedError
        The hosts run different builds.
    """
    command, host = system.virtual_extras.ask_hosts, system.virtual_extras.host
    directory = host if isinstance(host, Path) else None
    if command:
        paths.check_command(command)
        oldest = time.time() - MAX_CLOCK_LAG_S
        log = paths.make(paths.state() / "log") / f"ask-hosts-{system.name}.log"
        try:
            execute.run_logged(command, log, seconds=ASK_HOSTS_TIMEOUT_S)
        except InfrastructureError as error:
            raise InfrastructureError(f"extras.ask_hosts: {error}") from error
        system = load_system(system.name)
        prefix = f"extras.ask_hosts: {shlex.join(command)} brought"
        if directory and not directory.exists():
            raise InfrastructureError(f"{prefix} nothing: {directory} (extras.host) is not there")
        if system.virtual_extras.hypervisor.build == BUILD_NOT_ASKED:
            raise InfrastructureError(f"{prefix} no build of the hypervisor (extras.host)")
        if directory:
            files = {directory.name: directory}
            if directory.is_dir():
                files = host_records.find_files(directory, system.virtual_extras.nodes_of_hosts)
            if hosts := [name for name, file in files.items() if file.stat().st_mtime < oldest]:
                raise InfrastructureError(f"{prefix} no new record of host {', '.join(hosts)} to {directory}")
    if directory and directory.is_dir():
        records = host_records.read(directory, system.virtual_extras.nodes_of_hosts)
        if differences := host_records.find_different_builds(records):
            raise RefusedError(
                f"the hosts of {system.name} run different builds: {'; '.join(differences)}. "
                "Bring all to one build, or leave the others out of extras.nodes_of_hosts, extras.nodes, "
                "access and extras.session_access"
            )
    return system
