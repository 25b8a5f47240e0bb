"""The nodes of a session, and the places among which its runs rotate."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel

from virtqual.site.systems import Partition

ALLOCATIONS_VARIABLE = "VIRTQUAL_ALLOCATIONS"
#: The scheduler and the launcher of partitions whose allocation is held (``virtqual.harness.steps``).
STEP = "step"
#: The scheduler takes all cases at once, and starts each when its nodes are free.
MAX_WAITING_CASES = 10_000
#: How many nodes of each side a session uses unless ``--nodes`` says otherwise: no check takes more.
DEFAULT_NODES = 8
#: Slurm alternates between sockets by default, and a VM may show others than its host.
DISTRIBUTION = "block:block"

Nodes = Mapping[str, Sequence[str]]


class Rotation(NamedTuple):
    """The places among which runs of a case rotate; a place has as many nodes of a side as a run takes."""

    #: Number of places; 0 if too few nodes are left for one.
    places: int = 1
    #: Number of places before any node was lost, which is the number of pairs in a turn.
    width: int = 1

    def divided(self, pair: int) -> tuple[int, int]:
        """Return the turn and the place of a pair."""
        return divmod(pair, self.width)


def count_places(rotated: Nodes, nodes: int) -> int:
    """Return among how many places the runs of a case on so many nodes rotate; 0 if nodes are too few.

    Examples
    --------
    >>> rotated = {"bare": ["n1", "n2", "n3", "n4"], "vm": ["v1", "v2", "v3", "v4", "v5"]}
    >>> [count_places(rotated, nodes) for nodes in (1, 2, 3, 5)], count_places({}, 1)
    ([4, 2, 1, 0], 1)
    """
    return min((len(names) // nodes for names in rotated.values()), default=1)


def rotate(rotated: Nodes, of: int, nodes: int) -> Rotation:
    """Return the rotation of a case on so many nodes, if a side had `of` nodes at the beginning.

    Examples
    --------
    >>> rotated = {"bare": ["n1", "n2", "n3"], "vm": ["v1", "v2", "v3", "v4"]}
    >>> [tuple(rotate(rotated, 4, nodes)) for nodes in (1, 2, 4)]
    [(3, 4), (1, 2), (0, 1)]
    >>> tuple(rotate({}, 4, 2))
    (1, 1)
    """
    return Rotation(count_places(rotated, nodes), max(of // nodes, 1) if rotated else 1)


def list_step_options(jobs: Mapping[str, str], partition: Partition) -> list[str]:
    """Return the options by which `srun` starts a step in a partition's component of an allocation."""
    # A step does not take the distribution over from its job.
    distribution = partition.job_options.get("--distribution", DISTRIBUTION)
    return [
        # Slurm finds the others by the id of the first.
        f"--jobid={next(iter(jobs.values()))}",
        f"--het-group={list(jobs).index(partition.name)}",
        f"--distribution={distribution}",
    ]


class SessionNodes(BaseModel, frozen=True):
    """The round and the nodes of a session, handed to the ReFrame processes that it starts."""

    #: None in a process that no session started.
    system: str | None = None
    #: Number of the session's round.
    round: int = 0
    #: By partition the id of its component of the job that the session holds; empty if each run is a job.
    jobs: dict[str, str] = {}
    #: By partition the nodes among which runs rotate; empty if they do not.
    rotated: dict[str, list[str]] = {}
    #: How many nodes of each side the session uses; None for all that the system file states.
    of: int | None = None

    def environment(self) -> dict[str, str]:
        """Return the variable that hands it to ReFrame."""
        return {ALLOCATIONS_VARIABLE: self.model_dump_json()}

    def rotation(self, nodes: int) -> Rotation:
        """Return the rotation of a case on so many nodes."""
        return rotate(self.rotated, self.of or 1, nodes)

    def list_widths(self) -> list[int]:
        """Return all widths that a case may have; see `Rotation`."""
        count = (self.of or 1) if self.rotated else 1
        return sorted({count // nodes for nodes in range(1, count + 1)}, reverse=True)

    def list_places(self, partition: str, nodes: int) -> list[list[str]]:
        """Return the nodes of each place of a partition; none if runs do not rotate."""
        names = self.rotated.get(partition, [])
        count = self.rotation(nodes).places if names else 0
        return [names[place * nodes : (place + 1) * nodes] for place in range(count)]

    def find_component(self, step_options: Sequence[str]) -> str:
        """Return the id of the component that the options of a step name."""
        group = next(option.partition("=")[2] for option in step_options if option.startswith("--het-group="))
        return list(self.jobs.values())[int(group)]

    def list_changed_keys(self, partition: Partition) -> dict[str, Any]:
        """Return the keys of a partition's configuration that a held allocation changes."""
        if partition.name not in self.jobs:
            return {}
        return {
            "scheduler": STEP,
            "launcher": STEP,
            "access": list_step_options(self.jobs, partition),
            "max_jobs": MAX_WAITING_CASES,
        }


def read() -> SessionNodes:
    """Return what the session that started this process handed over."""
    return SessionNodes.model_validate_json(os.environ.get(ALLOCATIONS_VARIABLE) or "{}")
