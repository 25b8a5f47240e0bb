"""`virtqual convert`: sessions of an earlier format, so that this version reads them."""

from __future__ import annotations

from typing import Annotated

import typer

from virtqual import paths
from virtqual.report.console import verbatim
from virtqual.session.convert import OLD_LOG, convert
from virtqual.session.store import find


def command(
    sessions: Annotated[list[str], typer.Argument(help="sessions (id or path) of format 2")],
) -> None:
    """Convert the logs of sessions to the present format, in place.

    The log as it was is kept beside the new one.
    """
    for name in sessions:
        log = convert(find(name, paths.sessions()))
        verbatim().print(f"{log.path}: converted; the log before is {OLD_LOG}", soft_wrap=True)
