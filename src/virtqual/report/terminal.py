"""What a person sees in a terminal: the plan, progress, one table, one sentence."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from virtqual.harness.process import Event
from virtqual.report import preflight
from virtqual.session.store import Session
from virtqual.site.placement import word
from virtqual.site.systems import System
from virtqual.verdict import Outcome, SessionVerdict, Verdict
from virtqual.verdict.outcome import number

_STYLE = {
    "WITHIN": "green",
    "BASELINE": "cyan",
    "OVER": "bold red",
    "UNDECIDED": "yellow",
    "INVALID": "magenta",
}


class Terminal:
    """Shows a session in 80 columns; without a terminal it prints one line a case, and no colours."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._began = 0.0
        self._expected: float | None = None
        self._case = ""

    def _say(self, what: RenderableType = "", **how: Any) -> None:
        """Print what people wrote as they wrote it: brackets are no markup."""
        self.console.print(what, markup=False, **how)

    def begin(self, session: Session, system: System, notes: Sequence[str]) -> None:
        """Say what will be qualified, how it is judged, and what to know."""
        hypervisor, guest = system.virtual.hypervisor, system.virtual.guest
        placement = session.identity["virtual"]["placement"]
        label = f" ({session.label})" if session.label else ""
        self._say(Text().append("virtqual", "bold").append(f" session {session.session}{label}"))
        rows = {
            "hypervisor": f"{hypervisor.vendor} {hypervisor.build}",
            "": f"accelerator {hypervisor.accelerator}, machine {hypervisor.machine or 'not stated'}"
            + (f", guest kernel {guest['kernel']}" if guest.get("kernel") else ""),
            **_details(hypervisor.details),
            "placement": ", ".join(f"{key} {word(value)}" for key, value in placement.items())
            or "not observable (the VMs' host was not asked)",
            "class": session.hypervisor_class,
            "against": session.against or "nothing earlier",
            "stack": f"{session.stack['name']} ({session.stack['hash']}): "
            + ", ".join(f"{p['name']} {p['version']}" for p in session.stack["programs"]),
        }
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim")
        table.add_column(overflow="fold")
        for key, value in rows.items():
            table.add_row(key, value)
        self._say(table)
        if hypervisor.accelerator == "tcg":
            notes = [
                "The VMs' CPUs are emulated in software: overheads below are emulation, not virtualisation, "
                "and no result here qualifies a build for production.",
                *notes,
            ]
        for note in notes:
            self._say(Text(note, style="yellow"))

    def look_begins(self, number: int, what: str, seconds: float | None) -> None:
        """Say what this look runs and how long that should take."""
        self._expected, self._began = seconds, time.monotonic()
        when = f"about {_duration(seconds)}" if seconds else "duration not known yet: nothing has run here"
        head = Text("\n").append(f"look {number}", "bold")
        self._say(head.append(f"  {what}  ").append(f"({when})", "dim"))
        if self.console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.completed:.0f}/{task.total:.0f}"),
                BarColumn(bar_width=18),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
                TextColumn("{task.description}", style="dim", markup=False),
                console=self.console,
                transient=True,
            )
            self._progress.start()
            self._task = self._progress.add_task("starting ReFrame", total=1, left="")

    def event(self, event: Event) -> None:
        """Show progress."""
        side = event.where.partition(":")[2].partition("+")[0]
        name = event.case.replace(" %", " ")
        if event.kind == "run":
            self._case = f"{name} on {side}"
        elif not self._progress:
            elapsed = _duration(time.monotonic() - self._began)
            self._say(f"  {event.done:>3}/{event.total} {elapsed:>8}  {event.kind:<5} {name} on {side}")
        elif event.kind not in ("ok", "run") and "_overhead" not in name:
            self._say(f"  {event.kind:<5} {name} on {side}", style="red")
        if self._progress and self._task is not None:
            done = event.done or None
            self._progress.update(
                self._task,
                completed=done,
                total=event.total or None,
                description=self._case[:34],
                left=self._left(event),
            )

    def _left(self, event: Event) -> str:
        spent = time.monotonic() - self._began
        if event.total and event.done:
            return f"~{_duration(spent * (event.total - event.done) / event.done)} left"
        if self._expected:
            return f"~{_duration(max(self._expected - spent, 0))} left"
        return ""

    def look_ends(self) -> None:
        """Close the progress display."""
        if self._progress:
            self._progress.stop()
            self._progress = None
        self._say(f"  took {_duration(time.monotonic() - self._began)}", style="dim")

    def end(self, session: Session, verdict: SessionVerdict | None, directory: Path) -> None:
        """Show the table, the conclusion and where the results are."""
        say = self._say
        say()
        if verdict and verdict.verdicts:
            say(table_of(verdict))
            if any(one.metric.kind == "curve" for one in verdict.verdicts):
                say("Of a curve: geometric means over its sizes.", style="dim")
            unseen = (one.evidence.series.yardstick for one in verdict.verdicts)
            for why in dict.fromkeys(filter(None, unseen)):
                text = f"Native -: not observable, {why}; a change of the virtual side is judged alone."
                say(Text(text, style="dim"))
            for one in verdict.verdicts:
                if one.outcome not in (Outcome.WITHIN, Outcome.BASELINE):
                    say(Text(one.message, style=_STYLE[one.outcome.value]))
            for waiver in verdict.waivers:
                say(f"waiver: {waiver.text(verdict.today)}")
        if session.preflight or session.canaries:
            say()
            preflight.show(session.preflight, self.console, briefly=True)
            preflight.show_canaries(session.canaries, self.console, briefly=True)
            say(Text(f"          in full: virtqual preflight {session.session}", style="dim"))
        for failure in session.failures:
            say(Text(f"failed: {failure.case} on {failure.partition}: {failure.reason}", style="red"))
        if session.not_run:
            say("Not run here:", style="dim")
            by_reason: dict[str, list[str]] = defaultdict(list)
            for line in session.not_run:
                name, _, reason = line.partition(": ")
                by_reason[reason].append(name.partition(" ")[0])
            for reason, names in by_reason.items():
                say(Padding(Text(f"{', '.join(names)}: {reason}", style="dim"), (0, 0, 0, 2)))
        if not any(run.reference == "held" for run in session.runs):
            say(Text("No absolute reference: this system's native hardware is not proven.", style="dim"))
        say()
        say(Text(session.conclusion, style="bold"))
        say(f"qualified: {session.qualified}")
        say(f"results: {directory}", soft_wrap=True)
        say("         session.json, and ReFrame's report, JUnit file and log of each look", style="dim")


def _details(details: dict[str, Any]) -> dict[str, str]:
    """Return what else the system file says of the build: an option may make it another hypervisor."""
    told = {
        key: " ".join(map(str, v)) if isinstance(v, list | tuple) else str(v) for key, v in details.items()
    }
    return {key.replace("_", " "): value for key, value in told.items() if value and key != "sha256"}


def table_of(verdict: SessionVerdict) -> Table:
    """Return the table of all verdicts, 80 columns wide at most."""
    gates = {one.gate for one in verdict.verdicts if one.judged is not None}
    # The change is the question where it is the only one; beside an overhead it gets a line of its own.
    only_change = gates == {"change"} and any(one.change is not None for one in verdict.verdicts)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("metric", overflow="fold", max_width=24)
    for title in ("native", "virtual"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("change" if only_change else "virtual/native", justify="right", no_wrap=True)
    for title in ("verdict", "pairs"):
        table.add_column(title, justify="right" if title == "pairs" else "left", no_wrap=True)
    for one in verdict.verdicts:
        table.add_row(*_row(one, beside=one.change is not None and not only_change), style=None)
    return table


def _row(one: Verdict, *, beside: bool) -> tuple[str | Text, ...]:
    estimate = one.judged or one.overhead
    values = [number(value) if value is not None else "-" for value in (one.native, one.virtual)]
    if estimate:
        mid, low, high = (_short(value) for value in estimate.ratio(one.metric))
        shown = f"{mid} ({low}-{high})"
    else:
        shown = "-"
    word = Text(one.outcome.value + (" waived" if one.waived else ""), style=_STYLE[one.outcome.value])
    if beside:
        return ("  change", "", "", "", shown, word, str(one.pairs))
    name = f"{one.metric.name} {one.setting}"
    return (name, *values, one.metric.unit, shown, word, str(one.pairs))


def _short(ratio: float) -> str:
    if ratio < 0.1:
        return f"{ratio:#.2g}"
    digits = 0 if ratio >= 100 else 1 if ratio >= 10 else 2
    return f"{ratio:.{digits}f}"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 100 else f"{whole // 60} min {whole % 60:02d} s"
