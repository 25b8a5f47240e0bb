"""The command ``vcluster``."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TextIO

import typer
from pydantic import ValidationError

from vcluster import cluster, emulated, fetch, forward, namespaces, qemu, requirements
from vcluster.directory import StateDirectory
from vcluster.errors import ClusterError, NodeError, OptionError
from vcluster.options import (
    DEFAULT_VCPUS,
    Accelerator,
    Adapter,
    Hosts,
    Options,
    parse_hosts,
    parse_kvm,
    parse_memory,
)
from vcluster.state import State
from vcluster.topology import MAC

app = typer.Typer(
    help="A one-machine Slurm cluster with a native and a virtual partition.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@contextmanager
def _speaking() -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]).removesuffix("_mib").replace("_", "-")
        why = f"vcluster: --{name} {first['input']}: {first['msg'][0].lower()}{first['msg'][1:]}."
        print(_folded(why, sys.stderr), file=sys.stderr)
        raise typer.Exit(OptionError.exit_code) from None
    except ClusterError as error:
        print(_folded(f"vcluster: {error}", sys.stderr), file=sys.stderr)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        print("vcluster: interrupted, nothing is left running", file=sys.stderr)
        raise typer.Exit(130) from None


def _say(text: str) -> None:
    print(_folded(f"  {text}", sys.stdout, "  "), flush=True)


def _folded(text: str, stream: TextIO, indent: str = "") -> str:
    """Return a message in lines of whole words as wide as the terminal; as it is where it goes elsewhere."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return textwrap.fill(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


@app.command()
def up(
    hosts: Annotated[str, typer.Option(help="here, emulated, emulated:N or auto")] = Hosts.AUTO.value,
    vms: Annotated[int | None, typer.Option(help="VMs, and native nodes [2]")] = None,
    vcpus: Annotated[int | None, typer.Option(help="CPUs of a VM [2, on emulated hosts 1]")] = None,
    native_cpus: Annotated[int | None, typer.Option(help="CPUs of a native node [as a VM]")] = None,
    memory: Annotated[str, typer.Option(help="memory of a VM")] = "2G",
    accel: Annotated[Accelerator, typer.Option(help="accelerator of the guests")] = Accelerator.AUTO,
    qemu: Annotated[str, typer.Option(help="QEMU binary of the VMs")] = "qemu-system-x86_64",
    kvm: Annotated[list[str] | None, typer.Option(help="parameter of KVM on the hosts (repeatable)")] = None,
    kernel: Annotated[Path | None, typer.Option(help="guest kernel: folder or image")] = None,
    modules: Annotated[Path | None, typer.Option(help="folder with lib/modules/")] = None,
    qemu_arg: Annotated[list[str] | None, typer.Option(help="appended to QEMU's (repeatable)")] = None,
    cpu: Annotated[str | None, typer.Option(help="CPU model [host, under tcg max]")] = None,
    machine: Annotated[str | None, typer.Option(help="machine type [pc]")] = None,
    nic: Annotated[Adapter, typer.Option(help="network adapter of the VMs")] = Adapter.VIRTIO,
    mac: Annotated[str, typer.Option(help="first bytes of their addresses")] = MAC,
    shared: Annotated[Path | None, typer.Option(help="the read-write directory")] = None,
    pin: Annotated[bool, typer.Option(help="bind vCPUs to host CPUs")] = True,
    rdma: Annotated[bool, typer.Option(help="soft-RoCE in the nodes")] = True,
    timeout: Annotated[float, typer.Option(help="seconds until all nodes are idle")] = 180.0,
) -> None:
    """Bring the cluster up; does nothing if it is."""
    with _speaking():
        directory = StateDirectory.default().make()
        place, count = parse_hosts(hosts, vms)
        options = Options(
            hosts=place,
            kvm=parse_kvm(kvm or []),
            vms=count,
            vcpus=1 if vcpus is None else vcpus,
            native_cpus=native_cpus,
            memory_mib=parse_memory(memory),
            accel=accel,
            qemu=requirements.program(qemu).resolve(),
            kernel=kernel and kernel.resolve(),
            modules=modules and modules.resolve(),
            qemu_args=tuple(qemu_arg or ()),
            cpu=cpu,
            machine=machine,
            nic=nic,
            mac=mac,
            shared=(shared or directory.shared).resolve(),
            pin=pin,
            rdma=rdma,
        )
        if vcpus is None and not cluster.emulates_hosts(directory, options):
            options = options.model_copy(update={"vcpus": DEFAULT_VCPUS})
        state, started = cluster.up(directory, options, timeout, _say)
        forward.install(directory)
        names = ", ".join((*state.partitions.native.nodes, *state.partitions.virtual.nodes))
        print(f"up after {state.boot_seconds:.1f} s: {names}" if started else f"already up: {names}")


@app.command()
def down() -> None:
    """Take the cluster down and leave nothing behind."""
    with _speaking():
        print("the cluster is down" if cluster.down(StateDirectory.default()) else "no cluster was up")


@app.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def execute(command: Annotated[list[str], typer.Argument(help="command and arguments")]) -> None:
    """Run a command on the head of the cluster, in this directory."""
    with _speaking():
        state = cluster.running(StateDirectory.default())
        assert state.processes is not None
        line = namespaces.enter(state.processes.entry, state.processes.rootless, command, Path.cwd())
        os.execve(line[0], line, namespaces.environment())


@app.command()
def path() -> None:
    """Print the directory of Slurm commands that reach the cluster."""
    with _speaking():
        print(forward.install(StateDirectory.default().make()))


@app.command()
def status(
    as_json: Annotated[bool, typer.Option("--json", help="machine readable")] = False,
) -> None:
    """Print the state of the cluster; exit code 0: it is up, 1: it is not up, 5: a part of it is lost."""
    with _speaking():
        directory = StateDirectory.default()
        state = cluster.running(directory)
        nodes = cluster.nodes(state)
        wrong = cluster.damage(nodes)
        if as_json:
            shown = {name: {"state": found, "reason": reason} for name, (found, reason) in nodes.items()}
            report = {"healthy": not wrong, "nodes": shown, "logs": str(directory.logs)}
            print(json.dumps({**report, "state": state.model_dump(mode="json", by_alias=True)}, indent=2))
        else:
            _table(directory, state, nodes)
        if wrong:
            raise NodeError(f"{wrong} (`vcluster up` starts the cluster anew)")


def _table(directory: StateDirectory, state: State, nodes: dict[str, tuple[str, str]]) -> None:
    since = state.created.astimezone()
    print(f"up since {since:%Y-%m-%d %H:%M:%S}, booted in {state.boot_seconds:.1f} s")
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
    on = {node: host.name for host in state.hosts for node in (*host.native, *host.virtual)}
    print(f"{'node':<9} {'partition':<9} {'address':<11} {'host':<12} {'its CPUs':<8} state")
    for label, part, addresses in (
        ("native", state.partitions.native, state.network.native),
        ("virtual", state.partitions.virtual, state.network.virtual),
    ):
        for name in part.nodes:
            found, reason = nodes[name]
            cpus = ",".join(map(str, part.host_cpus[name]))
            line = f"{name:<9} {label:<9} {addresses[name]:<11} {on[name]:<12} {cpus:<8} {found} {reason}"
            print(line.rstrip())


@app.command("host", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def on_host(
    name: Annotated[str, typer.Argument(help="name of the host, such as host1")],
    command: Annotated[list[str], typer.Argument(help="command and arguments")],
) -> None:
    """Run a command on an emulated host, as its root; its errors come with its output."""
    with _speaking():
        directory = StateDirectory.default()
        known = [host.name for host in cluster.running(directory).hosts if host.emulator]
        if name not in known:
            raise OptionError(f"no emulated host {name!r}; there are: {', '.join(known) or 'none'}.")
        code, output = emulated.command(directory.logs, name, shlex.join(command[command[0] == "--" :]))
        print(output, end="")
        raise typer.Exit(code)


@app.command("boot-vms-anew")
def boot_vms_anew(
    timeout: Annotated[float, typer.Option(help="seconds until all nodes are idle")] = 180.0,
) -> None:
    """End all VMs and start each anew, with other memory; returns when all nodes are idle."""
    with _speaking():
        cluster.boot_vms_anew(StateDirectory.default(), timeout)


@app.command("kernel")
def fetch_kernel(
    to: Annotated[Path | None, typer.Option(help="folder [in the state directory]")] = None,
) -> None:
    """Fetch a guest kernel, without installing it; prints its folder."""
    with _speaking():
        target = (to or StateDirectory.default().make().kernel).resolve()
        found, new = fetch.fetch_kernel(target, lambda text: print(text, file=sys.stderr, flush=True))
        print(f"{found.release}: {'fetched' if new else 'already there'}", file=sys.stderr)
        print(target)


@app.command("emulator")
def fetch_emulator(
    to: Annotated[Path | None, typer.Option(help="folder [in the state directory]")] = None,
    if_needed: Annotated[bool, typer.Option("--if-needed", help="only where KVM does not work")] = False,
) -> None:
    """Fetch the QEMU that emulates hosts, without installing it; prints its path."""
    with _speaking():
        directory = StateDirectory.default().make()
        if if_needed:
            here = requirements.program("qemu-system-x86_64").resolve()
            if not cluster.emulates_hosts(directory, Options(qemu=here, shared=directory.shared)):
                return
        target = (to or directory.emulator).resolve()
        found, new = fetch.fetch_emulator(target, lambda text: print(text, file=sys.stderr, flush=True))
        version = qemu.identify(found).version
        print(f"QEMU {version}: {'fetched' if new else 'already there'}", file=sys.stderr)
        print(found)


@app.command("requirements")
def show_requirements(
    packages: Annotated[bool, typer.Option("--packages", help="package names only")] = False,
    everything: Annotated[bool, typer.Option("--all", help="also the programs that are there")] = False,
) -> None:
    """Print missing programs and the Debian packages that bring them."""
    chosen = list(requirements.REQUIREMENTS) if everything else requirements.missing()
    if packages:
        for package in dict.fromkeys(requirement.package for requirement in chosen):
            print(package)
        return
    for requirement in chosen:
        found = requirements.find(requirement.name)
        print(
            f"{requirement.name:<19} {requirement.package:<17} {found or 'missing: ' + requirement.purpose}"
        )
    if not chosen:
        print("nothing is missing")
