"""`virtqual report`: a session as a file, for people or for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from virtqual import paths
from virtqual.commands.messages import print_doubts, write_output
from virtqual.commands.options import SESSION_HELP
from virtqual.errors import UsageError
from virtqual.files.records import open_directory
from virtqual.report import machines, page
from virtqual.session.packed import find_packed
from virtqual.session.store import find, load

_FORMS = {".html": page.render, **machines.FORMS}


def command(
    session: Annotated[str, typer.Argument(help=SESSION_HELP)] = "last",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="NAME.html, .csv, .json, .md or .prom; report.html beside the session"
        ),
    ] = None,
) -> None:
    """Write a session as a file that can be sent to others.

    HTML has all that the session says, in one file that needs no network and no
    script: verdicts, curves, every run, what both sides are, and a text for a bug
    report. CSV has every sample, as `virtqual judge` reads it, JSON every run,
    Markdown the table for a merge request, and .prom what node_exporter's
    textfile collector reads.
    """
    if output is None and find_packed(session):
        raise UsageError(f"name a file by -o, such as -o report.html: {session} has no directory for it")
    form = _FORMS.get(Path(output or page.FILE).suffix)
    if form is None:
        raise UsageError(f"-o {output}: the name has to end with {', '.join(_FORMS)}")
    directory = find(session, paths.sessions())
    # The name of a directory of others may lead elsewhere when its session has been read.
    with open_directory(directory) as descriptor:
        loaded = load(directory)
        print_doubts(loaded, directory)
        if output:
            write_output(form(loaded), output)
        else:
            write_output(form(loaded), directory / page.FILE, descriptor)
