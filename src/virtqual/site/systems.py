"""What a system file must say, checked before anything runs.

A system file is an ordinary ReFrame system (a dictionary named ``system`` in a Python file under
``reframe/systems/``) with two partitions that are each other's peers: one with the feature ``native``,
one with the feature ``virtual``.  What virtqual needs to know besides is in each partition's
``extras``; the models here are that contract.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from virtqual.errors import UsageError
from virtqual.identity import Host, seen
from virtqual.identity import host as hosts
from virtqual.identity.rates import LinkRate
from virtqual.site import hosts as shared_hosts
from virtqual.site.hosts import VmsOfHosts

SIDES = ("native", "virtual")
M = TypeVar("M", bound=BaseModel)


class Hypervisor(BaseModel):
    """What the virtual machines run on: results are keyed by it, never by a product's name alone.

    Attributes
    ----------
    vendor, build
        E.g. ``VMware ESXi`` and ``8.0.3-24022510``; the exact build.
    accelerator
        How guest instructions run, e.g. ``kvm``, ``esxi``, or ``tcg`` for QEMU's emulation.
    machine
        The virtual hardware, e.g. ``vmx-21`` or ``pc-q35-7.2``.
    details
        More that identifies it: options, firmware, microcode.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    vendor: str = Field(min_length=1)
    build: str = Field(min_length=1)
    accelerator: str = Field(min_length=1)
    machine: str | None = None
    details: dict[str, Any] = {}


class HplSize(BaseModel):
    """A size of HPL's matrix that a site wants, such as a study's: its order and its block."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    order: int = Field(ge=1)
    block: int = Field(ge=1)


class PartitionExtras(BaseModel):
    """The ``extras`` of either partition.

    Attributes
    ----------
    nodes
        How many nodes a check may use.
    memory_mib
        Memory of one node, MiB.
    llc_bytes
        Last-level caches of one node together, bytes, as the hardware has them (a VM may be told
        something else): arrays of four times this size measure memory, smaller ones do not.
    scale
        ``small`` for a few cores or emulated ones, ``standard`` for production nodes.
    numa_nodes
        How many NUMA nodes a node shows.
    node_interleaving
        The firmware's setting, ``on`` or ``off``, where it is part of what is studied; the same for both.
    link_gbit
        Rate that the fastest RDMA port should have, Gbit/s; the same for both partitions, and native ones
        without RDMA have none.
    hpl
        HPL's size, where it is not to follow from the memory; the same for both partitions.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    nodes: int = Field(ge=1)
    memory_mib: int = Field(ge=256)
    llc_bytes: int = Field(ge=1)
    scale: Literal["small", "standard"]
    numa_nodes: int = Field(ge=1, default=1)
    node_interleaving: Literal["on", "off"] | None = None
    link_gbit: LinkRate | None = None
    hpl: HplSize | None = None


class VirtualExtras(PartitionExtras):
    """The ``extras`` of the virtual partition.

    Attributes
    ----------
    hypervisor
        Identity of the build under qualification.
    hypervisor_class
        The class of budgets that applies, e.g. ``kvm``; see ``references/budgets/``.
    guest
        What the VMs are: kernel, vCPUs, memory, CPU model.
    numa_hidden
        Whether the VMs show fewer NUMA nodes than native ones because that is what is studied: preflight
        reports it instead of refusing it, and no build is qualified so.
    vms_of_hosts
        Names of the VMs by the host that they share: checks on several VMs of one host take the first host
        that has as many.
    host
        What only the hypervisor's host can say: the fields of ``virtqual-host/1``, or a file of that form
        (docs/preflight.md).
    """

    hypervisor: Hypervisor
    hypervisor_class: str = Field(min_length=1)
    guest: dict[str, Any] = {}
    numa_hidden: bool = False
    vms_of_hosts: VmsOfHosts = {}
    host: dict[str, Any] | Path = {}


class Partition(BaseModel):
    """One of the two partitions; keys that only ReFrame reads pass through."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    scheduler: str
    launcher: str
    features: tuple[str, ...]
    processor: dict[str, Any]
    extras: dict[str, Any]


class System(BaseModel):
    """A system with its two partitions."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    hostnames: tuple[str, ...]
    prefix: str = Field(min_length=1)
    partitions: tuple[Partition, ...]

    def partition(self, side: str) -> Partition:
        """Return the native or the virtual partition."""
        return next(p for p in self.partitions if side in p.features)

    def cores(self, side: str) -> int:
        """Return the physical cores of a node of one side."""
        processor = self.partition(side).processor
        return int(processor["num_cpus"]) // int(processor["num_cpus_per_core"])

    @property
    def native(self) -> PartitionExtras:
        """What virtqual knows of the native partition."""
        return PartitionExtras.model_validate(self.partition("native").extras)

    @property
    def virtual(self) -> VirtualExtras:
        """What virtqual knows of the virtual partition."""
        return VirtualExtras.model_validate(self.partition("virtual").extras)


def offers(features: Iterable[str], extras: Mapping[str, Any]) -> list[str]:
    """Return a partition's features with those that follow from its extras."""
    more = {"multinode": extras["nodes"] >= 2, "numa": extras.get("numa_nodes", 1) >= 2}
    return [*features, *(name for name, has in more.items() if has)]


def host_of(extras: VirtualExtras, where: str = "system file") -> Host:
    """Return what is known of the hypervisor's host: its own file, and the build that the system file states.

    Raises
    ------
    UsageError
        The file is not of its form, or states another build than the system file.
    """
    told = hosts.load(extras.host) if isinstance(extras.host, Path) else hosts.of(extras.host, where)
    stated: dict[str, Any] = {
        "accelerator": extras.hypervisor.accelerator,
        "build": extras.hypervisor.build,
    }
    for key, value in stated.items():
        other = getattr(told, key)
        if seen(other) and other != value:
            raise UsageError(f"{where}: {key} is {other!r}, but extras.hypervisor.{key} says {value!r}")
    hardware = {"hardware": extras.hypervisor.machine} if extras.hypervisor.machine else {}
    if extras.node_interleaving:
        stated["node_interleaving"] = extras.node_interleaving == "on"
    if extras.numa_hidden:
        stated["numa_hidden"] = True
    if extras.vms_of_hosts:
        stated["vms_per_host"] = shared_hosts.most(extras.vms_of_hosts)
    if extras.link_gbit:
        stated["link_gbit"] = extras.link_gbit
    source = told.source if extras.host else "system file"
    update = {**stated, **hardware, "vendor": extras.hypervisor.vendor, "source": source}
    return told.model_copy(update=update)


def check(raw: Mapping[str, Any], file: str) -> System:
    """Check one system.

    Parameters
    ----------
    raw
        The dictionary as ReFrame reads it.
    file
        Where it stands, for messages.

    Raises
    ------
    UsageError
        Naming the file and the key that is missing or wrong, and what it must be.
    """
    system = _validate(System, raw, file, "system")
    for side in SIDES:
        having = [p.name for p in system.partitions if side in p.features]
        if len(having) != 1:
            raise UsageError(
                f"{file}: system.partitions: exactly one partition must have the feature {side!r}, "
                f"found {', '.join(having) or 'none'}"
            )
    model: type[PartitionExtras]
    for side, model in (("native", PartitionExtras), ("virtual", VirtualExtras)):
        partition = system.partition(side)
        where = f"system.partitions[{partition.name}]"
        extras = _validate(model, partition.extras, file, f"{where}.extras")
        if isinstance(extras, VirtualExtras):
            host_of(extras, f"{file}: {where}.extras.host")
        for key in ("num_cpus", "num_cpus_per_core", "num_sockets"):
            if not isinstance(partition.processor.get(key), int) or partition.processor[key] < 1:
                raise UsageError(
                    f"{file}: {where}.processor.{key}: missing; state it (jobs check that it is true)"
                )
        if partition.scheduler in ("local", "ssh"):
            raise UsageError(
                f"{file}: {where}.scheduler: {partition.scheduler!r} cannot keep both partitions apart; "
                "use a batch scheduler such as 'slurm'"
            )
    if system.native.llc_bytes != system.virtual.llc_bytes:
        raise UsageError(
            f"{file}: extras.llc_bytes differs between the partitions: state what the hardware has, "
            "the same for both"
        )
    native, virtual = (system.cores(side) for side in SIDES)
    share = virtual < native and shared_hosts.most(system.virtual.vms_of_hosts) > 1
    if system.native.scale != system.virtual.scale or (native != virtual and not share):
        raise UsageError(
            f"{file}: extras.scale and the cores of a node (processor.num_cpus / num_cpus_per_core) must be "
            "the same for both partitions: sizes and ranks follow from them; state what both can give "
            "(a VM may have fewer cores where extras.vms_of_hosts says that several share a host)"
        )
    if system.native.node_interleaving != system.virtual.node_interleaving:
        raise UsageError(
            f"{file}: extras.node_interleaving differs between the partitions: both run on the same "
            "hardware; two settings of the firmware are two sessions"
        )
    if system.native.hpl != system.virtual.hpl:
        raise UsageError(
            f"{file}: extras.hpl differs between the partitions: problems of two sizes are no pair"
        )
    needed = 8 * system.virtual.hpl.order**2 // 2**20 if system.virtual.hpl else 0
    if needed > min(system.native.memory_mib, system.virtual.memory_mib):
        raise UsageError(
            f"{file}: extras.hpl.order: the matrix takes {needed} MiB, a node has less (extras.memory_mib)"
        )
    if system.native.link_gbit not in (None, system.virtual.link_gbit):
        raise UsageError(
            f"{file}: extras.link_gbit differs between the partitions: state the rate that the adapters of "
            "both should have"
        )
    return system


def read(file: Path) -> dict[str, Any]:
    """Read a system file and check it.

    Returns
    -------
    dict
        The system as ReFrame takes it.

    Raises
    ------
    UsageError
        The file does not define ``system``, or ``check`` refuses it.

    Notes
    -----
    ``system`` may also be a sentence: why the system is not there at the moment.  ReFrame then knows it by
    the file's name, with nothing to run on, and says the sentence when somebody selects it.
    """
    defined = runpy.run_path(str(file))
    raw = defined.get("system")
    if isinstance(raw, str):
        return _not_there(file.stem, raw)
    if not isinstance(raw, dict):
        raise UsageError(f"{file}: defines no dictionary named 'system'; see docs/add-a-system.md")
    check(raw, str(file))
    return raw


def _not_there(name: str, why: str) -> dict[str, Any]:
    nowhere = {"name": "absent", "scheduler": "local", "launcher": "local", "environs": ["no-stack"]}
    return {"name": name, "descr": why, "hostnames": ["$^"], "partitions": [nowhere]}


def _validate(model: type[M], raw: Mapping[str, Any], file: str, where: str) -> M:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        problems = [
            f"{'.'.join([where, *(str(part) for part in problem['loc'])])}: {problem['msg']}"
            for problem in error.errors()
        ]
        raise UsageError(
            f"{file}: {'; '.join(problems)} (what a system file must say: docs/add-a-system.md)"
        ) from None
