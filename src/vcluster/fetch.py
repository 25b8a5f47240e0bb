"""Fetching a guest kernel, and the QEMU that emulates hosts, without installing them."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vcluster import emulated, kernel
from vcluster.command import run, text
from vcluster.errors import RequirementError
from vcluster.requirements import find

Report = Callable[[str], None]


def fetch_kernel(target: Path, report: Report) -> tuple[kernel.GuestKernel, bool]:
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
    _assert_tools("name a kernel with --kernel")
    package = _kernel_package()
    with _unpacked([package], target, report) as unpacked:
        found = kernel.from_folder(unpacked)
        if found is None:
            raise RequirementError(f"the package {package} holds no kernel with modules.")
        kernel.module_files(found)
    fetched = kernel.from_folder(target)
    assert fetched is not None
    return fetched, True


def fetch_emulator(target: Path, report: Report) -> tuple[Path, bool]:
    """Download and unpack the distribution's QEMU, which emulates hosts; do nothing where one is.

    It stays what it is when the system's own is upgraded.

    Returns
    -------
    tuple of Path and bool
        The binary, and whether it was fetched now.

    Raises
    ------
    RequirementError
        If apt cannot provide one that runs here.
    """
    if (target / emulated.EMULATOR).exists():
        return emulated.emulator(target), False
    _assert_tools("name hosts with --hosts here")
    with _unpacked(emulated.PACKAGES, target, report) as unpacked:
        emulated.emulator(unpacked)
    return emulated.emulator(target), True


def _assert_tools(instead: str) -> None:
    for name in ("apt-get", "apt-cache", "dpkg-deb"):
        if find(name) is None:
            raise RequirementError(f"{name} is missing: fetching works on Debian; else {instead}.")


@contextmanager
def _unpacked(packages: Sequence[str], target: Path, report: Report) -> Iterator[Path]:
    """Download packages and unpack them; they are moved to the target once the caller has looked at them."""
    shown = text(["apt-cache", "show", "--no-all-versions", *packages], seconds=120)
    sizes = [int(size) for size in re.findall(r"^Size: (\d+)$", shown, re.MULTILINE)]
    report(f"fetching {' '.join(packages)} ({sum(sizes) / 1e6:.0f} MB) with apt-get download")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetched-") as folder:
        # apt's own user may not enter this folder: it then downloads as the caller, and says so.
        run(["apt-get", "download", *packages], folder=Path(folder), seconds=900)
        unpacked = Path(folder) / "unpacked"
        for archive in Path(folder).glob("*.deb"):
            run(["dpkg-deb", "-x", archive, unpacked], seconds=120)
        yield unpacked
        target.mkdir(exist_ok=True)
        for part in unpacked.iterdir():
            shutil.move(part, target / part.name)


def _kernel_package() -> str:
    """Return the package that the distribution's current kernel is in."""
    depends = text(["apt-cache", "depends", "--important", kernel.PACKAGE], seconds=120)
    match = re.search(r"Depends: (linux-image-[0-9]\S*)", depends)
    if match is None:
        raise RequirementError(
            f"apt knows no {kernel.PACKAGE}: run `apt-get update`, or name a kernel with --kernel."
        )
    # Images for secure boot carry the same kernel; the unsigned one does not exist under the name for all.
    return match[1]
