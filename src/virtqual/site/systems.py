"""The contents of a system file, checked before anything runs.

A system file is an ordinary ReFrame system (a dictionary named ``system`` in a Python file under
``reframe/systems/``) with two partitions that are each other's peers: one with the feature ``native``,
one with the feature ``virtual``.  It may have others, which virtqual does not use.  What virtqual needs to
know besides is in each partition's ``extras``; the models here are that contract.  Keys that are ReFrame's
own are held against the schema that ReFrame brings.
"""

from __future__ import annotations

import json
import re
import runpy
import shlex
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any, Literal, Self

from jsonschema import Draft7Validator
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict

from virtqual.errors import InfrastructureError, UsageError, VirtqualError
from virtqual.files import reading
from virtqual.files.wording import Key, describe_mistakes, dotted, suggest
from virtqual.identity import Host, seen
from virtqual.identity import host as hosts
from virtqual.identity.rates import LinkRate
from virtqual.site import host_records
from virtqual.site import hosts as shared_hosts
from virtqual.site.hosts import NodesOfHosts

SIDES = ("native", "virtual")
#: The build while no host was asked.
NOT_ASKED = "not asked yet"
#: Schedulers of ReFrame that are Slurm: ``squeue`` is for clusters without accounting.
SCHEDULERS = ("slurm", "squeue")

# A number in quotes would come to the checks as text.
Whole = Annotated[int, Field(strict=True, ge=1)]
Flag = Annotated[bool, Field(strict=True)]


class HypervisorBuild(BaseModel):
    """The hypervisor below the VMs. Results are kept by its build, never by a product's name alone.

    Attributes
    ----------
    vendor, build
        E.g. ``VMware ESXi`` and ``8.0.3-24022510``; the exact build.
    accelerator
        Execution of guest instructions, e.g. ``kvm``, ``esxi``, or ``tcg`` for QEMU's emulation.
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
        Number of nodes that a check may use.
    memory_mib
        Memory of one node, MiB.
    llc_bytes
        Last-level caches of one node together, bytes, as the hardware has them (a VM may be told
        something else): arrays of four times this size measure memory, smaller ones do not.
    scale
        ``small`` for a few cores or emulated ones, ``standard`` for production nodes.
    numa_nodes
        Number of NUMA nodes that a node shows.
    node_interleaving
        The firmware's setting, ``on`` or ``off``, where it is part of what is studied; the same for both.
    link_gbit
        Rate that the fastest RDMA port should have, Gbit/s; the same for both partitions, and native ones
        without RDMA have none.
    mpi_options
        Options by which ``srun`` starts programs of the site's MPI library, such as ``["--mpi=pmix_v4"]``, in
        place of those that the stack states; the same for both partitions.
    rdma_options
        Options of perftest's programs that choose the RDMA device and whatever else it needs, such as
        ``["-d", "mlx5_0"]``; each partition its own.
    hpl
        HPL's size, where it is not to follow from the memory; the same for both partitions.
    run_seconds
        How long the program should run in each run on the faster side, s, in as many repetitions as that
        takes; 0 for a single one, None for what follows from the scale.  The same for both partitions.
    own_scheduler
        Whether nobody else uses the scheduler: it is then asked several times a second how a job does, and
        every few seconds how the nodes do; else as ReFrame does by itself, and once a minute.  The same for
        both partitions.
    least_time_limit
        Seconds that every run is given at least; a case that is known is given three times what it took, up
        to the partition's ``time_limit``.  None: 600.
    session_access
        Options by which one allocation is asked for that is held for a whole session, with its time limit;
        empty where each run is to be a job.  Both partitions have some, or none has.
    nodes_of_hosts
        Names of the nodes by the machine that they are on, which has the same name for both partitions. A
        native node that is not named is a machine by itself; of a VM that is not named it is not known.
        Checks on several VMs of one host take the first host that has as many.
    site
        For a site's own checks; nothing here reads it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: Whole
    memory_mib: Annotated[Whole, Field(ge=256)]
    llc_bytes: Whole
    scale: Literal["small", "standard"]
    numa_nodes: Whole = 1
    node_interleaving: Literal["on", "off"] | None = None
    link_gbit: LinkRate | None = None
    mpi_options: tuple[str, ...] = ()
    rdma_options: tuple[str, ...] = ()
    hpl: HplSize | None = None
    run_seconds: Annotated[float, Field(strict=True, ge=0, le=600)] | None = None
    own_scheduler: Flag = False
    least_time_limit: Whole | None = None
    session_access: tuple[str, ...] = ()
    nodes_of_hosts: NodesOfHosts = {}
    site: dict[str, Any] = {}


class VirtualExtras(PartitionExtras):
    """The ``extras`` of the virtual partition.

    Attributes
    ----------
    hypervisor
        Identity of the build under qualification.
    hypervisor_class
        The class of budgets that applies, e.g. ``kvm``; see ``references/budgets/``.
    guest
        Description of the VMs: kernel, vCPUs, memory, CPU model.
    numa_hidden
        Whether the VMs show fewer NUMA nodes than native ones because that is what is studied: preflight
        reports it instead of refusing it, and no build is qualified so.
    host
        Facts that only the hypervisor's host can tell: the fields of ``virtqual-host/1``, such a file, or a
        directory with the record of each host (docs/preflight.md).  What they say of the build need not be
        stated.
    ask_hosts
        Command with its arguments that brings the records of all hosts at the start of a session.
    recreate_vms
        Command with its arguments that creates all VMs anew, before every round of a session but the first.
    """

    hypervisor: HypervisorBuild
    hypervisor_class: str = Field(min_length=1)
    guest: dict[str, Any] = {}
    numa_hidden: Flag = False
    host: dict[str, Any] | Path = {}
    ask_hosts: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    recreate_vms: tuple[Annotated[str, Field(min_length=1)], ...] = ()

    @classmethod
    def of_reframe(cls, extras: Mapping[str, Any]) -> Self:
        """Return the extras of ReFrame's partition, to which ReFrame adds its scheduler and launcher."""
        return cls.model_validate({key: value for key, value in extras.items() if key in cls.model_fields})

    @model_validator(mode="before")
    @classmethod
    def _refuse_removed_key(cls, raw: Any) -> Any:
        if isinstance(raw, Mapping) and "node_returns_within" in raw:
            raise ValueError(
                "node_returns_within: sessions do not wait for lost nodes any more; remove the key, and "
                "continue a session that lost a node by `virtqual qualify --resume`"
            )
        return raw

    @model_validator(mode="before")
    @classmethod
    def _build_of_hosts(cls, raw: Any) -> Any:
        """Take the build from the hosts, where the system file leaves it out."""
        stated = raw.get("hypervisor") if isinstance(raw, Mapping) else None
        if not isinstance(stated, Mapping) or "build" in stated:
            return raw
        if not isinstance(told := raw.get("host"), str | Path):
            return raw
        directory = Path(told)
        build = NOT_ASKED if raw.get("ask_hosts") else None
        if directory.is_dir() and (host_records.files(directory) or not raw.get("ask_hosts")):
            try:
                records = host_records.read(directory)
                build = host_records.build(host_records.together(records))
                # Whoever begins a session refuses that.
                build = build or "; ".join(host_records.mixed(records))
            except UsageError as error:
                raise ValueError(str(error)) from None
        return {**raw, "hypervisor": {**stated, "build": build}} if build else raw

    @model_validator(mode="after")
    def _told_of_this_build(self) -> Self:
        try:
            host_of(self, "host")
        except UsageError as error:
            raise ValueError(str(error)) from None
        return self


class Processor(TypedDict):
    """The processor of a node as ReFrame describes it: the part that decides sizes and ranks."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    num_cpus: Whole
    num_cpus_per_core: Whole
    num_sockets: Whole


class Other(BaseModel):
    """A partition that is not compared, such as one with GPUs."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    features: tuple[str, ...] = ()


class Partition(Other):
    """One of the two partitions; keys that only ReFrame reads pass through.

    Attributes
    ----------
    access
        Options by which jobs ask for the partition.
    """

    scheduler: str
    launcher: str
    access: Annotated[tuple[str, ...], Field(min_length=1)]
    processor: Processor
    extras: PartitionExtras

    @field_validator("scheduler")
    @classmethod
    def _slurm(cls, value: str) -> str:
        if value not in SCHEDULERS:
            raise ValueError(
                f"{value!r} will not do: {'it cannot keep both partitions apart; ' * (value in _NONE)}"
                "the checks run under Slurm alone: state 'slurm', or 'squeue' without accounting"
            )
        return value

    @field_validator("launcher")
    @classmethod
    def _srun(cls, value: str) -> str:
        if value != "srun":
            raise ValueError(f"{value!r} will not do: the checks bind tasks by 'srun' alone: state that")
        return value

    @property
    def options(self) -> list[str]:
        """Single words of `access`."""
        return [word for option in self.access for word in shlex.split(option)]

    @property
    def session_options(self) -> list[str]:
        """Single words of `extras.session_access`."""
        return [word for option in self.extras.session_access for word in shlex.split(option)]


class VirtualPartition(Partition):
    """The virtual one of the two partitions."""

    extras: VirtualExtras


#: Schedulers of ReFrame that start jobs at once, wherever.
_NONE = ("local", "ssh")


def _side(partition: Any) -> str:
    features = partition.get("features", ()) if isinstance(partition, Mapping) else ()
    return next((side for side in reversed(SIDES) if side in features), "other")


AnyPartition = Annotated[
    Annotated[Partition, Tag("native")]
    | Annotated[VirtualPartition, Tag("virtual")]
    | Annotated[Other, Tag("other")],
    Discriminator(_side),
]

# Why a key of the extras must be the same for both partitions.
_SAME = {
    "llc_bytes": "state what the hardware has, the same for both",
    "scale": "sizes follow from it, and problems of two sizes are no pair",
    "node_interleaving": "both run on the same hardware; two settings of the firmware are two sessions",
    "hpl": "problems of two sizes are no pair",
    "run_seconds": "both sides start a program equally often in a run",
    "mpi_options": "programs that are started otherwise are no pair",
    "own_scheduler": "both partitions are of one scheduler",
}


class System(BaseModel):
    """A system with its two partitions."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    hostnames: tuple[str, ...]
    prefix: str = Field(min_length=1)
    partitions: tuple[AnyPartition, ...]

    @model_validator(mode="before")
    @classmethod
    def _one_a_side(cls, raw: Any) -> Any:
        having = {
            side: [p["name"] for p in raw["partitions"] if side in p.get("features", ())] for side in SIDES
        }
        for side, names in having.items():
            if len(names) != 1:
                raise ValueError(
                    f"partitions: exactly one partition must have the feature {side!r}, "
                    f"found {', '.join(names) or 'none'}"
                )
        if having["native"] == having["virtual"]:
            raise ValueError(f"partitions: {having['native'][0]} has both features, native and virtual")
        return raw

    @model_validator(mode="after")
    def _apart(self) -> Self:
        native, virtual = map(self.partition, SIDES)
        if sorted(native.options) == sorted(virtual.options):
            raise ValueError(
                f"partitions: access of {native.name} and {virtual.name} is the same "
                f"({' '.join(native.options)}): jobs of both would run on the same nodes"
            )
        return self

    @model_validator(mode="after")
    def _same_hardware(self) -> Self:
        for key, why in _SAME.items():
            if getattr(self.native, key) != getattr(self.virtual, key):
                raise ValueError(f"extras.{key} differs between the partitions: {why}")
        if bool(self.native.session_access) != bool(self.virtual.session_access):
            raise ValueError("extras.session_access: state it for both partitions, or for none")
        if self.native.link_gbit not in (None, self.virtual.link_gbit):
            raise ValueError(
                "extras.link_gbit differs between the partitions: state the rate that the adapters of both "
                "should have"
            )
        return self

    @model_validator(mode="after")
    def _same_sizes(self) -> Self:
        native, virtual = map(self.cores, SIDES)
        share = virtual < native and shared_hosts.most(self.virtual.nodes_of_hosts) > 1
        if native != virtual and not share:
            raise ValueError(
                "the cores of a node (processor.num_cpus / num_cpus_per_core) must be the same for both "
                "partitions: sizes and ranks follow from them; state what both can give (a VM may have fewer "
                "cores where extras.nodes_of_hosts says that several share a host)"
            )
        needed = 8 * self.virtual.hpl.order**2 // 2**20 if self.virtual.hpl else 0
        if needed > min(self.native.memory_mib, self.virtual.memory_mib):
            raise ValueError(
                f"extras.hpl.order: the matrix takes {needed} MiB, a node has less (extras.memory_mib)"
            )
        return self

    def partition(self, side: str) -> Partition:
        """Return the native or the virtual partition."""
        return next(p for p in self.partitions if isinstance(p, Partition) and side in p.features)

    def cores(self, side: str) -> int:
        """Return the physical cores of a node of one side."""
        processor = self.partition(side).processor
        return processor["num_cpus"] // processor["num_cpus_per_core"]

    @property
    def native(self) -> PartitionExtras:
        """The settings of the native partition that only virtqual reads."""
        return self.partition("native").extras

    @property
    def virtual(self) -> VirtualExtras:
        """The settings of the virtual partition that only virtqual reads."""
        extras = self.partition("virtual").extras
        assert isinstance(extras, VirtualExtras)
        return extras


def offers(features: Iterable[str], extras: PartitionExtras) -> list[str]:
    """Return a partition's features with those that follow from its extras."""
    more = {"multinode": extras.nodes >= 2, "numa": extras.numa_nodes >= 2}
    return [*features, *(name for name, has in more.items() if has)]


def host_of(extras: VirtualExtras, where: str = "system file") -> Host:
    """Return what is known of the hypervisor's host: its own file, and the build that the system file states.

    Raises
    ------
    UsageError
        The file is not of its form, or states another build than the system file.
    """
    told = _told(extras, where)
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
    if extras.nodes_of_hosts:
        stated["vms_per_host"] = shared_hosts.most(extras.nodes_of_hosts)
    if extras.link_gbit:
        stated["link_gbit"] = extras.link_gbit
    source = told.source if extras.host else "system file"
    update = {**stated, **hardware, "vendor": extras.hypervisor.vendor, "source": source}
    return told.model_copy(update=update)


def _told(extras: VirtualExtras, where: str) -> Host:
    if not isinstance(extras.host, Path):
        return hosts.of(extras.host, where)
    # What the hosts are yet to be asked is looked at when they were: a new host has no record before.
    if extras.ask_hosts and not (extras.host.is_file() or host_records.files(extras.host)):
        return hosts.of({}, where)
    if extras.host.is_dir():
        named = () if extras.ask_hosts else extras.nodes_of_hosts
        return host_records.together(host_records.read(extras.host, named))
    return hosts.load(extras.host)


def check(raw: Mapping[str, Any], file: str) -> System:
    """Check one system.

    Parameters
    ----------
    raw
        The dictionary as ReFrame reads it.
    file
        Name of the file in messages.

    Raises
    ------
    UsageError
        Naming the file and every key that is missing, unknown or wrong, and what it must be.
    """
    told = list(_of_reframe(raw))
    if not told:
        try:
            return System.model_validate(raw)
        except ValidationError as error:
            told = describe_mistakes(error, System, raw)
    problems = "; ".join(f"{_place(key, raw)}: {message}" for key, message in told)
    raise UsageError(f"{file}: {problems} (what a system file must say: docs/system-file.md)")


def _place(key: Key, raw: Mapping[str, Any]) -> str:
    """Return a key as people write it, with a partition's name in place of its number."""
    if key[:1] == ("partitions",) and len(key) > 1:
        partition = raw["partitions"][key[1]]
        name = partition.get("name", key[1]) if isinstance(partition, Mapping) else key[1]
        key = (f"partitions[{name}]", *key[2:])
    return dotted(("system", *key))


@cache
def _schema() -> Draft7Validator:
    """Return what ReFrame itself accepts as a system, from the schema that it brings."""
    whole = json.loads(resources.files("reframe").joinpath("schemas/config.json").read_text(encoding="utf-8"))
    return Draft7Validator({**whole["properties"]["systems"]["items"], "defs": whole["defs"]})


def _of_reframe(raw: Mapping[str, Any]) -> Iterator[tuple[Key, str]]:
    """Yield what ReFrame would refuse: one such file would stop it for every system."""
    for error in _schema().iter_errors(raw):
        key = tuple(error.absolute_path)
        if error.validator == "additionalProperties" and isinstance(error.schema, Mapping):
            known = error.schema["properties"]
            for name in error.instance.keys() - known.keys():
                yield (
                    (*key, str(name)),
                    f"is not a key of ReFrame's systems: {suggest(str(name), known)}",
                )
        elif error.validator == "required":
            for name in error.validator_value:
                if name not in error.instance:
                    yield (*key, name), "is missing."
        elif error.validator == "pattern":
            yield (
                key,
                f"{shorten(repr(error.instance), 60)} is no name: it begins with a letter or _, and has "
                "letters, digits, _ and - alone",
            )
        else:
            yield key, shorten(error.message, 120)


@dataclass(frozen=True)
class SystemFile:
    """A system file after reading: what it defines, or why that cannot be used.

    Attributes
    ----------
    file
        Path of the file.
    name
        The system's; the file's own where that does not come as far as to state one.
    stated
        Whether the file states the name.
    found
        The system as ReFrame takes it, and as virtqual knows it; or what is wrong.
    """

    file: Path
    name: str
    stated: bool
    found: tuple[dict[str, Any], System] | VirtqualError

    def checked(self) -> System:
        """Return the system.

        Raises
        ------
        VirtqualError
            The system is not there at the moment, or its file is wrong.
        """
        if isinstance(self.found, VirtqualError):
            raise self.found
        return self.found[1]


def read(file: Path) -> SystemFile:
    """Read a system file and check it; whatever it does, other files can be read after it.

    Notes
    -----
    ``system`` may also be a sentence: why the system is not there at the moment.
    """
    # A name that ReFrame takes, whatever the file is called.
    own = re.sub(r"^[^A-Za-z_]|[^\w-]", "_", file.stem, flags=re.ASCII)
    try:
        raw = _run(file)
        if isinstance(raw, str):
            raise InfrastructureError(f"system {own!r}: {raw}")
        if not isinstance(raw, dict):
            raise UsageError(f"{file}: defines no dictionary named 'system'; see docs/system-file.md")
    except VirtqualError as error:
        return SystemFile(file, own, False, error)
    name = raw.get("name")
    stated = isinstance(name, str) and not any(key == ("name",) for key, _ in _of_reframe(raw))
    try:
        return SystemFile(file, str(name), stated, (raw, check(raw, str(file))))
    except UsageError as error:
        return SystemFile(file, str(name) if stated else own, stated, error)


def _run(file: Path) -> object:
    """Return what a file defines as ``system``.

    Raises
    ------
    VirtqualError
        The file's own; UsageError with the line where anything else goes wrong, or the file ends the program.
    """
    try:
        reading.read_bytes(file, reading.MAX_REVIEWED_BYTES)
        return runpy.run_path(str(file)).get("system")
    except VirtqualError:
        raise
    except SystemExit as error:
        why = f"ends the program ({error}): a system that is not there says so by a sentence as `system`"
        raise UsageError(f"{_line(file, error)}: {why}") from error
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"{_line(file, error)}: cannot be read ({why})") from error


def _line(file: Path, error: BaseException) -> str:
    """Return a file with its line at which it failed, where there is one."""
    lines = [at.lineno for at in traceback.extract_tb(error.__traceback__) if at.filename == str(file)]
    if isinstance(error, SyntaxError):
        lines = [error.lineno]
    return f"{file}:{lines[-1]}" if lines and lines[-1] else str(file)
