"""The ``extras`` of both partitions in a system file; docs/system-file.md explains each key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, StrictBool, model_validator

from virtqual.errors import UsageError
from virtqual.identity import Host, seen
from virtqual.identity import host as host_facts
from virtqual.identity.record import LinkRate
from virtqual.site import host_records
from virtqual.site.hosts import NodesOfHosts, count_max_nodes
from virtqual.site.options import Options
from virtqual.site.waiting import DEFAULT_WAIT_HOURS, MAX_WAIT_HOURS

#: The build of a hypervisor before `ask_hosts` has brought the records of its hosts.
BUILD_NOT_ASKED = "not asked yet"

# A number in quotes would reach the checks as text.
Count = Annotated[int, Field(strict=True, ge=1)]
Command = tuple[Annotated[str, Field(min_length=1)], ...]
Directory = Annotated[str, Field(pattern=r"^/[\w./+-]*$")]


class HypervisorBuild(BaseModel, extra="forbid", frozen=True):
    """The hypervisor below the VMs; results are kept by its exact build, such as ``8.0.3-24022510``."""

    vendor: str = Field(min_length=1)
    build: str = Field(min_length=1)
    accelerator: str = Field(min_length=1)
    #: The virtual hardware, such as ``vmx-21``.
    machine: str | None = None
    #: Further properties: options, firmware, microcode.
    details: dict[str, Any] = {}


class HplSize(BaseModel, extra="forbid", frozen=True):
    """The order and the block of HPL's matrix."""

    order: int = Field(ge=1)
    block: int = Field(ge=1)


class Timeouts(BaseModel, extra="forbid", frozen=True):
    """Times after which a session gives up a node or a job, s: they depend on what a site runs there."""

    #: A node that does not release a job: an epilog may check the node's health.
    completing: float = Field(default=600, ge=10)
    #: A node that does not answer Slurm.
    answer: float = Field(default=60, ge=10)
    #: VMs that are created anew: for the command, and again for Slurm to call their nodes usable.
    boot: float = Field(default=1800, ge=10)
    #: The prolog of a job, which counts towards its time limit.
    prolog: float = Field(default=0, ge=0)


class PartitionExtras(BaseModel, extra="forbid", frozen=True):
    """The ``extras`` of either partition."""

    nodes: Count
    memory_mib: Annotated[Count, Field(ge=256)]
    #: All last-level caches of a node, as the hardware has them.
    llc_bytes: Count
    scale: Literal["small", "standard"]
    numa_nodes: Count = 1
    #: A directory of the storage that is measured; virtqual writes below it alone, and removes what it wrote.
    scratch: Directory | None = None
    #: The same, of a file system that all nodes share.
    shared_scratch: Directory | None = None
    #: Sizes of pages that the nodes reserve (hugetlb), such as ``1G``.
    hugetlb: tuple[Literal["2M", "1G"], ...] = ()
    node_interleaving: Literal["on", "off"] | None = None
    #: Gbit/s
    link_gbit: LinkRate | None = None
    mpi_options: tuple[str, ...] = ()
    rdma_options: tuple[str, ...] = ()
    hpl: HplSize | None = None
    #: Time of the programs in a run, s; 0 for one repetition, None if it follows from the scale.
    run_seconds: Annotated[float, Field(strict=True, ge=0, le=600)] | None = None
    own_scheduler: StrictBool = False
    session_access: Options = ()
    #: How long a command waits for nodes.
    wait_hours: Annotated[float, Field(strict=True, gt=0, le=MAX_WAIT_HOURS)] = DEFAULT_WAIT_HOURS
    nodes_of_hosts: NodesOfHosts = {}
    #: Options that virtqual adds to jobs, and the site's Slurm refuses.
    omitted_options: tuple[Literal["--mem", "--no-requeue", "--export"], ...] = ()
    timeouts: Timeouts = Timeouts()
    #: For a site's own checks.
    site: dict[str, Any] = {}


class VirtualExtras(PartitionExtras):
    """The ``extras`` of the virtual partition."""

    hypervisor: HypervisorBuild
    hypervisor_class: str = Field(min_length=1)
    guest: dict[str, Any] = {}
    numa_hidden: StrictBool = False
    #: A ``virtqual-host/1`` record, its file, or a directory with a record of each host.
    host: dict[str, Any] | Path = {}
    ask_hosts: Command = ()
    recreate_vms: Command = ()

    @classmethod
    def from_reframe(cls, extras: Mapping[str, Any]) -> Self:
        """Return the extras of ReFrame's partition, to which ReFrame adds its scheduler and launcher."""
        return cls.model_validate({key: value for key, value in extras.items() if key in cls.model_fields})

    @model_validator(mode="before")
    @classmethod
    def _take_build_from_hosts(cls, raw: Any) -> Any:
        hypervisor = raw.get("hypervisor") if isinstance(raw, Mapping) else None
        if not isinstance(hypervisor, Mapping) or "build" in hypervisor:
            return raw
        if not isinstance(raw.get("host"), str | Path):
            return raw
        directory, hosts = Path(raw["host"]), raw.get("nodes_of_hosts")
        hosts = hosts if isinstance(hosts, Mapping) else ()
        build = BUILD_NOT_ASKED if raw.get("ask_hosts") else None
        try:
            if directory.is_dir() and (host_records.find_files(directory, hosts) or build is None):
                records = host_records.read(directory, hosts, all_required=False)
                build = host_records.find_build(host_records.merge(records))
                # A session on hosts of several builds is refused when it begins.
                build = build or "; ".join(host_records.find_different_builds(records))
        except UsageError as error:
            raise ValueError(str(error)) from None
        return {**raw, "hypervisor": {**hypervisor, "build": build}} if build else raw

    @model_validator(mode="after")
    def _check_host(self) -> Self:
        try:
            self.read_host()
        except UsageError as error:
            raise ValueError(str(error)) from None
        return self

    def read_host(self) -> Host:
        """Return the facts of the hypervisor's host: its records, and the keys that the system file states.

        Raises
        ------
        UsageError
            A record is not of its form, or states another build than the system file.
        """
        host = self._read_records()
        stated: dict[str, Any] = self.hypervisor.model_dump(include={"vendor", "build", "accelerator"})
        for key in ("accelerator", "build"):
            recorded, value = getattr(host, key), stated[key]
            if seen(recorded) and recorded != value:
                raise UsageError(f"host: {key} is {recorded!r}, but extras.hypervisor.{key} says {value!r}")
        if self.hypervisor.machine:
            stated["hardware"] = self.hypervisor.machine
        if self.node_interleaving:
            stated["node_interleaving"] = self.node_interleaving == "on"
        if self.numa_hidden:
            stated["numa_hidden"] = True
        if self.nodes_of_hosts:
            stated["vms_per_host"] = count_max_nodes(self.nodes_of_hosts)
        if self.link_gbit:
            stated["link_gbit"] = self.link_gbit
        return host.model_copy(update=stated)

    @property
    def is_build_stated(self) -> bool:
        """A person typed the build into the system file, and no record of a host has it."""
        return host_records.find_build(self._read_records()) != self.hypervisor.build

    def _read_records(self) -> Host:
        if not isinstance(self.host, Path):
            return host_facts.make_host(self.host, "system file")
        # A host whose records `ask_hosts` is still to bring may have none.
        hosts = self.nodes_of_hosts
        if self.ask_hosts and not (self.host.is_file() or host_records.find_files(self.host, hosts)):
            return host_facts.make_host({}, "system file")
        if self.host.is_dir():
            return host_records.merge(host_records.read(self.host, hosts, all_required=not self.ask_hosts))
        return host_facts.load(self.host)
