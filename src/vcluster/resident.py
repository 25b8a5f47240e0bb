"""Files that every job opens: nodes get them in memory, with the links on the way to them.

A node opens a file of the machine's root by several messages over 9p, and by another message for each link in
the path. On an emulated host a message takes 1 ms; in its VM ``/bin/true`` takes 40 ms.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from vcluster import initramfs, slurm_conf
from vcluster.command import read_output
from vcluster.kernel import ELF_MAGIC
from vcluster.requirements import find

# The programs that start a job, and those that its scripts call; a machine may lack some.
PROGRAMS = ("bash", "sh", "srun", "slurmd", "slurmstepd", "awk", "grep", "cat", "stat", "ldd", "readlink")
FILES = (
    *("/bin", "/lib", "/lib64", "/sbin"),
    *("/etc/ld.so.cache", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/localtime"),
    *("/usr/lib/locale/C.utf8/**/*", "/usr/lib/*/gconv/gconv-modules.cache"),
)
# Nodes mount a file system of their own here.
HIDDEN_FOLDER = Path("/run")


def make_entries(name: str) -> list[initramfs.ArchiveEntry]:
    """Return the files as entries of an archive, below a folder of that name.

    The entry ``NAME.whole`` lists the folders that are in the archive with all their files: folders of
    plugins, which each step of a job lists.
    """
    plugins = [folder for folder in (slurm_conf.find_plugins(), slurm_conf.find_pmix_plugins()) if folder]
    files = {
        *(path for path in map(find, PROGRAMS) if path),
        *(path for pattern in FILES for path in Path("/").glob(pattern.lstrip("/")) if path.exists()),
        *(path for folder in plugins for path in folder.rglob("*")),
    }
    listing = read_output(["ldd", *filter(_is_elf, files)])
    libraries = re.findall(r"(?:=>|^)\s*(/\S+) \(0x", listing, re.MULTILINE)
    paths = {path for file in {*files, *map(Path, libraries)} for path in _walk(file)}
    return [
        initramfs.file(f"{name}.whole", "".join(f"{folder}\n" for folder in plugins)),
        initramfs.folder(name),
        *(_make_entry(name, path) for path in sorted(paths) if not path.is_relative_to(HIDDEN_FOLDER)),
    ]


def _is_elf(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(ELF_MAGIC)) == ELF_MAGIC


def _walk(path: Path) -> Iterator[Path]:
    """Yield the folders, links and at last the file that are met on the way to a file."""
    position = Path("/")
    parts = list(path.parts[1:])
    while parts:
        if (part := parts.pop(0)) == "..":
            position = position.parent
            continue
        position /= part
        yield position
        if position.is_symlink():
            target = position.readlink()
            parts = [*(target.parts[1:] if target.is_absolute() else target.parts), *parts]
            position = Path("/") if target.is_absolute() else position.parent


def _make_entry(folder: str, path: Path) -> initramfs.ArchiveEntry:
    status = path.lstat()
    content = b""
    if stat.S_ISLNK(status.st_mode):
        content = os.fsencode(path.readlink())
    elif stat.S_ISREG(status.st_mode):
        content = path.read_bytes()
    return initramfs.ArchiveEntry(f"{folder}{path}", status.st_mode, content)
