"""Start ReFrame once, for one round of a session, and follow it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from virtqual import paths
from virtqual.errors import InfrastructureError, VirtqualError
from virtqual.files.records import open_no_link
from virtqual.harness import catalogue
from virtqual.harness.catalogue import Entry
from virtqual.harness.progress import PIPE_VARIABLE, CaseEvent, ErrorEvent, receive
from virtqual.session.session import Request
from virtqual.site import held, slurm

#: Time for ReFrame to cancel its jobs and see them end.
CANCEL_TIMEOUT_S = 60
#: Id of the process that started ReFrame; when that dies, ReFrame cancels its jobs and ends (guards.py).
PARENT_VARIABLE = "VIRTQUAL_PARENT"
#: Length of the end of ReFrame's output that an error shows.
MAX_OUTPUT_CHARS = 500


def pattern(check: str) -> str:
    """Return the pattern by which ``reframe -n`` selects all samples of one check, and nothing else.

    ReFrame matches names without blanks, such as ``lammps%sample=0N%problem=lj``.

    Examples
    --------
    >>> pattern("lammps %problem=lj")
    '^lammps(%.*)?%problem=lj(%|$)'
    """
    return f"^{'(%.*)?'.join(map(re.escape, check.split(' ')))}(%|$)"


def reframe_command(system: str) -> list[str]:
    """Return the ``reframe`` command with the project's configuration and checks, for both partitions."""
    beside, root = Path(sys.executable).with_name("reframe"), paths.root()
    line = [str(beside) if beside.exists() else "reframe", "-C", str(root / "reframe/settings.py")]
    checks = [option for path in paths.checks() for option in ("-c", str(path))]
    return [*line, *checks, "--nocolor", "--system", system]


def load_checks(request: Request) -> tuple[Entry, ...]:
    """Return all checks as ReFrame loads them for the system, scope and nodes of a request.

    Slurm is not asked. The entries have the hashes of all samples of a first round only if the request names
    a hash: ReFrame then takes twice as long.
    """
    has_hash = any(name.startswith("/") for name in request.names)
    line = [*reframe_command(request.system), "-l", "-S", f"scope={request.scope}"]
    with tempfile.TemporaryDirectory() as directory:
        file, output = Path(directory) / catalogue.FILE, Path(directory) / "list.log"
        env = {
            "VIRTQUAL_CATALOGUE": str(file),
            "VIRTQUAL_PAIRS": "0:3" if has_hash else "1:1",
            **held.SessionNodes(system=request.system, of=request.nodes).environment(),
        }
        _, error = run(line, env, output, lambda event: None, threading.Event())
        if error:
            raise error.exception
        if not file.is_file():
            raise output_error(output.read_text(encoding="utf-8", errors="replace"))
        return catalogue.read(file)


def run(
    line: Sequence[str],
    env: dict[str, str],
    log: Path,
    on_event: Callable[[CaseEvent], None],
    stop: threading.Event,
    keep: Sequence[int] = (),
) -> tuple[int, ErrorEvent | None]:
    """Run ReFrame, with its output in the file `log`; return its exit code, and the error that it reported.

    The exit code is minus the signal if one killed ReFrame.

    Parameters
    ----------
    env
        Environment variables besides the present ones.
    stop
        When set, ReFrame is asked to cancel its jobs and end, as by Ctrl-C.
    keep
        File descriptors that ReFrame keeps open: of the session's lock, which is free when both have ended.

    Raises
    ------
    KeyboardInterrupt
        After ReFrame has cancelled its jobs; the second one does not wait for that.
    """
    process, reader = _start(line, env, log, keep)
    interrupted = threading.Event()
    threading.Thread(target=_end_when, args=((stop, interrupted), process), daemon=True).start()
    error = None
    try:
        while True:
            try:
                for event in receive(reader):
                    if isinstance(event, ErrorEvent):
                        error = event
                    else:
                        on_event(event)
                code = process.wait()
                break
            except KeyboardInterrupt:
                if interrupted.is_set():
                    process.kill()
                    raise
                interrupted.set()
            except (Exception, SystemExit):
                # The event cannot be shown, e.g. on a full disk or in a closed pipe. ReFrame is ended first,
                # as by Ctrl-C.
                interrupted.set()
                process.wait()
                raise
    finally:
        os.close(reader)
    if interrupted.is_set():
        raise KeyboardInterrupt
    return code, error


def _start(
    line: Sequence[str], env: dict[str, str], log: Path, keep: Sequence[int]
) -> tuple[subprocess.Popen[bytes], int]:
    """Start ReFrame; return the process, and the pipe of its events."""
    reader, writer = os.pipe()
    variables = {"PYTHONUNBUFFERED": "1", PARENT_VARIABLE: str(os.getpid()), PIPE_VARIABLE: str(writer)}
    try:
        with open(log, "wb", opener=open_no_link) as output:
            # In a session of its own: Ctrl-C reaches virtqual, which then ends ReFrame in order, once.
            process = subprocess.Popen(
                line,
                env={**slurm.environment(), **env, **variables},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(*keep, writer),
            )
    finally:
        os.close(writer)
    return process, reader


def _end_when(requests: Sequence[threading.Event], process: subprocess.Popen[bytes]) -> None:
    """Ask ReFrame to end when an event is set; kill it if it does not."""
    while not any(request.is_set() for request in requests):
        if process.poll() is not None:
            return
        time.sleep(0.2)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=CANCEL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()


def database_note(output: str) -> str | None:
    """Return a note if ReFrame's results database was not written.

    ReFrame only prints a warning, after its last event: no listener sees it.
    """
    if match := re.search(r"failed to store results in the database: *(.*)", output):
        return f"ReFrame's results database was not written ({match[1]}); the session's log has every run"
    return None


def output_error(output: str) -> VirtqualError:
    """Return an error with the end of the output of a ReFrame that ended without a report."""
    shown = " ".join(output.split())[-MAX_OUTPUT_CHARS:]
    return InfrastructureError(f"ReFrame did not run: {shown or 'it wrote no report'}")
