"""`virtqual repair`: the intact part of a damaged session, as a session of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from virtqual import paths
from virtqual.qualify.repairing import repair
from virtqual.report.console import verbatim
from virtqual.session.store import find


def command(session: Annotated[str, typer.Argument(help="session (id or path) that is damaged")]) -> None:
    """Copy the lines of a log before the first damaged one into a new session.

    The damaged session stays as it is.  The new session is judged again if no run
    is lost; else `virtqual qualify --resume` goes on with it.
    """
    log, dropped = repair(find(session, paths.sessions()))
    concluded = log.session()
    say = verbatim()
    say.print(f"session {concluded.session}: {dropped}", soft_wrap=True)
    say.print(f"{concluded.outcome}: {concluded.message}", soft_wrap=True)
