"""One session at a time measures on a system, and a session that died does not keep the next one out.

The lock is the kernel's (``flock``): virtqual holds it and hands it to the ReFrame that it starts, so it is
free exactly when both are gone, however they ended.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from virtqual import paths
from virtqual.errors import InfrastructureError

#: How long ReFrame may take to cancel its jobs, seconds, after virtqual has ended.
MAX_CLEANUP_S = 90.0
#: Seconds between two heartbeats of a holder, and seconds after which one without any is taken for dead.
TOUCH_S, STALE_S = 60.0, 300.0


@contextmanager
def measuring(state: Path, system: str, who: str, say: Callable[[str], None]) -> Iterator[int]:
    """Hold the lock of a system while a session measures on it, and yield the descriptor for child processes.

    Parameters
    ----------
    state
        The state directory, which all sessions of a person or a site share.
    who
        The holder in words; see `name_holder`.
    say
        Is called with a note if the end of another session is waited for.

    Raises
    ------
    InfrastructureError
        Another session measures there now; with its name, begin and process.
    """
    path = state / f"measuring-{system}.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, paths.file_mode())
    except OSError as error:
        why = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise InfrastructureError(f"{path}: the lock cannot be taken: {why}") from error
    ended = threading.Event()

    def send_heartbeats() -> None:
        """Touch the file, so that other nodes see that its holder lives."""
        while not ended.wait(TOUCH_S):
            with suppress(OSError):
                os.utime(descriptor)

    try:
        if not paths.is_trusted(os.fstat(descriptor)):
            raise InfrastructureError(f"{path}: the lock belongs to another user (SECURITY.md)")
        _acquire(descriptor, path, say)
        _refuse_live_holder(descriptor, path, say)
        name_holder(descriptor, who)
        thread = threading.Thread(target=send_heartbeats, daemon=True)
        thread.start()
        try:
            yield descriptor
        finally:
            ended.set()
            thread.join()
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path, say: Callable[[str], None]) -> None:
    """Lock the file; wait if its holder has ended, but not what the holder has started."""
    end, is_reported = time.monotonic() + MAX_CLEANUP_S, False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            who, _, has_ended = _read_holder(path)
            if not has_ended or time.monotonic() > end:
                raise InfrastructureError(
                    f"{who} measures on this system now: two at once would disturb each other; "
                    f"wait for its end, or end it (lock: {path})"
                ) from None
            if not is_reported:
                say(f"{who} has ended; waiting until what it started has ended")
                is_reported = True
            time.sleep(0.2)
        except OSError as error:
            raise InfrastructureError(
                f"{path}: the file system gives no lock ({error.strerror}); let VIRTQUAL_STATE name a "
                "directory on one that does"
            ) from error


def _refuse_live_holder(descriptor: int, path: Path, say: Callable[[str], None]) -> None:
    """Refuse a lock whose holder lives on another node: the file system may lock on one node only.

    A job that lost its node starts again elsewhere before its heartbeat is old: it waits for another one.
    """
    who, host, _ = _read_holder(path)
    touched = os.fstat(descriptor).st_mtime
    age = max(0.0, time.time() - touched)
    if host in ("", socket.gethostname()) or age >= STALE_S:
        return
    wait = f"waiting {STALE_S - age:.0f} s to see that it has died"
    say(f"{who} measured on this system {age:.0f} s ago; {wait}")
    end = time.monotonic() + STALE_S - age
    while time.monotonic() < end:
        time.sleep(1)
        if os.fstat(descriptor).st_mtime != touched:
            raise InfrastructureError(
                f"{who} measures on this system now: wait for its end (lock: {path}, on a file system that "
                "locks on one node only)"
            )


def name_holder(descriptor: int, who: str) -> None:
    """Write the holder into the lock's file, for the message that others get."""
    holder = {"who": who, "pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
    text = json.dumps(holder).encode()
    os.pwrite(descriptor, text, 0)
    os.ftruncate(descriptor, len(text))
    # Other nodes must see it at once.
    os.fsync(descriptor)


def _read_holder(path: Path) -> tuple[str, str, bool]:
    """Return the holder of the lock in words, its node, and whether its process has ended."""
    text = None
    try:
        text = path.read_bytes()
        holder = json.loads(text)
        since = time.strftime("%H:%M:%S", time.localtime(holder["since"]))
        who = f"{holder['who']} (process {holder['pid']} on {holder['host']}, since {since})"
        is_local = holder["host"] == socket.gethostname()
        return who, str(holder["host"]), is_local and not Path(f"/proc/{int(holder['pid'])}").exists()
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        # A holder that ends empties the file. In a shared state directory others can write it.
        return "another session", "", text == b""
