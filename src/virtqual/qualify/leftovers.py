"""Jobs that a session has left running are ended before the next session begins."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from virtqual import paths
from virtqual.errors import InfrastructureError, VirtqualError
from virtqual.qualify.concluding import mark_broken, remove_if_empty, write_documents
from virtqual.session.log import DOCUMENT, Log
from virtqual.session.session import Conclusion
from virtqual.session.store import ids, system_of, unconcluded
from virtqual.site.slurm import cancel_jobs


def end_leftovers(system: str) -> Iterator[str]:
    """Cancel the jobs of sessions of a system that were not concluded; yield a sentence for each session.

    The caller holds the lock of the system, so that the processes of those sessions are gone. If Slurm does
    not answer, the sessions stay as they are.
    """
    yield from _end_jobs_of_the_latest(system)
    for log in unconcluded(paths.sessions()):
        name = log.directory.name
        if (owner := _find_owner(log)) != os.geteuid():
            # Slurm shows and cancels this user's jobs alone.
            if owner is not None:
                yield f"session {name} belongs to user {owner}: it is left as it is, and so are its jobs"
            continue
        try:
            session = log.session()
        except Exception as error:
            # Nothing is concluded from a damaged session, and the others are still looked at.
            unfinished: dict[str, float] = {}
            with suppress(VirtqualError):
                unfinished = log.unfinished(system)
            if jobs := cancel_jobs(unfinished):
                yield f"session {name} had left jobs: {', '.join(jobs)} cancelled; {error}"
            continue
        if session.system != system:
            continue
        if session.outcome == Conclusion().outcome:
            jobs = cancel_jobs(log.unfinished())
            ended = f"its jobs {', '.join(jobs)} still ran and were cancelled" if jobs else "it left no job"
            if remove_if_empty(log):
                yield f"session {name} had ended before its first run, and was removed: {ended}"
                continue
            yield f"session {name} had ended without a conclusion: {ended}"
            reason = f"it ended before it was concluded (was it killed?); {ended}"
            session = mark_broken(session, InfrastructureError(reason))
            log.conclude(session)
        # Else it ended between its conclusion and its documents.
        try:
            write_documents(log, session)
        except Exception as error:
            yield f"the documents of session {name} cannot be written: {error}"


def _end_jobs_of_the_latest(system: str) -> Iterator[str]:
    """Cancel jobs of the latest session of a system, if it is concluded: Slurm may not have answered then."""
    names = [name for name in ids(paths.sessions()) if system_of(name) == system]
    for name in names[-1:]:
        log = Log(paths.sessions() / name)
        is_concluded = log.state() and (log.directory / DOCUMENT).exists()
        if not is_concluded or _find_owner(log) != os.geteuid():
            continue
        if jobs := cancel_jobs(log.unfinished(system)):
            yield f"session {name} had left jobs: {', '.join(jobs)} cancelled"


def _find_owner(log: Log) -> int | None:
    """Return the user whom a session belongs to; None if it has been removed, as an empty one is."""
    try:
        return log.path.lstat().st_uid
    except FileNotFoundError:
        return None
