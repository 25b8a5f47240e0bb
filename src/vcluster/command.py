"""Programs of this machine that run to their end, with one form of message where one fails."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from vcluster.errors import ClusterError, RequirementError


def run(
    command: Sequence[str | Path],
    error: type[ClusterError] = RequirementError,
    *,
    name: str = "",
    data: bytes = b"",
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    seconds: float = 30,
) -> bytes:
    """Run a program and return its standard output.

    Parameters
    ----------
    command
        The program with its arguments.
    error
        The class of the error where the program fails.
    name
        The program's name in messages; empty for its command line.
    data
        The program's standard input.
    folder, environment
        The program's working directory and whole environment; None for those of this process.
    seconds
        How long the program may take; it is killed afterwards.

    Raises
    ------
    ClusterError
        Of the class `error`: the program cannot be started, does not end in time, or fails. The message has
        the name and the end of what the program wrote to standard error.
    """
    words = name or " ".join(map(str, command))
    try:
        result = subprocess.run(
            command,
            input=data,
            capture_output=True,
            cwd=folder,
            env=environment,
            timeout=seconds,
            check=False,
        )
    except OSError as reason:
        raise error(f"{words} failed to start: {reason.strerror}") from None
    except subprocess.TimeoutExpired:
        raise error(f"{words} did not end within {seconds:g} s") from None
    if result.returncode != 0:
        said = result.stderr.decode(errors="replace").strip()[-400:] or f"exit code {result.returncode}"
        raise error(f"{words} failed: {said}")
    return result.stdout


def text(
    command: Sequence[str | Path],
    error: type[ClusterError] = RequirementError,
    *,
    name: str = "",
    environment: Mapping[str, str] | None = None,
    seconds: float = 30,
) -> str:
    """Run a program whose output is text; parameters and errors are those of `run`."""
    return run(command, error, name=name, environment=environment, seconds=seconds).decode(errors="replace")
