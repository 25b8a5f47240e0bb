"""`virtqual host`: what only the host under a hypervisor can say, gathered into one small file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from virtqual.commands.identity import read_with
from virtqual.errors import UsageError
from virtqual.identity import gather, kvm_host
from virtqual.identity import host as hosts
from virtqual.identity.record import Host

#: A name, the file of that name if the caller has one, and the function that reads its text.
Source = tuple[str, Path | None, Callable[[str], hosts.Fields]]


def command(
    this_machine: Annotated[bool, typer.Option("--here", help="this machine is the host")] = False,
    script: Annotated[
        bool, typer.Option("--script", help="print the shell script for hosts without virtqual, and stop")
    ] = False,
    gathered: Annotated[
        Path | None, typer.Option("--from", help="what --script printed on a KVM host", metavar="FILE")
    ] = None,
    vm: Annotated[str, typer.Option(help="of a KVM host: the VM that is meant", metavar="NAME")] = "",
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
) -> None:
    """Print what a hypervisor's host says of itself and of a VM (virtqual-host/1), for `identity --host`.

    Options may be combined; see docs/preflight.md.
    """
    if script:
        typer.echo(kvm_host.script(), nl=False)
        return
    if this_machine and gathered:
        raise UsageError("--here and --from: give one of them")
    if vm and not (this_machine or gathered):
        raise UsageError("--vm names a VM of what --here or --from say")
    sources: tuple[Source, ...] = (
        ("--from", gathered, lambda text: kvm_host.read_script(gather.parse(text), vm)),
        ("libvirt", libvirt, hosts.read_libvirt),
        ("QEMU", qemu, lambda text: hosts.read_qemu(text.rstrip("\0").split("\0"))),
        (".vmx", vmx, hosts.read_vmx),
        ("esxcli", esxcli, hosts.read_esxcli),
    )
    typer.echo(hosts.write(_read_host(sources, vm, this_machine=this_machine)), nl=False)


def _read_host(sources: Sequence[Source], vm: str, *, this_machine: bool) -> Host:
    """Return what the files that were given, or this machine, say of a host and of one of its VMs."""
    fields = kvm_host.read_script(gather.run_script(kvm_host.script()), vm) if this_machine else {}
    named_files = [(name, file, parse) for name, file, parse in sources if file]
    for _, file, parse in named_files:
        fields |= read_with(parse, file)
    names = [*(name for name, *_ in named_files), *(["this machine"] if this_machine else [])]
    if not names:
        raise UsageError("give at least one of --here, --from, --libvirt, --qemu, --vmx, --esxcli")
    return hosts.make_host(fields, " and ".join(names))
