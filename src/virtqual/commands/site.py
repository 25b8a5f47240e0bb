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

#: Parts of a site directory that the example lacks: people make them, or virtqual.
MADE_LATER = {"stacks", "inputs", "hosts", "host.sh", "ask-hosts", "notify.yaml", ".git"}
app = typer.Typer(
    help="Make the site directory, which has all files of a centre.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def _group() -> None:
    """Make a group: without a callback Typer makes none of one command."""


def _copy_absent(example: Path, directory: Path) -> None:
    """Copy what a directory lacks, with the umask's modes: those of the checkout may let others write."""
    directory.mkdir(parents=True, exist_ok=True)
    for source in sorted(example.iterdir()):
        target = directory / source.name
        if source.is_dir() and source.name != "__pycache__":
            _copy_absent(source, target)
        elif source.is_file() and not os.path.lexists(target):
            shutil.copyfile(source, target)
            if os.access(source, os.X_OK):
                target.chmod(target.stat().st_mode | 0o111)


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="a new directory, or one with parts of a site directory")],
) -> None:
    """Make a site directory with an example of each kind of file; what exists stays as it is."""
    example = paths.root() / "site.example"
    if os.path.lexists(directory):
        parts = {part.name for part in example.iterdir()} | MADE_LATER
        if not directory.is_dir() or any(part.name not in parts for part in directory.iterdir()):
            raise UsageError(f"{directory} is no site directory: name one that does not exist yet")
    try:
        _copy_absent(example, directory)
    except OSError as error:
        raise UsageError(f"{directory} cannot be made: {error.strerror}") from None
    path, console = directory.resolve(), verbatim(soft_wrap=True)
    console.print(f"{path} is made; its README.md says what lies where")
    if path != paths.root() / "site":
        console.print(f"virtqual reads it after: export VIRTQUAL_SITE={path}")
