"""`virtqual qualify --plan`: the runs of a session, how long they take, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from virtqual.qualify.forecast import Forecast, forecast
from virtqual.report.console import verbatim
from virtqual.session.session import Request


def show(request: Request) -> None:
    """Print what a session would run."""
    console, planned = verbatim(), forecast(request)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("case", overflow="fold")
    for title in ("nodes", "runs", "native, s", "virtual, s"):
        table.add_column(title, justify="right", no_wrap=True)
    for case in planned.cases:
        seconds = ("never run" if took is None else f"{took:.1f}" for took in case.seconds)
        table.add_row(case.name, str(case.nodes), str(case.runs), *seconds)
    console.print(table)
    for line in _costs(planned):
        console.print(line)
    if planned.not_run:
        console.print(Text("Not run here:", style="dim"))
    for line in planned.not_run:
        console.print(Text(f"  {line}", style="dim"))


def _costs(planned: Forecast) -> Iterator[str]:
    """Yield sentences about all cases: runs, jobs, time and nodes."""
    jobs = "2 jobs, held for the whole session" if planned.held_nodes else f"{planned.runs} jobs, one a run"
    yield f"{len(planned.cases)} cases, {planned.runs} runs in the first round with its warm-ups: {jobs}."
    if planned.places > 1:
        yield f"Checks of one node go over {planned.places} nodes a side, all of them at work at once."
    if planned.first_round_s is None or planned.all_rounds_s is None:
        yield "How long it takes is not known: none of these cases was ever run here."
        yield "`virtqual sweep` runs the short ones in minutes, on all nodes at once."
        return
    waits = "" if planned.held_nodes else ", and what the jobs wait in the queue"
    yield (
        f"About {_minutes(planned.first_round_s)} if every metric is decided by the first round, "
        f"{_minutes(planned.all_rounds_s)} if none is before the last{waits}; "
        f"the first round costs {planned.node_seconds / 3600:.2g} node-hours."
    )
    if unknown := sum(None in case.seconds for case in planned.cases):
        yield f"{unknown} of the cases were never run here: their time comes on top."


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
