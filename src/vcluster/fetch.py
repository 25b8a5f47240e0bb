"""Fetching a guest kernel, and the QEMU that emulates hosts, without installing them."""

from __future__ import annotations

import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vcluster import emulator, kernel
from vcluster.command import run, text
from vcluster.errors import RequirementError
from vcluster.requirements import find

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
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
    with _unpacked([package], (), target, report) as unpacked:
        found = kernel.from_folder(unpacked)
        if found is None:
            raise RequirementError(f"the package {package} holds no kernel with modules.")
        kernel.module_files(found)
    fetched = kernel.from_folder(target)
    assert fetched is not None
    return fetched, True


def fetch_emulator(target: Path, report: Report) -> tuple[Path, bool]:
    """Download and unpack a QEMU that can emulate hosts into a folder; do nothing where one is.

    The distribution's own is taken where it is new enough, else that of its backports, whose package list is
    kept apart: the system's own lists do not change.

    Returns
    -------
    tuple of Path and bool
        The binary, and whether it was fetched now.

    Raises
    ------
    RequirementError
        If apt cannot provide one that is new enough and runs here.
    """
    if (target / emulator.BINARY).exists():
        return emulator.usable(target), False
    _assert_tools("name hosts with --hosts here")
    with tempfile.TemporaryDirectory(prefix="vcluster-apt-") as lists:
        options = () if emulator.new_enough(_candidate()) else _backports(Path(lists))
        version = _candidate(options)
        if not emulator.new_enough(version):
            raise RequirementError(
                f"apt offers QEMU {version or 'in no version'}, and hosts are emulated by "
                f"{emulator.OLDEST} or newer."
            )
        with _unpacked(emulator.PACKAGES, options, target, report) as unpacked:
            emulator.usable(unpacked)
    return emulator.usable(target), True


def _assert_tools(instead: str) -> None:
    for name in ("apt-get", "apt-cache", "dpkg-deb"):
        if find(name) is None:
            raise RequirementError(f"{name} is missing: fetching works on Debian; else {instead}.")


@contextmanager
def _unpacked(
    packages: Sequence[str], options: Sequence[str], target: Path, report: Report
) -> Iterator[Path]:
    """Download packages and unpack them; they are moved to the target once the caller has looked at them."""
    shown = text(["apt-cache", *options, "show", "--no-all-versions", *packages], seconds=120)
    sizes = [int(size) for size in re.findall(r"^Size: (\d+)$", shown, re.MULTILINE)]
    report(f"fetching {' '.join(packages)} ({sum(sizes) / 1e6:.0f} MB) with apt-get download")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetched-") as folder:
        # apt's own user may not enter this folder: it then downloads as the caller, and says so.
        run(["apt-get", *options, "download", *packages], folder=Path(folder), seconds=900)
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


def _candidate(options: Sequence[str] = ()) -> str:
    """Return the version of QEMU that apt would take, empty for none."""
    policy = text(["apt-cache", *options, "policy", emulator.PACKAGES[0]], seconds=120)
    match = re.search(r"Candidate: (?:\d+:)?(\S+)", policy)
    return match[1] if match and match[1] != "(none)" else ""


def _backports(folder: Path) -> tuple[str, ...]:
    """Return options for apt under which it knows the backports suite of this system, and nothing else."""
    codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    targets = text(["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)", "Identifier: Packages"])
    sites = [line.split()[0] for line in targets.splitlines() if line.split()[1:] == [codename]]
    if not sites:
        raise RequirementError("apt has no package list of this system: run `apt-get update`.")
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    source = f"deb {signed}{sites[0]} {codename}-backports main\n"
    (folder / "sources.list").write_text(source, encoding="utf-8")
    settings = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root",
    }
    options = tuple(f"-o{name}={value}" for name, value in settings.items())
    run(["apt-get", *options, "update"], seconds=300)
    return options
