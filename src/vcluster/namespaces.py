"""Entering the namespaces of a running cluster, and making new ones."""

from __future__ import annotations

import os
from pathlib import Path

from vcluster.processes import Process
from vcluster.requirements import program
from vcluster.slurm_conf import CONF, RUN

KINDS = ("--mount", "--net", "--uts", "--ipc")


def create(rootless: bool) -> list[str]:
    """Return the command prefix that runs a program as first process of new namespaces.

    Whichever of the two processes is killed, the kernel ends the other and all that they started.
    """
    user = ["--user", "--map-root-user"] if rootless else []
    return [str(program("unshare")), *user, *KINDS, "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]


def enter(entry: Process, rootless: bool, command: list[str], folder: Path) -> list[str]:
    """Return a command line that runs a command on the head of the cluster.

    The process ids are the cluster's too, so that the command ends with the cluster at the latest; and it
    gets SIGTERM when whoever entered is killed.
    """
    user = ["--user", "--preserve-credentials"] if rootless else []
    # Entering another mount namespace forgets the working directory.
    script = 'cd -- "$0" && exec "$@"'
    return [
        *(str(program("nsenter")), f"--target={entry.pid}", *user, *KINDS, "--pid", "--"),
        *(str(program("setpriv")), "--pdeathsig=TERM", "--", "/bin/sh", "-c", script, str(folder), *command),
    ]


def environment() -> dict[str, str]:
    """Return the environment of commands on the head: the caller's, and where Slurm's configuration is."""
    path = os.pathsep.join([str(RUN / "bin"), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "SLURM_CONF": str(CONF), "PATH": path}


def identities(pid: int) -> tuple[str, ...]:
    """Return the network and mount namespaces of a process, as the kernel names them."""
    return tuple(str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in ("net", "mnt"))
