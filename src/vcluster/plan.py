"""The plan that the supervisor gets: everything decided before the namespaces exist."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from vcluster.topology import Node


class WatchedProgram(BaseModel, frozen=True, extra="forbid"):
    """A program that runs as long as the cluster does; its log has its name."""

    name: str
    command: tuple[str, ...]
    # The nodes that are lost if the program ends.
    nodes: tuple[str, ...] = ()
    # The CPUs of this machine that the CPUs of a QEMU machine are pinned to, in order.
    cpus: tuple[int, ...] = ()


class BootPlan(BaseModel, frozen=True, extra="forbid"):
    """A cluster, ready to be started."""

    # Files that every node gets in its /run/vcluster.
    etc: Path
    logs: Path
    # The folder of PMIx's library, in which nodes get a link with the name that Slurm loads.
    pmix: Path | None
    native: tuple[Node, ...]
    virtual: tuple[Node, ...]
    # Each native node is an emulated machine, which starts its own VM.  Otherwise native nodes are namespaces
    # of this machine, which is the host of all VMs.
    emulated: bool
    # The QEMU programs of `machine_nodes`, in the same order.
    machines: tuple[WatchedProgram, ...]
    pin: bool
    # The console on which a node says what became of its RDMA device, by the node's name.
    rdma_consoles: dict[str, Path]
    # The time in which all nodes must become idle.
    boot_seconds: float
    # A library that daemons load first if they run without root.
    preload: Path | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All compute nodes."""
        return (*self.native, *self.virtual)

    @property
    def machine_nodes(self) -> tuple[Node, ...]:
        """The nodes that are QEMU machines on this machine: all VMs, or all emulated hosts."""
        return self.native if self.emulated else self.virtual

    @property
    def namespace_nodes(self) -> tuple[Node, ...]:
        """The nodes that share this machine's kernel."""
        return () if self.emulated else self.native
