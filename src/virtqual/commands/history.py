"""`virtqual history`: every metric over the builds, and where it changed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.padding import Padding
from rich.progress import track
from rich.table import Table
from rich.text import Text

from virtqual import paths
from virtqual.commands.believed import verified_summaries
from virtqual.commands.messages import write_output
from virtqual.commands.names import select_sessions
from virtqual.errors import UsageError, VirtqualError
from virtqual.history.builds import Place, describe_changes, describe_notes, make_place
from virtqual.history.nights import group_by_place
from virtqual.references import project_references
from virtqual.references.marks import load_marks
from virtqual.report import history_table, page
from virtqual.report.console import verbatim
from virtqual.session.store import ids
from virtqual.session.summary import Summary

_console = verbatim()


def command(
    system: Annotated[str, typer.Option(help="only this system")] = "",
    hypervisor_class: Annotated[str, typer.Option("--class", help="only this class")] = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="write NAME.html, or NAME.csv with a row a verdict")
    ] = None,
) -> None:
    """Show which build made which metric slower, since when, and what else changed with it.

    Each session's overhead is relative to the native runs of the same night, so
    that a machine that becomes faster or slower as a whole changes nothing.
    1 % of histories show a step or a drift if nothing changed. The report does
    not decide: each session judges its own build.
    """
    if output is not None and output.suffix not in (".html", ".csv"):
        raise UsageError(f"-o {output}: the name has to end with .html or .csv")
    sessions = _read_sessions()
    selected = select_sessions(sessions, system, hypervisor_class)
    errors = [session for session in sessions if isinstance(session, VirtqualError)]
    if output is not None and output.suffix == ".csv":
        write_output(history_table.csv_of(selected), output)
        _print_errors(errors)
        return
    marks = load_marks(paths.site_references())
    places = [make_place(*place, nights, marks) for place, nights in group_by_place(selected)]
    if output is not None:
        write_output(page.render_history(places, [str(error) for error in errors]), output)
        return
    for place in places:
        _print_place(place)
    _print_errors(errors)


def _print_place(place: Place) -> None:
    _console.print(Text(place.title, "bold"))
    for change in describe_changes(place):
        _console.print(Text(f"\n{change.where}"))
        for name, size in change.metrics:
            _console.print(Padding.indent(Text(f"{name}: ", "bold").append(size, "default"), 2))
        for note in change.notes:
            _console.print(Padding.indent(Text(note, "dim"), 2))
    _console.print("", _make_table(place))
    note = "Percent slower than native, minus is faster; of a curve the mean over its sizes."
    if any(metric.at_most != "-" for metric in place.metrics):
        note += " At most: budget+margin of the last session, of a curve the smallest."
    _console.print(note, style="dim")
    for note in describe_notes(place, project_references().waivers):
        _console.print(note, style="dim")


def _print_errors(errors: Iterable[VirtqualError]) -> None:
    for error in errors:
        _console.print(Text(f"left out: {error}", style="yellow"), soft_wrap=True)


def _read_sessions() -> list[Summary | VirtqualError]:
    """Return the summaries of all sessions; a progress bar shows that new ones are made."""
    console, sessions = verbatim(stderr=True), paths.sessions()
    tracked = track(
        verified_summaries(sessions),
        "reading sessions",
        len(ids(sessions)),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    return [summary for _, summary in tracked]


def _make_table(place: Place) -> Table:
    # Narrow columns keep names of metrics whole in 80 columns.
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("metric and setting", overflow="fold")
    for title in ("sessions", "first build", "last build", "at most"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("changes", no_wrap=True)
    for metric in place.metrics:
        first, last = metric.levels[0], metric.levels[-1]
        values = str(len(metric.sessions)), first.estimate, last.estimate, metric.at_most
        table.add_row(metric.name, *values, metric.outcome)
    return table
