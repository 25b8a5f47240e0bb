"""The plan that the supervisor gets: everything decided before the namespaces exist."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from vcluster.topology import Node


class WatchedProgram(BaseModel):
    """A program of the cluster that has to run as long as the cluster does.

    Attributes
    ----------
    name : str
        For people, and of its log.
    command : tuple of str
        The program and its arguments.
    nodes : tuple of str
        The nodes that are lost with it.
    cpus : tuple of int
        For a machine of QEMU: the CPUs of this machine that its own are pinned to, in order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    command: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()


class BootPlan(BaseModel):
    """A cluster, ready to be started.

    Attributes
    ----------
    etc : Path
        Files that every node gets in its ``/run/vcluster``.
    pmix : Path or None
        Folder that gets a ``libpmix.so``, where it lacks one.
    emulated : bool
        Whether each native node is an emulated machine, which starts its own VM; else the native nodes are
        namespaces of this machine, which is the host of all VMs.
    machines : tuple of WatchedProgram
        The programs that run one for each of ``machine_nodes``, in order.
    pin : bool
        Whether the CPUs of these machines stay on the CPUs of their node.
    rdma_consoles : dict of str to Path
        By node that makes an RDMA device: the console on which it says what became of the device.
    boot_seconds : float
        How long the nodes may take until all are idle.
    preload : Path or None
        Library that the daemons load first, where they run without root.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    etc: Path
    logs: Path
    pmix: Path | None
    native: tuple[Node, ...]
    virtual: tuple[Node, ...]
    emulated: bool
    machines: tuple[WatchedProgram, ...]
    pin: bool
    rdma_consoles: dict[str, Path]
    boot_seconds: float
    preload: Path | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All compute nodes."""
        return (*self.native, *self.virtual)

    @property
    def machine_nodes(self) -> tuple[Node, ...]:
        """The nodes that are machines of QEMU on this machine: all VMs, or all emulated hosts."""
        return self.native if self.emulated else self.virtual

    @property
    def namespaced(self) -> tuple[Node, ...]:
        """The nodes that share this machine's kernel."""
        return () if self.emulated else self.native
