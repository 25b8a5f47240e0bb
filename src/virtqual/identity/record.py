"""The record of a node's identity, ``virtqual-identity/1``: each value was read, or is `NotObservable`."""

from __future__ import annotations

import operator
import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, SerializerFunctionWrapHandler, model_serializer
from typing_extensions import TypeIs

from virtqual.identity.cpus import cpu_list

T = TypeVar("T")


class Part(BaseModel, extra="forbid", frozen=True):
    """Base of every part of the record."""


class NotObservable(Part):
    """A value that cannot be seen from here, and why."""

    not_observable: str = Field(min_length=1)
    #: VMs, hosts, or the running and the installed program have different values.
    differs: bool = Field(default=False, exclude_if=operator.not_)

    def __str__(self) -> str:
        return f"not observable ({self.not_observable})"


Text = str | NotObservable
Count = int | NotObservable
Flag = bool | NotObservable
LinkRate = Annotated[float, Field(strict=True, gt=0)]
# NotObservable is tried first, because it would also pass as a mapping.
Table = Annotated[NotObservable | dict[str, str], Field(union_mode="left_to_right")]


def seen(value: T | NotObservable) -> TypeIs[T]:
    """Return whether a value was observed."""
    return not isinstance(value, NotObservable)


def unseen(reason: str, *, differs: bool = False) -> NotObservable:
    """Return a value that could not be observed, with the reason; see `NotObservable`."""
    return NotObservable(not_observable=reason, differs=differs)


def read_leading_number(text: str) -> float:
    """Return the number that a text begins with, such as 56 of ``56 Gb/sec (4X FDR)``; 0 without one."""
    match = re.match(r"\d+(\.\d+)?", text)
    return float(match[0]) if match else 0.0


#: The value of a fact that was added to the record later, in records that were written before.
NOT_RECORDED = unseen("this record was written before virtqual noted it")


def _is_not_recorded(value: object) -> bool:
    return value == NOT_RECORDED


class Hypervisor(Part):
    """The hypervisor below a node, as firmware and CPU show it; a guest can seldom see the exact build."""

    present: Flag
    vendor: Text
    build: Text
    accelerator: Text
    hardware: Text
    firmware: Text


class Cpu(Part):
    """The processor that the node sees."""

    model: Text
    #: Vendor, family, model and stepping, e.g. ``GenuineIntel 6-85-7``.
    signature: Text
    microcode: Text
    #: Kernel names of CPU flags, sorted, separated by blanks.
    features: Text
    #: As ``uname -m`` prints it, such as ``x86_64`` or ``aarch64``.
    architecture: Text = Field(default=NOT_RECORDED, exclude_if=_is_not_recorded)


class Topology(Part):
    """The arrangement of CPUs, memory and caches."""

    #: List of the CPUs that are online, e.g. ``0-63``; `sockets` and `threads_per_core` count them.
    cpus: Text
    #: List of the CPUs that the run, or the process that gathered the files, may use.
    used: Text
    sockets: Count
    threads_per_core: Count
    #: Largest number of threads of one core among the CPUs in `used`.
    threads_used: Count
    smt: Text
    #: CPU list by socket.
    packages: Table
    #: CPU list by NUMA node.
    numa: Table
    #: Row of the kernel's distance table by NUMA node.
    distances: Table
    #: Size and CPUs by level, of the first CPU, e.g. ``{"L3": "32768K shared by 0-7"}``.
    caches: Table
    #: Sum of all last-level caches, bytes. Only the probe for a system file looks at the caches of all CPUs.
    last_level_bytes: Count = Field(default=NOT_RECORDED, exclude_if=_is_not_recorded)

    @property
    def last_level_cache(self) -> tuple[str, str] | NotObservable:
        """The size of the first CPU's last-level cache, and the list of the CPUs that share it."""
        if not seen(self.caches):
            return self.caches
        size, _, sharing_cpus = self.caches[max(self.caches)].partition(" shared by ")
        return size, sharing_cpus

    def spanned(self, table: Table) -> tuple[str, ...] | NotObservable:
        """Return the keys of a table of CPU lists that have a CPU in use; all keys if those are unknown."""
        if not seen(table):
            return table
        used = cpu_list(self.used) if seen(self.used) else None
        return tuple(key for key, cpus in table.items() if used is None or used & cpu_list(cpus))


class Memory(Part):
    """Memory and its pages; `huge_pages` counts them by size."""

    total_mib: Count
    swap_mib: Count
    transparent_huge_pages: Text
    huge_pages: Table


class Kernel(Part):
    """The operating system's kernel and its settings."""

    release: Text
    command_line: Text
    mitigations: Table
    clock_source: Text
    clock_sources: Text
    numa_balancing: Text


class Power(Part):
    """Frequency and idle states."""

    governor: Text
    turbo: Text
    idle_driver: Text


class PcieLink(Part):
    """Speed and width of a PCIe link, as it runs and at its best."""

    speed: Text
    width: Text
    best_speed: Text
    best_width: Text


#: ``software`` has no device behind it (veth, bridge, bond).
Kind = Literal["physical", "passthrough", "virtual function", "paravirtual", "emulated", "software"]


class Nic(Part):
    """A network interface other than the loopback."""

    name: str
    kind: Kind | NotObservable
    driver: Text
    pci_id: Text
    mtu: Count
    rate_mbit: Count
    numa_node: Count
    link: PcieLink | NotObservable


class Port(Part):
    """A port of a host channel adapter."""

    number: str
    state: Text
    #: The rate that the driver prints, e.g. ``56 Gb/sec (4X FDR)``.
    rate: Text
    link_layer: Text

    @property
    def is_active(self) -> bool:
        """The port carries messages."""
        return seen(self.state) and "ACTIVE" in self.state.upper()

    @property
    def gbit(self) -> float:
        """The rate in Gbit/s; 0 if it is not known."""
        return read_leading_number(self.rate) if seen(self.rate) else 0.0


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


NOT_ASKED = unseen("the hypervisor's host was not asked")


class Host(Part):
    """The facts that only the hypervisor's host can tell: ``virtqual-host/1`` (docs/preflight.md)."""

    schema_: Literal["virtqual-host/1"] = Field(alias="schema", default="virtqual-host/1")
    source: str
    vendor: Text = NOT_ASKED
    build: Text = NOT_ASKED
    accelerator: Text = NOT_ASKED
    hardware: Text = NOT_ASKED
    kernel: Text = NOT_ASKED
    smt: Text = NOT_ASKED
    governor: Text = NOT_ASKED
    turbo: Text = NOT_ASKED
    module_parameters: Table = NOT_ASKED
    qemu_package: Text = NOT_ASKED
    numa_nodes: Count = NOT_ASKED
    cpus_per_node: Count = NOT_ASKED
    memory_mib_per_node: Count = NOT_ASKED
    vcpus: Count = NOT_ASKED
    memory_mib: Count = NOT_ASKED
    virtual_numa_nodes: Count = NOT_ASKED
    cpu_mode: Text = NOT_ASKED
    vcpus_pinned: Flag = NOT_ASKED
    memory_pinned: Flag = NOT_ASKED
    memory_reserved: Flag = NOT_ASKED
    prefer_ht: Flag = NOT_ASKED
    memory_backing: Text = NOT_ASKED
    latency_sensitivity: Text = NOT_ASKED
    virtual_switches: Literal["one", "one a VM"] | NotObservable = NOT_ASKED
    other_vms: Count = NOT_ASKED
    iommu_options: Text = NOT_ASKED
    iommu_large_pages: Flag = NOT_ASKED
    node_interleaving: Flag = NOT_ASKED
    numa_hidden: Flag = NOT_ASKED
    vms_per_host: Count = NOT_ASKED
    link_gbit: LinkRate | NotObservable = NOT_ASKED

    @model_serializer(mode="wrap")
    def _leave_out_defaults(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A log repeats hosts often: fields that were not asked for become it again by default.
        not_asked = NOT_ASKED.model_dump()
        return {key: value for key, value in serialise(self).items() if value != not_asked}


class Identity(Part):
    """One node."""

    schema_: Literal["virtqual-identity/1"] = Field(alias="schema", default="virtqual-identity/1")
    node: Text
    #: Id of the kernel's boot: nodes that have the same id are the same machine.
    boot: Text
    hypervisor: Hypervisor
    cpu: Cpu
    topology: Topology
    memory: Memory
    kernel: Kernel
    power: Power
    nics: tuple[Nic, ...]
    hcas: tuple[Hca, ...]
    #: The port that the system file's ``rdma_options`` name, such as ``mlx5_0 port 1``; empty if none.
    rdma_port: str = Field(default="", exclude_if=operator.not_)
    #: Slurm's name of the node, which its host name may differ from.
    slurm_node: Text = Field(default=NOT_RECORDED, exclude_if=_is_not_recorded)
    #: Active profile of ``tuned``.
    tuned_profile: Text
    #: Soft limit, bytes or ``unlimited``.
    locked_memory: Text
    host: Host | NotObservable = NOT_ASKED

    @property
    def name(self) -> Text:
        """Slurm's name of the node if a job of Slurm looked at it, else its host name."""
        return self.slurm_node if seen(self.slurm_node) else self.node

    def on(self, host: Host) -> Identity:
        """Return the record with the facts of its hypervisor's host."""
        return self.model_copy(update={"host": host})

    @property
    def kind(self) -> str:
        """The identity without the node's name and boot: nodes of one kind are equal in it."""
        return self.model_copy(
            update={"node": NOT_ASKED, "slurm_node": NOT_RECORDED, "boot": NOT_ASKED}
        ).model_dump_json()

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON-able data."""
        return self.model_dump(mode="json", by_alias=True)
