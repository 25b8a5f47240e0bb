"""`virtqual identity`: the facts that a node shows of itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from virtqual.errors import InfrastructureError, UsageError, VirtqualError
from virtqual.files import reading
from virtqual.identity import gather, readers
from virtqual.identity import host as hosts
from virtqual.report.console import verbatim

ContentT = TypeVar("ContentT")


def read_with(parse: Callable[[str], ContentT], file: Path) -> ContentT:
    """Return what `parse` makes of a file that a person named; raise `UsageError` if it cannot be used."""
    try:
        return parse(reading.read_bytes(file, pipes=True).decode("utf-8", errors="replace"))
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror})") from None
    except (VirtqualError, ValueError) as error:
        raise UsageError(f"{file}: {error}") from None


def command(
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
    host: Annotated[
        Path | None, typer.Option(help="what the hypervisor's host says (virtqual-host/1)", metavar="FILE")
    ] = None,
    gathered: Annotated[
        Path | None, typer.Option("--from", help="what --script printed on another node", metavar="FILE")
    ] = None,
    script: Annotated[
        bool, typer.Option("--script", help="print the shell script for nodes without virtqual, and stop")
    ] = False,
) -> None:
    """Say what this node is: hypervisor, processor, NUMA, memory, kernel, adapters. Unprivileged.

    A value that cannot be seen from here is called "not observable", never
    assumed.
    """
    if script:
        typer.echo(gather.script(), nl=False)
        return
    files = read_with(gather.parse, gathered) if gathered else gather.run_script()
    if not files.texts:
        raise InfrastructureError(f"{gathered or '/'}: holds none of the files that say what a node is")
    identity = readers.read(files)
    if host:
        identity = identity.on(hosts.load(host))
    if as_json:
        typer.echo(json.dumps(identity.plain(), indent=1))
        return

    from virtqual.report import identity as report

    report.show(identity, verbatim())
