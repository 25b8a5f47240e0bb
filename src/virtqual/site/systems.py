"""System files, which are checked before anything runs.

A system file defines a ReFrame system (a dictionary named ``system``) with two partitions: one with the
feature ``native``, one with the feature ``virtual``. Other partitions are not compared.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any, Literal, Self

from jsonschema import Draft7Validator
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict

from virtqual.errors import InfrastructureError, UsageError, VirtqualError
from virtqual.files import reading
from virtqual.files.wording import Key, describe_mistakes, dotted, suggest
from virtqual.site.extras import Count, PartitionExtras, VirtualExtras
from virtqual.site.hosts import count_max_nodes
from virtqual.site.options import Options, parse_options
from virtqual.verdict.pairs import SIDES, Side

#: The message on text that ReFrame takes for no name of a system or partition; see `is_name`.
NO_NAME = "is no name: it begins with a letter or _, and has letters, digits, _ and - alone"
#: The beginning of a sentence in place of a value that only people know.
TODO = "TODO: "
#: Options by which jobs ask for some nodes of a partition only.
_NODE_OPTIONS = {"--nodelist", "--exclude", "--constraint", "--nodefile", "--reservation"}
_TYPE_WORDS = {
    "array": "a list",
    "boolean": "True or False",
    "integer": "a whole number",
    "null": "None",
    "number": "a number",
    "object": "a dictionary",
    "string": "text",
}
# Reasons by which a key of the extras must be the same for both partitions.
_REASONS_FOR_SAME_KEYS = {
    "llc_bytes": "state what the hardware has, the same for both",
    "scale": "sizes follow from it, and problems of two sizes are no pair",
    "hugetlb": "a side without reserved pages would run with others",
    "node_interleaving": "both run on the same hardware; two settings of the firmware are two sessions",
    "hpl": "problems of two sizes are no pair",
    "run_seconds": "both sides start a program equally often in a run",
    "mpi_options": "programs that are started otherwise are no pair",
    "own_scheduler": "both partitions are of one scheduler",
    "wait_hours": "a session waits for the nodes of both",
}


class SystemFileError(UsageError):
    """Keys of a system file are missing, unknown or wrong: a sentence for each."""

    def __init__(self, file: str, mistakes: list[str]) -> None:
        sentences = "; ".join(mistake.rstrip(".") for mistake in mistakes)
        super().__init__(f"{file}: {sentences} (what a system file must say: docs/system-file.md)")
        self.file, self.mistakes = file, mistakes


class Processor(TypedDict):
    """The processor of a node as ReFrame describes it: the part that decides sizes and ranks."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    num_cpus: Count
    num_cpus_per_core: Count
    num_sockets: Count


def _refuse_mpirun(launcher: object) -> object:
    """Refuse launchers of MPI libraries, and say what to write instead (docs/system-file.md)."""
    if str(launcher).startswith(("mpirun", "mpiexec")):
        raise ValueError(
            f"{launcher!r} cannot start tasks on one side of a session's job, nor tells them apart as Slurm "
            "does: write 'srun', with extras.mpi_options=['--mpi=pmix'] for Open MPI or ['--mpi=pmi2'] for "
            "MPICH (`srun --mpi=list` shows what your Slurm has)"
        )
    return launcher


class Partition(BaseModel, frozen=True):
    """A partition that is compared, without the keys that only ReFrame reads."""

    name: str
    features: tuple[str, ...]
    # ReFrame's `squeue` is for Slurm without accounting. Tasks are bound by `srun`.
    scheduler: Literal["slurm", "squeue"]
    launcher: Annotated[Literal["srun"], BeforeValidator(_refuse_mpirun)]
    access: Annotated[Options, Field(min_length=1)]
    processor: Processor
    extras: PartitionExtras
    #: Variables of its jobs, as ReFrame states them.
    env_vars: tuple[tuple[Any, ...], ...] = ()

    @model_validator(mode="after")
    def _check_rdma(self) -> Self:
        names_device = any(option.startswith(("-d", "--ib-dev")) for option in self.extras.rdma_options)
        if "rdma" in self.features and not names_device:
            raise ValueError(
                "extras.rdma_options: names no device, and perftest would take the first: write such as "
                "['-d', 'mlx5_0']"
            )
        return self

    @property
    def job_options(self) -> dict[str, str]:
        """The options of a session's jobs with their values, under their long names."""
        return parse_options(self.extras.session_access or self.access)

    @property
    def mpi_devices(self) -> list[str]:
        """The RDMA devices that UCX is told to use, such as ``mlx5_0:1``; empty if it chooses itself."""
        variables = {str(pair[0]): str(pair[-1]) for pair in self.env_vars}
        return [name for name in variables.get("UCX_NET_DEVICES", "").split(",") if name and name != "all"]

    @property
    def slurm_name(self) -> str:
        """Slurm's name of the partition; empty if jobs take the default one."""
        return self.job_options.get("--partition", "")

    @property
    def names_nodes(self) -> bool:
        """A session's jobs ask for some nodes of the partition only, by name or feature."""
        return not self.job_options.keys().isdisjoint(_NODE_OPTIONS)

    @property
    def all_features(self) -> list[str]:
        """Its features, with those that follow from its extras."""
        derived = {"multinode": self.extras.nodes >= 2, "numa": self.extras.numa_nodes >= 2}
        return [*self.features, *(name for name, has_feature in derived.items() if has_feature)]


class VirtualPartition(Partition):
    """The virtual partition."""

    extras: VirtualExtras


class ComparedPartitions(BaseModel, frozen=True):
    """The two partitions that are compared."""

    native: Partition
    virtual: VirtualPartition


class System(BaseModel, frozen=True):
    """A system with its two partitions, without the keys that only ReFrame reads."""

    name: str
    #: Where jobs are staged, without variables.
    prefix: str
    #: ReFrame's name of what loads modules, such as ``lmod``.
    modules_system: str = "nomod"
    partitions: ComparedPartitions
    #: The file that defines it.
    file: str

    @field_validator("prefix")
    @classmethod
    def _check_prefix(cls, value: str) -> str:
        # As ReFrame does, which leaves a variable that is not set as it is.
        path = os.path.expandvars(value)
        if unset := re.findall(r"\$\{?(\w+)", path):
            raise ValueError(
                f"{path!r} names a variable that is not set: {' and '.join(dict.fromkeys(unset))}; set it, "
                "or write the path without it"
            )
        if not path.startswith("/") or "$" in path:
            raise ValueError(
                f"{path!r} is a relative path: write the whole path of a directory that every node sees, "
                "such as /scratch/virtqual"
            )
        return path

    @model_validator(mode="after")
    def _check_access(self) -> Self:
        native, virtual = map(self.partition, SIDES)
        if sorted(native.access) == sorted(virtual.access):
            raise ValueError(
                f"partitions: access of {native.name} and {virtual.name} is the same "
                f"({' '.join(native.access)}): jobs of both would run on the same nodes"
            )
        clusters = {
            parse_options(words).get("--clusters", "")
            for partition in (native, virtual)
            for words in filter(None, (partition.access, partition.extras.session_access))
        }
        if len(clusters) > 1:
            raise ValueError(
                "access: --clusters must be the same in access and extras.session_access of both partitions: "
                "one Slurm runs both"
            )
        if bool(self.native_extras.session_access) != bool(self.virtual_extras.session_access):
            raise ValueError("extras.session_access: state it for both partitions, or for none")
        if "squeue" in (native.scheduler, virtual.scheduler) and not self.native_extras.session_access:
            raise ValueError(
                "scheduler: 'squeue' learns no exit code of a job, and no run counts without one. State "
                "extras.session_access, whose runs are steps (docs/system-file.md, Without sacct)"
            )
        return self

    @model_validator(mode="after")
    def _check_same_keys(self) -> Self:
        for key, reason in _REASONS_FOR_SAME_KEYS.items():
            if getattr(self.native_extras, key) != getattr(self.virtual_extras, key):
                raise ValueError(f"extras.{key} differs between the partitions: {reason}")
        # Native nodes may have no RDMA.
        if self.native_extras.link_gbit not in (None, self.virtual_extras.link_gbit):
            raise ValueError(
                "extras.link_gbit differs between the partitions: state the rate that the adapters of both "
                "should have"
            )
        return self

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        native, virtual = map(self.cores, SIDES)
        shares_host = virtual < native and count_max_nodes(self.virtual_extras.nodes_of_hosts) > 1
        if native != virtual and not shares_host:
            raise ValueError(
                f"the cores of a node (processor.num_cpus / num_cpus_per_core) are {native} natively and "
                f"{virtual} in the VM, and must be the same for both partitions: sizes and ranks follow from "
                f"them. State the number that both have, {min(native, virtual)}: a VM may leave cores to its "
                "host. If several VMs share a host, name them in extras.nodes_of_hosts"
            )
        named, vms = sum(map(len, self.virtual_extras.nodes_of_hosts.values())), self.virtual_extras.nodes
        if 0 < named < vms:
            raise ValueError(
                f"extras.nodes_of_hosts names {named} of the {vms} VMs that extras.nodes "
                f"states: a session would use {named}, and hold the others idle. Name the host of every VM"
            )
        matrix_mib = 8 * self.virtual_extras.hpl.order**2 // 2**20 if self.virtual_extras.hpl else 0
        if matrix_mib > min(self.native_extras.memory_mib, self.virtual_extras.memory_mib):
            raise ValueError(
                f"extras.hpl.order: the matrix takes {matrix_mib} MiB, a node has less (extras.memory_mib)"
            )
        return self

    def partition(self, side: str) -> Partition:
        """Return the native or the virtual partition."""
        return self.partitions.native if side == "native" else self.partitions.virtual

    def name_key(self, side: str, key: str) -> str:
        """Return a key of a partition as messages name it."""
        return f"system.partitions[{self.partition(side).name}].{key}"

    def use_nodes(self, count: int | None) -> Self:
        """Return the system with at most so many nodes of each side; None for all that it states.

        All VMs are used if several share a host.
        """
        if count is None or count_max_nodes(self.virtual_extras.nodes_of_hosts) > 1:
            return self
        partitions: dict[str, Partition] = {}
        for side in SIDES:
            partition = self.partition(side)
            nodes = min(partition.extras.nodes, count)
            extras = partition.extras.model_copy(update={"nodes": nodes})
            partitions[side] = partition.model_copy(update={"extras": extras})
        return self.model_copy(update={"partitions": self.partitions.model_copy(update=partitions)})

    def cores(self, side: str) -> int:
        """Return the physical cores of a node of one side."""
        processor = self.partition(side).processor
        return processor["num_cpus"] // processor["num_cpus_per_core"]

    @property
    def nodes(self) -> int:
        """How many nodes of each side are stated."""
        return min(self.native_extras.nodes, self.virtual_extras.nodes)

    @property
    def native_extras(self) -> PartitionExtras:
        """The extras of the native partition."""
        return self.partitions.native.extras

    @property
    def virtual_extras(self) -> VirtualExtras:
        """The extras of the virtual partition."""
        return self.partitions.virtual.extras


def check(raw: Mapping[str, Any], file: str) -> System:
    """Return the system that a file defines; a `SystemFileError` names each key that is wrong."""
    # A sentence in place of a value is of another type than the value.
    content = raw
    mistakes = list(_find_todos(raw)) or list(_find_reframe_mistakes(raw)) or list(_find_side_mistakes(raw))
    if not mistakes:
        partitions = {side: p for p in raw["partitions"] if (side := find_side(p))}
        content = {**raw, "partitions": partitions, "file": file}
        try:
            return System.model_validate(content)
        except ValidationError as error:
            mistakes = describe_mistakes(error, System, content)
    raise SystemFileError(file, [f"{_format_key(key, content)}: {message}" for key, message in mistakes])


def find_side(partition: Mapping[str, Any]) -> Side | None:
    """Return the side of one of ReFrame's partitions; None if the partition is not compared."""
    return next((side for side in SIDES if side in partition.get("features", ())), None)


def _find_side_mistakes(raw: Mapping[str, Any]) -> Iterator[tuple[Key, str]]:
    """Yield what is wrong with the sides of the partitions."""
    features_by_name = {partition["name"]: partition.get("features", ()) for partition in raw["partitions"]}
    for side in SIDES:
        names = [name for name, features in features_by_name.items() if side in features]
        if len(names) != 1:
            listed = ", ".join(names) or "none"
            yield ("partitions",), f"exactly one partition must have the feature {side!r}, found {listed}"
    for name, features in features_by_name.items():
        if set(SIDES) <= set(features):
            yield ("partitions",), f"{name} has both features, native and virtual"


def _format_key(key: Key, content: Mapping[str, Any]) -> str:
    """Return a key as people write it, with a partition's name in place of its number or side."""
    if key[:1] == ("partitions",) and len(key) > 1:
        partition = content["partitions"][key[1]]
        name = partition.get("name", key[1]) if isinstance(partition, Mapping) else key[1]
        key = (f"partitions[{name}]", *key[2:])
    return dotted(("system", *key))


@cache
def _load_reframe_schema() -> Draft7Validator:
    """Return ReFrame's own schema of a system."""
    schema = json.loads(
        resources.files("reframe").joinpath("schemas/config.json").read_text(encoding="utf-8")
    )
    return Draft7Validator({**schema["properties"]["systems"]["items"], "defs": schema["defs"]})


def _find_reframe_mistakes(raw: Mapping[str, Any]) -> Iterator[tuple[Key, str]]:
    """Yield the keys that ReFrame refuses: it would stop for all systems, at the first mistake."""
    for error in _load_reframe_schema().iter_errors(raw):
        key = tuple(error.absolute_path)
        if error.validator == "additionalProperties" and isinstance(error.schema, Mapping):
            valid_names = error.schema["properties"]
            for name in error.instance.keys() - valid_names.keys():
                message = f"is not a key of ReFrame's systems: {suggest(str(name), valid_names)}"
                yield (*key, str(name)), message
        elif error.validator == "required":
            for name in error.validator_value:
                if name not in error.instance:
                    yield (*key, name), "is missing."
        elif error.validator == "type":
            yield key, _describe_type(error.instance, error.validator_value)
        elif error.validator == "pattern":
            yield key, f"{shorten(repr(error.instance), 60)} {NO_NAME}"
        else:
            yield key, shorten(error.message, 120)


def _describe_type(value: object, types: str | list[str]) -> str:
    """Return a message on a value of another type than JSON schema asks for, in the words of Python."""
    names = [types] if isinstance(types, str) else types
    type_words = " or ".join(_TYPE_WORDS.get(name, name) for name in names)
    example = f": write [{value!r}]" if names == ["array"] and isinstance(value, str) else ""
    return f"{shorten(repr(value), 60)} is not {type_words}{example}"


def _find_todos(value: object, key: Key = ()) -> Iterator[tuple[Key, str]]:
    """Yield the places that `virtqual system init` has left to people, with their sentences."""
    if isinstance(value, str):
        if value.startswith(TODO):
            yield key, value
    elif isinstance(value, Mapping):
        for name, content in value.items():
            yield from _find_todos(content, (*key, str(name)))
    elif isinstance(value, list | tuple):
        for index, content in enumerate(value):
            yield from _find_todos(content, (*key, index))


@dataclass(frozen=True)
class SystemFile:
    """A system file: the dictionary for ReFrame with its system, or the error."""

    path: Path
    #: The system's name, or the file's if the system has no valid one.
    name: str
    #: The name is the system's.
    states_name: bool
    content: tuple[dict[str, Any], System] | VirtqualError

    def load(self) -> System:
        """Return the system; raise the error if its file is wrong, or it is not available at the moment."""
        if isinstance(self.content, VirtqualError):
            raise self.content
        return self.content[1]


def is_name(value: object) -> bool:
    """Return whether ReFrame takes a value for a name."""
    return isinstance(value, str) and bool(re.fullmatch(r"[A-Za-z_][\w-]*", value, flags=re.ASCII))


def read(path: Path) -> SystemFile:
    """Read and check a system file. Its errors are kept, so that they stop no other system.

    ``system`` may also be a sentence that says why the system is not available at the moment.
    """
    file_name = re.sub(r"^[^A-Za-z_]|[^\w-]", "_", path.stem, flags=re.ASCII)
    try:
        raw = _run(path)
        if isinstance(raw, str):
            raise InfrastructureError(f"system {file_name!r}: {raw}")
        if not isinstance(raw, dict):
            raise UsageError(f"{path}: defines no dictionary named 'system'; see docs/system-file.md")
    except VirtqualError as error:
        return SystemFile(path, file_name, False, error)
    states_name = is_name(raw.get("name"))
    name = raw["name"] if states_name else file_name
    try:
        return SystemFile(path, name, states_name, (raw, check(raw, str(path))))
    except UsageError as error:
        return SystemFile(path, name, states_name, error)


def _run(path: Path) -> object:
    """Return the value of ``system`` in a file; an error of the file is a `UsageError` with the line."""
    try:
        reading.read_bytes(path, reading.MAX_REVIEWED_BYTES)
        return runpy.run_path(str(path)).get("system")
    except VirtqualError:
        raise
    except SystemExit as error:
        reason = f"ends the program ({error}): a system that is not there says so by a sentence as `system`"
        raise UsageError(f"{_locate(path, error)}: {reason}") from error
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"{_locate(path, error)}: cannot be read ({reason})") from error


def _locate(path: Path, error: BaseException) -> str:
    """Return the file with the line of an error, if the error has one."""
    if isinstance(error, SyntaxError):
        line = error.lineno
    else:
        frames = traceback.extract_tb(error.__traceback__)
        line = next((frame.lineno for frame in reversed(frames) if frame.filename == str(path)), None)
    return f"{path}:{line}" if line else str(path)
