"""`virtqual list`: all sessions, the newest first."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from virtqual import paths
from virtqual.commands.believed import verified_summaries
from virtqual.errors import DamagedError, RefusedError, VirtqualError
from virtqual.files.wording import printable
from virtqual.report.console import verbatim
from virtqual.session.session import MAX_LABEL_CHARS
from virtqual.session.store import NoSessionError
from virtqual.verdict import Outcome


def command() -> None:
    """List the sessions below the state directory: outcome, number of runs, hypervisor, label."""
    console = verbatim()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", expand=True)
    table.add_column("session", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    table.add_column("runs", justify="right")
    # A line a session: `virtqual show` has what is cut here.
    table.add_column("label", no_wrap=True, overflow="ellipsis", max_width=16)
    table.add_column("hypervisor", no_wrap=True, overflow="ellipsis", ratio=1)
    unreadable = []
    for directory, session in verified_summaries(paths.sessions()):
        if isinstance(session, VirtqualError):
            unreadable.append(str(session))
            if isinstance(session, DamagedError | RefusedError):
                outcome = "BROKEN" if isinstance(session, DamagedError) else Outcome.INVALID.value
                table.add_row(directory.name, outcome, "-", "", "")
            continue
        about = [Text(printable(text, MAX_LABEL_CHARS)) for text in (session.label, session.hypervisor)]
        table.add_row(session.session, session.outcome, str(session.runs), *about)
    if not (table.row_count or unreadable):
        raise NoSessionError(paths.sessions())
    if table.row_count:
        console.print(table)
    for line in unreadable:
        console.print(Text(line, style="yellow"), soft_wrap=True)
