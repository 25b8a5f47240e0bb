"""The namespaces of a cluster: making and entering them, with root's rights or without."""

from __future__ import annotations

import hashlib
import os
from importlib import resources
from pathlib import Path

from vcluster.command import run
from vcluster.errors import RequirementError
from vcluster.requirements import find, program
from vcluster.slurm_conf import CONF, RUN
from vcluster.state import Processes

TUN = Path("/dev/net/tun")
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
    enter = [str(program("nsenter")), f"--target={processes.entry.pid}", *user, *NAMESPACE_OPTIONS, "--pid"]
    end_with_caller = [str(program("setpriv")), "--pdeathsig=TERM"]
    return [*enter, "--", *end_with_caller, "--", "/bin/sh", "-c", script, str(folder), *command]


def head_environment() -> dict[str, str]:
    """Return the environment of commands on the head: the caller's, with the cluster's Slurm."""
    path = os.pathsep.join([str(RUN / "bin"), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "SLURM_CONF": str(CONF), "PATH": path}


def read_namespaces(pid: int) -> tuple[str, ...]:
    """Return the network and mount namespaces of a process, as the kernel names them."""
    return tuple(str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in ("net", "mnt"))


def check_rights() -> None:
    """Raise `RequirementError` if this user cannot make the namespaces and interfaces of a cluster."""
    try:
        run([*unshare_command(rootless=True), "true"])
    except RequirementError as error:
        raise RequirementError(
            "this machine lets no ordinary user make the namespaces a cluster lives in "
            f"({error}): run as root, or allow user namespaces."
        ) from None
    if not os.access(TUN, os.R_OK | os.W_OK):
        raise RequirementError(f"this user may not open {TUN}, which the VMs' network needs: run as root.")


def make_preload_library(cache: Path) -> Path:
    """Compile the library that answers setgroups and initgroups, which namespaces of one user refuse."""
    source = resources.files("vcluster").joinpath("shim/groups.c").read_bytes()
    target = cache / f"groups-{hashlib.sha256(source).hexdigest()[:12]}.so"
    if target.exists():
        return target
    compiler = find("cc") or find("gcc") or find("clang")
    if compiler is None:
        raise RequirementError(
            "as an ordinary user a C compiler is needed once, to let Slurm's daemons start without root "
            "(Debian package gcc); or run as root."
        )
    cache.mkdir(parents=True, exist_ok=True)
    new = target.with_suffix(".new")
    run([compiler, "-x", "c", "-shared", "-fPIC", "-O", "-o", new, "-"], data=source, seconds=60)
    new.replace(target)
    return target
