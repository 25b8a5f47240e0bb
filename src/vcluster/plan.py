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
    node : str or None
        The node that is lost with it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    command: tuple[str, ...]
    node: str | None = None


class BootPlan(BaseModel):
    """A cluster, ready to be started.

    Attributes
    ----------
    etc : Path
        Files that every node gets in its ``/run/vcluster``.
    pmix : Path or None
        Folder that gets a ``libpmix.so``, where it lacks one.
    vms : tuple of WatchedProgram
        One for each of ``virtual``, in order.
    pin : bool
        Whether vCPUs stay on the host CPUs of their node.
    rdma : bool
        Whether the VMs try to make an RDMA device, and say what became of it.
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
    vms: tuple[WatchedProgram, ...]
    pin: bool
    rdma: bool
    boot_seconds: float
    preload: Path | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All compute nodes."""
        return (*self.native, *self.virtual)
