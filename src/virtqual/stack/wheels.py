"""The Python packages that virtqual itself is made with, for a site that reaches no package index."""

from __future__ import annotations

import sys
from pathlib import Path

from virtqual.files import execute

#: Directory of the wheels in a mirror; ``ci/build-stack`` looks there.
DIRECTORY = "wheels"
_LOCK = "requirements.lock"


def gather(root: Path, target: Path) -> None:
    """Download the wheels that ``ci/venv`` installs, for this version of Python and this kind of machine.

    Parameters
    ----------
    root
        The checkout, whose ``requirements.lock`` names the wheels and their hashes.
    target
        The mirror.

    Raises
    ------
    InfrastructureError
        pip could not download a wheel, or its hash is not in the lock.
    """
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    command += ["--require-hashes", "--dest", str(target / DIRECTORY), "--requirement", str(root / _LOCK)]
    execute.run_checked(command, f"pip could not download all of {_LOCK}")
