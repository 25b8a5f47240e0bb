"""Everything that `up` decides and writes before a process of the cluster runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from vcluster import emulated, host, initramfs, namespaces, nodefiles, qemu, resident, slurm_conf, topology
from vcluster import state as st
from vcluster.directory import StateDirectory, resolve_visible
from vcluster.errors import OptionError
from vcluster.nodefiles import BootFiles
from vcluster.options import Adapter, DiskCache, Hosts, Options
from vcluster.plan import BootPlan, WatchedProgram
from vcluster.requirements import check_programs
from vcluster.topology import Node

# Prints one line for each step.
Report = Callable[[str], None]


@dataclass(frozen=True)
class Guests:
    """The common part of a cluster's VMs, and the QEMU that emulates their hosts, if any."""

    files: BootFiles
    hypervisor: st.ClusterHypervisor
    machine: qemu.Machine
    emulator: st.QemuBuild | None


def prepare(
    directory: StateDirectory, options: Options, seconds: float, report: Report
) -> tuple[st.State, BootPlan]:
    """Return the state and the plan of a cluster whose nodes must be idle within so many seconds."""
    created = datetime.now(UTC)
    as_user = os.geteuid() != 0
    check_programs()
    if as_user:
        namespaces.check_rights()
    cpus = host.list_cpus()
    for option, count in (("--vcpus", options.vcpus), ("--native-cpus", options.cpus_per_native_node)):
        if count > len(cpus):
            raise OptionError(f"{option} {count}: this host has {len(cpus)} CPUs.")
    for folder in (directory.logs, directory.cache, resolve_visible(options.shared, "the shared directory")):
        folder.mkdir(parents=True, exist_ok=True)
    for log in directory.logs.iterdir():
        log.unlink()
    guests = choose_guests(directory, options, report)
    shared_cpus = cpus if guests.emulator is None else None
    native = topology.make_nodes("native", options.vms, options.cpus_per_native_node, shared_cpus)
    virtual = topology.make_nodes("virtual", options.vms, options.vcpus, shared_cpus, options.mac)
    nodefiles.write_files(directory, options, native, virtual)
    state = _describe_cluster(options, created, guests, native, virtual)
    plan = BootPlan(
        etc=directory.etc,
        logs=directory.logs,
        pmix=slurm_conf.find_pmix(),
        native=native,
        virtual=virtual,
        emulated=guests.emulator is not None,
        machines=tuple(_plan_machines(directory, options, guests, native, virtual)),
        pin=options.pin or guests.emulator is not None,
        rdma_consoles={} if guests.files.rdma_obstacle else _find_consoles(directory.logs, state),
        boot_seconds=seconds,
        preload=namespaces.make_preload_library(directory.cache) if as_user else None,
    )
    return state, plan


def _find_consoles(logs: Path, state: st.State) -> dict[str, Path]:
    """Return the console of each node that has a kernel of its own."""
    machines = {vm: vm for vm in state.partitions.virtual.nodes}
    machines |= {node: vm_host.name for vm_host in state.hosts if vm_host.emulator for node in vm_host.native}
    return {node: logs / f"{machine}.console" for node, machine in machines.items()}


def emulates_hosts(directory: StateDirectory, options: Options) -> bool:
    """Return whether a cluster of these options has emulated hosts."""
    if options.hosts is not Hosts.AUTO:
        return options.hosts is Hosts.EMULATED
    check_programs()
    files = nodefiles.make_boot_files(directory, options)
    build = qemu.identify(options.qemu)
    works, _ = qemu.probe_kvm(options, build, files.image, files.initramfs, directory.cache)
    return not works


def choose_guests(directory: StateDirectory, options: Options, report: Report) -> Guests:
    """Decide how the VMs run, and report it."""
    files = nodefiles.make_boot_files(directory, options)
    build = qemu.identify(options.qemu)
    accelerator, reason, emulator = choose_accelerator(directory, options, build, files)
    report(f"QEMU {build.build}, accelerator {accelerator} ({reason})")
    if emulator is None:
        if options.disk_cache is not DiskCache.NONE:
            raise OptionError(f"--disk-cache {options.disk_cache}: only VMs on emulated hosts have a disk.")
        if options.kvm:
            raise OptionError(
                "--kvm: only emulated hosts are given parameters of KVM. Load this machine's modules with "
                "them, and leave --kvm out."
            )
    else:
        emulated.check_host(files.kernel, options)
        report(f"{options.vms} emulated hosts, by QEMU {emulator.build}")
    size = f"{options.vcpus} vCPUs, {options.memory_mib} MiB"
    report(f"guest kernel {files.kernel.release}, {options.vms} VMs of {size}")
    if files.rdma_obstacle:
        report(f"RDMA: none, {files.rdma_obstacle}")
    machine = _make_machine(options, files.image, accelerator, on_emulated_hosts=emulator is not None)
    hypervisor = st.ClusterHypervisor(
        **build.model_dump(),
        vendor="QEMU",
        accelerator=accelerator,
        accelerator_reason=reason,
        machine=machine.machine,
        adapter=machine.adapter,
        arguments=machine.extra,
    )
    return Guests(files, hypervisor, machine, emulator)


def _make_machine(
    options: Options, kernel: Path, accelerator: Literal["kvm", "tcg"], *, on_emulated_hosts: bool
) -> qemu.Machine:
    """Return the hardware of the VMs."""
    cpu = options.cpu or ("host" if accelerator == "kvm" else "max")
    kernel_options = "" if accelerator == "kvm" else qemu.FIXED_ADDRESSES
    if on_emulated_hosts:
        cpu, kernel_options = f"{cpu},{emulated.VM_CPU_OPTION}", emulated.VM_KERNEL_OPTIONS
    return qemu.Machine(
        binary=options.qemu,
        accelerator=accelerator,
        machine=qemu.resolve_machine(options.qemu, options.machine or qemu.DEFAULT_MACHINE),
        cpu=cpu,
        vcpus=options.vcpus,
        memory_mib=options.memory_mib,
        kernel=kernel,
        adapter=options.nic.device,
        vhost=on_emulated_hosts and options.nic is Adapter.VIRTIO,
        root=emulated.ROOT if on_emulated_hosts else Path("/"),
        shared={"shared": options.shared},
        kernel_options=kernel_options,
        extra=options.qemu_args,
    )


def choose_accelerator(
    directory: StateDirectory, options: Options, build: st.QemuBuild, files: BootFiles
) -> tuple[Literal["kvm", "tcg"], str, st.QemuBuild | None]:
    """Return the accelerator of the VMs, the reason, and the QEMU that emulates their hosts or None."""
    reason = "asked for"
    if options.hosts is not Hosts.EMULATED:
        works, reason = qemu.probe_kvm(options, build, files.image, files.initramfs, directory.cache)
        if works:
            return "kvm", reason, None
        if options.hosts is Hosts.HERE:
            return "tcg", reason, None
    emulator = qemu.identify(emulated.find_emulator(directory.emulator))
    return "kvm", f"on emulated hosts: {reason}", emulator


def _plan_machines(
    directory: StateDirectory,
    options: Options,
    guests: Guests,
    native: tuple[Node, ...],
    virtual: tuple[Node, ...],
) -> Iterator[WatchedProgram]:
    """Yield the programs of QEMU that run on this machine."""
    entries = resident.make_entries("kept")
    if guests.emulator is not None:
        # guest/node-init mounts a disk if this folder is there.
        entries.append(initramfs.folder(f"node/{emulated.SCRATCH.name}"))
    logs = directory.logs
    for index, (node, vm) in enumerate(zip(native, virtual, strict=True), 1):
        packed = nodefiles.pack_initramfs(directory, vm, guests.files, options, entries)
        vm_line = qemu.command(guests.machine, vm, initramfs=packed, console=logs / f"{vm.name}.console")
        if guests.emulator is None:
            yield WatchedProgram(name=vm.name, command=tuple(vm_line), nodes=(vm.name,), cpus=vm.cpus)
            continue
        name = emulated.host_name(index)
        vm_line += emulated.disk_options(emulated.VM_DISK, options.disk_cache)
        host_entries = emulated.make_entries(vm, vm_line, guests.files.kernel, options, logs)
        packed = nodefiles.pack_initramfs(directory, node, guests.files, options, [*entries, *host_entries])
        machine = emulated.make_machine(guests.machine, guests.emulator.binary, options, logs)
        line = qemu.command(machine, node, initramfs=packed, console=logs / f"{name}.console")
        line += emulated.control_port(logs, name)
        for disk in (node.name, vm.name):
            line += emulated.make_disk(directory.cache / f"{disk}.disk")
        cpus = topology.choose_cpus(index, machine.vcpus, host.list_cpus())
        yield WatchedProgram(name=name, command=tuple(line), nodes=(node.name, vm.name), cpus=cpus)


def _describe_cluster(
    options: Options,
    created: datetime,
    guests: Guests,
    native: tuple[Node, ...],
    virtual: tuple[Node, ...],
) -> st.State:
    this_machine = host.describe_host()
    native_memory_mib = this_machine.memory_mib if guests.emulator is None else options.memory_mib
    scratch = None if guests.emulator is None else emulated.SCRATCH
    return st.State(
        status="starting",
        created=created,
        shared=options.shared,
        options=options,
        hypervisor=guests.hypervisor,
        guest=st.Guest(
            kernel=guests.files.kernel.release,
            vcpus=options.vcpus,
            memory_mib=options.memory_mib,
            cpu=guests.machine.cpu,
        ),
        host=this_machine,
        hosts=_describe_vm_hosts(guests, native, virtual),
        partitions=st.Partitions(
            native=_describe_partition(native, options.cpus_per_native_node, native_memory_mib, scratch),
            virtual=_describe_partition(virtual, options.vcpus, options.memory_mib, scratch),
        ),
    )


def _describe_vm_hosts(
    guests: Guests, native: tuple[Node, ...], virtual: tuple[Node, ...]
) -> tuple[st.VmHost, ...]:
    nodes, vms = (tuple(node.name for node in side) for side in (native, virtual))
    if guests.emulator is None:
        kvm = emulated.read_kvm_parameters_here() if guests.machine.accelerator == "kvm" else {}
        return (st.VmHost(name="this machine", native=nodes, virtual=vms, kvm=kvm),)
    return tuple(
        st.VmHost(name=emulated.host_name(index), native=(node,), virtual=(vm,), emulator=guests.emulator)
        for index, (node, vm) in enumerate(zip(nodes, vms, strict=True), 1)
    )


def _describe_partition(
    nodes: tuple[Node, ...], cpus: int, memory_mib: int, scratch: Path | None
) -> st.ClusterPartition:
    return st.ClusterPartition(
        nodes=tuple(node.name for node in nodes),
        cpus_per_node=cpus,
        memory_mib=memory_mib,
        host_cpus={node.name: node.cpus for node in nodes},
        scratch=scratch,
    )
