"""What a cluster needs beside programs if an ordinary user starts it."""

from __future__ import annotations

import hashlib
import os
from importlib import resources
from pathlib import Path

from vcluster import namespaces
from vcluster.command import run
from vcluster.errors import RequirementError
from vcluster.requirements import find

TUN = Path("/dev/net/tun")


def check_rights() -> None:
    """Raise `RequirementError` if this user cannot make the namespaces and interfaces of a cluster."""
    try:
        run([*namespaces.unshare_command(rootless=True), "true"])
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
