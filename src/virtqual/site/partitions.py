"""Slurm's partitions and the sizes of their nodes, as Slurm's configuration has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from virtqual.errors import UsageError
from virtqual.files.wording import suggest
from virtqual.site import slurm
from virtqual.site.options import parse_minutes


class NodeSize(NamedTuple):
    """The size of a node; memory in MiB, None if Slurm's configuration has none."""

    cpus: int
    cores: int
    memory_mib: int | None

    @property
    def cpus_per_core(self) -> int:
        """The CPUs of a core that Slurm gives to jobs: fewer than its threads if Slurm leaves some out."""
        return max(1, self.cpus // self.cores)


@dataclass(frozen=True)
class SlurmPartition:
    """A partition of Slurm."""

    name: str
    #: The size of each node by name.
    sizes: Mapping[str, NodeSize]
    #: The longest time limit of a job.
    max_minutes: float
    #: The accounts and the QOS whose jobs the partition takes; None for all.
    accounts: frozenset[str] | None
    qos: frozenset[str] | None

    @cached_property
    def common_size(self) -> NodeSize:
        """The size that most nodes have."""
        return Counter(self.sizes.values()).most_common(1)[0][0]

    @cached_property
    def common_nodes(self) -> list[str]:
        """The nodes of the common size."""
        return [node for node, size in self.sizes.items() if size == self.common_size]

    @cached_property
    def other_nodes(self) -> list[str]:
        """The nodes of another size."""
        return [node for node, size in self.sizes.items() if size != self.common_size]


def read_partition(name: str) -> SlurmPartition:
    """Ask Slurm for a partition; raise `UsageError` if it has no such partition, or no node of it."""
    sizes = {}
    for node, *columns in slurm.list_nodes(name):
        cpus, sockets, cores_per_socket, memory_mib = (int(column) for column in columns)
        # RealMemory is 1 where it is not configured.
        configured_mib = memory_mib if memory_mib > 1 else None
        sizes[node] = NodeSize(cpus, sockets * cores_per_socket, configured_mib)
    if not sizes:
        raise UsageError(
            f"Slurm has no node of a partition {name!r}: {suggest(name, slurm.list_partitions())}"
        )
    settings = slurm.read_partition_settings(name)
    return SlurmPartition(
        name,
        sizes,
        parse_minutes(settings.get("MaxTime", "UNLIMITED")),
        _read_names(settings, "AllowAccounts"),
        _read_names(settings, "AllowQos"),
    )


def _read_names(settings: Mapping[str, str], key: str) -> frozenset[str] | None:
    names = settings.get(key, "ALL")
    return None if names == "ALL" else frozenset(names.split(","))
