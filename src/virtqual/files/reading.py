"""Read files whose content others decide: never more than a stated size, and no device that never ends."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

#: Size of a record at most, B: a session of a hundred checks has a tenth of it.
RECORD = 256 * 2**20
#: Size of a file that people review at most, B.
REVIEWED = 2**20


def bytes_of(file: Path, most: int, *, pipes: bool = False) -> bytes:
    """Return what a file holds.

    Parameters
    ----------
    file
        A regular file, or a link to one.
    most
        Largest size of the file in bytes.
    pipes
        Whether it may also be a pipe or a terminal, as a person may name one on the command line.

    Raises
    ------
    OSError
        The file cannot be read, is not a regular file, or is larger; ``strerror`` says which.
    """
    content = start_of(file, most + 1, pipes=pipes)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most // 2**20} MiB", str(file))
    return content


def start_of(file: Path, size: int, *, pipes: bool = False) -> bytes:
    """Return the first `size` bytes of a regular file; parameters and errors as `bytes_of`."""
    mode = file.stat().st_mode
    if not (pipes or stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "it is no regular file", str(file))
    with file.open("rb") as stream:
        return stream.read(size)
