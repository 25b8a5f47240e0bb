"""The choices that a person makes about a cluster."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from vcluster.errors import OptionError
from vcluster.topology import MAC

DEFAULT_VMS = 2
# Of a VM on this machine.  One of two CPUs on an emulated host stands still before long (docs/evidence.md).
DEFAULT_VCPUS = 2


class Accelerator(StrEnum):
    """How QEMU runs the guest's instructions."""

    AUTO = "auto"
    KVM = "kvm"
    TCG = "tcg"


class Hosts(StrEnum):
    """Which machines carry the nodes and VMs."""

    AUTO = "auto"
    HERE = "here"
    EMULATED = "emulated"


class Adapter(StrEnum):
    """The network adapter that a VM sees."""

    VIRTIO = "virtio"
    E1000 = "e1000"

    @property
    def device(self) -> str:
        """How QEMU names it."""
        return "virtio-net-pci" if self is Adapter.VIRTIO else self.value


class Options(BaseModel):
    """The options of ``vcluster up`` that make one cluster another.

    Attributes
    ----------
    vms : int
        Number of VMs, and of native nodes.
    vcpus : int
        CPUs of a VM.
    native_cpus : int or None
        CPUs of a native node; None for as many as a VM has.
    memory_mib : int
        Memory of a VM in MiB.
    hosts : Hosts
        ``here``: this machine is the host of all VMs, and the native nodes share it. ``emulated``: each
        native node is a machine that QEMU emulates, and the host of one VM, which runs under KVM there.
        ``auto``: ``here`` where KVM works, else ``emulated``.
    kvm : dict of str to str
        Parameters of the modules ``kvm``, ``kvm_amd`` and ``kvm_intel`` on the hosts, by name.
    accel : Accelerator
        The accelerator that runs the guest on this machine; ``auto`` boots a guest to find out.
    qemu : Path
        The QEMU binary: another binary is another hypervisor build.
    kernel : Path or None
        Guest kernel: a folder with ``boot/`` and ``lib/modules/``, or an image; None to search for one.
    modules : Path or None
        Folder that holds ``lib/modules/``, where ``kernel`` is an image alone.
    qemu_args : tuple of str
        Appended to QEMU's command line.
    cpu : str or None
        CPU model; None for ``max`` under tcg and ``host`` under kvm.
    machine : str or None
        Machine type; None for ``pc``.
    shared : Path
        The one read-write directory, at the same path on every node.
    nic : Adapter
        The network adapter of the VMs.
    mac : str
        The first four bytes of the VMs' Ethernet addresses.
    pin : bool
        Whether the vCPUs of VM k stay on the host CPUs of native node k.
    rdma : bool
        Whether nodes with a kernel of their own get an RDMA device in software, if that is possible.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    vms: int = Field(default=DEFAULT_VMS, ge=1, le=64)
    vcpus: int = Field(default=DEFAULT_VCPUS, ge=1, le=256)
    native_cpus: int | None = Field(default=None, ge=1, le=256)
    memory_mib: int = Field(default=2048, ge=512)
    hosts: Hosts = Hosts.AUTO
    kvm: dict[str, str] = {}
    accel: Accelerator = Accelerator.AUTO
    qemu: Path
    kernel: Path | None = None
    modules: Path | None = None
    qemu_args: tuple[str, ...] = ()
    cpu: str | None = None
    machine: str | None = None
    shared: Path
    nic: Adapter = Adapter.VIRTIO
    mac: str = Field(default=MAC, pattern=r"^[0-9a-f][26ae](:[0-9a-f]{2}){3}$")
    pin: bool = True
    rdma: bool = True

    @property
    def cpus_of_native(self) -> int:
        """CPUs of a native node."""
        return self.native_cpus or self.vcpus

    def differences(self, asked: Options) -> list[str]:
        """Name the options in which what is asked for differs from these, each with both values."""
        mine: dict[str, Any] = self.model_dump(mode="json")
        theirs: dict[str, Any] = asked.model_dump(mode="json")
        return [
            f"{name.replace('_', '-')} {_shown(value)}, asked for {_shown(theirs[name])}"
            for name, value in mine.items()
            if value != theirs[name]
        ]


def _shown(value: object) -> str:
    if isinstance(value, dict):
        value = [f"{name}={setting}" for name, setting in value.items()]
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return "default" if value is None else str(value)


def parse_memory(text: str) -> int:
    """Return MiB from a size such as ``2G``, ``1536M`` or ``2048`` (MiB).

    Raises
    ------
    OptionError
        If the text is no such size.
    """
    match = re.fullmatch(r"(\d+)\s*(?:([mMgG])(?:i?[bB])?)?", text.strip())
    if match is None:
        raise OptionError(f"--memory {text!r} is no size: write for example 2G or 1536M.")
    return int(match[1]) * (1024 if (match[2] or "m") in "gG" else 1)


def parse_hosts(text: str, vms: int | None) -> tuple[Hosts, int]:
    """Return where the VMs run and how many there are.

    Parameters
    ----------
    text : str
        ``auto``, ``here``, ``emulated`` or ``emulated:N``.
    vms : int or None
        How many VMs were asked for.

    Raises
    ------
    OptionError
        If the text is none of these, or N is not the number of VMs that was asked for.
    """
    name, colon, count = text.partition(":")
    if name not in list(Hosts) or (colon and (name != Hosts.EMULATED or not count.isdecimal())):
        raise OptionError(f"--hosts {text!r}: expected auto, here, emulated or emulated:N (N hosts).")
    if colon and vms not in (None, int(count)):
        raise OptionError(f"--hosts {text} --vms {vms}: an emulated host carries one VM; leave --vms out.")
    return Hosts(name), int(count) if colon else DEFAULT_VMS if vms is None else vms


def parse_kvm(settings: list[str]) -> dict[str, str]:
    """Return module parameters from texts such as ``npt=0``.

    Raises
    ------
    OptionError
        If one has no value, or a parameter is given twice.
    """
    found: dict[str, str] = {}
    for text in settings:
        match = re.fullmatch(r"(\w+)=([\w.+-]+)", text)
        if match is None or match[1] in found:
            raise OptionError(
                f"--kvm {text!r}: expected PARAMETER=VALUE, each parameter once, such as npt=0."
            )
        found[match[1]] = match[2]
    return found
