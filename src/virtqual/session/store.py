"""Where sessions are kept: found by name, listed, and read; those of other versions are refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from virtqual.errors import UsageError
from virtqual.session.log import DOCUMENT, LOG, Log
from virtqual.session.session import SCHEMA, Session

T = TypeVar("T")
_OTHER = re.compile(r'"schema": ?"(virtqual-session/\d+)"')


def load(path: Path) -> Session:
    """Read a session from its directory, or from the log or document in it.

    Raises
    ------
    UsageError
        There is none, it is broken, or it is of another version.
    """
    directory = path if path.is_dir() else path.parent
    if not (directory / LOG).is_file() and (directory / DOCUMENT).is_file():
        with (directory / DOCUMENT).open(encoding="utf-8", errors="replace") as file:
            other = _OTHER.search(file.read(1000))
        version = other[1] if other else "no schema that is known"
        raise UsageError(
            f"{directory}: a session of another version ({version}, this virtqual reads {SCHEMA}): "
            "measure anew, a session of another version is no earlier session"
        )
    return Log(directory).session()


def ids(sessions: Path) -> list[str]:
    """Return the ids of all sessions of a directory, the oldest first."""
    return sorted({path.parent.name for name in (LOG, DOCUMENT) for path in sessions.glob(f"*/{name}")})


def readable(sessions: Path) -> Iterator[tuple[Path, Session | UsageError]]:
    """Yield every session of a directory, the newest first; for one that cannot be read, the error."""
    return each(sessions, load)


def each(sessions: Path, read: Callable[[Path], T]) -> Iterator[tuple[Path, T | UsageError]]:
    """Yield what is read of every session of a directory, the newest first, or the error."""
    for name in reversed(ids(sessions)):
        directory = sessions / name
        try:
            yield directory, read(directory)
        except UsageError as error:
            yield directory, error
        except ValueError as error:
            # One that makes no sense hides no other.
            yield directory, UsageError(f"{directory}: {error}")


def unconcluded(sessions: Path) -> Iterator[Log]:
    """Yield the logs of the sessions that have no document: it is written when a session is concluded.

    No other log is opened: there may be years of them.
    """
    for file in sorted(sessions.glob(f"*/{LOG}")):
        if not (file.parent / DOCUMENT).exists():
            yield Log(file.parent)


def latest(sessions: Path, system: str) -> Path:
    """Return the directory of the newest session of a system that measured something.

    Whatever became of it: one that was refused or interrupted before its first run has nothing to compare
    with.

    Raises
    ------
    UsageError
        There is none.
    """
    for directory, session in readable(sessions):
        if isinstance(session, Session) and session.system == system and session.runs:
            return directory
    raise UsageError(f"no session of system {system!r} below {sessions} has a run: there is no 'last'")


def find(name: str, sessions: Path, system: str = "") -> Path:
    """Return the directory of a session.

    Parameters
    ----------
    name
        Its id, the beginning of an id, a path, or ``last``.
    sessions
        The directory of sessions.
    system
        ``last`` is the newest session of this system that measured something; of any, if empty.

    Raises
    ------
    UsageError
        There is no such session, or several begin so; those there are are named.
    """
    if name == "last" and system:
        return latest(sessions, system)
    as_path = Path(name)
    if name and (as_path.is_dir() or as_path.is_file()):
        return as_path if as_path.is_dir() else as_path.parent
    known = ids(sessions)
    if name == "last":
        matches = known[-1:]
    else:
        matches = [i for i in known if i == name] or [i for i in known if name and i.startswith(name)]
    if len(matches) != 1:
        raise UsageError(
            f"{'several sessions begin' if matches else 'no session begins'} with {name!r} "
            f"below {sessions} (the latest: {', '.join(known[-5:]) or 'none'})"
        )
    return sessions / matches[0]


def load_earlier(directory: Path) -> Session:
    """Read an earlier session.

    Raises
    ------
    UsageError
        There is none, or it measured nothing.
    """
    session = load(directory)
    if not session.runs:
        raise UsageError(
            f"{directory}: session {session.session} has no run ({session.conclusion or session.outcome}): "
            "nothing can be compared with it; name another with --against"
        )
    return session
