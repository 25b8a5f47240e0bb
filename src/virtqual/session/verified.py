"""Conclusions that this installation drew, or judged again: a copied session is not believed before that.

A file of the state directory has their digests. No session brings it along.
"""

from __future__ import annotations

import os
from contextlib import suppress

from virtqual import paths
from virtqual.files import reading
from virtqual.files.locking import hold_lock

#: Each line is the SHA-256 of a log up to its last conclusion.
FILE = "verified"


def read_digests() -> frozenset[str]:
    """Return the digests of all conclusions that this installation drew or judged again."""
    with suppress(OSError):
        return frozenset(
            reading.read_bytes(paths.state() / FILE, links=False).decode("ascii", "replace").split()
        )
    return frozenset()


def remember(digest: str) -> None:
    """Keep the digest of a conclusion, unless the state directory cannot be written."""
    with suppress(OSError), hold_lock(paths.state() / FILE, os.O_APPEND) as file:
        os.write(file, f"{digest}\n".encode())
