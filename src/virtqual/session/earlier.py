"""The earlier session that a build is held against."""

from __future__ import annotations

from pathlib import Path

from virtqual import paths
from virtqual.errors import UsageError
from virtqual.session import store
from virtqual.session.store import Session


def find(name: str, system: str) -> Path:
    """Return the file of the session that ``--against`` names.

    Parameters
    ----------
    name
        See `store.find`; ``last`` is the newest session of the system that measured something, whatever
        became of it: one that was refused or interrupted before its first run has nothing to compare with.
    system
        On which is measured now.

    Raises
    ------
    UsageError
        There is no such session.
    """
    if name != "last":
        return store.find(name, paths.sessions())
    for file in sorted(paths.sessions().glob(f"*/{store.FILE}"), reverse=True):
        try:
            session = store.load(file)
        except UsageError:
            continue  # of another version: named by its id, it is refused with the reason
        if session.system == system and session.runs:
            return file
    raise UsageError(
        f"no session of system {system!r} below {paths.sessions()} has a run: there is no 'last'"
    )


def load(file: Path) -> Session:
    """Read an earlier session.

    Raises
    ------
    UsageError
        There is none, or it measured nothing.
    """
    session = store.load(file)
    if not session.runs:
        raise UsageError(
            f"{file}: session {session.session} has no run ({session.conclusion or session.outcome}): "
            "nothing can be compared with it; name another with --against"
        )
    return session
