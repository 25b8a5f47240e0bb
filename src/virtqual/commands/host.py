"""`virtqual host`: what only the host under a hypervisor can say, gathered into one small file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from virtqual.commands.identity import read_with
from virtqual.errors import UsageError
from virtqual.identity import gather, kvm_host
from virtqual.identity import host as hosts

File = Path | None


def command(
    this_machine: Annotated[bool, typer.Option("--here", help="this machine is the host")] = False,
    script: Annotated[
        bool, typer.Option("--script", help="print the shell script for hosts without virtqual, and stop")
    ] = False,
    gathered: Annotated[
        File, typer.Option("--from", help="what --script printed on a KVM host", metavar="FILE")
    ] = None,
    vm: Annotated[str, typer.Option(help="of a KVM host: the VM that is meant", metavar="NAME")] = "",
    libvirt: Annotated[File, typer.Option(help="what `virsh dumpxml NAME` printed", metavar="FILE")] = None,
    qemu: Annotated[File, typer.Option(help="arguments of QEMU: /proc/PID/cmdline", metavar="FILE")] = None,
    vmx: Annotated[File, typer.Option(help="ESXi: the VM's .vmx file", metavar="FILE")] = None,
    esxcli: Annotated[
        File, typer.Option(help="ESXi: what `esxcli system version get` and others printed", metavar="FILE")
    ] = None,
) -> None:
    """Print what a hypervisor's host says of itself and of a VM, for `extras.host` of a system file.

    Options may be combined; see docs/preflight.md.
    """
    if script:
        typer.echo(f"#!/bin/sh\n{kvm_host.script()}", nl=False)
        return
    if this_machine and gathered:
        raise UsageError("--here and --from: give one of them")
    if vm and not (this_machine or gathered):
        raise UsageError("--vm names a VM of what --here or --from say")
    sources: tuple[tuple[str, File, Callable[[str], hosts.Fields]], ...] = (
        ("--from", gathered, lambda text: kvm_host.read_script(gather.parse(text), vm)),
        ("libvirt", libvirt, hosts.read_libvirt),
        ("QEMU", qemu, lambda text: hosts.read_qemu(text.rstrip("\0").split("\0"))),
        (".vmx", vmx, hosts.read_vmx),
        ("esxcli", esxcli, hosts.read_esxcli),
    )
    names = [name for name, file, _ in sources if file] + ["this machine"] * this_machine
    if not names:
        raise UsageError("give at least one of --here, --from, --libvirt, --qemu, --vmx, --esxcli")
    fields = kvm_host.read_script(gather.run_script(kvm_host.script()), vm) if this_machine else {}
    for _, file, read in sources:
        fields |= read_with(read, file) if file else {}
    typer.echo(hosts.write(hosts.make_host(fields, " and ".join(names))), nl=False)
