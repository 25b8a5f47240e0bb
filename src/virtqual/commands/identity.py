"""`virtqual identity`: what a node is, as far as can be seen from it; `virtqual host`: what only its host can say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from virtqual.errors import InfrastructureError, UsageError, VirtqualError


def command(
    as_json: Annotated[
        bool, typer.Option("--json", help="print one JSON document (virtqual-identity/1)")
    ] = False,
    host: Annotated[
        Path | None, typer.Option(help="what the hypervisor's host says (virtqual-host/1)", metavar="FILE")
    ] = None,
    look: Annotated[
        Path | None, typer.Option(help="what --script printed on another node", metavar="FILE")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="directory that holds a node's /proc and /sys", metavar="DIR")
    ] = None,
    script: Annotated[
        bool, typer.Option("--script", help="print the shell script for nodes without virtqual, and stop")
    ] = False,
) -> None:
    """Say what this node is: hypervisor, processor, NUMA, memory, kernel, adapters. Unprivileged.

    What cannot be seen from here is called "not observable", never assumed.
    """
    from virtqual.identity import host as hosts
    from virtqual.identity import look as looks
    from virtqual.identity import readers

    if script:
        typer.echo(looks.script(), nl=False)
        return
    try:
        if look and root:
            raise UsageError("--look and --root: give one of them")
        files = looks.parse(_text(look)) if look else looks.of_root(root) if root else looks.here()
        if not files.texts:
            raise InfrastructureError(f"{root or '/'}: holds none of the files that say what a node is")
        identity = readers.read(files)
        if host:
            identity = identity.on(hosts.load(host))
    except VirtqualError as error:
        _end(error, error.exit_code)
    except looks.LookError as error:
        _end(error, UsageError.exit_code)
    if as_json:
        typer.echo(json.dumps(identity.plain(), indent=1))
        return
    from rich.console import Console

    from virtqual.report import identity as report

    report.show(identity, Console(highlight=False))


def host_command(
    libvirt: Annotated[
        Path | None, typer.Option(help="what `virsh dumpxml NAME` printed", metavar="FILE")
    ] = None,
    qemu: Annotated[
        Path | None, typer.Option(help="arguments of QEMU: /proc/PID/cmdline", metavar="FILE")
    ] = None,
    vmx: Annotated[Path | None, typer.Option(help="ESXi: the VM's .vmx file", metavar="FILE")] = None,
    esxcli: Annotated[
        Path | None,
        typer.Option(help="ESXi: what `esxcli system version get` and others printed", metavar="FILE"),
    ] = None,
    here: Annotated[bool, typer.Option("--here", help="this machine is the host")] = False,
) -> None:
    """Print what a hypervisor's host says of itself and of a VM (virtqual-host/1), for `identity --host`.

    Options may be combined; see docs/preflight.md.
    """
    from virtqual.identity import host as hosts
    from virtqual.identity import look as looks
    from virtqual.identity import readers

    fields: hosts.Fields = {}
    given = {"libvirt": libvirt, "QEMU": qemu, ".vmx": vmx, "esxcli": esxcli}
    source = [name for name, file in given.items() if file] + (["this machine"] if here else [])
    try:
        if not source:
            raise UsageError("give at least one of --here, --libvirt, --qemu, --vmx, --esxcli")
        if here:
            fields |= hosts.of_identity(readers.read(looks.here()))
        if libvirt:
            fields |= hosts.of_libvirt(_text(libvirt))
        if qemu:
            fields |= hosts.of_qemu(_text(qemu).rstrip("\0").split("\0"))
        if vmx:
            fields |= hosts.of_vmx(_text(vmx))
        if esxcli:
            fields |= hosts.of_esxcli(_text(esxcli))
        typer.echo(hosts.write(hosts.of(fields, " and ".join(source))), nl=False)
    except VirtqualError as error:
        _end(error, error.exit_code)


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror})") from None


def _end(error: Exception, code: int) -> typer.Exit:
    typer.echo(f"virtqual: {error}", err=True)
    raise typer.Exit(code) from None
