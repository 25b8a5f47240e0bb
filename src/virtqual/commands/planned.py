"""`virtqual qualify --plan`: what a session would run, how long it takes, and what it costs."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from virtqual.qualify.forecast import Forecast, forecast
from virtqual.report.console import verbatim
from virtqual.session.session import Request


def show(request: Request) -> None:
    """Print what a session would run.

    Raises
    ------
    UsageError, RefusedError, InfrastructureError
        As of `virtqual.qualify.forecast.forecast`.
    """
    console, found = verbatim(), forecast(request)
    console.print(_table(found))
    for line in _costs(found):
        console.print(line)
    if found.not_run:
        console.print(Text("Not run here:", style="dim"))
    for line in found.not_run:
        console.print(Text(f"  {line}", style="dim"))


def _table(found: Forecast) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("case", overflow="fold")
    for title in ("nodes", "runs", "native, s", "virtual, s"):
        table.add_column(title, justify="right", no_wrap=True)
    for case in found.cases:
        seconds = ("never run" if one is None else f"{one:.1f}" for one in case.seconds)
        table.add_row(case.name, str(case.nodes), str(case.runs), *seconds)
    return table


def _costs(found: Forecast) -> list[str]:
    """Return sentences about the whole: runs, jobs, time and nodes."""
    runs = sum(case.runs for case in found.cases)
    jobs = "2 jobs, held for the whole session" if found.nodes else f"{found.jobs} jobs, one a run"
    lines = [f"{len(found.cases)} cases, {runs} runs in the first round with its warm-ups: {jobs}."]
    if found.rotated > 1:
        lines.append(f"Checks of one node go over {found.rotated} nodes a side, all of them at work at once.")
    if found.least is None or found.most is None or found.node_seconds is None:
        lines.append("How long it takes is not known: none of these cases was ever run here.")
        return [*lines, "`virtqual sweep` runs the short ones in minutes, on all nodes at once."]
    waits = "" if found.nodes else ", and what the jobs wait in the queue"
    least, most, cost = _minutes(found.least), _minutes(found.most), f"{found.node_seconds / 3600:.2g}"
    lines += [
        f"About {least} where every metric is decided by the first round, {most} where none is before the "
        f"last{waits}; the first round costs {cost} node-hours."
    ]
    if unknown := sum(None in case.seconds for case in found.cases):
        lines.append(f"{unknown} of the cases were never run here: what they take comes on top.")
    return lines


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
