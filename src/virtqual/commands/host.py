"""`virtqual host`: what only the host under a hypervisor can say, gathered into one small file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from virtqual.commands.identity import text_of
from virtqual.commands.speaking import speaking
from virtqual.errors import UsageError
from virtqual.identity import NotObservable, gather, kvm_host, readers
from virtqual.identity import host as hosts
from virtqual.identity.record import Text


def command(
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
    fields: hosts.Fields = {}
    given = {"libvirt": libvirt, "QEMU": qemu, ".vmx": vmx, "esxcli": esxcli}
    source = [name for name, file in given.items() if file] + (["this machine"] if here else [])
    with speaking():
        if not source:
            raise UsageError("give at least one of --here, --libvirt, --qemu, --vmx, --esxcli")
        if here:
            fields |= hosts.of_identity(readers.read(gather.here())) | kvm_host.of_root()
        if libvirt:
            fields |= hosts.of_libvirt(text_of(libvirt))
        if qemu:
            fields |= hosts.of_qemu(text_of(qemu).rstrip("\0").split("\0"))
        if vmx:
            fields |= hosts.of_vmx(text_of(vmx))
        if esxcli:
            fields |= hosts.of_esxcli(text_of(esxcli))
        if here:
            fields["qemu_package"] = _qemu_package(libvirt, qemu)
        typer.echo(hosts.write(hosts.of(fields, " and ".join(source))), nl=False)


def _qemu_package(libvirt: Path | None, qemu: Path | None) -> Text:
    binary = kvm_host.running(qemu) if qemu else None
    if binary is None:
        named = (qemu and text_of(qemu).partition("\0")[0]) or (libvirt and hosts.emulator(text_of(libvirt)))
        if not named:
            return NotObservable(not_observable="neither --qemu nor --libvirt names QEMU's binary")
        binary = Path(named)
    return kvm_host.package(binary)


app = typer.Typer(add_completion=False)
app.command()(command)
