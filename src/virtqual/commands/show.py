"""`virtqual show`: the table and the conclusion of a session that has ended, as they were printed."""

from __future__ import annotations

from typing import Annotated

import typer

from virtqual import paths
from virtqual.commands.messages import print_doubts
from virtqual.report.terminal import Terminal
from virtqual.session.store import find, load


def command(
    session: Annotated[str, typer.Argument(help="session (id, path or 'last')")] = "last",
) -> None:
    """Print the table of a session again, with its conclusion.

    The exit code is 0, also if the session is over budget.
    """
    directory = find(session, paths.sessions())
    loaded, terminal = load(directory), Terminal()
    terminal.begin(loaded, ())
    terminal.end(loaded, str(directory))
    print_doubts(loaded, directory)
