"""``state.json``: what a cluster is, for programs that do not ask Slurm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from vcluster.directory import replace_file
from vcluster.errors import StateError
from vcluster.options import Options
from vcluster.processes import Process

SCHEMA: Literal["vcluster/3"] = "vcluster/3"


class _StatePart(BaseModel, frozen=True, extra="forbid"):
    """A part of the state file."""


class QemuBuild(_StatePart):
    """A build of QEMU: its version, and the binary's path and SHA-256."""

    build: str
    binary: Path
    sha256: str


class ClusterHypervisor(QemuBuild):
    """The hypervisor of the VMs; ``build`` and ``sha256`` tell one build from another."""

    vendor: str
    accelerator: Literal["kvm", "tcg"]
    accelerator_reason: str
    machine: str
    adapter: str
    arguments: tuple[str, ...]


class Guest(_StatePart):
    """The virtual hardware and kernel of the VMs."""

    kernel: str
    vcpus: int
    memory_mib: int
    cpu: str


class ClusterHost(_StatePart):
    """The machine that the cluster runs on; ``llc_bytes`` is the size of its last-level caches together."""

    kernel: str
    cpu_model: str
    cpus_per_core: int
    memory_mib: int
    llc_bytes: int


class VmHost(_StatePart):
    """A host of VMs: the native nodes that it is, the VMs on it, and what emulates it, if anything."""

    name: str
    native: tuple[str, ...]
    virtual: tuple[str, ...]
    emulator: QemuBuild | None = None
    # Values by `module.parameter`; empty if KVM runs no guest.
    kvm: dict[str, str] = {}


class ClusterPartition(_StatePart):
    """A Slurm partition: its nodes, their size and host CPUs, and what all of them have.

    ``rdma`` is the name of a device, ``scratch`` the folder in which a node mounts its disk.
    """

    nodes: tuple[str, ...]
    cpus_per_node: int
    memory_mib: int
    host_cpus: dict[str, tuple[int, ...]]
    rdma: str | None = None
    scratch: Path | None = None


class Partitions(_StatePart):
    """The two sides of the comparison."""

    native: ClusterPartition
    virtual: ClusterPartition

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of all nodes."""
        return (*self.native.nodes, *self.virtual.nodes)


class Processes(_StatePart):
    """The processes that hold the cluster: if they end, everything ends."""

    holder: Process
    entry: Process
    namespaces: tuple[str, ...]
    rootless: bool


class State(_StatePart):
    """The whole file."""

    schema_: Literal["vcluster/3"] = Field(default=SCHEMA, alias="schema")
    # The state after the last command.  A crash leaves it as it is: `is_running` asks for the processes.
    status: Literal["starting", "up", "down"]
    created: AwareDatetime
    # From `created` until all nodes were idle.
    boot_seconds: float | None = None
    shared: Path
    options: Options
    hypervisor: ClusterHypervisor
    guest: Guest
    host: ClusterHost
    hosts: tuple[VmHost, ...]
    partitions: Partitions
    processes: Processes | None = None

    def save(self, path: Path) -> None:
        """Write the state file."""
        replace_file(path, f"{self.model_dump_json(indent=2, by_alias=True)}\n".encode())

    def is_running(self) -> bool:
        """Return whether the processes that hold the cluster still run."""
        return self.processes is not None and self.processes.entry.is_alive()


def load_state(path: Path) -> State:
    """Read a state file; a `StateError` names the file and the first key that is wrong."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StateError(f"{path} does not exist: no cluster was started there.") from None
    except (OSError, ValueError) as error:
        raise StateError(f"{path} cannot be read: {error}") from None
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        raise StateError(f"{path} has schema {schema!r}, wanted is {SCHEMA!r}: start the cluster anew.")
    try:
        return State.model_validate(data)
    except ValidationError as error:
        details = error.errors()[0]
        key = ".".join(map(str, details["loc"]))
        raise StateError(f"{path}: {key}: {details['msg']}") from None
