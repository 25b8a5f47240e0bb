"""The log of a session: one line of JSON for everything that happened, appended at once and never changed.

Runs that were measured stay in the log if a VM, Slurm's controller, ReFrame or virtqual dies.
Several processes append to it: virtqual, and the ReFrame that it started.  Each line is sealed
(`virtqual.session.seal`), so that a damaged line is refused; facts that runs share are written once
(`virtqual.session.shared`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from virtqual import paths
from virtqual.errors import DamagedError, InfrastructureError, UsageError
from virtqual.files import reading
from virtqual.files.locking import hold_lock
from virtqual.files.records import sync_directory, write_file
from virtqual.files.wording import describe_first_mistake
from virtqual.identity import Identity
from virtqual.runs import HostName, Name, Run
from virtqual.session.seal import SEAL_BYTES, intact_lines, seal, sealed_crc
from virtqual.session.session import (
    Conclusion,
    Failure,
    Head,
    Loss,
    Resumption,
    Round,
    Session,
    SessionDocument,
)
from virtqual.session.shared import MAX_VALUES, Facts, compact, count_values, expect, load_strictly, refer
from virtqual.session.verified import remember
from virtqual.stack.loaded import LoadedSoftware
from virtqual.verdict.pairs import Side

ModelT = TypeVar("ModelT", bound=BaseModel)

LOG, DOCUMENT = "log.jsonl", "session.json"


class _Event(BaseModel, extra="forbid", frozen=True):
    """A line of a log."""


class Begun(_Event):
    """The first line of every log."""

    event: Literal["begun"] = "begun"
    head: Head


class RoundBegun(_Event):
    """ReFrame was started."""

    event: Literal["round"] = "round"
    round: Round


class Probed(_Event):
    """One node of each partition, as it was before the first run."""

    event: Literal["probed"] = "probed"
    nodes: dict[Side, Identity]


class FactsWritten(_Event):
    """Parts of later lines, which refer to them by their digests; see `virtqual.session.shared`."""

    event: Literal["facts"] = "facts"
    zlib: str


class Submitted(_Event):
    """A job was handed to the scheduler: a reader of the log can look for it."""

    event: Literal["submitted"] = "submitted"
    job: str
    case: str
    submitted: float
    #: It is an allocation, in which other jobs run.
    held: bool = False


class Finished(_Event):
    """A run was finished, and its output is sound."""

    event: Literal["finished"] = "finished"
    run: Run


class WarmedUp(_Event):
    """A run before the first pair was finished: its job has ended, and its values are not stored."""

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


class SetAside(_Event):
    """Nodes were lost, and the session goes on without them.

    The unfinished and the failed cases of their round are run again: a program on a node that dies may fail
    in any way.
    """

    event: Literal["set-aside"] = "set-aside"
    loss: Loss


class Resumed(_Event):
    """The session goes on after it had ended, however it ended: all its jobs were cancelled before.

    Cases that failed because of the infrastructure are run again, and so are those of the last round whose
    program failed, unless a run that was begun later ended well: the end of the session may be the cause.
    """

    event: Literal["resumed"] = "resumed"
    resumption: Resumption


class Concluded(_Event):
    """The conclusion of the session; its runs stand in the lines before."""

    event: Literal["concluded"] = "concluded"
    conclusion: Conclusion


Event = (
    Begun
    | RoundBegun
    | Probed
    | FactsWritten
    | Submitted
    | Finished
    | WarmedUp
    | Failed
    | Released
    | SetAside
    | Resumed
    | Concluded
)
#: The events by their names in lines.
EVENTS: dict[str, type[Event]] = {model.model_fields["event"].default: model for model in get_args(Event)}
#: Events that change no judgement, or come after it; lines name facts by their digests.
NOT_IN_DIGEST = (Probed, FactsWritten, Released, Concluded)
#: Fields that the runs of a case have alike on the same nodes.
_SETUP = (
    *("check", "nodes", "hosts", "inputs", "software", "identity", "results", "answers"),
    *("clock", "repetitions", "stack", "stack_hash", "reference"),
)


def _digest(content: bytes) -> str | None:
    """Return the SHA-256 of a log up to its last conclusion; None if it has none."""
    start = content.rfind(b'{"event":"concluded"')
    end = content.find(b"\n", start) + 1
    return hashlib.sha256(content[:end]).hexdigest() if start >= 0 and end else None


@dataclass
class _Failures:
    """The failures of a session, without those whose cases are run again.

    The loss of a node, or the end of the session, makes cases of its round fail.
    """

    #: With their rounds.
    all: list[tuple[int, Failure]] = field(default_factory=list)
    dropped: list[tuple[int, Failure]] = field(default_factory=list)
    #: How many there were when a job was submitted, and when the last job was that ended well.
    _before: dict[str, int] = field(default_factory=dict)
    _settled: int = 0

    def follow(self, event: Event, number: int) -> None:
        """Take over what an event of a round says of failures."""
        match event:
            case Submitted():
                self._before[event.job] = len(self.all)
            case Finished():
                self._settled = max(self._settled, self._before.get(event.run.job, 0))
            case Failed():
                self.all.append((number, event.failure))
            case SetAside():
                self._drop(number, 0)
            case Resumed():
                self._drop(number, 0 if event.resumption.node_lost else self._settled)

    def _drop(self, number: int, settled: int) -> None:
        """Remove failures of the infrastructure, and those of programs in a round but for the first ones."""
        kept = [
            failure.kind != "infrastructure"
            and (index < settled or (failure.kind, of_round) != ("failed", number))
            for index, (of_round, failure) in enumerate(self.all)
        ]
        self.dropped += [entry for entry, is_kept in zip(self.all, kept, strict=True) if not is_kept]
        self.all = [entry for entry, is_kept in zip(self.all, kept, strict=True) if is_kept]
        self._before, self._settled = {}, 0


class _Digests:
    """The digests of the lines on which a judgement depends, as far as a log was read."""

    def __init__(self, head: Head, line: bytes) -> None:
        # A session keeps them under another id.
        self.measured = hashlib.sha256(line.replace(head.session.encode(), b"", 1))
        self.runs = self.measured.copy()
        #: No line follows the last conclusion that changes it.
        self.is_complete = False

    def follow(self, event: Event, line: bytes) -> None:
        """Take over the line of an event."""
        if not isinstance(event, NOT_IN_DIGEST):
            self.measured.update(line)
        if isinstance(event, Finished | Failed):
            self.runs.update(line)
        # The job alone, without a run or a failure, changes no judgement.
        is_harmless = isinstance(event, (*NOT_IN_DIGEST, Submitted, WarmedUp))
        self.is_complete = isinstance(event, Concluded) or (self.is_complete and is_harmless)


@dataclass(frozen=True)
class Log:
    """The log of the session in a directory."""

    directory: Path
    #: The facts in the file.
    _facts: Facts = field(default_factory=Facts, init=False, repr=False, compare=False)

    @property
    def path(self) -> Path:
        """The file."""
        return self.directory / LOG

    def append(self, event: Event) -> None:
        """Append an event, in one write that reaches the disk before this returns.

        Raises
        ------
        InfrastructureError
            The event cannot be written, e.g. to a full disk, or the log would be too large to be read.
        """
        facts: dict[str, str] = {}
        lines = [_encode(event, facts)]
        if facts and not self._facts.contents:
            self._read_facts()
        try:
            if new_facts := self._facts.pack_new(facts):
                lines.insert(0, _encode(FactsWritten(zlib=new_facts), {}))
            with hold_lock(self.path, os.O_APPEND) as file:
                end, crc = self._find_end(file)
                _write(file, end, seal(lines, crc))
            if end == 0:
                sync_directory(self.directory)
        except OSError as error:
            why = error.strerror or str(error)
            raise InfrastructureError(f"{self.path}: the session's log cannot be written: {why}") from error
        if new_facts:
            self._facts.unpack(new_facts)

    def _read_facts(self) -> None:
        if self.path.exists():
            for _, line in intact_lines(self._read(), str(self.path), lenient=True):
                # Runs are not read: each round begins here.
                if line.startswith(b'{"event":"facts"'):
                    with suppress(ValueError, KeyError, TypeError):
                        self._facts.unpack(load_strictly(line)["zlib"])

    def _find_end(self, descriptor: int) -> tuple[int, int]:
        """Return the position after the last whole line of the file, and the checksum in its seal."""
        start = os.fstat(descriptor).st_size
        while start:
            start = max(0, start - 2**16)
            feed = os.pread(descriptor, 2**16, start).rfind(b"\n")
            if feed >= 0:
                end = start + feed
                crc = sealed_crc(os.pread(descriptor, SEAL_BYTES, max(0, end - SEAL_BYTES)))
                if crc is None:
                    raise DamagedError(str(self.path), "the last one has no checksum")
                return end + 1, crc
        return 0, 0

    def _read(self) -> bytes:
        try:
            return reading.read_bytes(self.path, links=False)
        except OSError as error:
            raise UsageError(f"{self.path}: no session ({error.strerror})") from error

    def events(self, *, lenient: bool = False) -> Iterator[Event]:
        """Yield the events in their order; pass over unreadable lines if `lenient`.

        Raises
        ------
        DamagedError
            A line is not as it was written.
        UsageError
            There is no log, or a line of it is none of a session's.
        """
        return (event for event, _ in self._decode_lines(self._read(), lenient=lenient))

    def read_torn_end(self) -> bytes:
        """Return what follows the last line feed: a line that was not written whole, or was cut."""
        return self._read().rpartition(b"\n")[2]

    def _decode_lines(self, content: bytes, *, lenient: bool = False) -> Iterator[tuple[Event, bytes]]:
        """Yield each event of the file's content with its line, without the seal; see `events`."""
        facts = Facts()
        for number, line in intact_lines(content, str(self.path), lenient=lenient):
            try:
                yield _decode(line, facts), line
            except ValueError as error:
                if not lenient:
                    raise UsageError(f"{self.path}:{number}: {error}") from None

    def session(self) -> Session:
        """Return the session of the log, as far as it has come.

        Raises
        ------
        DamagedError, UsageError
            See `events`; or the log does not begin with a session, or has a run twice with other values.
        """
        content = self._read()
        lines = self._decode_lines(content)
        begun, line = next(lines, (None, b""))
        if not isinstance(begun, Begun):
            raise UsageError(f"{self.path}: no session (its first line is missing)")
        session = Session.model_construct(**dict(begun.head))
        rounds: dict[int, Round] = {}
        runs: dict[tuple[str, int, str, str], Run] = {}
        number, failures, digests = 0, _Failures(), _Digests(begun.head, line)
        for event, line in lines:
            failures.follow(event, number)
            digests.follow(event, line)
            match event:
                case Probed():
                    session.probed = event.nodes
                case RoundBegun():
                    number = event.round.number
                    rounds[number] = event.round
                case Finished():
                    self._add_run(runs, event.run)
                case SetAside():
                    session.lost.append(event.loss)
                case Resumed():
                    session.resumed.append(event.resumption)
                    session.set_conclusion(Conclusion())
                case Concluded():
                    session.set_conclusion(event.conclusion)
        session.rounds, session.failures = list(rounds.values()), [failure for _, failure in failures.all]
        session.cut_off = failures.dropped
        session.runs = sorted(runs.values(), key=lambda run: run.start)
        session.measured, session.measured_runs = digests.measured.hexdigest(), digests.runs.hexdigest()
        session.log_digest, session.is_complete = _digest(content), digests.is_complete
        return session

    def _add_run(self, runs: dict[tuple[str, int, str, str], Run], run: Run) -> None:
        """Add a run that may be in the log twice."""
        if runs.setdefault((run.check, run.pair, run.side, run.job), run) != run:
            raise UsageError(
                f"{self.path}: pair {run.pair} of {run.check}, {run.side}, job {run.job}, stands "
                "twice with different values: one of both was not written by this session"
            )

    def conclude(self, session: Session) -> None:
        """Append the conclusion of a session."""
        self.append(Concluded(conclusion=session.get_conclusion()))
        session.log_digest, session.is_complete = _digest(self._read()), True
        if session.log_digest and paths.is_of_state(self.directory):
            remember(session.log_digest)

    def reopen(self) -> None:
        """Remove ``session.json``: a session that goes on is not concluded."""
        (self.directory / DOCUMENT).unlink(missing_ok=True)

    def write(self) -> Path:
        """Write ``session.json`` from the log, whole or not at all."""
        return write_file(document_of(self.session()), self.directory / DOCUMENT)

    def state(self) -> str:
        """Return a text that changes with each write to the log; empty if there is no log."""
        try:
            status = self.path.lstat()
        except OSError:
            return ""
        # Nobody can set the time of the last change of a file that is copied here.
        return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"

    def unfinished(self, system: str | None = None) -> dict[str, float]:
        """Return the jobs whose end is not in the log, with the time of submission (since the epoch).

        Damaged lines are skipped: a job that is cancelled twice does no harm. There are no jobs if the
        session is one of another system than `system`.
        """
        jobs: dict[str, float] = {}
        allocations: set[str] = set()
        for event in self.events(lenient=True):
            match event:
                case Begun() if system not in (None, event.head.system):
                    return {}
                case Submitted():
                    jobs[event.job] = event.submitted
                    allocations |= {event.job} if event.held else set()
                case Finished():
                    jobs.pop(event.run.job, None)
                case WarmedUp() | Released():
                    jobs.pop(event.job, None)
                case Failed():
                    jobs.pop(event.failure.job, None)
                case SetAside():
                    # The jobs that the loss cut off are not waited for; a held allocation is released.
                    jobs = {job: at for job, at in jobs.items() if job in allocations}
                case Resumed():
                    # It was cancelled before.
                    jobs.clear()
        return jobs


def _write(file: int, end: int, content: bytes) -> None:
    """Append content at the end of the last whole line: a writer that died may have left half a line."""
    if end + len(content) > reading.MAX_RECORD_BYTES:
        limit = reading.MAX_RECORD_BYTES // 2**20
        raise OSError(f"it would be larger than {limit} MiB; begin a new session")
    os.ftruncate(file, end)
    try:
        written = os.write(file, content)
        if written != len(content):
            raise OSError(f"{written} of {len(content)} bytes were written; is the disk full?")
        os.fsync(file)
    except OSError:
        with suppress(OSError):
            os.ftruncate(file, end)
        raise


def document_of(session: SessionDocument) -> str:
    """Return the content of ``session.json``."""
    return session.model_dump_json(by_alias=True, indent=1, include=set(SessionDocument.model_fields)) + "\n"


def _encode(event: Event, facts: dict[str, str]) -> bytes:
    """Return the line of an event; parts that other lines may repeat are added to `facts`."""
    content = event.model_dump(mode="json", by_alias=True, exclude_defaults=not isinstance(event, Begun))
    if isinstance(event, Finished):
        run = content["run"]
        run["values"] = [result.pop("values") for result in run["results"]]
        setup = {name: run.pop(name) for name in _SETUP if name in run}
        setup["results"] = refer(setup["results"], facts)
        setup["identity"] = {node: refer(part, facts) for node, part in setup.get("identity", {}).items()}
        setup["software"] = [
            {"node": part.pop("node"), "loaded": refer(part, facts)} for part in setup.get("software", ())
        ]
        run["setup"] = refer(setup, facts)
    elif isinstance(event, Probed):
        content["nodes"] = {side: refer(node, facts) for side, node in content["nodes"].items()}
    return compact({"event": event.event, **content}).encode()


def _decode(line: bytes, facts: Facts) -> Event:
    """Return the event of a line, and add a fact to `facts`; raise `ValueError` if it is none of a log."""
    if count_values(line) > MAX_VALUES:
        raise ValueError(f"it has more than {MAX_VALUES:,} values")
    content = load_strictly(line)
    kind = content.get("event") if isinstance(content, dict) else None
    model = EVENTS.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise ValueError("no line of a session's log")
    shared: dict[str, Any] = {}
    if model is Finished:
        content["run"], shared = _decode_run(content.get("run"), facts)
    elif model is Probed:
        nodes = expect(content.get("nodes"), dict)
        content["nodes"] = {side: facts.make(_make_identity, node) for side, node in nodes.items()}
    event = _validate(model, content)
    if isinstance(event, FactsWritten):
        facts.unpack(event.zlib)
    if isinstance(event, Finished):
        event = event.model_copy(update={"run": event.run.model_copy(update=shared)})
    return event


def _decode_run(line: Any, facts: Facts) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of `Run` for the content of a line, and the fields that other runs share."""
    run = {**expect(line, dict)}
    setup = facts.make(_make_setup, run.pop("setup", None))
    facts.repeat(setup.size)
    run |= setup.fields
    # A value without a result, or the reverse, is refused.
    run["results"] = [
        {**expect(result, dict), "values": values}
        for result, values in zip_longest(expect(run["results"], list), expect(run.pop("values", None), list))
    ]
    return run, setup.shared


class _Shared(BaseModel, frozen=True):
    """Fields of `Run` that may name thousands of nodes: the runs of a setup share them."""

    nodes: tuple[Name, ...]
    hosts: dict[Name, HostName] = {}
    software: tuple[LoadedSoftware, ...] = ()
    identity: dict[str, Identity] = {}


@dataclass(frozen=True)
class _Setup:
    """The fields of `Run` that the runs of a case have alike."""

    #: Those that each run has by itself; its results lack values, and its nodes are the first one alone.
    fields: dict[str, Any]
    #: The size of these in the log, B.
    size: int
    shared: dict[str, Any]


def _make_setup(content: Any, facts: Facts) -> _Setup:
    setup = {**expect(content, dict)}
    nodes = expect(setup.get("identity"), dict)
    setup["identity"] = {node: facts.make(_make_identity, part) for node, part in nodes.items()}
    programs = []
    for part in expect(setup.get("software"), list):
        loaded = facts.make(_make_loaded, expect(part, dict).get("loaded"))
        programs.append(loaded.model_copy(update={"node": expect(part.get("node"), str)}))
    setup["software"] = programs
    shared = _validate(_Shared, {name: setup.pop(name) for name in _Shared.model_fields if name in setup})
    setup["results"] = facts.look_up(setup.get("results"))
    size = len(compact(setup))
    fields = {**setup, "nodes": shared.nodes[:1]}
    return _Setup(fields, size, {name: getattr(shared, name) for name in _Shared.model_fields})


def _make_loaded(content: Any, facts: Facts) -> LoadedSoftware:
    """Return what some nodes loaded, without the name of a node."""
    return _validate(LoadedSoftware, {**expect(content, dict), "node": ""})


def _make_identity(content: Any, facts: Facts) -> Identity:
    return _validate(Identity, content)


def _validate(model: type[ModelT], content: Any) -> ModelT:
    """Return a model of some content; ValueError names the first mistake."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise ValueError(f"{model.__name__}: {describe_first_mistake(error, model, content)}") from None
