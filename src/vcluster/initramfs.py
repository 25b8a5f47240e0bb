"""Archives that the guest kernel unpacks as its first file system (cpio, "newc")."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class ArchiveEntry:
    """A file, folder or link; the content of a link is its target."""

    # The path has no leading slash.
    path: str
    # Type and permissions, as in `st_mode`.
    mode: int
    content: bytes = b""


def folder(path: str) -> ArchiveEntry:
    """Return a folder that all users may enter."""
    return ArchiveEntry(path, stat.S_IFDIR | 0o755)


def file(path: str, content: bytes | str, mode: int = 0o644) -> ArchiveEntry:
    """Return a file."""
    return ArchiveEntry(path, stat.S_IFREG | mode, content.encode() if isinstance(content, str) else content)


def archive(entries: Iterable[ArchiveEntry]) -> bytes:
    """Pack entries; all belong to root, and the same entries give the same bytes.

    The kernel also unpacks several archives that follow one another in one file.
    """
    packed = bytearray()
    for inode, entry in enumerate([*entries, ArchiveEntry("TRAILER!!!", 0)], start=1):
        name = entry.path.encode() + b"\0"
        links = 2 if stat.S_ISDIR(entry.mode) else 1
        # Inode, mode, uid, gid, links, mtime, size, device (2), special device (2), length of name, checksum.
        fields = (inode, entry.mode, 0, 0, links, 0, len(entry.content), 0, 0, 0, 0, len(name), 0)
        packed += b"070701" + b"".join(b"%08X" % field for field in fields) + name
        packed.extend(bytes(-len(packed) % 4))
        packed += entry.content
        packed.extend(bytes(-len(packed) % 4))
    packed.extend(bytes(-len(packed) % 512))
    return bytes(packed)
