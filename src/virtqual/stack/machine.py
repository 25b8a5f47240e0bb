"""Programs of this machine: what one printed, or in one message why it did not."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from virtqual.errors import InfrastructureError
from virtqual.files import execute

# As pip, apt and git begin the line that matters, after those of every attempt.
_REASON = re.compile(r"^\s*((?:ERROR|E|fatal): .+?)\s*$", re.MULTILINE)


def run(
    command: Sequence[str | Path],
    failed: str,
    *,
    env: Mapping[str, str] | None = None,
    seconds: float | None = None,
) -> str:
    """Run a program to its end, and return what it printed.

    Parameters
    ----------
    command
        The program with its arguments.
    failed
        Begins the message where it fails, e.g. ``apt-get update failed``.
    env
        The program's whole environment; None for that of this process.
    seconds
        How long it may take.

    Raises
    ------
    InfrastructureError
        The program is not there, failed, or took too long; the message has the reason that it gave.
    """
    try:
        done = execute.run(command, env=env, seconds=seconds)
    except InfrastructureError as error:
        raise InfrastructureError(f"{failed}: {error}") from error
    if done.returncode:
        raise InfrastructureError(f"{failed} (exit code {done.returncode}): {_reason(done)}")
    return done.stdout


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    said = f"{done.stdout}\n{done.stderr}"
    if reasons := _REASON.findall(said):
        return str(reasons[-1])
    lines = [line for line in said.splitlines() if line.strip()]
    return "\n".join(["", *lines[-8:]]) if lines else "it did not say why"
