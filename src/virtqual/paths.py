"""Where virtqual reads and writes: one place, so that nothing else guesses.

``VIRTQUAL_ROOT``
    The project checkout, which holds ``checks/``, ``reframe/`` and ``references/``.  Default: the
    directory above ``src/`` of an editable installation, else the working directory.
``VIRTQUAL_STATE``
    What is written: stacks, sessions, the results database.  Default: ``.virtqual`` in the root.
    On a cluster it must be on a file system that every node sees at the same path.
``VIRTQUAL_SHARED``
    What several people use and no session changes: stacks and fetched inputs.  It may be read-only to those
    who only run sessions.  Default: the state directory.
``VIRTQUAL_REFERENCES``
    Reviewed data to judge against.  Default: ``references`` in the root.
"""

from __future__ import annotations

import os
from pathlib import Path

from virtqual.errors import InfrastructureError


def root() -> Path:
    """Return the project checkout."""
    if given := os.environ.get("VIRTQUAL_ROOT"):
        return Path(given).resolve()
    checkout = Path(__file__).resolve().parents[2]
    return checkout if (checkout / "checks").is_dir() else Path.cwd()


def state() -> Path:
    """Return the directory that virtqual writes to (it may not exist yet)."""
    return Path(os.environ.get("VIRTQUAL_STATE") or root() / ".virtqual").resolve()


def shared() -> Path:
    """Return the directory of what several people may use (it may not exist yet)."""
    return Path(os.environ.get("VIRTQUAL_SHARED") or state()).resolve()


def references() -> Path:
    """Return the directory of reviewed data."""
    return Path(os.environ.get("VIRTQUAL_REFERENCES") or root() / "references").resolve()


def stacks() -> Path:
    """Return the directory that holds one directory a software stack."""
    return shared() / "stack"


def inputs() -> Path:
    """Return the directory that holds one directory an input that was fetched."""
    return shared() / "inputs"


def sessions() -> Path:
    """Return the directory that holds one directory a session."""
    return state() / "sessions"


def database() -> Path:
    """Return ReFrame's results database (SQLite)."""
    return state() / "results.db"


def make(directory: Path) -> Path:
    """Make a directory that virtqual writes to, unless it is there.

    Raises
    ------
    InfrastructureError
        It cannot be made, or not be written to.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        why = "" if os.access(directory, os.W_OK) else "it may not be written"
    except OSError as error:
        why = error.strerror or str(error)
    if why:
        raise InfrastructureError(
            f"{directory}: {why}; virtqual writes to {state()}, and VIRTQUAL_STATE names another directory"
        )
    return directory
