"""Locks of the kernel (``flock``): a lock ends with the process that holds it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from virtqual import paths


@contextmanager
def hold_lock(file: Path, flags: int = 0) -> Iterator[int]:
    """Open or make a file (no symbolic link), wait for its lock, and yield the file descriptor."""
    flags |= os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(file, flags, paths.file_mode())
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)
