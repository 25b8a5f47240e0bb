"""`virtqual configurations`: node interleaving off and on, native and virtual, from two sessions."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from virtqual import paths
from virtqual.commands.speaking import speaking
from virtqual.report import configurations
from virtqual.session import judging, store

_say = Console(highlight=False, markup=False)
_HEADS = ("VM-1/BM-1", "VM-2/BM-2", "VM-2/BM-1", "BM-2/BM-1")


def command(
    off: Annotated[str, typer.Argument(help="session with node interleaving off (id, path or 'last')")],
    on: Annotated[str, typer.Argument(help="session of the same hardware with node interleaving on")],
) -> None:
    """Show what node interleaving does natively and in VMs, as the OpenStack study does.

    BM-1 and VM-1 are the first session's native and virtual side, BM-2 and VM-2 the second's.
    """
    with speaking():
        found = [store.load(store.find(name, paths.sessions())) for name in (off, on)]
        configurations.comparable(*found)
        # Runs that something disturbed count here as little as under a verdict.
        rows = configurations.compare(
            *(judging.preflight(one.runs, one.hypervisor_class).runs for one in found)
        )
        table = Table("metric and setting", *_HEADS, box=None)
        for row in rows:
            table.add_row(
                row.series, *(f"{value:.3f}" for value in (row.off, row.on, row.across, row.native))
            )
        _say.print(table)
        _say.print("The last two are of two boots: not paired in time, and not judged.", style="dim")


app = typer.Typer(add_completion=False)
app.command()(command)
