"""Whether the record of a session is as it was written, and its conclusion follows from its runs."""

from __future__ import annotations

import math
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from virtqual import paths
from virtqual.errors import UsageError, VirtqualError
from virtqual.files import reading
from virtqual.qualify.concluding import draw
from virtqual.session.log import DOCUMENT, Log, document_of
from virtqual.session.provenance import provenance
from virtqual.session.session import Basis, Conclusion, Session
from virtqual.session.store import load
from virtqual.session.summary import FILE, Summary
from virtqual.verdict import VerdictRecord
from virtqual.verdict.rule import LOOKS

#: How far a number may be from the recorded one, absolute or relative: recorded ones are rounded.
TOLERANCE = 1e-5
#: What else a conclusion says besides its outcome and verdicts.
_OTHER_FIELDS = (
    *("all_outcomes", "missing", "conclusion", "refused", "preflight", "canaries", "slow_runs", "waivers"),
)
#: Outcomes of sessions of which nothing is concluded, if they have no basis.
_OPEN = ("BROKEN", "INTERRUPTED", "UNFINISHED")


class Checked(NamedTuple):
    """What a check says of a session, a sentence each.

    Attributes
    ----------
    problems
        What is wrong with the record.
    notes
        What could not be checked, or is judged otherwise by other code or references.
    """

    problems: list[str]
    notes: list[str]


def is_from_elsewhere(directory: Path) -> bool:
    """Return whether a session is not one of the state directory."""
    return directory.resolve().parent != paths.sessions()


def problems_from_elsewhere(session: Session, directory: Path) -> list[str]:
    """Return what is wrong with the conclusion of a session that is none of the state directory."""
    return check_conclusion(session, directory).problems if is_from_elsewhere(directory) else []


def check_session(directory: Path) -> Checked:
    """Check the log of a session, judge its runs again, and compare the documents with it."""
    try:
        session = load(directory)
    except VirtqualError as error:
        if not is_from_elsewhere(directory):
            # So that `list`, `status` and `history` say it, too: they read summaries.
            with suppress(OSError):
                (directory / FILE).unlink()
        return Checked([str(error)], [])
    checked = check_conclusion(session, directory)
    checked.problems.extend(_of_documents(session, directory))
    return checked


def check_conclusion(session: Session, directory: Path) -> Checked:
    """Judge the runs of a session again, and compare what they come to with what is recorded."""
    basis = session.basis
    if basis and basis.runs != session.measured:
        return Checked(
            [f"{session.session}: its conclusion was drawn from other runs or another head than the log has"],
            [],
        )
    if basis is None and (session.outcome in _OPEN or not session.runs):
        if session.exit_code != 0 and not session.qualified.startswith("yes") and not session.verdicts:
            return Checked([], [])
        claim = f"{session.outcome}, exit code {session.exit_code}, qualified: {session.qualified}"
        return Checked([f"{session.session}: recorded {claim}, which does not follow from its runs"], [])
    again, notes = session.model_copy(), []
    for name, field in Conclusion.model_fields.items():
        setattr(again, name, field.get_default(call_default_factory=True))
    again.basis = basis or Basis(runs=session.measured, looks=_looks_of(session))
    again.not_run = session.not_run
    earlier = None
    try:
        earlier = load(directory.resolve().parent / session.against) if session.against else None
    except UsageError:
        notes.append(f"{session.session}: changes since {session.against}, which is not here, are not judged")
    try:
        draw(again, earlier, directory)
    except (VirtqualError, ValueError) as error:
        return Checked([f"{session.session}: its runs cannot be judged again: {error}"], notes)
    problems = list(_differences(session, again, whole=not notes))
    # A budget that was changed since is no fault of the record.
    if problems and not is_from_elsewhere(directory) and (basis is None or basis.provenance != provenance()):
        notes += [f"{problem} (other code or references judged it then)" for problem in problems]
        return Checked([], notes)
    return Checked(problems, notes)


def _looks_of(session: Session) -> tuple[int, ...]:
    """Return after how many pairs a session without a basis was judged: a plain run looks once."""
    return LOOKS if session.request or not session.rounds else (session.rounds[0].last + 1,)


def _differences(session: Session, again: Session, *, whole: bool) -> Iterator[str]:
    """Yield how a recorded session differs from what its runs come to now."""
    if whole and (session.outcome, session.exit_code) != (again.outcome, again.exit_code):
        yield (
            f"{session.session}: recorded {session.outcome} (exit code {session.exit_code}), "
            f"its runs say {again.outcome} ({again.exit_code})"
        )
    if whole and session.qualified != again.qualified:
        yield f"{session.session}: recorded qualified: {session.qualified}, its runs say {again.qualified}"
    recorded = {(verdict.series, verdict.gate): verdict for verdict in session.verdicts}
    drawn = {(verdict.series, verdict.gate): verdict for verdict in again.verdicts}
    for key in recorded.keys() | drawn.keys() if whole else drawn.keys():
        before, now = recorded.get(key), drawn.get(key)
        if before is None or now is None:
            yield f"{session.session}: {key[0]}: recorded {_told(before)}, its runs say {_told(now)}"
        elif others := _other_fields(before, now):
            yield (
                f"{session.session}: {key[0]}: recorded {_told(before)}, its runs say {_told(now)} "
                f"(other: {', '.join(others)})"
            )
    if whole and (others := _other_fields(session, again, _OTHER_FIELDS)):
        yield f"{session.session}: recorded {', '.join(others)}: not what its runs say"


def _other_fields(before: BaseModel, now: BaseModel, names: Iterable[str] | None = None) -> list[str]:
    """Return the names of the fields in which two models differ."""
    included = set(names) if names is not None else None
    recorded = before.model_dump(mode="json", include=included)
    drawn = now.model_dump(mode="json", include=included)
    return [name for name in recorded if not _are_alike(recorded[name], drawn[name])]


def _are_alike(before: Any, now: Any) -> bool:
    """Return whether two values of JSON are equal, numbers within `TOLERANCE`."""
    if isinstance(before, dict) and isinstance(now, dict):
        return before.keys() == now.keys() and all(_are_alike(before[key], now[key]) for key in before)
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(_are_alike, before, now))
    if isinstance(before, float) and isinstance(now, float):
        return math.isclose(before, now, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(before == now)


def _told(verdict: VerdictRecord | None) -> str:
    if verdict is None:
        return "no verdict"
    ratio = f" at {verdict.judged.ratio:.4g}x" if verdict.judged else ""
    return f"{verdict.outcome.value}{ratio}{' (waived)' * verdict.waived}"


def _of_documents(session: Session, directory: Path) -> Iterator[str]:
    """Yield which documents of a session are not what its log tells."""
    document, summary = directory / DOCUMENT, directory / FILE
    try:
        content = reading.bytes_of(document, reading.RECORD, links=False)
    except FileNotFoundError:
        content = None
    except OSError as error:
        yield f"{document}: {error.strerror}"
        content = None
    if content is not None and content != document_of(session).encode():
        yield f"{document}: is not what the log tells; `virtqual report` and `show` read the log"
    try:
        kept = Summary.model_validate_json(reading.bytes_of(summary, reading.RECORD, links=False))
    except (OSError, ValidationError):
        # It is made again when it is needed.
        return
    if kept.log != Log(directory).state():
        return
    made = Summary.of(session)
    # What depends on the references of its day.
    varying = {"log": "", "verdicts": (), "complete": False}
    outcomes = [(verdict.name, verdict.outcome, verdict.passes) for verdict in kept.verdicts]
    if (
        kept.model_copy(update=varying) != made.model_copy(update=varying)
        or kept.complete != made.complete
        or outcomes != [(verdict.name, verdict.outcome, verdict.passes) for verdict in made.verdicts]
    ):
        yield f"{summary}: is not what the log tells; remove it, and it is made again"


def check_state() -> Iterator[str]:
    """Yield which files of the state directory other users own or can write."""
    state = paths.state()
    if paths.is_state_shared() or not state.exists():
        return
    named = [state, *(state / name for name in ("sessions", "outbox", "notify.yaml"))]
    globs = ("measuring-*.lock", "sessions/*", "sessions/*/*.json*")
    for path in [*named, *(path for pattern in globs for path in state.glob(pattern))]:
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(status.st_mode):
            yield f"{path}: is a symbolic link"
        elif not paths.is_trusted(status):
            yield f"{path}: belongs to user {status.st_uid}"
        elif status.st_mode & 0o022:
            yield f"{path}: other users can write it; chmod go-w"
