"""Fetching a guest kernel from the distribution without installing it."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from vcluster import kernel
from vcluster.command import run, text
from vcluster.errors import RequirementError
from vcluster.requirements import find


def fetch(target: Path, report: Callable[[str], None]) -> tuple[kernel.GuestKernel, bool]:
    """Download and unpack Debian's kernel package into a folder; do nothing where one is.

    Needs no root and changes nothing of the system; the package lists must be there (``apt-get update``).

    Returns
    -------
    tuple of GuestKernel and bool
        The kernel, and whether it was fetched now.

    Raises
    ------
    RequirementError
        If apt cannot provide it; the message says what apt said.
    """
    present = kernel.from_folder(target)
    if present is not None:
        kernel.module_files(present)
        return present, False
    for name in ("apt-get", "apt-cache", "dpkg-deb"):
        if find(name) is None:
            raise RequirementError(
                f"{name} is missing: fetching works on Debian; else name a kernel with --kernel."
            )
    package = _package()
    shown = text(["apt-cache", "show", "--no-all-versions", package], seconds=120)
    size = re.search(r"^Size: (\d+)$", shown, re.MULTILINE)
    amount = f"{int(size[1]) / 1e6:.0f} MB" if size else "size unknown"
    report(f"fetching {package} ({amount}) with apt-get download")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".kernel-") as folder:
        # apt's own user may not enter this folder: it then downloads as the caller, and says so.
        run(["apt-get", "download", package], folder=Path(folder), seconds=900)
        unpacked = Path(folder) / "unpacked"
        for archive in Path(folder).glob("*.deb"):
            run(["dpkg-deb", "-x", archive, unpacked], seconds=120)
        found = kernel.from_folder(unpacked)
        if found is None:
            raise RequirementError(f"the package {package} holds no kernel with modules.")
        kernel.module_files(found)
        target.mkdir(exist_ok=True)
        for part in unpacked.iterdir():
            shutil.move(part, target / part.name)
    fetched = kernel.from_folder(target)
    assert fetched is not None
    return fetched, True


def _package() -> str:
    """Return the package that the distribution's current kernel is in."""
    depends = text(["apt-cache", "depends", "--important", kernel.PACKAGE], seconds=120)
    match = re.search(r"Depends: (linux-image-[0-9]\S*)", depends)
    if match is None:
        raise RequirementError(
            f"apt knows no {kernel.PACKAGE}: run `apt-get update`, or name a kernel with --kernel."
        )
    # Images for secure boot carry the same kernel; the unsigned one does not exist under the name for all.
    return match[1]
