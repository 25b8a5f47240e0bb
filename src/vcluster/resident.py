"""Files that every job opens: nodes get them in memory, with the links on the way to them.

A node opens a file of the machine's root by several messages over 9p, and each link in a path is one more.
On an emulated host that is 1 ms a message, and from its VM, through both, 40 ms for ``/bin/true``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from vcluster import initramfs, slurm_conf
from vcluster.command import text
from vcluster.kernel import ELF
from vcluster.requirements import find

# What starts a job, and what its scripts call: those that the machine has.
PROGRAMS = ("bash", "sh", "srun", "slurmd", "slurmstepd", "awk", "grep", "cat", "stat", "ldd", "readlink")
FILES = (
    *("/bin", "/lib", "/lib64", "/sbin"),
    *("/etc/ld.so.cache", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/localtime"),
    *("/usr/lib/locale/C.utf8/**/*", "/usr/lib/*/gconv/gconv-modules.cache"),
)
# Below it nodes mount a file system of their own.
_OWN = Path("/run")


def entries(name: str) -> list[initramfs.ArchiveEntry]:
    """Return the files as entries of an archive, below a folder of that name.

    A file beside that folder, ``NAME.whole``, lists the folders that are in it with all their files: those
    of plugins, which are read from end to end by each step of a job.
    """
    plugins = [folder for folder in (slurm_conf.plugin_directory(), slurm_conf.pmix_plugins()) if folder]
    wanted = {
        *(path for path in map(find, PROGRAMS) if path),
        *(path for pattern in FILES for path in Path("/").glob(pattern.lstrip("/")) if path.exists()),
        *(path for folder in plugins for path in folder.rglob("*")),
    }
    found: dict[Path, initramfs.ArchiveEntry] = {}
    for file in sorted({*wanted, *_libraries(wanted)}):
        for path in _on_the_way(file):
            if path not in found and not path.is_relative_to(_OWN):
                found[path] = _entry(name, path)
    whole = "".join(f"{folder}\n" for folder in plugins)
    return [
        initramfs.file(f"{name}.whole", whole),
        initramfs.folder(name),
        *(found[p] for p in sorted(found)),
    ]


def _libraries(files: Iterable[Path]) -> list[Path]:
    """Return what the dynamic linker loads for those of the files that are programs or plugins."""
    shown = text(["ldd", *filter(_is_binary, files)])
    return [Path(name) for name in re.findall(r"(?:=>|^)\s*(/\S+) \(0x", shown, re.MULTILINE)]


def _is_binary(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(ELF)) == ELF


def _on_the_way(path: Path) -> Iterator[Path]:
    """Yield the folders, links and at last the file that are met on the way to a file."""
    walked = Path("/")
    left = list(path.parts[1:])
    while left:
        if (part := left.pop(0)) == "..":
            walked = walked.parent
            continue
        walked /= part
        yield walked
        if walked.is_symlink():
            target = walked.readlink()
            left = [*(target.parts[1:] if target.is_absolute() else target.parts), *left]
            walked = Path("/") if target.is_absolute() else walked.parent


def _entry(folder: str, path: Path) -> initramfs.ArchiveEntry:
    status = path.lstat()
    content = b""
    if stat.S_ISLNK(status.st_mode):
        content = os.fsencode(path.readlink())
    elif stat.S_ISREG(status.st_mode):
        content = path.read_bytes()
    return initramfs.ArchiveEntry(f"{folder}{path}", status.st_mode, content)
