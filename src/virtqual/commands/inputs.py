"""`virtqual inputs`: what the studies' own sizes need to be downloaded, beforehand and by name."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

import typer

from virtqual import paths
from virtqual.commands.speaking import speaking
from virtqual.errors import InfrastructureError, UsageError, VirtqualError
from virtqual.inputs import kept, known
from virtqual.inputs.known import Input
from virtqual.report.console import verbatim

app = typer.Typer(help="Inputs to download before a run; no run downloads anything.", no_args_is_help=True)
_say = verbatim(soft_wrap=True)

Names = Annotated[list[str] | None, typer.Argument(help="inputs by name (default: all)")]


def _chosen(names: list[str] | None) -> list[Input]:
    return [known.named(name) for name in names or known.inputs()]


def _state(wanted: Input, *, thoroughly: bool = False) -> tuple[str, bool]:
    """Return how it is with an input, and whether that is as it must be."""
    if kept.missing(wanted):
        return "not here", True
    try:
        found = kept.ready(wanted, thoroughly=thoroughly)
    except VirtqualError as error:
        return str(error), False
    return f"here, {len(found.files)} files{' read and' if thoroughly else ','} as fetched", True


@app.command("list")
def show(names: Names = None) -> None:
    """List the inputs: where each comes from, with which checksum, and whether it is here."""
    with speaking():
        for wanted in _chosen(names):
            _say.print(f"{wanted.name}: {_state(wanted)[0]}", style="bold")
            _say.print(f"  {wanted.description}")
            _say.print(f"  {wanted.url}")
            checksum = (
                f"{wanted.sha256} ({wanted.checksum_from})" if wanted.sha256 else "nobody has recorded one"
            )
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
        for wanted in _chosen(names):
            if not names and not kept.missing(wanted):
                continue
            _say.print(f"{wanted.name}: {source or wanted.url}")
            try:
                found = kept.fetch(wanted, source=source.resolve().as_uri() if source else "", trust=record)
            except VirtqualError as error:
                failed.append(error)
                continue
            megabytes = sum(file.size for file in found.files.values()) / 1e6
            _say.print(f"  {len(found.files)} files, {megabytes:.0f} MB, sha256 {found.sha256}")
            if wanted.sha256 is None:
                _record(wanted, found.sha256)
        if failed:
            raise max(failed, key=lambda error: error.exit_code).__class__("; ".join(map(str, failed)))


@app.command()
def check(names: Names = None) -> None:
    """Read every file of the inputs that are here, and compare its checksum."""
    with speaking():
        states = [(wanted, *_state(wanted, thoroughly=True)) for wanted in _chosen(names)]
        for wanted, text, _ in states:
            _say.print(text if text.startswith("the input") else f"{wanted.name}: {text}")
        if bad := [wanted.name for wanted, _, good in states if not good]:
            raise InfrastructureError(f"not as fetched: {', '.join(bad)}")


def _record(wanted: Input, sha256: str) -> None:
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
            f"  - name: {wanted.name}\n    url: {wanted.url}\n    sha256: {sha256}\n"
            f"    recorded: '{datetime.date.today()}'\n"
        )
    _say.print(f"  recorded in {file}: review it")
