"""Programs that the cluster needs, and the Debian packages that bring them."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from vcluster.errors import RequirementError

# Daemons live in sbin, which is not on every user's PATH.
SEARCH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])


@dataclass(frozen=True)
class Requirement:
    """A program or file, why it is needed, and the package that brings it."""

    name: str
    package: str
    purpose: str

    def missing(self) -> bool:
        """Whether this machine lacks it."""
        return find(self.name) is None


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
)


def find(name: str) -> Path | None:
    """Return where a program is, looking in sbin too, or None."""
    found = shutil.which(name, path=SEARCH)
    return Path(found) if found else None


def program(name: str) -> Path:
    """Return where a program is.

    Raises
    ------
    RequirementError
        If it is missing, with its package where that is known.
    """
    found = find(name)
    if found is None:
        package = next((r.package for r in REQUIREMENTS if r.name == name), None)
        hint = f": install the Debian package {package}" if package else ""
        raise RequirementError(f"the program {name} is missing{hint}.")
    return found


def missing() -> list[Requirement]:
    """Return all requirements that this machine lacks."""
    return [requirement for requirement in REQUIREMENTS if requirement.missing()]


def check(without: frozenset[str] = frozenset()) -> None:
    """Make sure that everything is there.

    Parameters
    ----------
    without : frozenset of str
        Names that need not be there, such as QEMU's where a binary was given.

    Raises
    ------
    RequirementError
        With everything that is missing, and one command that installs it.
    """
    lacking = [requirement for requirement in missing() if requirement.name not in without]
    if not lacking:
        return
    names = ", ".join(requirement.name for requirement in lacking)
    packages = " ".join(dict.fromkeys(requirement.package for requirement in lacking))
    raise RequirementError(f"missing: {names}. On Debian: apt-get install {packages}")
