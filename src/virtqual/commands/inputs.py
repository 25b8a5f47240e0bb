"""`virtqual inputs`: download the inputs of the studies' own sizes before a session."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from virtqual.errors import InfrastructureError, UsageError, VirtqualError
from virtqual.files.wording import pluralize
from virtqual.inputs import declarations, fetched
from virtqual.inputs.declarations import Input
from virtqual.report.console import verbatim

app = typer.Typer(
    help="Download inputs of studies before a session: no run downloads them.",
    no_args_is_help=True,
    add_completion=False,
)
_console = verbatim(soft_wrap=True)

Names = Annotated[list[str] | None, typer.Argument(help="inputs by name (default: all)")]


def _find_inputs(names: list[str] | None) -> list[Input]:
    return [declarations.find_input(name) for name in names or declarations.load_all()]


def _describe_state(declared: Input, *, read_files: bool = False) -> tuple[str, bool]:
    """Return the state of an input in words, and whether it is good."""
    if fetched.explain_missing(declared):
        return "not here", True
    try:
        files = fetched.verify(declared, read_files=read_files).files
    except VirtqualError as error:
        return str(error), False
    return f"here, {pluralize(len(files), 'file')}{' read and' if read_files else ','} as fetched", True


@app.command("list")
def show(names: Names = None) -> None:
    """List the inputs with their address, checksum and state."""
    for declared in _find_inputs(names):
        checksum = f"{declared.sha256} ({declared.checksum_from})" if declared.sha256 else "not declared"
        _console.print(f"{declared.name}: {_describe_state(declared)[0]}", style="bold")
        _console.print(f"  {declared.description}\n  {declared.url}\n  sha256: {checksum}")


@app.command()
def fetch(
    names: Names = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="the file, brought by hand, instead of its address")
    ] = None,
) -> None:
    """Download, verify and unpack inputs that are not here yet."""
    if source and len(names or ()) != 1:
        raise UsageError("--from is for one input: name it")
    errors = []
    for declared in _find_inputs(names):
        if not names and not fetched.explain_missing(declared):
            continue
        url = source.resolve().as_uri() if source else declared.url
        _console.print(f"{declared.name}: {url}")
        try:
            listed = fetched.fetch(declared, source=url)
        except VirtqualError as error:
            errors.append(error)
            continue
        count, megabytes = len(listed.files), sum(file.size for file in listed.files.values()) / 1e6
        _console.print(f"  {pluralize(count, 'file')}, {megabytes:.0f} MB, sha256 {listed.sha256}")
    if errors:
        worst = max(errors, key=lambda error: error.exit_code)
        raise type(worst)("; ".join(map(str, errors)))


@app.command()
def check(names: Names = None) -> None:
    """Read all files of the inputs that are here, and compare their checksums."""
    changed = []
    for declared in _find_inputs(names):
        state, is_good = _describe_state(declared, read_files=True)
        _console.print(f"{declared.name}: {state}")
        if not is_good:
            changed.append(declared.name)
    if changed:
        raise InfrastructureError(f"not as fetched: {', '.join(changed)}")
