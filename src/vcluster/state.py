"""``state.json``: what a cluster is, for everything that wants to know without asking Slurm."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from vcluster.errors import StateError
from vcluster.options import Options
from vcluster.processes import Process

SCHEMA: Literal["vcluster/2"] = "vcluster/2"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ClusterHypervisor(_Part):
    """The hypervisor of the VMs; ``build`` and ``sha256`` tell one build from another."""

    vendor: str
    build: str
    binary: Path
    sha256: str
    accelerator: Literal["kvm", "tcg"]
    accelerator_reason: str
    machine: str
    adapter: str
    arguments: tuple[str, ...]


class Guest(_Part):
    """The virtual hardware and kernel of the VMs; memory in MiB."""

    kernel: str
    vcpus: int
    memory_mib: int
    cpu: str


class ClusterHost(_Part):
    """The machine below; memory in MiB, last-level caches together in bytes."""

    kernel: str
    cpu_model: str
    cpus: int
    cpus_per_core: int
    sockets: int
    memory_mib: int
    llc_bytes: int


class Emulator(_Part):
    """The QEMU that emulates a host."""

    build: str
    binary: Path
    sha256: str


class VmHost(_Part):
    """A host of VMs: its native and virtual nodes, what emulates it, and KVM's parameters on it.

    Attributes
    ----------
    name
        ``this machine``, or the name of an emulated host.
    native, virtual
        The native nodes that are this host, and the VMs on it.
    emulator
        None for this machine itself.
    kvm
        Values by ``module.parameter``; empty where KVM runs no guest.
    """

    name: str
    native: tuple[str, ...]
    virtual: tuple[str, ...]
    emulator: Emulator | None = None
    kvm: dict[str, str] = {}


class Slurm(_Part):
    """The batch system: its version, configuration, the licence every job asks for, MPI plugins."""

    version: str
    conf: Path
    licence: str
    mpi: tuple[str, ...]


class Network(_Part):
    """Addresses by node name, and what the interface is called inside the nodes."""

    cidr: str
    interface: str
    head: str
    native: dict[str, str]
    virtual: dict[str, str]


class ClusterPartition(_Part):
    """A Slurm partition: its nodes, the size of each (memory in MiB), the RDMA device that all have."""

    nodes: tuple[str, ...]
    cpus_per_node: int
    memory_mib: int
    host_cpus: dict[str, tuple[int, ...]]
    rdma: str | None = None


class Partitions(_Part):
    """The two sides of the comparison."""

    native: ClusterPartition
    virtual: ClusterPartition


class Processes(_Part):
    """The processes that hold the cluster: when they end, everything ends."""

    holder: Process
    entry: Process
    namespaces: tuple[str, ...]
    rootless: bool


class State(_Part):
    """The whole file.

    Attributes
    ----------
    status : {"starting", "up", "down"}
        The state after the last command; a crash leaves it, so ask ``processes`` whether they still run.
    created : datetime
        When ``up`` was given, with time zone.
    boot_seconds : float or None
        From there until all nodes were idle.
    """

    schema_: Literal["vcluster/2"] = Field(default=SCHEMA, alias="schema")
    status: Literal["starting", "up", "down"]
    created: AwareDatetime
    boot_seconds: float | None = None
    shared: Path
    options: Options
    hypervisor: ClusterHypervisor
    guest: Guest
    host: ClusterHost
    hosts: tuple[VmHost, ...]
    slurm: Slurm
    network: Network
    partitions: Partitions
    processes: Processes | None = None

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    def save(self, path: Path) -> None:
        """Write the file so that a reader sees the old one or the new one, never half of one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        new.write_text(self.model_dump_json(indent=2, by_alias=True) + "\n", encoding="utf-8")
        new.replace(path)

    def running(self) -> bool:
        """Whether the processes that hold the cluster still run."""
        return self.processes is not None and self.processes.entry.alive()


def load_state(path: Path) -> State:
    """Read a state file.

    Raises
    ------
    StateError
        If it does not exist, is no JSON, has another version or lacks something; the message names the
        file and the first key that is wrong.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StateError(f"{path} does not exist: no cluster was started there.") from None
    except (OSError, ValueError) as error:
        raise StateError(f"{path} cannot be read: {error}") from None
    found = data.get("schema") if isinstance(data, dict) else None
    if found != SCHEMA:
        raise StateError(f"{path} has schema {found!r}, wanted is {SCHEMA!r}: start the cluster anew.")
    try:
        return State.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise StateError(f"{path}: {key}: {first['msg']}") from None
