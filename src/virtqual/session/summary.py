"""Summaries of sessions, for lists, nights and histories: years of sessions are read in seconds.

A summary has a file of its own, which can be made again from the log of the session at any time.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from virtqual import paths
from virtqual.errors import UsageError, VirtqualError
from virtqual.files import reading
from virtqual.files.records import write_record
from virtqual.session.facts import facts
from virtqual.session.log import Log
from virtqual.session.session import Conclusion, Request, Session
from virtqual.session.store import MAX_CLOCK_ERROR, find, ids, load
from virtqual.session.verified import read_digests
from virtqual.verdict import Outcome, Verdict
from virtqual.verdict.pairs import Side
from virtqual.verdict.slow_runs import SlowRuns

#: Number of sessions from which the durations of runs are taken.
MAX_RECENT_SESSIONS = 10
#: Directory of all summaries, beside the sessions: a session from elsewhere brings none along.
DIRECTORY = ".summaries"


class CaseDurations(BaseModel, extra="forbid", frozen=True):
    """The durations of the runs of a case, s."""

    medians: dict[Side, float]
    #: None if a run reached its time limit.
    longest: float | None


class Summary(BaseModel, extra="forbid", frozen=True):
    """One session in short; see `virtqual.session.session.Session`."""

    schema_: Literal["virtqual-summary/7"] = Field(alias="schema", default="virtqual-summary/7")
    #: `Log.state` of the log from which it was made.
    log: str = ""
    session: str
    label: str
    created: datetime
    system: str
    hypervisor_class: str
    hypervisor: str
    #: None in a plain run of ReFrame.
    request: Request | None = None
    #: All checks of its scope were requested, enough nodes worked for each, and each has a verdict.
    complete: bool
    runs: int
    outcome: str
    exit_code: int
    conclusion: str
    stack: str = ""
    stack_hash: str = ""
    durations: dict[str, CaseDurations] = {}
    #: By case the metrics that its runs have, each with its setting.
    metrics: dict[str, tuple[tuple[str, str], ...]] = {}
    slow_runs: SlowRuns | None = None
    #: See `virtqual.session.facts`.
    facts: dict[str, str]
    verdicts: tuple[Verdict, ...]
    #: `Session.log_digest`; empty if the log went on after its last conclusion.
    digest: str = ""
    #: Why its conclusion is not believed, if it was judged again.
    doubts: tuple[str, ...] = ()

    @property
    def claims(self) -> bool:
        """It says something of its runs."""
        return self.outcome != Conclusion().outcome

    @property
    def good(self) -> bool:
        """It can be a baseline: its whole scope was judged, and is WITHIN, or BASELINE under its class.

        An OVER that is waived does not count: later sessions would have it accepted without the waiver. Two
        pairs (``--fast``) are too few to compare with.
        """
        good_outcomes = (Outcome.WITHIN, Outcome.BASELINE)
        are_good = all(verdict.outcome in good_outcomes for verdict in self.verdicts)
        is_whole = self.complete and not (self.request and self.request.fast)
        return is_whole and self.exit_code == 0 and bool(self.verdicts) and are_good

    @property
    def answered(self) -> bool:
        """It has ended, and was not interrupted."""
        return self.outcome not in ("UNFINISHED", "INTERRUPTED")

    def covers(self, request: Request) -> bool:
        """Return whether it was asked for all checks that a request asks for."""
        own = self.request
        return bool(
            own
            and own.full >= request.full
            and own.names in ((), request.names)
            and own.tags in ((), request.tags)
        )

    @classmethod
    def of(cls, session: Session, *, log: str = "") -> Summary:
        """Return a session in short."""
        request = session.request
        too_large = session.basis.too_large if session.basis else ()
        omitted = session.refused or too_large
        return cls(
            log=log,
            session=session.session,
            label=session.label,
            created=datetime.fromisoformat(session.created),
            system=session.system,
            hypervisor_class=session.hypervisor_class,
            hypervisor=session.hypervisor,
            request=request,
            complete=bool(request and not (request.names or request.tags or omitted)),
            runs=len(session.runs),
            outcome=session.outcome,
            exit_code=session.exit_code,
            conclusion=session.message,
            stack=session.stack["name"],
            stack_hash=session.stack["hash"],
            durations=durations_of(session),
            metrics=_find_metrics(session),
            slow_runs=session.slow_runs and session.slow_runs.model_copy(update={"lost": ()}),
            facts=facts(session),
            verdicts=tuple(verdict.without_details() for verdict in session.verdicts),
            digest=(session.log_digest or "") * session.is_complete,
        )


def durations_of(session: Session) -> dict[str, CaseDurations]:
    """Return by case how long the runs of a session took."""
    seconds: dict[str, dict[Side, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in session.runs:
        seconds[run.check][run.side].append(run.end - run.start)
    timed_out = {failure.check for failure in session.failures if failure.state == "TIMEOUT"}
    return {
        case: CaseDurations(
            medians={side: statistics.median(values) for side, values in seconds[case].items()},
            longest=None if case in timed_out else max(map(max, seconds[case].values())),
        )
        for case in seconds.keys() | timed_out
    }


def _find_metrics(session: Session) -> dict[str, tuple[tuple[str, str], ...]]:
    metrics: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for run in session.runs:
        metrics[run.check].update((result.metric, result.setting) for result in run.results)
    return {case: tuple(sorted(names)) for case, names in metrics.items()}


def summaries(sessions: Path) -> Iterator[tuple[Path, Summary | VirtqualError]]:
    """Yield every session of a directory in short, the newest first, or the error if it cannot be read."""
    for name in reversed(ids(sessions)):
        directory = sessions / name
        session: Summary | VirtqualError
        try:
            session = summary(directory)
            if session.created > datetime.now(UTC) + MAX_CLOCK_ERROR:
                why = f"it began on {session.created:%Y-%m-%d}, in the future: a clock was wrong"
                session = UsageError(f"{directory}: {why}")
        except VirtqualError as error:
            session = error
        except Exception as error:
            # Report a corrupt session and go on to the next.
            reason = error if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            session = UsageError(f"{directory}: {reason}")
        yield directory, session


def is_believed(found: Summary) -> bool:
    """Return whether a session claims nothing, or its conclusion was drawn or judged again here."""
    return not found.claims or found.digest in read_digests()


def summaries_of(system: str, sessions: Path) -> Iterator[tuple[Path, Summary]]:
    """Yield the sessions of one system that can be read; see `summaries`."""
    for directory, session in summaries(sessions):
        if isinstance(session, Summary) and session.system == system:
            yield directory, session


def find_recent(system: str, stack: str | None = None) -> Iterator[Summary]:
    """Yield the latest sessions of a system, of one stack or of all."""
    of_system = (summary for _, summary in summaries_of(system, paths.sessions()))
    return islice((s for s in of_system if stack in (None, s.stack)), MAX_RECENT_SESSIONS)


def file_of(directory: Path) -> Path:
    """Return the file that has the summary of a session."""
    return directory.parent / DIRECTORY / f"{directory.name}.json"


def read_summary(directory: Path) -> Summary | None:
    """Return the summary of a session from its file, if that was made of the log as it is now."""
    with suppress(OSError, ValidationError):
        stored = Summary.model_validate_json(reading.read_bytes(file_of(directory), links=False))
        if stored.log == Log(directory).state():
            return stored
    return None


def summary(directory: Path) -> Summary:
    """Return a session in short, from its file if that was made of the log as it is now; see `load`."""
    if current := read_summary(directory):
        return current
    state = Log(directory).state()
    new = Summary.of(load(directory), log=state)
    store_summary(new, directory)
    return new


def store_summary(new: Summary, directory: Path) -> None:
    """Write the summary of a session to its file."""
    # The directory of another user's session cannot be written.
    with suppress(OSError):
        file_of(directory).parent.mkdir(mode=paths.directory_mode(), exist_ok=True)
        write_record(new, file_of(directory))


def find_for(name: str, sessions: Path, system: str, compared: Request | None = None) -> Path:
    """Return the directory of a session; ``last`` is the newest one of a system that has a run.

    With the request of a session that will be compared with it, it `Summary.covers` that request: a sweep and
    a session of some checks are left out. Without such a request a session may go on: one whose runs all
    failed counts, too. A `UsageError` says that there is none.
    """
    if name != "last" or not system:
        return find(name, sessions)
    for directory, session in summaries_of(system, sessions):
        if compared is None:
            # One that was killed before it had a run is left out.
            counts = session.runs or session.outcome in ("BROKEN", "INTERRUPTED")
        else:
            counts = session.runs and session.covers(compared)
        if counts:
            return directory
    checks, remedy = "", ""
    if compared:
        checks = " and was asked for all of these checks"
        remedy = "; name another one by its id (`virtqual list`)"
    raise UsageError(
        f"no session of system {system!r} below {sessions} has a run{checks}: there is no 'last'{remedy}"
    )


def find_good(
    sessions: Path, system: str, hypervisor_class: str, stack: str = "", *, full: bool
) -> Iterator[Path]:
    """Yield the sessions of a system, class, stack and scope that are `Summary.good`, the newest first."""
    for directory, session in summaries_of(system, sessions):
        has_scope = session.request is not None and session.request.full == full
        is_alike = session.hypervisor_class == hypervisor_class and stack in ("", session.stack)
        if has_scope and is_alike and session.good:
            yield directory
