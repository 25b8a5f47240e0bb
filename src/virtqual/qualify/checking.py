"""Check the record of a session: the log is as it was written, and the conclusion follows from the runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from virtqual import paths
from virtqual.errors import RefusedError, VirtqualError
from virtqual.files import reading
from virtqual.qualify.drawing import draw_conclusion
from virtqual.report import junit, page
from virtqual.session.log import DOCUMENT, Log, document_of
from virtqual.session.provenance import provenance
from virtqual.session.session import UNJUDGED_ANSWERS, Basis, Conclusion, Session, SessionDocument
from virtqual.session.store import load
from virtqual.session.summary import Summary, file_of, is_believed, read_summary, store_summary
from virtqual.session.verified import read_digests, remember
from virtqual.verdict import Outcome, Verdict

#: How far a number may be from the recorded one, by itself or as a share: recorded ones are rounded.
NUMBER_TOLERANCE = 1e-5


#: What a recorded pass that other code judged, and that the runs do not give now, may be.
EDITED_OR_OTHER_RULE = (
    "either the conclusion was edited, or the rule or the references have changed since {} judged it; "
    "run `virtqual check` with that version to find out which, or measure again"
)


@dataclass(frozen=True)
class Difference:
    """An answer that was recorded, and that the runs do not give."""

    text: str
    #: The record says that something is within budget, and the runs do not say it.
    is_lost_pass: bool


@dataclass
class CheckResult:
    """The findings of a check, a sentence each."""

    #: Faults of the record.
    problems: list[str] = field(default_factory=list)
    #: Differences that other code or references explain, and parts that could not be checked.
    notes: list[str] = field(default_factory=list)
    #: Parts of `notes`: answers that could not be judged again.
    unjudged: list[str] = field(default_factory=list)
    #: Other code or references gave answers that the present ones do not give.
    is_judged_otherwise: bool = False
    #: The log has no conclusion.
    is_unfinished: bool = False

    @property
    def doubts(self) -> list[str]:
        """All findings that speak against the conclusion, or leave it open."""
        return [*self.problems, *self.notes]


def is_from_elsewhere(directory: Path) -> bool:
    """Return whether a session is not one of the state directory."""
    return not paths.is_of_state(directory)


def check_session(directory: Path) -> CheckResult:
    """Check the log of a session, judge its runs again, and compare the documents with it."""
    state = Log(directory).state()
    try:
        session = load(directory)
        checked = check_conclusion(session, directory)
        # A session that went on meanwhile is checked the next time.
        if Log(directory).state() == state:
            checked.problems.extend(_compare_documents(session, directory))
            _check_end(session, directory, checked)
        if session.log_digest not in read_digests():
            _believe(session, checked)
    except VirtqualError as error:
        if not is_from_elsewhere(directory):
            # `list`, `status` and `history` read summaries, and say it from now on.
            with suppress(OSError):
                file_of(directory).unlink(missing_ok=True)
        return CheckResult([str(error)])
    except Exception as error:
        return CheckResult([f"{directory}: cannot be checked: {type(error).__name__}: {error}"])
    return checked


def _check_end(session: Session, directory: Path, checked: CheckResult) -> None:
    """Add to `checked` what is wrong with the end of a log, or that it has none."""
    if torn := Log(directory).read_torn_end():
        checked.problems.append(
            f"{Log(directory).path}: its last {len(torn)} B are not a whole line: its end was cut or "
            "overwritten. The lines before it are intact: docs/records.md says how to keep them"
        )
    if session.outcome == Conclusion().outcome:
        checked.is_unfinished = True
        if is_from_elsewhere(directory):
            why = "it was copied before it had ended, or its end was cut"
            checked.problems.append(f"{session.session}: has no conclusion: {why}; ask for the whole session")
        else:
            why = f"it still runs, was killed, or its end was cut. {session.resume_hint or ''}".rstrip()
            checked.notes.append(f"{session.session}: has no conclusion: {why}")


def find_doubts(session: Session, directory: Path) -> list[str]:
    """Return why the conclusion of a session is not believed; empty if this installation drew it.

    Any other conclusion is judged again, once if it follows from its runs. An answer that cannot be judged
    again, since an earlier session is missing, is not believed if it is a pass.
    """
    is_own = session.is_complete and session.log_digest in read_digests()
    if is_own or session.outcome == Conclusion().outcome:
        return []
    return _believe(session, check_conclusion(session, directory))


def _believe(session: Session, checked: CheckResult) -> list[str]:
    """Keep that a conclusion was judged again, or return why it is not believed."""
    doubts = checked.problems or (checked.unjudged if session.passes else [])
    if session.log_digest and session.is_complete and not doubts:
        remember(session.log_digest)
    return doubts


def verify(found: Summary, directory: Path) -> Summary | VirtqualError:
    """Return the summary of a session, or why its conclusion is not believed; see `find_doubts`.

    A session that this installation did not conclude is judged again once.
    """
    if is_believed(found):
        return found
    if not found.doubts:
        try:
            doubts = find_doubts(load(directory), directory)
        except VirtqualError as error:
            return error
        if not doubts:
            return found
        found = found.model_copy(update={"doubts": tuple(doubts)})
        # It is not judged again each time, but by `virtqual check`.
        store_summary(found, directory)
    return RefusedError(f"{directory}: {found.doubts[0]}")


def check_conclusion(session: Session, directory: Path) -> CheckResult:
    """Judge the runs of a session again, and compare what they come to with what is recorded."""
    name = session.session
    checked = CheckResult()
    if session.exit_code == 0 and not all(map(_rank, session.verdicts)):
        checked.problems.append(f"{name}: recorded {session.outcome} with verdicts that do not pass")
    if session.basis is None:
        # The runs were not judged.
        answer = UNJUDGED_ANSWERS.get(session.outcome)
        if session.exit_code == 0 or session.qualified != answer or session.verdicts:
            claim = f"{session.outcome}, exit code {session.exit_code}, qualified: {session.qualified}"
            checked.problems.append(f"{name}: recorded {claim}, which does not follow from its runs")
    elif not _has_same_lines(session, session.basis):
        why = "its conclusion was drawn from other runs or another head than the log has"
        checked.problems.append(f"{name}: {why}")
    else:
        _judge_again(session, session.basis, directory, checked)
    return checked


def judge_again(session: Session, directory: Path) -> Session:
    """Return a session with the conclusion that its runs come to by this code; as it is if unjudged."""
    again = session.model_copy()
    if session.basis is not None:
        again.set_conclusion(Conclusion(basis=session.basis, not_run=session.not_run))
        draw_conclusion(again, _find_earlier(session, session.basis, directory)[0], directory)
    return again


def _has_same_lines(session: Session, basis: Basis) -> bool:
    """Return whether a conclusion was drawn from the lines that the log has.

    Versions before log format 5 took the digest of runs and failures alone.
    """
    is_by_this_code = basis.provenance == provenance()
    return basis.runs == session.measured or (basis.runs == session.measured_runs and not is_by_this_code)


def _judge_again(session: Session, basis: Basis, directory: Path, checked: CheckResult) -> None:
    """Judge the runs of a session again, and add to `checked` where the answers differ."""
    name = session.session
    again = session.model_copy()
    again.set_conclusion(Conclusion(basis=basis, not_run=session.not_run))
    earlier, why = _find_earlier(session, basis, directory)
    if why:
        checked.unjudged.append(
            f"{name}: changes since session {session.against}, {why}, are not judged again"
        )
        checked.notes.extend(checked.unjudged)
    is_by_others = basis.provenance != provenance()
    # What a site or this code has changed since is no fault of the record, unless it says more than its runs.
    is_excused = is_by_others and not is_from_elsewhere(directory)
    try:
        draw_conclusion(again, earlier, directory)
    except Exception as error:
        answers = [Difference(f"its runs cannot be judged again: {error}", is_lost_pass=session.passes)]
    else:
        answers = list(_compare_answers(session, again, with_changes=not why))
    for answer in answers:
        if answer.is_lost_pass and is_by_others:
            version = _describe_provenance(basis)
            checked.problems.append(f"{name}: {answer.text}: {EDITED_OR_OTHER_RULE.format(version)}")
        else:
            (checked.notes if is_excused else checked.problems).append(f"{name}: {answer.text}")
    checked.is_judged_otherwise = is_excused and bool(answers)
    if not (answers or why) and (fields := _find_other_fields(session, again)):
        sentence = f"{name}: recorded with another {', '.join(fields)} than follows from its runs"
        (checked.notes if is_by_others else checked.problems).append(sentence)


def _describe_provenance(basis: Basis) -> str:
    """Return the version that judged a session, as its conclusion states it."""
    if basis.provenance is None:
        return "an unknown version"
    commit = f" ({basis.provenance.commit[:12]})" * bool(basis.provenance.commit)
    return f"version {basis.provenance.version}{commit}"


def _find_earlier(session: Session, basis: Basis, directory: Path) -> tuple[Session | None, str]:
    """Return the session that a session was compared with, and why it is not to be had."""
    if not session.against:
        return None, ""
    try:
        earlier = load(directory.resolve().parent / session.against)
    except VirtqualError:
        return None, "which is not here or is damaged"
    if basis.earlier not in ("", earlier.measured, earlier.measured_runs):
        return None, "which went on since"
    return earlier, ""


def _compare_answers(session: Session, again: Session, *, with_changes: bool) -> Iterator[Difference]:
    """Yield which answers of a recorded session are not those that its runs come to."""
    is_lost_pass = session.exit_code == 0 != again.exit_code or (
        with_changes and session.outcome == "WITHIN" != again.outcome
    )
    is_same = (session.outcome, session.exit_code) == (again.outcome, again.exit_code)
    if is_lost_pass or (with_changes and not is_same):
        yield Difference(
            f"recorded {session.outcome} (exit code {session.exit_code}), "
            f"its runs say {again.outcome} ({again.exit_code})",
            is_lost_pass=is_lost_pass,
        )
    if with_changes and session.qualified != again.qualified:
        yield Difference(
            f"recorded qualified: {session.qualified}, its runs say {again.qualified}",
            is_lost_pass=session.is_qualified and not again.is_qualified,
        )
    recorded, drawn = (
        [verdict for verdict in side.verdicts if with_changes or verdict.gate == "overhead"]
        for side in (session, again)
    )
    yield from _compare_verdicts(recorded, drawn, passes=session.passes)


def _compare_verdicts(
    recorded: Sequence[Verdict], drawn: Sequence[Verdict], *, passes: bool
) -> Iterator[Difference]:
    """Yield which verdicts of a session, which `passes` or not, are not those that its runs come to."""
    keys, drawn_keys = ([(v.series, v.gate) for v in verdicts] for verdicts in (recorded, drawn))
    if keys != drawn_keys:
        has_hidden = any(not _rank(v) for key, v in zip(drawn_keys, drawn, strict=True) if key not in keys)
        yield Difference(
            f"recorded {len(recorded)} verdicts, its runs say {len(drawn)}, or others",
            is_lost_pass=passes and (has_hidden or not set(keys) <= set(drawn_keys)),
        )
    by_key = dict(zip(drawn_keys, drawn, strict=True))
    for before, now in ((v, by_key[key]) for key, v in zip(keys, recorded, strict=True) if key in by_key):
        if not _is_equal(*([v.outcome, v.waived, v.judged and v.judged.log] for v in (before, now))):
            answers = [_describe_verdict(verdict) for verdict in (before, now)]
            text = f"{now.series}: recorded {answers[0]}, its runs say {answers[1]}"
            yield Difference(text, is_lost_pass=_rank(before) > _rank(now))


def _rank(verdict: Verdict) -> int:
    """Return 2 for a verdict that passes, 1 for a baseline, and else 0."""
    return 2 if verdict.passes else int(verdict.outcome is Outcome.BASELINE)


def _describe_verdict(verdict: Verdict) -> str:
    ratio = f" at {verdict.judged.ratio:.4g}x" if verdict.judged else ""
    return f"{verdict.outcome.value}{ratio}{' (waived)' * verdict.waived}"


def _find_other_fields(session: Session, again: Session) -> list[str]:
    """Return the fields of a conclusion that are not what the runs come to, such as ``preflight``."""
    fields = set(Conclusion.model_fields) - {"basis", "verdicts"}
    recorded, drawn = (side.model_dump(mode="json", include=fields) for side in (session, again))
    compared = [("", recorded, drawn)]
    for verdicts in zip(session.verdicts, again.verdicts, strict=True):
        recorded, drawn = (verdict.model_dump(mode="json") for verdict in verdicts)
        compared.append((f"{verdicts[0].series} ", recorded, drawn))
    return [
        f"{prefix}{name}"
        for prefix, before, now in compared
        for name, value in before.items()
        if not _is_equal(value, now[name])
    ]


def _is_equal(recorded: object, drawn: object) -> bool:
    """Return whether two values are equal, but for the last digits of numbers."""
    if isinstance(recorded, dict) and isinstance(drawn, dict):
        return recorded.keys() == drawn.keys() and all(_is_equal(recorded[key], drawn[key]) for key in drawn)
    if isinstance(recorded, list) and isinstance(drawn, list):
        return len(recorded) == len(drawn) and all(map(_is_equal, recorded, drawn))
    if isinstance(recorded, float) and isinstance(drawn, float):
        return math.isclose(recorded, drawn, rel_tol=NUMBER_TOLERANCE, abs_tol=NUMBER_TOLERANCE)
    return recorded == drawn


def _compare_documents(session: Session, directory: Path) -> Iterator[str]:
    """Yield which documents of a session are not what its log tells."""
    expected = {DOCUMENT: document_of(session).encode()}
    # Other code may write the other documents otherwise, or no digest into the report.
    is_by_this_code = session.basis is not None and session.basis.provenance == provenance()
    if is_by_this_code:
        expected[junit.FILE] = junit.content_of(session)
    for name, content in expected.items():
        file = directory / name
        is_same = not (file.is_symlink() or file.exists())
        with suppress(OSError):
            read = b"" if is_same else reading.read_bytes(file, links=False)
            is_same = is_same or read == content
            # A document of other code lacks the fields that were added since.
            is_same = is_same or (name == DOCUMENT and not is_by_this_code and _complete(read) == content)
        if not is_same:
            yield f"{file}: is not what the log tells; remove it: `virtqual report` and `show` read the log"
    report = directory / page.FILE
    try:
        digest = page.read_log_digest(reading.read_bytes(report, links=False))
        if digest != session.log_digest and (digest or is_by_this_code):
            yield f"{report}: is not of this log; `virtqual report {session.session}` writes it again"
    except FileNotFoundError:
        pass
    except OSError as error:
        yield f"{report}: cannot be read ({error.strerror}); remove it: `virtqual report` writes it again"
    summary = None if is_from_elsewhere(directory) else read_summary(directory)
    if summary and summary.model_copy(update={"log": "", "doubts": ()}) != Summary.of(session):
        yield f"{file_of(directory)}: is not what the log tells; remove it, and it is made again"


def _complete(document: bytes) -> bytes:
    """Return a ``session.json`` with the defaults of the fields that it lacks; nothing if it is none."""
    with suppress(ValidationError):
        return document_of(SessionDocument.model_validate_json(document)).encode()
    return b""


def find_foreign_files() -> Iterator[str]:
    """Yield what others can change of the directories of state and site, and what helps."""
    yield from map(str, paths.find_site_faults())
    yield from map(str, paths.find_state_faults("sessions/*", "sessions/*/*"))
