"""`virtqual inputs`: what the studies' own sizes need to be downloaded, beforehand and by name."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from virtqual import paths
from virtqual.commands.speaking import speaking
from virtqual.errors import InfrastructureError, UsageError, VirtqualError
from virtqual.inputs import kept, known
from virtqual.inputs.known import Input

app = typer.Typer(help="Inputs to download before a run; no run downloads anything.", no_args_is_help=True)
_say = Console(highlight=False, markup=False, soft_wrap=True)

Names = Annotated[list[str] | None, typer.Argument(help="inputs by name (default: all)")]


def _chosen(names: list[str] | None) -> list[Input]:
    return [known.named(name) for name in names or known.inputs()]


def _state(one: Input, *, thoroughly: bool = False) -> tuple[str, bool]:
    """Return how it is with an input, and whether that is as it must be."""
    if kept.missing(one):
        return "not here", True
    try:
        found = kept.ready(one, thoroughly=thoroughly)
    except VirtqualError as error:
        return str(error), False
    return f"here, {len(found.files)} files{' read and' if thoroughly else ','} as fetched", True


@app.command("list")
def show(names: Names = None) -> None:
    """List the inputs: where each comes from, with which checksum, and whether it is here."""
    with speaking():
        for one in _chosen(names):
            _say.print(f"{one.name}: {_state(one)[0]}", style="bold")
            _say.print(f"  {one.description}")
            _say.print(f"  {one.url}")
            checksum = f"{one.sha256} ({one.checksum_from})" if one.sha256 else "nobody has recorded one"
            _say.print(f"  sha256: {checksum}")


@app.command()
def fetch(
    names: Names = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="the file, brought by hand, instead of its address")
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="trust a file without a known checksum, and record its own")
    ] = False,
) -> None:
    """Download, verify and unpack inputs that are not here yet."""
    with speaking():
        if source and len(names or ()) != 1:
            raise UsageError("--from is for one input: name it")
        if record and not names:
            raise UsageError("--record trusts what is named: name the inputs")
        failed = []
        for one in _chosen(names):
            if not names and not kept.missing(one):
                continue
            _say.print(f"{one.name}: {source or one.url}")
            try:
                found = kept.fetch(one, source=source.resolve().as_uri() if source else "", trust=record)
            except VirtqualError as error:
                failed.append(error)
                continue
            megabytes = sum(file.size for file in found.files.values()) / 1e6
            _say.print(f"  {len(found.files)} files, {megabytes:.0f} MB, sha256 {found.sha256}")
            if one.sha256 is None:
                _record(one, found.sha256)
        if failed:
            raise max(failed, key=lambda error: error.exit_code).__class__("; ".join(map(str, failed)))


@app.command()
def check(names: Names = None) -> None:
    """Read every file of the inputs that are here, and compare its checksum."""
    with speaking():
        states = [(one, *_state(one, thoroughly=True)) for one in _chosen(names)]
        for one, text, _ in states:
            _say.print(text if text.startswith("the input") else f"{one.name}: {text}")
        if bad := [one.name for one, _, good in states if not good]:
            raise InfrastructureError(f"not as fetched: {', '.join(bad)}")


def _record(one: Input, sha256: str) -> None:
    """Add a checksum to the site's record, for its people to review."""
    file = paths.references() / "inputs" / known.RECORDED
    if not file.exists():
        file.write_text(
            "# Checksums of first downloads (virtqual inputs fetch --record): to be reviewed and kept.\n"
            f"schema: {known.SCHEMA}\nrecorded:\n",
            encoding="utf-8",
        )
    with file.open("a", encoding="utf-8") as text:
        text.write(
            f"  - name: {one.name}\n    url: {one.url}\n    sha256: {sha256}\n"
            f"    recorded: '{datetime.date.today()}'\n"
        )
    _say.print(f"  recorded in {file}: review it")
