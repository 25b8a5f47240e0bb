"""Start ReFrame once, for one round of a session, and follow it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from virtqual import paths
from virtqual.errors import InfrastructureError, UsageError, VirtqualError
from virtqual.files.records import open_no_link
from virtqual.site import slurm

#: Seconds that ReFrame may take to cancel its jobs and see them end.
CANCELLING = 60

#: Id of the process that started ReFrame; when that dies, ReFrame cancels its jobs and ends (guards.py).
PARENT = "VIRTQUAL_PARENT"

# How the guard against an empty selection begins; see virtqual.harness.guards.
NOTHING_SELECTED = "no test case was selected"

# ReFrame colours its words on terminals only, but a pipe may be told to.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RUN = re.compile(r"\[ RUN +\] (.+?) /[0-9a-f]+ @(\S+)")
_DONE = re.compile(
    r"\[ +(OK|FAIL|SKIP|ABORT|ERROR|XFAIL|XPASS) *\] \( *(\d+)/(\d+)\) (.+?) /[0-9a-f]+ @(\S+)"
)


@dataclass(frozen=True)
class Event:
    """Something that ReFrame said.

    Attributes
    ----------
    kind
        ``run`` when a case starts, else how it ended (``ok``, ``fail``, ``skip`` ...).
    case, where
        The case, and its system, partition and environment.
    done, total
        Cases that have ended, and all of them; 0 for ``run``.
    """

    kind: str
    case: str
    where: str
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class Files:
    """Where ReFrame leaves its own results of a round."""

    report: Path
    junit: Path
    log: Path


def pattern(check: str) -> str:
    """Return the pattern by which ``reframe -n`` selects all samples of one check, and nothing else.

    Parameters
    ----------
    check
        Its name and its parameters, with a blank before each.  ReFrame matches names without blanks, such as
        ``lammps%sample=0N%problem=lj``.

    Examples
    --------
    >>> pattern("lammps %problem=lj")
    '^lammps(%.*)?%problem=lj(%|$)'
    """
    return f"^{'(%.*)?'.join(map(re.escape, check.split(' ')))}(%|$)"


def command(
    system: str,
    files: Files,
    *,
    names: Sequence[str] = (),
    tags: Sequence[str] = (),
    exclude: str = "",
    environment: str = "",
    policy: str = "serial",
    settings: dict[str, str] | None = None,
    extras: dict[str, str] | None = None,
) -> list[str]:
    """Return the ``reframe`` command of a round.

    Parameters
    ----------
    system
        To run on, both partitions.
    files
        Where its reports go.
    names
        Patterns of check names; empty for all.
    tags
        That a check must have, all of them.
    exclude
        A tag that no check may have.
    environment
        The stack; empty for every stack that provides a check's feature.
    policy
        ReFrame's execution policy.
    settings
        Variables of checks (``-S``).
    extras
        What the results database keeps with the session.
    """
    line = [*_reframe(system), "-r", f"--exec-policy={policy}"]
    line += [f"--report-file={files.report}", f"--report-junit={files.junit}"]
    for name in names:
        line += ["-n", name]
    for tag in tags:
        line += ["-t", tag]
    if exclude:
        line.append(f"--exclude-tag=^{exclude}$")
    if environment:
        line += ["-p", f"^{environment}$"]
    for key, value in (settings or {}).items():
        line += ["-S", f"{key}={value}"]
    if extras:
        line.append("--session-extras=" + ",".join(f"{key}={value}" for key, value in extras.items()))
    return line


def listing(system: str, scope: str) -> list[str]:
    """Return the ``reframe`` command that lists the checks of a scope on a system."""
    return [*_reframe(system), "-l", "-S", f"scope={scope}"]


def _reframe(system: str) -> list[str]:
    beside, root = Path(sys.executable).with_name("reframe"), paths.root()
    line = [str(beside) if beside.exists() else "reframe", "-C", str(root / "reframe/settings.py")]
    return [*line, "-c", str(root / "checks"), "--nocolor", "--system", system]


def run(
    line: Sequence[str],
    env: dict[str, str],
    log: Path,
    on_event: Callable[[Event], None],
    stop: threading.Event,
    keep: Sequence[int] = (),
) -> int:
    """Run ReFrame and report its progress.

    Parameters
    ----------
    line
        The command.
    env
        Environment variables besides the present ones.
    log
        Its whole output goes here.
    on_event
        Called for every case that starts or ends.
    stop
        When set, ReFrame is asked to cancel its jobs and end, as by Ctrl-C.
    keep
        File descriptors that ReFrame keeps open: of the session's lock, which is free when both have ended.

    Returns
    -------
    int
        ReFrame's exit code; the negative number of the signal that killed it.

    Raises
    ------
    KeyboardInterrupt
        After ReFrame has cancelled its jobs; the second one does not wait for that.
    """
    # A session of its own: Ctrl-C reaches virtqual, which then ends ReFrame in order, once.
    process = subprocess.Popen(
        line,
        env={**slurm.environment(), **env, "PYTHONUNBUFFERED": "1", PARENT: str(os.getpid())},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
        pass_fds=tuple(keep),
    )
    interrupted = threading.Event()
    threading.Thread(target=_end_when, args=((stop, interrupted), process), daemon=True).start()
    assert process.stdout is not None
    with open(log, "w", encoding="utf-8", opener=open_no_link) as file:
        while True:
            try:
                for raw in process.stdout:
                    text = _COLOUR.sub("", raw)
                    file.write(text)
                    if event := parse_line(text):
                        on_event(event)
                break
            except KeyboardInterrupt:
                if interrupted.is_set():
                    process.kill()
                    raise
                interrupted.set()
            except OSError:
                # Nowhere to write to: ReFrame is ended, as by Ctrl-C, before that is said.
                interrupted.set()
                process.wait()
                raise
    code = process.wait()
    if interrupted.is_set():
        raise KeyboardInterrupt
    return code


def parse_line(text: str) -> Event | None:
    """Read one line of ReFrame's output."""
    if match := _RUN.match(text):
        return Event("run", match[1], match[2])
    if match := _DONE.match(text):
        return Event(match[1].lower(), match[4], match[5], int(match[2]), int(match[3]))
    return None


def _end_when(asked: Sequence[threading.Event], process: subprocess.Popen[str]) -> None:
    """Ask ReFrame to end when an event is set; kill it where it does not."""
    while not any(event.is_set() for event in asked):
        if process.poll() is not None:
            return
        time.sleep(0.2)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=CANCELLING)
        except subprocess.TimeoutExpired:
            process.kill()


def stopped(log: Path) -> str | None:
    """Return why ReFrame gave up in the middle, such as a scheduler that fails; None if it did not."""
    return next((why for why in _errors(log) if why.startswith("run session stopped")), None)


def not_stored(log: Path) -> str | None:
    """Return that ReFrame's results database was not written, for people; None if it was."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    if found := re.search(r"failed to store results in the database: *(.*)", text):
        return f"ReFrame's results database was not written ({found[1]}); the session's log has every run"
    return None


def _errors(log: Path) -> list[str]:
    """Return the errors in ReFrame's output, each with the lines that follow it, in one line."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    whole = re.findall(r"^ERROR:?(.*(?:\n(?!Log file).*)*)", text, re.MULTILINE)
    return [" ".join(line for line in error.split() if set(line) != {"-"}) for error in whole]


def error_in(log: Path) -> VirtqualError:
    """Return what ReFrame said when it ended without a report: nothing selected, or something is broken."""
    why = (_errors(log) or ["it wrote no report"])[-1]
    if why.startswith(NOTHING_SELECTED):
        return UsageError(why)
    return InfrastructureError(f"ReFrame did not run: {why} (its output: {log})")
