"""Reading of files of unknown origin: up to a size, and no devices, which may never end."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path

#: Largest size of a record: a session of a hundred checks has a tenth of it.
MAX_RECORD_BYTES = 256 * 2**20
#: Largest size of a file that people review.
MAX_REVIEWED_BYTES = 2**20


def read_bytes(file: Path, max_bytes: int | None = None, *, pipes: bool = False, links: bool = True) -> bytes:
    """Return the content of a regular file of at most `max_bytes` (default: `MAX_RECORD_BYTES`).

    With `pipes` a pipe or a terminal is read, too, which a person may name on the command line.

    Raises
    ------
    OSError
        The file cannot be read, is not a regular file, or is larger; ``strerror`` says which.
    """

    def open_without_waiting(path: str, flags: int) -> int:
        # Otherwise opening a pipe would wait for a writer.
        flags |= (0 if pipes else os.O_NONBLOCK) | (0 if links else os.O_NOFOLLOW)
        try:
            return os.open(path, flags)
        except OSError as error:
            if error.errno == errno.ELOOP and not links:
                raise OSError(errno.ELOOP, "it is a symbolic link", path) from None
            raise

    with open(file, "rb", opener=open_without_waiting) as stream:
        if not pipes and not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(file))
        limit = MAX_RECORD_BYTES if max_bytes is None else max_bytes
        content = stream.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit // 2**20} MiB", str(file))
    return content


def compute_sha256(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
