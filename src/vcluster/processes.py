"""Processes told apart by id, start time and boot, so that a reused id is never mistaken."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict

PROC = Path("/proc")


def boot_id() -> str:
    """Return the random id that the kernel chose when it booted."""
    return (PROC / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()


def _stat(pid: int) -> list[str]:
    # The name (field 2) may hold blanks and brackets: what follows the last bracket is field 3 on.
    return (PROC / str(pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()


class Process(BaseModel):
    """One process, now or in the past.

    Attributes
    ----------
    pid : int
        Process id, as the outer (host) namespace counts.
    started : int
        Start time in clock ticks since boot.
    boot : str
        The boot that these ticks count from.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> Process:
        """Describe a running process.

        Raises
        ------
        ProcessLookupError
            If there is none of that id.
        """
        try:
            return cls(pid=pid, started=int(_stat(pid)[19]), boot=boot_id())
        except (FileNotFoundError, ProcessLookupError):
            raise ProcessLookupError(pid) from None

    def alive(self) -> bool:
        """Whether this very process still runs; one that ended and was not yet reaped does not."""
        try:
            fields = _stat(self.pid)
        except (FileNotFoundError, ProcessLookupError):
            return False
        return fields[0] not in "ZX" and int(fields[19]) == self.started and boot_id() == self.boot

    def kill(self) -> bool:
        """Kill this very process if it still runs; return whether it did."""
        if not self.alive():
            return False
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def wait(self, seconds: float) -> bool:
        """Wait until the process is gone; return whether that happened in time."""
        end = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True


def all_pids() -> Iterator[int]:
    """Yield the ids of all processes that this one can see."""
    for entry in os.scandir(PROC):
        if entry.name.isdigit():
            yield int(entry.name)


def children(pid: int) -> list[int]:
    """Return the ids of the direct children."""
    found = []
    for other in all_pids():
        try:
            if int(_stat(other)[1]) == pid:
                found.append(other)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def namespace_members(namespaces: frozenset[str], root: Path | None = None) -> list[int]:
    """Return the processes whose network or mount namespace is one of these.

    Parameters
    ----------
    namespaces : frozenset of str
        Names that ``/proc/PID/ns/net`` and ``/proc/PID/ns/mnt`` link to, for example ``net:[4026532281]``.
    root : Path, optional
        A cluster's state directory: only processes that see that cluster's ``/run/vcluster``. The kernel
        gives the number of an ended namespace to the next one at once, so that after a crash a number alone
        may be a stranger's.
    """
    found = []
    for pid in all_pids():
        if root is not None and not _sees(pid, root):
            continue
        for kind in ("net", "mnt"):
            try:
                link = str((PROC / str(pid) / "ns" / kind).readlink())
            except OSError:
                continue
            if link in namespaces:
                found.append(pid)
                break
    return found


def _sees(pid: int, root: Path) -> bool:
    try:
        return (PROC / str(pid) / "root/run/vcluster/state-directory").read_text(
            encoding="utf-8"
        ) == f"{root}\n"
    except OSError:
        return False
