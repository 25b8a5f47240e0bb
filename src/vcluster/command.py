"""Programs of this machine that run to their end; messages about a failure have one form."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from vcluster.errors import ClusterError, RequirementError


def run(
    command: Sequence[str | Path],
    error_class: type[ClusterError] = RequirementError,
    *,
    name: str | None = None,
    data: bytes = b"",
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    seconds: float = 30,
) -> bytes:
    """Run a program and return its standard output.

    Parameters
    ----------
    name
        The program's name in messages; None for its command line.
    data
        The program's standard input.
    folder, environment
        The program's working directory and whole environment; None for those of this process.
    seconds
        How long the program may take; it is killed afterwards.

    Raises
    ------
    ClusterError
        Of `error_class`, if the program does not start, does not end in time, or fails. The message has the
        end of what the program wrote to standard error.
    """
    name = name or " ".join(map(str, command))
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
    except OSError as error:
        raise error_class(f"{name} failed to start: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise error_class(f"{name} did not end within {seconds:g} s") from None
    if result.returncode != 0:
        reason = result.stderr.decode(errors="replace").strip()[-400:] or f"exit code {result.returncode}"
        raise error_class(f"{name} failed: {reason}")
    return result.stdout


def read_output(
    command: Sequence[str | Path],
    error_class: type[ClusterError] = RequirementError,
    *,
    name: str | None = None,
    environment: Mapping[str, str] | None = None,
    seconds: float = 30,
) -> str:
    """Run a program whose output is text; parameters and errors are those of `run`."""
    output = run(command, error_class, name=name, environment=environment, seconds=seconds)
    return output.decode(errors="replace")
