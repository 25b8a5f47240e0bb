"""The command ``vcluster``."""

from __future__ import annotations

import json
import os
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from vcluster import cluster, emulated, fetch, forward, namespaces, requirements
from vcluster.directory import StateDirectory
from vcluster.errors import ClusterError, NodeError, OptionError
from vcluster.options import (
    DEFAULT_VCPUS,
    Adapter,
    DiskCache,
    Hosts,
    Options,
    parse_hosts,
    parse_kvm,
    parse_memory,
)
from vcluster.preparation import emulates_hosts
from vcluster.state import State
from vcluster.topology import MAC

INTERRUPTED = 130


class CommandGroup(TyperGroup):
    """Ends every command that fails with a message and the exit code of the error."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the arguments name."""
        try:
            return super().invoke(ctx)
        except ValidationError as error:
            details = error.errors()[0]
            option = str(details["loc"][0]).removesuffix("_mib").replace("_", "-")
            reason = details["msg"][0].lower() + details["msg"][1:]
            message, code = f"--{option} {details['input']}: {reason}.", OptionError.exit_code
        except ClusterError as error:
            message, code = str(error), error.exit_code
        except KeyboardInterrupt:
            message, code = "interrupted; `vcluster status` shows whether a cluster is up.", INTERRUPTED
        _report(f"vcluster: {message}")
        raise typer.Exit(code)


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"vcluster {metadata.version('virtqual')}")
        raise typer.Exit


@app.callback()
def _add_options(
    version: Annotated[
        bool,
        typer.Option("--version", help="show the version", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """A one-machine Slurm cluster with a native and a virtual partition."""


@app.command()
def up(
    hosts: Annotated[str, typer.Option(help="here, emulated, emulated:N or auto")] = Hosts.AUTO.value,
    vms: Annotated[int | None, typer.Option(help="VMs, and native nodes [2]")] = None,
    vcpus: Annotated[int | None, typer.Option(help="CPUs of a VM [2, on emulated hosts 1]")] = None,
    native_cpus: Annotated[int | None, typer.Option(help="CPUs of a native node [as a VM]")] = None,
    memory: Annotated[str, typer.Option(help="memory of a VM")] = "2G",
    qemu: Annotated[str, typer.Option(help="QEMU binary of the VMs")] = "qemu-system-x86_64",
    kvm: Annotated[list[str] | None, typer.Option(help="parameter of KVM on the hosts (repeatable)")] = None,
    kernel: Annotated[Path | None, typer.Option(help="folder of the guest kernel")] = None,
    qemu_arg: Annotated[list[str] | None, typer.Option(help="appended to QEMU's (repeatable)")] = None,
    cpu: Annotated[str | None, typer.Option(help="CPU model [host, under tcg max]")] = None,
    machine: Annotated[str | None, typer.Option(help="machine type [pc]")] = None,
    nic: Annotated[Adapter, typer.Option(help="network adapter of the VMs")] = Adapter.VIRTIO,
    mac: Annotated[str, typer.Option(help="first bytes of their addresses")] = MAC,
    disk_cache: Annotated[DiskCache, typer.Option(help="of VMs on emulated hosts")] = DiskCache.NONE,
    shared: Annotated[Path | None, typer.Option(help="the shared directory")] = None,
    pin: Annotated[bool, typer.Option(help="bind vCPUs to host CPUs")] = True,
    rdma: Annotated[bool, typer.Option(help="soft-RoCE in the nodes")] = True,
    timeout: Annotated[float, typer.Option(help="seconds until all nodes are idle")] = 180.0,
) -> None:
    """Bring the cluster up; does nothing if it is."""
    directory = StateDirectory.default().make()
    host_kind, count = parse_hosts(hosts, vms)
    options = Options(
        hosts=host_kind, kvm=parse_kvm(kvm or []), disk_cache=disk_cache,
        vms=count, vcpus=1 if vcpus is None else vcpus, native_cpus=native_cpus, pin=pin,
        memory_mib=parse_memory(memory), cpu=cpu, machine=machine, nic=nic, mac=mac, rdma=rdma,
        qemu=requirements.program(qemu).resolve(), qemu_args=tuple(qemu_arg or ()),
        kernel=kernel and kernel.resolve(), shared=(shared or directory.shared).resolve(),
    )  # fmt: skip
    if vcpus is None and not emulates_hosts(directory, options):
        options = options.model_copy(update={"vcpus": DEFAULT_VCPUS})
    state, started = cluster.up(directory, options, timeout, _report)
    forward.install_commands(directory)
    names = ", ".join(state.partitions.nodes)
    print(f"up after {state.boot_seconds:.1f} s: {names}" if started else f"already up: {names}")


@app.command()
def down() -> None:
    """Take the cluster down and leave nothing behind."""
    directory = StateDirectory.default()
    print("the cluster is down" if cluster.down(directory) else f"no cluster was up in {directory.root}")


@app.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def execute(command: Annotated[list[str], typer.Argument(help="command and arguments")]) -> None:
    """Run a command on the head of the cluster, in this directory."""
    state = cluster.load_running(StateDirectory.default())
    assert state.processes is not None
    line = namespaces.enter_command(state.processes, command, Path.cwd())
    os.execve(line[0], line, namespaces.head_environment())


@app.command()
def path() -> None:
    """Print the directory of Slurm commands that reach the cluster."""
    print(forward.install_commands(StateDirectory.default().make()))


@app.command()
def status(
    as_json: Annotated[bool, typer.Option("--json", help="machine readable")] = False,
) -> None:
    """Print the state of the cluster; exit code 0: it is up, 1: it is not up, 5: a part of it is lost."""
    directory = StateDirectory.default()
    state = cluster.load_running(directory)
    nodes, damage = cluster.inspect_nodes(state)
    if as_json:
        report = {
            "healthy": not damage,
            "nodes": {name: {"state": node, "reason": reason} for name, (node, reason) in nodes.items()},
            "logs": str(directory.logs),
            "state": state.model_dump(mode="json", by_alias=True),
        }
        print(json.dumps(report, indent=2))
    else:
        _print_summary(directory, state)
        _print_nodes(state, nodes)
    if damage:
        raise NodeError(f"{damage} (`vcluster up` starts the cluster anew)")


def _print_summary(directory: StateDirectory, state: State) -> None:
    print(f"up since {state.created.astimezone():%Y-%m-%d %H:%M:%S}, booted in {state.boot_seconds:.1f} s")
    print(f"hypervisor  QEMU {state.hypervisor.build}")
    print(f"            {state.hypervisor.binary}, {state.hypervisor.machine}")
    print(f"accelerator {state.hypervisor.accelerator} ({state.hypervisor.accelerator_reason})")
    for emulator in {host.emulator for host in state.hosts if host.emulator}:
        print(f"hosts       emulated by QEMU {emulator.build}")
        print(f"            {emulator.binary}")
    vcpus = f"{state.guest.vcpus} vCPU{'s' if state.guest.vcpus > 1 else ''}"
    print(f"guest       Linux {state.guest.kernel}, {vcpus}, {state.guest.memory_mib} MiB")
    native, virtual = state.partitions.native, state.partitions.virtual
    print(f"RDMA        {virtual.rdma or 'none'} in the VMs, {native.rdma or 'none'} in native nodes")
    print(f"shared      {state.shared}")
    print(f"logs        {directory.logs}")
    print()


def _print_nodes(state: State, nodes: dict[str, tuple[str, str]]) -> None:
    hosts = {node: host.name for host in state.hosts for node in (*host.native, *host.virtual)}
    print(f"{'node':<9} {'partition':<9} {'host':<12} {'its CPUs':<8} state")
    for label, partition in (("native", state.partitions.native), ("virtual", state.partitions.virtual)):
        for name in partition.nodes:
            cpus = ",".join(map(str, partition.host_cpus[name]))
            line = f"{name:<9} {label:<9} {hosts[name]:<12} {cpus:<8} "
            print((line + " ".join(nodes[name])).rstrip())


@app.command("host", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run_on_host(
    name: Annotated[str, typer.Argument(help="name of the host, such as host1")],
    command: Annotated[list[str], typer.Argument(help="command and arguments")],
) -> None:
    """Run a command on an emulated host, as its root; its errors come with its output."""
    directory = StateDirectory.default()
    hosts = [host.name for host in cluster.load_running(directory).hosts if host.emulator]
    if name not in hosts:
        raise OptionError(f"no emulated host {name!r}; there are: {', '.join(hosts) or 'none'}.")
    line = shlex.join(command[1:] if command[0] == "--" else command)
    code, output = emulated.run_on_host(directory.logs, name, line)
    print(output, end="")
    raise typer.Exit(code)


@app.command("boot-vms-anew")
def boot_vms_anew(
    timeout: Annotated[float, typer.Option(help="seconds until all nodes are idle")] = 180.0,
) -> None:
    """End all VMs and start each anew, with other memory; returns when all nodes are idle."""
    cluster.boot_vms_anew(StateDirectory.default(), timeout)


@app.command("kernel")
def fetch_kernel(
    to: Annotated[Path | None, typer.Option(help="folder [in the state directory]")] = None,
) -> None:
    """Fetch a guest kernel, without installing it; prints its folder."""
    target = (to or StateDirectory.default().make().kernel).resolve()
    fetch.fetch_kernel(target, _report)
    print(target)


@app.command("emulator")
def fetch_emulator(
    if_needed: Annotated[bool, typer.Option("--if-needed", help="only if KVM does not work")] = False,
) -> None:
    """Fetch the QEMU that emulates hosts, without installing it; prints its path."""
    directory = StateDirectory.default().make()
    if if_needed:
        qemu = requirements.program("qemu-system-x86_64").resolve()
        if not emulates_hosts(directory, Options(qemu=qemu, shared=directory.shared)):
            return
    print(fetch.fetch_emulator(directory.emulator.resolve(), _report))


@app.command("requirements")
def show_requirements(
    packages: Annotated[bool, typer.Option("--packages", help="package names only")] = False,
) -> None:
    """Print missing programs and the Debian packages that bring them."""
    missing = requirements.list_missing()
    if packages:
        for package in dict.fromkeys(requirement.package for requirement in missing):
            print(package)
        return
    for requirement in missing:
        print(f"{requirement.name:<19} {requirement.package:<17} {requirement.purpose}")
    if not missing:
        print("nothing is missing")
