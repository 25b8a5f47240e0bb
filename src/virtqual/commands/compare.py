"""`virtqual compare`: sessions side by side, without a verdict."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from virtqual import paths
from virtqual.commands.messages import print_doubts, write_output
from virtqual.commands.options import Output
from virtqual.errors import UsageError
from virtqual.report import page
from virtqual.report.comparison import ComparedSeries, compare, differing, letters
from virtqual.report.console import verbatim
from virtqual.session.session import Session
from virtqual.session.store import find, load
from virtqual.verdict.pairs import SIDES

_say = verbatim()


def command(
    sessions: Annotated[
        list[str],
        typer.Argument(help="two sessions or more (id, path or 'last'); A is the first"),
    ],
    output: Output = None,
) -> None:
    """Put sessions side by side: another build, another placement, another setting of the firmware.

    Shown are virtual against native in each session, and both sides against the
    first session's native side. With node interleaving off in the first and on in
    the second session these are the OpenStack study's four configurations:
    VM-1/BM-1, VM-2/BM-2, BM-2/BM-1 and VM-2/BM-1.
    """
    if len(sessions) < 2:
        raise UsageError("name two sessions or more")
    directories = [find(name, paths.sessions()) for name in sessions]
    loaded = [load(directory) for directory in directories]
    for session, directory in zip(loaded, directories, strict=True):
        print_doubts(session, directory)
    rows = compare(loaded)
    if not rows:
        raise UsageError("no series was measured on both sides of a session")
    if output is not None:
        write_output(page.render_comparison(loaded), output)
        return
    names = letters(len(loaded))
    _say.print(*_list_sessions(loaded, names), _make_table(rows, names))
    _say.print(
        "Percent slower, minus is faster; at most: budget+margin. A curve has the means over its sizes. The "
        "other columns compare a side with the native side of A; - if A did not measure the series.",
        style="dim",
    )
    _say.print("Across sessions nothing is paired in time, so nothing is judged.", style="dim")


def _list_sessions(sessions: list[Session], names: list[str]) -> tuple[Table, Table]:
    """Return the sessions by their names, and the facts in which they differ."""
    overview, facts = (Table.grid(padding=(0, 2, 0, 0), pad_edge=False) for _ in range(2))
    for name, session in zip(names, sessions, strict=True):
        texts = session.session, session.outcome, session.hypervisor
        overview.add_row(Text(name, "bold"), *map(Text, texts))
    facts.add_column(style="dim")
    for fact, values in differing(sessions):
        facts.add_row(Text(fact), Text("\n".join(f"{who}: {text}" for who, text in values)))
    return overview, facts


def _make_table(rows: list[ComparedSeries], names: list[str]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("metric and setting", overflow="fold", max_width=24)
    table.add_column("")
    for title in ("slower by", "at most", f"native vs {names[0]}", f"virtual vs {names[0]}", ""):
        table.add_column(title, justify="right", no_wrap=True)
    for series, group in groupby(rows, key=attrgetter("series")):
        # One row a series, so that its name may take several lines.
        lines = []
        for row in group:
            sides = map(row.describe_side, SIDES)
            lines.append((names[row.session], row.overhead_text, row.at_most, *sides, row.mark))
        table.add_row(series.replace("@", " "), *("\n".join(column) for column in zip(*lines, strict=True)))
    return table
