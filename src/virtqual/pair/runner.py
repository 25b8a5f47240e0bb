"""Run a command to its end, or end it with all its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Timer

from virtqual.errors import InfrastructureError

#: Time for the processes of a run to end after SIGTERM, before SIGKILL.
TERMINATION_WAIT_S = 5.0
#: Of longer outputs the end is read, which has the results.
MAX_OUTPUT_BYTES = 64 * 2**20
#: In the environment of a run, and so of all that it starts on this machine.
RUN_VARIABLE = "VIRTQUAL_PAIR_RUN"


@dataclass(frozen=True)
class Finished:
    """A run that has ended."""

    #: Seconds since the epoch by one clock that is never set back.
    start: float
    end: float
    stdout: Path
    stderr: Path
    #: Why it has no value; empty if it ended well.
    lost: str = ""

    @property
    def seconds(self) -> float:
        """The wall time."""
        return self.end - self.start


class Clock:
    """Seconds since the epoch, as of the time when it was made: later steps of the clock do not count."""

    def __init__(self) -> None:
        self._offset = time.time() - time.perf_counter()

    def now(self) -> float:
        """Return the time."""
        return self._offset + time.perf_counter()


def run_command(
    command: str, outputs: Path, clock: Clock, limit_s: float | None, *, any_code: bool = False
) -> Finished:
    """Run a command by ``sh -c``, without standard input, in a session of its own.

    Parameters
    ----------
    outputs
        Where its output goes: this path with .out and .err added.
    limit_s
        After this time it is ended with all its processes; None for no limit.
    any_code
        An exit code other than 0 does not make it a lost run.

    Raises
    ------
    InfrastructureError
        The output cannot be written, or no process can be started.
    """
    stdout, stderr = (outputs.with_name(f"{outputs.name}.{kind}") for kind in ("out", "err"))
    mark = uuid.uuid4().hex
    try:
        with stdout.open("wb") as out, stderr.open("wb") as err:
            start = clock.now()
            process = subprocess.Popen(
                ["/bin/sh", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                env={**os.environ, RUN_VARIABLE: mark},
            )
    except OSError as error:
        raise InfrastructureError(f"{error.filename or command}: {error.strerror}") from error
    is_late = Event()

    def end_late() -> None:
        is_late.set()
        _end(process, mark)

    timer = Timer(limit_s, end_late) if limit_s else None
    try:
        if timer:
            timer.daemon = True
            timer.start()
        # With a time limit Python would look again and again, and be late by up to 50 ms.
        code = process.wait()
        end = clock.now()
    except BaseException:
        _end(process, mark, wait_s=1.0)
        raise
    finally:
        if timer:
            timer.cancel()
    if is_late.is_set() and timer:
        timer.join()
        return Finished(start, end, stdout, stderr, f"no end after {limit_s:g} s")
    lost = "" if code == 0 or (any_code and code > 0) else describe_code(code)
    return Finished(start, end, stdout, stderr, lost)


def describe_code(code: int) -> str:
    """Return an exit code in words.

    Examples
    --------
    >>> describe_code(3), describe_code(-11), describe_code(139), describe_code(127)
    ('exit code 3', 'ended by SIGSEGV', 'exit code 139 (SIGSEGV)', 'exit code 127 (command not found)')
    """
    with suppress(ValueError):
        if code < 0:
            return f"ended by {signal.Signals(-code).name}"
        if code > 128:
            return f"exit code {code} ({signal.Signals(code - 128).name})"
    return f"exit code {code}" + " (command not found)" * (code == 127)


def _end(process: subprocess.Popen[bytes], mark: str, wait_s: float = TERMINATION_WAIT_S) -> None:
    """End a run: its process group, and processes that have left the group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        for pid in _find_processes(mark):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline and any(_find_processes(mark)):
            time.sleep(0.02)


def _find_processes(mark: str) -> Iterator[int]:
    """Yield the processes of a run that have not ended: those that have its mark in their environment."""
    wanted = f"{RUN_VARIABLE}={mark}".encode()
    for directory in Path("/proc").iterdir():
        # The environment of a process that has ended, or of another user, cannot be read.
        with suppress(OSError):
            if directory.name.isdigit() and wanted in (directory / "environ").read_bytes():
                yield int(directory.name)


def read_output(file: Path) -> str:
    """Return the text of an output, of a very long one its end."""
    with file.open("rb") as opened:
        opened.seek(0, os.SEEK_END)
        opened.seek(max(opened.tell() - MAX_OUTPUT_BYTES, 0))
        return opened.read().decode("utf-8", errors="replace").replace("\r\n", "\n")
