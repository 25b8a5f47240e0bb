"""Run other programs to their end; their output is text in UTF-8."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from virtqual.errors import InfrastructureError
from virtqual.files.records import open_no_link

#: Variables that any program may need; the jobs of checks begin with these.
BASE_VARIABLES = frozenset({"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TZ", "USER"})
#: Time for a program to end after SIGTERM, before SIGKILL.
TERMINATION_WAIT_S = 10
#: How many lines an error shows of the beginning, and as many of the end, of what a program said.
MAX_LINES_SHOWN = 20
# pip, apt and git begin the line with the reason so, after the lines of every attempt.
_REASON = re.compile(r"^\s*((?:ERROR|E|fatal): .+?)\s*$", re.MULTILINE)


def run(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    seconds: float | None = None,
    stdin: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program with the time limit `seconds`, and return its output and exit code.

    Raises
    ------
    InfrastructureError
        The program cannot be started, or exceeded the time limit.
    """
    try:
        return subprocess.run(
            command,
            env=env,
            # Programs do not read the standard input of this process.
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


def quote_errors(program: str, completed: subprocess.CompletedProcess[str]) -> str:
    """Return all that a program said on standard error, else on standard output, as one line.

    Slurm's commands begin each line with their name, which is left out.

    Examples
    --------
    >>> said = "srun: error: No project is named.\nsrun: error: Unspecified error\n"
    >>> quote_errors("srun", subprocess.CompletedProcess("", 1, "", said))
    'error: No project is named. error: Unspecified error'
    """
    text = completed.stderr.strip() or completed.stdout.strip()
    lines = [line.strip().removeprefix(f"{program}: ") for line in text.splitlines() if line.strip()]
    if len(lines) > 2 * MAX_LINES_SHOWN:
        left_out = f"({len(lines) - 2 * MAX_LINES_SHOWN} lines are left out)"
        lines = [*lines[:MAX_LINES_SHOWN], left_out, *lines[-MAX_LINES_SHOWN:]]
    # A sentence of its own needs no other separator.
    return "".join(
        line if line is lines[-1] else f"{line} " if line.endswith((".", "!", "?", ":", ";")) else f"{line}; "
        for line in lines
    )


def run_checked(command: Sequence[str | Path], failure: str, *, env: Mapping[str, str] | None = None) -> str:
    """Run a program and return its standard output.

    Raises
    ------
    InfrastructureError
        The program cannot be started, or failed: `failure` with the reason.
    """
    try:
        completed = run(command, env=env)
    except InfrastructureError as error:
        raise InfrastructureError(f"{failure}: {error}") from error
    if completed.returncode == 0:
        return completed.stdout
    output = f"{completed.stdout}\n{completed.stderr}"
    lines = [line for line in output.splitlines() if line.strip()]
    if reasons := _REASON.findall(output):
        reason = reasons[-1]
    else:
        reason = "\n".join(["", *lines[-8:]]) if lines else "it printed nothing"
    raise InfrastructureError(f"{failure} (exit code {completed.returncode}): {reason}")


def run_logged(command: Sequence[str | Path], log: Path, *, seconds: float) -> None:
    """Run a program with its output in a new log file; its child processes end with it.

    Raises
    ------
    InfrastructureError
        The program cannot be started, exceeded the time limit, or failed.
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
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise InfrastructureError(f"{command[0]}: no end after {error.timeout:.0f} s") from error
        finally:
            if process.poll() is None:
                _end_process_group(process)
    if code:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last_line = lines[-1] if lines else "it printed nothing"
        raise InfrastructureError(
            f"{shlex.join(map(str, command))} ended with exit code {code}: {last_line} (its output: {log})"
        )


def _end_process_group(process: subprocess.Popen[bytes]) -> None:
    """End a program that was started in a session of its own, and its children."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=TERMINATION_WAIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
