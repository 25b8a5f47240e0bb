"""The intact part of a damaged session is copied into a session of its own."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from virtqual import paths
from virtqual.errors import DamagedError, InfrastructureError, UsageError
from virtqual.files import reading
from virtqual.files.wording import pluralize
from virtqual.harness import catalogue
from virtqual.qualify.concluding import conclude_failed, draw_conclusion, write
from virtqual.session.log import (
    DOCUMENT,
    Begun,
    Concluded,
    Event,
    Log,
    Released,
    Submitted,
    WarmedUp,
)
from virtqual.session.session import Session, SessionDocument
from virtqual.session.store import load

#: The new session has no conclusion yet, and cancels no job: the log may be one of other people.
_LEFT_OUT = (Concluded, Submitted, WarmedUp, Released)
#: Names of events for people.
_NAMES = {"finished": "run", "failed": "failure", "concluded": "conclusion"}


def repair(directory: Path) -> tuple[Log, str]:
    """Copy a damaged session up to its first damaged line into a new session.

    The new session is concluded again if all runs are intact; else it can be resumed. Returns its log, and a
    sentence that names what was dropped.
    """
    lines, damage = _read_intact(directory)
    if damage is None:
        raise UsageError(f"{directory}: the session is not damaged; `virtqual check` says what else is")
    if not lines or not isinstance(begun := lines[0][0], Begun):
        raise UsageError(f"{directory}: its first line is damaged: nothing can be copied ({damage})")
    name = begun.head.session
    dropped = _describe_dropped(directory, len(lines))
    new = _make_directory(name)
    log = Log(new)
    head = lines[0][1].replace(f'"session":"{name}"'.encode(), f'"session":"{new.name}"'.encode(), 1)
    log.copy([head, *(line for event, line in lines[1:] if not isinstance(event, _LEFT_OUT))])
    if entries := catalogue.read(directory / catalogue.FILE):
        catalogue.write(entries, new / catalogue.FILE)
    origin = f"repaired from session {name}: {dropped}"
    session = log.session()
    document = _read_document(directory)
    if document and document.basis and document.basis.runs == session.measured:
        note = f"{origin[0].upper()}{origin[1:]}; no run was lost."
        session.basis, session.not_run = document.basis.model_copy(update={"note": note}), document.not_run
        _conclude(log, session)
    else:
        conclude_failed(log, InfrastructureError(f"it was {origin}"))
    return log, origin


def _read_intact(directory: Path) -> tuple[list[tuple[Event, bytes]], DamagedError | None]:
    """Return the events before the first damaged line, with their lines, and the damage."""
    lines: list[tuple[Event, bytes]] = []
    try:
        for pair in Log(directory).lines():
            lines.append(pair)
        load(directory)
    except DamagedError as error:
        return lines, error
    return lines, None


def _describe_dropped(directory: Path, intact: int) -> str:
    """Return which lines are dropped, with what can still be read of them."""
    log = Log(directory)
    content = reading.read_bytes(log.path, links=False)
    lines = content.count(b"\n")
    if lines <= intact:
        return "the end of its log was missing"
    later = list(log.events(lenient=True))[intact:]
    counts = Counter(_NAMES[event.event] for event in later if event.event in _NAMES)
    named = " and ".join(pluralize(count, name) for name, count in counts.items())
    which = f"line {intact + 1}" if lines == intact + 1 else f"lines {intact + 1} to {lines}"
    read = f"; {named} of it can still be read, and are dropped" if named else ""
    return f"{which} of its log cannot be trusted{read}"


def _make_directory(session: str) -> Path:
    """Make the directory of the new session."""
    sessions = paths.make(paths.sessions())
    for suffix in ("", *(f"-{number}" for number in range(2, 100))):
        directory = sessions / f"{session}-repaired{suffix}"
        with suppress(FileExistsError):
            directory.mkdir(mode=0o755)
            return directory
    raise UsageError(f"session {session} was repaired 99 times: remove {sessions}/{session}-repaired*")


def _read_document(directory: Path) -> SessionDocument | None:
    """Return the document of a session, if there is one of this version."""
    try:
        content = reading.read_bytes(directory / DOCUMENT, links=False)
        return SessionDocument.model_validate_json(content)
    except (OSError, ValidationError):
        return None


def _conclude(log: Log, session: Session) -> None:
    """Conclude a session of which every run is intact, by its basis."""
    try:
        earlier = load(paths.sessions() / session.against) if session.against else None
        draw_conclusion(session, earlier, log.directory)
    except Exception as error:
        conclude_failed(log, error)
    else:
        write(log, session)
