"""The end of every session, however it was run: judge, conclude, write."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from virtqual import paths
from virtqual.errors import InfrastructureError, UsageError
from virtqual.harness import catalogue
from virtqual.references.load import known as references
from virtqual.report import junit, page
from virtqual.session.conclusion import conclude
from virtqual.session.judge import judge
from virtqual.session.log import Log
from virtqual.session.session import Session
from virtqual.session.store import load
from virtqual.session.summary import Summary, summaries
from virtqual.verdict.rule import LOOKS
from virtqual.verdict.slow_runs import NONE, SlowRuns

NIGHTS = 30
"""Earlier sessions that are looked through for slow runs of this build: a month of nights."""


def concluded(
    log: Log,
    earlier: Session | None,
    *,
    looks: Sequence[int] = LOOKS,
    interrupted: bool = False,
    broken: Sequence[str] = (),
    not_run: Sequence[str] = (),
    share: int = 1,
) -> Session:
    """Judge a session from its log, conclude it, and write its documents.

    Parameters
    ----------
    log
        Of the session.
    earlier
        The session that it is compared with, or None.
    looks
        After how many pairs a decision is tried; see `judge`.
    interrupted
        Whether a person or a time limit ended it.
    broken
        What failed of the infrastructure besides the failures in the log, in words.
    not_run
        Checks that cannot run here, with the reason.
    share
        How many sessions share the error rate.

    Returns
    -------
    Session
        As ``session.json``, ``junit.xml`` and ``report.html`` have it.
    """
    session = log.session()
    session.not_run = list(not_run)
    failed = [
        f"{failure.case} on {failure.partition}: {failure.reason}"
        for failure in session.failures
        # Where nothing was measured at all it is no matter of the checks.
        if failure.kind == "infrastructure" or (failure.kind == "failed" and not session.runs)
    ]
    try:
        judged = judge(session, earlier=earlier, looks=looks, share=share, slow_before=_slow_before(session))
    except Exception as error:
        # What cannot be judged has been measured all the same, and is kept.
        ended_by(log, error)
        raise
    asked = references().qualifications.get(session.hypervisor_class)
    conclude(
        session,
        judged,
        interrupted=interrupted,
        broken=[*broken, *failed],
        unqualified=references().hypervisor_class(session.hypervisor_class).unqualified,
        asked=asked,
        cases=catalogue.cases(catalogue.read(log.directory / catalogue.FILE), asked.scope) if asked else (),
        studied="NUMA nodes hidden on purpose" if session.placement.get("numa_hidden") else "",
    )
    write(log, session)
    return session


def _slow_before(session: Session) -> SlowRuns:
    """Return the slow runs of the latest earlier sessions of the same build, stack and system."""
    before = NONE
    same = (
        directory
        for directory, one in summaries(paths.sessions())
        if isinstance(one, Summary)
        and (one.system, one.hypervisor) == (session.system, session.hypervisor)
        and one.session < session.session
    )
    for directory in islice(same, NIGHTS):
        try:
            one = load(directory)
        except (UsageError, ValueError):
            continue
        seen = one.slow_runs
        if seen and one.stack.get("hash") == session.stack.get("hash"):
            before += SlowRuns(seen.virtual, seen.virtual_runs, seen.native, seen.native_runs, seen.factor)
    return before


def ended_by(log: Log, error: Exception, code: int | None = None) -> Session:
    """Conclude a session that an error has ended, with the exit code that the command will have for it."""
    session = log.session()
    if code is None:
        # As `virtqual.commands.speaking` does: what a person can mend is said in the error itself.
        mended = isinstance(error, ValueError) and not isinstance(error, UnicodeError)
        code = getattr(error, "exit_code", 2 if mended else InfrastructureError.exit_code)
    session.outcome, session.exit_code, session.qualified = "BROKEN", code, "no (broken)"
    kept = f"; its {len(session.runs)} runs are kept" if session.runs else ""
    session.conclusion = f"Nothing is concluded: {str(error) or type(error).__name__}{kept}.{session.goes_on}"
    write(log, session)
    return session


def write(log: Log, session: Session) -> None:
    """Write the documents of a session that has ended."""
    log.conclude(session)
    junit.write(session, log.directory / junit.FILE)
    page.write(session, log.directory)
