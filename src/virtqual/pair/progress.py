"""What is shown while commands are measured: a line for each pair, and a line below them on a terminal."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

from rich.console import Console
from rich.live import Live
from rich.text import Text

from virtqual.files.wording import pluralize
from virtqual.pair.plan import Plan
from virtqual.pair.table import Answer, Measured
from virtqual.report.terminal import format_duration
from virtqual.verdict.notation import describe_slowdown, format_percent, format_value, sign_of
from virtqual.verdict.pairs import SIDES, Side
from virtqual.verdict.rule import LOOKS, MIN_PAIRS_TO_QUALIFY

#: After this time it is said that a first run goes on.
REMIND_S = 60.0


class Progress:
    """Shows progress on standard error: standard output is for the verdict."""

    def __init__(self, console: Console, names: tuple[str, str]) -> None:
        self._console = console
        self._names = names
        self._live: Live | None = None
        self._status = ""
        self._began = 0.0
        #: Seconds that each pair took.
        self._took: list[float] = []
        self._pair_began = 0.0
        self._left = 0
        #: Pairs of earlier times.
        self._done = 0

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live = Live(console=self._console, get_renderable=self._render, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()
            self._live = None

    def _render(self) -> Text:
        if not self._status:
            return Text("")
        text = f"{self._status}, {format_duration(time.monotonic() - self._began)}"
        if self._took and self._left:
            rest = format_time(self._left * self.mean_s)
            text += f"; {pluralize(self._left, 'more pair')} to the next look, {rest}"
        # A line that is too long would move the others.
        return Text(f"  {text}", style="dim", no_wrap=True, overflow="ellipsis")

    @property
    def mean_s(self) -> float:
        """How long a pair takes."""
        return sum(self._took) / len(self._took)

    def _say(self, line: str, style: str = "") -> None:
        self._console.print(Text(line, style=style), soft_wrap=True)

    def name(self, side: Side) -> str:
        """The name of a side."""
        return self._names[SIDES.index(side)]

    def introduce(self, plan: Plan, file: str, answer: Answer | None) -> None:
        """Show what is compared, where the pairs are written, and how many there are already."""
        self._done = answer.valid if answer else 0
        width = max(map(len, plan.names))
        for name, command in zip(plan.names, plan.commands, strict=True):
            self._say(f"{name:<{width}}  {command}")
        what = [f"{metric.name} in {metric.unit}, {metric.better} is better" for metric in plan.metrics]
        what += [f"what {reader} prints" for reader in plan.readers]
        allowed = f"at most {format_percent(plan.budget)} slower, margin {format_percent(plan.margin)}"
        self._say(f"{'; '.join(what) or 'wall time'}; {allowed}", "dim")
        there = f", which has {pluralize(self._done, 'pair')}" if answer else ""
        self._say(f"pairs go to {file}{there}", "dim")
        if not plan.note:
            self._say("without --note, what differs between the machines is not recorded", "dim")
        for text in plan.list_other_prefixes():
            self._say(text, "yellow")

    def begin(self, what: str, side: Side, left: int = 0) -> None:
        """Show that a run begins, and how many pairs follow before the next look."""
        self._status, self._began, self._left = f"{what}, {self.name(side)} runs", time.monotonic(), left
        if not self._pair_began:
            self._pair_began = self._began

    @contextmanager
    def remind(self, side: Side, limit_s: float | None, *, is_first: bool) -> Iterator[None]:
        """Say after a minute that a run goes on, if it is a first one: nobody knows yet how long it takes."""
        end = "--timeout TIME would limit it" if limit_s is None else f"it is ended after {limit_s:g} s"
        text = f"  {self.name(side)} is still running; Ctrl-C ends the measurement, {end}"
        timer = Timer(REMIND_S, self._say, (text, "yellow"))
        timer.daemon = True
        if is_first:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def complete(self, answer: Answer) -> None:
        """Show that no run is left to do."""
        why = "no more pairs are allowed" if answer.verdict.needs else "the measurement is complete"
        self._say(f"nothing was run: {why}")

    def warm_up(self, side: Side, run: Measured, last_lines: Sequence[str]) -> None:
        """Show a warm-up that has ended, of a lost one the end of its output."""
        self._status, self._pair_began = "", 0.0
        ended = f"lost, {run.lost}" if run.lost else format_time(run.end - run.start)
        self._say(f"warm-up {self.name(side)}: {ended}", "yellow" if run.lost else "dim")
        self.say_lines(last_lines)

    def lost(self, side: Side, number: int, run: Measured, last_lines: Sequence[str], file: Path) -> None:
        """Show a run that was lost, with the end of its output and the file that has all of it."""
        self._say(f"pair {number:<3} {self.name(side)} lost, {run.lost}", "yellow")
        self.say_lines(last_lines)
        if last_lines:
            self._say(f"    (all of it: {file} and .err)", "dim")

    def say_lines(self, lines: Sequence[str]) -> None:
        """Show lines that a run printed."""
        for line in lines:
            self._say(f"    {line}", "dim")

    def pair(self, number: int, runs: Sequence[Measured]) -> None:
        """Show a pair that has ended, and after the first one how long all of them may take."""
        self._took.append(time.monotonic() - self._pair_began)
        self._status, self._pair_began = "", 0.0
        if not any(run.lost for run in runs):
            self._say(f"pair {number:<3} {self._describe_pair(runs)}")
        if len(self._took) == 1:
            self._say(f"  {self._describe_rest()}", "dim")

    def _describe_rest(self) -> str:
        """Return how long a pair takes, and how long those up to the first answer and to the last look."""
        least, most = (count - self._done for count in (MIN_PAIRS_TO_QUALIFY, LOOKS[-1]))
        text = f"a pair takes {format_time(self.mean_s)}: "
        if least > 1:
            text += f"{format_time(least * self.mean_s)} if {MIN_PAIRS_TO_QUALIFY} pairs are enough, "
        return f"{text}{format_time(max(most, 1) * self.mean_s)} if it takes {LOOKS[-1]}"

    def _describe_pair(self, runs: Sequence[Measured]) -> str:
        """Return the values of a pair in the order of its runs, of the first metric at its first size."""
        key, values = next(iter(runs[0].values.items()))
        size = next(iter(values))
        by_side = {run.side: run.values[key][size] for run in runs}
        shown = ", then ".join(f"{self.name(side)} {format_value(value)}" for side, value in by_side.items())
        log = sign_of(key.better) * math.log(by_side["virtual"] / by_side["native"])
        at = "" if size is None else f" at {format_value(size)}"
        return f"{shown} {key.unit}{at}: {self.name('virtual')} {describe_slowdown(log, key.better)}"

    def look(self, answer: Answer) -> None:
        """Show the answer after a look, and what comes next."""
        outcome = answer.verdict.outcome.value
        if answer.order:
            next_pairs = f"{len(answer.order)} more pair{'s' * (len(answer.order) > 1)}"
            self._say(f"  after {pluralize(answer.valid, 'pair')}: {outcome}, {next_pairs}", "dim")


def format_time(seconds: float) -> str:
    """Return a time with three digits.

    Examples
    --------
    >>> format_time(0.0123), format_time(2.345), format_time(75)
    ('12.3 ms', '2.35 s', '75 s')
    """
    if seconds < 0.9995:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 10 else format_duration(seconds)
