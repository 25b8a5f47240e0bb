"""The end of every session, however it was run: judge, conclude, write."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from itertools import islice
from typing import Any

from virtqual import paths
from virtqual.errors import exit_code_of
from virtqual.files.records import write_file
from virtqual.files.wording import pluralize
from virtqual.qualify.checking import verify
from virtqual.qualify.drawing import draw_conclusion
from virtqual.report import junit, page
from virtqual.session.facts import stated_facts
from virtqual.session.log import Log
from virtqual.session.provenance import provenance
from virtqual.session.session import UNJUDGED_ANSWERS, Attempts, Basis, Head, Session
from virtqual.session.summary import Summary, summaries_of
from virtqual.verdict import Outcome
from virtqual.verdict.budget import Gate
from virtqual.verdict.rule import LOOKS
from virtqual.verdict.slow_runs import NO_SLOW_RUNS, SlowRuns

#: Earlier sessions whose slow runs and attempts to pass are counted: a month of nights.
MAX_EARLIER_SESSIONS = 30


def conclude_session(
    log: Log,
    earlier: Session | None,
    *,
    looks: Sequence[int] = LOOKS,
    not_run: Sequence[str] = (),
    **circumstances: Any,
) -> Session:
    """Judge a session from its log, conclude it, and write its documents.

    `not_run` are the checks that cannot run here, by reason; `circumstances` are other fields of `Basis`.
    """
    session = log.session()
    session.not_run = list(not_run)
    before = find_earlier_sessions(session)
    session.basis = Basis(
        runs=session.measured,
        slow_before=add_slow_runs(before),
        attempts=count_attempts(session, before),
        today=date.today(),
        earlier=earlier.measured if earlier else "",
        provenance=provenance(),
        looks=tuple(looks),
        **circumstances,
    )
    try:
        draw_conclusion(session, earlier, log.directory)
    except Exception as error:
        # The runs are kept, although they cannot be judged.
        conclude_failed(log, error)
        raise
    write(log, session)
    return session


def remove_if_empty(log: Log) -> bool:
    """Remove the directory of a session in which nothing was run; return whether it was one."""
    session = log.session()
    if session.is_empty:
        shutil.rmtree(log.directory, ignore_errors=True)
    return session.is_empty


def find_earlier_sessions(head: Head) -> list[Summary]:
    """Return the latest earlier sessions of the same build, stack and system, the newest first."""
    found = (
        summary
        for directory, summary in summaries_of(head.system, paths.sessions())
        if summary.hypervisor == head.hypervisor
        and summary.stack_hash == head.stack["hash"]
        and summary.created < datetime.fromisoformat(head.created)
        and isinstance(verify(summary, directory), Summary)
    )
    return list(islice(found, MAX_EARLIER_SESSIONS))


def add_slow_runs(before: Iterable[Summary]) -> SlowRuns:
    """Return the slow and lost runs of earlier sessions together."""
    return sum((summary.slow_runs for summary in before if summary.slow_runs), NO_SLOW_RUNS)


def count_attempts(head: Head, before: Iterable[Summary]) -> Attempts:
    """Return which series the sessions `before` could not pass, by class and placement as now.

    A session counts if it had the pairs of a look, even if it was interrupted: it could have passed. One in
    which the series was INVALID could not.
    """
    attempts: Attempts = {}
    passed, stated = set[tuple[Gate, str]](), stated_facts(head).items()
    for summary in before:
        for verdict in summary.verdicts if stated <= summary.facts.items() else ():
            gate, series = verdict.gate, verdict.series
            if verdict.outcome is Outcome.WITHIN:
                passed.add((gate, series))
            is_attempt = verdict.outcome in (Outcome.OVER, Outcome.UNDECIDED) and verdict.pairs >= LOOKS[0]
            if is_attempt and (gate, series) not in passed:
                of_gate = attempts.setdefault(gate, {})
                of_gate[series] = of_gate.get(series, 1) + 1
    return attempts


def conclude_failed(log: Log, error: Exception) -> None:
    """Conclude a session that an error has ended, with the exit code that the command will have for it."""
    write(log, mark_broken(log.session(), error))


def mark_broken(session: Session, error: Exception) -> Session:
    """Write into a session that an error has ended it; see `conclude_failed`."""
    session.outcome, session.qualified = "BROKEN", UNJUDGED_ANSWERS["BROKEN"]
    session.exit_code = exit_code_of(error)
    runs = f"; it keeps {pluralize(len(session.runs), 'run')}" if session.runs else ""
    session.conclusion = f"Nothing is concluded: {str(error) or type(error).__name__}{runs}."
    session.next_step = session.resume_hint
    return session


def write(log: Log, session: Session) -> None:
    """Append the conclusion of a session to its log, and write its documents."""
    log.conclude(session)
    write_documents(log, session)


def write_documents(log: Log, session: Session) -> None:
    """Write the documents of a session that has a conclusion.

    A session without ``session.json`` is looked after when the next one begins, so it is written last.
    """
    write_file(junit.content_of(session), log.directory / junit.FILE)
    page.write(session, log.directory)
    log.write()
