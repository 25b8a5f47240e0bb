"""The directory of sessions: find a session by name, list all, and read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from virtqual.errors import DamagedError, InfrastructureError, UsageError, VirtqualError
from virtqual.session.log import DOCUMENT, LOG, Log
from virtqual.session.packed import SUFFIX, find_packed, list_examples, unpack
from virtqual.session.session import Session

#: How far the clock of the node that began a session may be ahead.
MAX_CLOCK_ERROR = timedelta(days=1)
MAX_ERRORS_SHOWN = 3


class NoSessionError(InfrastructureError):
    """There is no session yet, or none that can be read; `kind` says of which system or class."""

    def __init__(self, sessions: Path, kind: str = "", errors: Sequence[VirtqualError] = ()) -> None:
        left_out = f"; left out: {'; '.join(map(str, errors[:MAX_ERRORS_SHOWN]))}" if errors else ""
        super().__init__(
            f"there is no session{kind} yet below {sessions}: `virtqual qualify` makes one{left_out}. "
            f"To look at examples: virtqual show {' or '.join(list_examples())}"
        )


def load(directory: Path) -> Session:
    """Read a session from its directory.

    Raises
    ------
    DamagedError
        The log is not as it was written.
    UsageError
        There is none.
    """
    document, log = directory / DOCUMENT, Log(directory)
    state, has_document = log.state(), document.is_file()
    if has_document and not (directory / LOG).is_file():
        raise UsageError(f"{directory}: no session: it has a {DOCUMENT} and no {LOG}")
    session = log.session()
    # A session may be concluded, or go on, while it is read.
    if has_document and session.outcome == "UNFINISHED" and document.is_file() and log.state() == state:
        raise DamagedError(str(directory / LOG), f"its end is missing: {DOCUMENT} is of a concluded session")
    return session


def ids(sessions: Path) -> list[str]:
    """Return the ids of all sessions of a directory, the oldest first."""
    names = {path.parent.name for name in (LOG, DOCUMENT) for path in sessions.glob(f"*/{name}")}
    return sorted(name for name in names if not name.startswith("."))


def system_of(name: str) -> str:
    """Return the system of a session by its id: date, time, and the name of the system."""
    return name.split("-", 2)[-1]


def unconcluded(sessions: Path) -> Iterator[Log]:
    """Yield the logs of the sessions that have no document: it is written when a session is concluded.

    No other log is opened: there may be years of them.
    """
    for file in sorted(sessions.glob(f"*/{LOG}")):
        if not (file.parent / DOCUMENT).exists():
            yield Log(file.parent)


def find(name: str, sessions: Path) -> Path:
    """Return the directory of a session by its id, the beginning of an id, a path, an example, or ``last``.

    Raises
    ------
    NoSessionError
        ``last`` is asked for, and there is no session at all.
    UsageError
        There is no such session, or several begin so; the message names the latest sessions.
    """
    if packed := find_packed(name):
        return unpack(packed)
    names = ids(sessions)
    if name == "last":
        if not names:
            raise NoSessionError(sessions)
        # An id begins with the date, in UTC.
        tomorrow = f"{datetime.now(UTC) + MAX_CLOCK_ERROR:%Y%m%d-%H%M%S}"
        matches = [session for session in names if session <= tomorrow][-1:]
    else:
        matches = (
            [name] if name in names else [session for session in names if name and session.startswith(name)]
        )
    as_path = Path(name)
    if not matches and name and as_path.exists():
        return _check_path(as_path)
    if len(matches) != 1:
        latest = f"the latest are {', '.join(names[-5:])}" if names else "there is none yet"
        raise UsageError(
            f"{'several sessions begin' if matches else 'no session begins'} with {name!r} below {sessions}: "
            f"{latest} (one without a run is not kept). A path works too, and so does "
            f"{', '.join(list_examples())}"
        )
    return sessions / matches[0]


def _check_path(path: Path) -> Path:
    """Return the directory of a session by its path, or by that of one of its files.

    Raises
    ------
    UsageError
        The path cannot be one of a session.
    """
    directory = path if path.is_dir() else path.parent
    if path.is_dir() or (directory / LOG).is_file():
        return directory
    raise UsageError(
        f"{path}: is a file and not a session, which is a directory with a {LOG}, or a file NAME{SUFFIX}; "
        f"`virtqual judge {path}` judges a file of measured values"
    )


def load_earlier(directory: Path) -> Session:
    """Read an earlier session; raise `UsageError` if there is none, or it measured nothing."""
    session = load(directory)
    if not session.runs:
        raise UsageError(
            f"{directory}: session {session.session} has no run ({session.conclusion or session.outcome}): "
            "nothing can be compared with it; name another with --against"
        )
    return session
