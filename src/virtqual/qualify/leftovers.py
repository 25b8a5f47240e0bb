"""What a session that died has left running is ended before the next one begins."""

from __future__ import annotations

from collections.abc import Iterator

from virtqual import paths
from virtqual.session.log import Log
from virtqual.session.session import Session
from virtqual.session.store import readable
from virtqual.site.slurm import cancel


def end_leftovers(system: str) -> Iterator[str]:
    """Cancel the jobs of sessions of a system that were not concluded; yield a sentence for each session.

    The lock of the system is held: whoever ran those sessions is gone.
    """
    for directory, session in readable(paths.sessions()):
        if not isinstance(session, Session) or session.system != system:
            continue
        if session.outcome != "UNFINISHED":
            # Sessions of a system follow each other: before this one, all was looked after.
            return
        log = Log(directory)
        ended = cancel(log.unfinished())
        jobs = (
            f"its jobs {', '.join(ended)} still ran and were cancelled" if ended else "it left no job behind"
        )
        session.outcome, session.exit_code = "BROKEN", 5
        session.conclusion = (
            f"Ended before it was concluded (was it killed?); {jobs}. Its {len(session.runs)} runs are kept."
        )
        log.conclude(session)
        yield f"session {session.session} had ended without a conclusion: {jobs}"
