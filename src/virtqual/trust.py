"""Who can change a file: what others own, or can write to, is neither run nor believed (SECURITY.md)."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

#: The user of files that root made on NFS with `root_squash`, and of users without a number in a container.
NOBODY = 65534
#: The extended attribute of a file with a POSIX ACL.
_ACL = "system.posix_acl_access"


class Fault(NamedTuple):
    """Who else can change a file, and what to do about it."""

    path: Path
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}; {self.remedy}"


def find_fault(path: Path, owners: Collection[int], status: os.stat_result | None = None) -> Fault | None:
    """Return who besides some users can change a file or directory; None if nobody can.

    A link is judged by what it leads to, unless `status` is given.
    """
    status = status or path.stat()
    if status.st_uid not in owners:
        return Fault(path, f"it belongs to user {status.st_uid}", _name_remedy(path, status.st_uid))
    writable = "other users can write to it"
    if status.st_mode & stat.S_IWOTH:
        return Fault(path, writable, f"run: chmod go-w {path}")
    if status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid, owners):
        return Fault(path, f"{writable} (group {_name_group(status.st_gid)})", f"run: chmod go-w {path}")
    if status.st_mode & stat.S_IWGRP and _has_acl(path):
        # With an ACL the bits of the group say what the users of the list may do at most.
        return Fault(path, f"{writable} (by its access control list)", f"run: setfacl -b {path}")
    return None


def find_open_parent(path: Path, top: Path) -> Fault | None:
    """Return a directory above a path in which everybody can replace what leads there; None if there is none.

    Those above `top` are not looked at if it lies above the path.
    """
    for parent in path.parents:
        if parent == top:
            break
        if not parent.exists():
            continue
        mode = parent.stat().st_mode
        # In a directory such as /tmp, each name belongs to who made it.
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return Fault(parent, f"everybody can replace {path.name} in it", f"run: chmod o-w {parent}")
    return None


def _name_remedy(path: Path, owner: int) -> str:
    """Return what to do about a file of another user."""
    if owner == NOBODY and os.geteuid() == 0:
        return "root of an NFS client may be nobody on its server: run virtqual as another user than root"
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        user = str(os.geteuid())
    asked = "" if os.geteuid() == 0 else "use a copy of your own, or let root "
    return f"if you trust what it says, {asked}run: chown {user} {path}"


def _is_private(group: int, owners: Collection[int]) -> bool:
    """Return whether a group has the name of one of some users, and no other members.

    Many distributions give each user such a group, and a umask by which the group can write.
    """
    names = set()
    for owner in owners:
        try:
            names.add(pwd.getpwuid(owner).pw_name)
        except KeyError:
            continue
    try:
        entry = grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_name in names and names.issuperset(entry.gr_mem)


def _name_group(group: int) -> str:
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return str(group)


def _has_acl(path: Path) -> bool:
    """Return whether a file has a POSIX ACL; file systems without them say so by an error."""
    try:
        os.getxattr(path, _ACL)
    except OSError:
        return False
    return True
