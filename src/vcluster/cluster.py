"""Bringing a cluster up and down, and asking how it is."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal

from vcluster import (
    emulated,
    host,
    kernel,
    namespaces,
    nodefiles,
    qemu,
    rdma,
    requirements,
    resident,
    rootless,
    slurm_conf,
    topology,
)
from vcluster import state as st
from vcluster.command import text
from vcluster.directory import StateDirectory, visible
from vcluster.errors import BootError, ClusterError, NodeError, NotUpError, OptionError
from vcluster.options import Accelerator, Adapter, Hosts, Options
from vcluster.plan import BootPlan, WatchedProgram
from vcluster.processes import Process, boot_id, children, namespace_members

Report = Callable[[str], None]


@contextmanager
def locked(directory: StateDirectory) -> Iterator[None]:
    """Keep a second ``up`` or ``down`` of the same state directory waiting."""
    directory.make()
    with directory.lock_file.open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def running(directory: StateDirectory) -> st.State:
    """Return the state of the cluster that runs.

    Raises
    ------
    NotUpError
        If no cluster runs.
    """
    if directory.state_file.exists():
        state = st.load_state(directory.state_file)
        if state.status == "up" and state.running():
            return state
        if state.status == "starting" and state.running():
            raise NotUpError("the cluster is still booting.")
    raise NotUpError(f"no cluster is up in {directory.root}: run `vcluster up`.")


def up(directory: StateDirectory, options: Options, seconds: float, report: Report) -> tuple[st.State, bool]:
    """Bring the cluster up.

    Parameters
    ----------
    seconds : float
        How long the nodes may take to become idle.
    report : callable
        Gets one line for each step.

    Returns
    -------
    tuple of State and bool
        The cluster, and whether this call started it.

    Raises
    ------
    OptionError
        If a cluster with other options runs.
    ClusterError
        If something is missing or does not start.
    """
    with locked(directory):
        try:
            present = running(directory)
        except ClusterError:
            present = None
        if present is not None:
            different = present.options.differences(options)
            if different:
                raise OptionError(
                    f"a cluster with other options is up ({'; '.join(different)}): run `vcluster down` first."
                )
            wrong = damage(nodes(present))
            if not wrong:
                return present, False
            report(f"the running cluster is damaged ({wrong}): starting it anew")
        clean(directory)
        state, plan = prepare(directory, options, seconds, report)
        return _launch(directory, state, plan, report), True


@dataclass(frozen=True)
class Guests:
    """All that the VMs of a cluster share.

    Attributes
    ----------
    kernel
        The kernel that they boot.
    initramfs
        The part of their archives that is the same for all.
    build
        The hypervisor build.
    accelerator_reason
        Why `machine` has its accelerator.
    machine
        Their virtual hardware.
    no_rdma
        Why none of them has RDMA; None if nothing speaks against it.
    emulator
        The QEMU that emulates their hosts; None where this machine is their host.
    """

    kernel: kernel.GuestKernel
    initramfs: Path
    build: qemu.Build
    accelerator_reason: str
    machine: qemu.Machine
    no_rdma: str | None
    emulator: qemu.Build | None


def prepare(
    directory: StateDirectory, options: Options, seconds: float, report: Report
) -> tuple[st.State, BootPlan]:
    """Decide and write everything that is known before anything runs."""
    created = datetime.now(UTC)
    as_user = os.geteuid() != 0
    cpus = topology.host_cpus()
    _assert_possible(options, len(cpus), as_user)
    for folder in (directory.logs, directory.cache, visible(options.shared, "the shared directory")):
        folder.mkdir(parents=True, exist_ok=True)
    for log in directory.logs.iterdir():
        log.unlink()
    guests = _guests(directory, options, report)
    native = topology.native_nodes(options.vms, options.cpus_of_native, cpus)
    virtual = topology.virtual_nodes(options.vms, options.vcpus, cpus, options.mac)
    if guests.emulator is not None:
        # Each has a host of its own, whose CPUs are numbered from 0.
        native = [node.model_copy(update={"cpus": tuple(range(options.cpus_of_native))}) for node in native]
        virtual = [node.model_copy(update={"cpus": tuple(range(options.vcpus))}) for node in virtual]
    nodefiles.write(directory, options, native, virtual)
    pmix = slurm_conf.pmix_folder()
    plan = BootPlan(
        etc=directory.etc,
        logs=directory.logs,
        pmix=pmix,
        native=tuple(native),
        virtual=tuple(virtual),
        emulated=guests.emulator is not None,
        machines=tuple(_machines(directory, options, guests, native, virtual, pmix)),
        pin=options.pin or guests.emulator is not None,
        rdma_consoles={} if guests.no_rdma else _consoles(directory, guests, native, virtual),
        boot_seconds=seconds,
        preload=rootless.preload(directory.cache) if as_user else None,
    )
    return _describe(options, created, guests, native, virtual), plan


def _consoles(
    directory: StateDirectory, guests: Guests, native: list[topology.Node], virtual: list[topology.Node]
) -> dict[str, Path]:
    """Return the console of each node that has a kernel of its own."""
    machines = {vm.name: vm.name for vm in virtual}
    if guests.emulator is not None:
        machines |= {node.name: emulated.name(index) for index, node in enumerate(native, 1)}
    return {node: directory.logs / f"{machine}.console" for node, machine in machines.items()}


def _assert_possible(options: Options, cpus: int, as_user: bool) -> None:
    requirements.check(without=frozenset({"qemu-system-x86_64"}))
    if as_user:
        rootless.check()
    for option, wanted in (("--vcpus", options.vcpus), ("--native-cpus", options.cpus_of_native)):
        if wanted > cpus:
            raise OptionError(f"{option} {wanted}: this host has {cpus} CPUs.")


def _guests(directory: StateDirectory, options: Options, report: Report) -> Guests:
    guest_kernel = kernel.locate(directory, options.kernel, options.modules)
    image = kernel.unpacked(guest_kernel, directory.cache)
    no_rdma = _no_rdma(options, guest_kernel)
    initramfs = _initramfs(directory, options, guest_kernel)
    build = qemu.identify(options.qemu)
    accelerator, why, emulating = _hosts(directory, options, build, image, initramfs)
    report(f"QEMU {build.version}, accelerator {accelerator} ({why})")
    if emulating is None:
        _assert_kvm_here(options, accelerator)
    else:
        emulated.assert_possible(guest_kernel, options, host.available_mib())
        report(f"{options.vms} emulated hosts, by QEMU {emulating.version}")
    size = f"{options.vcpus} vCPUs, {options.memory_mib} MiB"
    report(f"guest kernel {guest_kernel.release}, {options.vms} VMs of {size}")
    if no_rdma:
        report(f"RDMA: none, {no_rdma}")
    machine = qemu.Machine(
        binary=options.qemu,
        accelerator=accelerator,
        machine=qemu.exact_machine(options.qemu, options.machine or qemu.DEFAULT_MACHINE),
        cpu=_cpu(options, accelerator, emulating),
        vcpus=options.vcpus,
        memory_mib=options.memory_mib,
        kernel=image,
        adapter=options.nic.device,
        vhost=emulating is not None and options.nic is Adapter.VIRTIO,
        root=Path("/") if emulating is None else emulated.ROOT,
        shared={"shared": options.shared},
        kernel_options=_kernel_options(accelerator, emulating),
        extra=options.qemu_args,
    )
    return Guests(guest_kernel, initramfs, build, why, machine, no_rdma, emulating)


def _cpu(options: Options, accelerator: Literal["kvm", "tcg"], emulating: qemu.Build | None) -> str:
    model = options.cpu or qemu.default_cpu(accelerator)
    return model if emulating is None else f"{model},{emulated.VM_CPU}"


def _kernel_options(accelerator: Literal["kvm", "tcg"], emulating: qemu.Build | None) -> str:
    if emulating is not None:
        return emulated.VM_KERNEL_OPTIONS
    return qemu.FIXED_ADDRESSES if accelerator == "tcg" else ""


def _no_rdma(options: Options, guest_kernel: kernel.GuestKernel) -> str | None:
    return rdma.impossible(guest_kernel) if options.rdma else "not asked for"


def _initramfs(directory: StateDirectory, options: Options, guest_kernel: kernel.GuestKernel) -> Path:
    with_rdma = _no_rdma(options, guest_kernel) is None
    return kernel.base_initramfs(guest_kernel, directory.cache, rdma=with_rdma, adapter=options.nic.device)


def emulates_hosts(directory: StateDirectory, options: Options) -> bool:
    """Return whether a cluster of these options has emulated hosts."""
    if options.hosts is not Hosts.AUTO or options.accel is not Accelerator.AUTO:
        return options.hosts is Hosts.EMULATED
    requirements.check(without=frozenset({"qemu-system-x86_64"}))
    guest_kernel = kernel.locate(directory, options.kernel, options.modules)
    image = kernel.unpacked(guest_kernel, directory.cache)
    initramfs = _initramfs(directory, options, guest_kernel)
    build = qemu.identify(options.qemu)
    return not qemu.probe_kvm(options, build, image, initramfs, directory.cache)[0]


def _hosts(
    directory: StateDirectory, options: Options, build: qemu.Build, image: Path, initramfs: Path
) -> tuple[Literal["kvm", "tcg"], str, qemu.Build | None]:
    """Decide what runs the guests, why, and which QEMU emulates their hosts."""
    why = "asked for"
    if options.hosts is not Hosts.EMULATED:
        accelerator, why = qemu.choose_accelerator(options, build, image, initramfs, directory.cache)
        asked = options.hosts is Hosts.HERE or options.accel is not Accelerator.AUTO
        if asked or accelerator == "kvm":
            return accelerator, why, None
    elif options.accel is Accelerator.TCG:
        raise OptionError("--hosts emulated --accel tcg: guests of emulated hosts run under KVM.")
    return "kvm", f"on emulated hosts: {why}", qemu.identify(emulated.emulator(directory.emulator))


def _assert_kvm_here(options: Options, accelerator: Literal["kvm", "tcg"]) -> None:
    """Make sure that this machine's KVM has the parameters that were asked for: its modules are not ours."""
    known = emulated.kvm_parameters_here() if accelerator == "kvm" else {}
    for parameter, value in options.kvm.items():
        found = {name: known[name] for name in known if name.partition(".")[2] == parameter}
        if value not in found.values():
            has = ", ".join(f"{name}={setting}" for name, setting in found.items()) or "no such parameter"
            raise OptionError(
                f"--kvm {parameter}={value}: KVM on this machine has {has}. Only emulated hosts are given "
                "parameters; load this machine's modules with it yourself."
            )


def _machines(
    directory: StateDirectory,
    options: Options,
    guests: Guests,
    native: list[topology.Node],
    virtual: list[topology.Node],
    pmix: Path | None,
) -> Iterator[WatchedProgram]:
    """Yield the programs of QEMU that run on this machine."""
    kept = resident.entries("kept")
    for index, (node, vm) in enumerate(zip(native, virtual, strict=True), 1):
        device = None if guests.no_rdma else rdma.DEVICE
        packed = nodefiles.pack(
            directory, vm, guests.kernel, guests.initramfs, options, pmix=pmix, rdma=device, more=kept
        )
        console = directory.logs / f"{vm.name}.console"
        line = qemu.command(guests.machine, vm, initramfs=packed, console=console)
        if guests.emulator is None:
            yield WatchedProgram(name=vm.name, command=tuple(line), nodes=(vm.name,), cpus=vm.cpus)
            continue
        name = emulated.name(index)
        more = [*kept, *emulated.files(vm, line, guests.kernel, options, directory.logs)]
        packed = nodefiles.pack(
            directory, node, guests.kernel, guests.initramfs, options, pmix=pmix, rdma=device, more=more
        )
        hardware = emulated.machine(guests.machine, guests.emulator.binary, options, directory.logs)
        line = qemu.command(hardware, node, initramfs=packed, console=directory.logs / f"{name}.console")
        line += emulated.control(directory.logs, name)
        own = topology.owned_cpus(index, hardware.vcpus, topology.host_cpus())
        yield WatchedProgram(name=name, command=tuple(line), nodes=(node.name, vm.name), cpus=own)


def _describe(
    options: Options,
    created: datetime,
    guests: Guests,
    native: list[topology.Node],
    virtual: list[topology.Node],
) -> st.State:
    below = host.describe()
    memory = below.memory_mib if guests.emulator is None else options.memory_mib
    return st.State(
        status="starting",
        created=created,
        shared=options.shared,
        options=options,
        hypervisor=_hypervisor(guests),
        guest=st.Guest(
            kernel=guests.kernel.release,
            vcpus=options.vcpus,
            memory_mib=options.memory_mib,
            cpu=guests.machine.cpu,
        ),
        host=below,
        hosts=_vm_hosts(guests, native, virtual),
        slurm=_slurm(),
        network=st.Network(
            cidr=topology.NETWORK,
            interface=topology.INTERFACE,
            head=topology.HEAD_ADDRESS,
            native={node.name: node.address for node in native},
            virtual={node.name: node.address for node in virtual},
        ),
        partitions=st.Partitions(
            native=_partition(native, options.cpus_of_native, memory),
            virtual=_partition(virtual, options.vcpus, options.memory_mib),
        ),
    )


def _slurm() -> st.Slurm:
    return st.Slurm(
        version=slurm_conf.version(),
        conf=slurm_conf.CONF,
        licence=slurm_conf.LICENCE,
        mpi=slurm_conf.mpi_plugins(),
    )


def _vm_hosts(
    guests: Guests, native: list[topology.Node], virtual: list[topology.Node]
) -> tuple[st.VmHost, ...]:
    nodes, vms = ([node.name for node in side] for side in (native, virtual))
    if guests.emulator is None:
        kvm = emulated.kvm_parameters_here() if guests.machine.accelerator == "kvm" else {}
        return (st.VmHost(name="this machine", native=tuple(nodes), virtual=tuple(vms), kvm=kvm),)
    emulating = guests.emulator
    by = st.Emulator(build=emulating.version, binary=emulating.binary, sha256=emulating.sha256)
    return tuple(
        st.VmHost(name=emulated.name(index), native=(node,), virtual=(vm,), emulator=by)
        for index, (node, vm) in enumerate(zip(nodes, vms, strict=True), 1)
    )


def _hypervisor(guests: Guests) -> st.ClusterHypervisor:
    return st.ClusterHypervisor(
        vendor="QEMU",
        build=guests.build.version,
        binary=guests.build.binary,
        sha256=guests.build.sha256,
        accelerator=guests.machine.accelerator,
        accelerator_reason=guests.accelerator_reason,
        machine=guests.machine.machine,
        adapter=guests.machine.adapter,
        arguments=guests.machine.extra,
    )


def _partition(nodes: list[topology.Node], cpus: int, memory_mib: int) -> st.ClusterPartition:
    return st.ClusterPartition(
        nodes=tuple(node.name for node in nodes),
        cpus_per_node=cpus,
        memory_mib=memory_mib,
        host_cpus={node.name: node.cpus for node in nodes},
    )


def _launch(directory: StateDirectory, state: st.State, plan: BootPlan, report: Report) -> st.State:
    directory.plan_file.write_text(plan.model_dump_json(indent=1), encoding="utf-8")
    as_user = os.geteuid() != 0
    reading, writing = os.pipe()
    began = time.monotonic()
    with (directory.logs / "supervisor.log").open("ab") as log, os.fdopen(reading, "rb") as progress:
        holder = subprocess.Popen(
            [
                *namespaces.create(as_user),
                *(sys.executable, "-m", "vcluster.supervisor", str(directory.plan_file), str(writing)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=(writing,),
            start_new_session=True,
            cwd="/",
        )
        os.close(writing)
        try:
            state = _registered(directory, state, holder, as_user)
            last = _follow(progress, report)
            if "up" not in last:
                raise BootError(_why(directory, last))
            state = _with_kvm_parameters(directory, state)
        except BaseException:
            # Interrupted or failed: nothing may remain, whoever reads this.
            holder.kill()
            holder.wait()
            clean(directory)
            raise
    state = state.model_copy(update={"status": "up", "boot_seconds": round(time.monotonic() - began, 2)})
    if plan.rdma_consoles:
        state, messages = rdma.add_devices(state, plan.rdma_consoles)
        for message in messages:
            report(message)
    state.save(directory.state_file)
    return state


def _with_kvm_parameters(directory: StateDirectory, state: st.State) -> st.State:
    """Note which parameters KVM has on emulated hosts."""
    hosts = [
        host.model_copy(update={"kvm": emulated.kvm_parameters(directory.logs, host.name)})
        if host.emulator
        else host
        for host in state.hosts
    ]
    return state.model_copy(update={"hosts": tuple(hosts)})


def boot_vms_anew(directory: StateDirectory, seconds: float) -> None:
    """End all VMs of the running cluster and start each anew; return when all nodes are idle.

    Raises
    ------
    NotUpError, BootError
        If no cluster runs; if a node is not idle in time.
    """
    with locked(directory):
        state = running(directory)
        assert state.processes is not None
        vms = state.partitions.virtual.nodes
        # Before anybody can start a job on them.
        change = (f"nodename={','.join(vms)}", "state=down", "reason=VMs are booted anew")
        _on_head(state, ["scontrol", "update", *change], seconds=30)
        os.kill(state.processes.entry.pid, signal.SIGUSR1)
        end = time.monotonic() + seconds
        while wrong := damage(nodes(state)):
            if time.monotonic() > end:
                raise BootError(
                    f"not all VMs are back within {seconds:g} s: {wrong} (logs: {directory.logs})"
                )
            time.sleep(0.5)


def _registered(
    directory: StateDirectory, state: st.State, holder: subprocess.Popen[bytes], as_user: bool
) -> st.State:
    """Note the processes as soon as they exist, so that ``down`` finds them whatever happens next."""
    end = time.monotonic() + 10
    while True:
        if holder.poll() is not None or time.monotonic() > end:
            raise BootError(_why(directory, {}))
        inner = children(holder.pid)
        if inner:
            break
        time.sleep(0.01)
    entry = Process.of(inner[0])
    state = state.model_copy(
        update={
            "processes": st.Processes(
                holder=Process.of(holder.pid),
                entry=entry,
                namespaces=namespaces.identities(entry.pid),
                rootless=as_user,
            )
        }
    )
    state.save(directory.state_file)
    user = "--user --preserve-credentials" if as_user else ""
    directory.entry_file.write_text(f"{entry.pid} {entry.started} {user}\n", encoding="utf-8")
    return state


def _follow(progress: IO[bytes], report: Report) -> dict[str, Any]:
    last: dict[str, Any] = {}
    for line in progress:
        last = json.loads(line)
        if "step" in last:
            report(str(last["step"]))
        else:
            break
    return last


def _why(directory: StateDirectory, last: dict[str, Any]) -> str:
    """Return why a boot failed, by the supervisor's last message or log, and by the guests' consoles."""
    reason = str(last.get("failed", ""))
    if not reason:
        log = directory.logs / "supervisor.log"
        lines = log.read_text(errors="replace", encoding="utf-8").strip().splitlines() if log.exists() else []
        reason = lines[-1] if lines else "the namespaces could not be made"
    for console in sorted(directory.logs.glob("*.console")):
        for line in console.read_text(errors="replace", encoding="utf-8").splitlines():
            if "vcluster: FAILED" in line:
                reason += f"; {console.stem} says: {line.partition('FAILED: ')[2]}"
    return f"the cluster did not start: {reason} (logs: {directory.logs})"


def down(directory: StateDirectory) -> bool:
    """Take the cluster down; return whether there was anything to take down."""
    if not directory.root.exists():
        return False
    with locked(directory):
        return clean(directory)


def clean(directory: StateDirectory) -> bool:
    """End whatever is left of a cluster, after a crash too, and note that it is down."""
    directory.entry_file.unlink(missing_ok=True)
    for secret in directory.secret_files:
        secret.unlink(missing_ok=True)
    try:
        state = st.load_state(directory.state_file)
    except ClusterError:
        return False
    if state.processes is None:
        return False
    held = state.processes
    found = held.entry.kill()
    found = held.holder.kill() or found
    held.entry.wait(20)
    held.holder.wait(20)
    # Commands that entered from outside hold the namespaces, and with them the interfaces.
    if held.entry.boot == boot_id():
        for pid in namespace_members(frozenset(held.namespaces), directory.root):
            found = True
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    state.model_copy(update={"status": "down", "processes": None}).save(directory.state_file)
    return found


def nodes(state: st.State) -> dict[str, tuple[str, str]]:
    """Return state and reason of every node by name, as Slurm has them."""
    names = (*state.partitions.native.nodes, *state.partitions.virtual.nodes)
    try:
        output = _on_head(state, ["sinfo", "--noheader", "--Node", "--format=%N|%T|%E"], seconds=15)
    except NodeError as error:
        return dict.fromkeys(names, ("unknown", f"{SILENT}: {error}"))
    found = dict.fromkeys(names, ("unknown", "Slurm does not list it"))
    for answer in output.splitlines():
        name, node_state, reason = answer.split("|", 2)
        found[name] = (node_state, "" if reason == "none" else reason)
    return found


def _on_head(state: st.State, command: list[str], *, seconds: float) -> str:
    """Run a Slurm command on the head of the cluster; return its output, or raise `NodeError`."""
    assert state.processes is not None
    line = namespaces.enter(state.processes.entry, state.processes.rootless, command, Path("/"))
    environment = namespaces.environment()
    return text(line, NodeError, name=command[0], environment=environment, seconds=seconds)


# Slurm marks a node that it has not heard of lately with a star: `idle*` is none of these.
HEALTHY = frozenset({"idle", "allocated", "mixed", "completing"})
SILENT = "slurmctld does not answer"


def damage(known: Mapping[str, tuple[str, str]]) -> str:
    """Return what is wrong with a cluster, empty if nothing is.

    Parameters
    ----------
    known
        State and reason by node, as `nodes` returned them.
    """
    wrong = []
    for name, (node_state, reason) in known.items():
        if reason.startswith(SILENT):
            # The controller is lost, not the node: it is said once.
            wrong.append(reason)
        elif node_state not in HEALTHY:
            wrong.append(f"{name} {node_state}: {reason}" if reason else f"{name} {node_state}")
    return "; ".join(dict.fromkeys(wrong))
