"""Programs of this machine that run to their end; messages about a failure have one form."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
    """Run a program with `data` as its input, and return its standard output.

    An error of `error_class` is raised if the program does not start, fails, or does not end in time. Its
    message has the program's name, by default the command line, and the end of standard error.
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
    command: Sequence[str | Path], error_class: type[ClusterError] = RequirementError, **options: Any
) -> str:
    """Run a program whose output is text; options are those of `run`."""
    return run(command, error_class, **options).decode(errors="replace")
