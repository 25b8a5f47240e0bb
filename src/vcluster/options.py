"""The options of ``vcluster up``."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, Field

from vcluster.errors import OptionError
from vcluster.topology import MAC

DEFAULT_VMS = 2
# A VM on an emulated host has one: with two CPUs such hosts stand still before long
# (docs/evidence-clusters.md).
DEFAULT_VCPUS = 2


class Hosts(StrEnum):
    """The machines that carry nodes and VMs.

    ``here``: this machine is the host of all VMs, and native nodes share it. ``emulated``: each native node
    is a machine that QEMU emulates, and the host of one VM, which runs under KVM there. ``auto``: ``here`` if
    KVM works, else ``emulated``.
    """

    AUTO = "auto"
    HERE = "here"
    EMULATED = "emulated"


class Adapter(StrEnum):
    """The network adapter that a VM sees."""

    VIRTIO = "virtio"
    E1000 = "e1000"

    @property
    def device(self) -> str:
        """QEMU's name of the adapter."""
        return "virtio-net-pci" if self is Adapter.VIRTIO else self.value


class DiskCache(StrEnum):
    """How QEMU on a host writes to the disk of its VM, by QEMU's own names."""

    NONE = "none"
    WRITEBACK = "writeback"
    WRITETHROUGH = "writethrough"
    DIRECTSYNC = "directsync"
    UNSAFE = "unsafe"


class Options(BaseModel, frozen=True, extra="forbid"):
    """The options that tell one cluster from another."""

    # The number of VMs, and of native nodes.
    vms: int = Field(default=DEFAULT_VMS, ge=1, le=64)
    vcpus: int = Field(default=DEFAULT_VCPUS, ge=1, le=256)
    # CPUs of a native node; None: as many as a VM has.
    native_cpus: int | None = Field(default=None, ge=1, le=256)
    # Memory of a VM.
    memory_mib: int = Field(default=2048, ge=512)
    hosts: Hosts = Hosts.AUTO
    # Parameters of KVM's modules on emulated hosts.
    kvm: dict[str, str] = {}
    qemu: Path
    # A folder with `boot/` and `lib/modules/`; None: see `kernel.locate_kernel`.
    kernel: Path | None = None
    qemu_args: tuple[str, ...] = ()
    # CPU model; None: `max` under tcg, `host` under KVM.
    cpu: str | None = None
    machine: str | None = None
    # The read-write directory, at the same path on every node.
    shared: Path
    nic: Adapter = Adapter.VIRTIO
    # VMs on emulated hosts have a disk.
    disk_cache: DiskCache = DiskCache.NONE
    # The first four bytes of the VMs' Ethernet addresses.
    mac: str = Field(default=MAC, pattern=r"^[0-9a-f][26ae](:[0-9a-f]{2}){3}$")
    # The vCPUs of VM k stay on the host CPUs of native node k.
    pin: bool = True
    # Nodes with a kernel of their own get an RDMA device in software.
    rdma: bool = True

    @property
    def cpus_per_native_node(self) -> int:
        """CPUs of a native node."""
        return self.native_cpus or self.vcpus

    def differences(self, other: Options) -> list[str]:
        """Name the options in which `other` differs, each with both values."""
        values, other_values = self.model_dump(mode="json"), other.model_dump(mode="json")
        return [
            f"{name.replace('_', '-')} {_format(value)}, asked for {_format(other_values[name])}"
            for name, value in values.items()
            if value != other_values[name]
        ]


def _format(value: object) -> str:
    if isinstance(value, dict):
        value = [f"{name}={setting}" for name, setting in value.items()]
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return "default" if value is None else str(value)


def parse_memory(text: str) -> int:
    """Return MiB from a size such as ``2G``, ``1536M`` or ``2048`` (MiB)."""
    match = re.fullmatch(r"(\d+)\s*(?:([mMgG])(?:i?[bB])?)?", text.strip())
    if match is None:
        raise OptionError(f"--memory {text!r} is no size: write for example 2G or 1536M.")
    return int(match[1]) * (1024 if match[2] in ("g", "G") else 1)


def parse_hosts(text: str, vms: int | None) -> tuple[Hosts, int]:
    """Return the hosts and the number of VMs from ``auto``, ``here``, ``emulated`` or ``emulated:N``."""
    name, colon, count = text.partition(":")
    if name not in list(Hosts) or (colon and (name != Hosts.EMULATED or not count.isdecimal())):
        raise OptionError(f"--hosts {text!r}: expected auto, here, emulated or emulated:N (N hosts).")
    if colon and vms not in (None, int(count)):
        raise OptionError(f"--hosts {text} --vms {vms}: an emulated host carries one VM; leave --vms out.")
    return Hosts(name), int(count) if colon else DEFAULT_VMS if vms is None else vms


def parse_kvm(settings: list[str]) -> dict[str, str]:
    """Return module parameters from texts such as ``npt=0``."""
    parameters: dict[str, str] = {}
    for setting in settings:
        match = re.fullmatch(r"(\w+)=([\w.+-]+)", setting)
        if match is None or match[1] in parameters:
            raise OptionError(
                f"--kvm {setting!r}: expected PARAMETER=VALUE, each parameter once, such as npt=0."
            )
        parameters[match[1]] = match[2]
    return parameters
