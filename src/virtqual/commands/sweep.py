"""`virtqual sweep`: short checks on every node of both sides at once, and which nodes differ."""

from __future__ import annotations

from collections.abc import Set
from statistics import geometric_mean
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from virtqual import qualify as main_job
from virtqual.commands.options import NODES_HELP, Names, Stack, System, WaitHours
from virtqual.files.wording import node_sort_key
from virtqual.report.console import verbatim
from virtqual.session.session import Request, Session
from virtqual.verdict import Verdict
from virtqual.verdict.pairs import SIDES

#: The tag of the short checks.
TAG = "sweep"
#: Turns of every check, in each of which every node runs it once: fewer do not show that a node is slow in
#: all of them.
TURNS = 4
#: Width of one figure, such as ``+10.3%``.
_CELL_CHARS = 8


def command(
    system: System,
    names: Names = None,
    nodes: Annotated[int | None, typer.Option(min=1, help=f"{NODES_HELP} (default: all)")] = None,
    stack: Stack = "",
    wait: WaitHours = None,
) -> None:
    """Compare all nodes of either side by short checks, and name those that differ from the others.

    It is a session of a few checks, and ends as one: its exit code is that of
    `virtqual qualify`. A node that it names stays in use until a person takes
    it out.
    """
    request = Request(
        system=system,
        names=tuple(names or ()),
        tags=(TAG,),
        label=TAG,
        stack=stack,
        pairs=TURNS,
        max_pairs=TURNS,
        wait_hours=wait,
        nodes=nodes,
    )
    session = main_job.qualify(request)
    _show(session, verbatim())
    raise typer.Exit(session.exit_code)


def _show(session: Session, console: Console) -> None:
    """Print how much slower each host was than the others of its kind but outliers, in each metric."""
    verdicts = [verdict for verdict in session.verdicts if verdict.hosts]
    if not verdicts:
        if session.verdicts:
            console.print(
                "No node can be told from another: a sweep needs nodes that all work at once "
                "(docs/system-file.md, All nodes at once)."
            )
        return
    rows: list[tuple[str, str, set[str]]] = []
    for side in SIDES:
        kind = {host for run in session.runs if run.side == side for host in run.hosts.values()}
        rows += [(f"{host} ({side})", host, kind) for host in sorted(kind, key=node_sort_key)]
    console.print("\nTime by host, above (+) or below (-) the others of its kind:")
    numbered = list(enumerate(verdicts, 1))
    outliers = {outlier.host for outlier in session.outliers}
    columns = max(1, (console.width - max(len(label) for label, *_ in rows)) // _CELL_CHARS)
    for part in (numbered[at : at + columns] for at in range(0, len(numbered), columns)):
        table = Table(box=None, padding=(0, 0, 0, 2), pad_edge=False, header_style="dim")
        table.add_column("host", no_wrap=True)
        for number, _ in part:
            table.add_column(f"[{number}]", justify="right", no_wrap=True, min_width=_CELL_CHARS - 2)
        for label, host, kind in rows:
            figures = (_compare_host(verdict, host, kind, outliers) for _, verdict in part)
            table.add_row(label, *figures)
        console.print(table)
        for number, verdict in part:
            console.print(f"[{number}] {verdict.name}", style="dim")


def _compare_host(verdict: Verdict, host: str, kind: Set[str], outliers: Set[str]) -> str:
    """Return by how much a host is slower than the mean of the others of its kind."""
    compared = verdict.hosts.keys() & kind - outliers - {host}
    if host not in verdict.hosts or not compared:
        return "-"
    return f"{verdict.hosts[host] / geometric_mean(verdict.hosts[name] for name in compared) - 1:+.1%}"
