"""Processes told apart by id, start time and boot, so that a reused id is never mistaken."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from pydantic import BaseModel

PROC = Path("/proc")
# The kernel's flag of a process that is ending (PF_EXITING).
EXITING = 0x4


def read_boot_id() -> str:
    """Return the random id that the kernel chose when it booted."""
    return (PROC / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()


def _read_stat(pid: int) -> list[str] | None:
    """Return the fields of ``/proc/PID/stat`` from field 3 on; None if the process is gone."""
    try:
        stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The program's name (field 2) may hold blanks and brackets.
    return stat.rpartition(")")[2].split()


class Process(BaseModel, frozen=True, extra="forbid"):
    """One process, now or in the past; ``started`` is in clock ticks since the boot."""

    pid: int
    started: int
    boot: str

    @classmethod
    def look_up(cls, pid: int) -> Process:
        """Describe a running process; raise `ProcessLookupError` if there is none."""
        fields = _read_stat(pid)
        if fields is None:
            raise ProcessLookupError(pid)
        return cls(pid=pid, started=int(fields[19]), boot=read_boot_id())

    def is_alive(self) -> bool:
        """Return whether this process still runs; one that is ending, or was not reaped yet, does not.

        The first process of namespaces ends only when all others in them have ended.
        """
        fields = self._read_stat()
        return fields is not None and not int(fields[6]) & EXITING

    def _read_stat(self) -> list[str] | None:
        """Return the fields of `_read_stat`; None if the process has ended."""
        fields = _read_stat(self.pid)
        if fields is None or fields[0] in "ZX" or int(fields[19]) != self.started:
            return None
        return fields if read_boot_id() == self.boot else None

    def kill(self) -> bool:
        """Kill this process; return False if it did not run any more."""
        return self.is_alive() and kill(self.pid)

    def wait(self, seconds: float) -> bool:
        """Wait until the process has ended; return whether that happened in time."""
        end = time.monotonic() + seconds
        while self._read_stat() is not None:
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True


def kill(pid: int) -> bool:
    """Kill a process; return False if there is none."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def list_pids() -> list[int]:
    """Return the ids of all processes that this one can see."""
    return [int(entry.name) for entry in os.scandir(PROC) if entry.name.isdigit()]


def list_children(pid: int) -> list[int]:
    """Return the ids of the direct children."""
    return [child for child in list_pids() if (fields := _read_stat(child)) and int(fields[1]) == pid]


def list_namespace_members(namespaces: frozenset[str], root: Path | None = None) -> list[int]:
    """Return the processes whose network or mount namespace has one of these names (``net:[4026532281]``).

    With `root`, a state directory, the processes must also see that cluster's ``/run/vcluster``: the kernel
    gives the number of an ended namespace to the next, which may be a stranger's.
    """
    members = []
    for pid in list_pids():
        process = PROC / str(pid)
        try:
            names = {str((process / "ns" / kind).readlink()) for kind in ("net", "mnt")}
            if names & namespaces:
                mark = process / "root/run/vcluster/state-directory"
                if root is None or mark.read_text(encoding="utf-8") == f"{root}\n":
                    members.append(pid)
        except OSError:
            continue
    return members
