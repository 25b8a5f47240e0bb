"""The end of every session, however it was run: judge, conclude, write."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
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
from virtqual.session.log import Log
from virtqual.session.provenance import provenance
from virtqual.session.session import UNJUDGED_ANSWERS, Basis, Session
from virtqual.session.summary import Summary, summaries_of
from virtqual.verdict.rule import LOOKS
from virtqual.verdict.slow_runs import NO_SLOW_RUNS, SlowRuns

#: Earlier sessions whose slow runs are counted: a month of nights.
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
    session.basis = Basis(
        runs=session.measured,
        slow_before=find_earlier_slow_runs(session),
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


def find_earlier_slow_runs(session: Session) -> SlowRuns:
    """Return the slow and lost runs of the latest earlier sessions of the same build, stack and system."""
    slow_runs = (
        summary.slow_runs
        for directory, summary in summaries_of(session.system, paths.sessions())
        if summary.hypervisor == session.hypervisor
        and summary.stack_hash == session.stack["hash"]
        and summary.created < datetime.fromisoformat(session.created)
        and isinstance(verify(summary, directory), Summary)
    )
    return sum((slow for slow in islice(slow_runs, MAX_EARLIER_SESSIONS) if slow), NO_SLOW_RUNS)


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
