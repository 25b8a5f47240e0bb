"""`virtqual site`: make a site directory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

from virtqual import paths
from virtqual.errors import UsageError
from virtqual.report.console import verbatim

app = typer.Typer(
    help="Make the site directory, which has all files of a centre.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def _group() -> None:
    """Make a group: without a callback Typer makes none of one command."""


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="a directory that does not exist yet, or is empty")],
) -> None:
    """Make a site directory with an example of each kind of file."""
    if os.path.lexists(directory) and not (directory.is_dir() and not any(directory.iterdir())):
        raise UsageError(f"{directory} is not an empty directory: name one that does not exist yet")
    try:
        shutil.copytree(
            paths.root() / "site.example",
            directory,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    except OSError as error:
        # copytree collects errors of files, which have no message of their own.
        raise UsageError(f"{directory} cannot be made: {error.strerror or error}") from None
    path, console = directory.resolve(), verbatim(soft_wrap=True)
    console.print(f"{path} is made; its README.md says what lies where")
    if path != paths.root() / "site":
        console.print(f"virtqual reads it after: export VIRTQUAL_SITE={path}")
