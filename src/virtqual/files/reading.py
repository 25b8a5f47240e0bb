"""Read files whose content others decide: never more than a stated size, and no device that never ends."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

#: Size of a record at most, B: a session of a hundred checks has a tenth of it.
MAX_RECORD_BYTES = 256 * 2**20
#: Size of a file that people review at most, B.
MAX_REVIEWED_BYTES = 2**20


def read_bytes(file: Path, max_bytes: int | None = None, *, pipes: bool = False, links: bool = True) -> bytes:
    """Return what a file holds.

    Parameters
    ----------
    file
        A regular file.
    max_bytes
        Largest size of the file; None for `MAX_RECORD_BYTES`.
    pipes
        Whether it may also be a pipe or a terminal, as a person may name one on the command line.
    links
        Whether it may be a link to the file.

    Raises
    ------
    OSError
        The file cannot be read, is not a regular file, or is larger; ``strerror`` says which.
    """
    limit = MAX_RECORD_BYTES if max_bytes is None else max_bytes
    content = read_start(file, limit + 1, pipes=pipes, links=links)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit // 2**20} MiB", str(file))
    return content


def read_start(file: Path, size: int, *, pipes: bool = False, links: bool = True) -> bytes:
    """Return the first `size` bytes of a regular file; parameters and errors as `bytes_of`."""

    def open_without_waiting(path: str, flags: int) -> int:
        # A pipe without a writer is opened, and refused, at once.
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
        return stream.read(size)
