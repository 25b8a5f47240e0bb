"""The QEMU that emulates hosts: fetched once and fixed, whatever QEMU the guests run under.

QEMU emulates AMD's virtualisation (SVM with nested paging) in software, so that the kernel of an emulated
host runs KVM.  docs/evidence.md says which hosts have held, and for how long.
"""

from __future__ import annotations

import re
from pathlib import Path

from vcluster.command import text
from vcluster.errors import RequirementError

OLDEST = "10.0"
# QEMU, what it loads into the machine, and the machine's firmware.
PACKAGES = ("qemu-system-x86", "qemu-system-data", "seabios")
BINARY = Path("usr/bin/qemu-system-x86_64")


def new_enough(version: str) -> bool:
    """Return whether a QEMU of this version (such as ``10.0.2+ds-2``) can emulate hosts."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return match is not None and (int(match[1]), int(match[2])) >= tuple(map(int, OLDEST.split(".")))


def usable(folder: Path) -> Path:
    """Return the binary in the folder that the packages were unpacked in.

    Raises
    ------
    RequirementError
        If there is none, it does not run, or it is too old.
    """
    binary = folder / BINARY
    if not binary.exists():
        raise RequirementError(
            f"no QEMU that emulates hosts in {folder}: run `vcluster emulator` to fetch one (nothing is "
            "installed), or compare this machine itself with its VMs with --hosts here."
        )
    first = text([binary, "--version"])
    match = re.match(r"QEMU emulator version (\S+)", first)
    if match is None or not new_enough(match[1]):
        raise RequirementError(f"{binary} is no QEMU {OLDEST} or newer: it says {first.splitlines()[:1]}.")
    return binary
