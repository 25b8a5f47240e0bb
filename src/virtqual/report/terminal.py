"""The output in a terminal: the plan, progress, one table, one sentence."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column, Table
from rich.text import Text

from virtqual.files.wording import Range, format_time, list_names, pluralize, printable
from virtqual.harness.progress import CaseEvent
from virtqual.report import preflight
from virtqual.report.console import verbatim
from virtqual.session.conclusion import describe_failures
from virtqual.session.lost import list_refusing_failures
from virtqual.session.session import MAX_LABEL_CHARS, Head, Session
from virtqual.site import host_records
from virtqual.verdict import Outcome, Verdict, texts
from virtqual.verdict.labels import NATIVE_AND_VIRTUAL
from virtqual.verdict.notation import format_value, scale_unit
from virtqual.verdict.outliers import Outlier
from virtqual.verdict.slow_runs import SlowRuns

_STYLE = {
    "WITHIN": "green",
    "BASELINE": "cyan",
    "OVER": "bold red",
    "UNDECIDED": "yellow",
    "INVALID": "magenta",
}

#: A session from elsewhere may hold megabytes of text, which a terminal takes minutes to break into lines.
MAX_VALUE_CHARS = 4000
#: Width of tables, and the room below which names do not share lines with numbers.
MAX_WIDTH, MIN_NAME_CHARS = 80, 12
#: Columns of words; those of numbers are aligned to the right.
_LEFT = ("unit", "verdict")


class Terminal:
    """Shows a session in 80 columns; without a terminal it prints one line a case, and no colours."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or verbatim()
        self._progress: Progress | None = None
        self._began = 0.0
        self._expected = Range(0.0, 0.0)
        self._done = self._total = 0
        self._first: float | None = None

    def begin(self, head: Head, notes: Sequence[str]) -> None:
        """Show what is qualified, and notes."""
        label = f" ({printable(head.label, MAX_LABEL_CHARS)})" if head.label else ""
        self.console.print(Text().append("virtqual", "bold").append(f" session {head.session}{label}"))
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim")
        table.add_column(overflow="fold")
        for key, value in describe_head(head).items():
            table.add_row(key, printable(value, MAX_VALUE_CHARS))
        self.console.print(table)
        for note in notes:
            self.note(note)

    def note(self, text: str) -> None:
        """Show a note at once."""
        self.console.print(Text(text, style="yellow"))

    def round_begins(self, number: int, what: str, seconds: Range) -> None:
        """Show what this round runs, and its expected duration."""
        self._expected, self._began = seconds, time.monotonic()
        self._done, self._total, self._first = 0, 0, None
        head = Text("\n").append(f"round {number}", "bold")
        self.console.print(head.append(f"  {what}  ").append(f"(about {_format_bounds(seconds)})", "dim"))
        if self.console.is_terminal:
            self._progress = Progress(
                BarColumn(bar_width=8),
                TextColumn("{task.fields[left]}"),
                # A line that is too long is cut at the end of the case.
                TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
                console=self.console,
                expand=True,
                transient=True,
            )
            self._progress.start()
            self._progress.add_task("starting ReFrame", total=None, left=self._describe_rest())

    def event(self, event: CaseEvent) -> None:
        """Show progress."""
        if self._first is None:
            # ReFrame's own start before the first event is no part of a run.
            self._first = time.monotonic()
        if event.total:
            self._done, self._total = event.ended, event.total
        reason = printable(event.reason, MAX_VALUE_CHARS)
        line = f"{event.kind:<5} {_case(event)}{reason and f': {reason}'}"
        if event.kind != "run" and not self._progress:
            elapsed = format_duration(time.monotonic() - self._began)
            self.console.print(f"  {event.ended:>3}/{event.total} {elapsed:>8}  {line}")
        elif event.kind not in ("ok", "run"):
            self.console.print(f"  {line}", style="red")
        if self._progress:
            (task,) = self._progress.task_ids
            if event.kind == "run":
                self._progress.update(task, description=_case(event))
            total = self._total or None
            self._progress.update(task, completed=self._done, total=total, left=self._describe_rest())

    def _describe_rest(self) -> str:
        """Return how many runs have ended, and how long the rest should take."""
        now = time.monotonic()
        if self._done:
            spent = now - (self._first or self._began)
            rest = format_duration(spent * (self._total - self._done) / self._done)
            return f"{self._done}/{self._total} ~{rest} left"
        bounds = Range(*(max(seconds - (now - self._began), 0) for seconds in self._expected))
        return f"~{_format_bounds(bounds)} left"

    def round_ends(self) -> None:
        """Close the progress display."""
        if self._progress:
            self._progress.stop()
            self._progress = None
        self.console.print(f"  took {format_duration(time.monotonic() - self._began)}", style="dim")

    def end(self, session: Session, directory: str, name: str = "") -> None:
        """Show the verdicts, the conclusion, and the directory of the results, if there is one.

        Other commands find the session by its `name`; without one by its id.
        """
        self.console.print()
        self.verdicts(session.verdicts, session.slow_runs, session.waivers)
        self.hosts(session.verdicts, session.outliers)
        self._findings(session, name)
        self._not_measured(session)
        has_missed = any(failure.kind == "reference" for failure in session.failures)
        if session.runs and not (has_missed or any(run.reference == "held" for run in session.runs)):
            self._dim("No absolute reference: this system's native hardware is not proven.")
        self.console.print()
        self.console.print(Text(printable(session.message, MAX_VALUE_CHARS), style="bold"))
        self.console.print(f"qualified: {printable(session.qualified, MAX_VALUE_CHARS)}")
        if not directory:
            return
        self.console.print(f"results: {directory}", soft_wrap=True)
        self._dim("         report.html, session.json, junit.xml; ReFrame's own of each round")

    def _dim(self, text: str) -> None:
        self.console.print(Text(text, style="dim"))

    def verdicts(
        self, verdicts: Sequence[Verdict], slow_runs: SlowRuns | None, waivers: Sequence[str] = ()
    ) -> None:
        """Show the table of verdicts, and below it the messages of those that are not within budget."""
        if not verdicts:
            return
        self.console.print(table_of(verdicts))
        labels = verdicts[0].labels
        self._dim(_explain_table(verdicts))
        for verdict in verdicts:
            if verdict.outcome not in (Outcome.WITHIN, Outcome.BASELINE):
                self.console.print(Text(verdict.message, style=_STYLE[verdict.outcome.value]))
            else:
                for reason in verdict.reasons:
                    self.console.print(Text(f"{verdict.name}: {reason}", style="yellow"))
        if slow_runs and slow_runs.found:
            self.console.print(Text(f"OVER slow runs: {slow_runs.text}", style=_STYLE["OVER"]))
        if slow_runs and slow_runs.more_runs:
            self.console.print(Text(f"UNDECIDED lost runs: {slow_runs.lost_text}", style=_STYLE["UNDECIDED"]))
        for line in texts.describe_lost(slow_runs.lost, labels) if slow_runs else ():
            self.console.print(Text(printable(line, MAX_VALUE_CHARS), style="yellow"))
        for waiver in waivers:
            self.console.print(f"waiver: {waiver}")

    def hosts(self, verdicts: Sequence[Verdict], outliers: Sequence[Outlier]) -> None:
        """Name the hosts that were set aside, and say how alike the others are."""
        for outlier in outliers:
            text = printable(f"host {outlier}; it was set aside", MAX_VALUE_CHARS)
            self.console.print(Text(text, style="yellow"))
        set_aside = {outlier.host for outlier in outliers}
        farthest: dict[str, float] = {}
        for verdict in verdicts:
            for host in verdict.hosts.keys() - set_aside:
                farthest[host] = max(farthest.get(host, 0.0), abs(verdict.hosts[host] - 1))
        if len(farthest) > 1:
            # A case of two nodes has its places in sets such as host1+host2.
            count = len({name for host in farthest for name in host.split("+")} - set_aside)
            host, next_host, *_ = sorted(farthest, key=farthest.__getitem__, reverse=True)
            text = (
                f"{count} {'other hosts' if outliers else 'hosts'}: {host} differs from the mean of its kind "
                f"by {farthest[host]:.1%} at most, each other one by {farthest[next_host]:.1%}"
            )
            self._dim(printable(text, MAX_VALUE_CHARS))

    def _findings(self, session: Session, name: str) -> None:
        if session.preflight or session.canaries:
            self.console.print()
            preflight.show(session.preflight, self.console, briefly=True)
            preflight.show_canaries(session.canaries, self.console, briefly=True)
            self._dim(f"          in full: virtqual preflight {name or session.session}")

    def _not_measured(self, session: Session) -> None:
        for text in describe_failures(list_refusing_failures(session)):
            self.console.print(Text(f"failed: {text}", style="red"))
        if session.not_run:
            self._dim("Not run here:")
            for line in session.not_run:
                self.console.print(Padding(Text(line, style="dim"), (0, 0, 0, 2)))


def _case(event: CaseEvent) -> str:
    """Return the pair, side, check and nodes of an event; a warm-up is of no pair."""
    check, nodes = event.check.replace(" %", " "), list_names(event.nodes, 1)
    if event.side is None:
        return f"{check} on {event.partition}"
    place = "warm-up" if event.warm_up else f"pair {event.pair}"
    return f"{place} {event.side} {check}{nodes and f' on {nodes}'}"


def describe_head(head: Head) -> dict[str, str]:
    """Return what a session qualifies, and with what, as text by name."""
    virtual = head.identity["virtual"]
    hypervisor, guest = virtual.get("hypervisor", {}), virtual.get("guest", {})
    facts = {
        "hypervisor": f"{head.hypervisor}{' (stated)' if head.build_is_stated else ''}",
        "accelerator": hypervisor.get("accelerator", "not stated"),
        "machine": hypervisor.get("machine") or "not stated",
    }
    for key, value in hypervisor.get("details", {}).items():
        text = host_records.format_setting(value)
        if text and key != "sha256":
            facts[key.replace("_", " ")] = text
    if guest.get("kernel"):
        facts["guest kernel"] = str(guest["kernel"])
    placement = (
        f"{key.replace('_', ' ')} {host_records.format_setting(value)}"
        for key, value in head.placement.items()
    )
    programs = (f"{program['name']} {program['version']}" for program in head.stack["programs"])
    return {
        **facts,
        "placement": ", ".join(placement) or "not observable (the VMs' host was not asked)",
        "system": head.system,
        "class": head.hypervisor_class,
        "compared with": head.against or "no earlier session",
        "stack": f"{head.stack['name']} ({head.stack['hash']}): {', '.join(programs)}",
    }


@dataclass(frozen=True)
class Name:
    """A name in a column, which is folded after blanks and underscores; a longer part is folded anywhere."""

    text: str

    def __str__(self) -> str:
        return self.text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the text with line breaks for the width that there is."""
        yield Text("\n".join(fold_name(self.text, options.max_width)), overflow="fold")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Return the width of the longest part, and that of one line."""
        parts = re.split(r"(?<=[\s_])", self.text)
        return Measurement(max(map(cell_len, parts)), cell_len(self.text)).with_maximum(options.max_width)


def fold_name(text: str, width: int) -> list[str]:
    """Return the lines of a name: words stay whole where they fit, and others are folded after underscores.

    Examples
    --------
    >>> fold_name("memory_triad at 1 B", 11)
    ['memory_', 'triad at 1', 'B']
    """
    lines = [""]
    for word in text.split():
        first, *others = [word] if cell_len(word) <= width else re.split(r"(?<=_)(?=[^_])", word)
        for blank, part in [(" ", first), *(("", other) for other in others)]:
            joined = f"{lines[-1]}{blank}{part}" if lines[-1] else part
            if lines[-1] and cell_len(joined) > width:
                lines.append(part)
            else:
                lines[-1] = joined
    return lines


_Cells = tuple[str | Text | Name, ...]


def table_of(verdicts: Sequence[Verdict]) -> Table | Group:
    """Return the table of all verdicts, 80 columns wide at most.

    If values and intervals leave no room for names, a name has the line above its numbers.
    """
    # Changes alone are shown as estimates; a change beside an overhead gets a line of its own.
    has_overheads = any(verdict.gate == "overhead" for verdict in verdicts)
    only_change = not has_overheads and any(verdict.judged is not None for verdict in verdicts)
    titles = ["metric", *(verdicts[0].labels if verdicts else NATIVE_AND_VIRTUAL), "unit"]
    titles += ["change, slower by" if only_change else "slower by", "at most", "verdict", "pairs"]
    rows: list[tuple[_Cells, str]] = []
    for verdict in verdicts:
        is_beside = has_overheads and verdict.gate == "change"
        has_estimate = not (only_change or is_beside) or verdict.judged is not None
        rows.append((_row(verdict, beside=is_beside, has_estimate=has_estimate), ""))
        if verdict.points and verdict.estimate and has_estimate:
            mean = verdict.estimate.brief_text(verdict.better), verdict.mean.at_most(verdict.better)
            sizes = f"  mean of {pluralize(len(verdict.points), 'size')}"
            rows.append(((sizes, "", "", "", *mean, "", ""), "dim"))
    # Without any budget, as of a baseline, names get its room.
    if all(verdict.at_most == "-" for verdict in verdicts):
        del titles[5]
        rows = [((*cells[:5], *cells[6:]), style) for cells, style in rows]
    widths = [
        max(map(_measure, column)) for column in zip(titles, *(cells for cells, _ in rows), strict=True)
    ]
    room = MAX_WIDTH - sum(width + 1 for width in widths[1:])
    if room < min(widths[0], MIN_NAME_CHARS):
        return Group(*_put_names_above(titles, rows, widths))
    return _make_table(titles, rows)


def _make_table(titles: Sequence[str], rows: Sequence[tuple[_Cells, str]]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column(titles[0], overflow="fold")
    for title in titles[1:]:
        table.add_column(title, justify="left" if title in _LEFT else "right", no_wrap=True)
    for cells, style in rows:
        table.add_row(*cells, style=style or None)
    return table


def _put_names_above(
    titles: Sequence[str], rows: Sequence[tuple[_Cells, str]], widths: Sequence[int]
) -> Iterator[Text]:
    """Yield the lines of a table in which the name of each row is a line above its numbers."""
    heads: _Cells = tuple(titles)
    for (name, *cells), style in ((heads, "dim"), *rows):
        words = [cell if isinstance(cell, Text) else Text(str(cell)) for cell in cells]
        for word, title, width in zip(words, titles[1:], widths[1:], strict=True):
            word.align("left" if title in _LEFT else "right", width)
        yield Text(str(name), style=style)
        yield Text(" ", style=style).join([Text(" "), *words])


def _measure(cell: str | Text | Name) -> int:
    """Return the width of a cell on one line."""
    return cell_len(str(cell))


def _row(verdict: Verdict, *, beside: bool, has_estimate: bool) -> _Cells:
    """Return the row of a verdict; one `beside` an overhead is its change, and has no values of its own."""
    deciding, where = verdict.deciding, f", {verdict.where}" if verdict.where and has_estimate else ""
    shown, at_most = "-", "-"
    if has_estimate and deciding.judged:
        shown, at_most = deciding.judged.brief_text(verdict.better), verdict.at_most
    word = Text(verdict.outcome_text, style=_STYLE[verdict.outcome.value])
    judged = shown, at_most, word, verdict.pairs_text
    if beside:
        return (f"  change{where}", "", "", "", *judged)
    unit, scaled = scale_unit(verdict.unit, deciding.native, deciding.virtual)
    return (Name(f"{verdict.name}{where}"), *map(format_value, scaled), unit, *judged)


def _explain_table(verdicts: Sequence[Verdict]) -> str:
    """Return what the numbers of the table of verdicts are."""
    note = f"Percent of the {verdicts[0].labels.reference} value, minus is faster"
    if any(verdict.judged and verdict.judged.is_factor(verdict.better) for verdict in verdicts):
        note += "; 2x is twice as slow"
    note += "."
    if any(verdict.at_most != "-" for verdict in verdicts):
        note += " At most: budget+margin. To pass, an interval has to end below their sum."
    if any(verdict.points for verdict in verdicts):
        nearest = "nearest to its limit" if any(verdict.judged for verdict in verdicts) else "that is slowest"
        note += f" A curve's row is the size {nearest}, or the range that is over."
    if any(verdict.pairs_run > verdict.pairs for verdict in verdicts):
        note += " Pairs: those that decided, of those that were run."
    return note


def _format_bounds(seconds: Range) -> str:
    """Return the bounds of a duration, or the duration with more digits if both are alike."""
    return format_duration(seconds.low) if seconds.low == seconds.high else format_time(seconds)


def format_duration(seconds: float) -> str:
    """Return such as ``30 s``, ``5 min 54 s`` or ``2 h 05 min``."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 100:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{round(seconds)} s" if seconds < 100 else f"{minutes} min {rest:02d} s"
