"""Fetching a guest kernel, and the QEMU that emulates hosts, without installing them.

Root is not needed; the package lists must exist (``apt-get update``).
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vcluster import emulated, qemu
from vcluster.command import read_output, run
from vcluster.errors import RequirementError
from vcluster.kernel import find_module_files, find_newest_kernel
from vcluster.requirements import find

# Debian's package that depends on its current kernel.
KERNEL_PACKAGE = "linux-image-amd64"


def fetch_kernel(target: Path, report: Callable[[str], None]) -> None:
    """Unpack Debian's kernel package into a folder, unless the folder has a kernel."""
    kernel = find_newest_kernel(target)
    if kernel is not None:
        find_module_files(kernel)
        report(f"{kernel.release}: already there")
        return
    _check_tools("name a kernel with --kernel")
    package = _find_kernel_package()
    with _unpack([package], target, report) as folder:
        kernel = find_newest_kernel(folder)
        if kernel is None:
            raise RequirementError(f"the package {package} holds no kernel with modules.")
        find_module_files(kernel)
    report(f"{kernel.release}: fetched")


def fetch_emulator(target: Path, report: Callable[[str], None]) -> Path:
    """Unpack the distribution's QEMU, which emulates hosts, unless the folder has one; return its binary.

    An upgrade of the system's own QEMU does not change it.
    """
    action = "already there"
    if not (target / emulated.EMULATOR).exists():
        action = "fetched"
        _check_tools("name hosts with --hosts here")
        with _unpack(emulated.PACKAGES, target, report) as folder:
            emulated.find_emulator(folder)
    binary = emulated.find_emulator(target)
    report(f"QEMU {qemu.identify(binary).build}: {action}")
    return binary


def _check_tools(alternative: str) -> None:
    for name in ("apt-get", "apt-cache", "dpkg-deb"):
        if find(name) is None:
            raise RequirementError(f"{name} is missing: fetching works on Debian; else {alternative}.")


@contextmanager
def _unpack(packages: Sequence[str], target: Path, report: Callable[[str], None]) -> Iterator[Path]:
    """Download packages and unpack them; move them to the target after the caller has checked them."""
    descriptions = read_output(["apt-cache", "show", "--no-all-versions", *packages], seconds=120)
    sizes = [int(size) for size in re.findall(r"^Size: (\d+)$", descriptions, re.MULTILINE)]
    report(f"fetching {' '.join(packages)} ({sum(sizes) / 1e6:.0f} MB) with apt-get download")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetched-") as folder:
        # apt's own user may not enter this folder: it then downloads as the caller, and warns.
        run(["apt-get", "download", *packages], folder=Path(folder), seconds=900)
        unpacked = Path(folder) / "unpacked"
        for archive in Path(folder).glob("*.deb"):
            run(["dpkg-deb", "-x", archive, unpacked], seconds=120)
        yield unpacked
        target.mkdir(exist_ok=True)
        for part in unpacked.iterdir():
            shutil.move(part, target / part.name)


def _find_kernel_package() -> str:
    depends = read_output(["apt-cache", "depends", "--important", KERNEL_PACKAGE], seconds=120)
    match = re.search(r"Depends: (linux-image-[0-9]\S*)", depends)
    if match is None:
        raise RequirementError(
            f"apt knows no {KERNEL_PACKAGE}: run `apt-get update`, or name a kernel with --kernel."
        )
    # Images for secure boot carry the same kernel; not every kernel has an unsigned package.
    return match[1]
