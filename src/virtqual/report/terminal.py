"""The output in a terminal: the plan, progress, one table, one sentence."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column, Table
from rich.text import Text

from virtqual.files.wording import printable
from virtqual.harness.progress import CaseEvent
from virtqual.report import preflight
from virtqual.report.console import verbatim
from virtqual.session.session import MAX_LABEL_CHARS, Head, Session
from virtqual.site.placement import word
from virtqual.verdict import Interval, Outcome, Verdict
from virtqual.verdict.outcome import format_range, format_ratio, format_value
from virtqual.verdict.outliers import outliers
from virtqual.verdict.pairs import SIDES
from virtqual.verdict.slow_runs import SlowRuns

_STYLE = {
    "WITHIN": "green",
    "BASELINE": "cyan",
    "OVER": "bold red",
    "UNDECIDED": "yellow",
    "INVALID": "magenta",
}


#: A session from elsewhere may hold megabytes of text, over which a terminal's lines take minutes to break.
MAX_VALUE_CHARS = 4000


class Terminal:
    """Shows a session in 80 columns; without a terminal it prints one line a case, and no colours."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or verbatim()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._began = 0.0
        self._expected: float | None = None
        self._done = self._total = 0
        self._first: float | None = None

    def _say(self, what: RenderableType = "", **how: Any) -> None:
        """Print what people wrote as they wrote it: brackets are no markup."""
        self.console.print(what, markup=False, **how)

    def begin(self, head: Head, notes: Sequence[str]) -> None:
        """Say what will be qualified, how it is judged, and what to know."""
        virtual, placement = head.identity["virtual"], head.placement
        hypervisor, guest = virtual["hypervisor"], virtual["guest"]
        label = f" ({printable(head.label, MAX_LABEL_CHARS)})" if head.label else ""
        self._say(Text().append("virtqual", "bold").append(f" session {head.session}{label}"))
        rows = {
            "hypervisor": head.hypervisor,
            "": f"accelerator {hypervisor['accelerator']}, machine {hypervisor['machine'] or 'not stated'}"
            + (f", guest kernel {guest['kernel']}" if guest.get("kernel") else ""),
            **details(hypervisor["details"]),
            "placement": ", ".join(f"{key} {word(value)}" for key, value in placement.items())
            or "not observable (the VMs' host was not asked)",
            "class": head.hypervisor_class,
            "against": head.against or "nothing earlier",
            "stack": f"{head.stack['name']} ({head.stack['hash']}): "
            + ", ".join(f"{p['name']} {p['version']}" for p in head.stack["programs"]),
        }
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim")
        table.add_column(overflow="fold")
        for key, value in rows.items():
            table.add_row(key, printable(value, MAX_VALUE_CHARS))
        self._say(table)
        for note in notes:
            self._say(Text(note, style="yellow"))

    def note(self, text: str) -> None:
        """Say something that a person should know at once."""
        self._say(Text(text, style="yellow"))

    def round_begins(self, number: int, what: str, seconds: float | None) -> None:
        """Say what this round runs and how long that should take."""
        self._expected, self._began = seconds, time.monotonic()
        self._done, self._total, self._first = 0, 0, None
        when = f"about {_duration(seconds)}" if seconds else "duration not known yet"
        head = Text("\n").append(f"round {number}", "bold")
        self._say(head.append(f"  {what}  ").append(f"({when})", "dim"))
        if self.console.is_terminal:
            self._progress = Progress(
                BarColumn(bar_width=8),
                TextColumn("{task.fields[left]}"),
                # What is too long for the line is cut at the end of the case.
                TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
                console=self.console,
                expand=True,
                transient=True,
            )
            self._progress.start()
            self._task = self._progress.add_task("starting ReFrame", total=None, left=self._left())

    def event(self, event: CaseEvent) -> None:
        """Show progress."""
        if self._first is None:
            # The time before it is ReFrame's own start, and no part of a run.
            self._first = time.monotonic()
        if event.total:
            self._done, self._total = event.ended, event.total
        if event.kind != "run" and not self._progress:
            elapsed = _duration(time.monotonic() - self._began)
            self._say(f"  {event.ended:>3}/{event.total} {elapsed:>8}  {event.kind:<5} {_case(event)}")
        elif event.kind not in ("ok", "run"):
            self._say(f"  {event.kind:<5} {_case(event)}", style="red")
        if self._progress and self._task is not None:
            if event.kind == "run":
                self._progress.update(self._task, description=_case(event))
            total = self._total or None
            self._progress.update(self._task, completed=self._done, total=total, left=self._left())

    def _left(self) -> str:
        """Return how many runs have ended, and how long the rest should take."""
        now = time.monotonic()
        if self._done:
            spent = now - (self._first or self._began)
            left = _duration(spent * (self._total - self._done) / self._done)
            return f"{self._done}/{self._total} ~{left} left"
        return f"~{_duration(max(self._expected - (now - self._began), 0))} left" if self._expected else ""

    def round_ends(self) -> None:
        """Close the progress display."""
        if self._progress:
            self._progress.stop()
            self._progress = None
        self._say(f"  took {_duration(time.monotonic() - self._began)}", style="dim")

    def end(self, session: Session, directory: str) -> None:
        """Show the table, what is not within budget, the conclusion, and where the results are."""
        self._say()
        self.verdicts(session.verdicts, session.slow_runs, session.waivers)
        runs = ([run for run in session.runs if run.side == side] for side in SIDES)
        self.hosts(session.verdicts, [{host for run in ran for host in run.hosts.values()} for ran in runs])
        self._findings(session)
        self._not_measured(session)
        if not any(run.reference == "held" for run in session.runs):
            self._dim("No absolute reference: this system's native hardware is not proven.")
        self._say()
        self._say(Text(printable(session.message, MAX_VALUE_CHARS), style="bold"))
        self._say(f"qualified: {printable(session.qualified, MAX_VALUE_CHARS)}")
        self._say(f"results: {directory}", soft_wrap=True)
        self._dim("         report.html, session.json, junit.xml; ReFrame's own of each round")

    def _dim(self, text: str) -> None:
        self._say(Text(text, style="dim"))

    def verdicts(
        self, verdicts: Sequence[Verdict], slow_runs: SlowRuns | None, waivers: Sequence[str] = ()
    ) -> None:
        """Show the table of verdicts, and say below it what is not within budget."""
        if not verdicts:
            return
        self._say(table_of(verdicts))
        if any(verdict.points for verdict in verdicts):
            self._dim("Of a curve: geometric means over its sizes.")
        for verdict in verdicts:
            if verdict.outcome not in (Outcome.WITHIN, Outcome.BASELINE):
                self._say(Text(verdict.message, style=_STYLE[verdict.outcome.value]))
        if slow_runs and slow_runs.found:
            self._say(Text(f"OVER slow runs: {slow_runs.text}", style=_STYLE["OVER"]))
        for waiver in waivers:
            self._say(f"waiver: {waiver}")

    def hosts(self, verdicts: Sequence[Verdict], sides: Iterable[Iterable[str]]) -> None:
        """Name the hosts that differ from the others of their kind, where the pairs tell.

        Parameters
        ----------
        verdicts
            What the session says of hosts.
        sides
            The hosts of native runs, and those below VMs.
        """
        effects = {
            f"{verdict.metric} {verdict.setting}": {host: math.log(f) for host, f in verdict.hosts.items()}
            for verdict in verdicts
            if verdict.hosts
        }
        every = {host for known in effects.values() for host in known}
        if not every:
            return
        named = outliers(effects, sorted({frozenset(every.intersection(side)) for side in sides}, key=sorted))
        for one in named:
            self._say(Text(f"host {one}", style="yellow"))
        rest = every - {one.host for one in named}
        if rest:
            most = max(
                abs(math.expm1(log)) for known in effects.values() for h, log in known.items() if h in rest
            )
            others = "other hosts" if named else "hosts"
            self._dim(
                f"{len(rest)} {others}: each within {most:.1%} of the mean of its kind, in every metric"
            )

    def _findings(self, session: Session) -> None:
        if session.preflight or session.canaries:
            self._say()
            preflight.show(session.preflight, self.console, briefly=True)
            preflight.show_canaries(session.canaries, self.console, briefly=True)
            self._dim(f"          in full: virtqual preflight {session.session}")

    def _not_measured(self, session: Session) -> None:
        for failure in session.failures:
            self._say(Text(f"failed: {failure.case} on {failure.partition}: {failure.reason}", style="red"))
        if session.not_run:
            self._dim("Not run here:")
            for line in session.not_run:
                self._say(Padding(Text(line, style="dim"), (0, 0, 0, 2)))


def _case(event: CaseEvent) -> str:
    """Return what an event is about, what matters most first: pair, side and check."""
    check = event.check.replace(" %", " ")
    if event.side is None:
        return f"{check} on {event.partition}"
    if event.warm_up:
        return f"warm-up{f' {event.pair}' if event.pair else ''} {event.side} {check}"
    return f"pair {event.pair} {event.side} {check}"


def details(details: dict[str, Any]) -> dict[str, str]:
    """Return what else the system file says of the build: an option may make it another hypervisor."""
    told = {
        key: " ".join(map(str, v)) if isinstance(v, list | tuple) else str(v) for key, v in details.items()
    }
    return {key.replace("_", " "): value for key, value in told.items() if value and key != "sha256"}


def table_of(verdicts: Sequence[Verdict]) -> Table:
    """Return the table of all verdicts, 80 columns wide at most."""
    gates = {verdict.gate for verdict in verdicts if verdict.judged is not None}
    # The change is the question where it is the only one; beside an overhead it gets a line of its own.
    only_change = gates == {"change"} and any(verdict.change is not None for verdict in verdicts)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("metric", overflow="fold")
    for title in ("native", "virtual"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("change" if only_change else "virtual/native", justify="right", no_wrap=True)
    for title in ("verdict", "pairs"):
        table.add_column(title, justify="right" if title == "pairs" else "left", no_wrap=True)
    for verdict in verdicts:
        estimate = verdict.judged or (None if only_change else verdict.overhead)
        table.add_row(*_row(verdict, estimate, beside=verdict.change is not None and not only_change))
    return table


def _row(verdict: Verdict, estimate: Interval | None, *, beside: bool) -> tuple[str | Text, ...]:
    values = [
        format_value(value) if value is not None else "-" for value in (verdict.native, verdict.virtual)
    ]
    if estimate:
        shown = format_ratio(estimate.ratio, short=True)
        if estimate.lower is not None:
            shown += f" ({format_range(estimate.low, estimate.high)})"
    else:
        shown = "-"
    outcome = verdict.outcome.value
    word = Text(outcome + (" waived" if verdict.waived else ""), style=_STYLE[outcome])
    if beside:
        return ("  change", "", "", "", shown, word, str(verdict.pairs))
    return (f"{verdict.metric} {verdict.setting}", *values, verdict.unit, shown, word, str(verdict.pairs))


def _duration(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 100 else f"{whole // 60} min {whole % 60:02d} s"
