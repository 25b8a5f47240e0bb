"""One at a time: two builds in one directory would spoil each other's checkouts, lock and manifest."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from virtqual.errors import InfrastructureError

_NAME = "in-use"


@contextmanager
def alone(state: Path) -> Iterator[None]:
    """Keep the directory of a stack for oneself; the kernel lets go of it, however the process ends.

    Raises
    ------
    InfrastructureError
        Another process has it.
    """
    state.mkdir(parents=True, exist_ok=True)
    with (state / _NAME).open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InfrastructureError(
                f"another `virtqual stack` is at work in {state}: wait until it has ended, then start again"
            ) from None
        except OSError:
            pass  # a file system without locks (Lustre may be mounted so) shows nobody
        try:
            yield
        finally:
            # A command that could not begin leaves nothing behind.
            if [each.name for each in state.iterdir()] == [_NAME]:
                (state / _NAME).unlink()
                state.rmdir()
                with suppress(OSError):
                    state.parent.rmdir()
