"""The log of a session: one line of JSON for everything that happened, appended at once and never changed.

Whatever dies - a VM, Slurm's controller, ReFrame, virtqual itself - what was measured before is in the log.
Several processes append to it: virtqual, and the ReFrame that it started.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from virtqual.errors import InfrastructureError, UsageError
from virtqual.files import reading
from virtqual.files.records import first_mistake, write_whole
from virtqual.runs import Run
from virtqual.session.session import SCHEMA, Failure, Head, Loss, Resumption, Round, Session

LOG, DOCUMENT = "log.jsonl", "session.json"


class _Event(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Begun(_Event):
    """The first line of every log."""

    event: Literal["begun"] = "begun"
    head: Head


class RoundBegun(_Event):
    """ReFrame was started."""

    event: Literal["round"] = "round"
    round: Round


class Submitted(_Event):
    """A job was handed to the scheduler: whoever finds the log can look for it.

    Attributes
    ----------
    held
        Whether it is an allocation, in which others run.
    """

    event: Literal["submitted"] = "submitted"
    job: str
    case: str
    submitted: float
    held: bool = False


class Finished(_Event):
    """A run was finished, and its output is sound."""

    event: Literal["finished"] = "finished"
    run: Run


class WarmedUp(_Event):
    """A run before the first pair was finished: its job has ended, and none of its values is kept."""

    event: Literal["warmed-up"] = "warmed-up"
    job: str
    case: str


class Failed(_Event):
    """A case left no run."""

    event: Literal["failed"] = "failed"
    failure: Failure


class Released(_Event):
    """An allocation that the session held was given back."""

    event: Literal["released"] = "released"
    job: str


class Returned(_Event):
    """Nodes that were lost can run jobs again, or the session goes on without them.

    What their round left unfinished will be run again, the cases that failed in it, too: a program ends oddly
    on a node that dies.
    """

    event: Literal["returned"] = "returned"
    loss: Loss


class Resumed(_Event):
    """The session goes on after it had ended, however it ended: all its jobs were cancelled before.

    What failed of the infrastructure before it will be run again, as after `Returned`.
    """

    event: Literal["resumed"] = "resumed"
    resumption: Resumption


class Concluded(_Event):
    """The session as it was judged; the runs stand in the lines before."""

    event: Literal["concluded"] = "concluded"
    session: Session


Event = (
    Begun | RoundBegun | Submitted | Finished | WarmedUp | Failed | Released | Returned | Resumed | Concluded
)
_EVENTS: dict[str, type[Event]] = {model.model_fields["event"].default: model for model in get_args(Event)}


@dataclass(frozen=True)
class Log:
    """The log of the session in a directory."""

    directory: Path

    @property
    def path(self) -> Path:
        """The file."""
        return self.directory / LOG

    def append(self, event: Event) -> None:
        """Append an event, in one write that reaches the disk before this returns.

        Raises
        ------
        InfrastructureError
            It could not be written, and where: a full disk, for one.
        """
        line = event.model_dump_json(by_alias=True).encode() + b"\n"
        try:
            with self.path.open("ab", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                # What a writer that died in the middle of a line has left is ended, and read as nothing.
                if file.tell() and not _ends_a_line(self.path):
                    line = b"\n" + line
                written = file.write(line)
                if written != len(line):
                    raise OSError(f"{written} of {len(line)} bytes were written; is the disk full?")
                os.fsync(file.fileno())
        except OSError as error:
            why = error.strerror or str(error)
            raise InfrastructureError(f"{self.path}: the session's log cannot be written: {why}") from error

    def events(self) -> Iterator[Event]:
        """Yield what happened, in its order; a line that is not whole was never written.

        Raises
        ------
        UsageError
            There is no log, it is of another version, or a whole line of it is none of a session's.
        """
        try:
            lines = reading.bytes_of(self.path, reading.RECORD).split(b"\n")
        except OSError as error:
            raise UsageError(f"{self.path}: no session ({error.strerror})") from error
        for number, line in enumerate(lines, 1):
            try:
                content = json.loads(line)
            except ValueError:
                # The broken end of a write, which the next writer has ended with a line feed.
                continue
            yield self._event(content, line, number)

    def _event(self, content: Any, line: bytes, number: int) -> Event:
        kind = content.get("event") if isinstance(content, dict) else None
        if kind not in _EVENTS:
            raise UsageError(f"{self.path}:{number}: no line of a session's log")
        model = _EVENTS[kind]
        try:
            return model.model_validate_json(line)
        except ValidationError as error:
            why = first_mistake(error, model, line.decode("utf-8", "replace"))
            if any(problem["loc"][-1:] == ("schema",) for problem in error.errors()):
                why = f"no log of this version ({SCHEMA}): begin a new session with this virtqual"
            raise UsageError(f"{self.path}:{number}: {why}") from None

    def session(self) -> Session:
        """Return the session that the log tells, as far as it has come.

        Raises
        ------
        UsageError
            See `events`; or the log does not begin with a session.
        """
        head: Head | None = None
        concluded: Session | None = None
        rounds: dict[int, Round] = {}
        runs: dict[tuple[str, int, str, str], Run] = {}
        failures: list[Failure] = []
        # Those of the last round.
        recent: list[Failure] = []
        lost: list[Loss] = []
        resumed: list[Resumption] = []
        for event in self.events():
            match event:
                case Begun():
                    head = event.head
                case RoundBegun():
                    if event.round.number not in rounds:
                        recent.clear()
                    rounds[event.round.number] = event.round
                case Finished(run=run):
                    runs.setdefault((run.check, run.pair, run.side, run.job), run)
                case Failed():
                    failures.append(event.failure)
                    recent.append(event.failure)
                case Returned() | Resumed():
                    failures = [one for one in failures if not _cut_off(one, recent)]
                    if isinstance(event, Returned):
                        lost.append(event.loss)
                    else:
                        resumed.append(event.resumption)
                        concluded = None
                case Concluded():
                    concluded = event.session
        if head is None:
            raise UsageError(f"{self.path}: no session (its first line is missing)")
        known = {
            "rounds": list(rounds.values()),
            "runs": sorted(runs.values(), key=lambda run: run.start),
            "failures": failures,
            "lost": lost,
            "resumed": resumed,
        }
        if concluded is not None:
            return concluded.model_copy(update=known)
        return Session(**head.model_dump(by_alias=True), **known)

    def conclude(self, session: Session) -> None:
        """Append what the session comes to, and write ``session.json`` from the whole log."""
        bare = session.model_copy(
            update={"rounds": [], "runs": [], "failures": [], "lost": [], "resumed": []}
        )
        self.append(Concluded(session=bare))
        self.write()

    def reopen(self) -> None:
        """Take away ``session.json``: a session that goes on is none that is concluded."""
        (self.directory / DOCUMENT).unlink(missing_ok=True)

    def write(self) -> Path:
        """Write ``session.json`` as the log tells it, whole or not at all."""
        return write_whole(self.session(), self.directory / DOCUMENT, indent=1)

    def submitted(self, system: str) -> dict[str, float]:
        """Return all jobs of a log of whatever version, if it is of that system, with the time of submission.

        It may be broken, or lack its first line: nothing could have run then.
        """
        lines, jobs = self.path.read_bytes().split(b"\n"), dict[str, float]()
        for number, line in enumerate(lines):
            with suppress(ValueError, KeyError, TypeError):
                event = json.loads(line)
                if number == 0 and event["head"]["system"] != system:
                    return {}
                if event["event"] == "submitted":
                    jobs[str(event["job"])] = float(event["submitted"])
        return jobs

    def unfinished(self) -> dict[str, float]:
        """Return the jobs of which the log has no end, with the time of submission (since the epoch)."""
        jobs: dict[str, float] = {}
        allocations: set[str] = set()
        for event in self.events():
            match event:
                case Submitted():
                    jobs[event.job] = event.submitted
                    allocations |= {event.job} if event.held else set()
                case Finished():
                    jobs.pop(event.run.job, None)
                case WarmedUp() | Released():
                    jobs.pop(event.job, None)
                case Failed():
                    jobs.pop(event.failure.job, None)
                case Returned():
                    # Nobody waits for what the loss has cut off; an allocation that is held is released.
                    jobs = {job: at for job, at in jobs.items() if job in allocations}
                case Resumed():
                    # It was cancelled before.
                    jobs.clear()
        return jobs


def _cut_off(one: Failure, recent: Sequence[Failure]) -> bool:
    """Return whether a case failed since a node, or the session, was lost."""
    return one.kind == "infrastructure" or (one.kind == "failed" and one in recent)


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
