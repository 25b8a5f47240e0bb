"""The choices that a person makes about a cluster."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from vcluster.errors import OptionError


class Accelerator(StrEnum):
    """How QEMU runs the guest's instructions."""

    AUTO = "auto"
    KVM = "kvm"
    TCG = "tcg"


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
    accel : Accelerator
        The accelerator that runs the guest; ``auto`` boots a guest to find out.
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
    pin : bool
        Whether the vCPUs of VM k stay on the host CPUs of native node k.
    rdma : bool
        Whether VMs get an RDMA device in software, where guest kernel and programs are there.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    vms: int = Field(default=2, ge=1, le=64)
    vcpus: int = Field(default=2, ge=1, le=256)
    native_cpus: int | None = Field(default=None, ge=1, le=256)
    memory_mib: int = Field(default=2048, ge=512)
    accel: Accelerator = Accelerator.AUTO
    qemu: Path
    kernel: Path | None = None
    modules: Path | None = None
    qemu_args: tuple[str, ...] = ()
    cpu: str | None = None
    machine: str | None = None
    shared: Path
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
