"""Programs that the cluster needs, and the Debian packages that bring them."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from vcluster.errors import RequirementError

# Daemons are in sbin, which is not on every user's PATH.
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])


@dataclass(frozen=True)
class Requirement:
    """A program, the package that brings it, and its purpose."""

    name: str
    package: str
    purpose: str


REQUIREMENTS = (
    Requirement("slurmctld", "slurmctld", "Slurm's controller"),
    Requirement("slurmd", "slurmd", "Slurm's node daemon"),
    Requirement("srun", "slurm-client", "Slurm's commands"),
    Requirement("munged", "munge", "Slurm's authentication"),
    Requirement("qemu-system-x86_64", "qemu-system-x86", "the VMs"),
    Requirement("busybox", "busybox-static", "the guests' first programs"),
    Requirement("modprobe", "kmod", "modules of the guest kernel"),
    Requirement("ip", "iproute2", "bridge and interfaces"),
    Requirement("unshare", "util-linux", "namespaces"),
    Requirement("nsenter", "util-linux", "namespaces"),
    Requirement("mount", "mount", "private mounts"),
    Requirement("bash", "bash", "the scripts inside the nodes"),
    Requirement("mkfs.ext4", "e2fsprogs", "disks on emulated hosts"),
)


def find(name: str) -> Path | None:
    """Return the path of a program, or None."""
    path = shutil.which(name, path=SEARCH_PATH)
    return Path(path) if path else None


def program(name: str) -> Path:
    """Return the path of a program; a `RequirementError` names its package if it is missing."""
    path = find(name)
    if path is None:
        packages = [requirement.package for requirement in REQUIREMENTS if requirement.name == name]
        hint = f": install the Debian package {packages[0]}" if packages else ""
        raise RequirementError(f"the program {name} is missing{hint}.")
    return path


def list_missing() -> list[Requirement]:
    """Return all requirements that this machine lacks."""
    return [requirement for requirement in REQUIREMENTS if find(requirement.name) is None]


def check_programs() -> None:
    """Raise `RequirementError` if a program is missing; `--qemu` names QEMU, which is not looked for."""
    missing = [requirement for requirement in list_missing() if requirement.name != "qemu-system-x86_64"]
    if missing:
        names = ", ".join(requirement.name for requirement in missing)
        packages = " ".join(dict.fromkeys(requirement.package for requirement in missing))
        raise RequirementError(f"missing: {names}. On Debian: apt-get install {packages}")
