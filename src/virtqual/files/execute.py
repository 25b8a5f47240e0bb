"""Run other programs to their end: what they print is text, and they have a time limit where one is known."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from virtqual.errors import InfrastructureError
from virtqual.files.records import open_no_link


def run(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    seconds: float | None = None,
    stdin: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, whatever its exit code.

    Parameters
    ----------
    command
        The program with its arguments.
    env
        The whole environment of the program; None for the environment of this process.
    seconds
        Longest time that the program may take; None for no limit.
    stdin
        What it reads on its standard input; None for nothing.

    Returns
    -------
    subprocess.CompletedProcess
        The output is read as UTF-8, with a mark for each byte that is not UTF-8.

    Raises
    ------
    InfrastructureError
        The program cannot be started, or took too long.
    """
    try:
        return subprocess.run(
            command,
            env=env,
            # What stands on the standard input of this process is not for programs that it starts.
            stdin=subprocess.DEVNULL if stdin is None else None,
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except OSError as error:
        raise InfrastructureError(f"{command[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"{command[0]}: no end after {error.timeout:.0f} s") from error


#: Seconds that a program has to end in after it was asked to.
ENDING = 10


def logged(command: Sequence[str | Path], log: Path, *, seconds: float) -> int:
    """Run a program to its end, with all that it prints in a file, and return its exit code.

    Parameters
    ----------
    command
        The program with its arguments; it reads nothing.
    log
        The file, which is replaced.
    seconds
        Longest time that the program may take. Then, or when this process is interrupted, it is ended with
        the processes that it has started.

    Raises
    ------
    InfrastructureError
        The program cannot be started, or took too long.
    """
    with open(log, "wb", opener=open_no_link) as file:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise InfrastructureError(f"{command[0]}: {error.strerror}") from error
        try:
            return process.wait(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise InfrastructureError(f"{command[0]}: no end after {error.timeout:.0f} s") from error
        finally:
            if process.poll() is None:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program that leads a session of its own, with what belongs to that."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=ENDING)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def said(
    command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, seconds: float | None = None
) -> str:
    """Return what a program printed; nothing where it is not there, fails or takes too long."""
    try:
        done = run(command, env=env, seconds=seconds)
    except InfrastructureError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def sites(command: Sequence[str], log: Path, *, seconds: float) -> None:
    """Run a command that a site has stated to its end, with all that it prints in a file; see `logged`.

    Raises
    ------
    InfrastructureError
        It could not be started, took too long, or failed: with its exit code and its last line.
    """
    if code := logged(command, log, seconds=seconds):
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = said[-1] if said else "it printed nothing"
        raise InfrastructureError(
            f"{shlex.join(command)} ended with exit code {code}: {last} (its output: {log})"
        )
