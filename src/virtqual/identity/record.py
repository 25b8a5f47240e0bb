"""The record of a node's identity, as far as the node itself shows it: ``virtqual-identity/1``.

Every value was read, or is a :class:`NotObservable` with the reason.  No value is assumed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer
from typing_extensions import TypeIs

from virtqual.identity.cpus import cpu_list
from virtqual.identity.rates import LinkRate

T = TypeVar("T")


class Part(BaseModel):
    """Base of every part of the record."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NotObservable(Part):
    """A value that cannot be seen from here, and why."""

    not_observable: str = Field(min_length=1)

    def __str__(self) -> str:
        return f"not observable ({self.not_observable})"


Text = str | NotObservable
Count = int | NotObservable
Flag = bool | NotObservable
# As a mapping the other one would pass too, so it is tried first.
Table = Annotated[NotObservable | dict[str, str], Field(union_mode="left_to_right")]


def seen(value: T | NotObservable) -> TypeIs[T]:
    """Return whether a value was observed."""
    return not isinstance(value, NotObservable)


class Hypervisor(Part):
    """The hypervisor below a node, as the node shows it.

    Attributes
    ----------
    present
        Whether the CPU says that it runs under one.
    vendor, build, accelerator
        Product, build and execution, as far as a guest can tell. A guest can seldom see the exact build.
    hardware
        Machine type or product that the virtual firmware shows.
    firmware
        Vendor and version of the firmware (BIOS).
    """

    present: Flag
    vendor: Text
    build: Text
    accelerator: Text
    hardware: Text
    firmware: Text


class Cpu(Part):
    """The processor that the node sees.

    Attributes
    ----------
    signature
        Vendor, family, model and stepping, e.g. ``GenuineIntel 6-85-7``.
    features
        Kernel names of CPU flags, sorted, separated by blanks.
    """

    model: Text
    signature: Text
    microcode: Text
    features: Text


# What the first records of this version did not have yet: sessions that hold them stay readable.
LATER = NotObservable(not_observable="not looked at when this was recorded")


class Topology(Part):
    """The arrangement of CPUs, memory and caches.

    Attributes
    ----------
    cpus
        List of the CPUs that are online, e.g. ``0-63``.
    used
        List of the CPUs that the run, or the process that asked, may use.
    sockets, threads_per_core
        Counted over the CPUs that are online.
    threads_used
        Threads of one core among the CPUs in `used`, at most.
    packages
        CPU list by socket.
    numa
        CPU list by NUMA node.
    distances
        Row of the kernel's distance table by NUMA node.
    caches
        Size and CPUs that share it by level, e.g. ``{"L3": "32768K shared by 0-7"}``, of the first CPU.
    """

    cpus: Text
    used: Text
    sockets: Count
    threads_per_core: Count
    threads_used: Count = LATER
    smt: Text
    packages: Table
    numa: Table
    distances: Table
    caches: Table

    def spanned(self, table: Table) -> tuple[str, ...] | NotObservable:
        """Return the keys of a table of CPU lists that the CPUs in use lie in (all, if those are unknown)."""
        if not seen(table):
            return table
        used = cpu_list(self.used) if seen(self.used) else None
        return tuple(key for key, cpus in table.items() if used is None or used & cpu_list(cpus))


class Memory(Part):
    """Memory and how it is paged; sizes in MiB."""

    total_mib: Count
    swap_mib: Count
    transparent_huge_pages: Text
    huge_pages: Table


class Kernel(Part):
    """The operating system's kernel and what it was told."""

    release: Text
    command_line: Text
    mitigations: Table
    clock_source: Text
    clock_sources: Text
    numa_balancing: Text


class Power(Part):
    """Frequency and idle states, where they are visible."""

    governor: Text
    turbo: Text
    idle_driver: Text


class PcieLink(Part):
    """Speed and width of a PCIe link, as it runs and at its best."""

    speed: Text
    width: Text
    best_speed: Text
    best_width: Text


Kind = Literal["physical", "passthrough", "virtual function", "paravirtual", "emulated", "software"]


class Nic(Part):
    """A network interface other than the loopback.

    Attributes
    ----------
    kind
        ``software`` has no device behind it (veth, bridge, bond).
    rate_mbit
        Link rate, Mbit/s.
    """

    name: str
    kind: Kind | NotObservable
    driver: Text
    pci_id: Text
    mtu: Count
    rate_mbit: Count
    numa_node: Count
    link: PcieLink | NotObservable


class Port(Part):
    """A port of a host channel adapter; the rate as the driver prints it, e.g. ``56 Gb/sec (4X FDR)``."""

    number: str
    state: Text
    rate: Text
    link_layer: Text


class Hca(Part):
    """An RDMA device."""

    name: str
    kind: Kind | NotObservable
    type: Text
    board: Text
    firmware: Text
    numa_node: Count
    link: PcieLink | NotObservable
    ports: tuple[Port, ...]


UNTOLD = NotObservable(not_observable="the hypervisor's host was not asked")


class Host(Part):
    """The facts that only the hypervisor's host can tell, if a site supplies them: ``virtqual-host/1``.

    Attributes
    ----------
    source
        Origin of the facts, in words for people.
    vendor, build, accelerator, hardware
        The hypervisor's exact build, what runs guest instructions, and the virtual hardware.
    kernel, smt, governor, turbo
        Kernel and settings of the host.
    module_parameters
        Parameters of the host's KVM and VFIO, e.g. ``{"kvm_intel.ept": "Y"}``; own builds of their modules.
    qemu_package
        The package of the QEMU binary, with its version.
    numa_nodes, cpus_per_node, memory_mib_per_node
        Size of the host; CPUs are logical ones.
    vcpus, memory_mib, virtual_numa_nodes, cpu_mode
        Size of the VM, and its CPU model as configured, e.g. ``host-passthrough``.
    vcpus_pinned, memory_pinned, memory_reserved, prefer_ht
        Placement of the VM: vCPUs bound to CPUs, memory bound to NUMA nodes, no memory ever taken away, vCPUs
        kept on one node with its hyperthreads (ESXi's ``preferHT``).
    memory_backing
        Pages under the VM's memory, e.g. ``huge pages``.
    latency_sensitivity
        ESXi's setting.
    virtual_switches
        ``one`` where the VMs of a host share a virtual switch and their messages stay in its memory, ``one a
        VM`` where each has its own with an adapter, so that messages go over the wire.
    other_vms
        Number of VMs on the host that do not belong to this partition.
    iommu_groups, iommu_types, iommu_options
        The host's IOMMU: number of groups, how many of each type of domain, and what the kernel's command
        line says of it (``none`` where it says nothing).
    iommu_large_pages
        Whether the IOMMU maps the VM's memory by pages larger than 4 KiB.
    node_interleaving
        Whether the firmware interleaves memory over the NUMA nodes, on purpose: on the hosts of the VMs and
        on native nodes alike.
    numa_hidden
        Whether the VM shows fewer NUMA nodes than native ones, on purpose.
    vms_per_host
        Largest number of VMs of this partition that share a host.
    link_gbit
        Rate that the fastest RDMA port of either side should have, Gbit/s.
    """

    schema_: Literal["virtqual-host/1"] = Field(alias="schema", default="virtqual-host/1")
    source: str
    vendor: Text = UNTOLD
    build: Text = UNTOLD
    accelerator: Text = UNTOLD
    hardware: Text = UNTOLD
    kernel: Text = UNTOLD
    smt: Text = UNTOLD
    governor: Text = UNTOLD
    turbo: Text = UNTOLD
    module_parameters: Table = UNTOLD
    qemu_package: Text = UNTOLD
    numa_nodes: Count = UNTOLD
    cpus_per_node: Count = UNTOLD
    memory_mib_per_node: Count = UNTOLD
    vcpus: Count = UNTOLD
    memory_mib: Count = UNTOLD
    virtual_numa_nodes: Count = UNTOLD
    cpu_mode: Text = UNTOLD
    vcpus_pinned: Flag = UNTOLD
    memory_pinned: Flag = UNTOLD
    memory_reserved: Flag = UNTOLD
    prefer_ht: Flag = UNTOLD
    memory_backing: Text = UNTOLD
    latency_sensitivity: Text = UNTOLD
    virtual_switches: Literal["one", "one a VM"] | NotObservable = UNTOLD
    other_vms: Count = UNTOLD
    iommu_groups: Count = UNTOLD
    iommu_types: Text = UNTOLD
    iommu_options: Text = UNTOLD
    iommu_large_pages: Flag = UNTOLD
    node_interleaving: Flag = UNTOLD
    numa_hidden: Flag = UNTOLD
    vms_per_host: Count = UNTOLD
    link_gbit: LinkRate | NotObservable = UNTOLD

    @model_serializer(mode="wrap")
    def _told(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # It travels with every run: what was not told is left out, and comes back as such.
        untold = UNTOLD.model_dump()
        return {key: value for key, value in serialise(self).items() if value != untold}


class Identity(Part):
    """One node.

    Attributes
    ----------
    node
        Name of the node.
    boot
        Id of the kernel's boot: nodes that have the same one are the same machine.
    tuned_profile
        Active profile of ``tuned``.
    locked_memory
        Soft limit of locked memory, bytes or ``unlimited``.
    host
        Facts that only the host of the node's hypervisor can tell, if a site supplies them.
    """

    schema_: Literal["virtqual-identity/1"] = Field(alias="schema", default="virtqual-identity/1")
    node: Text
    boot: Text = LATER
    hypervisor: Hypervisor
    cpu: Cpu
    topology: Topology
    memory: Memory
    kernel: Kernel
    power: Power
    nics: tuple[Nic, ...]
    hcas: tuple[Hca, ...]
    tuned_profile: Text
    locked_memory: Text
    host: Host | NotObservable = UNTOLD

    def on(self, host: Host | NotObservable) -> Identity:
        """Return the record with what its hypervisor's host says."""
        return self.model_copy(update={"host": host})

    @property
    def kind(self) -> str:
        """The identity without the node's name and boot: nodes of one kind are equal in it."""
        return self.model_copy(update={"node": UNTOLD, "boot": UNTOLD}).model_dump_json()

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON-able data."""
        return self.model_dump(mode="json", by_alias=True)
