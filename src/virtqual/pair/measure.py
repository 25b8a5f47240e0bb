"""Measure two commands in turns, until the rule has an answer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from virtqual.errors import InfrastructureError, UsageError
from virtqual.files.records import write_file
from virtqual.pair.metrics import WALL_TIME, Output, SeriesKey, UnreadError, Values, read_values
from virtqual.pair.notes import Note, find_hosts, take_note
from virtqual.pair.plan import Files, Plan
from virtqual.pair.progress import Progress
from virtqual.pair.runner import Clock, Finished, read_output, run_command
from virtqual.pair.table import (
    ROLES,
    Answer,
    Measured,
    Shapes,
    Table,
    first_order,
    judge_series,
    read_shapes,
    shapes_of,
)
from virtqual.verdict.labels import Labels
from virtqual.verdict.pairs import SIDES, Side

#: Warm-ups of one side that may be lost in a row: a command that hangs in one run of ten is measured.
MAX_LOST_WARM_UPS = 3
#: Without --timeout a run may take so long, or so many times as long as the longest one that ended well.
LEAST_LIMIT_S, LIMIT_FACTOR = 600.0, 10.0
#: The outputs of runs that ended well are kept up to this size.
MAX_KEPT_BYTES = 2**20


@dataclass(frozen=True)
class Limits:
    """What may be changed when a measurement is resumed."""

    #: None: `LEAST_LIMIT_S`, or `LIMIT_FACTOR` times the longest run.
    timeout_s: float | None = None
    #: Pairs that are run at least, and at most.
    min_runs: int = 0
    max_runs: int | None = None


@dataclass
class Measurement:
    """The pairs of two commands, as they are measured."""

    plan: Plan
    files: Files
    limits: Limits
    progress: Progress
    table: Table = field(init=False)
    #: The last answer; None before the first pair.
    answer: Answer | None = None
    #: Empty until a run has shown them.
    shapes: Shapes = field(default_factory=dict)
    notes: list[tuple[Note, Note]] = field(default_factory=list)
    _clock: Clock = field(default_factory=Clock)
    _longest_s: float = 0.0
    #: Lost runs of a time when it was not known yet which values they lack.
    _unwritten: list[tuple[int, Sequence[Measured]]] = field(default_factory=list)
    _number: int = 0

    def __post_init__(self) -> None:
        self.table = Table(self.files.table)
        self.notes = [*self.plan.notes]

    def run(self) -> None:
        """Measure until the rule has an answer, or no more pairs are allowed.

        Raises
        ------
        KeyboardInterrupt
            A person, or the scheduler of this job, ended it; what was measured is in the table.
        """
        self.files.outputs.mkdir(exist_ok=True)
        self.table.begin()
        self.judge()
        self.progress.introduce(self.plan, str(self.table.file), self.answer)
        if self.answer is not None and not self.answer.order:
            self.progress.complete(self.answer)
            return
        self._note()
        self._warm_up()
        order = self.answer.order if self.answer else first_order()
        while order:
            for done, letter in enumerate(order, start=1):
                self._run_pair(SIDES if letter == "N" else SIDES[::-1], left=len(order) - done)
            self.judge()
            assert self.answer is not None  # a pair was run
            order = self.answer.order
            self.progress.look(self.answer)
        if self.plan.note:
            self._note()

    def judge(self) -> None:
        """Judge what is in the table."""
        if series := self.table.read(self._read_reasons(), Labels(*self.plan.names)):
            plan, limits = self.plan, self.limits
            self.answer = judge_series(series, plan.budget, plan.margin, limits.min_runs, limits.max_runs)
            self.shapes = self.shapes or read_shapes(series)
            self._number = max(self._number, self.answer.number)

    def _note(self) -> None:
        """Take notes of both sides, if that was asked for."""
        if self.plan.note:
            reference, candidate = (take_note(prefix) for prefix in self.plan.note)
            self.notes.append((reference, candidate))
            self.files.save_plan(self.plan.model_copy(update={"notes": tuple(self.notes)}))

    def _warm_up(self) -> None:
        """Run each command before the first pair, which would else read its files from the disk."""
        for side in SIDES:
            for _ in range(self.plan.warmup):
                self._warm_up_once(side)

    def _warm_up_once(self, side: Side) -> None:
        for attempt in range(1, MAX_LOST_WARM_UPS + 1):
            self.progress.begin("warm-up", side)
            run, finished = self._run(side, f"warm-up-{ROLES[side]}", is_warm_up=True)
            self.progress.warm_up(side, run, find_last_lines(finished) if run.lost else [])
            if not run.lost:
                return
            self._keep_lost(f"warm-up-{ROLES[side]}", f"{self._number}-{ROLES[side]}", run)
            # It is the only run of its number: its row says that a run was lost.
            self._write([run])
            if attempt == MAX_LOST_WARM_UPS or "not found" in run.lost:
                times = "" if attempt == 1 else f" {attempt} times"
                name = self.progress.name(side)
                raise InfrastructureError(f"the warm-up of {name} was lost{times}: {run.lost}")

    def _run_pair(self, sides: Sequence[Side], left: int) -> None:
        """Run the two sides of a pair, and add it to the table."""
        runs: list[Measured] = []
        try:
            for side in sides:
                self.progress.begin(f"pair {self._number}", side, left)
                name = f"{self._number}-{ROLES[side]}"
                run, finished = self._run(side, name)
                if run.lost:
                    self._keep_lost(name, name, run)
                    self.progress.lost(side, self._number, run, find_last_lines(finished), finished.stdout)
                runs.append(run)
        except BaseException:
            # Without its peer a run says nothing, but that it was lost.
            self._write([run for run in runs if run.lost])
            raise
        number = self._number
        self._write(runs)
        self.progress.pair(number, runs)

    def _run(self, side: Side, name: str, *, is_warm_up: bool = False) -> tuple[Measured, Finished]:
        """Run the command of a side, and read what it printed."""
        index = SIDES.index(side)
        self._prepare(index)
        limit_s = self._choose_limit()
        with self.progress.remind(side, limit_s, is_first=is_warm_up or limit_s is None):
            finished = run_command(
                self.plan.commands[index],
                self.files.outputs / name,
                self._clock,
                limit_s,
                any_code=self.plan.ignore_failure,
            )
        values, lost = Values(), finished.lost
        if not lost:
            self._longest_s = max(self._longest_s, finished.seconds)
            try:
                values = self._read(finished)
                lost = self._compare(values, side, is_warm_up=is_warm_up)
            except UnreadError as error:
                lost = str(error)
                if is_warm_up:
                    self.progress.say_lines(find_last_lines(finished))
                    name = self.progress.name(side)
                    raise UsageError(f"the output of {name} cannot be read: {lost}") from None
        if not lost:
            _drop_large(finished)
        note = self.notes[-1] if self.notes else (Note(), Note())
        node, host, boot = note[index].node, find_hosts(note)[index], note[index].boot
        measured = Measured(side, finished.start, finished.end, values, lost, node, host, boot)
        return measured, finished

    def _choose_limit(self) -> float | None:
        """Return how long a run may take: without --timeout the first one of a side takes what it takes."""
        if self.limits.timeout_s is not None:
            return self.limits.timeout_s
        return max(LEAST_LIMIT_S, LIMIT_FACTOR * self._longest_s) if self._longest_s else None

    def _prepare(self, index: int) -> None:
        """Run the command that prepares a run, which is not part of its time."""
        if not self.plan.prepare:
            return
        command = self.plan.prepare[index]
        finished = run_command(command, self.files.outputs / "prepare", self._clock, self.limits.timeout_s)
        if finished.lost:
            self.progress.say_lines(find_last_lines(finished))
            raise InfrastructureError(f"--prepare '{command}' failed: {finished.lost}")

    def _read(self, finished: Finished) -> Values:
        """Return the values of a run that ended well."""
        if self.plan.measures_time:
            return {WALL_TIME: {None: round(finished.seconds, 6)}}
        output = Output(read_output(finished.stdout), read_output(finished.stderr))
        return read_values(output, self.plan.metrics, self.plan.readers)

    def _compare(self, values: Values, side: Side, *, is_warm_up: bool) -> str:
        """Return which values a run lacks that others have; the first run shows what there is."""
        if not self.shapes:
            self.shapes = shapes_of(values)
            return ""
        lacking = [
            _describe_value(key, size)
            for key, sizes in self.shapes.items()
            for size in sizes
            if size not in values.get(key, {})
        ]
        more = values.keys() - self.shapes.keys() if is_warm_up else set()
        if is_warm_up and (lacking or more):
            only = lacking[0] if lacking else _describe_value(next(iter(more)), None)
            names = self.plan.names
            raise UsageError(
                f"{names[0]} and {names[1]} print different values: only one of them has {only}. Both "
                "have to run the same program with the same options"
            )
        return (
            f"has no {lacking[0]}" + f" and {len(lacking) - 1} more" * (len(lacking) > 1) if lacking else ""
        )

    def _keep_lost(self, name: str, kept_name: str, run: Measured) -> None:
        """Keep the output of a lost run, and why it was lost, under the number of its pair."""
        outputs = self.files.outputs
        for kind in ("out", "err"):
            if name != kept_name:
                (outputs / f"{name}.{kind}").replace(outputs / f"{kept_name}.{kind}")
        try:
            write_file(f"{run.lost}\n", outputs / f"{kept_name}.lost")
        except OSError as error:
            raise InfrastructureError(f"{outputs}: {error.strerror}") from error

    def _read_reasons(self) -> dict[tuple[int, Side], str]:
        """Return why runs were lost, by number of the pair and side."""
        reasons: dict[tuple[int, Side], str] = {}
        sides = {role: side for side, role in ROLES.items()}
        for file in self.files.outputs.glob("*.lost"):
            number, _, role = file.stem.partition("-")
            with suppress(OSError):
                if number.isdigit() and role in sides:
                    reasons[int(number), sides[role]] = file.read_text(
                        encoding="utf-8", errors="replace"
                    ).strip()
        return reasons

    def _write(self, runs: Sequence[Measured]) -> None:
        """Add runs of one number to the table, or keep them until a run has shown which values there are."""
        if not runs:
            return
        self._unwritten.append((self._number, runs))
        self._number += 1
        if self.shapes:
            for number, earlier in self._unwritten:
                self.table.append(number, earlier, self.shapes)
            self._unwritten.clear()


def _describe_value(key: SeriesKey, size: float | None) -> str:
    setting = f" ({key.setting})" if key.setting else ""
    return f"{key.metric}{setting}" + ("" if size is None else f" at size {size:g}")


def _drop_large(finished: Finished) -> None:
    """Remove the outputs of a run that are large or empty."""
    for file in (finished.stdout, finished.stderr):
        if not 0 < file.stat().st_size <= MAX_KEPT_BYTES:
            file.unlink()


def find_last_lines(finished: Finished, count: int = 5) -> list[str]:
    """Return the last lines that a run printed, of standard error if it printed anything there."""
    for file in (finished.stderr, finished.stdout):
        if lines := read_output(file).rstrip().splitlines():
            return [line[:200] for line in lines[-count:]]
    return []
