"""Check the record of a session: the log is as it was written, and the conclusion follows from the runs."""

from __future__ import annotations

import math
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from virtqual import paths
from virtqual.errors import UsageError, VirtqualError
from virtqual.files import reading
from virtqual.qualify.concluding import draw
from virtqual.session.log import DOCUMENT, document_of
from virtqual.session.provenance import provenance
from virtqual.session.session import Basis, Conclusion, Session
from virtqual.session.store import load
from virtqual.session.summary import Summary, file_of, read_summary
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
    """The findings of a check, a sentence each.

    Attributes
    ----------
    problems
        Faults of the record.
    notes
        Parts that could not be checked, and verdicts that other code or references had made.
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
            # `list`, `status` and `history` read summaries, and say it from now on.
            with suppress(OSError):
                file_of(directory).unlink()
        return Checked([str(error)], [])
    checked = check_conclusion(session, directory)
    checked.problems.extend(_compare_documents(session, directory))
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
    again.basis = basis or Basis(runs=session.measured, looks=_find_looks(session))
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
    problems = list(_differences(session, again, with_outcome=not notes))
    # A budget that was changed since is no fault of the record.
    if problems and not is_from_elsewhere(directory) and (basis is None or basis.provenance != provenance()):
        notes += [f"{problem} (other code or references judged it then)" for problem in problems]
        return Checked([], notes)
    return Checked(problems, notes)


def _find_looks(session: Session) -> tuple[int, ...]:
    """Return after how many pairs a session without a basis was judged: a plain run looks once."""
    return LOOKS if session.request or not session.rounds else (session.rounds[0].last + 1,)


def _differences(session: Session, again: Session, *, with_outcome: bool) -> Iterator[str]:
    """Yield how a recorded session differs from what its runs come to now."""
    if with_outcome and (session.outcome, session.exit_code) != (again.outcome, again.exit_code):
        yield (
            f"{session.session}: recorded {session.outcome} (exit code {session.exit_code}), "
            f"its runs say {again.outcome} ({again.exit_code})"
        )
    if with_outcome and session.qualified != again.qualified:
        yield f"{session.session}: recorded qualified: {session.qualified}, its runs say {again.qualified}"
    recorded = {(verdict.series, verdict.gate): verdict for verdict in session.verdicts}
    drawn = {(verdict.series, verdict.gate): verdict for verdict in again.verdicts}
    for key in recorded.keys() | drawn.keys() if with_outcome else drawn.keys():
        before, now = recorded.get(key), drawn.get(key)
        if before is None or now is None:
            yield f"{session.session}: {key[0]}: recorded {_describe(before)}, its runs say {_describe(now)}"
        elif others := _other_fields(before, now):
            yield (
                f"{session.session}: {key[0]}: recorded {_describe(before)}, its runs say {_describe(now)} "
                f"(other: {', '.join(others)})"
            )
    if with_outcome and (others := _other_fields(session, again, _OTHER_FIELDS)):
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


def _describe(verdict: VerdictRecord | None) -> str:
    if verdict is None:
        return "no verdict"
    ratio = f" at {verdict.judged.ratio:.4g}x" if verdict.judged else ""
    return f"{verdict.outcome.value}{ratio}{' (waived)' * verdict.waived}"


def _compare_documents(session: Session, directory: Path) -> Iterator[str]:
    """Yield which documents of a session are not what its log tells."""
    document = directory / DOCUMENT
    if document.is_symlink() or document.exists():
        try:
            content = reading.bytes_of(document, reading.RECORD, links=False).decode("utf-8", "replace")
        except OSError as error:
            content = str(error.strerror)
        if content != document_of(session):
            yield f"{document}: is not what the log tells; `virtqual report` and `show` read the log"
    summary = None if is_from_elsewhere(directory) else read_summary(directory)
    if summary is None:
        return
    expected = Summary.of(session)
    # These depend on the references of its day.
    varying = {"log": "", "verdicts": ()}
    outcomes, expected_outcomes = (
        [(verdict.name, verdict.outcome, verdict.passes) for verdict in each.verdicts]
        for each in (summary, expected)
    )
    if outcomes != expected_outcomes or (
        summary.model_copy(update=varying) != expected.model_copy(update=varying)
    ):
        yield f"{file_of(directory)}: is not what the log tells; remove it, and it is made again"


def check_state() -> Iterator[str]:
    """Yield which files of the state directory other users own or can write."""
    state = paths.state()
    if paths.is_state_shared() or not state.exists():
        return
    named = [state, *(state / name for name in ("sessions", "outbox", "notify.yaml"))]
    globs = ("measuring-*.lock", "sessions/*", "sessions/.summaries", "sessions/*/*.json*")
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
