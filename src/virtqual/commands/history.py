"""`virtqual history`: every metric over the builds, and where it changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.padding import Padding
from rich.progress import track
from rich.table import Table
from rich.text import Text

from virtqual import paths
from virtqual.commands.speaking import write_output
from virtqual.errors import UsageError, VirtqualError
from virtqual.history.builds import Place, notes, place_of, told
from virtqual.history.nights import by_place
from virtqual.references import project_references
from virtqual.references.marks import load_marks
from virtqual.report import page
from virtqual.report.console import verbatim
from virtqual.session.store import ids
from virtqual.session.summary import Summary, summaries

_say = verbatim()


def command(
    system: Annotated[str, typer.Option(help="only this system")] = "",
    hypervisor_class: Annotated[str, typer.Option("--class", help="only this class")] = "",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="write an HTML file instead")] = None,
) -> None:
    """Say which build made which metric slower, since when, and what else changed with it.

    Each session's overhead is relative to the native runs of the same night, so
    that a machine that becomes faster or slower as a whole moves nothing. Where
    nothing changed, 1 % of histories show a step or a drift. The report decides
    nothing: each session judges its own build.
    """
    found = list(_read(paths.sessions()))
    known = [one for one in found if isinstance(one, Summary) and system in ("", one.system)]
    known = [one for one in known if hypervisor_class in ("", one.hypervisor_class)]
    left = [one for one in found if isinstance(one, VirtqualError)]
    if not known:
        unread = f"; left out: {'; '.join(map(str, left[:3]))}" if left else ""
        raise UsageError(f"no session of that system and class below {paths.sessions()}{unread}")
    places = [place_of(where, kind, nights) for (where, kind), nights in by_place(known)]
    marks = load_marks(paths.references())
    if output is not None:
        write_output(page.render_history(places, marks, [str(one) for one in left]), output)
        _say.print(str(output), soft_wrap=True)
        return
    for place in places:
        _say.print(Text(place.title, "bold"))
        for change in told(place, marks):
            _say.print(Text(f"\n{change.where}"))
            for name, size in change.metrics:
                _say.print(_indented(Text(f"{name}: ", "bold").append(size, "default")))
            for note in change.notes:
                _say.print(_indented(Text(note, "dim")))
        _say.print("", _table(place))
        for note in notes(place, marks, project_references().waivers):
            _say.print(note, style="dim")
    for unreadable in left:
        _say.print(Text(f"left out: {unreadable}", style="yellow"), soft_wrap=True)


def _read(sessions: Path) -> Iterator[Summary | VirtqualError]:
    """Yield all sessions in short; those that nobody has listed yet take a moment each."""
    console = verbatim(stderr=True)
    every = summaries(sessions)
    known = track(
        every,
        "reading sessions",
        len(ids(sessions)),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    for _, one in known:
        yield one


def _indented(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, 2))


def _table(place: Place) -> Table:
    # So narrow that names of metrics stay whole in 80 columns.
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("metric and setting", overflow="fold")
    table.add_column("sessions", justify="right", no_wrap=True)
    for title in ("first build", "last build"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("changes", no_wrap=True)
    for one in place.metrics:
        first, last = one.levels[0], one.levels[-1]
        table.add_row(one.name, str(len(one.sessions)), first.text, last.text, one.outcome)
    return table
