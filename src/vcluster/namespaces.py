"""Command lines that make a cluster's namespaces, or enter them."""

from __future__ import annotations

import os
from pathlib import Path

from vcluster.requirements import program
from vcluster.slurm_conf import CONF, RUN
from vcluster.state import Processes

NAMESPACE_OPTIONS = ("--mount", "--net", "--uts", "--ipc")


def unshare_command(rootless: bool) -> list[str]:
    """Return the command prefix that runs a program as first process of new namespaces.

    If either of the two processes is killed, the kernel ends the other and all that they started.
    """
    user = ["--user", "--map-root-user"] if rootless else []
    process = ["--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
    return [str(program("unshare")), *user, *NAMESPACE_OPTIONS, *process]


def enter_command(processes: Processes, command: list[str], folder: Path) -> list[str]:
    """Return a command line that runs a command on the head of the cluster.

    The command shares the cluster's process ids, so that it ends with the cluster at the latest. It gets
    SIGTERM when the process that entered is killed.
    """
    user = ["--user", "--preserve-credentials"] if processes.rootless else []
    # Entering another mount namespace forgets the working directory.
    script = 'cd -- "$0" && exec "$@"'
    return [
        *(
            str(program("nsenter")),
            f"--target={processes.entry.pid}",
            *user,
            *NAMESPACE_OPTIONS,
            "--pid",
            "--",
        ),
        *(str(program("setpriv")), "--pdeathsig=TERM", "--", "/bin/sh", "-c", script, str(folder), *command),
    ]


def head_environment() -> dict[str, str]:
    """Return the environment of commands on the head: the caller's, with the cluster's Slurm."""
    path = os.pathsep.join([str(RUN / "bin"), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "SLURM_CONF": str(CONF), "PATH": path}


def read_namespaces(pid: int) -> tuple[str, ...]:
    """Return the network and mount namespaces of a process, as the kernel names them."""
    return tuple(str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in ("net", "mnt"))
