"""`virtqual show`: the table and the conclusion of a session that has ended, as they were printed."""

from __future__ import annotations

from typing import Annotated

import typer

from virtqual import paths
from virtqual.commands.messages import print_doubts
from virtqual.commands.options import SESSION_HELP
from virtqual.report.terminal import Terminal
from virtqual.session.packed import find_packed
from virtqual.session.store import find, load


def command(
    session: Annotated[str, typer.Argument(help=SESSION_HELP)] = "last",
) -> None:
    """Print the table of a session again, with its conclusion.

    The exit code is 0, also if the session is over budget. virtqual brings
    examples: `virtqual show example:within`, example:over and example:refused.
    """
    directory = find(session, paths.sessions())
    loaded, terminal = load(directory), Terminal()
    terminal.begin(loaded, ())
    packed = find_packed(session)
    terminal.end(loaded, "" if packed else str(directory), session if packed else "")
    print_doubts(loaded, directory)
