"""`virtqual sweep`: short checks on every node of both sides at once, and which nodes differ."""

from __future__ import annotations

import math
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from virtqual import qualify as main_job
from virtqual.commands.speaking import speaking, verbatim
from virtqual.report.terminal import Terminal
from virtqual.session.session import Session
from virtqual.verdict.rule import LOOKS

#: The tag of the checks that it runs.
TAG = "sweep"


def command(
    system: Annotated[str, typer.Option(help="system to run on: a file of reframe/systems/")],
    name: Annotated[
        list[str] | None, typer.Option("-n", "--name", help="only checks whose name matches")
    ] = None,
) -> None:
    """Compare all nodes of either side by short checks, and name those that differ from the others.

    It is a session of a few checks, and ends as one: its exit code is that of
    `virtqual qualify`. A node that it names stays in use until a person takes
    it out.
    """
    with speaking():
        request = main_job.Request(
            system=system, names=tuple(name or ()), tags=(TAG,), label=TAG, max_pairs=LOOKS[0]
        )
        session = main_job.qualify(request, Terminal())
        _show(session, verbatim())
    raise typer.Exit(session.exit_code)


def _show(session: Session, console: Console) -> None:
    """Print how much slower each host was than the mean of its kind, in each metric."""
    told = [verdict for verdict in session.verdicts if verdict.hosts]
    if not told:
        console.print(
            "No node can be told from another: a sweep needs nodes that all work at once "
            "(docs/system-file.md, All nodes at once)."
        )
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("host", no_wrap=True)
    for number, _ in enumerate(told, 1):
        table.add_column(f"[{number}]", justify="right", no_wrap=True)
    sides = {
        side: {h for run in session.runs if run.side == side for h in run.hosts.values()} for side in _SIDES
    }
    for side, hosts in sides.items():
        for host in sorted(hosts, key=_by_number):
            effects = (math.log(verdict.hosts[host]) if host in verdict.hosts else None for verdict in told)
            cells = ("-" if one is None else f"{math.expm1(one):+.1%}" for one in effects)
            table.add_row(f"{host} ({side})", *cells)
    console.print("\nTime by host, above (+) or below (-) the mean of its kind:")
    console.print(table)
    for number, verdict in enumerate(told, 1):
        console.print(f"[{number}] {verdict.metric} {verdict.setting}", style="dim")


_SIDES = ("native", "virtual")


def _by_number(name: str) -> tuple[str, int]:
    """Return what `vm10` is sorted by, after `vm9`."""
    letters = name.rstrip("0123456789")
    return letters, int(name[len(letters) :] or 0)


app = typer.Typer(add_completion=False)
app.command()(command)
