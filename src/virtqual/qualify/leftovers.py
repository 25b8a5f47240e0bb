"""What a session that died has left running is ended before the next one begins."""

from __future__ import annotations

from collections.abc import Iterator

from virtqual import paths
from virtqual.errors import InfrastructureError
from virtqual.qualify.concluding import broken_by, write_documents
from virtqual.session.session import Conclusion
from virtqual.session.store import unconcluded
from virtqual.site.slurm import cancel


def end_leftovers(system: str) -> Iterator[str]:
    """Cancel the jobs of sessions of a system that were not concluded; yield a sentence for each session.

    The lock of the system is held: whoever ran those sessions is gone.

    Raises
    ------
    InfrastructureError
        Slurm does not answer: whether a job still runs is not known, and the session stays as it is.
    """
    for log in unconcluded(paths.sessions()):
        name = log.directory.name
        if not paths.is_trusted(log.path.lstat()):
            yield f"session {name} belongs to another user: its jobs are left alone"
            continue
        try:
            session = log.session()
        except Exception as error:
            # Damaged, or of a version before an upgrade: nothing is concluded from it, and it hides no other.
            if ended := cancel(log.submitted(system)):
                yield f"session {name} had left jobs: {', '.join(ended)} cancelled; {error}"
            continue
        if session.system != system:
            continue
        if session.outcome == Conclusion().outcome:
            ended = cancel(log.unfinished())
            jobs = (
                f"its jobs {', '.join(ended)} still ran and were cancelled"
                if ended
                else "it left no job behind"
            )
            yield f"session {name} had ended without a conclusion: {jobs}"
            reason = f"it ended before it was concluded (was it killed?); {jobs}"
            session = broken_by(session, InfrastructureError(reason))
            log.conclude(session)
        # Else it ended between its conclusion and its documents.
        try:
            write_documents(log, session)
        except Exception as error:
            yield f"the documents of session {name} cannot be written: {error}"
